package planner_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A node that cannot read for longer than the store remembers what was deleted finds out
// by counting.
func TestLongDeletedJobIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		gone := r.put(`{name: gone, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		r.put(`{name: stays, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		r.put(`{name: paused, paused: true, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		r.start()
		time.Sleep(5 * time.Minute)
		if n := r.store.readWhole(); n != 1 {
			t.Errorf("all jobs were read %d times, and nothing has changed", n)
		}
		r.store.failReads.Store(true)
		if err := r.memory.DeleteJob(context.Background(), store.DeleteJob{UID: gone.Definition.UID, IfVersion: store.AnyVersion, Actor: "test"}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(time.Hour)
			if _, err := r.memory.Tidy(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		r.store.failReads.Store(false)
		time.Sleep(2 * time.Minute)
		if n := r.planner.Stats().Jobs; n != 1 {
			t.Errorf("the planner has %d jobs, want 1", n)
		}
		if _, ok := r.planner.NextAfter(gone.Definition.UID, time.Now()); ok {
			t.Error("a job that was deleted falls due")
		}
		if n := r.store.readWhole(); n != 2 {
			t.Errorf("jobs were read as a whole %d times, want once more", n)
		}
	})
}

func TestPlanningDoesNotWaitForTheStoreToCountJobs(t *testing.T) {
	for _, err := range []error{nil, errAway} {
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				const text = `{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x%d}}`
				j := r.put(fmt.Sprintf(text, 0))
				counts := 0
				r.store.onSummary = func() error {
					counts++
					r.put(fmt.Sprintf(text, counts)) // the counts are out of date
					time.Sleep(45 * time.Second)
					return err
				}
				r.start()
				time.Sleep(time.Second)
				for range 2 * 60 * 60 {
					time.Sleep(time.Second)
					if r.ahead(j) < 5*time.Second {
						t.Fatalf("after %d counts it is planned %s ahead", counts, r.ahead(j))
					}
				}
				if counts < 2 {
					t.Errorf("jobs are counted %d times in two hours", counts)
				}
			})
		})
	}
}

// A hundredth of the store's time counts jobs, and each minute is often enough.
func TestJobsAreCountedLessOftenTheLongerThatTakes(t *testing.T) {
	for took, most := range map[time.Duration]int64{0: 2 * 60, 600 * time.Millisecond: 2 * 60, 6 * time.Second: 12, time.Minute: 3} {
		t.Run(took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.put(`{name: j, schedule: {cron: "0 0 * * *"}, run: {shell: x}}`)
				var counts atomic.Int64
				r.store.onSummary = func() error {
					counts.Add(1)
					time.Sleep(took)
					return nil
				}
				r.start()
				time.Sleep(2 * time.Hour)
				if n := counts.Load(); n > most || n < most-most/10-2 {
					t.Errorf("jobs were counted %d times in two hours, want about %d", n, most)
				}
			})
		})
	}
}

func TestChangesDuringACountCauseNoFullRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const text = `{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x%d}}`
		r.put(fmt.Sprintf(text, 0))
		counts := 0
		r.store.onSummary = func() error {
			counts++
			r.put(fmt.Sprintf(text, counts))
			time.Sleep(5 * time.Second)
			return nil
		}
		r.start()
		time.Sleep(2 * time.Hour)
		if n := r.store.readWhole(); n != 1 || counts < 9 {
			t.Errorf("jobs were counted %d times and read as a whole %d times, want once", counts, n)
		}
	})
}

func TestEditsOutsideTheScheduleKeepThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		text := `{name: j, schedule: {cron: "*/5 * * * * *", max_runs: 12}, run: {shell: x%d}}`
		j := r.put(fmt.Sprintf(text, 0))
		r.start()
		for i := range 30 {
			time.Sleep(time.Second)
			r.put(fmt.Sprintf(text, i))
		}
		time.Sleep(30 * time.Second)
		if got := seconds(time.Unix(946684800, 0), r.due(j)); !slices.Equal(got, []int{5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60}) {
			t.Errorf("planned: %v", got)
		}
	})
}

func TestChangedCalendarIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		calendar := func(dates string) {
			docs, err := job.Decode("test.yaml", []byte(`{kind: calendar, name: c, calendar: {include: [`+dates+`]}}`))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.memory.PutDocument(context.Background(), docs[0], store.AnyVersion, "test"); err != nil {
				t.Fatal(err)
			}
		}
		calendar(`"1999-01-01"`)
		j := r.put(`{name: j, schedule: {cron: "*/5 * * * * *", except: [c]}, run: {shell: x}}`)
		r.start()
		time.Sleep(time.Second)
		if len(r.due(j)) != 3 {
			t.Fatalf("planned: %v", r.due(j))
		}
		calendar(`"2000-01-01"`) // today
		time.Sleep(time.Minute)
		if got := r.due(j); len(got) != 0 {
			t.Errorf("planned on a day that is left out: %v", got)
		}
		calendar(`"1999-01-01"`)
		time.Sleep(time.Second)
		if len(r.due(j)) != 3 {
			t.Errorf("planned when it is not left out any more: %v", r.due(j))
		}
	})
}

func TestRecreatedCalendarIsANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		calendar := func(date string) {
			c := &job.Calendar{Name: "c", Days: job.Days{Include: []string{date}}}
			if _, err := r.memory.PutDocument(context.Background(), job.Document{Calendar: c}, 0, "test"); err != nil {
				t.Fatal(err)
			}
		}
		const text = `{name: j, schedule: {cron: "*/5 * * * * *", except: [c]}, run: {shell: x}}`
		calendar("1999-01-01")
		j := r.put(text)
		r.start()
		time.Sleep(time.Second)
		if len(r.due(j)) != 3 {
			t.Fatalf("planned: %v", r.due(j))
		}
		// Both changes happen between two reads of the planner.
		r.put(`{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		if err := r.memory.DeleteDocument(context.Background(), job.KindCalendar, "default/c", store.AnyVersion, "test"); err != nil {
			t.Fatal(err)
		}
		calendar("2000-01-01") // today
		j = r.put(text)
		time.Sleep(time.Minute)
		if got := r.due(j); len(got) != 0 {
			t.Errorf("planned on a day that is left out: %v", got)
		}
	})
}

func TestCalendarChangedBetweenPagesIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		calendar := func(date string) {
			c := &job.Calendar{Name: "c", Days: job.Days{Include: []string{date}}}
			if _, err := r.memory.PutDocument(context.Background(), job.Document{Calendar: c}, store.AnyVersion, "test"); err != nil {
				t.Error(err)
			}
		}
		calendar("1999-01-01")
		for i := range 6000 { // more than a planner reads at once
			r.put(fmt.Sprintf(`{name: j%d, schedule: {cron: "0 0 1 1 *"}, run: {shell: x}}`, i))
		}
		last := r.put(`{name: last, schedule: {cron: "*/5 * * * * *", except: [c]}, run: {shell: x}}`)
		changed := false
		r.store.beforeRead = func(since int64) {
			if since > 0 && !changed {
				changed = true
				calendar("2000-01-01") // today
			}
		}
		r.start()
		time.Sleep(time.Minute)
		if got := r.due(last); !changed || len(got) != 0 {
			t.Errorf("planned on a day that is left out: %v", got)
		}
	})
}

func TestEveryPageOfChangesIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		// A planner reads some thousand at once.
		const n = 6000
		for i := range n {
			r.put(fmt.Sprintf(`{name: j%d, schedule: {cron: "0 0 1 1 *"}, run: {shell: x}}`, i))
		}
		last := r.put(`{name: last, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		r.start()
		<-r.planner.Ready()
		if _, ok := r.planner.NextAfter(last.Definition.UID, time.Now()); !ok {
			t.Error("the planner says that it has read all jobs, and has not")
		}
		time.Sleep(time.Second)
		if len(r.due(last)) != 3 {
			t.Errorf("the job behind %d others has planned %v", n, r.due(last))
		}
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		if r.store.reads > 10 {
			t.Errorf("%d reads in a second", r.store.reads)
		}
	})
}

// partitionsOf returns the partitions of jobs.
func partitionsOf(jobs ...*store.Job) *store.Partitions {
	var p store.Partitions
	for _, j := range jobs {
		p.Add(job.Partition(j.Definition.UID))
	}
	return &p
}

// inTwoPartitions makes two jobs that are due every second, in two partitions.
func (r *rig) inTwoPartitions() (a, b *store.Job) {
	a = r.put(`{name: a, schedule: {cron: "* * * * * *"}, run: {shell: x}}`)
	for {
		b = r.put(`{name: b, schedule: {cron: "* * * * * *"}, run: {shell: x}}`)
		if job.Partition(a.Definition.UID) != job.Partition(b.Definition.UID) {
			return a, b
		}
		// Otherwise one more job would be counted.
		if err := r.memory.DeleteJob(context.Background(), store.DeleteJob{UID: b.Definition.UID, IfVersion: store.AnyVersion, Actor: "test"}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// ahead returns how far ahead a job is planned.
func (r *rig) ahead(j *store.Job) time.Duration {
	now, err := store.JobByUID(context.Background(), r.memory, j.Definition.UID)
	if err != nil {
		r.t.Fatal(err)
	}
	return now.Cursor.Sub(r.wall())
}
