package joined_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/joined"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// faulty is a history whose calls fail when a test says so.
type faulty struct {
	store.History
	mu sync.Mutex
	// before and after are errors of Append, returned before and after it appends.
	before, after error
	refuses       func(*store.Record) bool
	refusesOutput func(*store.OutputChunk) bool
	counting      func() // before Aggregate
}

func (f *faulty) Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.Aggregate, error) {
	if f.counting != nil {
		f.counting()
	}
	return f.History.Aggregate(ctx, q)
}

func (f *faulty) set(before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func (f *faulty) Append(ctx context.Context, records []store.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before != nil {
		return f.before
	}
	for i := range records {
		if f.refuses != nil && f.refuses(&records[i]) {
			return errors.New("a value is too long")
		}
	}
	if err := f.History.Append(ctx, records); err != nil {
		return err
	}
	return f.after
}

func (f *faulty) AttemptsOf(ctx context.Context, run job.ID) ([]store.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before != nil {
		return nil, f.before
	}
	return f.History.AttemptsOf(ctx, run)
}

func (f *faulty) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before != nil {
		return f.before
	}
	for i := range chunks {
		if f.refusesOutput != nil && f.refusesOutput(&chunks[i]) {
			return errors.New("permission denied or too long")
		}
	}
	return f.History.AppendOutput(ctx, chunks)
}

// forgetful is a control store that fails to remove taken records from its outbox.
type forgetful struct {
	*memory.Control
	fails int
}

func (f *forgetful) Taken(ctx context.Context, consumer string, refs []store.FeedRef) error {
	if f.fails--; f.fails >= 0 {
		return store.ErrAway
	}
	return f.Control.Taken(ctx, consumer, refs)
}

// rig is a joined store with a node and a job.
type rig struct {
	*testing.T
	*joined.Store
	control joined.Control
	history *faulty
	session store.Session
	uid     job.ID
	last    uint32
}

// both runs a test on a history in memory and on one in SQLite, in virtual time.
func both(t *testing.T, test func(r *rig), opt joined.Options) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(newRig(t, memory.New(memory.Options{}), opt)) })
	})
	t.Run("sqlite", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "history.db"), sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			test(newRig(t, s, opt))
		})
	})
}

func newRig(t *testing.T, history store.History, opt joined.Options) *rig {
	r := &rig{T: t, history: &faulty{History: history}, control: &forgetful{Control: memory.NewControl(memory.Options{})}}
	var err error
	r.Store, err = joined.New(t.Context(), r.control, r.history, opt)
	r.must(err)
	r.session, err = r.Join(t.Context(), store.Session{ID: r.id(), Node: "a", Machine: "m", Roles: []string{store.RoleWorker}})
	r.must(err)
	docs, err := job.Decode("test.yaml", []byte("name: j\nschedule: {every: 1m}\npolicy: {overlap: allow, lost_after: 20s}\nrun: {shell: 'true'}"))
	r.must(err)
	j, err := store.PutOne(t.Context(), r, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion})
	r.must(err)
	r.uid = j.Definition.UID
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) id() job.ID {
	r.last++
	return job.ID{9, byte(r.last >> 16), byte(r.last >> 8), byte(r.last)}
}

// begin starts a run.
func (r *rig) begin() (store.Attempt, error) {
	r.Helper()
	outcomes, err := r.Trigger(r.Context(), []store.TriggerItem{{ID: r.id(), Job: r.uid, Kind: job.RunByHand, Session: r.session.ID}})
	r.must(err)
	a := store.Attempt{Job: r.uid, Run: outcomes[0].Run, Number: 1, Token: r.id()}
	out, err := r.Claim(r.Context(), r.session.ID, []store.Attempt{a})
	if err == nil && out[0].Verdict != store.Started {
		r.Fatalf("the claim is answered %d: %s", out[0].Verdict, out[0].Reason)
	}
	return a, err
}

// end ends an attempt, and reports whether that was accepted.
func (r *rig) end(a store.Attempt, o job.Outcome) bool {
	r.Helper()
	out, err := r.Finish(r.Context(), r.session.ID, []store.Result{{
		Attempt: a, Outcome: o, Started: time.Now(), Ended: time.Now(), Reason: job.Text("by the test"),
		Output: []store.OutputChunk{{Run: a.Run, Attempt: 1, Seq: 1, Bytes: 2, Data: []byte("hi")}}, OutputBytes: 2,
	}})
	r.must(err)
	return out[0].Accepted
}

