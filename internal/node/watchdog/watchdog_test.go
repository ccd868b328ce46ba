package watchdog

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/sys/clock"
	"github.com/belfry-cron/belfry/job"
)

// TestMain lets the test program be the watchdog and the node as well.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case patientArgument:
			deathGrace = time.Minute
			fallthrough
		case Argument:
			os.Exit(Main(reportTo))
		case nodeArgument:
			node(os.Args[2:])
			return
		}
	}
	goleak.VerifyTestMain(m)
}

// patience bounds the waits of tests for events that should take milliseconds.
const patience = 3 * time.Minute

const (
	nodeArgument = "__node"
	// patientArgument starts a watchdog that gives the commands of a dead node as much time as a
	// busy machine may need.
	patientArgument = "__patient"
)

var runID = job.ID{1, 2, 3}

// newRun returns a unique run: processes are found by its id, so that two tests with one id would
// end each other's commands.
func newRun(t *testing.T) job.ID {
	t.Helper()
	id, err := job.NewID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// node is a node that runs one command until it is killed. Its arguments are folder, grace, fence
// (0 for none), the command for sh, the run and the watchdog's argument. The command has file 3
// open.
func node(args []string) {
	check := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	n, err := Open(context.Background(), Config{
		Dir: args[0], Settings: []byte(filepath.Join(args[0], reportName)), Log: func(text string) { fmt.Println("log", text) },
		Command: []string{selfPath(), args[5]},
	})
	check(err)
	check(n.Reconciled())
	n.Session(session)
	grace, err := time.ParseDuration(args[1])
	check(err)
	fence, err := time.ParseDuration(args[2])
	check(err)
	run, err := job.ParseID(args[4])
	check(err)
	p := executor.Process{Run: run, Number: 1, Grace: grace, Fence: fence}
	check(n.Spawning(p))
	cmd := exec.Command("sh", "-c", args[3])
	cmd.Env = []string{"PATH=/usr/bin:/bin", "BELFRY_RUN=" + run.String(), "BELFRY_ATTEMPT=1"}
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "alive")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	check(cmd.Start())
	p.PID = cmd.Process.Pid
	n.Spawned(p)
	os.NewFile(3, "alive").Close()
	fmt.Println("running", n.PID())
	for {
		// Each input line renews the session, and prints the watchdog's id, and whether it has
		// ended the command.
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return
		}
		n.Renewed(clock.Boot())
		n.Session(session) // returns once the watchdog has both
		fmt.Println("pid", n.PID())
		fmt.Println("fenced", n.Fenced(p))
	}
}

// session is the session of every node in the tests; the watchdog reports its death to a file.
var session = job.ID{7, 7}

const reportName = "report"

// stubborn is a command that runs until it is killed, a second after its node died.
const stubborn = `trap '' TERM; echo up >&3; sleep 1000`

// untilReported returns a command that ends when the death of its node, in this folder, is
// reported.
func untilReported(dir string) string {
	return fmt.Sprintf(`trap '' TERM; echo up >&3; until [ -s '%s' ]; do sleep 0.01; done`, filepath.Join(dir, reportName))
}

// reportTo is a report that writes to the file which the settings name.
func reportTo(ctx context.Context, d Dead) {
	f, err := os.OpenFile(string(d.Settings), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	running := true
	select {
	case <-d.Ended:
		running = false
	default:
	}
	fmt.Fprintf(f, "session %s with %d attempts, complete %t, running %t\n", d.Session, len(d.Journal.Entries), d.Journal.Complete, running)
	select {
	case <-d.Ended:
		fmt.Fprintf(f, "ended, replaced %t\n", d.Replaced())
	case <-ctx.Done():
	}
	if _, err := os.Stat(string(d.Settings) + ".wait"); err == nil {
		for !d.Replaced() {
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Fprintln(f, "replaced")
	}
}

// reported waits until the report of a death contains a text.
func reported(t *testing.T, dir, want string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		text, _ := os.ReadFile(filepath.Join(dir, reportName))
		if string(text) == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("reported was %q, want %q", text, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// running is a node in a separate process, with its command.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Writer
	lines *bufio.Reader // what the node prints
	alive *os.File      // at its end when no process of the command remains
	says  *bufio.Reader // reads alive
	wd    int           // the watchdog
	key   Key           // of the attempt
}

// folder is a temporary directory, removed again until that succeeds: the watchdog of a dead node may still write
// there.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "belfry-watchdog-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			err := os.RemoveAll(dir)
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	})
	return dir
}

