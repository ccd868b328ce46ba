package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

const (
	modelSteps = 300 // of one sequence
	modelSeeds = 3   // sequences of steps, each on an empty store
	modelReads = 25  // steps between two comparisons of everything readable
)

// testModel takes the same random steps on the model and the tested store, compares the answers
// and, periodically, everything readable.
func testModel(t *testing.T, open Open, seeds int) {
	if testing.Short() {
		seeds = min(seeds, 2)
	}
	if text := os.Getenv(sequencesVariable); text != "" {
		given, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", sequencesVariable, err)
		}
		seeds = given
	}
	first := seed(t)
	for i := range seeds {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { sameAnswers(t, open, seed) })
	}
}

// pair is a store under test beside the model.
type pair struct {
	*testing.T
	ctx     context.Context
	model   store.Store
	tested  store.Store
	clock   *clock
	ids     *ids
	random  *rand.Rand
	trace   []string
	wrong   []string // what is different
	taken   []int    // the steps until the first difference
	deleted []job.ID

	uids     []job.ID        // uids that the step creates, in both stores
	nodes    []store.Session // sessions that have joined
	claimed  []store.Attempt // attempts that were claimed, with or without success
	numbers  []int64         // of handovers, including refused ones
	machines int
}

// sameAnswers takes a sequence of steps. If answers differ, it searches for a shorter sequence that
// shows it, and prints how to repeat that.
func sameAnswers(t *testing.T, open Open, seed uint64) {
	steps := make([]int, 0, modelSteps)
	for i := range modelSteps {
		steps = append(steps, i)
	}
	if text := os.Getenv(stepsVariable); text != "" {
		steps = []int{}
		for _, number := range strings.Split(text, ",") {
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatalf("%s: %v", stepsVariable, err)
			}
			steps = append(steps, n)
		}
	}
	failed := take(t, open, seed, steps)
	if failed == nil {
		return
	}
	until := time.Now().Add(shrinkFor)
	shortest := shrink(failed.taken, func(fewer []int) []int {
		if time.Now().After(until) {
			return nil
		}
		if again := take(t, open, seed, fewer); again != nil {
			failed = again
			return again.taken
		}
		return nil
	})
	t.Fatalf("%s\nthe answers differ after these %d steps:\n%s\n%s=%d %s=%s go test -run '%s' takes them again",
		strings.Join(failed.wrong, "\n"), len(shortest), strings.Join(failed.trace, "\n"),
		seedVariable, seed, stepsVariable, strings.Trim(strings.ReplaceAll(fmt.Sprint(shortest), " ", ","), "[]"), t.Name())
}

const (
	// stepsVariable restricts a sequence to these steps, by number.
	stepsVariable = "STORETEST_STEPS"
	// shrinkFor bounds the search for a shorter sequence.
	shrinkFor = time.Minute
)

// shrink removes dispensable items from a list, large parts first. fails tries a shorter list, and
// returns the part of it that it needed to fail, or nil if it did not fail.
func shrink(list []int, fails func(fewer []int) []int) []int {
	for part := (len(list) + 1) / 2; part > 0; {
		left := len(list)
		for from := 0; from < len(list); {
			fewer := slices.Concat(list[:from], list[min(from+part, len(list)):])
			if needed := fails(fewer); needed != nil {
				list = needed
			} else {
				from += part
			}
		}
		if part == 1 && len(list) == left {
			break
		}
		part = max(1, min(part/2, len(list)))
	}
	return list
}

// take takes steps of a sequence on empty stores, each drawn independently of the others. It
// returns nil if all answers are equal.
func take(t *testing.T, open Open, seed uint64, steps []int) (failed *pair) {
	t.Run("steps", func(t *testing.T) {
		p := &pair{T: t, ctx: t.Context(), clock: &clock{now: start}, ids: &ids{}}
		p.begin(seed, -1)
		p.model = memory.New(memory.Options{Now: p.clock.Now, LookAhead: lookAhead, NewID: p.newID()})
		p.tested = open(t, Options{Now: p.clock.Now, LookAhead: lookAhead, NewID: p.newID()})
		p.join()
		p.join()
		for i, n := range steps {
			p.begin(seed, n)
			p.step()
			if (n+1)%modelReads == 0 || i == len(steps)-1 {
				p.compareAll()
			}
			if len(p.wrong) > 0 {
				p.taken, failed = steps[:i+1], p
				return
			}
		}
	})
	return failed
}

