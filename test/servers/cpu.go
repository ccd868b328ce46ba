package servers

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuOf is the processor time that a process and its children have used, also those
// that have ended. On a machine that others use it says more than the clock does.
func cpuOf(pid int) (time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	ticks := int64(0)
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The name of the program is in brackets, and may have anything in it.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 15 {
			continue
		}
		own := filepath.Base(filepath.Dir(name)) == strconv.Itoa(pid)
		if !own && fields[1] != strconv.Itoa(pid) {
			continue
		}
		counted := fields[11:13] // user and system
		if own {
			counted = fields[11:15] // and of children that have ended
		}
		for _, field := range counted {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, err
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// ticksPerSecond is what the kernel tells programs of processor time in.
const ticksPerSecond = 100
