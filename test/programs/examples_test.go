package programs_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/test/servers"
)

// within bounds waits for events that take a second, on a busy machine.
const within = 2 * time.Minute

// built has the programs of this module that tests start, each built once, in dir.
var built struct {
	dir   string
	files sync.Map // package path to a func() error that builds it
}

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait far more than they work.
	const atOnce = "8"
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "belfry-programs")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		built.dir = dir
		return m.Run()
	}())
}

// build builds a program of this module.
func build(t *testing.T, pkg string) string {
	t.Helper()
	file := filepath.Join(built.dir, filepath.Base(pkg))
	once, _ := built.files.LoadOrStore(pkg, sync.OnceValue(func() error { return servers.Build(file, pkg) }))
	if err := once.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return file
}

// program is a running program.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	mu    sync.Mutex
	lines []string
	read  chan struct{} // closed at the end of its output
}

// start runs a program in its own directory until stop, or the end of the test.
func start(t *testing.T, file string, env ...string) *program {
	t.Helper()
	cmd := exec.Command(file)
	cmd.Dir = t.TempDir()
	return launch(t, cmd, env...)
}

// launch runs a command line until stop, or the end of the test.
func launch(t *testing.T, cmd *exec.Cmd, env ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: cmd, read: make(chan struct{})}
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.follow(out)
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return p
}

func (p *program) follow(out io.Reader) {
	defer close(p.read)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, lines.Text())
		p.mu.Unlock()
	}
}

func (p *program) output() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// wait waits for a line with a prefix and returns it.
func (p *program) wait(prefix string) string {
	p.t.Helper()
	deadline := time.Now().Add(within)
	for time.Now().Before(deadline) {
		for _, line := range p.output() {
			if strings.HasPrefix(line, prefix) {
				return line
			}
		}
		select {
		case <-p.read:
			deadline = time.Time{}
		case <-time.After(10 * time.Millisecond):
		}
	}
	p.t.Fatalf("%s has not written %q:\n%s", p.cmd.Path, prefix, strings.Join(p.output(), "\n"))
	return ""
}

// stop ends a program like a supervisor, and waits for its end.
func (p *program) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Error(err)
	}
	<-p.read
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%s: %v\n%s", p.cmd.Path, err, strings.Join(p.output(), "\n"))
	}
}

func TestTheEmbeddedServiceTicksAndMakesReports(t *testing.T) {
	t.Parallel()
	p := start(t, build(t, "examples/embedded"), "LISTEN=127.0.0.1:0", "DATABASE_URL=")
	address := strings.TrimPrefix(p.wait("listening on "), "listening on ")
	p.wait("tick ")
	answer, err := http.Post("http://"+address+"/reports/2026", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var report struct{ Year, Orders int }
	if err := json.NewDecoder(answer.Body).Decode(&report); err != nil || report.Year != 2026 || report.Orders != 1266 {
		t.Errorf("the report is %+v, %v", report, err)
	}
	wrong, err := http.Post("http://"+address+"/reports/1999", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Body.Close()
	if text, _ := io.ReadAll(wrong.Body); wrong.StatusCode != http.StatusBadGateway || !strings.Contains(string(text), "there are no orders of 1999") {
		t.Errorf("a report that cannot be made is answered with %d %s", wrong.StatusCode, text)
	}
	p.stop()
}

func TestSharesOfAJobRunAndAreFollowedByASummary(t *testing.T) {
	t.Parallel()
	p := start(t, build(t, "examples/sharding"))
	of := strings.TrimSuffix(strings.TrimPrefix(p.wait("all invoices of "), "all invoices of "), " are sent")
	sent := map[string]int{}
	for _, line := range p.output() {
		if share, customer, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(share, "share ") && strings.HasSuffix(customer, of) {
			sent[customer]++
		}
	}
	p.stop()
	if len(sent) != 8 {
		t.Errorf("the customers of %s were %v", of, sent)
	}
	for customer, n := range sent {
		if n != 1 {
			t.Errorf("%s was sent %d times", customer, n)
		}
	}
}

func TestAFlowOfFunctionsRunsToItsEnd(t *testing.T) {
	t.Parallel()
	p := start(t, build(t, "examples/flow"))
	p.wait("europe: published [12 3] rows, the rows are right")
	p.wait("europe: succeeded, cleaned")
	p.stop()
}
