package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// TestEarlyClaimsInAnyOrderBelongToOneEpoch lets workers claim the next instants of a job ahead in any
// order, release some and start others, and then changes its timing: unstarted instants fall due once
// under the new definition, started ones do not. A claimed flow counts as started. From seed 800 on
// the clock sometimes goes back, as the time of a step after a stall is older than its data, and
// claims are released after they were due.
func TestEarlyClaimsInAnyOrderBelongToOneEpoch(t *testing.T) {
	const instants = 4
	for seed := range uint64(2800) {
		random := rand.New(rand.NewPCG(seed, 1))
		jitter := []string{"", ", jitter: 3s"}[seed%2]
		isFlow, work := seed >= 400 && seed < 800, ""
		stalls := seed >= 800
		if isFlow {
			work = "\nrun: {flow: {steps: [{name: a, run: 'true'}]}}"
		}
		w, uid := cell(t, "schedule: {cron: '* * * * * *'"+jitter+"}\npolicy: {overlap: allow}"+work)
		after := filled(t, "name: j\nschedule: {cron: '"+[]string{"*", "*/3"}[random.IntN(2)]+" * * * * *'"+jitter+"}"+work)
		timings := [2]Timing{} // before and after the change
		for i, f := range []*job.Job{filled(t, "name: j\nschedule: {cron: '* * * * * *'"+jitter+"}"+work), after} {
			var err error
			if timings[i], err = TimingOf(f, uid, nil); err != nil {
				t.Fatal(err)
			}
		}
		start := w.now
		began := start.Add(-time.Second)
		change := w.jobs[uid]
		change.Cursor, change.Floor = start.Add(instants*time.Second), began
		w.jobs[uid] = change
		var ids []job.ID
		for i := range instants {
			ids = append(ids, w.run(byte(i+1), uid, func(r *store.Run) {
				r.Scheduled = start.Add(time.Duration(i+1) * time.Second)
				r.Due = timings[0].dueAt(r.Scheduled)
				r.Key = KeyOf(r.Scheduled)
			}))
		}
		claimed := map[job.ID]store.Attempt{}
		started := map[job.ID]bool{}
		var story []string
		tell := func(what string, id job.ID) {
			story = append(story, fmt.Sprintf("%s %s %d", w.now.Sub(start), what, slices.Index(ids, id)+1))
		}
		for range 3 + random.IntN(12) {
			w.now = w.now.Add(time.Duration(random.IntN(300)) * time.Millisecond)
			if stalls {
				w.now = start.Add(time.Duration(random.IntN(instants*1000)) * time.Millisecond)
			}
			w.sessions[0].Renewed = w.now
			for _, id := range ids {
				if r := w.runs[id]; !claimed[id].Token.IsZero() && !started[id] && !r.Due.After(w.now) && (!stalls || random.IntN(2) == 0) {
					started[id] = true
					tell("start", id)
				}
			}
			id := ids[random.IntN(instants)]
			r, active := w.runs[id]
			a, mine := claimed[id]
			switch n := random.IntN(3); {
			case !active:
			case !mine && r.Due.Sub(w.now) <= store.ClaimAhead:
				a = store.Attempt{Job: uid, Run: id, Number: 1, Token: job.ID{7, byte(n), byte(len(story))}}
				op := &Claim{Session: w.sessions[0].ID, Attempts: []store.Attempt{a}}
				w.decide(op, func(b *Batch) { b.Claim(&w.sessions[0], a) })
				claimed[id], started[id] = a, isFlow
				tell("claim", id)
			case mine && !started[id] && n == 0:
				op := &Release{Session: w.sessions[0].ID, Attempts: []store.Attempt{a}}
				w.decide(op, func(b *Batch) { b.Release(op.Session, []store.Attempt{a}) })
				delete(claimed, id)
				tell("release", id)
			case mine && started[id] && !isFlow:
				op := &Finish{Results: []store.Result{{Attempt: a, Outcome: job.OutcomeSucceeded}}}
				w.decide(op, func(b *Batch) { b.Finish(op.Results[0]) })
				tell("finish", id)
			}
		}
		b := w.batch()
		b.Reschedule(b.Job(uid), after, nil, job.Text("a test"))
		w.write(b)
		j := w.jobs[uid]
		tell("edit", job.ID{})
		for i, id := range ids {
			at := start.Add(time.Duration(i+1) * time.Second)
			r, active := w.runs[id]
			times := 0
			shared := timings[1].Schedule.Next(at.Add(-1)).Equal(at)
			if shared && j.Cursor.Before(at) {
				times++ // it is planned again
			}
			if started[id] || active && r.State == job.StateRunning && r.Epoch == j.Epoch {
				times++
			}
			for other, r := range w.runs {
				if other != id && r.Kind == job.RunScheduled && r.Epoch == j.Epoch && r.Scheduled.Equal(at) {
					times++ // planned with the change
				}
			}
			// The change withdraws runs that were late before it or are by the new jitter.
			late := !timings[0].dueAt(at).After(w.now) || !timings[1].dueAt(at).After(w.now)
			if times > 1 || !stalls && times == 0 && (started[id] || shared && !late) {
				t.Errorf("seed %d: the instant %d falls due %d times: %v; cursor %s, floor %s", seed, i+1, times, story, j.Cursor.Sub(start), j.Floor.Sub(start))
			}
		}
	}
}

