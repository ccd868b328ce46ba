package shell

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/job"
)

// cgroups creates a cgroup for each command. Cgroups are reused: creating and removing
// one costs a tenth of starting a process.
type cgroups struct {
	dir string
	// lock is the open, locked dir, which shows removeOldCgroups of other nodes that this node is
	// alive.
	lock int

	mu    sync.Mutex
	count int
	free  []*cgroup
}

// cgroup is the cgroup of a command. A nil one is none, and is empty.
type cgroup struct {
	dir string
	// fd is the folder, and events the file in it that reports whether it is empty. They stay open,
	// since opening and closing them for each command took longer than creating its pipes.
	fd, events int
	// spent is the processor time of earlier commands.
	spent time.Duration
	// vacated is set when the command and all its processes have ended.
	vacated bool
	// spoiled is set if no other attempt may reuse it: limits were written, or it was
	// killed. Some kernels (6.18) also kill processes created in a cgroup after that.
	spoiled bool
}

// cgroupPrefix begins the names of the folders of nodes. The process id
// follows.
const (
	cgroupPrefix = "belfry-"
	nodeCgroup   = "belfry-node"
	// cgroupPeriod is the period of cpu.max in microseconds, the kernel's default, and
	// cgroupQuotaMin the least valid quota.
	cgroupPeriod   = 100_000
	cgroupQuotaMin = 1000
	// cgroupsFree bounds the cgroups kept for reuse: about as many as commands that end at the same
	// time. The kernel keeps some pages for each, and the node two open files.
	cgroupsFree = 256
)

// newCgroups detects whether cgroups can be created, by creating one with a process in
// it.
func newCgroups(configured string, features *Features) *cgroups {
	missing := func(format string, args ...any) *cgroups {
		features.Missing = append(features.Missing, fmt.Sprintf(format, args...)+
			": limits apply to each process, and processes that leave their group are found by their environment only.")
		return nil
	}
	if configured == "none" {
		return missing("Cgroups are switched off")
	}
	base := configured
	if base == "" {
		var err error
		if base, err = delegatedCgroup(); err != nil {
			return missing("There is no cgroup for the node's commands (%v)", err)
		}
	}
	removeOldCgroups(base)
	controllers := enableControllers(base)
	dir, lock, err := makeNodesCgroup(base, os.Getpid())
	if err != nil {
		return missing("No cgroup can be made (%v)", err)
	}
	c := &cgroups{dir: dir, lock: lock}
	if len(c.dir) > cgroupPathMax {
		c.close()
		return missing("The path of the cgroup %s is too long", c.dir)
	}
	if err := c.try(); err != nil {
		c.close()
		return missing("No process can be put into a cgroup (%v)", err)
	}
	features.Cgroup = c.dir
	var without []string
	enable := func(controller string, feature *string) {
		if controllers[controller] && os.WriteFile(filepath.Join(c.dir, "cgroup.subtree_control"), []byte("+"+controller), 0) == nil {
			*feature = "cgroup"
		} else {
			without = append(without, controller)
		}
	}
	enable("memory", &features.Memory)
	enable("cpu", &features.CPU)
	if len(without) > 0 {
		features.Missing = append(features.Missing, fmt.Sprintf("The cgroup %s lacks controllers: limits of %s apply to each process.", base, strings.Join(without, " and ")))
	}
	return c
}

// cgroupPathMax is the space in the watchdog's journal, minus the name of a command's
// cgroup.
const cgroupPathMax = 350

// delegatedCgroup returns the folder of the node's own cgroup if the node may create others in it:
// it is the root, as in a container, or the service manager has delegated it. Any other cgroup has
// another owner.
func delegatedCgroup() (string, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	path := ""
	for line := range strings.Lines(string(own)) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			path = strings.TrimSuffix(rest, "\n")
		}
	}
	if path == "" {
		return "", errors.New("this system has no cgroup version 2")
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !ok || !strings.HasPrefix(after, "cgroup2 ") || len(fields) < 5 {
			continue
		}
		dir := filepath.Join(fields[4], path)
		if strings.HasPrefix(path, "/..") {
			return "", errors.New("the cgroup is outside of what is mounted")
		}
		if filepath.Base(path) == nodeCgroup {
			dir = filepath.Dir(dir) // an earlier node on this machine moved there
		}
		if path != "/" && !delegated(dir) {
			return "", fmt.Errorf("%s was not delegated; with systemd, Delegate=yes does it", dir)
		}
		if err := unix.Access(dir, unix.W_OK); err != nil {
			return "", fmt.Errorf("%s cannot be written: %w", dir, err)
		}
		return dir, nil
	}
	return "", errors.New("no cgroup version 2 is mounted")
}

