package sqlite

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// checkJobs compares what is remembered of jobs with the file. What cannot be read,
// because the store is closed or its file is damaged, is not compared.
func checkJobs(t testing.TB, s *Store) {
	t.Helper()
	_ = s.write(context.Background(), func(tx *tx) error {
		for uid, kept := range tx.memory.jobs {
			q := tx.stmt(stateByUID).bindID(uid)
			read := jobRow{Job: &engine.Job{}}
			for q.next() {
				scanState(q, &read)
			}
			if err := q.err(); err != nil {
				return err
			}
			inFile, remembered := stateOf(read.Job), kept.job
			remembered.Namespace, remembered.Name, remembered.Policy = "", "", nil // of its definition
			inWhole(&remembered)
			inWhole(&inFile)
			if !reflect.DeepEqual(remembered, inFile) {
				t.Errorf("job %s is remembered as\n%+v\nand in the file it is\n%+v", uid, remembered, inFile)
			}
		}
		return nil
	})
}

// inWhole makes the times of a job as the file has them.
func inWhole(j *engine.Job) {
	v := reflect.ValueOf(j).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); !f.CanSet() {
			continue
		} else if at, ok := f.Interface().(time.Time); ok {
			f.Set(reflect.ValueOf(columns.FromNanos(columns.Nanos(at))))
		}
	}
}

// What is remembered of a planned run is all of it: a run with anything that has
// no place in plannedRun is not taken for one.
func TestAPlannedRunIsRememberedWhole(t *testing.T) {
	uid := job.ID{1}
	at := time.Unix(1_800_000_000, 5000).UTC()
	plain := func() store.Run {
		r := store.Run{Run: job.Run{
			ID: job.ID{2}, JobUID: uid, Kind: job.RunScheduled, State: job.StateReady, Attempt: 1,
			Scheduled: at, Due: at.Add(time.Second),
		}, Slot: uid.String()}
		r.Key = columns.Key(&r.Run)
		return r
	}
	if r := plain(); !isPlanned(&r) {
		t.Fatal("a run as the planner makes it is not remembered as one")
	}
	// These follow from the job or the scheduled time, or mean nothing here.
	derived := map[string]bool{
		"JobUID": true, "Namespace": true, "Name": true, "Key": true, "Slot": true, // of the job
		"Shard": true, "Outcome": true, // of a run that is split, or over
	}
	check := func(name string, r *store.Run) {
		t.Helper()
		if r.Key = columns.Key(&job.Run{Scheduled: r.Scheduled}); derived[name] || !isPlanned(r) {
			return
		}
		p := plannedOf(r)
		if got := p.run(uid); !reflect.DeepEqual(got, *r) {
			t.Errorf("with another %s the run is remembered as\n%+v\nand was\n%+v", name, got, *r)
		}
	}
	fields := reflect.TypeFor[store.Run]()
	for i := range fields.NumField() {
		if f := fields.Field(i); f.Type != reflect.TypeFor[job.Run]() {
			r := plain()
			change(t, f.Name, reflect.ValueOf(&r).Elem().Field(i))
			check(f.Name, &r)
		}
	}
	fields = reflect.TypeFor[job.Run]()
	for i := range fields.NumField() {
		r := plain()
		change(t, fields.Field(i).Name, reflect.ValueOf(&r.Run).Elem().Field(i))
		check(fields.Field(i).Name, &r)
	}
}

// change gives a field another value.
func change(t *testing.T, name string, v reflect.Value) {
	t.Helper()
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(1_900_000_000, 0).UTC()
	case *job.ID:
		*x = job.ID{9}
	case *map[string]string:
		*x = map[string]string{"a": "b"}
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString("another")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64, reflect.Uint8, reflect.Int8:
			if v.CanInt() {
				v.SetInt(77)
			} else {
				v.SetUint(77)
			}
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		default:
			t.Fatalf("no other value for %s of type %s", name, v.Type())
		}
	}
}

// What a call has undone is not remembered: neither the job nor its runs.
func TestWhatWasUndoneIsForgotten(t *testing.T) {
	s, session, jobs := benchStore(t, 1, job.Policy{})
	at := jobs[0].Cursor.Add(time.Minute)
	item := store.PlanItem{
		Job: jobs[0].Definition.UID, Epoch: 1, From: jobs[0].Cursor, To: at,
		Runs: []store.NewRun{{ID: job.ID{1}, Session: session, Scheduled: at, Due: at}},
	}
	wrong := errors.New("wrong")
	err := s.write(t.Context(), func(t *tx) error {
		return errors.Join(wrong, t.decide(1, func(st *step) error {
			if _, err := st.job(item.Job); err != nil {
				return err
			}
			if got := st.b.Plan(session, &item); got != store.Planned {
				return fmt.Errorf("plan: %d", got)
			}
			return nil
		}))
	})
	if err == nil || err.Error() != wrong.Error() {
		t.Fatal(err)
	}
	got, err := s.Plan(t.Context(), session, []store.PlanItem{item})
	if err != nil || got[0] != store.Planned {
		t.Fatal(got, err)
	}
	if _, err := s.Active(t.Context(), item.Runs[0].ID); err != nil {
		t.Error(err)
	}
}

// A step finds nothing of the one before it, whose space it uses.
func TestAStepKnowsNothingOfTheOneBefore(t *testing.T) {
	s, session, jobs := benchStore(t, spareMin, job.Policy{Overlap: job.OverlapAllow})
	l := newLives(s, session, jobs, 0)
	var batches [][]store.Attempt
	for range 2 {
		items, attempts := l.plan(0, len(jobs))
		if _, err := s.Plan(t.Context(), session, items); err != nil {
			t.Fatal(err)
		}
		batches = append(batches, attempts)
	}
	want := store.Started
	for _, attempts := range batches {
		outcomes, err := s.Claim(t.Context(), session, attempts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range outcomes {
			if outcomes[i].Verdict != want {
				t.Fatalf("run %d: got %v, want %v", i, outcomes[i].Verdict, want)
			}
		}
		for _, j := range jobs {
			paused := *j.Definition
			paused.Paused = true
			if _, err := s.PutJob(t.Context(), store.PutJob{Definition: &paused, IfVersion: store.AnyVersion}); err != nil {
				t.Fatal(err)
			}
		}
		want = store.Gone
	}
}
