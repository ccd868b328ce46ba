package failurelog_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
)

func TestTroubleIsLoggedAtItsBeginningAndEnd(t *testing.T) {
	var said logtest.Log
	tries := failurelog.New(slog.New(slog.NewTextHandler(&said, nil)), "the store fails", "the store responds again")
	fails, other := errors.New("it is away"), errors.New("it is full")
	for _, step := range []struct {
		saw         error
		begun, over int // numbers of these log lines
	}{
		{nil, 0, 0},
		{fails, 1, 0},
		{fails, 1, 0},
		{other, 1, 0},
		{nil, 1, 1},
		{nil, 1, 1},
		{other, 2, 1},
	} {
		tries.Saw(step.saw)
		if begun, over := said.Count(`level=ERROR msg="the store fails" error=`), said.Count(`level=INFO msg="the store responds again"`); begun != step.begun || over != step.over {
			t.Fatalf("after %v: begins %d times, ends %d times; want %d and %d:\n%s", step.saw, begun, over, step.begun, step.over, said.String())
		}
	}
	if begun, over := said.Count(`error="it is away"`), said.Count(`after="it is away"`); begun != 1 || over != 1 {
		t.Errorf("the first error is logged %d times at the beginning and %d times at the end", begun, over)
	}
}