// startNode starts a node and waits until its command has written a line. Its watchdog kills
// what remains of the command a second after its death.
func startNode(t *testing.T, dir string, grace, fence time.Duration, command string) *running {
	t.Helper()
	return startNodeWith(t, Argument, dir, grace, fence, command)
}

// startPatient is startNode with a patient watchdog.
func startPatient(t *testing.T, dir string, grace, fence time.Duration, command string) *running {
	t.Helper()
	return startNodeWith(t, patientArgument, dir, grace, fence, command)
}

func startNodeWith(t *testing.T, watchdog, dir string, grace, fence time.Duration, command string) *running {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	run := newRun(t)
	cmd := exec.Command(os.Args[0], nodeArgument, dir, grace.String(), fence.String(), command, run.String(), watchdog)
	cmd.ExtraFiles = []*os.File{write}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	r := &running{t: t, cmd: cmd, stdin: stdin, lines: bufio.NewReader(out), alive: read, says: bufio.NewReader(read), key: Key{run, 1}}
	t.Cleanup(func() {
		r.kill(syscall.SIGKILL)
		r.gone()
		stdin.Close()
		read.Close()
		_ = cmd.Wait()
	})
	r.wd, err = strconv.Atoi(r.line("running "))
	if err != nil {
		t.Fatal(err)
	}
	r.hears("up\n")
	return r
}

// line returns the rest of the node's next line with a prefix.
func (r *running) line(prefix string) string {
	r.t.Helper()
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			r.t.Fatalf("the node says %q: %v", line, err)
		}
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
}

func (r *running) hears(want string) {
	r.t.Helper()
	_ = r.alive.SetReadDeadline(time.Now().Add(patience))
	if got, err := r.says.ReadString('\n'); got != want {
		r.t.Fatalf("the command says %q, %v; want %q", got, err, want)
	}
}

// renew lets the node renew its session, and returns whether its watchdog has ended the command.
func (r *running) renew() (fenced string) {
	r.t.Helper()
	fmt.Fprintln(r.stdin)
	return r.line("fenced ")
}

func (r *running) kill(sig syscall.Signal) {
	_ = syscall.Kill(r.cmd.Process.Pid, sig)
}

// said returns the output of the command, without waiting for it.
func (r *running) said() (text string, err error) {
	r.t.Helper()
	_ = r.alive.SetReadDeadline(time.Time{})
	alive, err := r.alive.SyscallConn()
	if err != nil {
		r.t.Fatal(err)
	}
	part := make([]byte, 100)
	for n := 1; n > 0; text += string(part[:max(0, n)]) {
		read := func(fd uintptr) bool { n, err = syscall.Read(int(fd), part); return true }
		if err := alive.Read(read); err != nil {
			r.t.Fatal(err)
		}
	}
	return text, err
}

// gone waits until no process of the command remains and returns its output.
func (r *running) gone() string {
	r.t.Helper()
	_ = r.alive.SetReadDeadline(time.Now().Add(patience))
	rest, err := io.ReadAll(r.says)
	if err != nil && !errors.Is(err, os.ErrClosed) {
		r.t.Fatalf("the command is still there: %v", err)
	}
	return string(rest)
}