// begin seeds a step by its number, independent of earlier steps.
func (p *pair) begin(seed uint64, step int) {
	p.random = rand.New(rand.NewPCG(seed, uint64(2*step+2)))
	p.ids.random = rand.New(rand.NewPCG(seed, uint64(2*step+3)))
	p.uids = []job.ID{p.id(), p.id(), p.id(), p.id()}
}

// Errorf notes a difference.
func (p *pair) Errorf(format string, args ...any) {
	p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
}

func (p *pair) id() job.ID { return p.ids.next(p.clock.Now()) }

func (p *pair) chance(percent int) bool { return p.random.IntN(100) < percent }

func pick[T any](p *pair, list []T) T { return list[p.random.IntN(len(list))] }

// newID returns a generator of the uids of each step.
func (p *pair) newID() func() job.ID {
	var of job.ID // the first uid of the step
	n := 0
	return func() job.ID {
		if of != p.uids[0] {
			of, n = p.uids[0], 0
		}
		n++
		return p.uids[(n-1)%len(p.uids)]
	}
}

// both makes a call on both stores, compares the answers, and returns the
// model's.
func both[T any](p *pair, what string, call func(store.Store) (T, error)) (T, error) {
	p.Helper()
	want, wantErr := call(p.model)
	got, gotErr := call(p.tested)
	p.trace = append(p.trace, p.clock.Now().Format("15:04:05.000 ")+what)
	if a, b := canonError(gotErr), canonError(wantErr); a != b {
		p.Errorf("%s: got the error %q (%v), the model says %q (%v)", what, a, gotErr, b, wantErr)
	}
	compare(p, what, got, want)
	return want, wantErr
}

func compare(p *pair, what string, got, want any) {
	p.Helper()
	a, b := canon(reflect.ValueOf(got)), canon(reflect.ValueOf(want))
	if a == b {
		return
	}
	// Print only the surroundings of the first difference.
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	from := max(0, i-200)
	p.Errorf("%s:\ngot       …%s\nthe model …%s", what, a[from:min(len(a), i+200)], b[from:min(len(b), i+200)])
}

// canon writes a value so that equal values have equal texts: times as moments, empty values
// omitted.
func canon(v reflect.Value) string {
	if !v.IsValid() {
		return "-"
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "-"
		}
		if err, ok := v.Interface().(error); ok {
			return canonError(err)
		}
		return canon(v.Elem())
	case reflect.Struct:
		if t, ok := v.Interface().(time.Time); ok {
			if t.IsZero() {
				return "never"
			}
			return t.UTC().Format("01-02T15:04:05.999999")
		}
		var fields []string
		for i := range v.NumField() {
			if f := v.Field(i); v.Type().Field(i).IsExported() && !f.IsZero() {
				fields = append(fields, v.Type().Field(i).Name+":"+canon(f))
			}
		}
		return "{" + strings.Join(fields, " ") + "}"
	case reflect.Map:
		var entries []string
		for _, key := range v.MapKeys() {
			entries = append(entries, canon(key)+"="+canon(v.MapIndex(key)))
		}
		slices.Sort(entries)
		return "map" + fmt.Sprint(entries)
	case reflect.Slice, reflect.Array:
		if id, ok := v.Interface().(job.ID); ok {
			return id.String()
		}
		var items []string
		for i := range v.Len() {
			items = append(items, canon(v.Index(i)))
		}
		return fmt.Sprint(items)
	}
	return fmt.Sprint(v.Interface())
}

