package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// concurrentRounds is the number of steps per writer.
const concurrentRounds = 120

// crowd is many goroutines at work on one store, and what the store has
// acknowledged to them.
type crowd struct {
	*env
	rounds int

	mu        sync.Mutex
	planned   map[occurrence]job.ID          // acknowledged by Plan
	requested map[string]job.ID              // runs of Trigger, by key
	started   map[startedRun]job.ID          // tokens of started attempts
	results   map[store.Attempt]job.Outcome  // acknowledged by Finish
	holders   map[string]map[job.ID]struct{} // runs that certainly hold a slot, by slot
	epochs    map[job.ID]int64               // acknowledged by PutJob
	deleted   map[job.ID]bool
	cancelled map[job.ID]bool // before they ran
	changes   int             // acknowledged changes of jobs
	versions  map[job.ID]int64
}

type occurrence struct {
	job   job.ID
	epoch int64
	at    int64
}

type startedRun struct {
	run    job.ID
	number int
}

// crowdJobs are the jobs: each an overlap policy, and how many may hold a slot.
var crowdJobs = []struct {
	policy string
	limit  int // 0: any number
}{
	{"{overlap: skip, retry: {attempts: 2, backoff: 100ms}}", 1},
	{"{overlap: queue, queue_limit: 3, max_parallel: 2, retry: {attempts: 1, backoff: 50ms}}", 2},
	{"{overlap: replace}", 1},
	{"{overlap: allow, retry: {attempts: 1, backoff: 10ms}}", 0},
	{"{overlap: queue, queue_limit: 5, concurrency_key: pool}", 2},
	{"{overlap: skip, concurrency_key: pool}", 2},
}

func testConcurrent(t *testing.T, open Open, rounds int) {
	c := &crowd{
		env: newEnv(t, open), rounds: rounds,
		planned: map[occurrence]job.ID{}, requested: map[string]job.ID{}, started: map[startedRun]job.ID{},
		results: map[store.Attempt]job.Outcome{}, holders: map[string]map[job.ID]struct{}{},
		epochs: map[job.ID]int64{}, deleted: map[job.ID]bool{}, cancelled: map[job.ID]bool{}, versions: map[job.ID]int64{},
	}
	if testing.Short() {
		c.rounds /= 4
	}
	seed := seed(t)
	if _, err := c.PutDocument(c.ctx, job.Document{Pool: &job.Pool{Name: "pool", Slots: job.Slots{Size: 2}}}, 0, "ann"); err != nil {
		t.Fatal(err)
	}
	for i := range crowdJobs {
		c.edit(i, "* * * * * *", false)
	}
	nodes := []store.Session{c.a, c.join("b"), c.join("c")}

	var wait sync.WaitGroup
	work := func(n uint64, step func(r *rand.Rand)) {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(seed, n))
			for range c.rounds {
				if t.Failed() {
					return
				}
				step(r)
				c.clock.Advance(time.Duration(r.IntN(12)) * time.Millisecond)
			}
		})
	}
	feed := map[job.ID]store.PlannedJob{}
	since := int64(0)
	for i := range nodes {
		n := uint64(i)
		work(10+n, func(r *rand.Rand) { c.planSome(r, nodes[i]) })
		work(20+n, func(r *rand.Rand) { c.workSome(r, nodes[i]) })
		work(30+n, func(r *rand.Rand) { c.workSome(r, nodes[i]) })
		work(40+n, func(*rand.Rand) { c.check(c.Renew(c.ctx, nodes[i].ID, store.Load{})) })
	}
	work(1, func(r *rand.Rand) { c.editSome(r) })
	work(2, func(r *rand.Rand) { c.editSome(r) })
	work(3, func(r *rand.Rand) { c.requestSome(r) })
	work(4, func(r *rand.Rand) { c.requestSome(r) })
	work(5, func(r *rand.Rand) { c.cancelSome(r) })
	work(6, func(*rand.Rand) { _, err := c.Tidy(c.ctx); c.check(err) })
	work(7, func(r *rand.Rand) { since = c.follow(feed, since, 1+r.IntN(4)) })
	wait.Wait()

	for range 1000 { // reads the feed to its end
		next := c.follow(feed, since, 100)
		if next == since {
			break
		}
		since = next
	}
	c.checkFeed(feed)
	c.drain(nodes[0])
	if !t.Failed() {
		c.checkHistory()
	}
	t.Logf("%d occurrences planned, %d attempts started, %d results acknowledged, %d changes of jobs",
		len(c.planned), len(c.started), len(c.results), c.changes)
}

func (c *crowd) check(err error) bool {
	if err != nil {
		c.Error(err)
	}
	return err == nil
}

func crowdName(i int) string { return fmt.Sprintf("j%d", i) }