func (r *rig) ran() store.Attempt {
	r.Helper()
	a, err := r.begin()
	r.must(err)
	if !r.end(a, job.OutcomeSucceeded) {
		r.Fatal("the result is not accepted")
	}
	return a
}

// shipped ships until nothing waits.
func (r *rig) shipped() {
	r.Helper()
	for more := true; more; {
		var err error
		more, err = r.Ship(r.Context())
		r.must(err)
	}
}

// once checks that history and the reads have one final record of each run.
func (r *rig) once(runs []store.Attempt) {
	r.Helper()
	for what, from := range map[string]store.History{"history": r.history.History, "the store": r.Store} {
		seen := map[job.ID]int{}
		q := store.HistoryQuery{Limit: 7, FinalOnly: true}
		for {
			list, next, err := from.Attempts(r.Context(), q)
			r.must(err)
			for i := range list {
				seen[list[i].Run.ID]++
			}
			if q.Before = next; next == (store.RecordRef{}) {
				break
			}
		}
		for _, a := range runs {
			if seen[a.Run] != 1 {
				r.Errorf("%s has %d records of run %s", what, seen[a.Run], a.Run)
			}
		}
		if len(seen) != len(runs) {
			r.Errorf("%s has records of %d runs, want %d", what, len(seen), len(runs))
		}
	}
}

func TestRecordShippedTwiceIsStoredOnce(t *testing.T) {
	both(t, func(r *rig) {
		var runs []store.Attempt
		for range 3 {
			runs = append(runs, r.ran())
		}
		r.history.set(nil, store.ErrAway) // it is appended, but the answer is lost
		if _, err := r.Ship(r.Context()); !errors.Is(err, store.ErrAway) {
			r.Fatalf("ship: %v", err)
		}
		runs = append(runs, r.ran())
		r.history.set(nil, nil)
		r.control.(*forgetful).fails = 1 // a crash between the append and its removal from the outbox
		if _, err := r.Ship(r.Context()); !errors.Is(err, store.ErrAway) {
			r.Fatalf("ship: %v", err)
		}
		other, err := joined.New(r.Context(), r.control, r.history, joined.Options{})
		r.must(err)
		var wait sync.WaitGroup
		for _, s := range []*joined.Store{r.Store, other} { // two nodes ship at once
			wait.Go(func() {
				if _, err := s.Ship(r.Context()); err != nil {
					r.Errorf("ship: %v", err)
				}
			})
		}
		wait.Wait()
		r.shipped()
		r.once(runs)
		if state, err := r.Held(r.Context()); err != nil || state.Entries != 0 {
			r.Errorf("the outbox holds %d records, %v", state.Entries, err)
		}
	}, joined.Options{})
}

func TestHistoryOutageOfAnHourLosesNothing(t *testing.T) {
	both(t, func(r *rig) {
		ctx, stop := context.WithCancel(r.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Store.Run(ctx) }()
		defer func() { stop(); <-done }()
		runs := []store.Attempt{r.ran()}
		time.Sleep(time.Second)
		r.history.set(fmt.Errorf("no route to host: %w", store.ErrAway), nil)
		for range 60 {
			runs = append(runs, r.ran())
			time.Sleep(time.Minute)
		}
		if s := r.Status(); s.Away == nil || s.Held.Entries != 60 || time.Since(s.Held.Oldest) < 59*time.Minute {
			r.Errorf("after an hour: away %v, %d records, the oldest from %s", s.Away, s.Held.Entries, s.Held.Oldest)
		}
		// Waiting records are found all the same.
		if list, err := r.AttemptsOf(r.Context(), runs[60].Run); err != nil || len(list) != 1 || !list[0].Final {
			r.Errorf("the latest run has the records %v, %v", list, err)
		}
		r.history.set(nil, nil)
		time.Sleep(time.Minute)
		if s := r.Status(); s.Away != nil || s.Held.Entries != 0 {
			r.Errorf("a minute after: away %v, %d records", s.Away, s.Held.Entries)
		}
		r.once(runs)
		for _, a := range runs {
			if chunks, err := r.Output(r.Context(), a.Run, 1, 0, 10); err != nil || len(chunks) != 1 {
				r.Errorf("run %s has %d chunks of output, %v", a.Run, len(chunks), err)
			}
		}
	}, joined.Options{})
}

