package shell

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// flowVariable names the directory that the steps of a flow share.
const flowVariable = "BELFRY_FLOW_DIR"

const (
	// settleFirst is the delay of the first check of a directory after its last step: by
	// then the store has the result of the step.
	settleFirst = time.Second
	// settleMost is the longest interval between checks of a directory: a flow may pause for days
	// between steps.
	settleMost = time.Minute
	// settleBatch is the most directories in a check: each is a read of the store.
	settleBatch = 50
)

// flowDirs are the shared directories of flows whose steps run on one node. Their parent
// outlives the process, so that a flow that continues after a crash finds its files.
type flowDirs struct {
	parent string

	mu     sync.Mutex
	uses   map[job.ID]int       // number of attempts in a directory
	idle   map[job.ID]time.Time // since when it has no attempt
	asked  map[job.ID]time.Time // when the store was last asked
	looked bool                 // directories of an earlier process are known
}

func newFlowDirs(parent string) *flowDirs {
	return &flowDirs{parent: parent, uses: map[job.ID]int{}, idle: map[job.ID]time.Time{}, asked: map[job.ID]time.Time{}}
}

// enter returns the directory of a flow for an attempt of a user, creating it if necessary. The
// caller must call leave.
func (d *flowDirs) enter(flow job.ID, of account) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := filepath.Join(d.parent, flow.String())
	if err := d.make(dir, of); err != nil {
		return "", fmt.Errorf("make the directory of the flow: %w", err)
	}
	d.uses[flow]++
	return dir, nil
}

// join counts an attempt that is in a directory already.
func (d *flowDirs) join(flow job.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.uses[flow]++
}

// leave records that an attempt no longer uses a directory.
func (d *flowDirs) leave(flow job.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uses[flow]--; d.uses[flow] <= 0 {
		delete(d.uses, flow)
		d.idle[flow] = time.Now()
		delete(d.asked, flow)
	}
}

// make creates a directory that only one user can enter.
func (d *flowDirs) make(dir string, of account) error {
	// Users pass through the parent to their directories, and cannot list or change it.
	if err := os.Mkdir(d.parent, 0o711); err == nil {
		if err := os.Chmod(d.parent, 0o711); err != nil { // the umask may have removed these bits
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if !IsFlowsDir(d.parent) {
		return fmt.Errorf("%s is not a directory that this node alone can change: remove it", d.parent)
	}
	owner := os.Geteuid()
	if of.change {
		owner = int(of.uid)
	}
	if info, err := os.Lstat(dir); err == nil && ownerOf(info) == owner {
		return nil
	}
	// A process that died before the line after next leaves an empty one.
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.New("it belongs to the user of another step: all steps of a flow that is kept together need the same user")
	}
	if err := os.Mkdir(dir, 0o700); err != nil || !of.change {
		return err
	}
	return os.Chown(dir, int(of.uid), int(of.gid))
}

// IsFlowsDir reports whether a path is a directory that only the user of this process can change.
func IsFlowsDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && filepath.IsAbs(path) && info.IsDir() && ownerOf(info) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}

func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// due returns directories without attempts whose flows are due for a check. Checks become
// less and less frequent.
func (d *flowDirs) due(now time.Time) (list []job.ID, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.looked {
		entries, err := os.ReadDir(d.parent)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if flow, err := job.ParseID(e.Name()); err == nil && d.uses[flow] == 0 {
				d.idle[flow] = now.Add(-settleFirst)
			}
		}
		d.looked = true
	}
	for flow, since := range d.idle {
		wait := min(max(settleFirst, d.asked[flow].Sub(since)/4), settleMost)
		last := since
		if at, ok := d.asked[flow]; ok {
			last = at
		}
		if d.uses[flow] == 0 && now.Sub(last) >= wait && len(list) < settleBatch {
			list = append(list, flow)
		}
	}
	return list, nil
}

// SettleFlows removes the directories of flows that have ended in the store. It is called
// each second.
func (e *Executor) SettleFlows(ctx context.Context, over func(ctx context.Context, runs []job.ID) ([]job.ID, error)) error {
	d, now := e.flows, time.Now()
	list, err := d.due(now)
	if err != nil || len(list) == 0 {
		return err
	}
	gone, err := over(ctx, list)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, flow := range list {
		d.asked[flow] = now
	}
	for _, flow := range gone {
		if d.uses[flow] > 0 {
			continue // an attempt counted as lost begins late
		}
		if err := removeTree(filepath.Join(d.parent, flow.String())); err != nil {
			return fmt.Errorf("remove the directory of a flow: %w", err)
		}
		delete(d.idle, flow)
		delete(d.asked, flow)
	}
	return nil
}

// removeTree removes a directory, and what is in directories without the right to write.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			_ = root.Chmod(path, 0o700) // before it is read
		}
		return nil // RemoveAll reports the rest
	})
	return os.RemoveAll(dir)
}