// edit creates or changes a job and notes the epoch that was acknowledged.
func (c *crowd) edit(i int, cron string, paused bool) {
	if put, ok := c.put(i, cron, paused); ok {
		j, err := store.PutOne(c.ctx, c, put)
		if c.check(err) {
			c.acknowledged(j)
		}
	}
}

// editMany edits several jobs in one step, in any order.
func (c *crowd) editMany(r *rand.Rand, cron string) {
	var list []store.PutJob
	for _, i := range r.Perm(len(crowdJobs))[:2+r.IntN(3)] {
		if put, ok := c.put(i, cron, false); ok {
			list = append(list, put)
		}
	}
	jobs, err := c.PutJobs(c.ctx, list)
	if c.check(err) {
		c.acknowledged(jobs...)
	}
}

func (c *crowd) put(i int, cron string, paused bool) (put store.PutJob, ok bool) {
	text := fmt.Sprintf("name: %s\nschedule: {cron: '%s'}\npaused: %v\npolicy: %s\nrun: {shell: 'true'}", crowdName(i), cron, paused, crowdJobs[i].policy)
	docs, err := job.Decode("test.yaml", []byte(text))
	if !c.check(err) {
		return put, false
	}
	return store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "ann"}, true
}

func (c *crowd) acknowledged(jobs ...*store.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range jobs {
		uid := j.Definition.UID
		c.epochs[uid] = max(c.epochs[uid], j.Definition.Epoch)
		c.versions[uid] = max(c.versions[uid], j.Definition.Version)
	}
}

func (c *crowd) editSome(r *rand.Rand) {
	i := r.IntN(len(crowdJobs))
	switch r.IntN(8) {
	case 0:
		j, err := store.JobNamed(c.ctx, c, "default", crowdName(i))
		if errors.Is(err, store.ErrNotFound) {
			return
		}
		c.check(err)
		if c.check(c.DeleteJob(c.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"})) {
			c.mu.Lock()
			c.deleted[j.Definition.UID] = true
			c.mu.Unlock()
		}
		c.edit(i, "* * * * * *", false)
	case 1:
		c.edit(i, "*/2 * * * * *", false)
	case 2:
		c.edit(i, "* * * * * *", true)
	case 3:
		c.editMany(r, "* * * * * *")
	default:
		c.edit(i, "* * * * * *", false)
	}
}

// planSome plans what is due next for a job, as any node may.
func (c *crowd) planSome(r *rand.Rand, node store.Session) {
	j, err := store.JobNamed(c.ctx, c, "default", crowdName(r.IntN(len(crowdJobs))))
	if errors.Is(err, store.ErrNotFound) {
		return
	}
	if !c.check(err) {
		return
	}
	item := store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: j.Cursor, Planned: j.Planned}
	next := j.Cursor.Truncate(time.Second).Add(time.Second)
	for range 1 + r.IntN(3) {
		if next.After(c.now().Add(3 * time.Second)) {
			break
		}
		item.Runs = append(item.Runs, store.NewRun{ID: c.id(), Session: node.ID, Scheduled: next, Due: next})
		item.To = next
		next = next.Add(time.Second)
	}
	if len(item.Runs) == 0 {
		return
	}
	for range 1 + r.IntN(2) { // sometimes an answer is lost
		got, _, err := c.Plan(c.ctx, node.ID, []store.PlanItem{item})
		if !c.check(err) || got[0] != store.Planned {
			return
		}
		c.mu.Lock()
		for _, n := range item.Runs {
			o := occurrence{item.Job, item.Epoch, n.Scheduled.UnixNano()}
			if other, ok := c.planned[o]; ok && other != n.ID {
				c.Errorf("once: the occurrence %s of job %s is planned as %s and as %s", n.Scheduled, item.Job, other, n.ID)
			}
			c.planned[o] = n.ID
		}
		c.mu.Unlock()
	}
}

