package watchdog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HideMemory prevents other processes of this user from reading the memory and environment of this
// process, with its passwords and tokens. It does not protect files.
func HideMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the memory of this process: %w", err)
	}
	return nil
}

// bootID names the time between two starts of the machine.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// selfPath returns a path to the file of the running program, even when another
// version has replaced it.
func selfPath() string { return "/proc/self/exe" }

// clockTick is the unit of start times in /proc: 1/100 s on every architecture that Go supports.
const clockTick = 10 * time.Millisecond

// environmentKept is how much of an environment is read: the shell executor puts BELFRY_RUN and
// BELFRY_ATTEMPT first.
const environmentKept = 4096

// surveyProcesses finds which processes belong to the entries. A process belongs to an entry if it
// is in its process group or cgroup, or has its run and attempt in its initial environment. It must
// have started after the announcement: an older one only has a reused number.
func surveyProcesses(entries []Entry) map[Key][]int {
	found := map[Key][]int{}
	if len(entries) == 0 {
		return found
	}
	since := entries[0].announced
	groups := make(map[int]Entry, len(entries))
	cookies := make(map[string]Key, len(entries))
	for _, e := range entries {
		since = min(since, e.announced)
		cookies[cookie(e.Key)] = e.Key
		if e.PID != 0 {
			groups[e.PID] = e
		}
	}
	self := os.Getpid()
	proc, err := os.Open("/proc")
	if err != nil {
		return found
	}
	names, _ := proc.Readdirnames(-1)
	proc.Close()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		state, group, began, ok := readStat(name)
		if !ok || state == 'Z' || state == 'X' || began < since-clockTick {
			continue
		}
		if e, ok := groups[group]; ok && began >= e.announced-clockTick {
			if pid == group && began > e.spawned+clockTick {
				// The number was free again, and so was the group's.
				delete(groups, group)
				delete(found, e.Key)
				continue
			}
			found[e.Key] = append(found[e.Key], pid)
			continue
		}
		if key, ok := cookies[readCookie(name)]; ok {
			found[key] = append(found[key], pid)
		}
	}
	for _, e := range entries {
		if e.Cgroup == "" {
			continue
		}
		b, _ := os.ReadFile(filepath.Join(e.Cgroup, "cgroup.procs"))
		for line := range strings.Lines(string(b)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid != 0 {
				found[e.Key] = append(found[e.Key], pid)
			}
		}
	}
	return found
}

// readStat returns the state of a process, its process group and when it began
// by the boot clock, rounded down to a tick.
func readStat(pid string) (state byte, group int, began time.Duration, ok bool) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, 0, false
	}
	// The program's name, in parentheses, may have any characters.
	_, rest, ok := bytes.Cut(b[bytes.LastIndexByte(b, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 20 {
		return 0, 0, 0, false
	}
	group, err = strconv.Atoi(string(fields[2]))
	if err != nil {
		return 0, 0, 0, false
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return 0, 0, 0, false
	}
	return fields[0][0], group, time.Duration(ticks) * clockTick, true
}

// cookie is how the environment of an attempt's processes begins.
func cookie(k Key) string {
	return "BELFRY_RUN=" + k.Run.String() + "\x00BELFRY_ATTEMPT=" + strconv.Itoa(k.Number)
}

// readCookie returns the two variables of a process, or "".
func readCookie(pid string) string {
	f, err := os.Open("/proc/" + pid + "/environ")
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, environmentKept)
	n, _ := f.Read(b)
	var run, attempt string
	for v := range strings.SplitSeq(string(b[:n]), "\x00") {
		switch {
		case strings.HasPrefix(v, "BELFRY_RUN="):
			run = v
		case strings.HasPrefix(v, "BELFRY_ATTEMPT="):
			attempt = v
		}
	}
	return run + "\x00" + attempt
}

// killCgroup ends all processes of a cgroup at once, even ones being forked.
func killCgroup(dir string) {
	// Old kernels lack this file; the processes are then killed one by one.
	_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
}
