package watchdog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/internal/sys/clock"
	"github.com/belfry-cron/belfry/job"
)

// Argument is the only argument of a watchdog process.
const Argument = "__watchdog"

// Dead is a dead node, with the content of its journal.
type Dead struct {
	// Settings are the settings of the node's [Config].
	Settings []byte
	// Session is the last that it had.
	Session job.ID
	Journal Journal
	// Ended is closed when no process of its commands remains, but for kept containers: see
	// [Dead.IsKept].
	Ended <-chan struct{}
	// Replaced reports whether another node uses the folder and makes the report itself. Call it
	// only when [Ended] is closed.
	Replaced func() bool
	Log      func(text string)

	kept map[Key]bool
}

// Report reports a dead node to the store. Its context ends when it has taken too long. It is called
// again when kept containers have ended because the node has not come back.
type Report func(ctx context.Context, d Dead)

// Main is the watchdog's process, started with [Argument] by a [Node]: a program that can be a
// node calls it first thing when its only argument is [Argument]. It returns the exit status.
//
// Its standard input is the pipe with the settings and the heartbeats of the node, its
// standard output the pipe for the answers, and file 3 the journal with its lock.
//
// After the node's death, report is called with its remaining attempts. It may be nil.
func Main(report Report) int {
	// The node's terminal and service manager signal whole groups and
	// cgroups, and it must be there when the node is not any more.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	unix.CloseOnExec(journalFD)
	g := guard{
		table: table{file: os.NewFile(journalFD, fileName)},
		heard: clock.Boot(),
		log:   func(text string) { fmt.Fprintln(os.Stderr, "belfry watchdog: "+text) },
	}
	err := HideMemory() // the settings include the store's password
	if err == nil {
		g.boot, err = bootID()
	}
	if err != nil {
		g.log(err.Error())
		return 1
	}
	settings, err := readSettings(os.Stdin)
	if err != nil {
		return 0 // the node died before it sent its settings
	}
	g.run(os.Stdin, os.Stdout)
	g.bury(settings, report, os.Stdout)
	return 0
}

// readSettings reads the first message of the node.
func readSettings(in io.Reader) ([]byte, error) {
	size := make([]byte, 4)
	if _, err := io.ReadFull(in, size); err != nil {
		return nil, err
	}
	settings := make([]byte, min(order.Uint32(size), settingsMax))
	_, err := io.ReadFull(in, settings)
	return settings, err
}

// The answers of a watchdog.
const (
	saysAlive  = '.'
	saysBuried = 'e' // all attempts have ended
)

const (
	journalFD = 3

	// lookEvery is how often the watchdog compares its clock with the
	// deadlines. A machine that wakes from sleep is noticed within it.
	lookEvery = 500 * time.Millisecond
	// silence is the time after a heartbeat at which the watchdog begins to check fences.
	// Heartbeats come every two seconds.
	silence = 2500 * time.Millisecond
	// nodeFirst is how much later the watchdog's deadline is than the node's: a healthy node ends
	// its attempts itself and can give the reason.
	nodeFirst = time.Second
	// killWait bounds the wait for a process after SIGKILL: one that remains hangs in the kernel.
	killWait = 10 * time.Second
	// pollFirst and pollMost are the shortest and longest intervals of polls for ending
	// processes.
	pollFirst, pollMost = 2 * time.Millisecond, 50 * time.Millisecond

	// reportFor bounds the report of a node's death: it is retried during an outage of the
	// store. Attempts that still run then are lost after the lost_after of their job.
	reportFor = 5 * time.Minute

	// beatSize is the length of a heartbeat: the time of a renewal, and a session.
	beatSize = 8 + 16
)

// deathGrace bounds the grace of processes of a dead node: the next node and the slots wait for it.
// A variable for tests.
var deathGrace = time.Second

