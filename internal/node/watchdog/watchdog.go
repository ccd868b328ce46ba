// Package watchdog ends the processes of a node that dies or hangs. It consists of a small process
// beside the node, the same program with a hidden argument, and a journal: a file of the attempts
// that have begun on this machine.
//
// The node writes each attempt into the journal before it begins (Announce), and removes it when
// the store has acknowledged its result (Forget). So the journal always shows the watchdog what may
// be running, and the next node on the machine what may have taken effect: a claimed attempt that
// is not in the journal of its machine never began.
//
// A pipe connects node and watchdog. When it closes the node is dead: all process groups in the
// journal are asked to end and, after their grace but at most a second, killed. Attempts that never
// began and those that have ended are then reported to the store, with the settings that the node
// sent through the pipe at its start. The pipe carries heartbeats with the time of the session's
// last renewal; a process that outlives its fence is ended as well, which covers a stopped or
// hanging node. Journal and watchdog hold one lock, so that the next node begins only when no
// process of the previous one is left.
//
// The watchdog does not see processes that have left their group and replaced their environment,
// where there are no cgroups; and on systems other than Linux those that have left their group.
package watchdog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/sys/clock"
	"github.com/belfry-cron/belfry/internal/sys/fdpass"
	"github.com/belfry-cron/belfry/job"
)

// Errors that [Open] and Announce may return.
var (
	// ErrInUse is returned by [Open] when another node uses the folder, or the watchdog of a dead one
	// is still working.
	ErrInUse = errors.New("another node uses this folder")
	// ErrFull is returned by Announce when the journal is full.
	ErrFull = errors.New("the watchdog's journal is full")
)

// Config configures the watching of a node.
type Config struct {
	// Dir is the node's folder, which it shares with no other node.
	Dir string
	// Command starts the watchdog. Default: this program with [Argument].
	Command []string
	// Settings tell the [Report] of the watchdog's process how to reach the store when this node has
	// died. They go through a pipe, since they include a password. Nil: there is no report.
	Settings []byte
	// CarryOver is the result of [Node.Carry] in the previous version of the program in this process,
	// whose commands continue; nil for none.
	CarryOver *CarryOver
	// Log receives events such as a restart of the watchdog. Default: no log.
	Log func(text string)
}

// settingsMax bounds Settings: what a configuration has, with room.
const settingsMax = 1 << 20

const (
	// openEvery is the time between two tries to get the journal's lock.
	openEvery = 20 * time.Millisecond
	// answerWithin bounds the answer to a heartbeat. A stopped or hanging watchdog is replaced.
	answerWithin = 10 * time.Second
	// startWithin bounds the start, even on a machine that hangs for a while.
	startWithin = time.Minute
	// tellWithin is how long a node waits for sending its session to the watchdog: microseconds
	// unless that is restarting.
	tellWithin = time.Second
	// restartFirst and restartMost are the waits before the watchdog is
	// started again.
	restartFirst, restartMost = 50 * time.Millisecond, 5 * time.Second
)

// Node is the node's side: it keeps the journal, sends heartbeats and restarts a dead watchdog. Its
// methods may be called from any goroutine.
type Node struct {
	config Config
	table  table
	boot   string

	stop    context.CancelFunc
	stopped chan struct{} // closed once the supervisor has ended
	stays   *child        // the watchdog that stays after stopped; nil for none
	// beats wakes the supervisor to send the heartbeat. A full buffer means
	// that it will.
	beats chan struct{}

	mu sync.Mutex
	// complete is set if each attempt that began here and has no acknowledged result has a slot.
	complete bool
	slots    map[Key]slot
	free     []int // free slots below top
	top      int
	renewed  time.Duration
	session  job.ID // zero if there is none to report
	pid      int    // of the watchdog, 0 if there is none
	carrying bool   // another version of the program continues
	// unsent are closed when the session is on its way to the watchdog.
	unsent []chan struct{}
	// kept has the attempts of which there is a file, and left the state of those of an earlier node.
	kept map[Key]bool
	left []Left
}

