package programbench

import (
	"strings"
	"testing"
)

func TestEachLibraryFires(t *testing.T) {
	for _, l := range libraries {
		line, err := measure(t.Context(), l, 5, 1)
		if err != nil || !strings.Contains(line, "| "+l.name+" | 5 |") || strings.Contains(line, "| 0.0 %") {
			t.Errorf("%s: %s, %v", l.name, line, err)
		}
	}
}
