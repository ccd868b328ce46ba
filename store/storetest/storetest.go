// Package storetest is the test suite of stores: each method of the contract with its refusals,
// repeated calls, pages and bounds, invariants, many writers at once, and random steps with the
// same answers as the reference model, package memory.
package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Options configure a tested store.
type Options struct {
	// Now is the store's clock.
	Now func() time.Time
	// LookAhead is how far ahead runs may be planned.
	LookAhead time.Duration
	// Defaults are the values of settings that jobs omit.
	Defaults job.Defaults
	// NewID, if set, generates the uids of jobs, calendars and pools.
	NewID func() job.ID
	// Revisions is how many definitions of a job are kept.
	Revisions int
}

// Open opens an empty store. It closes it at the end of the test, with
// testing.T.Cleanup.
type Open func(t *testing.T, opt Options) store.Store

const (
	lookAhead = 15 * time.Second
	revisions = 5
)

// Run tests a store. Tests of concurrent load are short with [testing.Short].
func Run(t *testing.T, open Open) {
	run(t, open, unfinishedTests)
	RunJoined(t, open)
}

// RunJoined tests a store whose history is separate from its jobs.
func RunJoined(t *testing.T, open Open) {
	run(t, open,
		keepTests, jobTests, planningTests, planClaimTests, claimTests, handoverTests, overlapTests, endTests, expectTests, membershipTests, absenceTests, historyTests, tokenTests, auditTests, faultTests, appendTests, feedTests, reportTests, eventTests, batchTests, atOnceTests, registryTests, flowTests, flowAgainTests, noteTests, windowTests, rateTests,
	)
	random(t, open, modelSeeds, concurrentRounds)
}

// RunRandom tests a form of a store whose code another one tests whole: with what is at random alone, and a third of
// it, or all with STORETEST_WHOLE.
func RunRandom(t *testing.T, open Open) {
	if os.Getenv(wholeVariable) != "" {
		random(t, open, modelSeeds, concurrentRounds)
		return
	}
	random(t, open, modelSeeds/3, concurrentRounds/3)
}

func random(t *testing.T, open Open, seeds, rounds int) {
	t.Run("the same random steps as on the model give the same answers", func(t *testing.T) { testModel(t, open, seeds) })
	t.Run("many writers at once keep the invariants", func(t *testing.T) { testConcurrent(t, open, rounds) })
}

// Again returns the tests for a store whose code run also tests in another form or on another server:
// only the random ones, or all with STORETEST_WHOLE, as make test-long sets it.
func Again(run func(t *testing.T, open Open)) func(t *testing.T, open Open) {
	if os.Getenv(wholeVariable) != "" {
		return run
	}
	return RunRandom
}

// Serial returns the tests for a store whose callers wait for their answers: under the race
// detector only the random ones, where callers overlap, or all with STORETEST_WHOLE.
func Serial(run func(t *testing.T, open Open)) func(t *testing.T, open Open) {
	if RaceDetector {
		return Again(run)
	}
	return run
}

// RunHistory tests only the history of a store, for histories made to be separate.
func RunHistory(t *testing.T, open Open) { run(t, open, historyTests, appendTests) }

func run(t *testing.T, open Open, groups ...[]test) {
	for _, group := range groups {
		for _, test := range group {
			t.Run(test.name, func(t *testing.T) { test.run(newEnv(t, open)) })
		}
	}
}

// Environment variables for random tests: the seed, or "random", and the number of sequences of
// steps. The last one runs each suite whole.
const (
	seedVariable      = "STORETEST_SEED"
	sequencesVariable = "STORETEST_SEQUENCES"
	wholeVariable     = "STORETEST_WHOLE"
)

// seed returns the seed of a random test, and logs it. It is constant, so that tests judge only the
// change; make seeds tries others.
func seed(t *testing.T) uint64 {
	seed := uint64(1)
	if text := os.Getenv(seedVariable); text == "random" {
		seed = rand.Uint64()
	} else if text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		seed = given
	}
	t.Logf("%s=%d", seedVariable, seed)
	return seed
}