// Open opens the journal in config.Dir, ends processes of an earlier node, and starts a watchdog.
// It waits until ctx ends for an earlier node's watchdog to finish. The entries of the earlier
// journal stay until they are forgotten.
func Open(ctx context.Context, config Config) (*Node, error) {
	if config.Log == nil {
		config.Log = func(string) {}
	}
	if len(config.Settings) > settingsMax {
		return nil, fmt.Errorf("the settings for the watchdog's report have %d bytes, at most %d are allowed", len(config.Settings), settingsMax)
	}
	if len(config.Command) == 0 {
		config.Command = []string{selfPath(), Argument}
	}
	n := &Node{
		config: config, slots: map[Key]slot{}, kept: map[Key]bool{}, stopped: make(chan struct{}), beats: make(chan struct{}, 1),
	}
	var err error
	if n.boot, err = bootID(); err != nil {
		return nil, err
	}
	file, err := openJournal(config)
	if err != nil {
		return nil, fmt.Errorf("open the watchdog's journal: %w", err)
	}
	n.table.file = file
	if err := n.begin(ctx); err != nil {
		file.Close()
		return nil, err
	}
	return n, nil
}

func openJournal(config Config) (*os.File, error) {
	name := filepath.Join(config.Dir, fileName)
	if c := config.CarryOver; c != nil {
		return fdpass.File(c.Journal, name), nil
	}
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
}

func (n *Node) begin(ctx context.Context) error {
	if err := lock(ctx, n.table.file); err != nil {
		return err
	}
	complete, slots, err := n.table.read(n.boot)
	if err != nil {
		return err
	}
	n.readKept(slots)
	if n.config.CarryOver == nil {
		// Usually the watchdog has done this, unless it was killed as well.
		end(n.table, others(slots), n.config.Log) //nolint:contextcheck // what is left ends though ctx ends
		for i, s := range slots {
			if s.alive() && !s.Kept {
				slots[i].State = Ended
			}
		}
	}
	n.complete, n.renewed = complete, n.table.renewed()
	for _, s := range slots {
		n.slots[s.Key] = s
		n.top = max(n.top, s.index+1)
	}
	used := make([]bool, n.top)
	for _, s := range slots {
		used[s.index] = true
	}
	for i, u := range used {
		if !u {
			n.free = append(n.free, i)
		}
	}
	if !complete {
		// The rest of the file is of another boot or unreadable.
		if err := n.table.file.Truncate(0); err != nil {
			return fmt.Errorf("empty the watchdog's journal: %w", err)
		}
		if err := n.table.writeHeader(header{boot: n.boot, renewed: n.renewed}); err != nil {
			return err
		}
		for _, s := range slots {
			if err := n.table.write(s); err != nil {
				return err
			}
		}
	}
	child, err := n.start()
	if err != nil {
		return err
	}
	select {
	case <-child.answers:
	case <-child.exited:
		child.kill()
		return errors.New("start the watchdog: it ended at once")
	case <-time.After(startWithin):
		child.kill()
		return errors.New("start the watchdog: it does not respond")
	case <-ctx.Done():
		child.kill()
		return context.Cause(ctx)
	}
	n.config.CarryOver.replace()
	n.wake() // the fences of kept containers count from the last renewal of the node before
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop = stop
	go func() {
		defer close(n.stopped)
		n.supervise(run, child)
	}()
	return nil
}

// lock waits for the lock that an earlier node and its watchdog share. The lock
// belongs to the open file, which the watchdog inherits.
func lock(ctx context.Context, f *os.File) error {
	for {
		if locked, err := tryLock(f); err != nil || locked {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s is locked", ErrInUse, f.Name())
		case <-time.After(openEvery):
		}
	}
}

// tryLock takes the lock unless another process has it.
func tryLock(f *os.File) (locked bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
		return false, fmt.Errorf("lock the watchdog's journal: %w", err)
	}
	return false, nil
}