func open(t *testing.T, dir string) *Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := Open(ctx, Config{Dir: dir, Log: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func TestCommandsOfADeadNodeAreEnded(t *testing.T) {
	for _, c := range []struct {
		name, command string
		grace         time.Duration
		says          string
	}{
		{"asked politely first", `trap 'echo bye >&3; exit' TERM; echo up >&3; while :; do sleep 0.01; done`, time.Minute, "bye\n"},
		{"killed after its grace when it ignores SIGTERM", `trap '' TERM; echo up >&3; sleep 1000`, 100 * time.Millisecond, ""},
		{"killed long before the end of a long grace", stubborn, time.Hour, ""},
		{"killed at once without a grace", `trap 'echo bye >&3' TERM; echo up >&3; sleep 1000; sleep 1000`, 0, ""},
		{"with what it has started", `sleep 1000 & sleep 1000 & echo up >&3; wait`, time.Minute, ""},
		{"when it is a grandchild whose parent is gone", `(sleep 1000; echo late >&3) & echo up >&3`, time.Minute, ""},
		{"when it has left the process group", `setsid sh -c 'echo up >&3; sleep 1000' & wait`, time.Minute, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			start := startNode
			if c.says != "" {
				start = startPatient
			}
			r := start(t, folder(t), c.grace, 0, c.command)
			killed := time.Now()
			r.kill(syscall.SIGKILL)
			if got := r.gone(); got != c.says {
				t.Errorf("the command said %q, want %q", got, c.says)
			}
			t.Log("gone after", time.Since(killed))
		})
	}
}

func TestDeathIsReportedAtOnceAndAfterTheCommandsEnd(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := startPatient(t, dir, time.Minute, 0, untilReported(dir))
	r.kill(syscall.SIGKILL)
	reported(t, dir, fmt.Sprintf("session %s with 1 attempts, complete true, running true\nended, replaced false\n", session))
}

// The next node does not wait for the report, which the store may refuse, and the report learns of
// the next node.
func TestNextNodeDoesNotWaitForTheReport(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := startPatient(t, dir, time.Minute, 0, untilReported(dir))
	if err := os.WriteFile(filepath.Join(dir, reportName+".wait"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.kill(syscall.SIGKILL)
	r.gone()
	text := fmt.Sprintf("session %s with 1 attempts, complete true, running true\nended, replaced false\n", session)
	reported(t, dir, text)
	open(t, dir)
	reported(t, dir, text+"replaced\n")
}

func TestCleanExitIsNotReportedAsDeath(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	n, err := Open(t.Context(), Config{Dir: dir, Settings: []byte(filepath.Join(dir, reportName))})
	if err != nil {
		t.Fatal(err)
	}
	n.Session(session)
	n.Session(job.ID{})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, reportName)); err == nil {
		t.Errorf("reported was %q", text)
	}
}

// A node that stops while its store is away leaves the report to its watchdog, without waiting for
// it.
func TestStoppedNodeLeavesItsReportToTheWatchdog(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	if err := os.WriteFile(filepath.Join(dir, reportName+".wait"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), Config{Dir: dir, Settings: []byte(filepath.Join(dir, reportName))})
	if err != nil {
		t.Fatal(err)
	}
	n.Session(session)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir) // the report waits for this
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(dir, reportName))
		if strings.HasPrefix(string(text), "session "+session.String()) && strings.HasSuffix(string(text), "\nreplaced\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("reported was %q", text)
		}
	}
}

