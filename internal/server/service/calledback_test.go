package service

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// recalling is a store in which something happens before the second look at running runs.
type recalling struct {
	*memory.Store
	looks int
	then  func()
}

func (r *recalling) ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error) {
	if r.looks++; r.looks == 2 {
		r.then()
	}
	return r.Store.ListActive(ctx, q)
}

func TestChangeNamesClaimedRunsThatWereNotReleased(t *testing.T) {
	ctx := context.Background() // of no bubble
	edit := func(s *Service, name Name) (Changed, error) {
		draft, err := ReadDraft([]byte(`{"name": "j", "schedule": {"cron": "* * * * * *"}, "run": {"shell": "false"}}`), "")
		if err != nil {
			return Changed{}, err
		}
		return s.Jobs.Put(ctx, admin, name, draft, Expect{})
	}
	pause := func(s *Service, name Name) (Changed, error) {
		return s.Jobs.Pause(ctx, admin, name, client.PauseRequest{}, Expect{})
	}
	remove := func(s *Service, name Name) (Changed, error) { return s.Jobs.Delete(ctx, admin, name, "", Expect{}) }
	apply := func(request client.Apply) func(s *Service, name Name) (Changed, error) {
		return func(s *Service, _ Name) (out Changed, err error) {
			applied, err := s.Documents.Apply(ctx, admin, request)
			for _, r := range applied.Results {
				out.MayStart = append(out.MayStart, r.MayStart...)
			}
			return out, err
		}
	}
	document := client.Document{RawMessage: json.RawMessage(`{"name": "j", "labels": {"belfry/owner": "ann"}, "schedule": {"cron": "* * * * * *"}, "run": {"shell": "false"}}`)}
	bulk := func(action client.BulkAction) func(s *Service, name Name) (Changed, error) {
		return func(s *Service, name Name) (out Changed, err error) {
			result, err := s.Bulk.Each(ctx, admin, []Name{name}, client.Bulk{Action: action}, "")
			out.MayStart = result.MayStart
			return out, err
		}
	}
	const (
		released = iota // before the change is acknowledged
		again           // released, and claimed under the new definition
		due             // before the node releases it
		held            // neither
	)
	for _, c := range []struct {
		name              string
		change            func(*Service, Name) (Changed, error)
		then              int
		running, mayStart int // runs that the answer names
	}{
		{"an edit, called back", edit, released, 0, 0},
		{"an edit, called back and claimed again", edit, again, 0, 0},
		{"an edit, due", edit, due, 1, 0},
		{"an edit, not called back", edit, held, 0, 1},
		{"a pause, called back", pause, released, 0, 0},
		{"a pause, due", pause, due, 1, 0},
		{"a pause, not called back", pause, held, 0, 1},
		{"a deletion, called back", remove, released, 0, 0},
		{"a deletion, due", remove, due, 1, 0},
		{"a deletion, not called back", remove, held, 0, 1},
		{"documents, called back", apply(client.Apply{Documents: []client.Document{document}}), released, 0, 0},
		{"documents, called back and claimed again", apply(client.Apply{Documents: []client.Document{document}}), again, 0, 0},
		{"documents, not called back", apply(client.Apply{Documents: []client.Document{document}}), held, 0, 1},
		{"a job that is pruned, not called back", apply(client.Apply{Owner: "ann", Prune: true}), held, 0, 1},
		{"a pause of many, not called back", bulk(client.BulkPause), held, 0, 1},
		{"a deletion of many, not called back", bulk(client.BulkDelete), held, 0, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			watched := &recalling{Store: b.store}
			s := b.serviceOn(Config{Store: watched})
			name := b.put(s, `{"name": "j", "labels": {"belfry/owner": "ann"}, "schedule": {"cron": "* * * * * *"}, "run": {"shell": "true"}}`)
			j, err := store.JobNamed(t.Context(), b.store, name.Namespace, name.Name)
			if err != nil {
				t.Fatal(err)
			}
			at := j.Cursor.Add(300 * time.Millisecond)
			a := store.Attempt{Job: j.Definition.UID, Run: b.id(), Number: 1, Token: b.id()}
			item := store.PlanItem{
				Job: a.Job, Epoch: 1, From: j.Cursor, To: at,
				Runs: []store.NewRun{{ID: a.Run, Session: b.session, Scheduled: at, Due: at}},
			}
			if out, _, err := b.store.Plan(t.Context(), b.session, []store.PlanItem{item}); err != nil || out[0] != store.Planned {
				t.Fatal(out, err)
			}
			claim := func() error {
				out, err := b.store.Claim(t.Context(), b.session, []store.Attempt{a})
				if err == nil && out[0].Verdict != store.Started {
					err = fmt.Errorf("claimed: %v", out[0].Verdict)
				}
				return err
			}
			if err := claim(); err != nil {
				t.Fatal(err)
			}
			watched.looks = 0
			watched.then = func() {
				switch c.then {
				case due:
					b.pass(time.Second)
				case released, again:
					if err := b.store.Release(t.Context(), b.session, []store.Attempt{a}); err != nil {
						t.Error(err)
					}
					if a.Token = b.id(); c.then == again {
						if err := claim(); err != nil {
							t.Error(err)
						}
					}
				}
			}
			answer, err := c.change(s, name)
			if err != nil {
				t.Fatal(err)
			}
			if len(answer.Running) != c.running || len(answer.MayStart) != c.mayStart || watched.looks < 2 {
				t.Errorf("%s: after %d looks the answer names %d running runs and %d that may start, want %d and %d", c.name, watched.looks, len(answer.Running), len(answer.MayStart), c.running, c.mayStart)
			}
			for _, r := range answer.MayStart {
				if r.ID != a.Run || !r.Due.Equal(at) || r.Node != "one" {
					t.Errorf("%s: the answer names run %s, due %s, on node %q", c.name, r.ID, r.Due, r.Node)
				}
			}
			r, err := store.ActiveRun(t.Context(), b.store, a.Run)
			if left := err == nil && r.State == job.StateRunning; left != (c.then != released) {
				t.Errorf("%s: the run is claimed after the answer: %t", c.name, left)
			}
		})
	}
}
