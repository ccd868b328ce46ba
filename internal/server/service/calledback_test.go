package service

import (
	"context"
	"fmt"
	"testing"
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

func TestChangeIsAcknowledgedAfterImminentStartsAreRecalled(t *testing.T) {
	edit := func(s *Service, name Name) (Changed, error) {
		draft, err := ReadDraft([]byte(`{"name": "j", "schedule": {"cron": "* * * * * *"}, "run": {"shell": "false"}}`), "")
		if err != nil {
			return Changed{}, err
		}
		return s.Jobs.Put(t.Context(), admin, name, draft, Expect{})
	}
	pause := func(s *Service, name Name) (Changed, error) {
		return s.Jobs.Pause(t.Context(), admin, name, client.PauseRequest{}, Expect{})
	}
	remove := func(s *Service, name Name) (Changed, error) { return s.Jobs.Delete(t.Context(), admin, name, Expect{}) }
	for _, c := range []struct {
		name    string
		change  func(*Service, Name) (Changed, error)
		due     bool // before it is called back
		again   bool // claimed again, by the new definition
		running int  // runs that the answer names
	}{
		{"an edit, called back", edit, false, false, 0},
		{"an edit, called back and claimed again", edit, false, true, 0},
		{"an edit, due", edit, true, false, 1},
		{"a pause, called back", pause, false, false, 0},
		{"a pause, due", pause, true, false, 1},
		{"a deletion, called back", remove, false, false, 0},
		{"a deletion, due", remove, true, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			watched := &recalling{Store: b.store}
			s := b.serviceOn(Config{Store: watched})
			name := b.put(s, `{"name": "j", "schedule": {"cron": "* * * * * *"}, "run": {"shell": "true"}}`)
			j, err := store.JobNamed(t.Context(), b.store, name.Namespace, name.Name)
			if err != nil {
				t.Fatal(err)
			}
			due := j.Cursor.Add(300 * time.Millisecond)
			a := store.Attempt{Job: j.Definition.UID, Run: b.id(), Number: 1, Token: b.id()}
			item := store.PlanItem{
				Job: a.Job, Epoch: 1, From: j.Cursor, To: due,
				Runs: []store.NewRun{{ID: a.Run, Session: b.session, Scheduled: due, Due: due}},
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
				if c.due {
					b.pass(time.Second)
					return
				}
				if err := b.store.Release(t.Context(), b.session, []store.Attempt{a}); err != nil {
					t.Error(err)
				}
				if a.Token = b.id(); c.again {
					if err := claim(); err != nil {
						t.Error(err)
					}
				}
			}
			answer, err := c.change(s, name)
			if err != nil {
				t.Fatal(err)
			}
			if len(answer.Running) != c.running || watched.looks < 2 {
				t.Errorf("after %d looks the answer names %d runs, want %d", watched.looks, len(answer.Running), c.running)
			}
			r, err := store.ActiveRun(t.Context(), b.store, a.Run)
			if left := err == nil && r.State == job.StateRunning; left != (c.due || c.again) {
				t.Errorf("the run is claimed after the answer: %t", left)
			}
		})
	}
}
