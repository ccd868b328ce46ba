package runqueue

import (
	"errors"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// rig drives the queue of a worker whose monotonic clock began at noon.
type rig struct {
	*Queue[int]
	t      *testing.T
	tokens byte
}

func newRig(t *testing.T, capacity int) *rig {
	r := &rig{Queue: New[int](capacity, func(job.ID) int { return 0 }), t: t}
	r.Sample(noon, 0, r.Forgotten())
	return r
}

// run returns a ready run that is due some time after noon.
func run(n byte, due time.Duration) store.ReadyRun {
	return store.ReadyRun{RunRef: store.RunRef{Due: noon.Add(due), ID: job.ID{n}}, Job: job.ID{100 + n}, Attempt: 1}
}

// claimAt returns the claims at a moment, and the wait for the next one.
func (r *rig) claimAt(elapsed time.Duration) ([]*Item[int], time.Duration) {
	batch, _, wait := r.Claims(elapsed, func(choose func(Set) Set) Set { return choose(0) }, func() (job.ID, error) {
		r.tokens++
		return job.ID{r.tokens}, nil
	})
	return batch, wait
}

// answer answers each claim of a batch alike, 1 ms later, and queues the started items.
func (r *rig) answer(batch []*Item[int], elapsed time.Duration, verdict store.Verdict) {
	out := make([]store.ClaimOutcome, len(batch))
	for i, it := range batch {
		out[i] = store.ClaimOutcome{Verdict: verdict, Now: noon.Add(elapsed), Run: &store.Run{Run: job.Run{ID: it.Ready.ID, Due: it.Ready.Due, Attempt: 1}}}
	}
	answered := elapsed + time.Millisecond
	started := r.Answered(batch, out, elapsed, answered)
	r.Prepared(started)
	r.Enqueue(started, noon.Add(elapsed), elapsed, answered, answered, func(it *Item[int]) time.Time { return it.Ready.Due })
	r.Done()
}

// release reports whether a chosen item is released.
func (r *rig) release(it *Item[int]) bool {
	return len(r.Release([]*Item[int]{it}, func(*Item[int]) bool { return true })) == 1
}

func (r *rig) claimsNone(elapsed time.Duration, why string) {
	r.t.Helper()
	if batch, _ := r.claimAt(elapsed); len(batch) != 0 {
		r.t.Errorf("%s %d claims are made", why, len(batch))
	}
}

func TestRunIsClaimedAheadAndStartsAtItsInstant(t *testing.T) {
	r := newRig(t, 10)
	r.Hold([]store.ReadyRun{run(1, time.Second)}, 0)
	if r.Wakes() != WakeClaims {
		t.Error("a new run does not wake the claims")
	}
	batch, wait := r.claimAt(0)
	if len(batch) != 0 || wait < 900*time.Millisecond || wait >= time.Second {
		t.Fatalf("a second ahead %d claims are made, the next after %s", len(batch), wait)
	}
	at := wait
	if batch, _ = r.claimAt(at); len(batch) != 1 || batch[0].Attempt.Number != 1 {
		t.Fatalf("%s after noon %d claims are made", at, len(batch))
	}
	r.answer(batch, at, store.Started)
	if r.Wakes()&WakeStarts == 0 {
		t.Error("what was claimed does not wake the starts")
	}
	begin, wait := r.Starts(at + time.Millisecond)
	if next := at + time.Millisecond + wait; len(begin) != 0 || next < time.Second-time.Microsecond || next > time.Second+time.Microsecond {
		t.Fatalf("%d start early, the next is due %s after noon", len(begin), next)
	}
	if begin, _ = r.Starts(time.Second); len(begin) != 1 || begin[0].State != Running {
		t.Fatalf("at its instant %d start", len(begin))
	}
	if begin, _ = r.Starts(2 * time.Second); len(begin) != 0 {
		t.Error("it starts twice")
	}
	r.Reported(batch[0])
	if load := r.Load(); load != (Load{}) || r.Item(job.ID{1}) != nil {
		t.Errorf("after its report there is left %+v", load)
	}
}

func TestUnansweredClaimIsRepeatedUnderItsToken(t *testing.T) {
	r := newRig(t, 10)
	r.Hold([]store.ReadyRun{run(1, 0)}, 0)
	batch, _ := r.claimAt(0)
	token := batch[0].Attempt.Token
	r.Refused(batch, errors.New("away"))
	r.claimsNone(time.Millisecond, "before the rest after a failure is over")
	r.Done()
	if batch, _ = r.claimAt(time.Second); len(batch) != 1 || batch[0].Attempt.Token != token {
		t.Errorf("it is repeated as %+v, not with token %s", batch, token)
	}
	if load := r.Load(); load.Busy != 1 || load.Asked != 1 || load.Asking != 1 {
		t.Errorf("the load is %+v", load)
	}
}

func TestClaimsStayWithinCapacity(t *testing.T) {
	r := newRig(t, 2)
	r.Hold([]store.ReadyRun{run(1, 0), run(2, 0), run(3, 0)}, 0)
	batch, _ := r.claimAt(0)
	if len(batch) != 2 {
		t.Fatalf("%d claims are made, there is room for 2", len(batch))
	}
	r.answer(batch, 0, store.Started)
	r.claimsNone(time.Millisecond, "without room")
	r.Starts(time.Millisecond)
	r.Reported(batch[0])
	if r.Wakes()&WakeClaims == 0 {
		t.Error("a report does not wake the claims")
	}
	r.Reports(errors.New("away"))
	r.claimsNone(2*time.Millisecond, "while results are not taken")
	r.Reports(nil)
	if batch, _ = r.claimAt(3 * time.Millisecond); len(batch) != 1 || batch[0].Ready.ID != (job.ID{3}) {
		t.Errorf("with room for one, %d claims are made", len(batch))
	}
}

func TestBusySlotIsClaimedAgainAtTheInstant(t *testing.T) {
	r := newRig(t, 10)
	r.Hold([]store.ReadyRun{run(1, time.Second)}, 0)
	ahead := time.Second - 10*time.Millisecond
	batch, _ := r.claimAt(ahead)
	r.answer(batch, ahead, store.Early)
	r.claimsNone(time.Second-time.Millisecond, "before the instant")
	if batch, _ = r.claimAt(time.Second); len(batch) != 1 {
		t.Errorf("at the instant %d claims are made", len(batch))
	}
}

// A due run whose slot is held until another node reports is claimed again a moment later, not at
// once.
func TestClaimAwaitingAReportIsMadeAgain(t *testing.T) {
	r := newRig(t, 10)
	r.Hold([]store.ReadyRun{run(1, time.Second)}, 0)
	batch, _ := r.claimAt(time.Second)
	r.answer(batch, time.Second, store.Early)
	r.claimsNone(time.Second+store.ClaimAgain-time.Millisecond, "while a report is awaited")
	if batch, _ = r.claimAt(time.Second + store.ClaimAgain); len(batch) != 1 {
		t.Errorf("after a while %d claims are made", len(batch))
	}
}

func TestReleasedRunDoesNotStart(t *testing.T) {
	r := newRig(t, 10)
	r.Hold([]store.ReadyRun{run(1, time.Second), run(2, time.Second)}, 0)
	ahead := time.Second - 10*time.Millisecond
	batch, _ := r.claimAt(ahead)
	items := append([]*Item[int](nil), batch...)
	r.answer(batch, ahead, store.Started)
	if !r.release(items[0]) || r.release(items[0]) {
		t.Error("a claimed run is released once")
	}
	begin, _ := r.Starts(time.Second)
	if len(begin) != 1 || begin[0] != items[1] {
		t.Fatalf("%d start, not the other one alone", len(begin))
	}
	if r.release(items[1]) {
		t.Error("a run that has started is released")
	}
}

func TestReconcileComparesStoreAndWorker(t *testing.T) {
	r := newRig(t, 10)
	r.Hold([]store.ReadyRun{run(1, 0), run(2, 0)}, 0)
	batch, _ := r.claimAt(0)
	one, two := batch[0], batch[1]
	r.answer(batch, 0, store.Started)
	r.Starts(time.Millisecond)
	mine := []store.Run{
		{Run: job.Run{ID: one.Ready.ID, JobUID: one.Ready.Job, Attempt: 1}, Token: one.Attempt.Token, CancelBy: "ann"},
		{Run: job.Run{ID: job.ID{9}, JobUID: job.ID{109}, Attempt: 3}, Token: job.ID{99}},
	}
	var cancelled, taken []*Item[int]
	unknown := r.Compare(mine, r.All(Running), func(it *Item[int], _ *store.Run) { cancelled = append(cancelled, it) }, func(it *Item[int]) { taken = append(taken, it) })
	if len(unknown) != 1 || unknown[0] != (store.Attempt{Job: job.ID{109}, Run: job.ID{9}, Number: 3, Token: job.ID{99}}) {
		t.Errorf("unknown here are %+v", unknown)
	}
	if len(cancelled) != 1 || cancelled[0] != one || len(taken) != 1 || taken[0] != two {
		t.Errorf("cancelled are %v, taken away %v", cancelled, taken)
	}
}

func TestPostponedRunIsClaimedAtItsNewTime(t *testing.T) {
	r := newRig(t, 10)
	r.Hold([]store.ReadyRun{run(1, time.Second)}, 0)
	again := run(1, 3*time.Second)
	again.Attempt = 2
	r.Hold([]store.ReadyRun{again}, 0)
	r.claimsNone(time.Second, "at the time of the attempt before")
	if batch, _ := r.claimAt(3 * time.Second); len(batch) != 1 || batch[0].Attempt.Number != 2 {
		t.Errorf("at its new time the claims are %+v", batch)
	}
	if load := r.Load(); load.Busy != 1 || load.Held != 0 || load.Pending != 0 {
		t.Errorf("the load is %+v", load)
	}
}

func TestNothingIsClaimedWithoutAStoreClock(t *testing.T) {
	r := newRig(t, 10)
	r.Hold([]store.ReadyRun{run(1, 0)}, 0)
	asked := r.Forgotten()
	r.ForgetClock()
	r.Sample(noon.Add(time.Hour), 0, asked) // read before the clock was set
	r.claimsNone(time.Second, "without a clock")
	// It was set back by a minute: due runs are no longer due.
	r.Sample(noon.Add(-time.Minute), time.Second, r.Forgotten())
	if r.Wakes()&WakeClaims == 0 {
		t.Error("a clock that is known does not wake the claims")
	}
	r.claimsNone(time.Second, "a minute ahead")
	if batch, _ := r.claimAt(time.Second + time.Minute); len(batch) != 1 {
		t.Errorf("when it is due %d claims are made", len(batch))
	}
}

func TestStaleReadDoesNotReviveAReleasedRun(t *testing.T) {
	r := newRig(t, 10)
	one := run(1, time.Second)
	r.Hold([]store.ReadyRun{one}, 0)
	batch, _ := r.claimAt(990 * time.Millisecond)
	it := batch[0]
	r.answer(batch, 990*time.Millisecond, store.Started)
	if !r.release(it) {
		t.Fatal("it is not given back")
	}
	r.Hold([]store.ReadyRun{one}, 990*time.Millisecond)
	r.claimsNone(993*time.Millisecond, "it was read before the answer to its claim, and")
	r.Hold([]store.ReadyRun{one}, 992*time.Millisecond)
	if again, _ := r.claimAt(950 * time.Millisecond); len(again) != 1 {
		t.Errorf("it was read after that, and %d claims are made", len(again))
	}
}

func TestRunsOfAPlanAreReservedOnceWithinCapacity(t *testing.T) {
	r := newRig(t, 3)
	reserve := func(runs ...store.ReadyRun) []*Item[int] {
		return r.Reserve(runs, func() (job.ID, error) {
			r.tokens++
			return job.ID{r.tokens}, nil
		})
	}
	r.Hold([]store.ReadyRun{run(1, time.Hour)}, 0)
	if batch := reserve(run(2, 0), run(1, time.Hour), run(3, 0)); len(batch) != 1 || batch[0].Ready.ID != (job.ID{2}) {
		t.Errorf("beside a run that is held %d are reserved", len(batch))
	}
	batch := reserve(run(4, 0), run(5, 0), run(6, 0))
	if len(batch) != 2 || r.Load().Asking != 3 || r.Room() != 0 {
		t.Fatalf("%d are reserved where there is room for 2: %+v", len(batch), r.Load())
	}
	lead := r.lead
	r.answer(batch[:1], time.Second, store.Started)
	if r.lead != lead {
		t.Error("a plan counts for how far ahead claims are made")
	}
	if begin, _ := r.Starts(time.Minute); len(begin) != 1 {
		t.Errorf("%d have started", len(begin))
	}
	r.Refused(batch[1:2], errors.New("away"))
	r.refused = false
	again, _ := r.claimAt(2 * time.Second)
	if len(again) != 1 || again[0].Attempt.Token != batch[1].Attempt.Token {
		t.Errorf("after an answer that was lost these are claimed: %+v", again)
	}
	r.Reports(errors.New("away"))
	if more := reserve(run(7, 0)); len(more) != 0 {
		t.Error("runs are reserved while results are not taken")
	}
}
