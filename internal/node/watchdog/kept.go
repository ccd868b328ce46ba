package watchdog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/clock"
	"github.com/belfry-cron/belfry/job"
)

// A container runs on when its node dies. The node keeps a file for each, with which its next process
// continues the attempt. The watchdog of a dead node ends the container only if no process of the node
// has come back by its fence.

const (
	// keptDir in the folder of the node has the files.
	keptDir = "running"
	// numberSize is the length of the number of chunks at the start of a file, in decimal digits and a
	// line feed: it is written in place.
	numberSize = 20
	// keptFor is how long an attempt without a fence waits for the next process of its node: the
	// default of lost_after, after which it counts as lost.
	keptFor = time.Minute
)

// Left is a container that an earlier process of the node has left running.
type Left struct {
	Key Key
	// State is what Keep wrote.
	State []byte
	// Chunks is a number that no chunk of the attempt's stored output has reached.
	Chunks int
}

func (n *Node) keptFile(k Key) string {
	return filepath.Join(n.config.Dir, keptDir, k.Run.String()+"-"+strconv.Itoa(k.Number))
}

// Keep keeps the state with which the next process continues an attempt, until Forget.
func (n *Node) Keep(k Key, state []byte) error {
	if err := os.MkdirAll(filepath.Join(n.config.Dir, keptDir), 0o700); err != nil {
		return fmt.Errorf("keep run %s: %w", k.Run, err)
	}
	n.mu.Lock()
	n.kept[k] = true
	n.mu.Unlock()
	if err := os.WriteFile(n.keptFile(k), append(number(0), state...), 0o600); err != nil {
		n.forgetKept(k)
		return fmt.Errorf("keep run %s: %w", k.Run, err)
	}
	return nil
}

// Chunks notes in the file of a kept attempt that its chunks of output may get numbers below another
// one. If that fails the attempt is not kept: its output could not be read again.
func (n *Node) Chunks(k Key, below int) {
	f, err := os.OpenFile(n.keptFile(k), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(number(below), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		n.forgetKept(k)
	}
}

func number(n int) []byte { return fmt.Appendf(nil, "%0*d\n", numberSize-1, n) }

func (n *Node) forgetKept(k Key) {
	n.mu.Lock()
	had := n.kept[k]
	delete(n.kept, k)
	n.mu.Unlock()
	if had {
		_ = os.Remove(n.keptFile(k)) // one that stays is removed by the next process
	}
}

// Left returns the containers that an earlier process has left. Each is continued, or ended with End.
func (n *Node) Left() []Left {
	if n.config.CarryOver != nil {
		return nil // the attempts are carried over
	}
	return n.left
}

// End ends containers of an earlier process.
func (n *Node) End(keys []Key) {
	n.mu.Lock()
	var slots []slot
	for _, k := range keys {
		if s, ok := n.slots[k]; ok && s.alive() {
			slots = append(slots, s)
			s.State = Ended
			n.slots[k] = s
		}
	}
	n.mu.Unlock()
	end(n.table, slots, n.config.Log)
}

// readKept reads the files of kept attempts, and removes those of ended ones. An attempt without a
// file is not kept.
func (n *Node) readKept(slots []slot) {
	files, _ := os.ReadDir(filepath.Join(n.config.Dir, keptDir)) // without files, nothing is kept
	known := map[string]*slot{}
	for i := range slots {
		if s := &slots[i]; s.Kept && s.alive() {
			known[filepath.Base(n.keptFile(s.Key))] = s
			s.Kept = false
		}
	}
	for _, f := range files {
		name := filepath.Join(n.config.Dir, keptDir, f.Name())
		text, err := os.ReadFile(name)
		s := known[f.Name()]
		chunks, state, ok := bytes.Cut(text, []byte("\n"))
		below, badNumber := strconv.Atoi(string(chunks))
		if s == nil || err != nil || !ok || badNumber != nil {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				n.config.Log("remove the file of an attempt that is over: " + err.Error())
			}
			continue
		}
		s.Kept = true
		n.kept[s.Key] = true
		n.left = append(n.left, Left{Key: s.Key, State: state, Chunks: below})
	}
}

// others returns the slots without kept containers.
func others(slots []slot) []slot {
	return slices.DeleteFunc(slices.Clone(slots), func(s slot) bool { return s.isKept() })
}

// isKept reports whether the entry is a container that the next process may continue.
func (e Entry) isKept() bool {
	return e.Kept && e.alive() && strings.HasPrefix(e.Cgroup, containerPrefix)
}

// keep watches the kept containers of a dead node until another process of the node has the journal,
// or had it, or until it has ended all of them at their fences: then it returns true.
func (g *guard) keep(slots []slot) (ended bool) {
	slots = slices.DeleteFunc(slices.Clone(slots), func(s slot) bool { return !s.isKept() })
	for len(slots) > 0 {
		time.Sleep(lookEvery)
		now := clock.Boot()
		late := slices.DeleteFunc(slices.Clone(slots), func(s slot) bool {
			fence := s.Fence
			if fence == 0 {
				fence = keptFor
			}
			return now-max(g.renewed, s.renewed)-nodeFirst < fence
		})
		mine, err := g.endAlone(slots, late)
		if err != nil {
			g.log(err.Error())
		}
		if !mine {
			return false
		}
		slots = slices.DeleteFunc(slots, func(s slot) bool {
			return slices.ContainsFunc(late, func(l slot) bool { return l.Key == s.Key })
		})
		ended = true
	}
	return ended
}

// endAlone ends late ones of all kept containers, unless another process has or had the journal, and
// keeps it from having that meanwhile.
func (g *guard) endAlone(all, late []slot) (mine bool, err error) {
	g.locking.Lock()
	defer g.locking.Unlock()
	if locked, err := tryLock(g.table.file); err != nil || !locked {
		return false, err
	}
	defer unlock(g.table.file)
	if slices.ContainsFunc(all, func(s slot) bool { return !g.table.has(s) }) {
		return false, nil // a process has continued with it meanwhile
	}
	if len(late) > 0 {
		g.log(fmt.Sprintf("the node has not come back: ending %d containers", len(late)))
		for i := range late {
			late[i].Kept = false // the next process must not continue it, even if the engine is away now
			_ = g.table.change(late[i])
		}
		end(g.table, late, g.log)
	}
	return true, nil
}

// keys returns the attempts of slots.
func keys(slots []slot) map[Key]bool {
	list := map[Key]bool{}
	for _, s := range slots {
		if s.isKept() {
			list[s.Key] = true
		}
	}
	return list
}

// Keeps reports whether containers wait for the next process of the node, which then continues its
// session.
func (d *Dead) Keeps() bool { return len(d.kept) > 0 }

// IsKept reports whether an attempt waits for the next process of its node.
func (d *Dead) IsKept(run job.ID, attempt int) bool { return d.kept[Key{run, attempt}] }