func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// Began reports whether an attempt may have taken effect on this machine, by an earlier node or
// this one. Call it before Forget.
func (n *Node) Began(k Key) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.slots[k]
	return ok || !n.complete
}

// Reconciled records that every attempt of earlier nodes on this machine is settled in the store.
// From then on the journal is complete.
func (n *Node) Reconciled() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.complete = true
	return n.table.writeHeader(header{n.boot, n.complete, n.renewed})
}

// Announce records in the journal that an attempt may take effect. After an error the attempt must
// not begin. An announced attempt stays unchanged.
func (n *Node) Announce(k Key) error { return n.announce(Entry{Key: k}) }

// Spawning is Announce for a command whose process will be started.
func (n *Node) Spawning(p executor.Process) error {
	place := p.Cgroup
	if p.Container != "" {
		place = containerPrefix + p.Container
	}
	return n.announce(Entry{
		Key: Key{p.Run, p.Number}, Command: true, Cgroup: place, Grace: p.Grace, Fence: p.Fence, Kept: p.Kept,
	})
}

func (n *Node) announce(e Entry) error {
	if len(e.Cgroup) > cgroupMax {
		return fmt.Errorf("announce run %s: the path of its cgroup is longer than %d bytes", e.Run, cgroupMax)
	}
	e.State, e.announced = Announced, clock.Boot()
	n.mu.Lock()
	s, ok := n.slots[e.Key]
	if ok && (s.Command || !e.Command) {
		n.mu.Unlock()
		return nil
	}
	if !ok {
		if len(n.free) > 0 {
			s.index = n.free[len(n.free)-1]
			n.free = n.free[:len(n.free)-1]
		} else if n.top < slotsMax {
			s.index = n.top
			n.top++
		} else {
			n.mu.Unlock()
			return fmt.Errorf("announce run %s: %w", e.Run, ErrFull)
		}
	}
	e.renewed = n.renewed
	s.Entry = e
	n.slots[e.Key] = s
	n.mu.Unlock()

	if err := n.table.write(s); err != nil {
		n.Forget(e.Key)
		return fmt.Errorf("announce run %s: %w", e.Run, err)
	}
	return nil
}

// Spawned records the process of a command. Call it as soon as the id is known.
func (n *Node) Spawned(p executor.Process) {
	n.change(Key{p.Run, p.Number}, func(e *Entry) {
		e.State, e.PID, e.spawned = Spawned, p.PID, clock.Boot()
	})
}

// Ended records that no process of an attempt remains. It stays in the journal, because its result
// is not in the store yet.
func (n *Node) Ended(p executor.Process) {
	n.change(Key{p.Run, p.Number}, func(e *Entry) { e.State = Ended })
}

// Fenced reports whether the watchdog has asked an attempt to end, because the node was silent past
// its fence. Call it before [Ended].
func (n *Node) Fenced(p executor.Process) bool {
	n.mu.Lock()
	s, ok := n.slots[Key{p.Run, p.Number}]
	n.mu.Unlock()
	return ok && s.Fence > 0 && n.table.marked(s)
}

// EndRest kills the remaining processes of a command, wherever they are, and returns their
// number. It examines every process of the machine.
func (n *Node) EndRest(p executor.Process) int {
	n.mu.Lock()
	s, ok := n.slots[Key{p.Run, p.Number}]
	n.mu.Unlock()
	if !ok {
		return 0
	}
	found := survey([]Entry{s.Entry})[s.Key]
	if len(found) > 0 {
		s.signal(found, syscall.SIGKILL)
	}
	return len(found)
}

func (n *Node) change(k Key, f func(*Entry)) {
	n.mu.Lock()
	s, ok := n.slots[k]
	if ok {
		f(&s.Entry)
		n.slots[k] = s
	}
	n.mu.Unlock()
	if ok {
		// The slot is allocated on disk. If writing fails nevertheless, the entry stays announced:
		// its processes are still found.
		_ = n.table.change(s)
	}
}