// guard is the state of the watchdog's process.
type guard struct {
	table table
	boot  string
	log   func(text string)
	// renewed is the node's last message: the boot clock when its last acknowledged renewal was
	// sent, 0 before the first.
	renewed time.Duration
	// session is the session of the node, zero for none.
	session job.ID
	// heard is the boot clock at that message, or at the watchdog's start.
	heard time.Duration
	// asked is when each attempt past its fence was signalled to end.
	asked map[Key]time.Duration
	// locking protects the lock of the journal while the report asks for it.
	locking sync.Mutex
	// unreadable is set while the journal cannot be read, to log that once.
	unreadable bool
}

// run watches until the end of the pipe from the node: when the node is dead and each child that it
// was forking has executed its program or died, since forked children have the pipe open, too.
func (g *guard) run(in io.Reader, out io.Writer) {
	type beat struct {
		renewed time.Duration
		session job.ID
	}
	beats := make(chan beat) // closed at the end of the pipe
	go func() {
		defer close(beats)
		text := make([]byte, beatSize)
		for {
			if _, err := io.ReadFull(in, text); err != nil {
				return
			}
			beats <- beat{time.Duration(order.Uint64(text)), job.ID(text[8:])}
		}
	}()
	answer := func() { _, _ = out.Write([]byte{saysAlive}) } // a dead node does not read it
	answer()
	look := time.NewTimer(lookEvery)
	for {
		select {
		case b, ok := <-beats:
			if !ok {
				return
			}
			g.renewed, g.session, g.heard = b.renewed, b.session, clock.Boot()
			answer()
		case <-look.C:
			wait := lookEvery
			if clock.Boot()-g.heard >= silence && g.fence() {
				wait = pollMost
			}
			look.Reset(wait)
		}
	}
}

// fence ends attempts past their fence, and reports whether some remain. A node that can ends them
// itself a little earlier, with a better reason.
func (g *guard) fence() (left bool) {
	_, slots, err := g.table.read(g.boot)
	if err != nil {
		if !g.unreadable {
			g.log(err.Error())
		}
		g.unreadable = true
		return false
	}
	g.unreadable = false
	var late []Entry
	at := map[Key]slot{}
	now := clock.Boot()
	for _, s := range slots {
		renewed := max(g.renewed, s.renewed)
		if s.alive() && s.Fence > 0 && renewed > 0 && now-renewed-nodeFirst >= s.Fence {
			late = append(late, s.Entry)
			at[s.Key] = s
		}
	}
	if g.asked == nil {
		g.asked = map[Key]time.Duration{}
	}
	if len(late) == 0 {
		clear(g.asked)
		return false
	}
	found := survey(late)
	for _, e := range late {
		// During the scan of all processes a waking node may have ended it and reused its cgroup.
		if len(found[e.Key]) == 0 || !g.table.has(at[e.Key]) {
			continue
		}
		left = true
		since, asked := g.asked[e.Key]
		if !asked {
			// A node that wakes must know why it ended: otherwise it seems to have failed.
			_ = g.table.mark(at[e.Key])
			g.log(fmt.Sprintf("the node is stopped or hangs: ending attempt %d of run %s, which is past its fence", e.Number, e.Run))
		}
		switch {
		case !asked && e.Grace > 0:
			g.asked[e.Key] = now
			e.signal(found[e.Key], syscall.SIGTERM)
		case !asked || now-since >= e.Grace:
			g.asked[e.Key] = now - e.Grace
			e.signal(found[e.Key], syscall.SIGKILL)
		}
	}
	return left
}

