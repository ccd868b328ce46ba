//go:build servers

package redis

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/test/servers"
)

// scriptMost is how much processor time a script may take from the other clients of a server, in
// the mean of large batches and small steps: a batch of 500 takes 1 to 2 ms. Wall time would be
// longer on a busy machine.
const scriptMost = 5 * time.Millisecond

// In steady state no command reads a whole hash or all keys, which would block the other clients
// of a server for as long as there is state, and no script takes long.
func TestSteadyStateScansNothingAndBlocksShortly(t *testing.T) {
	server := servers.StartRedis(t, "--appendonly", "no")
	opened := 0
	open := func(t *testing.T, o storetest.Options) store.Store {
		opened++
		return open(t, server.URL()+fmt.Sprintf("/test%d", opened), optionsOf(o))
	}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	work := newBatches(t, open(t, storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Minute}), &now)
	backlog := storetest.NewBacklog(t, open)
	backlog.Grow(5000)

	scans := scansOf(t, server)
	before := callsOf(t, server, "evalsha")
	used := cpuOf(t, server)
	for range 20 {
		work.round()
		backlog.Cycle()
	}
	backlog.Live()
	if again := scansOf(t, server); again != scans {
		t.Errorf("in steady state the server was scanned: %s; before it was %s", again, scans)
	}
	calls := callsOf(t, server, "evalsha") - before
	if calls < 200 {
		t.Fatalf("%d scripts ran, want more", calls)
	}
	each := (cpuOf(t, server) - used) / time.Duration(calls)
	t.Logf("%d scripts took %s of processor time each", calls, each)
	if each > scriptMost {
		t.Errorf("%d scripts took %s of processor time each, want at most %s", calls, each, scriptMost)
	}
}

// cpuOf returns the processor time that a server has used.
func cpuOf(t *testing.T, server *servers.Redis) time.Duration {
	t.Helper()
	used, err := server.CPU()
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// scansOf returns how often each command that reads everything was called.
func scansOf(t *testing.T, server *servers.Redis) string {
	t.Helper()
	var parts []string
	for _, command := range []string{"keys", "scan", "hscan", "sscan", "zscan", "hgetall", "hkeys", "hvals", "smembers"} {
		parts = append(parts, fmt.Sprintf("%s %d", command, callsOf(t, server, command)))
	}
	return strings.Join(parts, ", ")
}

// callsOf returns how often a command was called.
func callsOf(t *testing.T, server *servers.Redis, command string) (n int) {
	t.Helper()
	for _, line := range strings.Split(do(t, server, "info", "commandstats"), "\n") {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "cmdstat_"+command+":calls="); ok {
			calls, _, _ := strings.Cut(rest, ",")
			var err error
			if n, err = strconv.Atoi(calls); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// batches are jobs whose runs are planned, claimed and finished by the largest batches.
type batches struct {
	t    *testing.T
	s    store.Store
	now  *time.Time
	node store.Session
	jobs []job.ID
	at   []time.Time
}

func (b *batches) id() job.ID {
	id, _ := job.NewID(*b.now, rand.Reader)
	return id
}

func newBatches(t *testing.T, s store.Store, now *time.Time) *batches {
	t.Helper()
	b := &batches{t: t, s: s, now: now}
	for len(b.jobs) < store.MaxBatch {
		var list []store.PutJob
		for i := range store.PutMax {
			documents, err := job.Decode("job.yaml", fmt.Appendf(nil, "name: j%d\nschedule: {every: 1s}\nrun: {shell: 'true'}", len(b.jobs)+i))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, store.PutJob{Definition: documents[0].Job, Actor: "ann"})
		}
		made, err := s.PutJobs(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range made {
			b.jobs, b.at = append(b.jobs, j.Definition.UID), append(b.at, j.Cursor)
		}
	}
	node, err := s.Join(t.Context(), store.Session{ID: b.id(), Node: "n", Machine: "m", Roles: []string{store.RoleWorker}, Capacity: 1000})
	if err != nil {
		t.Fatal(err)
	}
	b.node = node
	return b
}

// round makes all calls that a node makes in a second.
func (b *batches) round() {
	b.t.Helper()
	ctx := b.t.Context()
	var items []store.PlanItem
	var attempts []store.Attempt
	var results []store.Result
	for i, uid := range b.jobs {
		at := b.at[i].Add(time.Second)
		run := store.NewRun{ID: b.id(), Session: b.node.ID, Node: "n", Scheduled: at, Due: at}
		items = append(items, store.PlanItem{Job: uid, Epoch: 1, From: b.at[i], To: at, Runs: []store.NewRun{run}})
		a := store.Attempt{Job: uid, Run: run.ID, Number: 1, Token: b.id()}
		attempts = append(attempts, a)
		b.at[i] = at
	}
	*b.now = b.now.Add(time.Second)
	for _, a := range attempts {
		results = append(results, store.Result{Attempt: a, Started: *b.now, Ended: *b.now, Outcome: job.OutcomeSucceeded})
	}
	planned, _, err := b.s.Plan(ctx, b.node.ID, items)
	claimed, failed := b.s.Claim(ctx, b.node.ID, attempts)
	ended, late := b.s.Finish(ctx, b.node.ID, results)
	if err := cmp.Or(err, failed, late, b.s.Renew(ctx, b.node.ID, store.Load{})); err != nil {
		b.t.Fatal(err)
	}
	if slices.ContainsFunc(planned, func(o store.PlanOutcome) bool { return o != store.Planned }) ||
		slices.ContainsFunc(claimed, func(o store.ClaimOutcome) bool { return o.Verdict != store.Started }) ||
		slices.ContainsFunc(ended, func(o store.FinishOutcome) bool { return !o.Accepted }) {
		b.t.Fatal("a batch is not planned, started and accepted as a whole")
	}
	_, err = b.s.Ready(ctx, store.ReadyQuery{Session: b.node.ID, Until: b.now.Add(time.Minute), Limit: 500})
	_, failed = b.s.Ready(ctx, store.ReadyQuery{Any: true, Until: *b.now, Limit: 100})
	_, late = b.s.Lost(ctx, 100)
	_, _, listed := b.s.JobsChanged(ctx, store.AllPartitions, 0, 1000)
	_, alarmed := b.s.Alerts(ctx, 100)
	_, tidied := b.s.Tidy(ctx)
	_, expired := b.s.Expire(ctx, store.Retention{Runs: 5})
	if err := cmp.Or(err, failed, late, listed, alarmed, tidied, expired); err != nil {
		b.t.Fatal(err)
	}
}
