package shell

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
)

// preparedCommand is a command that is ready to start, with the resources to free afterwards.
type preparedCommand struct {
	path string // the file to execute
	// missing is why there is no such file. The attempt starts and fails, as if the program had
	// failed.
	missing  error
	searched string // the PATH that was searched
	argv     []string
	env      []string
	dir      string
	account  account
	umask    *job.Umask // nil for the spawners' umask
	nice     int
	// limits are the limits of the process, for the reason of its end.
	limits   job.Limits
	cpuTime  time.Duration
	cgroup   *cgroup
	oomKills int // of the cgroup at the start

	stdin          string
	input          *os.File // the child's input, once open
	null           *os.File // the shared /dev/null, which stays open
	ends           [2]int   // the child's ends of its output pipes; -1 until open
	stdout, stderr *os.File // the ends for reading the output, once open
	scriptDir      string
	result         string // the file for the result of a step of a flow; "" for none
	flowDir        string // shared by the steps of a flow; "" for none
	leaveFlow      func() // nil for none
	watched        executor.Process
	cgroups        *cgroups // nil for a cgroup of another program
	carried        bool     // another program continues the command
}

// prepare makes and checks everything that is possible before there is a process.
func (e *Executor) prepare(a executor.Attempt) (_ *preparedCommand, err error) {
	expanded, err := a.Job.Expand(a.Data)
	if err != nil {
		return nil, err
	}
	spec := expanded.Shell
	if spec == nil {
		return nil, errors.New("the job has no run.shell")
	}
	p := &preparedCommand{null: e.null, cgroups: e.cgroups, dir: spec.Dir, umask: spec.Umask, nice: spec.Nice, stdin: spec.Stdin, ends: [2]int{-1, -1}}
	defer func() {
		if err != nil {
			p.release()
		}
	}()
	if err := e.bound(p); err != nil {
		return nil, err
	}
	if p.account, err = e.accounts.Load().of(spec.User, spec.Group); err != nil {
		return nil, err
	}
	if a.Together {
		if p.flowDir, err = e.flows.enter(a.Run.Parent, p.account); err != nil {
			return nil, err
		}
		p.leaveFlow = func() { e.flows.leave(a.Run.Parent) }
	}
	if p.dir == "" {
		p.dir = cmp.Or(p.flowDir, e.config.Dir)
	}
	if err := p.makeFiles(e.config.TempDir, spec); err != nil {
		return nil, fmt.Errorf("write the files: %w", err)
	}
	p.env, p.searched = e.environment(a, spec, p)
	for _, v := range p.env {
		if strings.Contains(v, "\x00") {
			name, _, _ := strings.Cut(v, "=")
			return nil, fmt.Errorf("the environment variable %s has a NUL byte", name)
		}
	}

	file := ""
	if spec.Script != "" {
		if file, err = p.newFile(e.config.TempDir, "script", spec.Script); err != nil {
			return nil, fmt.Errorf("write the script: %w", err)
		}
	}
	if p.flowDir != "" {
		p.env = append(p.env, flowVariable+"="+p.flowDir)
	}
	if a.WantsResult {
		if err := p.makeResult(e.config.TempDir); err != nil {
			return nil, fmt.Errorf("make the file of the result: %w", err)
		}
		p.env = append(p.env, resultVariable+"="+p.result)
	}
	if err := p.giveFolder(); err != nil {
		return nil, fmt.Errorf("give the files to the user of the job: %w", err)
	}
	if p.argv, err = commandLine(spec, file); err != nil {
		return nil, err
	}
	p.path, p.missing = lookPath(p.argv[0], p.searched)
	e.limit(p, spec, time.Duration(deref(a.Job.Policy.Timeout)))
	return p, nil
}

// bound checks the job's settings against the node's limits, and clears p.umask if the spawners
// have it already.
func (e *Executor) bound(p *preparedCommand) error {
	if p.nice < e.config.NiceMin {
		return fmt.Errorf("run.nice: %d is below shell.nice_min in the configuration of the node, which is %d", p.nice, e.config.NiceMin)
	}
	own := e.config.Umask
	if p.umask == nil {
		p.umask = own
	}
	if open := *own &^ *p.umask; open != 0 {
		return fmt.Errorf("run.umask: %s is more permissive than shell.umask in the configuration of the node, %s", p.umask, own)
	}
	if *p.umask == e.spawners.umask {
		p.umask = nil
	}
	return nil
}

func deref(d *job.Duration) job.Duration {
	if d == nil {
		return 0
	}
	return *d
}

// environment returns the variables of the command, and the PATH among them.
func (e *Executor) environment(a executor.Attempt, spec *job.Shell, p *preparedCommand) ([]string, string) {
	data := a.Data
	data.Run, data.Attempt = a.Run.ID, a.Number
	data.Params = make(map[string]string, len(a.Job.Params))
	for name, param := range a.Job.Params {
		data.Params[name] = param.Default
	}
	for name, value := range a.Data.Params {
		data.Params[name] = value
	}
	base := map[string]string{
		"PATH": e.config.Path, "LANG": defaultLang, "SHELL": "/bin/sh", "PWD": p.dir,
		"HOME": p.account.home, "USER": p.account.name, "LOGNAME": p.account.name,
	}
	path := e.config.Path
	for _, vars := range []map[string]string{e.config.Env, spec.Env} {
		if v, ok := vars["PATH"]; ok {
			path = v
		}
	}
	return environment(base, e.config.Env, spec.Env, data.Environment()), path
}

// lookPath finds a program as a shell does. A name with a slash is used as it is, relative to the
// command's directory. Relative directories in PATH are skipped.
func lookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	found := error(syscall.ENOENT)
	for dir := range strings.SplitSeq(path, ":") {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := dir + "/" + name
		var st unix.Stat_t
		if unix.Stat(file, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if st.Mode&0o111 != 0 {
			return file, nil
		}
		found = syscall.EACCES
	}
	return name, found
}