// bury ends all processes of a dead node, and reports it.
func (g *guard) bury(settings []byte, report Report, out io.Writer) {
	complete, slots, err := g.table.read(g.boot)
	if err != nil {
		g.log(err.Error())
		return
	}
	reported := make(chan struct{})
	ended := make(chan struct{})
	tell := func(kept map[Key]bool) {
		if report == nil || len(settings) == 0 || g.session.IsZero() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), reportFor)
		defer cancel()
		report(ctx, Dead{
			Settings: settings, Session: g.session, Journal: newJournal(complete, slots), Ended: ended, Replaced: g.replaced, Log: g.log, kept: kept,
		})
	}
	go func() {
		defer close(reported)
		tell(keys(slots))
	}()
	end(g.table, others(slots), g.log)
	// The next node need not wait for the report.
	unlock(g.table.file)
	_, _ = out.Write([]byte{saysBuried}) // for a stopping node, which does not wait for the report
	close(ended)
	again := g.keep(slots)
	<-reported
	if again {
		tell(nil)
	}
}

// replaced reports whether another node has the journal.
func (g *guard) replaced() bool {
	g.locking.Lock()
	defer g.locking.Unlock()
	fd := int(g.table.file.Fd())
	err := syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		_ = syscall.Flock(fd, syscall.LOCK_UN)
	}
	return errors.Is(err, syscall.EWOULDBLOCK)
}

// end ends the processes of a dead node's slots, waits until they are gone, and marks the slots. A
// process that survives SIGKILL hangs in the kernel and eventually counts as gone.
func end(t table, slots []slot, log func(string)) {
	var entries []Entry
	at := map[Key]slot{}
	for _, s := range slots {
		if s.alive() {
			entries = append(entries, s.Entry)
			at[s.Key] = s
		}
	}
	began, wait := clock.Boot(), pollFirst
	for round := 0; len(entries) > 0; round++ {
		found := survey(entries)
		now := clock.Boot() - began
		var left []Entry
		for _, e := range entries {
			pids := found[e.Key]
			if len(pids) == 0 {
				s := at[e.Key]
				s.State = Ended
				// If writing fails, the next node scans again.
				_ = t.write(s)
				continue
			}
			left = append(left, e)
			switch grace := min(e.Grace, deathGrace); {
			case now >= grace:
				// Repeatedly: a new process may have been forked.
				e.signal(pids, syscall.SIGKILL)
			case round == 0:
				e.signal(pids, syscall.SIGTERM)
			}
		}
		if round == 0 && len(left) > 0 {
			log(fmt.Sprintf("the node is gone: ended %d of its commands", len(left)))
		}
		entries = left
		if now >= deathGrace+killWait {
			break
		}
		if len(entries) > 0 {
			time.Sleep(wait)
			wait = min(2*wait, pollMost)
		}
	}
	for _, e := range entries {
		if place, ok := strings.CutPrefix(e.Cgroup, containerPrefix); ok {
			log(fmt.Sprintf("the container of run %s may still run: its engine does not end it (%s)", e.Run, place))
			continue
		}
		log(fmt.Sprintf("run %s hangs in the kernel: process group %d does not react to SIGKILL", e.Run, e.PID))
	}
}

// alive reports whether processes of the entry may be there.
func (e Entry) alive() bool { return e.Command && (e.State == Announced || e.State == Spawned) }

// signal sends a signal to the process group and to found processes that have left it. The group
// gets none if no found process is in it: its number may have been reused.
func (e Entry) signal(pids []int, sig syscall.Signal) {
	if strings.HasPrefix(e.Cgroup, containerPrefix) {
		e.signalContainer(sig)
		return
	}
	if sig == syscall.SIGKILL && e.Cgroup != "" {
		killCgroup(e.Cgroup)
	}
	var targets []int
	for _, pid := range pids {
		group, err := syscall.Getpgid(pid)
		if err != nil {
			continue // gone
		}
		if group == e.PID {
			// Together and once: many programs take a second SIGTERM for something else.
			pid = -group
		}
		if !slices.Contains(targets, pid) {
			targets = append(targets, pid)
		}
	}
	for _, target := range targets {
		_ = syscall.Kill(target, sig) // it may have exited
		if sig == syscall.SIGTERM {
			_ = syscall.Kill(target, syscall.SIGCONT) // a stopped process cannot end
		}
	}
}
