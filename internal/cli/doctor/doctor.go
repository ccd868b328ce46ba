// Package doctor checks a server, its store and its machine for problems, and knows a remedy for
// each.
package doctor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/health"
)

// Finding is the result of a check.
type Finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // one of the four below
	Found  string `json:"found"`
	// Do describes the remedy.
	Do string `json:"do,omitempty"`
}

// OfMachine converts a finding about the machine.
func OfMachine(f health.Finding) Finding {
	return Finding{f.Check.String(), f.Status, f.Found.String(), f.Do.String()}
}

// OfHint returns a hint of a server as a finding.
func OfHint(h client.Hint) Finding { return Finding{h.Check, h.Status, h.Found, h.Do} }

// The meanings of a finding.
const (
	Well  = health.Well
	Note  = health.Note
	Wrong = health.Wrong
	// Mended is put right by the check.
	Mended = "mended"
)

// checkTime bounds the check of the store: some gigabytes from a disk.
const checkTime = 30 * time.Second

// Server is a server that answers.
type Server struct {
	*client.Client
	// Refused describes an error of the client.
	Refused func(error) error
}

// Machine checks the machine of a server, whose process runs if pid is not 0. zone is the name of the
// machine's time zone, or "".
func Machine(ctx context.Context, c config.Server, pid int, zone string, now time.Time) []Finding {
	return []Finding{
		OfMachine(health.DataDirectory(c.Data)), OfMachine(health.DiskSpace(c.Data)), clock(), zoneData(zone, c), watchdogOf(pid),
		OfMachine(health.Separation(c)), OfMachine(health.Shell(c)), OfMachine(health.Containers(ctx, c)), OfMachine(health.Backup(c, now)), controllers(),
	}
}

func zoneData(zone string, c config.Server) Finding {
	f := Finding{Check: "zone data", Status: Well, Found: cron.ZoneTableVersion() + ", built in"}
	if zone != "" && zone != string(c.Timezone) {
		f.Status, f.Found = Note, fmt.Sprintf("%s; schedules without a zone use %s, the machine is in %s", f.Found, c.Timezone, zone)
		f.Do = "set timezone in the configuration to change that"
	}
	return f
}

// watchdogOf finds the server's watchdog process, which ends commands when the server dies.
func watchdogOf(pid int) Finding {
	f := Finding{Check: "watchdog", Status: Note}
	if pid == 0 {
		f.Found = "not running, because no server is"
		return f
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		f.Found = "not visible on this system"
		return f
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range files {
		line, err := os.ReadFile(name)
		if err != nil || !bytes.HasSuffix(line, []byte("\x00"+watchdog.Argument+"\x00")) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(name), "stat"))
		if err != nil {
			continue
		}
		// The program's name, in parentheses, may have any characters.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			f.Status, f.Found = Well, "runs beside the server"
			return f
		}
	}
	f.Status, f.Found = Wrong, fmt.Sprintf("none beside the server, process %d: its commands would survive it", pid)
	f.Do = "restart the server; its log says why the watchdog ended"
	return f
}

// controllers reports whether limits of memory and CPU can hold for a whole run.
func controllers() Finding {
	f := Finding{Check: "cgroup controllers", Status: Note, Do: "limits of memory and CPU then apply to each process instead of the run as a whole"}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		f.Found = "this system has no cgroups"
		return f
	}
	_, path, unified := strings.Cut("\n"+string(own), "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	available, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "cgroup.controllers"))
	if !unified || err != nil {
		f.Found = "cgroup v2 is not mounted at /sys/fs/cgroup"
		return f
	}
	var missing []string
	for _, name := range []string{"memory", "cpu"} {
		if !bytes.Contains([]byte(" "+strings.TrimSpace(string(available))+" "), []byte(" "+name+" ")) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		f.Found = "missing in the cgroup of this process: " + strings.Join(missing, ", ")
		return f
	}
	f.Status, f.Found, f.Do = Well, "memory and cpu", ""
	return f
}
