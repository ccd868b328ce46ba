//go:build servers

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
	"github.com/belfry-cron/belfry/test/servers"
)

// programs are what the tests start. They are built once.
var programs struct{ dir, belfry, witness string }

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait far more than they work, and each has its own server.
	// Tests that need the whole machine are not parallel.
	const atOnce = "12"
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "belfry-e2e")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		programs.dir = dir
		programs.belfry, programs.witness = filepath.Join(dir, "belfry"), filepath.Join(dir, "witness")
		// make soak gives the options of the race detector.
		flags := strings.Fields(os.Getenv("BELFRY_BUILD"))
		if err := errors.Join(servers.Build(programs.belfry, "cmd/belfry", flags...), servers.Build(programs.witness, "test/e2e/witness")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// lookAtSources opens the directories of the module. The programs are built by the
// tests, of which go test knows nothing: it remembers how tests have ended until
// something changes that they have opened, which are the files of a directory too.
// Only what is opened while tests run counts.
var lookAtSources = sync.OnceValue(func() error {
	return filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		case entry.Name() == ".git":
			return fs.SkipDir
		}
		dir, err := os.Open(path)
		if err != nil {
			return err
		}
		return dir.Close()
	})
})

// patience is how long the tests wait for what should be there soon. It is far
// more than that, for machines that are busy with something else.
const patience = time.Minute

// punctual is how late a run starts at most when nothing is wrong but the machine,
// which may be busy, or stand still for seconds: callers wait as long
// again.
const punctual = patience / 2

// eventually waits until a condition holds. Another process makes it hold, without a notice:
// so this polls, and nothing else in these tests does.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	within(t, patience, what, holds)
}