func canonError(err error) string {
	if err == nil {
		return ""
	}
	for _, known := range []error{store.ErrNotFound, store.ErrExists, store.ErrConflict, store.ErrCycle, store.ErrSessionOver, store.ErrTooMany, store.ErrLimit, store.ErrLastAdmin} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

// compareAll compares everything that can be read.
func (p *pair) compareAll() {
	p.Helper()
	ctx, steps := p.ctx, len(p.trace)
	_, _ = both(p, "list jobs", func(s store.Store) ([]*store.Job, error) {
		list, _, err := s.ListJobs(ctx, store.JobQuery{Limit: 100})
		return list, err
	})
	_, _ = both(p, "list active runs", func(s store.Store) ([]store.Run, error) {
		return s.ListActive(ctx, store.ActiveQuery{Limit: 1000})
	})
	_, _ = both(p, "read history", func(s store.Store) ([]store.Record, error) {
		list, _, err := s.Attempts(ctx, store.HistoryQuery{Limit: 1000})
		return list, err
	})
	_, _ = both(p, "read recent runs", func(s store.Store) ([][]store.Record, error) {
		list, _, err := s.ListJobs(ctx, store.JobQuery{Limit: 100})
		if err != nil {
			return nil, err
		}
		var uids []job.ID
		for _, j := range list {
			uids = append(uids, j.Definition.UID)
		}
		lists, err := s.Recent(ctx, uids, 3)
		for _, list := range lists {
			for i := range list {
				list[i] = list[i].Brief()
			}
		}
		return lists, err
	})
	_, _ = both(p, "aggregate", func(s store.Store) ([]store.Aggregate, error) {
		return s.Aggregate(ctx, store.AggregateQuery{From: start, To: start.Add(100 * time.Hour), Bucket: time.Minute})
	})
	_, _ = both(p, "list sessions", func(s store.Store) ([]store.Session, error) {
		list, err := s.Sessions(ctx)
		for i := range list {
			sortIDs(list[i].Predecessors)
		}
		return list, err
	})
	_, _ = both(p, "read the audit", func(s store.Store) ([]store.AuditRecord, error) {
		list, _, err := s.Audit(ctx, store.AuditQuery{Limit: 1000})
		return list, err
	})
	_, _ = both(p, "read the changes", func(s store.Store) ([]store.PlannedJob, error) {
		list, _, err := s.JobsChanged(ctx, store.AllPartitions, 0, 1000)
		slices.SortFunc(list, func(a, b store.PlannedJob) int { return slices.Compare(a.UID[:], b.UID[:]) })
		return list, err
	})
	_, _ = both(p, "read the notes", func(s store.Store) ([]string, error) {
		list, err := s.Notes(ctx, "", "", 100)
		var texts []string
		for _, n := range list {
			texts = append(texts, n.Name+" "+string(n.Text))
		}
		return texts, err
	})
	_, _ = both(p, "sum up", func(s store.Store) ([job.Partitions]store.PartitionSummary, error) { return s.Summary(ctx) })
	_, _ = both(p, "list lost attempts", func(s store.Store) ([]store.Attempt, error) { return s.Lost(ctx, 100) })
	_, _ = both(p, "count the backlog", func(s store.Store) (map[job.ID]int, error) { return s.Backlog(ctx, 5) })
	_, _ = both(p, "list unplaced runs", func(s store.Store) ([]store.Run, error) { return s.Unplaced(ctx, store.RunRef{}, 100) })
	_, _ = both(p, "list overdue runs", func(s store.Store) ([]store.ReadyRun, error) {
		return s.Ready(ctx, store.ReadyQuery{Any: true, Until: p.clock.Now().Add(-1), Limit: 100})
	})
	_, _ = both(p, "list handovers", func(s store.Store) ([]store.Handover, error) {
		return s.Handovers(ctx, store.HandoverQuery{Numbers: p.numbers, Limit: store.MaxBatch})
	})
	for _, n := range p.nodes {
		_, _ = both(p, "list ready runs of "+n.Node, func(s store.Store) ([]store.ReadyRun, error) {
			return s.Ready(ctx, store.ReadyQuery{Session: n.ID, Until: p.clock.Now().Add(time.Hour), Limit: 100})
		})
		_, _ = both(p, "list what runs on "+n.Node, func(s store.Store) ([]store.Run, error) { return store.RunsOn(ctx, s, n.ID) })
	}
	p.trace = p.trace[:steps]
}

func sortIDs(list []job.ID) {
	slices.SortFunc(list, func(a, b job.ID) int { return slices.Compare(a[:], b[:]) })
}

// step takes one random step on both stores.
func (p *pair) step() {
	p.Helper()
	for _, step := range []struct {
		percent int
		take    func()
	}{
		{22, p.claim}, {9, p.handOver}, {9, p.askAfter}, {18, p.finish}, {20, p.plan}, {12, p.advance}, {15, p.trigger}, {15, p.put}, {10, p.cancel},
		{15, p.reap}, {20, p.tidy}, {20, p.place}, {25, p.release}, {25, p.membership}, {25, p.answer}, {30, p.notes}, {40, p.pools}, {35, p.restore}, {100, p.delete},
	} {
		if p.chance(step.percent) {
			step.take()
			return
		}
	}
}

func (p *pair) job() *store.Job {
	list, _, err := p.model.ListJobs(p.ctx, store.JobQuery{Limit: 100})
	if err != nil || len(list) == 0 {
		return nil
	}
	return pick(p, list)
}

func (p *pair) runs(state job.RunState) []store.Run {
	list, _ := p.model.ListActive(p.ctx, store.ActiveQuery{State: state, Limit: 1000})
	return list
}

func (p *pair) text() string {
	text := "name: " + pick(p, []string{"a", "b", "c", "d"})
	schedules := []string{
		"{cron: '* * * * *'}", "{cron: '* * * * *', jitter: 5s}", "{every: 5s, max_runs: 6}", "{after_end: 5s}", "{on: [{job: a, outcome: finished}]}",
		"{on: [b, {job: c, outcome: failed}]}", "{cron: '* * * * *', except: [off]}", "{at: ['2026-11-20T12:00:30Z'], delete_after: 5s}", "{after_end: 3s, jitter: 1s, max_runs: 4}",
		"{boot: true}", "{cron: '@every 1s'}", "{cron: '@every 2s'}",
	}
	text += "\nschedule: " + pick(p, schedules)
	if p.chance(15) {
		text += "\npaused: true"
	}
	if p.chance(20) {
		text += "\nplace: " + pick(p, []string{"{shards: 2}", "{strategy: broadcast}", "{sticky: true}", "{labels: {name: n1}}"})
	}
	policy := []string{pick(p, []string{
		"overlap: skip", "overlap: queue", "overlap: queue, queue_limit: 3", "overlap: replace", "overlap: allow", "overlap: skip, max_parallel: 2",
		"overlap: queue, concurrency_key: db", "overlap: replace, concurrency_key: db", "missed: all", "overlap: queue, max_parallel: 2",
	})}
	for _, extra := range []string{
		"late_by: 10s", "needs_previous: true", "retry: {attempts: 2, backoff: 1s, factor: 2, max: 3s, jitter: 1s}", "pause_on_failure: 2", "priority: 3", "lost_after: 25s",
		"expect: {start_within: 2s, finish_within: 5s, duration_below: 3s}",
	} {
		if p.chance(30) {
			policy = append(policy, extra)
		}
	}
	run := "{shell: 'true'}"
	if p.chance(25) {
		run = "{flow: {" + pick(p, flowsOfModel) + "}}"
	}
	return text + "\npolicy: {" + strings.Join(policy, ", ") + "}\nrun: " + run
}

// flowsOfModel have the kinds of steps that depend on each other in different ways.
var flowsOfModel = []string{
	"steps: [{name: a, run: 'true'}, {name: b, needs: a, run: 'true', retry: {attempts: 1, backoff: 1s}}, {name: c, needs: [a, b], when: finished, run: 'true'}]",
	"max_parallel: 1, steps: [{name: a, run: 'true'}, {name: b, run: 'true', allow_failure: true}], finally: [{name: z, run: 'true'}]",
	"steps: [{name: ok, wait: {approval: 'go?'}}, {name: go, needs: ok, wait: {signal: start}}, {name: later, needs: go, wait: {for: 2s}}]",
	"steps: [{name: a, run: 'true'}, {name: each, needs: a, for_each: '{{ .Steps.a.Result.list }}', max_parallel: 2, run: 'true'}]",
	"keep_together: true, steps: [{name: a, run: 'true'}, {name: b, needs: a, run: {job: d}}]",
}

func (p *pair) put() {
	if p.chance(70) {
		put, what := p.onePut()
		_, _ = both(p, what, func(s store.Store) (*store.Job, error) { return store.PutOne(p.ctx, s, put) })
		return
	}
	var list []store.PutJob
	var what []string
	for range 1 + p.random.IntN(4) {
		put, one := p.onePut()
		list, what = append(list, put), append(what, one)
	}
	_, _ = both(p, strings.Join(what, ", "), func(s store.Store) ([]*store.Job, error) { return s.PutJobs(p.ctx, list) })
}

// onePut returns a random change of a job, and its description.
func (p *pair) onePut() (store.PutJob, string) {
	text := p.text()
	put := store.PutJob{Definition: document(p.T, text), IfVersion: store.AnyVersion, Actor: "ann"}
	if p.chance(20) {
		put.IfVersion = int64(p.random.IntN(4))
	}
	if put.Definition.Paused && p.chance(50) {
		put.Pause = store.Pause{By: "ann", Reason: job.Text("x"), Until: p.clock.Now().Add(5 * time.Second)}
	}
	if p.chance(20) {
		put.CatchUp = job.MissedAll
	}
	return put, fmt.Sprintf("put %q if %d", text, put.IfVersion)
}

func (p *pair) delete() {
	j := p.job()
	if j == nil {
		return
	}
	d := store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "bob"}
	if p.chance(20) {
		d.IfVersion = 1
	}
	_, err := both(p, "delete "+j.Definition.Name, func(s store.Store) (bool, error) { return true, s.DeleteJob(p.ctx, d) })
	if err == nil {
		p.deleted = append(p.deleted, d.UID)
	}
}

