package storetest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Elsewhere tests the events between the stores of several nodes on one database. Each call of open
// opens the store of another node.
func Elsewhere(t *testing.T, open func() store.Store) {
	follows, changes := open(), open()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	elsewhere := follows.EventsElsewhere(ctx)
	hears(ctx, t, elsewhere, changes)
	own := changes.Events(ctx)
	live(t, changes, "one")
	want := collect(t, own, 5)
	if got := collect(t, elsewhere, 5); !slices.Equal(got, want) {
		t.Errorf("told was\n%s\nwant\n%s", got, want)
	}

	// Only other nodes receive its changes.
	back := changes.EventsElsewhere(ctx)
	hears(ctx, t, back, follows)
	live(t, follows, "two")
	live(t, changes, "three")
	if got, want := collect(t, elsewhere, 5), collect(t, own, 5); !slices.Equal(got, want) {
		t.Errorf("told was\n%s\nwant\n%s", got, want)
	}
	if got := collect(t, back, 5); len(got) != 5 {
		t.Errorf("told back was %s", got)
	}

	// Changes of a node before it knew of a follower are not reported.
	late := open()
	live(t, late, "four")
	for heard := ""; heard != store.EventLost; {
		select {
		case list := <-elsewhere:
			heard = list[0].Kind
		case <-ctx.Done():
			t.Fatal("no listener learns of the gap")
		}
	}

	following, stop := context.WithCancel(ctx)
	third := follows.EventsElsewhere(following)
	stop()
	for range third { // until the channel is closed
	}
}

// hears returns once one node receives the events of another. Earlier events are dropped.
func hears(ctx context.Context, t *testing.T, from <-chan []store.Event, other store.Store) {
	t.Helper()
	for {
		changed, err := other.PutDocument(ctx, job.Document{Pool: &job.Pool{Name: "heard", Description: rand.Text()}}, store.AnyVersion, "ann")
		if err != nil {
			t.Fatal(err)
		}
		for again := time.After(time.Second); again != nil; {
			select {
			case list := <-from:
				if a := list[len(list)-1].Audit; a != nil && a.Version == changed.Version() {
					return
				}
			case <-again: // it had not started to report
				again = nil
			case <-ctx.Done():
				t.Fatal("no change has come")
			}
		}
	}
}

// live creates, runs and deletes a job on one node.
func live(t *testing.T, s store.Store, name string) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	id := func() job.ID {
		t.Helper()
		id, err := job.NewID(time.Now(), rand.Reader)
		must(err)
		return id
	}
	node, err := s.Join(ctx, store.Session{ID: id(), Node: name, Machine: name, DataDir: "/" + name, Roles: []string{store.RoleWorker}, Capacity: 1})
	must(err)
	j, err := store.PutOne(ctx, s, store.PutJob{
		Definition: &job.Job{Name: name, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}, IfVersion: store.AnyVersion, Actor: "ann",
	})
	must(err)
	a := store.Attempt{Run: id(), Number: 1, Token: id()}
	item := store.TriggerItem{ID: a.Run, Job: j.Definition.UID, Kind: job.RunByHand, Key: "k", Session: node.ID, Params: map[string]string{}, Actor: "ann"}
	outcomes, err := s.Trigger(ctx, []store.TriggerItem{item})
	must(err)
	must(outcomes[0].Err)
	claims, err := s.Claim(ctx, node.ID, []store.Attempt{a})
	must(err)
	if claims[0].Verdict != store.Started {
		t.Fatalf("the claim of a run by hand is answered %d", claims[0].Verdict)
	}
	code := 7
	_, err = s.Finish(ctx, node.ID, []store.Result{{
		Attempt: a, Started: claims[0].Now, Ended: claims[0].Now, Outcome: job.OutcomeFailed, Reason: job.Text("exit status 7"), ExitCode: &code,
	}})
	must(err)
}

// collect returns n events as texts with all their fields.
func collect(t *testing.T, from <-chan []store.Event, n int) (all []string) {
	t.Helper()
	patience := time.After(3 * time.Minute)
	for len(all) < n {
		select {
		case list := <-from:
			for i := range list {
				text, err := json.Marshal(&list[i])
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, string(text))
			}
		case <-patience:
			t.Fatalf("told was %s, and nothing more", all)
		}
	}
	return all
}
