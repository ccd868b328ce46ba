package storetest

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The feed of ended attempts: see [store.Feed].
var feedTests = []test{
	{"each consumer receives an ended run until it acknowledges it", func(e *env) {
		e.consume(store.Consumer{Name: "mail"})
		e.consume(store.Consumer{Name: "webhooks"})
		j := e.put(everyMinute + "\npolicy: {overlap: allow, retry: {attempts: 1, backoff: 1s}}")
		first, second := e.trigger(j), e.trigger(j)
		for _, a := range []store.Attempt{first, second} {
			e.claim(e.a, a, store.Started)
		}
		code := 3
		e.report(store.Result{Attempt: first, Outcome: job.OutcomeFailed, Reason: job.Text("line 1\nand “quotes”"), ExitCode: &code})
		e.finish(second, job.OutcomeSucceeded)
		for range 2 { // reading takes nothing
			equal(e, "entries of mail", len(e.ended("mail")), 2)
		}
		for _, entry := range e.ended("webhooks") {
			records := e.attempts(entry.Record.Run.ID)
			if len(records) != 1 || !reflect.DeepEqual(entry.Record, records[0]) {
				e.Errorf("the entry is\n%+v\nand history has\n%+v", entry.Record, records)
			}
		}
		e.take("mail", e.ended("mail")[:1])
		equal(e, "entries of mail after one was taken", len(e.ended("mail")), 1)
		equal(e, "entries of webhooks", len(e.ended("webhooks")), 2)
		left := e.ended("mail")
		for range 2 { // taken entries are skipped
			e.take("mail", left)
		}
		equal(e, "entries of mail after all were taken", len(e.ended("mail")), 0)
		e.finish(e.started(e.trigger(j)), job.OutcomeSucceeded)
		equal(e, "new entries of mail", len(e.ended("mail")), 1)
		equal(e, "entries of webhooks", len(e.ended("webhooks")), 3)
	}},
	{"a consumer receives the kinds that it selects", func(e *env) {
		e.consume(store.Consumer{Name: "ends", FinalOnly: true})
		e.consume(store.Consumer{Name: "failures", Outcomes: []job.Outcome{job.OutcomeFailed, job.OutcomeMissed}})
		j := e.put(everyMinute + "\npolicy: {overlap: allow, retry: {attempts: 1, backoff: 1s}}")
		a := e.started(e.trigger(j))
		e.finish(a, job.OutcomeFailed)
		e.clock.Advance(time.Second)
		a.Number, a.Token = 2, e.id()
		e.finish(e.started(a), job.OutcomeSucceeded)
		ends, failures := e.ended("ends"), e.ended("failures")
		if len(ends) != 1 || ends[0].Record.Attempt.Number != 2 {
			e.Errorf("ends has %d entries, want that of attempt 2: %+v", len(ends), ends)
		}
		if len(failures) != 1 || failures[0].Record.Attempt.Number != 1 || failures[0].Record.Final {
			e.Errorf("failures has %d entries, want that of attempt 1: %+v", len(failures), failures)
		}
		e.consume(store.Consumer{Name: "failures"})
		equal(e, "entries of failures after it was changed", len(e.ended("failures")), 1)
		e.finish(e.started(e.trigger(j)), job.OutcomeSucceeded)
		equal(e, "entries of failures that wants all", len(e.ended("failures")), 2)
	}},
	{"runs that never started are fed and appended records are not", func(e *env) {
		e.consume(store.Consumer{Name: "all"})
		j := e.put(everyMinute)
		run := e.plan(j, 5*time.Second)[0]
		_, err := e.Cancel(e.ctx, run.Run, "ann", "not today")
		e.must(err)
		e.must(e.Append(e.ctx, []store.Record{e.foreign(job.OutcomeSucceeded, "elsewhere")}))
		list := e.ended("all")
		if len(list) != 1 || list[0].Record.Run.ID != run.Run || list[0].Record.Attempt.Outcome != job.OutcomeCancelled {
			e.Errorf("the entries are %+v, want that of the cancelled run", list)
		}
	}},
	{"a late result that replaces lost is an entry of its own", func(e *env) {
		e.consume(store.Consumer{Name: "all"})
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		a := e.started(e.trigger(j))
		e.finish(a, job.OutcomeLost)
		e.report(store.Result{Attempt: a, Outcome: job.OutcomeSucceeded, Reason: job.Text("it ended after all")})
		var got []string
		for _, entry := range e.ended("all") {
			got = append(got, fmt.Sprint(entry.Record.Attempt.Outcome, " ", entry.Record.Replaces))
		}
		if text := strings.Join(got, ", "); text != "lost false, succeeded true" {
			e.Errorf("the entries are %s", text)
		}
	}},
	{"a late result that changes only its note is not fed", func(e *env) {
		e.consume(store.Consumer{Name: "all"})
		a := e.started(e.plan(e.put(everyMinute+"\npolicy: {retry: {attempts: 1, backoff: 1s}}"), time.Second)[0])
		b := e.join("b")
		e.pass(61*time.Second, b)
		e.must(e.Reap(e.ctx, b.ID, []store.Attempt{a}))
		e.report(store.Result{Attempt: a, Outcome: job.OutcomeSucceeded})
		equal(e, "entries", len(e.ended("all")), 1)
	}},
	{"entries come in pages in order", func(e *env) {
		e.consume(store.Consumer{Name: "all"})
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		for range 7 {
			e.finish(e.started(e.trigger(j)), job.OutcomeSucceeded)
			e.clock.Advance(time.Second)
		}
		whole := e.ended("all")
		equal(e, "entries", len(whole), 7)
		var paged []store.FeedEntry
		for after := store.FeedRef(""); ; {
			page, err := e.Ended(e.ctx, "all", after, 2)
			e.must(err)
			if len(page) > 2 {
				e.Fatalf("a page has %d entries", len(page))
			}
			if len(page) == 0 {
				break
			}
			paged = append(paged, page...)
			after = page[len(page)-1].Ref
		}
		if !reflect.DeepEqual(paged, whole) {
			e.Errorf("the pages have\n%+v\nwant\n%+v", paged, whole)
		}
	}},
	{"entries beyond the limit of a consumer are dropped and counted", func(e *env) {
		e.consume(store.Consumer{Name: "slow", Max: 3})
		e.consume(store.Consumer{Name: "other"})
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		var last []job.ID
		for range 5 {
			a := e.started(e.trigger(j))
			e.finish(a, job.OutcomeSucceeded)
			last = append(last, a.Run)
			e.clock.Advance(time.Second)
		}
		is := e.consumer("slow")
		equal(e, "entries before", is.Entries, 5)
		if age := e.now().Sub(is.Oldest); age < 4*time.Second || age > 6*time.Second {
			e.Errorf("the oldest entry is %s old, want 5 s", age)
		}
		if is.Bytes < 100 {
			e.Errorf("5 entries have %d bytes", is.Bytes)
		}
		e.pass(2*time.Minute, e.a)
		e.tidy()
		is = e.consumer("slow")
		equal(e, "entries", is.Entries, 3)
		equal(e, "dropped", is.Dropped, 2)
		equal(e, "the oldest that is left", e.ended("slow")[0].Record.Run.ID, last[2])
		equal(e, "entries of the other", e.consumer("other").Entries, 5)
	}},
	{"a recreated consumer has no earlier entries", func(e *env) {
		e.consume(store.Consumer{Name: "all"})
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		e.finish(e.started(e.trigger(j)), job.OutcomeSucceeded)
		for range 2 {
			e.must(e.DeleteConsumer(e.ctx, "all"))
		}
		_, err := e.Ended(e.ctx, "all", "", 10)
		e.want(err, store.ErrNotFound)
		e.consume(store.Consumer{Name: "all"})
		equal(e, "entries", len(e.ended("all")), 0)
	}},
	{"a consumer has a name of letters, and there are few", func(e *env) {
		for _, name := range []string{"", "Mail", "1st", "a b", "a/b", strings.Repeat("a", 41)} {
			if err := e.PutConsumer(e.ctx, store.Consumer{Name: name}); err == nil || !strings.Contains(err.Error(), "lower-case") {
				e.Errorf("consumer %q: %v", name, err)
			}
		}
		e.want(e.PutConsumer(e.ctx, store.Consumer{Name: store.ConsumerHistory}), store.ErrConflict)
		e.want(e.DeleteConsumer(e.ctx, store.ConsumerHistory), store.ErrConflict)
		for i := range store.ConsumersMax {
			e.consume(store.Consumer{Name: fmt.Sprint("c", i)})
		}
		e.want(e.PutConsumer(e.ctx, store.Consumer{Name: "one-more"}), store.ErrLimit)
		e.consume(store.Consumer{Name: fmt.Sprint("c", store.ConsumersMax-1), FinalOnly: true})
		e.want(e.Taken(e.ctx, "c1", make([]store.FeedRef, store.MaxBatch+1)), store.ErrTooMany)
		_, err := e.Ended(e.ctx, "unknown", "", 10)
		e.want(err, store.ErrNotFound)
	}},
	{"a consumer loses no run while many end concurrently", func(e *env) {
		e.consume(store.Consumer{Name: "all"})
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		var runs []store.Attempt
		for range 60 {
			runs = append(runs, e.started(e.trigger(j)))
		}
		seen := map[job.ID]bool{}
		ctx, stop := context.WithTimeout(e.ctx, 30*time.Second)
		defer stop()
		var wait sync.WaitGroup
		for part := range 4 {
			wait.Go(func() {
				for i := part; i < len(runs); i += 4 {
					_, err := e.Finish(ctx, e.a.ID, []store.Result{{Attempt: runs[i], Outcome: job.OutcomeSucceeded, Started: e.now(), Ended: e.now(), Reason: job.Text("by the test")}})
					if err != nil {
						e.Errorf("finish: %v", err)
					}
				}
			})
		}
		for len(seen) < len(runs) {
			list, err := e.Ended(ctx, "all", "", 7)
			if err != nil {
				e.Errorf("%d of %d ends were read: %v", len(seen), len(runs), err)
				break
			}
			for i := range list {
				seen[list[i].Record.Run.ID] = true
			}
			e.take("all", list)
		}
		wait.Wait()
	}},
}

// consume makes a consumer, or changes it.
func (e *env) consume(c store.Consumer) {
	e.Helper()
	e.must(e.PutConsumer(e.ctx, c))
}

// ended returns all untaken entries of a consumer.
func (e *env) ended(consumer string) []store.FeedEntry {
	e.Helper()
	list, err := e.Ended(e.ctx, consumer, "", 1000)
	e.must(err)
	return list
}

func (e *env) take(consumer string, entries []store.FeedEntry) {
	e.Helper()
	var refs []store.FeedRef
	for i := range entries {
		refs = append(refs, entries[i].Ref)
	}
	e.must(e.Taken(e.ctx, consumer, refs))
}

// consumer returns the state of a consumer.
func (e *env) consumer(name string) store.ConsumerState {
	e.Helper()
	list, err := e.Consumers(e.ctx)
	e.must(err)
	for i := range list {
		if list[i].Name == name {
			return list[i]
		}
	}
	e.Fatalf("there is no consumer %s among %+v", name, list)
	return store.ConsumerState{}
}

// started claims an attempt and returns it.
func (e *env) started(a store.Attempt) store.Attempt {
	e.Helper()
	e.claim(e.a, a, store.Started)
	return a
}