func (p *pair) restore() {
	if len(p.deleted) == 0 {
		return
	}
	r := store.RestoreJob{UID: pick(p, p.deleted), Actor: "bob"}
	_, _ = both(p, "restore "+r.UID.String(), func(s store.Store) (*store.Job, error) { return s.RestoreJob(p.ctx, r) })
}

// planAnswer is the answer of Plan.
type planAnswer struct {
	outcomes []store.PlanOutcome
	claims   []store.ClaimOutcome
}

func (p *pair) plan() {
	j := p.job()
	if j == nil {
		return
	}
	now := p.clock.Now()
	item := store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: j.Cursor, Planned: j.Planned}
	if p.chance(5) {
		item.Epoch--
	}
	if p.chance(5) {
		item.From = item.From.Add(-time.Second)
	}
	at := j.Cursor
	if gap := now.Sub(at); gap > 20*time.Second {
		if p.chance(70) {
			span := store.MissedSpan{ID: p.id(), First: at.Add(time.Second), Last: at.Add(gap / 2), Count: 3, Reason: job.Text("no node was running")}
			item.Missed = append(item.Missed, span)
		}
		at = at.Add(gap / 2).Truncate(time.Millisecond)
	}
	for range 1 + p.random.IntN(3) {
		at = at.Add(time.Duration(1+p.random.IntN(4000)) * time.Millisecond)
		n := store.NewRun{Scheduled: at, Due: at.Add(time.Duration(p.random.IntN(2)) * time.Second)}
		if p.chance(500) {
			n.NextDue = n.Due.Add(time.Duration(p.random.IntN(100)) * time.Second)
		}
		shards := max(1, j.Filled.Place.Shards)
		if shards > 1 {
			n.Shards = shards
		}
		claims := p.chance(40)
		for n.Shard = range shards {
			n.ID = p.id()
			n.Session = job.ID{}
			if p.chance(80) {
				n.Session = pick(p, p.nodes).ID
			}
			if n.Token = (job.ID{}); claims {
				n.Token = p.id()
			}
			item.Runs = append(item.Runs, n)
		}
	}
	item.To = at
	item.Complete = p.chance(3)
	session := pick(p, p.nodes).ID
	for range 1 + p.random.IntN(2) {
		_, _ = both(p, fmt.Sprintf("plan %s: %+v", j.Definition.Name, item), func(s store.Store) (a planAnswer, err error) {
			a.outcomes, a.claims, err = s.Plan(p.ctx, session, []store.PlanItem{item})
			return a, err
		})
	}
}