// within is eventually with another patience.
func within(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	const pause = 40 * time.Millisecond // each look is a request to a busy server
	look := time.NewTicker(pause)
	defer look.Stop()
	for deadline := time.Now().Add(limit); !holds(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

// until waits for a moment.
func until(t testing.TB, moment time.Time) {
	t.Helper()
	<-time.After(time.Until(moment))
}

// folder is the place of a test: what its servers keep, and what its jobs write.
// Jobs of another user can reach it.
type folder struct {
	data     string
	evidence string
}

func newFolder(t testing.TB) *folder {
	t.Helper()
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(programs.dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &folder{data: filepath.Join(dir, "data"), evidence: filepath.Join(dir, "evidence")}
}

// path returns the name of a file beside the evidence.
func (f *folder) path(name string) string { return filepath.Join(filepath.Dir(f.evidence), name) }

// touch makes a file that jobs wait for.
func (f *folder) touch(t testing.TB, name string) {
	t.Helper()
	if err := os.WriteFile(f.path(name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// witness returns what a job runs to write evidence, as job files have it. It is
// executed without a shell.
func (f *folder) witness(words ...string) string {
	args, err := json.Marshal(append([]string{f.evidence}, words...))
	if err != nil {
		panic(err) // strings can be written
	}
	return fmt.Sprintf("{command: %q, args: %s}", programs.witness, args)
}

// events returns what the jobs have written so far.
func (f *folder) events(t testing.TB) []evidence.Event {
	t.Helper()
	data, err := os.ReadFile(f.evidence)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	events, err := evidence.Parse(string(data))
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// count returns how many events of a kind a job has written; "" is any job.
func (f *folder) count(t testing.TB, kind evidence.Kind, name string) int {
	t.Helper()
	n := 0
	for _, e := range f.events(t) {
		if e.Kind == kind && (name == "" || e.Job == "default/"+name) {
			n++
		}
	}
	return n
}

// server is a process of belfry serve.
type server struct {
	*client.Client
	t      testing.TB
	cmd    *exec.Cmd
	url    string
	log    *logBuffer
	exited chan struct{} // closed when the process is gone
	code   int           // once it is
}

// logBuffer keeps what a server logs.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) add(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.WriteString(line)
}

// String returns all lines so far.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// lines returns how many lines have a text.
func (b *logBuffer) lines(text string) int {
	n := 0
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// options are how a server is started, besides the usual.
type options struct {
	program string   // default: programs.belfry
	below   []string // what runs the program, with its arguments
	args    []string // further ones
	env     []string // further ones
}

// me is the user of the tests, whom the jobs run as too.
func me(t testing.TB) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

// serve starts a server that has to answer.
func (f *folder) serve(t testing.TB, o options) *server {
	t.Helper()
	s := f.begin(t, o)
	eventually(t, "the server answers", func() bool {
		select {
		case <-s.exited:
			t.Fatalf("the server ended with exit code %d:\n%s", s.code, s.log)
		default:
		}
		if s.Client == nil && !s.connect() {
			return false
		}
		nodes, err := s.Nodes(t.Context())
		if err != nil {
			return false
		}
		// One that was killed may still be among them.
		for _, n := range nodes.Items {
			if n.Address == s.url && n.State == "live" {
				return true
			}
		}
		return false
	})
	return s
}

// begin starts a server, which need not succeed.
func (f *folder) begin(t testing.TB, o options) *server {
	t.Helper()
	if o.program == "" {
		o.program = programs.belfry
	}
	args := append([]string{
		"serve", "--data", f.data, "--listen", "127.0.0.1:0", "--name", "one", "--run-as", me(t), "--log-format", "json",
	}, o.args...)
	args = slices.Concat(o.below, []string{o.program}, args)
	s := &server{t: t, cmd: exec.Command(args[0], args[1:]...), log: &logBuffer{}, exited: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), o.env...)
	// Its watchdog outlives it by a moment and has the same log.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = write
	err = s.cmd.Start()
	write.Close()
	if err != nil {
		read.Close()
		t.Fatal(err)
	}
	go func() {
		defer read.Close()
		lines := bufio.NewReader(read)
		for {
			line, err := lines.ReadString('\n')
			s.log.add(line)
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = s.cmd.Wait()
		s.code = s.cmd.ProcessState.ExitCode()
		close(s.exited)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			// It shows what all its goroutines do.
			_ = s.cmd.Process.Signal(syscall.SIGQUIT)
			s.awaitExit()
		}
		_ = s.cmd.Process.Kill()
		<-s.exited
		if s.log.lines("WARNING: DATA RACE") > 0 {
			t.Error("the race detector has found something")
		}
		if t.Failed() {
			t.Logf("the log of the server:\n%s", s.log)
		}
	})
	return s
}

// connect makes the client once the server has said where it listens.
func (s *server) connect() bool {
	for line := range strings.Lines(s.log.String()) {
		var answer struct{ Msg, URL, Token string }
		if json.Unmarshal([]byte(line), &answer) != nil || answer.Msg != "listening" {
			continue
		}
		token, err := os.ReadFile(answer.Token)
		if err != nil {
			s.t.Fatal(err)
		}
		s.url = answer.URL
		s.Client, err = client.New(client.Config{URL: answer.URL, Token: strings.TrimSpace(string(token))})
		if err != nil {
			s.t.Fatal(err)
		}
		return true
	}
	return false
}

// kill ends the process as nothing gentle does.
func (s *server) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	<-s.exited
}

// stop ends the process gently, and it must say that all was well.
func (s *server) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	s.awaitExit()
	if s.code != 0 {
		s.t.Fatalf("the server ended with exit code %d:\n%s", s.code, s.log)
	}
}

// awaitExit waits for the end of the process.
func (s *server) awaitExit() {
	s.t.Helper()
	eventually(s.t, "the server ends", func() bool {
		select {
		case <-s.exited:
			return true
		default:
			return false
		}
	})
}

// apply makes documents true.
func (s *server) apply(text string) client.Applied {
	s.t.Helper()
	applied, err := s.tryApply(text)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, text)
	}
	return applied
}

// tryApply is apply for what may be refused.
func (s *server) tryApply(text string) (client.Applied, error) {
	s.t.Helper()
	documents, err := job.Decode("jobs.yaml", []byte(text))
	if err != nil {
		s.t.Fatalf("%v\n%s", err, text)
	}
	var request client.Apply
	for _, d := range documents {
		document, err := client.DocumentOf(d)
		if err != nil {
			s.t.Fatal(err)
		}
		request.Documents = append(request.Documents, document)
	}
	return s.Apply(s.t.Context(), request)
}

// runByHand runs a job of the default namespace.
func (s *server) runByHand(name string) client.Run {
	s.t.Helper()
	run, err := s.RunJob(s.t.Context(), "default", name, client.RunRequest{}, "")
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

// run returns a run as it is now.
func (s *server) run(id job.ID) client.Run {
	s.t.Helper()
	run, err := s.Run(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

// ended waits for the end of a run.
func (s *server) ended(id job.ID) client.Run {
	s.t.Helper()
	var run client.Run
	eventually(s.t, "the run ends", func() bool {
		run = s.run(id)
		return run.State == job.StateDone
	})
	return run
}

// runs returns all runs of a job of the default namespace, the earliest
// scheduled first; "" is all jobs.
func (s *server) runs(name string, states ...job.RunState) []client.Run {
	s.t.Helper()
	var all []client.Run
	const page = 500
	q := client.RunQuery{States: states, PageSize: page}
	if name != "" {
		q.Job = "default/" + name
	}
	for {
		p, err := s.Runs(s.t.Context(), q)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, p.Items...)
		if p.NextPageToken == "" {
			break
		}
		q.PageToken = p.NextPageToken
	}
	return sorted(all)
}

// done returns the runs of a job that are over.
func (s *server) done(name string) []client.Run { return s.runs(name, job.StateDone) }

// output returns what a run has written so far.
func (s *server) output(id job.ID) string {
	s.t.Helper()
	var b strings.Builder
	if err := s.Output(s.t.Context(), id, client.OutputQuery{}, &b); err != nil {
		s.t.Fatal(err)
	}
	return b.String()
}

// command runs belfry and returns what it prints and how it ended.
func command(t testing.TB, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, programs.belfry, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Writer(&out), io.Writer(&out)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}
