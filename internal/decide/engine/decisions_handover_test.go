package engine

import (
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// handed returns an attempt that was handed over, and its handover.
func (k *book) handed(n job.ID, policy string) (store.Attempt, store.Handover) {
	k.Helper()
	a := k.put("name: h" + fmt.Sprint(k.ids) + "\npolicy: {" + policy + "}")
	run := k.trigger(a, n)
	k.claim(n, run, store.Started)
	h := store.Handover{Number: k.numbers(1, 0), Attempt: run, Kind: "stub", To: "x", Timeout: time.Minute}
	k.handOver(n, h, store.Handed)
	return run, k.handovers[h.Number]
}

func (k *book) numbers(n int, from int64) int64 {
	k.Helper()
	op := &Numbers{N: n, From: from}
	k.must(op)
	return op.First
}

func (k *book) handOver(session job.ID, h store.Handover, want store.HandedOver) {
	k.Helper()
	op := &HandOver{Session: session, List: []store.Handover{h}}
	if k.must(op); op.Outcomes[0] != want {
		k.Errorf("handover %d is answered %d, want %d", h.Number, op.Outcomes[0], want)
	}
}

func (k *book) asks(want int, list ...store.Handover) []store.Outstanding {
	k.Helper()
	op := &ToAsk{Given: list}
	if k.must(op); len(op.Taken) != want {
		k.Errorf("%d are to be asked after, want %d", len(op.Taken), want)
	}
	return op.Taken
}

var handoverDecisions = []decided{
	{"numbers grow and leave out the given ones", func(k *book) {
		equal(k, "first", k.numbers(10, 0), 1)
		equal(k, "next", k.numbers(1, 5), 11)
		equal(k, "raised", k.numbers(1, 1000), 1000)
		equal(k, "behind", k.numbers(1, 0), 1001)
	}},
	{"an attempt is handed over once, to one address after the other, and belongs to no node", func(k *book) {
		n, m := k.join("n"), k.join("m")
		run, h := k.handed(n, "lost_after: 20s")
		k.handOver(n, h, store.Handed) // its answer was lost
		equal(k, "session", k.runs[run.Run].Session, job.ID{})
		other := h
		other.Attempt = k.trigger(run.Job, n)
		k.handOver(n, other, store.HandNumbers)
		next := h
		next.Number = k.numbers(1, 0)
		k.handOver(m, next, store.Handed)
		equal(k, "the earlier one has ended", !k.handovers[h.Number].Ended.IsZero(), true)
		k.handOver(n, h, store.HandGone)
		k.pass(time.Hour)
		k.must(&Renewal{Session: m})
		k.must(&Reap{Session: m, Attempts: []store.Attempt{run}})
		k.claim(m, store.Attempt{Job: run.Job, Run: run.Run, Number: 1, Token: k.id()}, store.Taken)
		k.finish(run, job.OutcomeSucceeded, true)
		k.handOver(m, next, store.HandGone)
		k.ended(run.Run, "succeeded", "")
	}},
	{"a handover is asked after by one caller, and ends with its attempt", func(k *book) {
		n := k.join("n")
		run, h := k.handed(n, "overlap: allow")
		k.asks(0, h)
		k.pass(store.AskAgain)
		taken := k.asks(1, h)
		k.asks(0, h)
		k.must(&Asked{[]store.Answer{{Handover: taken[0].Handover, Seen: true, Next: time.Minute}}})
		equal(k, "next", k.handovers[h.Number].Ask.Sub(k.now), time.Minute)
		equal(k, "seen", k.handovers[h.Number].Seen.Equal(k.now), true)
		k.must(&Cancel{Runs: []RunRef{{Run: run.Run, Job: run.Job}}, By: "ann"})
		taken = k.asks(1, h)
		equal(k, "ending", taken[0].Run.CancelBy, "ann")
		next := h
		next.Number = k.numbers(1, 0)
		k.handOver(n, next, store.HandEnding)
		k.finish(run, job.OutcomeCancelled, true)
		k.must(&Asked{[]store.Answer{{Handover: taken[0].Handover, Next: time.Minute}}})
		equal(k, "over", !k.handovers[h.Number].Ended.IsZero(), true)
		k.asks(0, h)
		second, other := k.handed(n, "overlap: allow")
		k.finish(second, job.OutcomeFailed, true)
		k.asks(0, other)
		equal(k, "over without an answer", !k.handovers[other.Number].Ended.IsZero(), true)
		k.must(&Asked{[]store.Answer{{Handover: store.Handover{Number: 999, Attempt: second}}}})
	}},
	{"an attempt that is handed over twice in one call has the last address", func(k *book) {
		n := k.join("n")
		run := k.trigger(k.put("name: twice"), n)
		k.claim(n, run, store.Started)
		first := k.numbers(2, 0)
		op := &HandOver{Session: n}
		for i := range int64(2) {
			op.List = append(op.List, store.Handover{Number: first + i, Attempt: run, Kind: "stub", To: "x"})
		}
		k.must(op)
		equal(k, "outcomes", fmt.Sprint(op.Outcomes), fmt.Sprint([]store.HandedOver{store.Handed, store.Handed}))
		equal(k, "the first has ended", k.handovers[first].Ended.IsZero(), false)
		equal(k, "the second has ended", k.handovers[first+1].Ended.IsZero(), true)
	}},
	{"the retry of a handed-over attempt is placed again", func(k *book) {
		n := k.join("n")
		run, _ := k.handed(n, "retry: {attempts: 1, backoff: 0s}")
		k.report(store.Result{Attempt: run, Started: k.now, Ended: k.now, Outcome: job.OutcomeFailed, Retryable: true}, true)
		k.see(run.Job, "ready 2")
		equal(k, "session", k.runs[run.Run].Session, job.ID{})
	}},
}
