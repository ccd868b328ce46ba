package shell

import (
	"os"
	"strconv"
	"strings"
)

// maxrssUnit is the unit of the memory in a rusage, and countsBlocks says that the blocks in it
// are bytes, not requests.
const (
	maxrssUnit   = 1 << 10
	countsBlocks = true
)

// ownPeak returns the most memory that this process had since it executes its program.
func ownPeak() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}