// limit sets up the limits of the command, and other settings that a shell must make where threads
// cannot.
func (e *Executor) limit(p *preparedCommand, spec *job.Shell, timeout time.Duration) {
	if spec.Limits != nil {
		p.limits = *spec.Limits
	}
	var t trampoline
	if memory := int64(p.limits.Memory); memory > 0 && e.features.Memory != "cgroup" {
		kib := memory / 1024
		if hard := hardLimit(unix.RLIMIT_AS); hard >= 0 {
			kib = min(kib, hard/1024)
		}
		t.add("ulimit -v %d", kib)
	}
	if p.limits.CPU > 0 && timeout > 0 && timeout < time.Duration(job.Forever) && e.features.CPU != "cgroup" {
		seconds := int64(math.Ceil(p.limits.CPU * timeout.Seconds()))
		if hard := hardLimit(unix.RLIMIT_CPU); hard >= 0 {
			seconds = min(seconds, hard)
		}
		p.cpuTime = time.Duration(seconds) * time.Second
		// SIGXCPU at the first, SIGKILL at the second.
		t.add("ulimit -S -t %d", seconds)
		if hardLimit(unix.RLIMIT_CPU) < 0 {
			t.add("ulimit -H -t %d", seconds+1)
		}
	}
	var prefix []string
	if !e.spawners.threads {
		if p.umask != nil {
			t.add("umask %s", p.umask)
			p.umask = nil
		}
		if p.nice != 0 {
			t.add(":")
			prefix = []string{"nice", "-n", strconv.Itoa(p.nice - e.spawners.baseNice)} // it adds to the node's value
			p.nice = 0
		}
	}
	if len(t) > 0 && p.missing == nil {
		p.argv = t.wrap(append([]string{p.path}, p.argv[1:]...), prefix...)
		p.path = p.argv[0]
	}
}

// hardLimit returns the hard limit of this process, -1 for none.
func hardLimit(resource int) int64 {
	var r unix.Rlimit
	if unix.Getrlimit(resource, &r) != nil || r.Max > math.MaxInt64 {
		return -1
	}
	return int64(r.Max)
}

// openFiles opens the system resources of the command: a cgroup, its input and the pipes of its
// output. It is called right before the process starts: waiting commands, possibly thousands, have
// no open files. If threads share the node's files, each file slows down the creation of each
// process (see link).
func (e *Executor) openFiles(p *preparedCommand) (err error) {
	if e.cgroups != nil {
		if p.cgroup, err = e.cgroups.take(p.limits, e.features); err != nil {
			return err
		}
		p.oomKills = p.cgroup.oomKills(p.limits)
		p.watched.Cgroup = p.cgroup.path()
	}
	p.input = e.null
	if p.stdin != "" {
		if p.input, err = textFile(p.stdin, e.config.TempDir); err != nil {
			return fmt.Errorf("make the standard input: %w", err)
		}
	}
	if p.stdout, p.ends[0], err = outputPipe(); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	if p.stderr, p.ends[1], err = outputPipe(); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	return nil
}

// stdFiles is how many files every command has.
const stdFiles = 3

// files are the files of a new process: its input, output and errors, and its cgroup if it has one.
type files []int

func (p *preparedCommand) files() files {
	list := files{int(p.input.Fd()), p.ends[0], p.ends[1]}
	if p.cgroup != nil {
		list = append(list, p.cgroup.fd)
	}
	return list
}

// closePipes closes the ends of the pipes that are read from.
func (p *preparedCommand) closePipes() {
	for _, f := range []*os.File{p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// closeChildEnds closes the files of the child in this process.
func (p *preparedCommand) closeChildEnds() {
	if p.input != nil && p.input != p.null {
		p.input.Close()
	}
	p.input = nil
	for i, fd := range p.ends {
		if fd >= 0 {
			unix.Close(fd)
		}
		p.ends[i] = -1
	}
}

// release frees what the command needed until its end.
func (p *preparedCommand) release() {
	if p.carried {
		return
	}
	if p.leaveFlow != nil {
		p.leaveFlow()
	}
	if p.scriptDir != "" {
		// A script may remove itself.
		_ = os.RemoveAll(p.scriptDir)
	}
	switch {
	case p.cgroup == nil:
	case p.cgroups == nil:
		p.cgroup.retire()
	default:
		p.cgroups.put(p.cgroup)
	}
}

// scriptPrefix begins the names of the folders of scripts and files. The node's process space (see
// processSpace) and process id follow.
const scriptPrefix = "belfry-script-"

// scriptFolder is the pattern of the folders of this process.
func scriptFolder() string {
	return fmt.Sprintf("%s%s-%d-*", scriptPrefix, processSpace(), os.Getpid())
}

// RemoveOldScripts removes the folders with scripts and files of nodes that have died. A node in a
// container may share the directory, with other process numbers: its folders stay.
func RemoveOldScripts(temp string) {
	prefix := scriptPrefix + processSpace() + "-"
	old, _ := filepath.Glob(filepath.Join(temp, prefix+"*"))
	for _, dir := range old {
		text, _, _ := strings.Cut(filepath.Base(dir)[len(prefix):], "-")
		pid, err := strconv.Atoi(text)
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir) // a folder that cannot be removed belongs to another node
		}
	}
}

// unlinkedFile returns a file with a text that has no name any more.
func unlinkedFile(text, temp string) (*os.File, error) {
	f, err := os.CreateTemp(temp, "belfry-stdin-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return withText(f, text)
}

func withText(f *os.File, text string) (*os.File, error) {
	_, err := io.WriteString(f, text)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