func (p *pair) trigger() {
	j := p.job()
	if j == nil {
		return
	}
	item := store.TriggerItem{
		ID: p.id(), Job: j.Definition.UID, Kind: pick(p, []job.RunKind{job.RunByHand, job.RunByHand, job.RunBackfill, job.RunBoot}),
		Key: pick(p, []string{"k1", "k2", "k3", ""}), Session: pick(p, p.nodes).ID, Params: map[string]string{"p": "v"},
	}
	if item.Kind != job.RunBoot {
		item.Actor = "ann"
	}
	if item.Kind == job.RunBackfill {
		item.Scheduled = start.Add(time.Duration(-1-p.random.IntN(5)) * time.Hour)
		item.Overlap = pick(p, []job.Overlap{"", job.OverlapQueue, job.OverlapAllow})
	}
	_, _ = both(p, fmt.Sprintf("trigger %s: %+v", j.Definition.Name, item), func(s store.Store) ([]store.TriggerOutcome, error) {
		return s.Trigger(p.ctx, []store.TriggerItem{item})
	})
}

func (p *pair) claim() {
	list := append(p.runs(job.StateReady), p.runs("")...) // ready runs twice as often
	if len(list) == 0 {
		return
	}
	var attempts []store.Attempt
	for range 1 + p.random.IntN(4) {
		r := pick(p, list)
		a := store.Attempt{Job: r.JobUID, Run: r.ID, Number: r.Attempt, Token: p.id()}
		switch {
		case p.chance(10) && len(p.claimed) > 0:
			a = pick(p, p.claimed)
		case p.chance(5):
			a.Number++
		}
		attempts = append(attempts, a)
		p.claimed = append(p.claimed, a)
	}
	n := pick(p, p.nodes)
	_, _ = both(p, fmt.Sprintf("claim on %s: %v", n.Node, attempts), func(s store.Store) ([]store.ClaimOutcome, error) {
		return s.Claim(p.ctx, n.ID, attempts)
	})
}