func TestCommandsOfAFrozenNodeEndAtTheFence(t *testing.T) {
	t.Parallel()
	const fence = silence
	// Each takes seconds, so they are stopped together.
	loops := startNode(t, folder(t), time.Minute, fence, `trap 'echo bye >&3; exit' TERM; echo up >&3; while :; do sleep 0.01; done`)
	stopped := startNode(t, folder(t), time.Minute, fence, `trap 'echo bye >&3; exit' TERM; (kill -STOP $$; sleep 0.1; echo up >&3) & while :; do sleep 0.01; done`)
	ignores := startNode(t, folder(t), 100*time.Millisecond, fence, stubborn)
	unfenced := startNode(t, folder(t), 0, 0, `echo up >&3; while :; do sleep 0.5; echo on >&3; done`)
	before := time.Now()
	all := []*running{loops, stopped, ignores, unfenced}
	for _, r := range all {
		r.renew()
	}
	began := time.Now()
	for _, r := range all {
		r.kill(syscall.SIGSTOP)
	}
	if got := loops.gone(); got != "bye\n" {
		t.Errorf("the command said %q, want a SIGTERM before it was killed", got)
	}
	took := time.Since(began)
	if lived := time.Since(before); lived < fence {
		t.Errorf("gone after %v, before the node would have ended it by itself", lived)
	}
	if got := stopped.gone(); got != "bye\n" {
		t.Errorf("the command that was stopped as well said %q, want a SIGTERM before it was killed", got)
	}
	ignores.gone()
	for range 2 * took / time.Second {
		unfenced.hears("on\n")
	}
	// A node that wakes learns that the command did not fail.
	for _, c := range []struct {
		r      *running
		fenced string
	}{{loops, "true"}, {stopped, "true"}, {ignores, "true"}, {unfenced, "false"}} {
		c.r.kill(syscall.SIGCONT)
		if got := c.r.renew(); got != c.fenced {
			t.Errorf("a node that wakes learns that its watchdog has ended the command: %s, want %s", got, c.fenced)
		}
	}
}

func TestDeadWatchdogIsReplaced(t *testing.T) {
	t.Parallel()
	r := startNode(t, folder(t), 0, 0, `echo up >&3; sleep 1000`)
	if err := syscall.Kill(r.wd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.line("log the watchdog was restarted")
	// The pipe is at its end whenever the watchdog begins to read.
	r.kill(syscall.SIGKILL)
	r.gone()
}

func TestGroupSignalsSpareTheWatchdog(t *testing.T) {
	t.Parallel()
	n := open(t, folder(t))
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if err := syscall.Kill(n.PID(), sig); err != nil {
			t.Fatal(err)
		}
	}
	if group, err := syscall.Getpgid(n.PID()); err != nil || group != n.PID() {
		t.Errorf("the watchdog is in group %d, %v; want its own", group, err)
	}
	before := n.PID()
	look := time.NewTicker(restartFirst / 10)
	defer look.Stop()
	for began := time.Now(); time.Since(began) < 6*restartFirst; <-look.C {
		n.Renewed(clock.Boot())
		if after := n.PID(); before != after {
			t.Fatal("the watchdog had to be replaced")
		}
	}
}

func TestNextNodeEndsOrphansOfAKilledWatchdog(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := startNode(t, dir, 0, 0, `echo up >&3; sleep 1000`)
	// The node is stopped first, so that it cannot start another watchdog.
	r.kill(syscall.SIGSTOP)
	_ = syscall.Kill(r.wd, syscall.SIGKILL)
	r.kill(syscall.SIGKILL)
	n := open(t, dir)
	if got := r.gone(); got != "" {
		t.Errorf("the command said %q", got)
	}
	e, ok := n.Journal().Entries[r.key]
	if !ok || e.State != Ended || !n.Journal().Complete {
		t.Errorf("the journal has %+v, %v, complete %v; want the ended attempt", e, ok, n.Journal().Complete)
	}
}

func TestNextNodeWaitsForTheWatchdog(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := startPatient(t, dir, time.Minute, 0, `trap 'sleep 0.3; echo bye >&3; exit' TERM; echo up >&3; while :; do sleep 0.01; done`)
	r.kill(syscall.SIGKILL)
	n := open(t, dir)
	if rest, err := r.said(); err != nil || rest != "bye\n" {
		t.Errorf("when the next node begins, the command has said %q, %v; want its end", rest, err)
	}
	if e := n.Journal().Entries[r.key]; e.State != Ended {
		t.Errorf("the journal says %+v, want it ended", e)
	}
}