func TestAFullOutboxStopsClaimsAndTakesResults(t *testing.T) {
	both(t, func(r *rig) {
		r.history.set(store.ErrAway, nil)
		var going []store.Attempt
		for range 3 {
			a, err := r.begin()
			r.must(err)
			going = append(going, a)
		}
		var refused error
		var runs []store.Attempt
		for range 1000 {
			a, err := r.begin()
			if refused = err; err != nil {
				break
			}
			if runs = append(runs, a); !r.end(a, job.OutcomeFailed) {
				r.Fatal("a result is not accepted")
			}
			_, _ = r.Ship(r.Context()) // fails
			r.looked()
		}
		if !errors.Is(refused, store.ErrNoSpace) || !strings.Contains(refused.Error(), "wait for the history store") {
			r.Fatalf("after %d runs a claim is answered: %v", len(runs), refused)
		}
		for _, a := range going {
			if !r.end(a, job.OutcomeSucceeded) {
				r.Error("a result is not accepted while claims are refused")
			}
		}
		r.history.set(nil, nil)
		r.shipped()
		runs = append(append(runs, going...), r.ran())
		r.shipped()
		r.once(runs)
	}, joined.Options{OutboxMax: 20_000})
}

// looked measures the outbox, as Run does each second.
func (r *rig) looked() {
	ctx, stop := context.WithTimeout(r.Context(), 1500*time.Millisecond)
	defer stop()
	r.Store.Run(ctx)
}

func TestALateResultReplacesLost(t *testing.T) {
	for _, after := range []string{"before its lost is shipped", "when it was just shipped", "long after it was shipped"} {
		t.Run(after, func(t *testing.T) {
			both(t, func(r *rig) {
				a, err := r.begin()
				r.must(err)
				b, err := r.begin()
				r.must(err)
				if !r.end(a, job.OutcomeLost) || !r.end(b, job.OutcomeSucceeded) {
					r.Fatal("the first results are not accepted")
				}
				runs := []store.Attempt{a, b}
				if after != "before its lost is shipped" {
					r.shipped()
				}
				if after == "long after it was shipped" {
					time.Sleep(time.Hour)
					_, err := r.Tidy(r.Context())
					r.must(err)
					c, err := r.begin()
					r.must(err)
					r.history.set(store.ErrAway, nil) // only the late result waits for history
					results := []store.Result{{Attempt: a, Outcome: job.OutcomeSucceeded}, {Attempt: c, Outcome: job.OutcomeSucceeded}}
					for range 2 {
						out, err := r.Finish(r.Context(), r.session.ID, results)
						if r.must(err); out[0].Accepted || !out[0].Undecided || !out[1].Accepted || out[1].Undecided {
							r.Errorf("without history a late result and another are answered %+v", out)
						}
					}
					r.history.set(nil, nil)
					runs = append(runs, c)
				}
				if !r.end(b, job.OutcomeSucceeded) || r.end(b, job.OutcomeFailed) {
					r.Error("a repeated result is acknowledged, and another one is not")
				}
				for range 2 {
					if !r.end(a, job.OutcomeFailed) {
						r.Error("a late result is not accepted")
					}
				}
				r.shipped()
				r.once(runs)
				list, err := r.AttemptsOf(r.Context(), a.Run)
				r.must(err)
				if len(list) != 1 || list[0].Attempt.Outcome != job.OutcomeFailed || !list[0].Replaces {
					r.Errorf("the run has the records %+v", list)
				}
			}, joined.Options{})
		})
	}
}

func TestPagesGoAcrossTheSeam(t *testing.T) {
	both(t, func(r *rig) {
		var runs []store.Attempt
		for i := range 40 { // within one microsecond: the clock of a bubble stands still
			if runs = append(runs, r.ran()); i%9 == 4 {
				r.shipped()
			}
		}
		seen := map[job.ID]bool{}
		var last store.RecordRef
		for q := (store.HistoryQuery{Limit: 3}); ; {
			list, next, err := r.Attempts(r.Context(), q)
			r.must(err)
			for i := range list {
				if ref := list[i].Ref(); seen[ref.Run] || last.Run != (job.ID{}) && !ref.Ended.Equal(last.Ended) {
					r.Errorf("record %v comes again or out of its order", ref)
				}
				seen[list[i].Run.ID], last = true, list[i].Ref()
			}
			if q.Before = next; next == (store.RecordRef{}) {
				break
			}
		}
		if len(seen) != len(runs) {
			r.Errorf("the pages have %d runs, want %d", len(seen), len(runs))
		}
		counts, err := r.Aggregate(r.Context(), store.AggregateQuery{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour), Bucket: time.Hour})
		r.must(err)
		total := 0
		for _, c := range counts {
			total += c.Outcomes[job.OutcomeSucceeded]
		}
		if total != len(runs) {
			r.Errorf("%d are counted, want %d", total, len(runs))
		}
	}, joined.Options{})
}

