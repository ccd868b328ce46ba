package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var memberDecisions = []decided{
	{"a session is joined once, renewed and ended", func(k *book) {
		n := k.join("n")
		k.must(&Join{k.sessions[n]})
		k.pass(time.Second)
		k.must(&Renewal{Session: n, Load: store.Load{Running: 3}})
		equal(k, "load", k.sessions[n].Load.Running, 3)
		if err := k.do(&Join{}); err == nil {
			k.Error("a session without an id has joined")
		}
		again := k.sessions[n]
		again.Version = "2"
		k.must(&Join{again})
		equal(k, "version", k.sessions[n].Version, "2")
		k.must(&Leave{n})
		equal(k, "leaving", k.sessions[n].Leaving, true)
		k.refuses(&Join{again}, store.ErrSessionOver)
		k.must(&End{n})
		k.refuses(&Renewal{Session: job.ID{77}}, store.ErrSessionOver)
		k.refuses(&Leave{job.ID{77}}, store.ErrSessionOver)
	}},
	{"a session with something running does not end, and its ready runs are handed on", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {overlap: allow}")
		run, ready := k.trigger(a, n), k.trigger(a, n)
		k.claim(n, run, store.Started)
		k.must(&Leave{n})
		equal(k, "session of the ready run", k.runs[ready.Run].Session, job.ID{})
		k.refuses(&End{n}, store.ErrConflict)
		k.finish(run, job.OutcomeSucceeded, true)
		k.must(&End{n})
	}},
	{"a node that died leaves its runs to its successor at once", func(k *book) {
		old := k.join("n")
		a := k.put("name: a\npolicy: {retry: {attempts: 1, backoff: 0s, on: [lost]}}")
		run := k.trigger(a, old)
		k.claim(old, run, store.Started)
		next := k.join("n")
		equal(k, "predecessors", fmt.Sprint(k.sessions[next].Predecessors), fmt.Sprint([]job.ID{old}))
		k.must(&Reap{Session: next, Attempts: []store.Attempt{run}})
		k.ended(run.Run, "lost", "")
		k.see(a, "ready 2")
		k.refuses(&Renewal{Session: old}, store.ErrSessionOver)
		k.claim(next, store.Attempt{Job: a, Run: run.Run, Number: 2, Token: k.id()}, store.Started)
		k.join("n") // the first session has ended, and is not a predecessor
	}},
	{"a drained node takes no runs until that is undone", func(k *book) {
		n := k.join("n")
		a := k.put("name: a")
		run := k.trigger(a, n)
		drain := func(undo bool) *DrainNode {
			return &DrainNode{store.DrainNode{Node: "n", Undo: undo, Reason: "disk", Actor: "ann"}}
		}
		k.must(drain(false))
		k.must(drain(false))
		equal(k, "session of the run", k.runs[run.Run].Session, job.ID{})
		k.claim(n, run, store.Taken)
		k.must(drain(true))
		k.claim(n, run, store.Started)
		k.refuses(&DrainNode{store.DrainNode{Node: "nobody"}}, store.ErrNotFound)
		equal(k, "audit", strings.Count(strings.Join(k.audit, " "), "node."), 2)
	}},
}
