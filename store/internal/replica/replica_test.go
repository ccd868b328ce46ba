package replica_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
	"github.com/belfry-cron/belfry/store/joined"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/store/storetest/shelf"
)

// open returns the store of one process on a shelf.
func open(t *testing.T, s *shelf.Shelf, opt storetest.Options) store.Store {
	t.Helper()
	return openOn(t, driver{Shelf: s}, opt)
}

func openOn(t *testing.T, d replica.Driver, opt storetest.Options) store.Store {
	t.Helper()
	return openWith(t, d, opt, 0)
}

// openWith returns the store of one process that keeps n runs of a job in its cell.
func openWith(t *testing.T, d replica.Driver, opt storetest.Options, inCell int) store.Store {
	t.Helper()
	one, err := replica.Open(t.Context(), d, options(opt, inCell))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = one.Close() })
	return one
}

// openApart returns the store of one process on a shelf, with its history elsewhere.
func openApart(t *testing.T, s *shelf.Shelf, history store.History, opt storetest.Options) *joined.Store {
	t.Helper()
	control, err := replica.OpenControl(t.Context(), driver{Shelf: s}, options(opt, 0))
	if err != nil {
		t.Fatal(err)
	}
	both, err := joined.New(t.Context(), control, history, joined.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = both.Close() })
	return both
}

func options(opt storetest.Options, inCell int) replica.Options {
	return replica.Options{
		Now: opt.Now, Boot: func() time.Duration { return time.Since(time.Unix(0, 0)) }, LookAhead: opt.LookAhead, Defaults: opt.Defaults, NewID: withIDs(opt).NewID, Revisions: opt.Revisions,
		KeepDefaults: true, InCell: inCell, Guard: true,
	}
}

// The whole suite runs for one process in store/redis, whose driver is the rest of that store.
func TestStore(t *testing.T) {
	storetest.Again(storetest.Run)(t, func(t *testing.T, opt storetest.Options) store.Store { return open(t, newShelf(), opt) })
}

// The suite again, with every other call made by a second process.
func TestStoreOfTwoProcesses(t *testing.T) {
	storetest.Serial(storetest.Run)(t, func(t *testing.T, opt storetest.Options) store.Store {
		s, opt := newShelf(), withIDs(opt)
		return storetest.Nodes(open(t, s, opt), open(t, s, opt))
	})
}

// withIDs has the stores of several processes make ids together.
func withIDs(opt storetest.Options) storetest.Options {
	if opt.NewID == nil {
		opt.NewID = func() job.ID {
			id, _ := job.NewID(opt.Now(), rand.Reader)
			return id
		}
	}
	return opt
}

// A process does not decide by its copy of a run that another process has changed.
func TestProcessSeesWhatAnotherOneHasChanged(t *testing.T) {
	storetest.Apart(t, func(t *testing.T, opt storetest.Options) (one, other store.Store) {
		s, opt := newShelf(), withIDs(opt)
		return open(t, s, opt), open(t, s, opt)
	})
}

// The suite again, with history in another store: read while all waits to be shipped, and
// shipped before each read.
func TestStoreWithHistoryApart(t *testing.T) {
	for _, ships := range []bool{false, true} {
		t.Run(fmt.Sprintf("ships: %t", ships), func(t *testing.T) {
			storetest.Serial(storetest.RunJoined)(t, func(t *testing.T, opt storetest.Options) store.Store {
				history := memory.New(memory.Options{Now: opt.Now, Defaults: opt.Defaults})
				return storetest.Shipping(openApart(t, newShelf(), history, opt), ships)
			})
		})
	}
}

func TestStoreWithSeparateHistoryNeedsIt(t *testing.T) {
	s, opt := newShelf(), storetest.Options{Now: time.Now}
	_ = openApart(t, s, memory.New(memory.Options{}), opt)
	if _, err := replica.Open(t.Context(), driver{Shelf: s}, replica.Options{}); !errors.Is(err, replica.ErrHistoryApart) {
		t.Errorf("opened with its own history: %v", err)
	}
}

// A call of several commits, one of which fails or does not answer, is done once when it is
// repeated, with the answer of a single call.
func TestHalfABatchIsDoneOnceWhenItIsRepeated(t *testing.T) {
	for _, done := range []bool{false, true} {
		for failing := 1; failing <= 4; failing++ {
			t.Run(fmt.Sprintf("commit %d fails, done: %t", failing, done), func(t *testing.T) { halfABatch(t, failing, done) })
		}
	}
}

