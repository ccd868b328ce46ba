package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// follow returns a function that ends the following and lists the events since the call. The writes
// of the test have returned by then, and their events are there.
func (e *env) follow() func() []store.Event {
	ctx, cancel := context.WithCancel(e.ctx)
	ch := e.Events(ctx)
	return func() (all []store.Event) {
		cancel()
		for list := range ch {
			all = append(all, list...)
		}
		return all
	}
}

// inWords writes events for comparison: kind, job and other essentials.
func inWords(list []store.Event) (words []string) {
	for _, event := range list {
		switch {
		case event.Audit != nil:
			words = append(words, fmt.Sprintf("%s %s %s", event.Kind, event.Audit.Object, event.Audit.Actor))
		case event.Record != nil:
			words = append(words, fmt.Sprintf("%s %s/%s %s", event.Kind, event.Record.Run.Namespace, event.Record.Run.Name, event.Record.Attempt.Outcome))
		case event.Run != nil:
			words = append(words, fmt.Sprintf("%s %s/%s %d", event.Kind, event.Run.Namespace, event.Run.Name, event.Run.Attempt))
		default:
			words = append(words, event.Kind)
		}
	}
	return words
}

// wantEvents compares events with the expected ones.
func (e *env) wantEvents(got []store.Event, want ...string) {
	e.Helper()
	for i := range got {
		if got[i].Time.IsZero() {
			e.Errorf("event %d has no time: %+v", i, got[i])
		}
	}
	if words := inWords(got); !slices.Equal(words, want) {
		e.Errorf("told was\n  %s\nwant\n  %s", strings.Join(words, "\n  "), strings.Join(want, "\n  "))
	}
}

var eventTests = []test{
	{"events of a job and its runs come in order", func(e *env) {
		events := e.follow()
		j := e.put(everyMinute + "\npolicy: {overlap: queue, retry: {attempts: 2, backoff: 1s}}")
		runs := e.plan(j, time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, runs[1], store.Waiting)
		e.finish(runs[0], job.OutcomeFailed)
		again := store.Attempt{Job: runs[0].Job, Run: runs[0].Run, Number: 2, Token: e.id()}
		e.clock.Advance(time.Minute)
		e.claim(e.a, again, store.Started)
		e.finish(again, job.OutcomeSucceeded)
		_, err := e.Cancel(e.ctx, runs[1].Run, "ann", "enough")
		e.must(err)
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		name := j.Definition.FullName()
		e.wantEvents(events(),
			"job.create "+name+" ann",
			"run.ready "+name+" 1", "run.ready "+name+" 1",
			"run.running "+name+" 1", "run.waiting "+name+" 1",
			"run.ready "+name+" 2", // for its second attempt
			"run.running "+name+" 2",
			"run.done "+name+" succeeded", "run.ready "+name+" 1", // it has received the slot
			"run.cancel "+name+" ann", "run.done "+name+" cancelled",
			"job.delete "+name+" ann", "run.done "+name+" missed", // it was due but not planned
		)
	}},
	{"unchanged and refused calls send no event", func(e *env) {
		j := e.put(everyMinute)
		runs := e.plan(j, time.Second)
		e.claim(e.a, runs[0], store.Started)
		events := e.follow()
		e.put(everyMinute)
		e.claim(e.a, runs[0], store.Started) // again, since the answer was lost
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.want(e.DeleteJob(e.ctx, store.DeleteJob{UID: e.id(), IfVersion: store.AnyVersion, Actor: "ann"}), store.ErrNotFound)
		_, err := e.Cancel(e.ctx, e.id(), "ann", "")
		e.want(err, store.ErrNotFound)
		_, err = store.PutOne(e.ctx, e, store.PutJob{Definition: j.Definition, IfVersion: 7, Actor: "ann"})
		e.want(err, store.ErrConflict)
		e.wantEvents(events())
	}},
	{"a change of a run without a new state sends only the event of the request", func(e *env) {
		j := e.put(everyMinute)
		runs := e.plan(j, time.Second, 2*time.Second)
		e.clock.Advance(time.Second)
		e.claim(e.a, runs[0], store.Started)
		events := e.follow()
		_, err := e.Cancel(e.ctx, runs[0].Run, "ann", "enough") // it runs until its end
		e.must(err)
		e.must(e.Drain(e.ctx, store.DrainNode{Node: "a", Actor: "bob"})) // and has no other run left
		e.wantEvents(events(), "run.cancel "+j.Definition.FullName()+" ann", "node.drain a bob")
	}},
	{"withdrawn and missed runs send an event when they are settled", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {late_by: 10s}")
		e.plan(j, time.Second)
		events := e.follow()
		e.clock.Advance(time.Minute)
		e.tidy()
		name := j.Definition.FullName()
		e.wantEvents(events(), "run.done "+name+" missed")
	}},
	{"a channel of events closes with its context and leaves others open", func(e *env) {
		first, second := e.follow(), e.follow()
		e.wantEvents(first())
		j := e.put(everyMinute)
		e.wantEvents(second(), "job.create "+j.Definition.FullName()+" ann")
	}},
	{"a receiver that does not read learns of its loss", func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx)
		ch := e.Events(ctx)
		const writers, each = 20, 60 // more than any receiver lags behind
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				for range each {
					_, err := e.PutToken(e.ctx, store.PutToken{
						Name: "bob", Hash: store.TokenHash(append(e.bytes(), e.bytes()...)), Role: store.RoleViewer, Replace: true, Actor: "ann",
					})
					e.must(err)
				}
			})
		}
		group.Wait()
		read := 0
		for len(ch) > 0 {
			read += len(<-ch)
		}
		if read == 0 || read == writers*each {
			e.Fatalf("%d of %d changes were kept for a receiver that does not read", read, writers*each)
		}
		e.put(everyMinute)
		cancel()
		var rest []store.Event
		for list := range ch {
			rest = append(rest, list...)
		}
		equal(e, "events after the loss", len(rest), 2)
		equal(e, "kind of the first", rest[0].Kind, store.EventLost)
		equal(e, "kind of the second", rest[1].Kind, "job.create")
	}},
}

// bytes returns 16 that are new.
func (e *env) bytes() []byte {
	id := e.id()
	return id[:]
}
