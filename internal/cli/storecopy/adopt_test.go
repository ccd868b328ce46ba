package storecopy

import (
	"context"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/store"
)

// forgetful is a target that drops writes, so that each step finds the same changes.
type forgetful struct {
	Store
	steps int
}

func (f *forgetful) Operate(_ context.Context, op engine.Operation) error {
	f.steps++
	adopt := op.(*engine.Adopt)
	adopt.Changed, adopt.More = 100, true
	return nil
}

func TestCopyEndsWhereTheTargetKeepsNothing(t *testing.T) {
	to := &forgetful{}
	c := copying{to: to}
	err := c.adopt(t.Context(), &engine.Adopt{Cells: []engine.Adopted{{Cell: engine.Cell{Runs: make([]store.Run, 250)}}}})
	if err == nil || !strings.Contains(err.Error(), "the target does not keep what is written to it") {
		t.Errorf("got %v", err)
	}
	if most := 2*surplusMax/100 + 10; to.steps > most {
		t.Errorf("it made %d steps, at most %d are needed", to.steps, most)
	}
}