func halfABatch(t *testing.T, failing int, done bool) {
	s, now := newShelf(), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	flaky := &halfway{driver: driver{Shelf: s}, done: done}
	one := openOn(t, flaky, storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Minute})
	const many = 400 // a shelf takes some 120 cells at once
	newID := func() job.ID {
		id, _ := job.NewID(now, rand.Reader)
		return id
	}
	var jobs []*store.Job
	for len(jobs) < many {
		var list []store.PutJob
		for range store.PutMax {
			documents, err := job.Decode("job.yaml", fmt.Appendf(nil, "name: j%d\nschedule: {every: 1h}\nrun: {shell: 'true'}", len(jobs)+len(list)))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, store.PutJob{Definition: documents[0].Job, Actor: "ann"})
		}
		made, err := one.PutJobs(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, made...)
	}
	node, err := one.Join(t.Context(), store.Session{ID: newID(), Node: "n", Machine: "m", Roles: []string{store.RoleWorker}})
	if err != nil {
		t.Fatal(err)
	}
	// repeated makes a call until it succeeds; one of its commits fails once.
	repeated := func(what string, call func() error) {
		t.Helper()
		flaky.in = failing
		if err := call(); !errors.Is(err, store.ErrAway) {
			t.Fatalf("%s: got %v, want %v", what, err, store.ErrAway)
		}
		if err := call(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	var items []store.PlanItem
	var attempts []store.Attempt
	for _, j := range jobs {
		at := j.Cursor.Add(time.Second)
		run := store.NewRun{ID: newID(), Session: node.ID, Node: "n", Scheduled: at, Due: at, Shards: 1}
		items = append(items, store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: at, Runs: []store.NewRun{run}})
		attempts = append(attempts, store.Attempt{Job: j.Definition.UID, Run: run.ID, Number: 1, Token: newID()})
	}
	repeated("plan", func() error {
		outcomes, _, err := one.Plan(t.Context(), node.ID, items)
		for i, o := range outcomes {
			if err == nil && o != store.Planned {
				t.Errorf("item %d is planned with outcome %d", i, o)
			}
		}
		return err
	})
	now = now.Add(time.Second)
	repeated("claim", func() error {
		outcomes, err := one.Claim(t.Context(), node.ID, attempts)
		for i, o := range outcomes {
			if err == nil && o.Verdict != store.Started {
				t.Errorf("attempt %d is claimed with verdict %d: %s", i, o.Verdict, o.Reason)
			}
		}
		return err
	})
	var results []store.Result
	for _, a := range attempts {
		results = append(results, store.Result{Attempt: a, Started: now, Ended: now, Outcome: job.OutcomeSucceeded})
	}
	repeated("finish", func() error {
		outcomes, err := one.Finish(t.Context(), node.ID, results)
		for i, o := range outcomes {
			if err == nil && !o.Accepted {
				t.Errorf("result %d is refused", i)
			}
		}
		return err
	})
	for _, a := range attempts {
		list, err := one.AttemptsOf(t.Context(), a.Run)
		if err != nil || len(list) != 1 || list[0].Attempt.Outcome != job.OutcomeSucceeded {
			t.Fatalf("run %s has the records %+v, %v", a.Run, list, err)
		}
	}
	left, err := one.ListActive(t.Context(), store.ActiveQuery{Limit: many})
	if err != nil || len(left) > 0 {
		t.Errorf("%d runs have not ended, %v", len(left), err)
	}
}

// halfway is a driver one of whose commits fails, before or after it is done.
type halfway struct {
	driver
	in   int // number of commits of cells until then
	done bool
}

func (d *halfway) Commit(ctx context.Context, txn *replica.Txn) (int64, bool, error) {
	d.in--
	if d.in != 0 {
		return d.driver.Commit(ctx, txn)
	}
	if d.done {
		if _, _, err := d.driver.Commit(ctx, txn); err != nil {
			return 0, false, err
		}
	}
	return 0, false, fmt.Errorf("%w: the answer is lost", store.ErrAway)
}

