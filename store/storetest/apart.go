package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Apart tests that a node does not act on a cached copy of a run that another node has changed.
// Open opens the stores of two nodes on one empty database.
func Apart(t *testing.T, open func(t *testing.T, o Options) (one, other store.Store)) {
	for _, overlap := range []string{"allow", "skip"} {
		t.Run("overlap: "+overlap, func(t *testing.T) { apart(t, open, overlap) })
	}
}

func apart(t *testing.T, open func(t *testing.T, o Options) (one, other store.Store), overlap string) {
	often := "name: a\nschedule: {cron: '* * * * *'}\npolicy: {overlap: " + overlap + ", retry: {attempts: 3}}"
	deleteA := func(e *env) {
		j, err := store.JobNamed(e.ctx, e, "default", "a")
		e.must(err)
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
	}
	for _, c := range []struct {
		name string
		due  time.Duration
		// does is how other changes a run that one has planned, or claimed if claimed is set; sees
		// is what one must read of it.
		claimed bool
		does    func(other *env, a store.Attempt)
		sees    func(one *env, a store.Attempt)
	}{
		{
			name: "a run that was cancelled is not claimed", due: time.Second,
			does: func(other *env, a store.Attempt) {
				_, err := other.Cancel(other.ctx, a.Run, "ann", "not now")
				other.must(err)
			},
			sees: func(one *env, a store.Attempt) { one.claim(one.a, a, store.Gone) },
		},
		{
			name: "a run that was cancelled is not one to be claimed later", due: 5 * time.Second,
			does: func(other *env, a store.Attempt) {
				_, err := other.Cancel(other.ctx, a.Run, "ann", "not now")
				other.must(err)
			},
			sees: func(one *env, a store.Attempt) { one.claim(one.a, a, store.Gone) },
		},
		{
			name: "a run that was claimed is taken", due: time.Second,
			does: func(other *env, a store.Attempt) {
				a.Token = other.id()
				other.claim(other.join("b"), a, store.Started)
			},
			sees: func(one *env, a store.Attempt) { one.claim(one.a, a, store.Taken) },
		},
		{
			name: "a run that waits for its second attempt is not claimed for the first", due: time.Second,
			does: func(other *env, a store.Attempt) {
				a.Token = other.id()
				other.claim(other.join("b"), a, store.Started)
				other.finish(a, job.OutcomeFailed)
			},
			sees: func(one *env, a store.Attempt) { one.claim(one.a, a, store.Taken) },
		},
		{
			name: "an attempt that was cancelled is not retried", due: time.Second, claimed: true,
			does: func(other *env, a store.Attempt) {
				_, err := other.Cancel(other.ctx, a.Run, "ann", "stop")
				other.must(err)
			},
			sees: func(one *env, a store.Attempt) {
				one.finish(a, job.OutcomeFailed)
				contains(one, "reason", one.gone(a.Run, job.OutcomeFailed).Attempt.Reason.String(), "not retried")
			},
		},
		{
			name: "a result that was written is acknowledged again", due: time.Second, claimed: true,
			does: func(other *env, a store.Attempt) { other.finish(a, job.OutcomeSucceeded) },
			sees: func(one *env, a store.Attempt) {
				one.finish(a, job.OutcomeSucceeded)
				equal(one, "records", len(one.attempts(a.Run)), 1)
			},
		},
		{
			name: "an attempt that was given back has no node", due: time.Second, claimed: true,
			does: func(other *env, a store.Attempt) {
				other.must(other.Release(other.ctx, other.a.ID, []store.Attempt{a}))
			},
			sees: func(one *env, a store.Attempt) {
				got, err := one.Finish(one.ctx, one.a.ID, []store.Result{{Attempt: a, Started: one.now(), Ended: one.now(), Outcome: job.OutcomeSucceeded}})
				one.must(err)
				equal(one, "accepted", got[0].Accepted, false)
				equal(one, "state", one.run(a.Run).State, job.StateReady)
			},
		},
		{
			name: "a run whose job was deleted is not claimed", due: time.Second,
			does: func(other *env, _ store.Attempt) { deleteA(other) },
			sees: func(one *env, a store.Attempt) { one.claim(one.a, a, store.Gone) },
		},
		{
			name: "the end of a run whose job was deleted is recorded", due: time.Second, claimed: true,
			does: func(other *env, _ store.Attempt) { deleteA(other) },
			sees: func(one *env, a store.Attempt) {
				one.finish(a, job.OutcomeSucceeded)
				one.gone(a.Run, job.OutcomeSucceeded)
			},
		},
		{
			name: "a run of a job that is paused is not claimed", due: time.Second,
			does: func(other *env, _ store.Attempt) { other.put(often + "\npaused: true") },
			sees: func(one *env, a store.Attempt) { one.claim(one.a, a, store.Gone) },
		},
		{
			name: "a run that may not run beside others any more is not started beside one", due: time.Second,
			does: func(other *env, _ store.Attempt) {
				j := other.put(strings.Replace(often, "allow", "skip", 1))
				other.claim(other.a, other.trigger(j), store.Started)
			},
			sees: func(one *env, a store.Attempt) {
				one.clock.Advance(time.Second)
				one.claim(one.a, a, store.Skipped)
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var second store.Store
			one := newEnv(t, func(t *testing.T, o Options) (first store.Store) {
				first, second = open(t, o)
				return first
			})
			other := *one
			other.Store = second
			a := one.plan(one.put(often), c.due)[0]
			if c.claimed {
				one.claim(one.a, a, store.Started)
			}
			c.does(&other, a)
			c.sees(one, a)
		})
	}
}