// attempt returns one that runs or, seldom, one that was tried at some time.
func (p *pair) attempt() (store.Attempt, bool) {
	if running := p.runs(job.StateRunning); len(running) > 0 && p.chance(85) {
		r := pick(p, running)
		return r.Present(), true
	}
	if len(p.claimed) == 0 {
		return store.Attempt{}, false
	}
	return pick(p, p.claimed), true
}

func (p *pair) finish() {
	var results []store.Result
	now := p.clock.Now()
	for range 1 + p.random.IntN(3) {
		a, ok := p.attempt()
		if !ok {
			return
		}
		res := store.Result{Attempt: a, Started: now.Add(-time.Second), Ended: now, OutputBytes: 1, Reason: job.Text(pick(p, []string{"", "why"})),
			Outcome: pick(p, []job.Outcome{job.OutcomeSucceeded, job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeTimedOut, job.OutcomeCancelled})}
		if p.chance(30) {
			res.ExitCode = new(p.random.IntN(3))
		}
		if p.chance(50) {
			res.Value = []byte(`{"list": [1, 2, 3]}`)
		}
		results = append(results, res)
	}
	_, _ = both(p, fmt.Sprintf("finish %+v", results), func(s store.Store) ([]store.FinishOutcome, error) {
		return s.Finish(p.ctx, p.nodes[0].ID, results)
	})
}

// handOver hands over attempts of any session, under new or used numbers.
func (p *pair) handOver() {
	n := pick(p, p.nodes)
	var list []store.Handover
	for range 1 + p.random.IntN(3) {
		a, ok := p.attempt()
		if !ok {
			return
		}
		if p.chance(10) {
			a.Token = p.id()
		}
		number, _ := both(p, "reserve a number", func(s store.Store) (int64, error) { return s.Numbers(p.ctx, 1, 0) })
		if p.numbers = append(p.numbers, number); p.chance(15) {
			number = pick(p, p.numbers)
		}
		h := store.Handover{Number: number, Attempt: a, Kind: elsewhere, To: pick(p, []string{"x", "y"}), About: "{}"}
		if p.chance(40) {
			h.Timeout = 20 * time.Second
		}
		list = append(list, h)
	}
	for range 1 + p.random.IntN(2) {
		_, _ = both(p, fmt.Sprintf("hand over on %s: %+v", n.Node, list), func(s store.Store) ([]store.HandedOver, error) {
			return s.HandOver(p.ctx, n.ID, list)
		})
	}
}

