package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// world is a minimal store: enough to take decisions one after another.
type world struct {
	now      time.Time
	jobs     map[job.ID]Job
	runs     map[job.ID]store.Run
	records  []store.Record
	sessions []store.Session
	keys     []Key
	audit    int
}

func (w *world) clone() *world {
	c := *w
	c.jobs, c.runs = maps.Clone(w.jobs), maps.Clone(w.runs)
	c.records, c.keys = slices.Clone(w.records), slices.Clone(w.keys)
	return &c
}

// batch begins a decision with all data loaded.
func (w *world) batch() *Batch {
	b := NewBatch(w.now, lookAhead, 0)
	for _, j := range w.jobs {
		b.AddJob(&j)
	}
	for _, j := range w.sortedJobs() {
		for _, up := range j.Policy.On {
			follower := j
			b.AddFollower(up.Job, &follower)
		}
	}
	for _, r := range w.sortedRuns() {
		b.AddRun(&r)
	}
	for _, r := range w.records {
		b.AddRecord(&r)
	}
	for _, s := range w.sessions {
		b.AddSession(&s)
	}
	for _, k := range w.keys {
		b.AddKey(k.Identity, k.Run)
	}
	b.AddPool("default/pool", &job.Slots{Size: 2}, time.Time{})
	return b
}

func (w *world) sortedJobs() []Job {
	var list []Job
	for _, j := range w.jobs {
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b Job) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (w *world) sortedRuns() []store.Run {
	var list []store.Run
	for _, r := range w.runs {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b store.Run) int {
		if before(&a, &b) {
			return -1
		}
		return 1
	})
	return list
}

func (w *world) write(b *Batch) {
	c := b.Changes()
	for _, r := range slices.Concat(c.Made, c.Saved) {
		w.runs[r.ID] = *r
	}
	for _, r := range c.Removed {
		delete(w.runs, r.ID)
	}
	for _, r := range c.Records {
		w.records = append(w.records, *r)
	}
	for _, r := range c.Replaced {
		i := slices.IndexFunc(w.records, func(o store.Record) bool { return o.Run.ID == r.Run.ID && o.Attempt.Number == r.Attempt.Number })
		w.records[i] = *r
	}
	for _, j := range c.Jobs {
		w.jobs[j.UID] = *j
	}
	w.keys = append(w.keys, c.Keys...)
	w.audit += len(c.Audit)
}

// String prints a world for comparison.
func (w *world) String() string {
	var s strings.Builder
	for _, j := range w.sortedJobs() {
		j.Policy, j.Document = nil, nil
		j.changed, j.was = false, was{}
		fmt.Fprintf(&s, "%+v\n", j)
	}
	for _, r := range w.sortedRuns() {
		fmt.Fprintf(&s, "%+v\n", r)
	}
	records := slices.Clone(w.records)
	slices.SortFunc(records, func(a, b store.Record) int {
		return strings.Compare(fmt.Sprint(a.Run.ID, a.Attempt.Number), fmt.Sprint(b.Run.ID, b.Attempt.Number))
	})
	fmt.Fprintf(&s, "%+v\n%d keys, %d changes\n", records, len(w.keys), w.audit)
	return s.String()
}

// worldOf makes jobs with many policies, and a run of each that is due.
func worldOf(t *testing.T, random *rand.Rand) *world {
	w := &world{now: at(t, "2026-11-20T12:00:00Z"), jobs: map[job.ID]Job{}, runs: map[job.ID]store.Run{}}
	for i := range byte(2) {
		w.sessions = append(w.sessions, store.Session{ID: job.ID{0xee, i}, Node: string('a' + rune(i)), Renewed: w.now})
	}
	for i, text := range []string{
		"schedule: {cron: '* * * * *'}\npolicy: {overlap: queue, queue_limit: 2}",
		"schedule: {cron: '* * * * *'}\npolicy: {overlap: replace, retry: {attempts: 1, backoff: 0s}}",
		"schedule: {on: [{job: j0, outcome: finished}]}\npolicy: {overlap: skip, max_parallel: 2}",
		"schedule: {after_end: 5s}\npolicy: {overlap: queue, concurrency_key: pool}",
		"schedule: {cron: '* * * * *'}\npolicy: {overlap: queue, concurrency_key: pool, needs_previous: true}",
		"schedule: {cron: '* * * * *'}\npolicy: {overlap: allow, pause_on_failure: 2}",
	} {
		f := filled(t, fmt.Sprintf("name: j%d\n%s", i, text))
		b := w.batch()
		items := []PutItem{{Put: &store.PutJob{Definition: f, Actor: "ann"}, Filled: f, Policy: CompilePolicy(f), UID: job.ID{0xaa, byte(i)}}}
		if err := b.Put(items, Names{Upstreams: func(string) ([]string, error) { return nil, nil }}); err != nil {
			t.Fatal(err)
		}
		j := items[0].Job
		j.Document = NewDocument(f, f)
		w.write(b)
		w.jobs[j.UID] = *j
		b = w.batch()
		for n := range 3 + random.IntN(3) {
			b.Trigger(&store.TriggerItem{ID: job.ID{0xbb, byte(i), byte(n)}, Job: j.UID, Kind: job.RunByHand, Actor: "ann"})
		}
		if j.Policy.Planned {
			to := w.now.Add(time.Second)
			b.Plan(w.sessions[0].ID, &store.PlanItem{Job: j.UID, Epoch: 1, From: w.now, To: to, Runs: []store.NewRun{{ID: job.ID{0xcc, byte(i)}, Scheduled: to, Due: to}}})
		}
		w.write(b)
	}
	w.now = w.now.Add(2 * time.Second)
	return w
}

