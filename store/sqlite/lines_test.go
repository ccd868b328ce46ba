package sqlite

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// checkLines compares where runs stand in memory with the file. What cannot be read,
// because the store is closed or its file is damaged, is not compared.
func checkLines(t testing.TB, s *Store) {
	t.Helper()
	var inFile *lines
	// All that was begun is committed when this is.
	_ = s.write(context.Background(), func(*tx) error { return nil })
	err := s.read(context.Background(), func(c *conn) (err error) {
		inFile, err = readLines(c)
		return err
	})
	if err == nil && !maps.EqualFunc(flat(inFile), flat(s.lines), slices.Equal) {
		t.Errorf("the runs stand in memory as\n%v\nand in the file as\n%v", flat(s.lines), flat(inFile))
	}
}

func flat(l *lines) map[line][]inLine {
	all := map[line][]inLine{}
	for of := range l.of {
		all[of] = l.runs(of, store.RunRef{}, math.MaxInt64, math.MaxInt)
	}
	return all
}

// A line of runs that come and go at any place is as a sorted list.
func TestALineIsInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	l, want := &runsInLine{}, []inLine{}
	ref := func() inLine {
		return inLine{due: int64(1 + random.IntN(400)), id: job.ID{byte(random.IntN(8))}, attempt: int32(random.IntN(100))}
	}
	for step := range 30_000 {
		r := ref()
		i, there := slices.BinarySearchFunc(want, r, func(a, b inLine) int { return a.compare(b.due, b.id) })
		// It grows to many chunks, and shrinks to nothing.
		switch grows := step/5000%2 == 0; {
		case !there && (grows || random.IntN(9) == 0):
			want = slices.Insert(want, i, r)
			l.add(r)
		case there && grows && random.IntN(4) > 0:
			want[i] = r
			l.add(r)
		case there:
			want = slices.Delete(want, i, i+1)
			l.remove(r.due, r.id)
		}
		for _, c := range l.chunks {
			if len(c) == 0 || len(c) > chunkMax || cap(c) > chunkMax {
				t.Fatalf("step %d: a chunk has %d runs and room for %d", step, len(c), cap(c))
			}
		}
		if step%50 > 0 {
			continue
		}
		after, until, limit := ref(), int64(random.IntN(420)), 1+random.IntN(900)
		behind := slices.DeleteFunc(slices.Clone(want), func(r inLine) bool { return r.compare(after.due, after.id) <= 0 || r.due > until })
		behind = behind[:min(limit, len(behind))]
		if got := l.behind(after.ref(), until, limit); !slices.Equal(got, behind) {
			t.Fatalf("step %d: behind %v until %d are\n%v\nand should be\n%v", step, after, until, got, behind)
		}
	}
}

// A call that is undone leaves the runs where they stand.
func TestWhatWasUndoneDoesNotMove(t *testing.T) {
	s, session, jobs := benchStore(t, 1, job.Policy{})
	at := jobs[0].Cursor.Add(time.Minute)
	item := store.PlanItem{
		Job: jobs[0].Definition.UID, Epoch: 1, From: jobs[0].Cursor, To: at,
		Runs: []store.NewRun{{ID: job.ID{1}, Session: session, Scheduled: at, Due: at}},
	}
	if _, err := s.Plan(t.Context(), session, []store.PlanItem{item}); err != nil {
		t.Fatal(err)
	}
	wrong := errors.New("wrong")
	err := s.sweep(t.Context(), func(t *tx) error {
		return errors.Join(t.handOn(session), wrong)
	})
	if !errors.Is(err, wrong) {
		t.Fatal(err)
	}
	if list, err := s.Ready(t.Context(), session, store.RunRef{}, at, 10); err != nil || len(list) != 1 {
		t.Errorf("the session has %v, %v", list, err)
	}
	checkLines(t, s)
}

// What asks for the runs of a session finds those that were planned before it in the
// same moment: it is not in one transaction with them.
func TestASweepSeesWhatWasBeforeIt(t *testing.T) {
	const rounds = 20
	s, session, jobs := benchStore(t, 1, job.Policy{})
	at := jobs[0].Cursor
	for round := range rounds {
		item := store.PlanItem{Job: jobs[0].Definition.UID, Epoch: 1, From: at, To: at.Add(time.Second)}
		at = item.To
		item.Runs = []store.NewRun{{ID: job.ID{byte(1 + round)}, Session: session, Scheduled: at, Due: at}}
		planned, hold := make(chan struct{}), make(chan struct{})
		results := make(chan error, 2)
		go func() {
			results <- s.write(t.Context(), func(tx *tx) error {
				err := tx.decide(1, func(st *step) error {
					_, err := st.job(item.Job)
					st.b.Plan(session, &item)
					return err
				})
				close(planned)
				<-hold
				return err
			})
		}()
		<-planned
		seen := 0
		go func() {
			results <- s.sweep(t.Context(), func(tx *tx) error {
				seen = len(tx.s.lines.runs(line{job.StateReady, session}, store.RunRef{}, math.MaxInt64, math.MaxInt))
				return nil
			})
		}()
		runtime.Gosched() // so that it is likely there when the first has ended
		close(hold)
		if err := errors.Join(<-results, <-results); err != nil {
			t.Fatal(err)
		}
		if seen != round+1 {
			t.Fatalf("round %d: %d runs are seen", round, seen)
		}
	}
}
