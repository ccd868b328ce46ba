package programbench

import (
	"strings"
	"testing"
)

func TestEachLibraryFires(t *testing.T) {
	const tries = 5 // a machine may stall in the one second that counts
	for _, l := range libraries {
		for try := 1; ; try++ {
			r, err := measure(t.Context(), l, 5, 1)
			if err == nil && strings.HasPrefix(r.row(), "| "+l.name+" | 5 | ") && r.Fired > 0 && r.Allocated > 0 {
				break
			}
			if err != nil || try == tries {
				t.Errorf("%s: %+v, %v", l.name, r, err)
				break
			}
		}
	}
}