// By the clock of the claim of 12:00:01 the claimed 12:00:02 is due, so that other claims are not read;
// later steps have earlier clocks. The release returns 12:00:02, and no instant before it.
func TestAReleaseUnderAnEarlierClockGivesBackItsInstantAlone(t *testing.T) {
	w, uid := cell(t, "schedule: {cron: '* * * * * *'}\npolicy: {overlap: allow}")
	start := w.now
	j := w.jobs[uid]
	j.Cursor, j.Floor = start.Add(2*time.Second), start
	w.jobs[uid] = j
	var attempts []store.Attempt
	for i := range 2 {
		id := w.run(byte(i+1), uid, func(r *store.Run) {
			r.Scheduled = start.Add(time.Duration(i+1) * time.Second)
			r.Due, r.Key = r.Scheduled, KeyOf(r.Scheduled)
		})
		attempts = append(attempts, store.Attempt{Job: uid, Run: id, Number: 1, Token: job.ID{7, byte(i)}})
	}
	claim := func(at time.Duration, a store.Attempt) {
		w.now = start.Add(at)
		w.decide(&Claim{Session: w.sessions[0].ID, Attempts: []store.Attempt{a}}, func(b *Batch) {
			if verdict := b.Claim(&w.sessions[0], a).Verdict; verdict != store.Started {
				t.Fatalf("the claim at %s: %v", at, verdict)
			}
		})
	}
	claim(1500*time.Millisecond, attempts[1])
	claim(2100*time.Millisecond, attempts[0])
	w.now = start.Add(800 * time.Millisecond)
	w.decide(&Release{Session: w.sessions[0].ID, Attempts: attempts[1:]}, func(b *Batch) { b.Release(w.sessions[0].ID, attempts[1:]) })
	b := w.batch()
	b.Reschedule(b.Job(uid), filled(t, "name: j\nschedule: {cron: '* * * * * *'}"), nil, job.Text("a test"))
	w.write(b)
	if at := w.jobs[uid].Cursor; at.Before(start.Add(time.Second)) {
		t.Errorf("the new epoch begins after %s: 12:00:01 is planned again", at.Sub(start))
	}
}

// A run of the previous epoch is claimed ahead while a run of this epoch has ended at the same
// instant.
func TestAReleaseDoesNotGiveBackAnInstantThatAnotherRunHasEnded(t *testing.T) {
	w, uid := cell(t, "schedule: {cron: '* * * * * *'}\npolicy: {overlap: allow}")
	start := w.now
	at := start.Add(time.Second)
	j := w.jobs[uid]
	j.Cursor, j.Floor = at, start
	w.jobs[uid] = j
	of := func(n byte) store.Attempt {
		id := w.run(n, uid, func(r *store.Run) { r.Scheduled, r.Due, r.Key, r.Epoch = at, at, KeyOf(at), w.jobs[uid].Epoch })
		return store.Attempt{Job: uid, Run: id, Number: 1, Token: job.ID{7, n}}
	}
	before := of(1)
	w.now = start.Add(500 * time.Millisecond)
	w.decide(&Claim{Session: w.sessions[0].ID, Attempts: []store.Attempt{before}}, func(b *Batch) { b.Claim(&w.sessions[0], before) })
	j = w.jobs[uid]
	j.Epoch++
	w.jobs[uid] = j
	now := of(2)
	w.decide(&Cancel{Runs: []RunRef{refOf(&now)}}, func(b *Batch) { b.Cancel(now.Run, "ann", job.Reason{}) })
	w.decide(&Release{Session: w.sessions[0].ID, Attempts: []store.Attempt{before}}, func(b *Batch) { b.Release(w.sessions[0].ID, []store.Attempt{before}) })
	if got := w.jobs[uid].Floor; got.Before(at) {
		t.Errorf("the floor is %s after the start, and the instant at 1s can be planned again", got.Sub(start))
	}
}

