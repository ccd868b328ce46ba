package servers

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuOf returns the processor time of a process and its children, including ended ones. On a shared
// machine it is more telling than the clock.
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
		// The program's name, in parentheses, may have any characters.
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
			counted = fields[11:15] // and of ended children
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

// ticksPerSecond is the kernel's unit of processor time.
const ticksPerSecond = 100