// workSome claims runs of any node and ends the attempts.
func (c *crowd) workSome(r *rand.Rand, node store.Session) {
	runs, err := c.Ready(c.ctx, store.ReadyQuery{Any: true, Until: c.now().Add(time.Second).Add(-1), Limit: 20})
	if !c.check(err) || len(runs) == 0 {
		return
	}
	var attempts []store.Attempt
	for range 1 + r.IntN(4) {
		run := runs[r.IntN(len(runs))]
		attempts = append(attempts, store.Attempt{Job: run.Job, Run: run.ID, Number: run.Attempt, Token: c.id()})
	}
	c.mu.Lock()
	epochs, deleted := map[job.ID]int64{}, map[job.ID]bool{}
	for uid, epoch := range c.epochs {
		epochs[uid], deleted[uid] = epoch, c.deleted[uid]
	}
	cancelled := map[job.ID]bool{}
	for id := range c.cancelled {
		cancelled[id] = true
	}
	c.mu.Unlock()
	got, err := c.Claim(c.ctx, node.ID, attempts)
	if !c.check(err) {
		return
	}
	for i, o := range got {
		if o.Verdict != store.Started {
			continue
		}
		run, a := o.Run, attempts[i]
		c.mu.Lock()
		if token, ok := c.started[startedRun{a.Run, a.Number}]; ok && token != a.Token {
			c.Errorf("started once: attempt %d of run %s was started twice", a.Number, a.Run)
		}
		c.started[startedRun{a.Run, a.Number}] = a.Token
		if deleted[run.JobUID] || cancelled[a.Run] || run.Kind == job.RunScheduled && run.Epoch < epochs[run.JobUID] {
			c.Errorf("withdrawn: run %s of epoch %d is started; epoch %d, the deletion or the cancellation was acknowledged before",
				a.Run, run.Epoch, epochs[run.JobUID])
		}
		if c.holders[run.Slot] == nil {
			c.holders[run.Slot] = map[job.ID]struct{}{}
		}
		c.holders[run.Slot][a.Run] = struct{}{}
		n := int(run.Name[1] - '0')
		if limit := crowdJobs[n].limit; limit > 0 && len(c.holders[run.Slot]) > limit {
			c.Errorf("overlap: %d runs hold the slot %s of %s, at most %d may", len(c.holders[run.Slot]), run.Slot, run.Name, limit)
		}
		c.mu.Unlock()
	}
	for i, o := range got {
		if o.Verdict == store.Started {
			c.endAttempt(r, node, *o.Run, attempts[i])
		}
	}
}

func (c *crowd) endAttempt(r *rand.Rand, node store.Session, run store.Run, a store.Attempt) {
	c.mu.Lock()
	delete(c.holders[run.Slot], a.Run)
	c.mu.Unlock()
	// A claim ahead of time is returned: an edit may have recalled it, and then its instant belongs
	// to the new epoch. Only a node that started at the due time may report.
	if run.Due.After(run.Claimed) || r.IntN(10) == 0 {
		c.mu.Lock()
		delete(c.started, startedRun{a.Run, a.Number}) // it may be claimed again
		c.mu.Unlock()
		c.check(c.Release(c.ctx, node.ID, []store.Attempt{a}))
		return
	}
	outcome := []job.Outcome{job.OutcomeSucceeded, job.OutcomeSucceeded, job.OutcomeFailed}[r.IntN(3)]
	for range 1 + r.IntN(2) {
		got, err := c.Finish(c.ctx, node.ID, []store.Result{{Attempt: a, Started: run.Claimed, Ended: c.now(), Outcome: outcome, Reason: job.Text("by the test")}})
		if !c.check(err) {
			return
		}
		if !got[0].Accepted {
			c.Errorf("nothing acknowledged is lost: the result of attempt %d of run %s is refused", a.Number, a.Run)
			return
		}
	}
	c.mu.Lock()
	c.results[a] = outcome
	c.mu.Unlock()
}

// requestSome requests manual runs, often under the keys of earlier ones.
func (c *crowd) requestSome(r *rand.Rand) {
	j, err := store.JobNamed(c.ctx, c, "default", crowdName(r.IntN(len(crowdJobs))))
	if err != nil {
		return // currently deleted
	}
	key := fmt.Sprint("key ", r.IntN(40))
	got, err := c.Trigger(c.ctx, []store.TriggerItem{{ID: c.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: key, Actor: "ann"}})
	if !c.check(err) || got[0].Err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	full := j.Definition.UID.String() + key
	if other, ok := c.requested[full]; ok && other != got[0].Run {
		c.Errorf("once: the request %q has the runs %s and %s", key, other, got[0].Run)
	}
	c.requested[full] = got[0].Run
}

func (c *crowd) cancelSome(r *rand.Rand) {
	list, err := c.ListActive(c.ctx, store.ActiveQuery{Limit: 50})
	if !c.check(err) || len(list) == 0 {
		return
	}
	run, err := c.Cancel(c.ctx, list[r.IntN(len(list))].ID, "ann", "")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		c.Error(err)
	}
	if err == nil && run.State == job.StateDone && run.Outcome == job.OutcomeCancelled {
		c.mu.Lock()
		c.cancelled[run.ID] = true
		c.mu.Unlock()
	}
}

// follow reads a page of the feed of changes.
func (c *crowd) follow(feed map[job.ID]store.PlannedJob, since int64, limit int) int64 {
	page, next, err := c.JobsChanged(c.ctx, store.AllPartitions, since, limit)
	if !c.check(err) {
		return since
	}
	for _, p := range page {
		feed[p.UID] = p
	}
	return next
}

