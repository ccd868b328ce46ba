package storetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const elsewhere = "stub"

// handing returns a handover of an attempt under a new number.
func (e *env) handing(a store.Attempt) store.Handover {
	e.Helper()
	n, err := e.Numbers(e.ctx, 1, 0)
	e.must(err)
	return store.Handover{Number: n, Attempt: a, Kind: elsewhere, To: "http://10.0.0.5:9999", About: `{"a":1}`, Timeout: time.Minute}
}

// handOver hands an attempt over.
func (e *env) handOver(s store.Session, h store.Handover, want store.HandedOver) {
	e.Helper()
	got, err := e.HandOver(e.ctx, s.ID, []store.Handover{h})
	e.must(err)
	equal(e, "handed over", got[0], want)
}

// handedOver returns an attempt of a new job that was handed over.
func (e *env) handedOver(text string) (store.Attempt, store.Handover) {
	e.Helper()
	a := e.trigger(e.put(text))
	e.claim(e.a, a, store.Started)
	h := e.handing(a)
	e.handOver(e.a, h, store.Handed)
	return a, h
}

// known returns a handover from the store.
func (e *env) known(number int64) *store.Handover {
	e.Helper()
	list, err := e.Handovers(e.ctx, store.HandoverQuery{Numbers: []int64{number}, Limit: store.MaxBatch})
	e.must(err)
	if len(list) != 1 {
		e.Fatalf("handover %d: %+v", number, list)
	}
	return &list[0]
}

// toAsk checks which handovers are due to be asked about.
func (e *env) toAsk(want ...int64) []store.Outstanding {
	e.Helper()
	list, err := e.ToAsk(e.ctx, elsewhere, 10)
	e.must(err)
	var got []int64
	for i := range list {
		got = append(got, list[i].Number)
	}
	equal(e, "to ask after", fmt.Sprint(got), fmt.Sprint(want))
	return list
}