// askAfter asks about handovers, and notes some answers.
func (p *pair) askAfter() {
	asked, err := both(p, "ask after handovers", func(s store.Store) ([]store.Outstanding, error) {
		list, err := s.ToAsk(p.ctx, elsewhere, 100)
		slices.SortFunc(list, func(a, b store.Outstanding) int { return cmp.Compare(a.Number, b.Number) })
		return list, err
	})
	if err != nil {
		return
	}
	var answers []store.Answer
	for _, o := range asked {
		if p.chance(70) {
			answers = append(answers, store.Answer{
				Handover: o.Handover, Seen: p.chance(60), Next: time.Duration(1+p.random.IntN(20)) * time.Second, About: pick(p, []string{"", `{"a":2}`}),
			})
		}
	}
	if p.chance(30) {
		p.cancel() // between the question and its answer
	}
	_, _ = both(p, fmt.Sprintf("note %d answers", len(answers)), func(s store.Store) (bool, error) { return true, s.Asked(p.ctx, answers) })
}

func (p *pair) release() {
	if a, ok := p.attempt(); ok {
		_, _ = both(p, fmt.Sprint("release ", a), func(s store.Store) (bool, error) {
			return true, s.Release(p.ctx, p.nodes[0].ID, []store.Attempt{a})
		})
	}
}

func (p *pair) cancel() {
	if p.chance(20) {
		several := []job.ID{p.id()}
		var of job.ID
		for _, r := range p.runs("") {
			if of.IsZero() && p.chance(30) {
				of = r.JobUID
			}
			if r.JobUID == of && p.chance(50) {
				several = append(several, r.ID)
			}
		}
		_, _ = both(p, fmt.Sprint("cancel ", several), func(s store.Store) ([]store.Run, error) {
			return s.CancelRuns(p.ctx, of, several, "ann", "enough")
		})
		return
	}
	id := p.id()
	if list := p.runs(""); len(list) > 0 && p.chance(90) {
		id = pick(p, list).ID
	} else if len(p.claimed) > 0 {
		id = pick(p, p.claimed).Run
	}
	_, _ = both(p, fmt.Sprint("cancel ", id), func(s store.Store) (store.Run, error) { return s.Cancel(p.ctx, id, "ann", "enough") })
}

// answer approves, rejects or signals a flow, whether it waits for that or not.
func (p *pair) answer() {
	list := slices.DeleteFunc(p.runs(""), func(r store.Run) bool { return r.Flow == nil })
	if len(list) == 0 {
		return
	}
	a := store.FlowAnswer{Run: pick(p, list).ID, Step: pick(p, []string{"ok", "ok", "go", "a"}), Reject: p.chance(20), By: "ann", Note: pick(p, []string{"", "fine"})}
	if p.chance(40) {
		a.Step, a.Reject, a.Signal, a.Data = "", false, pick(p, []string{"start", "stop"}), []byte(`{"x": 1}`)
	}
	for range 1 + p.random.IntN(2) {
		_, _ = both(p, fmt.Sprintf("answer %+v", a), func(s store.Store) (bool, error) { return true, s.AnswerFlow(p.ctx, a) })
	}
}

// notes writes a note by comparison, with the audit or without. Versions are each store's own, so
// that what is compared is whether they change.
func (p *pair) notes() {
	name, text := pick(p, []string{"n/a", "n/b", "m"}), []byte(pick(p, []string{"one", "two", ""}))
	stale, audited := p.chance(25), p.chance(40)
	_, _ = both(p, fmt.Sprintf("note %s %q (stale: %t, audited: %t)", name, text, stale, audited), func(s store.Store) (bool, error) {
		have, err := s.Notes(p.ctx, name, "", 1)
		if err != nil {
			return false, err
		}
		n := store.Note{Name: name, Text: text}
		if len(have) > 0 {
			n.Version = have[0].Version
		}
		if stale {
			n.Version += 1000
		}
		if audited {
			return true, s.PutAudited(p.ctx, store.AuditedNote{Note: n, Audit: store.AuditRecord{Actor: "ann", Action: "secret.change", Object: name}})
		}
		version, err := s.PutNote(p.ctx, n)
		return version > n.Version, err
	})
}