// checkFeed compares a follower's copy of the feed with the jobs.
func (c *crowd) checkFeed(feed map[job.ID]store.PlannedJob) {
	for uid := range c.epochs {
		p, ok := feed[uid]
		if !ok {
			c.Errorf("the feed of changes has left out job %s", uid)
			continue
		}
		j, err := store.JobByUID(c.ctx, c, uid)
		if !c.check(err) {
			continue
		}
		if p.Version != j.Definition.Version || p.Epoch != j.Definition.Epoch || p.Deleted != j.Deleted {
			c.Errorf("the feed of changes says version %d, epoch %d, deleted %v of job %s, which has %d, %d, %v",
				p.Version, p.Epoch, p.Deleted, uid, j.Definition.Version, j.Definition.Epoch, j.Deleted)
		}
	}
}

// drain runs the remaining runs, until no run is planned or running.
func (c *crowd) drain(node store.Session) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		if c.Failed() {
			return
		}
		list, err := c.ListActive(c.ctx, store.ActiveQuery{Limit: 1})
		if c.check(err) && len(list) == 0 {
			return
		}
		c.clock.Advance(200 * time.Millisecond)
		c.check(c.Renew(c.ctx, node.ID, store.Load{}))
		_, err = c.Tidy(c.ctx)
		c.check(err)
		c.workSome(r, node)
	}
	list, _ := c.ListActive(context.Background(), store.ActiveQuery{Limit: 5})
	c.Errorf("nothing is left to do, but these runs do not end: %+v", list)
}

// checkHistory compares history with what was acknowledged.
func (c *crowd) checkHistory() {
	byRun := map[job.ID][]store.Record{}
	identities := map[string]job.ID{}
	for q := (store.HistoryQuery{Limit: 500}); ; {
		page, next, err := c.Attempts(c.ctx, q)
		if !c.check(err) {
			return
		}
		for _, r := range page {
			byRun[r.Run.ID] = append(byRun[r.Run.ID], r)
			identity := fmt.Sprint(r.Run.JobUID, r.Run.Kind, r.Run.Key, r.Run.Shard)
			if r.Run.Outcome == job.OutcomeWithdrawn && r.Attempt.Number == 0 {
				// It did not run, and a new epoch may have planned it again.
				identity += r.Run.ID.String()
			}
			if other, ok := identities[identity]; ok && other != r.Run.ID {
				c.Errorf("once: %s is the run %s and the run %s", identity, other, r.Run.ID)
			}
			identities[identity] = r.Run.ID
			if r.Attempt.Reason.IsZero() && r.Attempt.Outcome != job.OutcomeSucceeded {
				c.Errorf("run %s is %s without a reason", r.Run.ID, r.Attempt.Outcome)
			}
		}
		if q.Before = next; next == (store.RecordRef{}) {
			break
		}
	}
	accounted := func(what string, id job.ID) {
		final := 0
		for _, r := range byRun[id] {
			if r.Final {
				final++
			}
		}
		if final != 1 {
			c.Errorf("accounted: %s, run %s, has %d final records", what, id, final)
		}
	}
	for o, id := range c.planned {
		accounted("the occurrence "+time.Unix(0, o.at).UTC().Format(time.RFC3339), id)
	}
	for key, id := range c.requested {
		accounted("the request "+key, id)
	}
	for a, outcome := range c.results {
		if !slices.ContainsFunc(byRun[a.Run], func(r store.Record) bool {
			return r.Attempt.Number == a.Number && r.Attempt.Token == a.Token && r.Attempt.Outcome == outcome
		}) {
			c.Errorf("nothing acknowledged is lost: the result %s of attempt %d of run %s is not in history", outcome, a.Number, a.Run)
		}
	}
	// Each change of a job has a record, and each version belongs to a change.
	audited := map[string]int{}
	for before := int64(0); ; {
		page, _, err := c.Audit(c.ctx, store.AuditQuery{Before: before, Limit: 500})
		if !c.check(err) {
			return
		}
		for _, r := range page {
			before = r.Seq
			if r.Version > 0 && r.Action[:4] == "job." {
				audited[r.Object]++
				c.changes++
			}
		}
		if len(page) < 500 {
			break
		}
	}
	total := 0
	for uid, version := range c.versions {
		j, err := store.JobByUID(c.ctx, c, uid)
		if !c.check(err) {
			return
		}
		if j.Definition.Version < version {
			c.Errorf("version %d of job %s was acknowledged, but it has %d", version, uid, j.Definition.Version)
		}
		total += int(j.Definition.Version)
	}
	if total != c.changes {
		c.Errorf("the jobs have %d versions, but %d changes are in the audit", total, c.changes)
	}
}
