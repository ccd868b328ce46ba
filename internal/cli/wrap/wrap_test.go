package wrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server accepts every report, or does not answer.
type server struct {
	mu   sync.Mutex
	away error
	got  []client.Report
	// until is the time from a start until its expected end.
	until time.Duration
	heard func(n int) // called with the number of reports
}

func (s *server) Report(_ context.Context, _, _ string, r client.Report, _ string) (client.Reported, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return client.Reported{}, s.away
	}
	s.got = append(s.got, r)
	if s.heard != nil {
		s.heard(len(s.got))
	}
	return client.Reported{Run: job.ID{1}, Until: time.Now().Add(s.until)}, nil
}

func (s *server) Apply(context.Context, client.Apply) (client.Applied, error) {
	return client.Applied{}, nil
}

func openSpool(t *testing.T) *Spool {
	t.Helper()
	spool, err := OpenSpool(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	return spool
}

func config(t *testing.T, s *server, spool *Spool, script string) (Config, *strings.Builder) {
	output := &strings.Builder{}
	return Config{
		Namespace: "default", Name: "j", Command: []string{"sh", "-c", script}, Server: s, Spool: spool, Now: time.Now,
		Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{},
		Warn: func(format string, args ...any) { fmt.Fprintf(output, format+"\n", args...) },
	}, output
}

func states(list []client.Report) string {
	var b strings.Builder
	for i := range list {
		fmt.Fprintf(&b, "%s %s\n", list[i].State, list[i].Run)
	}
	return b.String()
}

// A server counts a run as timed out when its end is overdue: before that it gets another report.
func TestACommandThatRunsLongIsReportedAgain(t *testing.T) {
	end := filepath.Join(t.TempDir(), "end")
	s := &server{until: 30 * time.Millisecond, heard: func(n int) {
		if n == 3 {
			if err := os.WriteFile(end, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	}}
	c, output := config(t, s, openSpool(t), "while ! test -e "+end+"; do sleep 0.01; done")
	if code := Run(t.Context(), c); code != 0 || output.Len() > 0 {
		t.Fatalf("it ends with %d: %s", code, output)
	}
	id := job.ID{1}
	want := fmt.Sprintf("started %s\nstarted %s\nstarted %s\n", job.ID{}, id, id)
	if got := states(s.got); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, fmt.Sprintf("succeeded %s\n", id)) {
		t.Errorf("reported is\n%s", got)
	}
}

func TestAFullSpoolGivesUpTheOldest(t *testing.T) {
	s, spool := &server{away: errors.New("away")}, openSpool(t)
	spool.entries = 3
	var all string
	for i := range 5 {
		c, output := config(t, s, spool, fmt.Sprintf("exit %d", i+1))
		if code := Run(t.Context(), c); code != i+1 {
			t.Fatalf("it ends with %d", code)
		}
		all += output.String()
	}
	if strings.Count(all, "is full: its oldest report is given up") == 0 {
		t.Errorf("nothing is said of what is given up: %q", all)
	}
	list, err := spool.List()
	if err != nil || len(list) != 3 {
		t.Fatalf("the spool has %d files, %v", len(list), err)
	}
	s.away = nil
	f, err := Flush(t.Context(), s, "", spool, t.Logf)
	if err != nil || f != (Flushed{Sent: 3}) {
		t.Errorf("flush ends with %+v, %v", f, err)
	}
	var codes []int
	for _, r := range s.got {
		if r.ExitCode != nil {
			codes = append(codes, *r.ExitCode)
		}
	}
	if fmt.Sprint(codes) != "[3 4 5]" {
		t.Errorf("sent are %v, want the latest", codes)
	}
}

func TestAFullSpoolKeepsReportsWithoutTheirOutput(t *testing.T) {
	s, spool := &server{away: errors.New("away")}, openSpool(t)
	spool.bytes = 4000
	for range 2 {
		c, output := config(t, s, spool, "yes | head -n 1000")
		if code := Run(t.Context(), c); code != 0 || output.Len() > 0 {
			t.Fatalf("it ends with %d: %s", code, output)
		}
	}
	s.away = nil
	f, err := Flush(t.Context(), s, "", spool, t.Logf)
	if err != nil || f.Sent != 2 {
		t.Fatalf("flush ends with %+v, %v", f, err)
	}
	var sizes []int
	for _, r := range s.got {
		if r.State == client.ReportSucceeded {
			sizes = append(sizes, len(r.Output))
		}
	}
	if fmt.Sprint(sizes) != "[2000 0]" {
		t.Errorf("the outputs are %v bytes long", sizes)
	}
}

// With a full disk, or without a directory, the command runs, and its report is sent if a server
// accepts it.
func TestACommandRunsWithoutASpool(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	spool, err := OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	spool.entries, spool.bytes = 1, 1
	s := &server{}
	c, output := config(t, s, spool, "exit 3")
	c.Lock = true
	if code := Run(t.Context(), c); code != 3 || !strings.Contains(output.String(), "the lock is not held on this machine") {
		t.Errorf("it ends with %d: %s", code, output)
	}
	if got := states(s.got); !strings.HasSuffix(got, fmt.Sprintf("failed %s\n", job.ID{1})) {
		t.Errorf("reported is\n%s", got)
	}
	s.away = errors.New("away")
	c, output = config(t, s, spool, "exit 4")
	if code := Run(t.Context(), c); code != 4 || !strings.Contains(output.String(), "the report is lost: away") {
		t.Errorf("it ends with %d: %s", code, output)
	}
}

func TestASpoolThatOthersMayWriteIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	spool, err := OpenSpool(dir)
	if err == nil || !strings.Contains(err.Error(), "0700") {
		t.Errorf("got %v", err)
	}
	// The command runs, and writes no file there.
	s := &server{}
	c, output := config(t, s, spool, "exit 3")
	c.Lock, c.Document = true, []byte(`{}`)
	if code := Run(t.Context(), c); code != 3 || !strings.Contains(output.String(), "the lock is not held on this machine") {
		t.Errorf("it ends with %d: %s", code, output)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the directory of others: %v, %v", left, err)
	}
}

// A command prints its environment, and passes it on.
func TestACommandDoesNotGetTheTokenOfItsReports(t *testing.T) {
	t.Setenv("BELFRY_TOKEN", "belfry_of-the-reports")
	t.Setenv("BELFRY_TOKENS", "another")
	out := filepath.Join(t.TempDir(), "out")
	c, _ := config(t, &server{}, openSpool(t), "env >"+out)
	if code := Run(t.Context(), c); code != 0 {
		t.Fatalf("it ends with %d", code)
	}
	if env, err := os.ReadFile(out); err != nil || strings.Contains(string(env), "of-the-reports") || !strings.Contains(string(env), "BELFRY_TOKENS=another") {
		t.Errorf("the environment is %s, %v", env, err)
	}
}

func TestResultsForAnotherServerStay(t *testing.T) {
	s, spool := &server{away: errors.New("away")}, openSpool(t)
	c, _ := config(t, s, spool, "true")
	c.Address = "https://one"
	Run(t.Context(), c)
	s.away = nil
	if f, err := Flush(t.Context(), s, "https://two", spool, t.Logf); err != nil || f != (Flushed{Left: 1}) {
		t.Errorf("flush ends with %+v, %v", f, err)
	}
	if f, err := Flush(t.Context(), s, "https://one", spool, t.Logf); err != nil || f != (Flushed{Sent: 1}) {
		t.Errorf("flush ends with %+v, %v", f, err)
	}
}

func TestOfMuchOutputTheBeginningAndTheEndAreKept(t *testing.T) {
	var k boundedOutput
	for i := range 100_000 {
		k.add(fmt.Appendf(nil, "line %d\n", i))
	}
	got := k.text()
	if !strings.HasPrefix(got, "line 0\nline 1\n") || !strings.HasSuffix(got, "line 99999\n") || !strings.Contains(got, "bytes left out ...") || len(got) > 256<<10 {
		t.Errorf("%d bytes are kept", len(got))
	}
	var small boundedOutput
	small.add([]byte("a\xffb"))
	if got := small.text(); got != "a\uFFFDb" {
		t.Errorf("got %q", got)
	}
}
