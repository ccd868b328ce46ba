package replica

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A transaction must not become larger than the estimate of its parts: servers always refuse it.
func TestTheSizeOfARunIsNotUnderestimated(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 123456000, time.UTC)
	full := &store.Run{
		Run: job.Run{
			Namespace: strings.Repeat("n", 100), Name: strings.Repeat("m", 100), Kind: job.RunScheduled, Key: at.Format(time.RFC3339Nano), Shard: 999, Shards: 1000,
			Epoch: 1 << 40, Version: 1 << 40, State: job.StateRunning, Scheduled: at, Due: at, Attempt: 1000, Node: strings.Repeat("o", 100), HoldsSlot: true,
			Params: map[string]string{"key": strings.Repeat("v", 300)}, Outcome: job.OutcomeTimedOut, Reason: job.Text(strings.Repeat("r", 500)), Flow: make([]byte, 1000),
		},
		Slot: strings.Repeat("s", 100), Overlap: job.OverlapReplace, Priority: 1000, LateAfter: at, Last: job.OutcomeTimedOut, First: at, Claimed: at, FirstDue: at,
		AlertAt: at, Others: job.OutcomeTimedOut, CancelBy: strings.Repeat("b", 100), CancelReason: job.Text(strings.Repeat("c", 500)), NextDue: at, FloorBefore: at, LostAfter: time.Hour,
	}
	plain := &store.Run{Run: job.Run{Namespace: "default", Name: "job-1", Kind: job.RunScheduled, State: job.StateReady, Scheduled: at, Due: at, Attempt: 1}, LateAfter: at, NextDue: at}
	for what, r := range map[string]*store.Run{"full": full, "plain": plain} {
		got, most := len(encode(r, codeRun, 0)), runSize(r)
		if got > most {
			t.Errorf("a %s run has %d bytes, and was taken for %d", what, got, most)
		}
		if most > got+runFixed {
			t.Errorf("a %s run has %d bytes, and was taken for %d", what, got, most)
		}
	}
}
