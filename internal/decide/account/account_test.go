package account

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// record is the record of an occurrence n minutes after noon.
func record(n int, run byte, epoch int64, outcome job.Outcome) store.Record {
	at := noon.Add(time.Duration(n) * time.Minute)
	return store.Record{
		Run:     job.Run{ID: job.ID{run}, Kind: job.RunScheduled, Epoch: epoch, Scheduled: at, Due: at},
		Attempt: job.Attempt{Run: job.ID{run}, Number: 1, Started: at, Ended: at.Add(time.Second), Outcome: outcome},
		Final:   true, Count: 1,
	}
}

func TestCompareTellsWhatIsNotAsItMustBe(t *testing.T) {
	schedule, err := cron.ParseSchedule("* * * * *")
	if err != nil {
		t.Fatal(err)
	}
	ok := func(n int) store.Record { return record(n, byte(n), 1, job.OutcomeSucceeded) }
	missed := record(2, 9, 1, job.OutcomeMissed)
	missed.Attempt.Number, missed.Attempt.Started, missed.Count, missed.Until = 0, time.Time{}, 2, noon.Add(3*time.Minute)
	early := ok(3)
	early.Attempt.Started = early.Run.Due.Add(-2 * time.Second)
	running := store.Run{Run: job.Run{ID: job.ID{7}, Kind: job.RunScheduled, Epoch: 1, State: job.StateRunning, Scheduled: noon.Add(3 * time.Minute)}}
	for name, c := range map[string]struct {
		records []store.Record
		runs    []store.Run
		change  func(*Book)
		want    []Kind
	}{
		"all ran":                      {[]store.Record{ok(1), ok(2), ok(3), ok(4)}, nil, nil, nil},
		"one is lost":                  {[]store.Record{ok(1), ok(2), ok(4)}, nil, nil, []Kind{Unaccounted}},
		"one is running":               {[]store.Record{ok(1), ok(2), ok(4)}, []store.Run{running}, nil, nil},
		"some were missed":             {[]store.Record{ok(1), missed, ok(4)}, nil, nil, nil},
		"one ran twice":                {[]store.Record{ok(1), ok(2), ok(3), record(3, 8, 1, job.OutcomeSucceeded), ok(4)}, nil, nil, []Kind{Doubled}},
		"one ran and runs":             {[]store.Record{ok(1), ok(2), ok(3), ok(4)}, []store.Run{running}, nil, []Kind{Doubled}},
		"one was withdrawn and ran":    {[]store.Record{ok(1), ok(2), record(3, 8, 1, job.OutcomeWithdrawn), ok(3), ok(4)}, nil, nil, nil},
		"one ran under two epochs":     {[]store.Record{ok(1), ok(2), record(3, 8, 0, job.OutcomeSucceeded), ok(3), ok(4)}, nil, nil, []Kind{Doubled}},
		"one has two attempts":         {[]store.Record{ok(1), ok(2), ok(3), ok(3), ok(4)}, nil, nil, nil},
		"one was early":                {[]store.Record{ok(1), ok(2), early, ok(4)}, nil, nil, []Kind{Early}},
		"the epoch began later":        {[]store.Record{ok(3), ok(4)}, nil, nil, nil},
		"the epoch is known":           {[]store.Record{ok(3), ok(4)}, nil, func(b *Book) { b.Since = noon.Add(time.Minute) }, []Kind{Unaccounted}},
		"not all is kept":              {[]store.Record{ok(1), ok(4)}, nil, func(b *Book) { b.Whole = noon.Add(3 * time.Minute) }, nil},
		"the cursor has not passed it": {[]store.Record{ok(1), ok(2)}, nil, func(b *Book) { b.Job.Cursor = noon.Add(2 * time.Minute) }, nil},
		"a paused job":                 {[]store.Record{ok(1), ok(4)}, nil, func(b *Book) { b.Job.Active = false }, nil},
		"nothing is known":             {nil, nil, nil, nil},
	} {
		b := Book{Job: store.PlannedJob{Epoch: 1, Active: true, Cursor: noon.Add(4 * time.Minute)}, Schedule: schedule, Records: c.records, Runs: c.runs}
		if c.change != nil {
			c.change(&b)
		}
		var got []Kind
		for _, f := range b.Compare(noon.Add(10 * time.Minute)) {
			if f.Reason().IsZero() {
				t.Errorf("%s: %+v has no reason", name, f)
			}
			got = append(got, f.Kind)
		}
		if len(got) != len(c.want) || len(got) == 1 && got[0] != c.want[0] {
			t.Errorf("%s: found %v, want %v", name, got, c.want)
		}
	}
}

func TestFindingsAreKeptOnceForADay(t *testing.T) {
	one := Finding{Kind: Unaccounted, Job: "default/a", Scheduled: noon, Found: noon}
	text, fresh, err := Add(nil, []Finding{one})
	if err != nil || len(fresh) != 1 {
		t.Fatal(fresh, err)
	}
	for hours, want := range map[int]int{1: 1, 25: 0} {
		list, err := Read(text, noon.Add(time.Duration(hours)*time.Hour))
		if err != nil || len(list) != want {
			t.Errorf("after %d h there are %d, %v", hours, len(list), err)
		}
	}
	known, _ := Read(text, noon)
	if _, fresh, _ = Add(known, []Finding{one}); len(fresh) != 0 {
		t.Error("it is new twice")
	}
	for i := range 2 * KeptMax {
		one.Scheduled = noon.Add(time.Duration(i) * time.Second)
		known = append(known, one)
	}
	text, _, _ = Add(known, nil)
	if list, _ := Read(text, noon); len(list) != KeptMax {
		t.Errorf("%d are kept", len(list))
	}
}