// TestBatchedDecisionsEqualSingleOnes takes the same decisions in one batch and in single ones: a
// store may gather them in any way. Both worlds keep the invariants.
func TestBatchedDecisionsEqualSingleOnes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 3))
	for range 60 {
		together := worldOf(t, random)
		for range 12 {
			alone := together.clone()
			var decisions []func(*Batch) string
			for n := range 1 + random.IntN(8) {
				decisions = append(decisions, decision(random, together, byte(n)))
			}
			b := together.batch()
			var got, want []string
			for _, decide := range decisions {
				got = append(got, decide(b))
			}
			together.write(b)
			for _, decide := range decisions {
				b := alone.batch()
				want = append(want, decide(b))
				alone.write(b)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("in one batch the answers are\n%s\none by one\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if a, b := together.String(), alone.String(); a != b {
				t.Fatalf("in one batch\n%s\none by one\n%s", a, b)
			}
			checkInvariants(t, together)
			together.now = together.now.Add(time.Duration(random.IntN(4000)) * time.Millisecond)
		}
	}
}

// decision returns a random decision, which answers in words.
func decision(random *rand.Rand, w *world, n byte) func(*Batch) string {
	runs := w.sortedRuns()
	if len(runs) == 0 {
		return func(*Batch) string { return "" }
	}
	r := runs[random.IntN(len(runs))]
	s := &w.sessions[random.IntN(2)]
	outcome := []job.Outcome{job.OutcomeSucceeded, job.OutcomeFailed}[random.IntN(2)]
	switch random.IntN(8) {
	case 0:
		return func(b *Batch) string { return fmt.Sprint(b.Settle(r.ID)) }
	case 1:
		return func(b *Batch) string {
			got, ok := b.Cancel(r.ID, "ann", job.Reason{})
			return fmt.Sprint("cancel ", got.State, got.Outcome, ok)
		}
	case 2, 3, 4:
		return func(b *Batch) string {
			got := b.Claim(s, store.Attempt{Run: r.ID, Number: r.Attempt, Token: job.ID{n + 1}})
			return fmt.Sprint("claim ", got.Verdict, got.Reason)
		}
	case 5:
		return func(b *Batch) string {
			b.Release(s.ID, []store.Attempt{{Run: r.ID, Number: r.Attempt, Token: r.Token}})
			return "release"
		}
	default:
		return func(b *Batch) string {
			return fmt.Sprint("finish ", b.Finish(store.Result{Attempt: store.Attempt{Run: r.ID, Number: r.Attempt, Token: r.Token}, Outcome: outcome}))
		}
	}
}

// checkInvariants checks what must be true between any two steps.
func checkInvariants(t *testing.T, w *world) {
	t.Helper()
	b := w.batch()
	for _, r := range w.sortedRuns() {
		j := w.jobs[r.JobUID]
		if r.HoldsSlot && b.free(&r) < 0 {
			t.Fatalf("overlap: %d runs hold the slot %s, %d too many", b.holders(r.Slot), r.Slot, -b.free(&r))
		}
		if r.State != job.StateWaiting {
			continue
		}
		if r.Reason.IsZero() {
			t.Fatalf("run %s waits without a reason", r.ID)
		}
		if _, yes := withdrawn(&j, &r); !yes && !r.AwaitsPrevious && !b.tooLate(&r) && b.free(&r) > 0 {
			t.Fatalf("run %s waits for the slot %s, which is free", r.ID, r.Slot)
		}
	}
	final := map[job.ID]int{}
	for _, r := range w.records {
		if r.Attempt.Reason.IsZero() && r.Attempt.Outcome != job.OutcomeSucceeded {
			t.Fatalf("run %s is %s without a reason", r.Run.ID, r.Attempt.Outcome)
		}
		if r.Final {
			final[r.Run.ID]++
		}
	}
	for id, n := range final {
		if _, active := w.runs[id]; n != 1 || active {
			t.Fatalf("accounted: run %s has %d final records, and is active: %v", id, n, active)
		}
	}
}