// delegated reports whether systemd has marked the cgroup as its service's own.
func delegated(dir string) bool {
	value := make([]byte, 8)
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// enableControllers enables controllers for the children of base, and returns which they have.
// Since a cgroup whose children have controllers must not have processes, the node and its children
// move into a child.
func enableControllers(base string) map[string]bool {
	available, _ := os.ReadFile(filepath.Join(base, "cgroup.controllers"))
	enabled := map[string]bool{}
	for _, name := range []string{"memory", "cpu"} {
		if !strings.Contains(" "+strings.TrimSpace(string(available))+" ", " "+name+" ") {
			continue
		}
		control := filepath.Join(base, "cgroup.subtree_control")
		err := os.WriteFile(control, []byte("+"+name), 0)
		if errors.Is(err, syscall.EBUSY) {
			moveNode(base)
			err = os.WriteFile(control, []byte("+"+name), 0)
		}
		enabled[name] = err == nil
	}
	return enabled
}

// moveNode moves this process and its children, including the watchdog, from base into a cgroup
// below it.
func moveNode(base string) {
	dir := filepath.Join(base, nodeCgroup)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return
	}
	procs, _ := os.ReadFile(filepath.Join(base, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(procs)) {
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		own := strconv.Itoa(os.Getpid())
		if pid == own || len(fields) > 1 && fields[1] == own {
			// If this fails, the controllers stay off.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0)
		}
	}
}

// makeNodesCgroup makes the folder of a node's cgroups, and locks it.
func makeNodesCgroup(base string, pid int) (dir string, lock int, err error) {
	// Another node may remove it between two of these calls, but hardly so often.
	const tries = 3
	for range tries {
		if dir, err = os.MkdirTemp(base, cgroupPrefix+strconv.Itoa(pid)+"-"); err != nil {
			return "", 0, err
		}
		if lock, err = lockCgroup(dir); err != nil {
			continue
		}
		if _, err = os.Stat(dir); err == nil {
			return dir, lock, nil
		}
		unix.Close(lock)
	}
	return "", 0, err
}

// lockCgroup locks a folder, until it is closed or the process has ended, if it
// exists and is not locked.
func lockCgroup(dir string) (lock int, err error) {
	if lock, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return 0, err
	}
	if err = unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(lock)
		return 0, err
	}
	return lock, nil
}

// removeOldCgroups removes the cgroups of dead nodes. Locked cgroups stay, since a container does
// not see the processes of outside nodes.
func removeOldCgroups(base string) {
	old, _ := filepath.Glob(filepath.Join(base, cgroupPrefix+"*"))
	for _, dir := range old {
		text, _, _ := strings.Cut(filepath.Base(dir)[len(cgroupPrefix):], "-")
		pid, err := strconv.Atoi(text)
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		if lock, err := lockCgroup(dir); err == nil {
			removeCgroup(dir)
			unix.Close(lock)
		}
	}
}

// removeCgroup removes a cgroup and its descendants, if they are empty.
func removeCgroup(dir string) {
	inner, _ := filepath.Glob(filepath.Join(dir, "*/cgroup.procs"))
	for _, procs := range inner {
		_ = unix.Rmdir(filepath.Dir(procs))
	}
	_ = unix.Rmdir(dir)
}

// try makes a process in a cgroup, lets it end, and kills another with the
// cgroup.
func (c *cgroups) try() error {
	g, err := c.take(job.Limits{}, Features{})
	if err != nil {
		return err
	}
	defer c.put(g)
	if err := unix.Access(filepath.Join(g.dir, "cgroup.kill"), unix.W_OK); err != nil {
		return err
	}
	const code = 7
	for _, script := range []string{"exit " + strconv.Itoa(code), "kill -STOP $$"} {
		pid, _, err := syscall.StartProcess("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
			Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.fd},
		})
		if err != nil {
			return err
		}
		ends := strings.HasPrefix(script, "exit")
		if !ends {
			g.kill()
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
			return err
		}
		if ends && status.ExitStatus() != code || !ends && !status.Signaled() {
			return fmt.Errorf("%q ended with %#x", script, uint32(status))
		}
	}
	if !g.empty() {
		return errors.New("it is not empty after it was killed")
	}
	return nil
}

// take returns an empty cgroup with the limits that its controllers support.
func (c *cgroups) take(limits job.Limits, features Features) (*cgroup, error) {
	c.mu.Lock()
	var g *cgroup
	if n := len(c.free); n > 0 && limits.Memory == 0 { // the highest memory of a used one is of any command
		g, c.free = c.free[n-1], c.free[:n-1]
	}
	name := c.count
	if g == nil {
		c.count++
	}
	c.mu.Unlock()
	if g == nil {
		var err error
		if g, err = makeCgroup(filepath.Join(c.dir, strconv.Itoa(name))); err != nil {
			return nil, err
		}
	}
	g.vacated = false
	if err := g.limit(limits, features); err != nil {
		c.put(g)
		return nil, err
	}
	return g, nil
}