type test struct {
	name string
	run  func(e *env)
}

// start is when the clock of a test begins.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// clock is a clock that stands still until it is advanced.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// ids makes ids that are the same in each run of a test.
type ids struct {
	mu     sync.Mutex
	random *rand.Rand
}

func (i *ids) next(now time.Time) job.ID {
	i.mu.Lock()
	defer i.mu.Unlock()
	var id job.ID
	binary.BigEndian.PutUint64(id[8:], i.random.Uint64())
	binary.BigEndian.PutUint64(id[:8], uint64(now.UnixMilli())<<16|i.random.Uint64()&0xffff)
	return id
}

// env is a store with a clock, a node, and helpers of tests.
type env struct {
	*testing.T
	store.Store
	ctx   context.Context
	clock *clock
	ids   *ids
	a     store.Session // a joined node
}

func newEnv(t *testing.T, open Open) *env {
	e := &env{
		T: t, ctx: t.Context(), clock: &clock{now: start},
		ids: &ids{random: rand.New(rand.NewPCG(1, 2))},
	}
	e.Store = open(t, Options{Now: e.clock.Now, LookAhead: lookAhead, Revisions: revisions})
	e.a = e.join("a")
	return e
}

func (e *env) id() job.ID     { return e.ids.next(e.clock.Now()) }
func (e *env) now() time.Time { return e.clock.Now() }

// must ends the test at an error.
func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// want fails the test unless an error wraps target.
func (e *env) want(err, target error) {
	e.Helper()
	if !errors.Is(err, target) {
		e.Fatalf("got error %v, want %v", err, target)
	}
}

func (e *env) join(node string) store.Session {
	e.Helper()
	return e.joinAs(node, store.RoleWorker)
}

func (e *env) joinAs(node string, roles ...string) store.Session {
	e.Helper()
	s, err := e.Join(e.ctx, store.Session{ID: e.id(), Node: node, Machine: node, DataDir: "/data", Roles: roles, Labels: map[string]string{"name": node}, Capacity: 10})
	e.must(err)
	return s
}

// pass lets time pass while some nodes renew, so that the silence of the other nodes counts.
func (e *env) pass(d time.Duration, renewed ...store.Session) {
	e.Helper()
	for d > 0 {
		step := min(d, store.SessionLife-time.Second)
		e.clock.Advance(step)
		d -= step
		for _, s := range renewed {
			e.must(e.Renew(e.ctx, s.ID, s.Load))
		}
	}
}

// document reads a job. It joins lines, so that tests can write a job in one.
func (e *env) document(text string) *job.Job {
	e.Helper()
	return document(e.T, text)
}

func document(t testing.TB, text string) *job.Job {
	t.Helper()
	if !strings.Contains(text, "run:") {
		text += "\nrun: {shell: 'true'}"
	}
	docs, err := job.Decode("test.yaml", []byte(text))
	if err != nil || len(docs) != 1 || docs[0].Job == nil {
		t.Fatalf("%s: %d documents, %v", text, len(docs), err)
	}
	return docs[0].Job
}

// put creates a job, or changes it.
func (e *env) put(text string) *store.Job {
	e.Helper()
	return e.putJob(store.PutJob{Definition: e.document(text), IfVersion: store.AnyVersion, Actor: "ann"})
}

func (e *env) putJob(p store.PutJob) *store.Job {
	e.Helper()
	j, err := store.PutOne(e.ctx, e, p)
	e.must(err)
	return j
}

// every is a job that is due each minute.
const everyMinute = "name: a\nschedule: {cron: '* * * * *'}"

func (e *env) reload(j *store.Job) *store.Job {
	e.Helper()
	again, err := store.JobByUID(e.ctx, e, j.Definition.UID)
	e.must(err)
	return again
}