var handoverTests = []test{
	{"numbers grow and skip those below a raise", func(e *env) {
		first, err := e.Numbers(e.ctx, 10, 0)
		e.must(err)
		equal(e, "first", first, 1)
		next, err := e.Numbers(e.ctx, 1, 5)
		e.must(err)
		equal(e, "next", next, 11)
		raised, err := e.Numbers(e.ctx, 1000, 1_000_000)
		e.must(err)
		equal(e, "raised", raised, 1_000_000)
		behind, err := e.Numbers(e.ctx, 1, 0)
		e.must(err)
		equal(e, "behind", behind, 1_001_000)
	}},
	{"numbers are given once", func(e *env) {
		var mu sync.Mutex
		given := map[int64]bool{}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 5 {
					first, err := e.Numbers(e.ctx, 3, 0)
					if err != nil {
						e.Error(err)
						return
					}
					mu.Lock()
					for n := first; n < first+3; n++ {
						if given[n] {
							e.Errorf("number %d was given twice", n)
						}
						given[n] = true
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		equal(e, "numbers", len(given), 60)
	}},
	{"a handed-over attempt belongs to no session", func(e *env) {
		a, h := e.handedOver("name: a")
		e.handOver(e.a, h, store.Handed) // its answer was lost
		r := e.run(a.Run)
		equal(e, "state", r.State, job.StateRunning)
		equal(e, "session", r.Session, job.ID{})
		equal(e, "node", r.Node, "a")
		mine, err := store.RunsOn(e.ctx, e, e.a.ID)
		e.must(err)
		equal(e, "mine", len(mine), 0)
		got := e.known(h.Number)
		want := h
		want.Sent, want.Ask = got.Sent, got.Ask
		sameTime(e, "sent", got.Sent, e.now())
		sameTime(e, "ask", got.Ask, e.now().Add(store.AskAgain))
		equal(e, "handover", *got, want)
		of, err := e.Handovers(e.ctx, store.HandoverQuery{Run: a.Run, Limit: store.MaxBatch})
		e.must(err)
		equal(e, "handovers of the run", len(of), 1)
		e.must(e.Leave(e.ctx, e.a.ID))
		e.must(e.End(e.ctx, e.a.ID))
		equal(e, "attempt", e.run(a.Run).Attempt, 1)
	}},
	{"no node loses a handed-over attempt", func(e *env) {
		a, h := e.handedOver("name: a\npolicy: {overlap: skip, retry: {attempts: 1, on: [lost]}}")
		b := e.join("b")
		e.pass(2*time.Hour, b)
		lost, err := e.Lost(e.ctx, 10)
		e.must(err)
		equal(e, "lost", len(lost), 0)
		e.must(e.Reap(e.ctx, b.ID, []store.Attempt{a}))
		e.tidy()
		r := e.run(a.Run)
		equal(e, "state", r.State, job.StateRunning)
		equal(e, "token", r.Token, a.Token)
		equal(e, "over", e.known(h.Number).IsOver(), false)
		// Nor a node that is started again on the same machine.
		e.must(e.End(e.ctx, e.a.ID))
		back := e.join("a")
		e.must(e.Reap(e.ctx, back.ID, []store.Attempt{a}))
		equal(e, "state", e.run(a.Run).State, job.StateRunning)
		e.finish(a, job.OutcomeSucceeded)
		e.gone(a.Run, job.OutcomeSucceeded)
	}},
	{"any node ends a handed-over attempt with its token and the first result wins", func(e *env) {
		a, h := e.handedOver("name: a")
		other := a
		other.Token = e.id()
		equal(e, "without its token", e.report(store.Result{Attempt: other, Outcome: job.OutcomeSucceeded}).Accepted, false)
		b := e.join("b")
		res := []store.Result{{Attempt: a, Outcome: job.OutcomeFailed, Reason: job.Text("a bad day")}}
		got, err := e.Store.Finish(e.ctx, b.ID, res)
		e.must(err)
		equal(e, "accepted", got[0].Accepted, true)
		again, err := e.Store.Finish(e.ctx, e.a.ID, res)
		e.must(err)
		equal(e, "accepted again", again[0].Accepted, true)
		equal(e, "another result", e.report(store.Result{Attempt: a, Outcome: job.OutcomeSucceeded}).Accepted, false)
		record := e.gone(a.Run, job.OutcomeFailed)
		equal(e, "node", record.Attempt.Node, "a")
		equal(e, "known", e.known(h.Number).Attempt, a)
	}},
	{"an attempt is handed over once, to one address after the other", func(e *env) {
		a, h := e.handedOver("name: a")
		b := e.join("b")
		stranger := e.trigger(e.put("name: b"))
		e.claim(e.a, stranger, store.Started)
		foreign := e.handing(stranger)
		e.handOver(b, foreign, store.HandGone) // it belongs to another session
		foreign.Number = h.Number
		e.handOver(e.a, foreign, store.HandNumbers)
		wrong := e.handing(a)
		wrong.Attempt.Token = e.id()
		e.handOver(e.a, wrong, store.HandGone)
		next := e.handing(a)
		next.To = "http://10.0.0.6:9999"
		e.handOver(e.a, next, store.Handed)
		equal(e, "the address before is over", e.known(h.Number).IsOver(), true)
		e.handOver(e.a, h, store.HandGone)
		e.clock.Advance(store.AskAgain)
		e.toAsk(next.Number)
		e.finish(a, job.OutcomeSucceeded)
		e.handOver(e.a, e.handing(a), store.HandGone)
	}},
	{"a cancelled attempt is not handed over, nor to the next address", func(e *env) {
		a := e.trigger(e.put("name: a"))
		e.claim(e.a, a, store.Started)
		_, err := e.Cancel(e.ctx, a.Run, "ann", "")
		e.must(err)
		e.handOver(e.a, e.handing(a), store.HandEnding)
		equal(e, "session", e.run(a.Run).Session, e.a.ID)
		b, _ := e.handedOver("name: b")
		_, err = e.Cancel(e.ctx, b.Run, "ann", "")
		e.must(err)
		e.handOver(e.a, e.handing(b), store.HandEnding)
	}},
	{"one caller at a time polls a handover", func(e *env) {
		a, h := e.handedOver("name: a")
		e.toAsk()
		e.clock.Advance(store.AskAgain)
		list, err := e.ToAsk(e.ctx, "another", 10)
		e.must(err)
		equal(e, "of another kind", len(list), 0)
		one := e.toAsk(h.Number)[0]
		equal(e, "attempt", one.Run.Present(), a)
		sameTime(e, "now", one.Now, e.now())
		e.toAsk()
		e.must(e.Asked(e.ctx, []store.Answer{{Handover: one.Handover, Seen: true, Next: time.Minute}}))
		sameTime(e, "seen", e.known(h.Number).Seen, e.now())
		e.clock.Advance(time.Minute - time.Millisecond)
		e.toAsk()
		e.clock.Advance(time.Millisecond)
		e.toAsk(h.Number)
		e.clock.Advance(store.AskAgain) // the receiver did not answer
		e.toAsk(h.Number)
		e.finish(a, job.OutcomeSucceeded)
		e.clock.Advance(store.AskAgain)
		e.toAsk()
		sameTime(e, "ended", e.known(h.Number).Ended, e.now())
		e.must(e.Asked(e.ctx, []store.Answer{{Handover: one.Handover, Seen: true, Next: time.Second}}))
		e.clock.Advance(time.Minute)
		e.toAsk()
	}},
	{"findings of one caller reach the next caller", func(e *env) {
		_, h := e.handedOver("name: a")
		e.clock.Advance(store.AskAgain)
		one := e.toAsk(h.Number)[0]
		e.must(e.Asked(e.ctx, []store.Answer{{Handover: one.Handover, Next: time.Minute, About: `{"tries":1}`}}))
		equal(e, "about", e.known(h.Number).About, `{"tries":1}`)
		e.clock.Advance(time.Minute)
		next := e.toAsk(h.Number)[0]
		equal(e, "about, asked again", next.About, `{"tries":1}`)
		e.must(e.Asked(e.ctx, []store.Answer{{Handover: next.Handover, Next: time.Minute}}))
		equal(e, "about, kept", e.known(h.Number).About, `{"tries":1}`)
		if err := e.Asked(e.ctx, []store.Answer{{Handover: next.Handover, About: strings.Repeat("x", store.HandoverAboutMax+1)}}); err == nil {
			e.Error("too long an about was taken")
		}
	}},
	{"many handovers are polled in pages", func(e *env) {
		var want []int64
		for i := range 12 {
			_, h := e.handedOver(fmt.Sprintf("name: j%d", i))
			want = append(want, h.Number)
		}
		e.clock.Advance(store.AskAgain)
		e.toAsk(want[:10]...)
		e.toAsk(want[10:]...)
		e.toAsk()
	}},
	{"concurrent callers never poll the same handover", func(e *env) {
		for i := range 12 {
			e.handedOver(fmt.Sprintf("name: j%d", i))
		}
		e.clock.Advance(store.AskAgain)
		var mu sync.Mutex
		given := map[int64]int{}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				list, err := e.ToAsk(e.ctx, elsewhere, 12)
				if err != nil {
					e.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for i := range list {
					given[list[i].Number]++
				}
			})
		}
		all.Wait()
		for number, n := range given {
			equal(e, fmt.Sprintf("callers that have handover %d", number), n, 1)
		}
		e.clock.Advance(store.AskAgain)
		list, err := e.ToAsk(e.ctx, elsewhere, 20)
		e.must(err)
		equal(e, "handovers after that", len(list), 12)
	}},
	{"a cancelled handover is polled at once", func(e *env) {
		a, h := e.handedOver("name: a")
		_, err := e.Cancel(e.ctx, a.Run, "ann", "enough")
		e.must(err)
		one := e.toAsk(h.Number)[0]
		equal(e, "by", one.Run.CancelBy, "ann")
		e.toAsk()
		// A cancel during a question to the receiver is not postponed.
		b, k := e.handedOver("name: b")
		e.clock.Advance(store.AskAgain)
		list, err := e.ToAsk(e.ctx, elsewhere, 10)
		e.must(err)
		equal(e, "to ask after", len(list), 2)
		_, err = e.Cancel(e.ctx, b.Run, "ann", "")
		e.must(err)
		e.must(e.Asked(e.ctx, []store.Answer{{Handover: list[1].Handover, Seen: true, Next: time.Hour}}))
		equal(e, "number", list[1].Number, k.Number)
		e.toAsk(k.Number)
	}},
	{"a replaced handover is polled at once", func(e *env) {
		a, h := e.handedOver("name: a\npolicy: {overlap: replace}")
		next := e.triggered(store.TriggerItem{ID: e.id(), Job: a.Job, Kind: job.RunByHand, Key: "next"})
		e.claim(e.a, next, store.Waiting)
		one := e.toAsk(h.Number)[0]
		contains(e, "why", one.Run.CancelReason.String(), "took its place")
		e.finish(a, job.OutcomeCancelled)
		e.claim(e.a, next, store.Started)
	}},
	{"the retry of a handed-over attempt is placed again", func(e *env) {
		a, h := e.handedOver("name: a\npolicy: {retry: {attempts: 1, backoff: 0s}}")
		got := e.finish(a, job.OutcomeFailed)
		equal(e, "unplaced", got.Unplaced, true)
		r := e.run(a.Run)
		equal(e, "state", r.State, job.StateReady)
		equal(e, "attempt", r.Attempt, 2)
		unplaced, err := e.Unplaced(e.ctx, store.RunRef{}, 10)
		e.must(err)
		equal(e, "unplaced", len(unplaced), 1)
		e.must(e.Place(e.ctx, []store.Placement{{Job: a.Job, Run: a.Run, Attempt: 2, Session: e.a.ID}}))
		second := r.Present()
		second.Token = e.id()
		e.claim(e.a, second, store.Started)
		next := e.handing(second)
		e.handOver(e.a, next, store.Handed)
		e.clock.Advance(store.AskAgain)
		e.toAsk(next.Number)
		equal(e, "that of the first attempt is over", e.known(h.Number).IsOver(), true)
		of, err := e.Handovers(e.ctx, store.HandoverQuery{Run: a.Run, Limit: store.MaxBatch})
		e.must(err)
		equal(e, "handovers of the run", len(of), 2)
	}},
	{"an executor may skip a handed-over attempt", func(e *env) {
		a, _ := e.handedOver("name: a\npolicy: {overlap: skip, retry: {attempts: 3}}")
		e.put("name: b\nschedule: {on: [a]}")
		equal(e, "accepted", e.report(store.Result{Attempt: a, Outcome: job.OutcomeSkipped, Reason: job.Text("it is busy")}).Accepted, true)
		equal(e, "reason", e.gone(a.Run, job.OutcomeSkipped).Attempt.Reason, job.Text("it is busy"))
		list, err := e.ListActive(e.ctx, store.ActiveQuery{Limit: 10})
		e.must(err)
		equal(e, "runs", len(list), 0)
	}},
	{"a handover that was surely not sent is released", func(e *env) {
		a, h := e.handedOver("name: a")
		e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{a})) // its node believes that it has not started
		equal(e, "state", e.run(a.Run).State, job.StateRunning)
		e.must(e.Release(e.ctx, job.ID{}, []store.Attempt{a}))
		r := e.run(a.Run)
		equal(e, "state", r.State, job.StateReady)
		equal(e, "attempt", r.Attempt, 1)
		e.clock.Advance(store.AskAgain)
		e.toAsk()
		equal(e, "over", e.known(h.Number).IsOver(), true)
	}},
	{"a late result of a handover replaces lost", func(e *env) {
		a, h := e.handedOver("name: a")
		e.finish(a, job.OutcomeLost)
		e.gone(a.Run, job.OutcomeLost)
		late := e.known(h.Number).Attempt
		equal(e, "accepted", e.report(store.Result{Attempt: late, Outcome: job.OutcomeSucceeded}).Accepted, true)
		equal(e, "record", e.attempts(a.Run)[0].Attempt.Outcome, job.OutcomeSucceeded)
	}},
	{"handovers are kept for seven days after their end", func(e *env) {
		a, h := e.handedOver("name: a")
		_, stays := e.handedOver("name: b")
		e.finish(a, job.OutcomeSucceeded)
		e.clock.Advance(store.AskAgain)
		e.toAsk(stays.Number)
		e.clock.Advance(store.HandoverLife)
		e.tidy()
		e.known(h.Number)
		e.clock.Advance(time.Second)
		e.tidy()
		list, err := e.Handovers(e.ctx, store.HandoverQuery{Numbers: []int64{h.Number, stays.Number}, Limit: store.MaxBatch})
		e.must(err)
		if len(list) != 1 || list[0].Number != stays.Number {
			e.Errorf("handovers that are known: %+v", list)
		}
	}},
}