// makeCgroup makes one, without limits.
func makeCgroup(dir string) (*cgroup, error) {
	err := os.Mkdir(dir, 0o755)
	if err != nil {
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	g, err := openCgroup(dir)
	if err != nil {
		_ = unix.Rmdir(dir)
		return nil, fmt.Errorf("open a cgroup: %w", err)
	}
	return g, nil
}

// openCgroup opens one.
func openCgroup(dir string) (g *cgroup, err error) {
	g = &cgroup{dir: dir, fd: -1, events: -1}
	if g.fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		g.events, err = unix.Openat(g.fd, "cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// reopenCgroup returns the cgroup of a command of another version of the program, nil if there is
// none or it is empty.
func reopenCgroup(dir string) *cgroup {
	if dir == "" {
		return nil
	}
	g, err := openCgroup(dir)
	if err != nil {
		return nil
	}
	return g
}

// retire removes a cgroup that another version of the program has created, and with the
// last one their folder.
func (g *cgroup) retire() {
	g.remove()
	_ = unix.Rmdir(filepath.Dir(g.dir))
}

// put returns a cgroup to the pool. A changed one is removed, and so is one beyond the
// limit.
func (c *cgroups) put(g *cgroup) {
	keep := !g.spoiled && (g.vacated || g.empty())
	c.mu.Lock()
	keep = keep && len(c.free) < cgroupsFree
	if keep {
		c.free = append(c.free, g)
	}
	c.mu.Unlock()
	if !keep {
		g.remove()
	}
}

// close removes the cgroups.
func (c *cgroups) close() {
	for _, g := range c.free {
		g.remove()
	}
	removeCgroup(c.dir)
	unix.Close(c.lock)
}

func (g *cgroup) close() {
	for _, fd := range []int{g.fd, g.events} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func (g *cgroup) remove() {
	g.close()
	// A later node removes one that a hanging process still uses.
	_ = unix.Rmdir(g.dir)
}

func (g *cgroup) limit(limits job.Limits, features Features) error {
	set := func(file, value string) error {
		g.spoiled = true
		if err := os.WriteFile(filepath.Join(g.dir, file), []byte(value), 0); err != nil {
			return fmt.Errorf("limit the cgroup: %w", err)
		}
		return nil
	}
	if limits.Memory > 0 && features.Memory == "cgroup" {
		if err := set("memory.max", strconv.FormatInt(int64(limits.Memory), 10)); err != nil {
			return err
		}
		// Without swap accounting these files do not exist, and an old kernel kills only
		// one process of the group.
		_ = set("memory.swap.max", "0")
		_ = set("memory.oom.group", "1")
	}
	if limits.CPU > 0 && features.CPU == "cgroup" {
		quota := max(int64(limits.CPU*cgroupPeriod), cgroupQuotaMin)
		if err := set("cpu.max", fmt.Sprintf("%d %d", quota, cgroupPeriod)); err != nil {
			return err
		}
	}
	return nil
}

// cpu returns the processor time since its last call, or since the cgroup was made: also of processes
// that no other has waited for. 0 is unknown.
func (g *cgroup) cpu() time.Duration {
	if g == nil {
		return 0
	}
	total := time.Duration(g.number("cpu.stat", "usage_usec ")) * time.Microsecond
	spent := total - g.spent
	g.spent = total
	return spent
}

// peak returns the most memory of all processes of the command together, with the pages of files that
// they use, as its limit counts it; 0 without one or if unknown.
func (g *cgroup) peak(limits job.Limits) int64 {
	if g == nil || limits.Memory == 0 {
		return 0
	}
	return g.number("memory.peak", "")
}

// number reads the number after a prefix of a line of a file; 0 if there is none. It is called for each
// command, for which os.ReadFile takes three times as long.
func (g *cgroup) number(file, prefix string) int64 {
	fd, err := unix.Openat(g.fd, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var b [1024]byte // the files have about 300 bytes
	n, _ := unix.Read(fd, b[:])
	for line := range bytes.Lines(b[:max(n, 0)]) {
		if text, ok := bytes.CutPrefix(line, []byte(prefix)); ok {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
			return n
		}
	}
	return 0
}

func (g *cgroup) path() string {
	if g == nil {
		return ""
	}
	return g.dir
}

// kill kills all processes of the cgroup at once.
func (g *cgroup) kill() {
	if g != nil {
		g.spoiled = true
		// newCgroups has tested that this works.
		_ = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0)
	}
}

// terminate sends SIGTERM to the processes of the cgroup that are not of a process group.
func (g *cgroup) terminate(besides int) {
	if g == nil {
		return
	}
	procs, _ := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	for text := range strings.FieldsSeq(string(procs)) {
		pid, err := strconv.Atoi(text)
		if err != nil || pid <= 0 { // 0 is a process of another PID namespace
			continue
		}
		if group, err := unix.Getpgid(pid); err == nil && group != besides {
			_ = unix.Kill(pid, unix.SIGTERM)
		}
	}
}

// vacate reports whether the cgroup of a command whose process has ended is empty: it then stays
// empty.
func (g *cgroup) vacate() bool {
	g.vacated = g.empty()
	return g.vacated
}

// empty reports whether the cgroup has no processes.
func (g *cgroup) empty() bool {
	if g == nil {
		return true
	}
	var b [128]byte
	n, err := unix.Pread(g.events, b[:], 0)
	return err != nil || bytes.Contains(b[:max(n, 0)], []byte("populated 0"))
}

// oomKills returns how many processes of the cgroup were killed for lack of memory.
func (g *cgroup) oomKills(limits job.Limits) int {
	if g == nil || limits.Memory == 0 {
		return 0
	}
	return int(g.number("memory.events", "oom_kill "))
}