func TestDirectoryServesOneNode(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	open(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, Config{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second node gets %v, want ErrInUse", err)
	}
}

func TestJournalNamesStartedAttempts(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	k := func(number int) Key { return Key{runID, number} }
	n := open(t, dir)
	if n.Journal().Complete || !n.Journal().Began(k(1)) {
		t.Error("a new journal is complete: it knows nothing about the time before it")
	}
	for _, number := range []int{1, 2, 3} {
		if err := n.Announce(k(number)); err != nil {
			t.Fatal(err)
		}
	}
	n.Ended(executor.Process{Run: runID, Number: 2})
	n.Forget(k(3))
	n.Forget(k(3))
	n.Close()

	n = open(t, dir)
	if n.Journal().Complete {
		t.Error("the journal is complete before it was reconciled")
	}
	if err := n.Reconciled(); err != nil {
		t.Fatal(err)
	}
	n.Close()

	n = open(t, dir)
	j := n.Journal()
	if !j.Complete {
		t.Error("the journal is not complete")
	}
	for number, began := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
		if j.Began(k(number)) != began {
			t.Errorf("attempt %d began: %v, want %v", number, !began, began)
		}
	}
	n.Forget(k(1))
	now, err := readJournal(dir)
	if err != nil || !now.Complete || now.Began(k(1)) || !now.Began(k(2)) {
		t.Errorf("read while it is open: %+v, %v", now, err)
	}
}

func TestMarkBelongsToOneAttempt(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	n := open(t, dir)
	first := executor.Process{Run: newRun(t), Number: 1, Fence: time.Minute}
	if err := n.Spawning(first); err != nil {
		t.Fatal(err)
	}
	if n.Fenced(first) {
		t.Error("an attempt that was not asked to end seems fenced")
	}
	n.mu.Lock()
	late := n.slots[Key{first.Run, 1}]
	n.mu.Unlock()
	n.Forget(late.Key)
	next := executor.Process{Run: newRun(t), Number: 1, Fence: time.Minute}
	if err := n.Spawning(next); err != nil {
		t.Fatal(err)
	}
	// The watchdog has read the slot before it was reused.
	if err := n.table.mark(late); err != nil {
		t.Fatal(err)
	}
	if n.Fenced(next) {
		t.Error("an attempt seems fenced because the one before it in its slot was")
	}
	if journal, err := readJournal(dir); err != nil || !journal.Began(Key{next.Run, 1}) || len(journal.Entries) != 1 {
		t.Errorf("a mark has damaged the journal: %+v, %v", journal, err)
	}
}

func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	n := open(t, dir)
	for range 100 {
		k := Key{newRun(t), 1}
		if err := n.Announce(k); err != nil {
			t.Fatal(err)
		}
		n.Forget(k)
	}
	info, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil || info.Size() > headerSize+slotSize {
		t.Errorf("after one attempt at a time the journal has %d bytes, want room for one: %v", info.Size(), err)
	}
	n.mu.Lock()
	n.top = slotsMax // as if all other slots were taken
	n.mu.Unlock()
	if err := n.Announce(Key{newRun(t), 1}); err != nil {
		t.Errorf("the last slot: %v", err)
	}
	if err := n.Announce(Key{newRun(t), 1}); !errors.Is(err, ErrFull) {
		t.Errorf("beyond the last slot: %v, want ErrFull", err)
	}
}

func TestDoubtfulJournalIsIncomplete(t *testing.T) {
	t.Parallel()
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	good := func(tb table) {
		if err := tb.writeHeader(header{boot: boot, complete: true}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if err := tb.write(slot{Entry: Entry{Key: Key{runID, i}, State: Announced}, index: i}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name     string
		spoil    func(f *os.File) error
		complete bool
		entries  int
	}{
		{"whole", func(*os.File) error { return nil }, true, 3},
		{"of another boot", func(f *os.File) error { return table{f}.writeHeader(header{boot: "another", complete: true}) }, false, 0},
		{"with a broken header", func(f *os.File) error { _, err := f.WriteAt([]byte{1}, 30); return err }, false, 0},
		{"with a broken slot", func(f *os.File) error { _, err := f.WriteAt([]byte{1}, headerSize+slotSize+100); return err }, false, 2},
		{"cut off", func(f *os.File) error { return f.Truncate(100) }, false, 0},
		{"empty", func(f *os.File) error { return f.Truncate(0) }, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t)
			f, err := os.Create(filepath.Join(dir, fileName))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			good(table{f})
			if err := c.spoil(f); err != nil {
				t.Fatal(err)
			}
			j, err := readJournal(dir)
			if err != nil || j.Complete != c.complete || len(j.Entries) != c.entries {
				t.Errorf("complete %v with %d entries, %v; want %v with %d", j.Complete, len(j.Entries), err, c.complete, c.entries)
			}
			if n := open(t, dir); n.Journal().Complete != c.complete || len(n.Journal().Entries) != c.entries {
				t.Errorf("opened: complete %v with %d entries", n.Journal().Complete, len(n.Journal().Entries))
			}
		})
	}
}