func TestRefusedRecordBlocksNoOther(t *testing.T) {
	both(t, func(r *rig) {
		runs := []store.Attempt{r.ran(), r.ran(), r.ran()}
		tries := 0
		r.history.refuses = func(rec *store.Record) bool { // refuses the record as it is, and then in any form
			bad := rec.Run.ID == runs[0].Run && !strings.Contains(rec.Attempt.Reason.String(), "refused") || rec.Run.ID == runs[1].Run
			if bad {
				tries++
			}
			return bad
		}
		r.shipped()
		list, err := r.history.History.AttemptsOf(r.Context(), runs[0].Run)
		r.must(err)
		if len(list) != 1 || !strings.Contains(list[0].Attempt.Reason.String(), "a value is too long") {
			r.Errorf("the record that was cut: %+v", list)
		}
		if list, _ := r.history.History.AttemptsOf(r.Context(), runs[2].Run); len(list) != 1 {
			r.Error("the record behind them is not in history")
		}
		if s := r.Status(); s.Aside != 1 || s.Held.Entries != 0 {
			r.Errorf("%d records are put aside, %d wait", s.Aside, s.Held.Entries)
		}
	}, joined.Options{})
}

func TestAnotherHistoryIsRefused(t *testing.T) {
	both(t, func(r *rig) {
		if _, err := joined.New(r.Context(), r.control, memory.New(memory.Options{}), joined.Options{}); !errors.Is(err, joined.ErrOtherHistory) {
			r.Errorf("a second history: %v", err)
		}
		if _, err := joined.New(r.Context(), r.control, r.history, joined.Options{}); err != nil {
			r.Errorf("the same history again: %v", err)
		}
	}, joined.Options{})
}

func TestAServerStartsWhileItsHistoryIsAway(t *testing.T) {
	both(t, func(r *rig) {
		runs := []store.Attempt{r.ran()} // the control store already names its history
		r.shipped()
		var there store.History // nil while it is away
		var mu sync.Mutex
		second, err := joined.Open(r.Context(), r.control, func(context.Context) (store.History, error) {
			mu.Lock()
			defer mu.Unlock()
			if there == nil {
				return nil, fmt.Errorf("connection refused: %w", store.ErrAway)
			}
			return there, nil
		}, joined.Options{})
		r.must(err)
		r.Store = second
		ctx, stop := context.WithCancel(r.Context())
		done := make(chan struct{})
		go func() { defer close(done); second.Run(ctx) }()
		defer func() { stop(); <-done }()
		for range 10 {
			runs = append(runs, r.ran())
			time.Sleep(time.Minute)
		}
		if s := second.Status(); s.Away == nil || s.Err() != nil || !strings.Contains(s.Warning().String(), "10 records wait") {
			r.Errorf("after ten minutes: away %v, error %v, warning %q", s.Away, s.Err(), s.Warning())
		}
		if list, err := second.AttemptsOf(r.Context(), runs[10].Run); err != nil || len(list) != 1 {
			r.Errorf("the latest run has the records %v, %v", list, err)
		}
		going, err := r.begin()
		r.must(err)
		if list, err := second.AttemptsOf(r.Context(), going.Run); err != nil || len(list) != 0 {
			r.Errorf("a run in its first attempt has the records %v, %v", list, err)
		}
		if more, err := second.Expire(r.Context(), store.Retention{For: time.Minute}); more || err != nil {
			r.Errorf("expire: %t, %v", more, err)
		}
		if lists, err := second.Recent(r.Context(), []job.ID{r.uid}, 1); err != nil || len(lists) != 1 || len(lists[0]) != 1 || lists[0][0].Run.ID != runs[10].Run {
			r.Errorf("the latest run of the job is %v, %v", lists, err)
		}
		if list, next, err := second.Attempts(r.Context(), store.HistoryQuery{Limit: 3}); err != nil || len(list) != 3 || list[0].Run.ID != runs[10].Run || next != list[2].Ref() {
			r.Errorf("the latest runs are %v, then %v, %v", list, next, err)
		}
		count := 0
		sums, err := second.Aggregate(r.Context(), store.AggregateQuery{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour), Bucket: time.Hour})
		r.must(err)
		for _, sum := range sums {
			count += sum.Outcomes[job.OutcomeSucceeded]
		}
		if count != 10 {
			r.Errorf("%d of the 10 runs that wait are counted", count)
		}
		if _, err := second.AttemptsOf(r.Context(), runs[0].Run); !errors.Is(err, store.ErrHistoryAway) {
			r.Errorf("a run that history has: %v", err)
		}
		put := func(h store.History) {
			mu.Lock()
			defer mu.Unlock()
			there = h
		}
		put(memory.New(memory.Options{}))
		time.Sleep(time.Minute)
		if s := second.Status(); !errors.Is(s.Err(), joined.ErrOtherHistory) || s.Held.Entries != 10 {
			r.Errorf("with another history: %v, %d records wait", s.Err(), s.Held.Entries)
		}
		put(r.history)
		time.Sleep(time.Minute)
		if s := second.Status(); s.Away != nil || s.Err() != nil || s.Held.Entries != 0 {
			r.Errorf("when history is there: away %v, %v, %d records wait", s.Away, s.Err(), s.Held.Entries)
		}
		r.once(runs)
		if chunks, err := r.history.Output(r.Context(), runs[10].Run, 1, 0, 10); err != nil || len(chunks) != 1 {
			r.Errorf("the latest run has %d chunks of output, %v", len(chunks), err)
		}
	}, joined.Options{})
}

