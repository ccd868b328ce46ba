package memory_test

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

func TestTheOldestRecordsGoWhenThereAreTwiceAsManyAsAreKept(t *testing.T) {
	const kept, made = 10, 195
	s := memory.New(memory.Options{Records: kept})
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	record := func(n int) store.Record {
		return store.Record{
			Run:     job.Run{ID: job.ID{1, byte(n)}, JobUID: job.ID{1}, Namespace: "default", Name: "j"},
			Attempt: job.Attempt{Number: 1, Ended: began.Add(time.Duration(n) * time.Second), Outcome: job.OutcomeSucceeded},
			Final:   true, Count: 1,
		}
	}
	for n := range made {
		if err := s.Append(t.Context(), []store.Record{record(n)}); err != nil {
			t.Fatal(err)
		}
		list, _, err := s.Attempts(t.Context(), store.HistoryQuery{Limit: made})
		if err != nil {
			t.Fatal(err)
		}
		if least := min(n+1, kept); len(list) < least || len(list) >= 2*kept || list[0].Run.ID != record(n).Run.ID {
			t.Fatalf("of %d records %d are kept, the latest being %s", n+1, len(list), list[0].Run.ID)
		}
	}
	if gone, err := s.AttemptsOf(t.Context(), record(0).Run.ID); err != nil || len(gone) > 0 {
		t.Errorf("the first run still has %d attempts, %v", len(gone), err)
	}
	if last, err := s.AttemptsOf(t.Context(), record(made-1).Run.ID); err != nil || len(last) != 1 {
		t.Errorf("the last run has %d attempts, %v", len(last), err)
	}
}
