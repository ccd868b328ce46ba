package planqueue

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// timingOf returns the text of a job that is due by an expression.
func timingOf(t testing.TB, expr string) string {
	t.Helper()
	j := &job.Job{Name: "j", Schedule: job.Schedule{Cron: []string{expr}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}
	text, err := engine.TimingText(j.WithDefaults(job.Defaults{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func uid(n int) job.ID {
	var id job.ID
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

func TestStatsShowHowFarAheadJobsArePlanned(t *testing.T) {
	queue := New(15*time.Second, stripes.Of)
	queue.timings = []timing{{jobs: 3}}
	queue.mine = store.AllPartitions
	if s := queue.Stats(now); s.Jobs != 0 || s.Ahead != 15*time.Second {
		t.Errorf("without jobs: %+v", s)
	}
	for i, next := range []time.Duration{time.Hour, 12 * time.Second, -3 * time.Second} {
		entry := queue.add(job.ID{byte(i + 1)})
		queue.entries[entry].next = now.Add(next).UnixNano()
		queue.due.Push(queue.entries[entry].next, entry)
		if s := queue.Stats(now); s.Jobs != i+1 || s.Ahead != min(next, 15*time.Second) {
			t.Errorf("with a job due in %s: %+v", next, s)
		}
	}
	queue.mine = store.Partitions{}
	if s := queue.Stats(now); s.Jobs != 0 {
		t.Errorf("without partitions: %+v", s)
	}
	queue.mine.Add(job.Partition(job.ID{2}))
	if s := queue.Stats(now); s.Jobs != 1 {
		t.Errorf("with the partition of one job: %+v", s)
	}
	queue.remove(queue.byUID[job.ID{2}])
	if s := queue.Stats(now); s.Jobs != 0 {
		t.Errorf("with the partition of a job that was removed: %+v", s)
	}
}

func TestChangedAndDeletedJobsAreFollowed(t *testing.T) {
	tb := New(15*time.Second, stripes.Of)
	hourly, daily := timingOf(t, "0 * * * *"), timingOf(t, "0 0 * * *")
	put := func(n int, text string, active bool) {
		tb.Put([]store.PlannedJob{{UID: uid(n), Epoch: 1, Active: active, Cursor: time.Unix(0, 0), Timing: text}})
	}
	put(1, hourly, true)
	put(2, hourly, true)
	put(3, daily, true)
	if len(tb.byText) != 2 || tb.timings[tb.byText[hourly]].jobs != 2 {
		t.Errorf("three jobs with two schedules have %d timings", len(tb.byText))
	}
	put(2, daily, true)
	put(1, hourly, false)
	if _, ok := tb.byText[hourly]; ok || tb.timings[tb.byText[daily]].jobs != 2 {
		t.Error("a timing that no job has is kept")
	}
	put(4, hourly, true)
	if len(tb.entries) != 3 || len(tb.timings) != 2 {
		t.Errorf("%d entries and %d timings: what was given back is not used again", len(tb.entries), len(tb.timings))
	}
	queued := tb.due.Len()
	if put(4, hourly, true); tb.due.Len() != queued {
		t.Error("a job that is read again as it was is queued again")
	}
}

func TestReplacedTimingIsNotReused(t *testing.T) {
	queue := New(15*time.Second, stripes.Of)
	queue.Put([]store.PlannedJob{{UID: uid(1), Epoch: 1, Active: true, Timing: timingOf(t, "0 3 * * *")}})
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	var m memo
	queue.nextAfter(0, at, &m)
	queue.Put([]store.PlannedJob{{UID: uid(1), Deleted: true}, {UID: uid(2), Epoch: 1, Active: true, Timing: timingOf(t, "0 5 * * *")}})
	if next := time.Unix(0, queue.nextAfter(0, at, &m)); next.UTC().Hour() != 5 {
		t.Errorf("the next is %s", next.UTC())
	}
}