func TestAServerDoesNotStartWithAHistoryThatRefusesIt(t *testing.T) {
	both(t, func(r *rig) {
		wrong := errors.New("the password is wrong")
		if _, err := joined.Open(r.Context(), r.control, func(context.Context) (store.History, error) { return nil, wrong }, joined.Options{}); !errors.Is(err, wrong) {
			r.Errorf("open: %v", err)
		}
		other := func(context.Context) (store.History, error) { return memory.New(memory.Options{}), nil } //nolint:contextcheck // it is open at once
		if _, err := joined.Open(r.Context(), r.control, other, joined.Options{}); !errors.Is(err, joined.ErrOtherHistory) {
			r.Errorf("open with another history: %v", err)
		}
	}, joined.Options{})
}

func TestOutputOfADeadProcessIsShippedByTheNext(t *testing.T) {
	both(t, func(r *rig) {
		dir := r.TempDir()
		reopen := func(most int64) *joined.Store {
			s, err := joined.New(r.Context(), r.control, r.history, joined.Options{Dir: dir, OutputMax: most})
			r.must(err)
			return s
		}
		first := reopen(0)
		r.history.set(store.ErrAway, nil)
		run := r.id()
		chunk := func(seq int) store.OutputChunk {
			return store.OutputChunk{Run: run, Attempt: 1, Seq: seq, Offset: int64(seq), Bytes: 100, Data: []byte(strings.Repeat("a", 100))}
		}
		for seq := range 4 {
			c := chunk(seq)
			if seq == 3 { // the third displaces the first
				c.DropFrom, c.DropTo = 0, 1
			}
			r.must(first.AppendOutput(r.Context(), []store.OutputChunk{c}))
		}
		second := reopen(0)
		if list, err := second.Output(r.Context(), run, 1, 0, 10); err != nil || len(list) != 3 || list[0].Seq != 1 {
			r.Errorf("what waits is read as %d chunks, %v", len(list), err)
		}
		r.history.set(nil, nil)
		for range 2 {
			_, err := second.Ship(r.Context())
			r.must(err)
		}
		list, err := r.history.Output(r.Context(), run, 1, 0, 10)
		if err != nil || len(list) != 3 || list[0].Seq != 1 {
			r.Errorf("history has %d chunks, %v", len(list), err)
		}
		if s := second.Status(); s.OutputBytes != 0 || s.OutputDropped != 0 {
			r.Errorf("%d bytes wait, %d chunks were dropped", s.OutputBytes, s.OutputDropped)
		}
		r.history.set(store.ErrAway, nil)
		small := reopen(1000)
		for seq := range 20 {
			r.must(small.AppendOutput(r.Context(), []store.OutputChunk{chunk(10 + seq)}))
		}
		if s := small.Status(); s.OutputBytes > 1000 || s.OutputDropped == 0 || s.OutputDropped == 20 {
			r.Errorf("%d bytes wait, %d chunks were dropped", s.OutputBytes, s.OutputDropped)
		}
	}, joined.Options{})
}

