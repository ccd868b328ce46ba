package sim

import (
	"testing"
	"time"
)

func TestATraceHasEachKindOfStep(t *testing.T) {
	seen := map[TraceKind]int{}
	for seed := range uint64(3) {
		steps, err := Trace(1+seed, sliceOf, "retry", 200)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			seen[s.Kind]++
		}
	}
	t.Log(seen)
	for kind := Created; kind <= Joined; kind++ {
		if seen[kind] == 0 {
			t.Errorf("no step of kind %d in %v", kind, 3*sliceOf.Round(time.Minute))
		}
	}
}