func TestReusedProcessIDIsSpared(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	before := clock.Boot()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	key := Key{newRun(t), 1}
	e := Entry{Key: key, State: Spawned, Command: true, PID: cmd.Process.Pid, announced: before, spawned: clock.Boot()}
	if got := survey([]Entry{e})[key]; len(got) != 1 {
		t.Errorf("the survey finds %v, want the process", got)
	}
	e.announced, e.spawned = before-time.Hour, before-time.Hour+time.Second
	if got := survey([]Entry{e})[key]; len(got) != 0 {
		t.Errorf("the survey finds %v of an entry from an hour ago", got)
	}
}

// Whoever can write the journal is the user of the server. A forged entry ends what it names as long as that
// may have begun after its announcement, and no older process: docs/security.md says what else it can do.
func TestAForgedJournalEndsNoProcessOlderThanItsEntry(t *testing.T) {
	t.Parallel()
	sleeper := func() (pid int, ended chan struct{}) {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended = make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		return cmd.Process.Pid, ended
	}
	before := clock.Boot()
	older, olderEnded := sleeper()
	named, namedEnded := sleeper()
	dir := folder(t)
	f, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	if err := (table{f}).writeHeader(header{boot: boot, complete: true}); err != nil {
		t.Fatal(err)
	}
	after := clock.Boot() + time.Hour
	for i, e := range []Entry{
		{PID: older, announced: after, spawned: after},
		{PID: named, announced: before, spawned: after},
		{PID: 1, announced: after, spawned: after},
		{PID: os.Getpid(), announced: before, spawned: after},
		{Cgroup: filepath.Join(dir, "no", "such", "cgroup"), announced: before},
	} {
		e.Key, e.State, e.Command = Key{newRun(t), 1}, Spawned, true
		if err := (table{f}).write(slot{Entry: e, index: i}); err != nil {
			t.Fatal(err)
		}
	}
	n := open(t, dir)
	select {
	case <-namedEnded:
	case <-time.After(patience):
		t.Error("the process that the entry names runs on")
	}
	select {
	case <-olderEnded:
		t.Error("a process was ended that is older than the entry that names it")
	default:
	}
	if n.Began(Key{newRun(t), 1}) {
		t.Error("an attempt that is not in a complete journal has begun")
	}
}

func BenchmarkJournal(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	n, err := Open(ctx, Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	p := executor.Process{Run: runID, PID: 1, Fence: time.Hour}
	for b.Loop() {
		p.Number++
		if err := n.Spawning(p); err != nil {
			b.Fatal(err)
		}
		n.Spawned(p)
		n.Ended(p)
		n.Forget(Key{p.Run, p.Number})
	}
}

// Journal returns the node's view of its journal.
func (n *Node) Journal() Journal {
	n.mu.Lock()
	defer n.mu.Unlock()
	return newJournal(n.complete, slices.Collect(maps.Values(n.slots)))
}

// readJournal reads the journal in a folder, while its node is running or after its
// end.
func readJournal(dir string) (Journal, error) {
	f, err := os.Open(filepath.Join(dir, fileName))
	if err != nil {
		return Journal{}, err
	}
	defer f.Close()
	boot, err := bootID()
	if err != nil {
		return Journal{}, err
	}
	complete, slots, err := table{file: f}.read(boot)
	return newJournal(complete, slots), err
}