func TestOneNodeShipsUntilItCannot(t *testing.T) {
	both(t, func(r *rig) {
		other, err := joined.New(r.Context(), r.control, r.history, joined.Options{})
		r.must(err)
		_, err = other.Join(r.Context(), store.Session{ID: job.ID{200}, Node: "b", Machine: "other", Roles: []string{store.RoleWorker}})
		r.must(err)
		ctx, stop := context.WithCancel(r.Context())
		var wait sync.WaitGroup
		defer func() { stop(); wait.Wait() }()
		wait.Go(func() { other.Run(ctx) }) // the first node has the lower session, and does not ship
		r.ran()
		renewed := func(d time.Duration) {
			for range d / time.Second {
				r.must(r.Renew(r.Context(), r.session.ID, store.Load{}))
				r.must(other.Renew(r.Context(), job.ID{200}, store.Load{}))
				time.Sleep(time.Second)
			}
		}
		renewed(10 * time.Second)
		if state, err := r.Held(r.Context()); err != nil || state.Entries != 1 {
			r.Errorf("after 10 s %d records wait, %v: the other node has shipped", state.Entries, err)
		}
		renewed(10 * time.Second)
		if state, err := r.Held(r.Context()); err != nil || state.Entries != 0 {
			r.Errorf("after 20 s %d records wait, %v: the other node has not shipped", state.Entries, err)
		}
	}, joined.Options{})
}

func TestOutputOfAReportWaitsForHistory(t *testing.T) {
	both(t, func(r *rig) {
		docs, err := job.Decode("test.yaml", []byte("name: r\nschedule: {cron: '* * * * *'}\nrun: {external: {grace: 5m}}"))
		r.must(err)
		j, err := store.PutOne(r.Context(), r, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion})
		r.must(err)
		says := func(key, text string) job.ID {
			out, err := r.Report(r.Context(), store.Report{Job: j.Definition.UID, ID: r.id(), Key: key, Result: store.Result{
				Outcome: job.OutcomeSucceeded, OutputBytes: int64(len(text)), Output: []store.OutputChunk{{Seq: 1, Bytes: len(text), Data: []byte(text)}},
			}})
			r.must(err)
			return out.Run
		}
		r.history.set(store.ErrAway, nil)
		run := says("k", "hi")
		waiting := r.Status().OutputBytes
		if again := says("k", "other"); again != run || waiting == 0 || r.Status().OutputBytes != waiting {
			r.Errorf("%d bytes of output wait, and %d after the report came again", waiting, r.Status().OutputBytes)
		}
		r.history.set(nil, nil)
		r.shipped()
		if list, err := r.history.Output(r.Context(), run, 1, 0, 10); err != nil || len(list) != 1 || string(list[0].Data) != "hi" {
			r.Errorf("history has the output %v, %v", list, err)
		}
	}, joined.Options{})
}

func TestARecordIsFoundHoweverManyWaitBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.New(memory.Options{}), joined.Options{})
		var last store.Attempt
		for range 2001 {
			last = r.ran()
		}
		for _, away := range []error{nil, store.ErrAway} {
			r.history.set(away, nil)
			list, err := r.AttemptsOf(r.Context(), last.Run)
			r.must(err)
			if len(list) != 1 || !list[0].Final {
				r.Errorf("with a history that answers %v the run has the records %+v", away, list)
			}
		}
		if r.looked(); !r.Behind() { // it is away
			r.Error("a read would not examine all, and nothing says so")
		}
		r.history.set(nil, nil)
		if r.shipped(); r.Behind() {
			r.Error("nothing waits, and history counts as behind")
		}
	})
}