// The run of 12:00:10 is late: the run of 12:00:20 is claimed ahead before it. A change then delays
// occurrences so far that 12:00:10 lies ahead again.
func TestRunBehindALaterClaimIsNotReplanned(t *testing.T) {
	const timing = "schedule: {cron: '*/10 * * * * *'%s}\npolicy: {overlap: allow}"
	for _, c := range []struct {
		name string
		ends func(*Batch, store.Attempt)
	}{
		{"it has succeeded", func(b *Batch, a store.Attempt) { b.Finish(store.Result{Attempt: a, Outcome: job.OutcomeSucceeded}) }},
		{"it runs", func(*Batch, store.Attempt) {}},
	} {
		w, _ := cell(t, fmt.Sprintf(timing, ""))
		start := w.now
		after := filled(t, "name: j\n"+fmt.Sprintf(timing, ", jitter: 9900ms"))
		j := w.jobs[job.ID{1}]
		for n := byte(1); ; n++ { // a job whose 12:00:10 is delayed beyond the change
			delete(w.jobs, j.UID)
			j.UID, j.Floor, j.Cursor = job.ID{n}, start, start.Add(20*time.Second)
			w.jobs[j.UID] = j
			if put, err := TimingOf(after, j.UID, nil); err != nil {
				t.Fatal(err)
			} else if put.dueAt(start.Add(10 * time.Second)).After(start.Add(19 * time.Second)) {
				break
			}
		}
		var attempts []store.Attempt
		for i := range 2 {
			id := w.run(byte(i+1), j.UID, func(r *store.Run) {
				r.Scheduled = start.Add(time.Duration(i+1) * 10 * time.Second)
				r.Due, r.Key = r.Scheduled, KeyOf(r.Scheduled)
			})
			attempts = append(attempts, store.Attempt{Job: j.UID, Run: id, Number: 1, Token: job.ID{7, byte(i)}})
		}
		for i, a := range []store.Attempt{attempts[1], attempts[0]} {
			w.now = start.Add(18500*time.Millisecond + time.Duration(i)*100*time.Millisecond)
			w.sessions[0].Renewed = w.now
			w.decide(&Claim{Session: w.sessions[0].ID, Attempts: []store.Attempt{a}}, func(b *Batch) {
				if verdict := b.Claim(&w.sessions[0], a).Verdict; verdict != store.Started {
					t.Fatalf("%s: claim %d: %v", c.name, i, verdict)
				}
			})
		}
		w.decide(&Finish{Results: []store.Result{{Attempt: attempts[0]}}}, func(b *Batch) { c.ends(b, attempts[0]) })
		w.now = start.Add(19 * time.Second)
		b := w.batch()
		b.Reschedule(b.Job(j.UID), after, nil, job.Text("a test"))
		w.write(b)
		planned := w.jobs[j.UID].Cursor.Before(start.Add(10 * time.Second))
		for _, r := range w.runs {
			planned = planned || r.ID != attempts[0].Run && r.Scheduled.Equal(start.Add(10*time.Second))
		}
		if planned {
			t.Errorf("%s: 12:00:10 is planned again", c.name)
		}
	}
}

// decide decides in a batch with exactly the needs of an operation.
func (w *world) decide(op Operation, decide func(*Batch)) {
	b := NewBatch(w.now, lookAhead, 0)
	b.Guard()
	for n := (Need{}); ; {
		n.Reset()
		if b.Needs(op, &n); n.Empty() {
			break
		}
		w.load(&n, b)
		b.Answered(&n)
	}
	decide(b)
	w.write(b)
}