// A step that puts several jobs together is one commit, whatever else it has read.
func TestJobsThatArePutTogetherAreOneCommit(t *testing.T) {
	s, now := newShelf(), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	counted := &counting{driver: driver{Shelf: s}}
	one := openOn(t, counted, storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Minute})
	put := func(from string, follows string) []store.PutJob {
		var list []store.PutJob
		for i := range store.PutMax {
			text := fmt.Sprintf("name: %s%d\nrun: {shell: 'true'}\nschedule: {every: 1h}", from, i)
			if follows != "" {
				text = fmt.Sprintf("name: %s%d\nrun: {shell: 'true'}\nschedule: {on: [%s%d, missing%d]}", from, i, follows, i, i)
			}
			documents, err := job.Decode("job.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, store.PutJob{Definition: documents[0].Job, Actor: "ann"})
		}
		return list
	}
	for _, list := range [][]store.PutJob{put("up", ""), put("down", "up")} {
		counted.cells = 0
		if _, err := one.PutJobs(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if counted.cells != 1 {
			t.Errorf("%s and others: %d commits, want 1", list[0].Definition.Name, counted.cells)
		}
	}
	// A step that does not fit is refused as a whole.
	small := openOn(t, &counting{driver: driver{Shelf: s}, size: 8 << 10}, storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Minute})
	if _, err := small.PutJobs(t.Context(), put("late", "")); !errors.Is(err, store.ErrTooMany) {
		t.Errorf("got %v, want %v", err, store.ErrTooMany)
	}
	if j, err := store.JobNamed(t.Context(), small, "default", "late0"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a part of it was made: %v, %v", j, err)
	}
}

// counting is a driver that counts the commits which write cells.
type counting struct {
	driver
	cells, size int
}

func (d *counting) Bounds() (compares, size int) {
	compares, size = d.driver.Bounds()
	return compares, cmp.Or(d.size, size)
}

func (d *counting) Commit(ctx context.Context, txn *replica.Txn) (int64, bool, error) {
	if slices.ContainsFunc(txn.Puts, func(p replica.Pair) bool { return strings.HasPrefix(p.Key, replica.Copied+"c/") }) {
		d.cells++
	}
	return d.driver.Commit(ctx, txn)
}

func TestRecordsThatWaitComeLatestFirst(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	opt := withIDs(storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Minute})
	s := openApart(t, newShelf(), memory.New(memory.Options{}), opt)
	documents, err := job.Decode("job.yaml", []byte("name: a\nrun: {shell: 'true'}\npolicy: {overlap: allow}"))
	if err != nil {
		t.Fatal(err)
	}
	j, err := store.PutOne(t.Context(), s, store.PutJob{Definition: documents[0].Job, Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	node, err := s.Join(t.Context(), store.Session{ID: opt.NewID(), Node: "n", Machine: "m", Roles: []string{store.RoleWorker}})
	if err != nil {
		t.Fatal(err)
	}
	var runs []job.ID
	for i := range 3 {
		now = now.Add(time.Second)
		outcomes, err := s.Trigger(t.Context(), []store.TriggerItem{{
			ID: opt.NewID(), Job: j.Definition.UID, Kind: job.RunByHand, Key: fmt.Sprint(i), Session: node.ID, Node: "n", Actor: "ann",
		}})
		if err != nil {
			t.Fatal(err)
		}
		a := store.Attempt{Job: j.Definition.UID, Run: outcomes[0].Run, Number: 1, Token: opt.NewID()}
		if _, err := s.Claim(t.Context(), node.ID, []store.Attempt{a}); err != nil {
			t.Fatal(err)
		}
		out, err := s.Finish(t.Context(), node.ID, []store.Result{{Attempt: a, Started: now, Ended: now, Outcome: job.OutcomeSucceeded}})
		if err != nil || !out[0].Accepted {
			t.Fatalf("the end of run %d: %+v, %v", i, out, err)
		}
		runs = append(runs, a.Run)
	}
	if list, err := s.Waiting(t.Context(), job.ID{}, 2); err != nil || len(list) != 2 || list[0].Run.ID != runs[2] || list[1].Run.ID != runs[1] {
		t.Errorf("the latest two are %v, %v", list, err)
	}
	if list, err := s.Waiting(t.Context(), runs[0], 10); err != nil || len(list) != 1 || list[0].Run.ID != runs[0] {
		t.Errorf("of one run: %v, %v", list, err)
	}
}