func TestAWorkerThatJoinsThroughAServerShipsNothing(t *testing.T) {
	for what, id := range map[string]job.ID{"an earlier session": {1}, "a later session": {200}} {
		t.Run(what, func(t *testing.T) {
			both(t, func(r *rig) {
				_, err := r.Join(r.Context(), store.Session{ID: id, Node: "w", Machine: "w", Roles: []string{store.RoleWorker}, Address: store.ViaServer + "a"})
				r.must(err)
				r.looked()
				r.ran()
				r.looked()
				state, err := r.Held(r.Context())
				r.must(err)
				if state.Entries != 0 {
					r.Errorf("%d records wait after a second", state.Entries)
				}
			}, joined.Options{})
		})
	}
}

func TestAFullOutboxStopsClaimsOfPlans(t *testing.T) {
	both(t, func(r *rig) {
		now, err := r.Now(r.Context())
		r.must(err)
		r.ran()
		r.looksAway(true)
		to := now.Truncate(time.Minute).Add(time.Minute)
		time.Sleep(to.Sub(now))
		token := r.id()
		jobs, err := r.Cursors(r.Context(), []job.ID{r.uid})
		r.must(err)
		plan := []store.PlanItem{{Job: r.uid, Epoch: jobs[0].Epoch, From: jobs[0].Cursor, To: to, Runs: []store.NewRun{
			{ID: r.id(), Session: r.session.ID, Node: "a", Scheduled: to, Due: to, Token: token},
		}}}
		outcomes, claims, err := r.Plan(r.Context(), r.session.ID, plan)
		r.must(err)
		if outcomes[0] != store.Planned || len(claims) != 1 || claims[0].Verdict != store.Taken {
			r.Errorf("a plan is answered %v, its claims %+v", outcomes, claims)
		}
		if run, err := store.ActiveRun(r.Context(), r, plan[0].Runs[0].ID); err != nil || run.State != job.StateReady {
			r.Errorf("the run is %q, %v", run.State, err)
		}
		if plan[0].Runs[0].Token != token {
			r.Error("the items of the caller have changed")
		}
		r.looksAway(false)
		if _, claims, err = r.Plan(r.Context(), r.session.ID, plan); err != nil || claims[0].Verdict != store.Started {
			r.Errorf("with room again the claims are answered %+v, %v", claims, err)
		}
	}, joined.Options{OutboxMax: 300})
}

// looksAway measures the outbox while history is away, or once it is back and complete.
func (r *rig) looksAway(away bool) {
	if r.history.set(nil, nil); away {
		r.history.set(store.ErrAway, nil)
	}
	r.looked()
}

func TestAHistoryThatRefusesAllLosesNothing(t *testing.T) {
	both(t, func(r *rig) {
		runs := []store.Attempt{r.ran(), r.ran()}
		r.history.refuses = func(*store.Record) bool { return true } // as without a permission
		if _, err := r.Ship(r.Context()); err == nil || r.Status().Aside != 0 {
			r.Errorf("ship: %v, and %d records are put aside", err, r.Status().Aside)
		}
		r.history.refuses = nil
		r.shipped()
		r.once(runs)
	}, joined.Options{})
}

func TestALateResultThatWaitsIsCountedOnce(t *testing.T) {
	both(t, func(r *rig) {
		a, err := r.begin()
		r.must(err)
		if !r.end(a, job.OutcomeLost) {
			r.Fatal("the result is not accepted")
		}
		r.shipped()
		time.Sleep(time.Minute)
		r.ran()
		r.shipped()
		time.Sleep(time.Minute)
		if !r.end(a, job.OutcomeSucceeded) {
			r.Fatal("the late result is not accepted")
		}
		seen := map[job.ID]int{}
		for q := (store.HistoryQuery{Limit: 1}); ; {
			list, next, err := r.Attempts(r.Context(), q)
			r.must(err)
			for i := range list {
				seen[list[i].Run.ID]++
			}
			if q.Before = next; next == (store.RecordRef{}) {
				break
			}
		}
		if seen[a.Run] != 1 || len(seen) != 2 {
			r.Errorf("the pages have the runs %v", seen)
		}
		if n := r.counted(); n != 2 {
			r.Errorf("%d runs are counted", n)
		}
	}, joined.Options{})
}

// counted is the number of attempts that Aggregate counts.
func (r *rig) counted() (total int) {
	r.Helper()
	counts, err := r.Aggregate(r.Context(), store.AggregateQuery{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour), Bucket: 2 * time.Hour})
	r.must(err)
	for _, c := range counts {
		for _, n := range c.Outcomes {
			total += n
		}
	}
	return total
}

