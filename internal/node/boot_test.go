package node

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestBootJobsRunPerProcessNotPerSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.exec.do = sleeps(time.Hour)
		before := w.apply("{name: before, schedule: {boot: true}, run: {shell: 'true'}}")
		stop := w.start("a")
		time.Sleep(5 * time.Second)
		w.apply("{name: after, schedule: {boot: true}, run: {shell: 'true'}}")
		// Another node counts the process as dead: its session is over.
		ctx := context.Background()
		other, err := w.store.Join(ctx, store.Session{ID: job.ID{1}, Node: "a", Machine: "m1", DataDir: "/a"})
		if err != nil {
			t.Fatal(err)
		}
		runs, err := w.store.ListActive(ctx, store.ActiveQuery{Job: before.Definition.UID, Limit: 10})
		if err != nil || len(runs) != 1 || runs[0].State != job.StateRunning {
			t.Fatalf("%v, the runs are %+v", err, runs)
		}
		if err := w.store.Reap(ctx, other.ID, []store.Attempt{{Run: runs[0].ID, Number: 1, Token: runs[0].Token}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		sessions, err := w.store.Sessions(ctx)
		if err != nil || !slices.ContainsFunc(sessions, func(s store.Session) bool { return s.ID != other.ID && s.ID != runs[0].Session }) {
			t.Fatalf("%v, the node has no new session: %+v", err, sessions)
		}
		if started := w.exec.started(); len(started) != 1 || started[0].name != "before" {
			t.Errorf("started: %+v", started)
		}
		stop()
	})
}

func TestSplitBootJobHasAllItsShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		split := w.apply("{name: split, schedule: {boot: true}, place: {shards: 3}, run: {shell: 'true'}}")
		last := w.apply("{name: last, schedule: {on: split}, run: {shell: 'true'}}")
		stop := w.start("a")
		time.Sleep(5 * time.Second)
		if got := w.outcomes(split); len(got) != 3 {
			t.Errorf("the shards ended as %v", got)
		}
		if got := w.outcomes(last); len(got) != 1 {
			t.Errorf("what follows them ended as %v", got)
		}
		stop()
	})
}
