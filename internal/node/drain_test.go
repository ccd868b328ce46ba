package node

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// drain drains a node, or ends its drain.
func (w *world) drain(node string, undo bool) {
	w.t.Helper()
	if err := w.store.Drain(context.Background(), store.DrainNode{Node: node, Undo: undo, Actor: "ann"}); err != nil {
		w.t.Fatal(err)
	}
}

// endedOn returns the nodes on which the runs of a job have ended since a moment.
func (w *world) endedOn(j *store.Job, since time.Time) (nodes []string) {
	w.t.Helper()
	records, _, err := w.store.Attempts(context.Background(), store.HistoryQuery{Job: j.Definition.UID, From: since, Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range records {
		nodes = append(nodes, r.Attempt.Node)
	}
	return nodes
}

func TestRunsOfADrainedNodeStartElsewhereInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.apply(`{name: tick, schedule: {cron: "* * * * * *"}, run: {shell: "true"}, place: {strategy: first}, policy: {overlap: allow}}`)
		stopA, stopB := w.start("a"), w.start("b")
		time.Sleep(time.Minute)
		w.drain("a", false)
		moment := time.Now().Add(time.Millisecond) // runs due at this moment may have started
		time.Sleep(time.Minute)
		if nodes := w.endedOn(j, moment); len(nodes) < 59 || slices.Contains(nodes, "a") {
			t.Errorf("in the minute after the drain %d runs have ended, on %v", len(nodes), slices.Compact(nodes))
		}
		w.drain("a", true)
		moment = time.Now().Add(16 * time.Second) // runs planned until then belong to b
		time.Sleep(time.Minute)
		if nodes := w.endedOn(j, moment); len(nodes) < 40 || slices.Contains(nodes, "b") {
			t.Errorf("after the end of the drain %d runs have ended, on %v", len(nodes), slices.Compact(nodes))
		}
		stopA()
		stopB()
		for _, s := range w.exec.started() {
			if late := s.at.Sub(s.scheduled); late < 0 || late > 100*time.Millisecond {
				t.Errorf("the run of %s has started %s late", s.scheduled.Format(time.TimeOnly), late)
			}
		}
	})
}

func TestDrainedNodeFinishesItsRunsAndStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.exec.do = sleeps(30 * time.Second)
		long := w.apply(`{name: long, schedule: {cron: "0 * * * * *"}, run: {shell: "true"}, policy: {late_by: 25s}}`)
		boot := w.apply(`{name: boot, schedule: {boot: true}, run: {shell: "true"}}`)
		stop := w.start("a")
		time.Sleep(65 * time.Second) // the run takes 5 s
		w.drain("a", false)
		id, err := job.NewID(time.Now(), zeros{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.Trigger(context.Background(), []store.TriggerItem{{ID: id, Job: long.Definition.UID, Kind: job.RunByHand, Actor: "ann"}}); err != nil {
			t.Fatal(err)
		}
		before := len(w.exec.started())
		time.Sleep(80 * time.Second) // 00:02:00 falls due and becomes too late
		stop()
		stop = w.start("a") // it is still drained, and runs no boot jobs
		time.Sleep(10 * time.Second)
		if n := len(w.exec.started()); n != before {
			t.Fatalf("%d attempts have started on a drained node: %v", n-before, w.exec.started()[before:])
		}
		if got := w.outcomes(long); !slices.Equal(got, []string{"succeeded", "missed"}) {
			t.Errorf("the runs have ended as %v", got)
		}
		records, _, err := w.store.Attempts(context.Background(), store.HistoryQuery{Job: long.Definition.UID, Outcomes: []job.Outcome{job.OutcomeMissed}, Limit: 1})
		if err != nil || len(records) != 1 || !strings.Contains(records[0].Attempt.Reason.String(), "node a was drained by ann") {
			t.Errorf("what was missed says %+v, %v", records, err)
		}
		w.drain("a", true)
		time.Sleep(time.Second)
		after := w.exec.started()[before:]
		if len(after) != 1 || after[0].kind != job.RunByHand {
			t.Errorf("when it takes runs again it starts %v, want the one by hand that has waited", after)
		}
		time.Sleep(time.Minute)
		stop()
		if got := w.outcomes(boot); len(got) != 1 {
			t.Errorf("a job for the start of a node has run %d times, want once: at the start that was not drained", len(got))
		}
	})
}

func TestDrainedNodeReleasesEarlyClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.withFaults()
		f.takes = func() time.Duration { return 50 * time.Millisecond } // so claims are sent 100 ms ahead
		w.apply(every10s)
		stop := w.start("a")
		time.Sleep(59*time.Second + 990*time.Millisecond)
		active, err := w.store.ListActive(context.Background(), store.ActiveQuery{State: job.StateRunning, Limit: 10})
		if err != nil || len(active) != 1 {
			t.Fatalf("%d are claimed 10 ms ahead, %v", len(active), err)
		}
		before := len(w.exec.started())
		w.drain("a", false)
		time.Sleep(5 * time.Second)
		if n := len(w.exec.started()); n != before {
			t.Errorf("%d have started after the drain", n-before)
		}
		if r, err := store.ActiveRun(context.Background(), w.store, active[0].ID); err != nil || r.State != job.StateReady || !r.Session.IsZero() {
			t.Errorf("the run is %s at session %s, %v", r.State, r.Session, err)
		}
		stop()
	})
}

// The end of a drain is hinted: nodes do not wait for their next poll.
func TestWaitingRunsStartWhenTheDrainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.apply(`{name: hand, run: {shell: "true"}, policy: {overlap: allow}}`)
		stop := w.start("a")
		time.Sleep(time.Second)
		for i := range 10 {
			w.drain("a", false)
			id, err := job.NewID(time.Now(), zeros{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.store.Trigger(context.Background(), []store.TriggerItem{{ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Actor: "ann"}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3*time.Second + 100*time.Duration(i)*time.Millisecond)
			w.drain("a", true)
			time.Sleep(20 * time.Millisecond)
			if n := len(w.exec.started()); n != i+1 {
				t.Errorf("%d have started after drain %d", n, i+1)
			}
		}
		stop()
	})
}

// A node keeps its early claims when another node is drained.
func TestDrainOfAnotherNodeKeepsEarlyClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.withFaults()
		f.takes = func() time.Duration { return 50 * time.Millisecond } // so claims are sent 100 ms ahead
		w.apply(`{name: ten, schedule: {cron: "*/10 * * * * *"}, run: {shell: "true"}, place: {strategy: first}}`)
		stopA, stopB := w.start("a"), w.start("b")
		time.Sleep(59*time.Second + 990*time.Millisecond)
		before := len(w.exec.started())
		w.drain("b", false)
		time.Sleep(5 * time.Second)
		after := w.exec.started()[before:]
		if len(after) != 1 || !after[0].at.Equal(after[0].scheduled) {
			t.Errorf("after the drain of another node there have started %+v", after)
		}
		stopA()
		stopB()
	})
}
