package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// TestDelayedOccurrenceRunsOnceAcrossEdits changes jobs between the scheduled and due times of
// their occurrences: an occurrence due while the job is active runs once, and one due during a
// pause does not run.
func TestDelayedOccurrenceRunsOnceAcrossEdits(t *testing.T) {
	schedules := []string{
		"every: 20s, spread: 3m", "every: 7s, jitter: 7s", "cron: '* * * * *', spread: 10m, jitter: 50s",
		"cron: '*/5 * * * *', jitter: 5m", "every: 3m", "cron: '0,1,5 * * * *', spread: 20s, jitter: 10m",
	}
	for seed := range uint64(4 * len(schedules)) {
		random := rand.New(rand.NewPCG(seed, 1))
		schedule := schedules[seed%uint64(len(schedules))]
		start := at(t, "2026-11-20T12:00:00Z")
		w := &world{now: start, jobs: map[job.ID]Job{}, runs: map[job.ID]store.Run{}}
		w.sessions = []store.Session{{ID: job.ID{0xee}, Node: "a", Renewed: start}}
		uid, version := job.ID{0xaa, byte(seed)}, 0
		var now Stored
		put := func(paused bool, change string, catchUp job.Missed) {
			version++
			f := filled(t, fmt.Sprintf("name: j\npaused: %t\nschedule: {%s%s}\npolicy: {overlap: allow}", paused, schedule, change))
			item := PutItem{Put: &store.PutJob{Definition: f, IfVersion: store.AnyVersion, CatchUp: catchUp}, Filled: f, Policy: CompilePolicy(f), UID: uid}
			b := w.batch()
			if now.Job != nil {
				item.Old = now
				item.Old.Job = b.Job(uid)
			}
			items := []PutItem{item}
			if err := b.Put(items, Names{Upstreams: func(string) ([]string, error) { return nil, nil }}); err != nil {
				t.Fatal(err)
			}
			w.write(b)
			now = Stored{items[0].Job, f, f}
		}
		put(false, "", "")
		timing, err := TimingOf(now.Filled, uid, nil)
		if err != nil {
			t.Fatal(err)
		}

		ran := map[time.Time]int{} // by scheduled time
		type term struct{ from, to time.Time }
		var off []term // paused terms without catching up
		var pausedAt time.Time
		for tick := range 600 {
			w.now = start.Add(time.Duration(tick) * 2 * time.Second)
			w.sessions[0].Renewed = w.now
			if j := w.jobs[uid]; j.State == job.JobActive {
				d := timing.Decide(Progress{Cursor: j.Cursor}, w.now, lookAhead, Most{1000, 1000})
				item := store.PlanItem{Job: uid, Epoch: j.Epoch, From: j.Cursor, To: d.To}
				for _, o := range d.Due {
					item.Runs = append(item.Runs, store.NewRun{ID: job.ID{0xcc, byte(tick >> 8), byte(tick), byte(len(item.Runs))}, Scheduled: o.Scheduled, Due: o.Due})
				}
				b := w.batch()
				if verdict := b.Plan(w.sessions[0].ID, &item); verdict != store.Planned || len(d.Missed) > 0 {
					t.Fatalf("seed %d, %s: planned %v: %v, missed %v", seed, schedule, item, verdict, d.Missed)
				}
				w.write(b)
			}
			b := w.batch()
			for _, r := range w.sortedRuns() {
				a := store.Attempt{Run: r.ID, Number: 1, Token: job.ID{1}}
				if !r.Due.After(w.now) && b.Claim(&w.sessions[0], a).Verdict == store.Started {
					ran[r.Scheduled.UTC()]++
					b.Finish(store.Result{Attempt: a, Outcome: job.OutcomeSucceeded})
				}
			}
			w.write(b)
			w.records = nil
			switch n := random.IntN(100); {
			case !pausedAt.IsZero() && n < 8:
				catchUp := []job.Missed{"", job.MissedAll}[random.IntN(2)]
				put(false, "", catchUp)
				if catchUp == "" {
					off = append(off, term{pausedAt, w.now})
				}
				pausedAt = time.Time{}
			case !pausedAt.IsZero():
			case n < 3:
				put(true, "", "")
				pausedAt = w.now
			case n < 8:
				put(false, fmt.Sprintf(", end: %d-01-01T00:00:00Z", 2100+version), "")
			case n < 11:
				b := w.batch()
				b.Reschedule(b.Job(uid), now.Filled, nil, job.Text("a test"))
				w.write(b)
			}
		}
		if !pausedAt.IsZero() {
			off = append(off, term{pausedAt, w.now})
		}

		after := start.Add(-timing.Spread - timing.Jitter - time.Hour)
		for next := timing.Schedule.Next(after); next.Before(w.now); next = timing.Schedule.Next(next) {
			due := timing.due(next, timing.Schedule.Next(next))
			want := 0
			if due.After(start) && !due.After(w.now) {
				want = 1
			}
			for _, o := range off {
				if due.After(o.from) && !due.After(o.to) {
					want = 0
				}
			}
			if got := ran[next.UTC()]; got != want {
				t.Errorf("seed %d, %s: the occurrence of %s, due %s, has run %d times, want %d", seed, schedule, next, due, got, want)
			}
		}
		if len(ran) == 0 {
			t.Errorf("seed %d, %s: nothing has run", seed, schedule)
		}
	}
}