// Forget removes an attempt whose result the store has acknowledged, or which certainly has not
// begun.
func (n *Node) Forget(k Key) {
	n.mu.Lock()
	s, ok := n.slots[k]
	delete(n.slots, k)
	n.mu.Unlock()
	if !ok {
		return
	}
	// An entry left in the file is harmless to the next node: the store does not list its
	// attempt.
	_ = n.table.write(slot{index: s.index})
	n.forgetKept(k)
	n.mu.Lock()
	n.free = append(n.free, s.index)
	n.mu.Unlock()
}

// Renewed receives the boot clock at the sending of the latest acknowledged renewal of the
// session. Fences count from it. Call it after each renewal, every two seconds: without
// calls for a while, the watchdog begins to check fences.
func (n *Node) Renewed(sent time.Duration) {
	n.mu.Lock()
	n.renewed = sent
	_ = n.table.writeHeader(header{n.boot, n.complete, n.renewed}) // otherwise the next node ends containers too early
	n.mu.Unlock()
	n.wake()
}

// Session sets the session of the node, which is reported when it dies; the zero id means none.
// Call it before the first claim, and after the end of the session. When it returns, the watchdog
// will read it even if the node dies; a restarting watchdog reads it later.
func (n *Node) Session(id job.ID) {
	sent := make(chan struct{})
	n.mu.Lock()
	n.session = id
	n.unsent = append(n.unsent, sent)
	n.mu.Unlock()
	n.wake()
	select {
	case <-sent:
	case <-n.stopped:
	case <-time.After(tellWithin):
	}
}

// PID returns the process id of the watchdog, or 0 if there is none.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pid
}

// outlives reports whether the watchdog would report a session after the node's death, or keep a
// container that the node could not end.
func (n *Node) outlives() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.session.IsZero() && len(n.config.Settings) > 0 {
		return true
	}
	for _, s := range n.slots {
		if s.isKept() {
			return true
		}
	}
	return false
}

// Close ends the watchdog, which first ends running commands. A watchdog with a session to report
// outlives this process by the time of the report. The journal stays.
func (n *Node) Close() error {
	n.stop()
	<-n.stopped
	return n.table.file.Close()
}

func (n *Node) wake() {
	select {
	case n.beats <- struct{}{}:
	default:
	}
}

// supervise sends heartbeats and starts the watchdog again until ctx ends.
func (n *Node) supervise(ctx context.Context, c *child) {
	for {
		began := time.Now()
		err := n.talk(ctx, c)
		if ctx.Err() != nil {
			_ = c.send(n.beat()) // the session to report, if there is one
			if n.isCarrying() {
				n.stays = c
				return
			}
			if n.outlives() {
				c.leave()
			} else {
				c.end()
			}
			return
		}
		c.kill()
		n.config.Log("restarting the watchdog: " + err.Error())
		wait := restartFirst
		if time.Since(began) < restartMost {
			wait = restartMost / 5
		}
		for c = nil; c == nil; wait = min(2*wait, restartMost) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if c, err = n.start(); err != nil {
				n.config.Log(err.Error())
			}
		}
		n.config.Log("the watchdog was restarted")
		n.wake() // the new watchdog has no data yet
	}
}

// talk sends heartbeats until ctx ends or the watchdog fails.
func (n *Node) talk(ctx context.Context, c *child) error {
	patience := time.NewTimer(answerWithin)
	patience.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.exited:
			return errors.New("it has died")
		case <-patience.C:
			return errors.New("it does not answer")
		case <-c.answers:
			patience.Stop()
		case <-n.beats:
			if err := n.tell(c); err != nil {
				return err
			}
			patience.Reset(answerWithin)
		}
	}
}

// tell sends a heartbeat.
func (n *Node) tell(c *child) error {
	n.mu.Lock()
	unsent := n.unsent
	n.unsent = nil
	n.mu.Unlock()
	err := c.send(n.beat())
	if err == nil {
		for _, sent := range unsent {
			close(sent)
		}
	}
	return err
}

// beat returns the text of a heartbeat.
func (n *Node) beat() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append(order.AppendUint64(nil, uint64(n.renewed)), n.session[:]...)
}