// planItem is an item that moves the cursor of a job over some scheduled times.
func (e *env) planItem(j *store.Job, times ...time.Time) store.PlanItem {
	item := store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: j.Cursor, Planned: j.Planned}
	for _, at := range times {
		item.Runs = append(item.Runs, store.NewRun{ID: e.id(), Session: e.a.ID, Scheduled: at, Due: at})
		item.To = at
	}
	return item
}

// plan plans runs of a job at moments after now, and returns them.
func (e *env) plan(j *store.Job, after ...time.Duration) []store.Attempt {
	e.Helper()
	var times []time.Time
	for _, d := range after {
		times = append(times, e.now().Add(d))
	}
	item := e.planItem(e.reload(j), times...)
	e.planned(item, store.Planned)
	var list []store.Attempt
	for _, r := range item.Runs {
		list = append(list, store.Attempt{Job: item.Job, Run: r.ID, Number: 1, Token: e.id()})
	}
	return list
}

// planSplit plans occurrences that are split, and returns the runs of each.
func (e *env) planSplit(j *store.Job, shards int, after ...time.Duration) (occurrences [][]store.Attempt) {
	e.Helper()
	for _, d := range after {
		at := e.now().Add(d)
		item := e.planItem(e.reload(j))
		item.To = at
		var runs []store.Attempt
		for shard := range shards {
			item.Runs = append(item.Runs, store.NewRun{ID: e.id(), Session: e.a.ID, Scheduled: at, Due: at, Shard: shard, Shards: shards})
			runs = append(runs, store.Attempt{Job: item.Job, Run: item.Runs[shard].ID, Number: 1, Token: e.id()})
		}
		e.planned(item, store.Planned)
		occurrences = append(occurrences, runs)
	}
	return occurrences
}

// again runs an occurrence or a shard of it once more by hand, successfully.
func (e *env) again(j *store.Job, scheduled time.Time, shard, shards int) {
	e.Helper()
	a := e.triggered(store.TriggerItem{
		ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Scheduled: scheduled, Shard: shard, Shards: shards, Actor: "ann",
	})
	e.claim(e.a, a, store.Started)
	e.finish(a, job.OutcomeSucceeded)
}

func (e *env) planned(item store.PlanItem, want store.PlanOutcome) {
	e.Helper()
	got, _, err := e.Plan(e.ctx, e.a.ID, []store.PlanItem{item})
	e.must(err)
	if got[0] != want {
		e.Fatalf("plan from %s to %s: got %s, want %s", item.From, item.To, planOutcomes[got[0]], planOutcomes[want])
	}
}

var planOutcomes = map[store.PlanOutcome]string{
	store.Planned: "planned", store.Moved: "moved", store.Withdrawn: "withdrawn", store.TooFar: "too far", store.Malformed: "malformed",
}

var verdicts = map[store.Verdict]string{
	store.Started: "started", store.Taken: "taken", store.Gone: "gone", store.Early: "early",
	store.Late: "late", store.Waiting: "waiting", store.Skipped: "skipped",
}

// claim claims an attempt for a node and checks the verdict.
func (e *env) claim(s store.Session, a store.Attempt, want store.Verdict) store.ClaimOutcome {
	e.Helper()
	got, err := e.Claim(e.ctx, s.ID, []store.Attempt{a})
	e.must(err)
	if got[0].Verdict != want {
		e.Fatalf("claim %s: got %s (%s), want %s", a.Run, verdicts[got[0].Verdict], got[0].Reason, verdicts[want])
	}
	return got[0]
}

// finish ends an attempt and expects that it is accepted.
func (e *env) finish(a store.Attempt, o job.Outcome) store.FinishOutcome {
	e.Helper()
	got := e.report(store.Result{Attempt: a, Outcome: o, Reason: job.Text("by the test")})
	if !got.Accepted {
		e.Fatalf("the result %s of attempt %d of run %s is not accepted", o, a.Number, a.Run)
	}
	return got
}