func TestARecordThatIsShippedWhileItIsCountedCountsOnce(t *testing.T) {
	both(t, func(r *rig) {
		const runs = 5
		for range runs {
			r.ran()
		}
		shipped := false
		r.history.counting = func() {
			if !shipped {
				shipped = true
				r.shipped()
			}
		}
		if n := r.counted(); n != runs || !shipped {
			r.Errorf("%d runs are counted, want %d; shipped %t", n, runs, shipped)
		}
		r.ran()
		if n := r.counted(); n != runs+1 {
			r.Errorf("with one that waits %d runs are counted, want %d", n, runs+1)
		}
	}, joined.Options{})
}

// outputs are the lengths of the chunks of an attempt in history, -1 for an empty one in place
// of another.
func (r *rig) outputs(run job.ID) (lengths []int) {
	r.Helper()
	list, err := r.history.Output(r.Context(), run, 1, 0, 100)
	r.must(err)
	for _, c := range list {
		if c.Bytes == 0 {
			lengths = append(lengths, -1)
		} else {
			lengths = append(lengths, len(c.Data))
		}
	}
	return lengths
}

func TestRefusedOutputWaitsWithoutRecords(t *testing.T) {
	both(t, func(r *rig) {
		r.history.refusesOutput = func(*store.OutputChunk) bool { return true } // as without a permission
		a := r.ran()
		for range 3 {
			r.shipped()
			time.Sleep(time.Minute)
		}
		r.once([]store.Attempt{a}) // the record was not delayed
		if s := r.Status(); s.OutputBytes == 0 || s.OutputDropped != 0 || s.OutputRefused == nil || s.Away != nil || !strings.Contains(s.Warning().String(), "history refuses output") {
			r.Errorf("the status is %+v, %q", s, s.Warning())
		}
		if err := r.ShipAll(r.Context()); err == nil || !strings.Contains(err.Error(), "permission denied") {
			r.Errorf("ship all: %v", err)
		}
		r.history.refusesOutput = nil
		r.shipped()
		if got := r.outputs(a.Run); len(got) != 0 {
			r.Errorf("output is tried again without a pause: %v", got)
		}
		time.Sleep(time.Minute)
		r.shipped()
		if got := fmt.Sprint(r.outputs(a.Run)); got != "[2]" {
			r.Errorf("history has chunks of %s", got)
		}
		if s := r.Status(); s.OutputBytes != 0 || s.OutputDropped != 0 || s.OutputRefused != nil || !s.Warning().IsZero() {
			r.Errorf("the status is %+v, %q", s, s.Warning())
		}
	}, joined.Options{})
}

func TestOnlyOutputThatIsNeverAcceptedIsLost(t *testing.T) {
	both(t, func(r *rig) {
		run := r.id()
		chunk := func(seq, size int) store.OutputChunk {
			return store.OutputChunk{Run: run, Attempt: 1, Seq: seq, Offset: int64(10 * seq), Bytes: 10, Time: time.Now(), Data: make([]byte, size)}
		}
		r.history.refusesOutput = func(*store.OutputChunk) bool { return true }
		r.must(r.AppendOutput(r.Context(), []store.OutputChunk{chunk(0, 20), chunk(1, 5000), chunk(2, 30)}))
		r.must(r.AppendOutput(r.Context(), []store.OutputChunk{chunk(3, 40)}))
		r.shipped()
		r.history.refusesOutput = func(c *store.OutputChunk) bool { return len(c.Data) > 1000 }
		r.shipped()
		if s := r.Status(); s.OutputDropped != 0 {
			r.Fatalf("after one refusal %d chunks are lost", s.OutputDropped)
		}
		time.Sleep(time.Minute)
		r.shipped()
		if got := fmt.Sprint(r.outputs(run)); got != "[20 -1 30 40]" {
			r.Errorf("history has chunks of %s", got)
		}
		if s := r.Status(); s.OutputBytes != 0 || s.OutputDropped != 1 || s.OutputRefused != nil {
			r.Errorf("the status is %+v", s)
		}
		// A copy of a store does not pause.
		r.must(r.AppendOutput(r.Context(), []store.OutputChunk{chunk(4, 5000), chunk(5, 50)}))
		r.must(r.ShipAll(r.Context()))
		if got := fmt.Sprint(r.outputs(run)); got != "[20 -1 30 40 -1 50]" {
			r.Errorf("history has chunks of %s", got)
		}
	}, joined.Options{})
}