func (p *pair) place() {
	list, _ := p.model.Unplaced(p.ctx, store.RunRef{}, 100)
	if len(list) == 0 {
		return
	}
	var placements []store.Placement
	for range 1 + p.random.IntN(3) {
		r := pick(p, list)
		placements = append(placements, store.Placement{Job: r.JobUID, Run: r.ID, Attempt: r.Attempt, Session: pick(p, p.nodes).ID})
	}
	_, _ = both(p, fmt.Sprint("place ", placements), func(s store.Store) (bool, error) { return true, s.Place(p.ctx, placements) })
}

func (p *pair) reap() {
	lost, _ := p.model.Lost(p.ctx, 100)
	if a, ok := p.attempt(); ok {
		lost = append(lost, a)
	}
	n := pick(p, p.nodes)
	_, _ = both(p, fmt.Sprintf("reap on %s: %v", n.Node, lost), func(s store.Store) (bool, error) { return true, s.Reap(p.ctx, n.ID, lost) })
}

func (p *pair) tidy() {
	_, _ = both(p, "alerts", func(s store.Store) ([]store.Alert, error) { return s.Alerts(p.ctx, 100) })
	_, _ = both(p, "tidy", func(s store.Store) (bool, error) { return s.Tidy(p.ctx) })
}

func (p *pair) advance() {
	d := time.Duration(p.random.IntN(3000)) * time.Millisecond
	if p.chance(5) {
		d = time.Duration(p.random.IntN(100)) * time.Second
	}
	p.clock.Advance(d)
	for _, n := range p.nodes {
		if p.chance(70) {
			_, _ = both(p, "renew "+n.Node, func(s store.Store) (bool, error) { return true, s.Renew(p.ctx, n.ID, store.Load{Running: 1}) })
		}
	}
}

func (p *pair) join() {
	p.machines++
	machine := fmt.Sprint("n", p.machines%3)
	s := store.Session{ID: p.id(), Node: machine, Machine: machine, DataDir: "/d", Roles: []string{store.RoleWorker}, Labels: map[string]string{"name": machine}}
	got, _ := both(p, "join "+machine, func(t store.Store) (store.Session, error) {
		got, err := t.Join(p.ctx, s)
		sortIDs(got.Predecessors)
		return got, err
	})
	p.nodes = append(p.nodes, got)
	if len(p.nodes) > 4 {
		p.nodes = p.nodes[1:]
	}
}

func (p *pair) membership() {
	n := pick(p, p.nodes)
	switch p.random.IntN(5) {
	case 0:
		_, _ = both(p, "leave "+n.Node, func(s store.Store) (bool, error) { return true, s.Leave(p.ctx, n.ID) })
	case 1:
		_, _ = both(p, "end "+n.Node, func(s store.Store) (bool, error) { return true, s.End(p.ctx, n.ID) })
	case 2:
		n.Version += "+"
		_, _ = both(p, "join "+n.Node+" again", func(s store.Store) (store.Session, error) {
			got, err := s.Join(p.ctx, n)
			sortIDs(got.Predecessors)
			return got, err
		})
	default:
		p.join()
	}
}

func (p *pair) pools() {
	if p.chance(50) {
		pool := &job.Pool{Name: "db", Slots: job.Slots{Size: 1 + p.random.IntN(3)}}
		_, _ = both(p, fmt.Sprintf("put pool %d", pool.Slots.Size), func(s store.Store) (job.Document, error) {
			return s.PutDocument(p.ctx, job.Document{Pool: pool}, store.AnyVersion, "ann")
		})
		return
	}
	c := &job.Calendar{Name: "off", Days: job.Days{Include: []string{pick(p, []string{"2026-12-25", "2026-12-26"})}}}
	_, _ = both(p, fmt.Sprint("put calendar ", c.Days.Include), func(s store.Store) (job.Document, error) {
		return s.PutDocument(p.ctx, job.Document{Calendar: c}, store.AnyVersion, "ann")
	})
}