func (e *env) report(r store.Result) store.FinishOutcome {
	e.Helper()
	if r.Started.IsZero() {
		r.Started, r.Ended = e.now(), e.now()
	}
	got, err := e.Finish(e.ctx, e.a.ID, []store.Result{r})
	e.must(err)
	return got[0]
}

// trigger makes a run by hand.
func (e *env) trigger(j *store.Job) store.Attempt {
	e.Helper()
	return e.triggered(store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: e.id().String(), Session: e.a.ID, Actor: "ann"})
}

func (e *env) triggered(item store.TriggerItem) store.Attempt {
	e.Helper()
	got, err := e.Trigger(e.ctx, []store.TriggerItem{item})
	e.must(err)
	e.must(got[0].Err)
	return store.Attempt{Job: item.Job, Run: got[0].Run, Number: 1, Token: e.id()}
}

// active returns the unfinished runs of a job by due time.
func (e *env) active(j *store.Job) []store.Run {
	e.Helper()
	list, err := e.ListActive(e.ctx, store.ActiveQuery{Job: j.Definition.UID, Limit: 1000})
	e.must(err)
	return list
}

func (e *env) run(id job.ID) store.Run {
	e.Helper()
	r, err := store.ActiveRun(e.ctx, e, id)
	e.must(err)
	return r
}

// gone expects that a run has ended, and returns its final record.
func (e *env) gone(id job.ID, want job.Outcome) store.Record {
	e.Helper()
	if r, err := store.ActiveRun(e.ctx, e, id); !errors.Is(err, store.ErrNotFound) {
		e.Fatalf("run %s is still %s (%v), want it %s", id, r.State, err, want)
	}
	var final []store.Record
	for _, r := range e.attempts(id) {
		if r.Final {
			final = append(final, r)
		}
	}
	if len(final) != 1 {
		e.Fatalf("run %s has %d final records, want 1", id, len(final))
	}
	r := final[0]
	if r.Attempt.Outcome != want || r.Run.Outcome != want {
		e.Fatalf("run %s ended as %s (%s), want %s", id, r.Attempt.Outcome, r.Attempt.Reason, want)
	}
	if r.Attempt.Reason.IsZero() && want != job.OutcomeSucceeded || r.Run.Reason != r.Attempt.Reason {
		e.Fatalf("run %s ended as %s with the reasons %q and %q", id, want, r.Attempt.Reason, r.Run.Reason)
	}
	return r
}

func (e *env) attempts(id job.ID) []store.Record {
	e.Helper()
	list, err := e.AttemptsOf(e.ctx, id)
	e.must(err)
	return list
}

// records returns the history of a job, the latest first.
func (e *env) records(j *store.Job) []store.Record {
	e.Helper()
	list, _, err := e.Attempts(e.ctx, store.HistoryQuery{Job: j.Definition.UID, Limit: 1000})
	e.must(err)
	return list
}

// tidy calls Tidy until no work remains.
func (e *env) tidy() {
	e.Helper()
	for range 100 {
		more, err := e.Tidy(e.ctx)
		e.must(err)
		if !more {
			return
		}
	}
	e.Fatal("tidying does not end")
}

// actions returns the audited actions, latest first.
func (e *env) actions() []string {
	e.Helper()
	list, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 100})
	e.must(err)
	var actions []string
	for _, r := range list {
		actions = append(actions, fmt.Sprintf("%s %s %s", r.Actor, r.Action, r.Object))
	}
	return actions
}

// equal reports a difference.
func equal[T comparable](e *env, what string, got, want T) {
	e.Helper()
	if got != want {
		e.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// sameTime reports a difference between moments.
func sameTime(e *env, what string, got, want time.Time) {
	e.Helper()
	if !got.Equal(want) {
		e.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func contains(e *env, what, text, part string) {
	e.Helper()
	if !strings.Contains(text, part) {
		e.Errorf("%s: %q does not say %q", what, text, part)
	}
}
