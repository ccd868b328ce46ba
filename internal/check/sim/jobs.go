package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// spec is a job of the simulation with the checker's expectations.
type spec struct {
	schedule string
	rest     string // place and policy
	other    string // the same after half of the edits; "" if edits keep it
	most     int    // how many runs may hold a slot; 0 means any number
	shards   int
	prompt   bool // its runs start on time when nothing is wrong
	gains    bool // the loss of an attempt frees something
	retries  int
	onLost   bool          // a lost attempt is retried
	lateBy   time.Duration // how late an occurrence may start, if its policy sets it
	missed   job.Missed    // "" is latest
	handed   bool          // its attempts are handed over
	run      string        // its work, if not a command
	windowed bool          // the window matches it
	rated    bool          // the rate bounds its starts
	flowMost int           // how many runs of a flow may run at once; 0 means any number
}

// pool is the pool of the jobs that share one, with its number of slots, and rated the pool whose rate
// bounds the starts of others.
const (
	pool      = "db"
	poolSlots = 2
	rated     = "api"
)

// rate admits fewer runs than fall due.
var rate = job.Rate{Limit: 6, Per: job.Duration(time.Minute), Burst: 2}

// steady are jobs without edits, so that each of their occurrences must be
// accounted for. Together with the jobs of edited they make one run a second.
var steady = map[string]spec{
	"skip":      {schedule: `cron: "*/15 * * * * *"`, rest: `policy: {expect: {start_within: 1m}}`, most: 1, gains: true},
	"allow":     {schedule: `cron: "*/10 * * * * *"`, rest: `policy: {overlap: allow}`, prompt: true},
	"queue":     {schedule: `cron: "*/20 * * * * *"`, rest: `policy: {overlap: queue, queue_limit: 3}`, most: 1, gains: true},
	"replace":   {schedule: `cron: "*/20 * * * * *"`, rest: `policy: {overlap: replace}`, most: 1, gains: true},
	"retry":     {schedule: `cron: "*/20 * * * * *"`, rest: `policy: {lost_after: 20s, kill_grace: 1s, retry: {attempts: 2, backoff: 2s, on: [failed, lost]}}`, most: 1, gains: true, retries: 2, onLost: true},
	"again":     {schedule: `cron: "*/30 * * * * *"`, rest: `policy: {overlap: allow, lost_after: 30s, kill_grace: 1s, retry: {attempts: 3, backoff: 1s, on: [lost]}}`, gains: true, retries: 3, onLost: true, prompt: true},
	"parallel":  {schedule: `cron: "*/10 * * * * *"`, rest: `policy: {max_parallel: 2}`, most: 2, gains: true},
	"all":       {schedule: `cron: "*/30 * * * * *"`, rest: `policy: {missed: all, late_by: 1h, overlap: queue, queue_limit: 100}`, most: 1, gains: true, missed: job.MissedAll},
	"late":      {schedule: `cron: "*/30 * * * * *"`, rest: `policy: {missed: none, late_by: 5s, overlap: allow}`, prompt: true, lateBy: 5 * time.Second, missed: job.MissedNone},
	"latest":    {schedule: `cron: "*/30 * * * * *"`, rest: `policy: {missed: latest, overlap: allow}`, prompt: true},
	"shards":    {schedule: `cron: "0 * * * * *"`, rest: `place: {shards: 3}`, most: 1, shards: 3, gains: true},
	"broadcast": {schedule: `cron: "30 * * * * *"`, rest: `place: {strategy: broadcast}`, most: 1, gains: true},
	"sticky":    {schedule: `cron: "*/30 * * * * *"`, rest: `place: {sticky: true, strategy: hash}`, most: 1, gains: true},
	"zone":      {schedule: `cron: "*/30 * * * * *"`, rest: `place: {labels: {zone: a}}, policy: {overlap: allow}`, prompt: true},
	"robin":     {schedule: `cron: "*/30 * * * * *"`, rest: `place: {strategy: round_robin}, policy: {overlap: allow}`, prompt: true},
	"every":     {schedule: `every: 20s`, rest: `policy: {timeout: 5s}`, most: 1, gains: true},
	"jitter":    {schedule: `cron: "*/30 * * * * *", jitter: 9s`, rest: `policy: {overlap: allow}`, prompt: true},
	"first":     {schedule: `cron: "*/30 * * * * *"`, rest: `policy: {concurrency_key: db, overlap: queue, queue_limit: 5}`, most: poolSlots, gains: true},
	"second":    {schedule: `cron: "*/30 * * * * *"`, rest: `params: {key: {default: b}}, policy: {concurrency_key: "d{{ .Param.key }}"}`, most: poolSlots, gains: true},
	"rated":     {schedule: `cron: "*/15 * * * * *"`, rest: `policy: {rate_key: api, overlap: queue, queue_limit: 4, retry: {attempts: 2, backoff: 1s, on: [failed]}}`, most: 1, gains: true, retries: 2, rated: true},
	"rated-not": {schedule: `cron: "5,25,45 * * * * *"`, rest: `params: {key: {default: i}}, policy: {rate_key: "ap{{ .Param.key }}", max_parallel: 3}`, most: 3, gains: true, rated: true},
	"previous":  {schedule: `cron: "*/30 * * * * *"`, rest: `policy: {needs_previous: true, late_by: 20s, retry: {attempts: 20, backoff: 1s, on: [failed, lost]}}`, most: 1, gains: true, retries: 20, onLost: true, lateBy: 20 * time.Second},
	"follower":  {schedule: `on: [{job: retry, outcome: finished}]`, rest: `policy: {overlap: allow}`},
	"chain":     {schedule: `after_end: 15s`, most: 1, gains: true},
	"handed":    {schedule: `cron: "*/20 * * * * *"`, rest: `policy: {timeout: 2m, lost_after: 20s, kill_grace: 1s, retry: {attempts: 2, backoff: 2s, on: [failed, lost]}}`, most: 1, retries: 2, onLost: true, handed: true},
	"outside":   {schedule: `cron: "*/30 * * * * *"`, rest: `policy: {overlap: replace, timeout: 1m}`, most: 1, handed: true},
	"flow":      {schedule: `cron: "0 * * * * *"`, rest: `policy: {overlap: allow, lost_after: 20s, kill_grace: 1s}`, run: everyKind},
	"flow-fast": {schedule: `cron: "15 * * * * *"`, rest: `policy: {timeout: 40s, lost_after: 20s, kill_grace: 1s}`, run: failsFast, flowMost: 1},
	"flow-asks": {schedule: `cron: "20,50 * * * * *"`, rest: `policy: {overlap: allow, lost_after: 20s, kill_grace: 1s}`, run: asks},
	"held":      {schedule: `cron: "*/10 * * * * *"`, rest: `labels: {window: w}, policy: {overlap: allow}`, windowed: true},
	"held-all":  {schedule: `cron: "*/30 * * * * *"`, rest: `labels: {window: w}, policy: {overlap: queue, missed: all, missed_limit: 3, late_by: 1h}`, most: 1, gains: true, missed: job.MissedAll, windowed: true},
	"called":    {rest: `policy: {overlap: allow}`},
	"twenty":    {schedule: `cron: "*/30 * * * * *", max_runs: 20`, rest: `policy: {overlap: allow}`, prompt: true},
}

// edited are jobs that users keep changing. Their schedules change, the checker's expectations do
// not.
var edited = map[string]spec{
	"edited-0":  {schedule: `jitter: 20s`, rest: `policy: {overlap: allow}`},
	"edited-1":  {rest: `policy: {overlap: skip}`, most: 1, gains: true},
	"edited-2":  {rest: `policy: {overlap: queue, queue_limit: 2}`, most: 1, gains: true},
	"edited-3":  {rest: `policy: {overlap: replace}`, most: 1, gains: true},
	"edited-5":  {rest: `policy: {overlap: allow, lost_after: 20s, kill_grace: 1s}`, run: everyKind},
	alternating: {rest: `policy: {overlap: allow, lost_after: 20s, kill_grace: 1s}`, other: `policy: {overlap: allow, lost_after: 20s, kill_grace: 1s, retry: {attempts: 2, backoff: 1s, on: [lost]}}`, retries: 2, onLost: true},
	"edited-4":  {schedule: `spread: 1m`, rest: `policy: {missed: all, overlap: allow, retry: {attempts: 1, backoff: 1s, on: [failed]}}`, retries: 1},
}

// alternating is the job whose edits only switch between two policies, often enough to meet an
// attempt on a node that is cut off, and withdraw no run.
const alternating = "edited-6"

// specOf returns the expectations of a job.
func specOf(name string) spec {
	if s, ok := steady[name]; ok {
		return s
	}
	return edited[name]
}

// parallelOf returns how many runs of a job may hold a slot; 0 for any number.
func parallelOf(name string) int { return specOf(name).most }

// gainsBy reports whether the loss of an attempt frees something: in a flow it does.
func gainsBy(r *job.Run) bool {
	return specOf(r.Name).gains || r.Kind == job.RunStep || r.Kind == job.RunByFlow
}

// slotOf names the slot of a run in the words of the checker.
func slotOf(r *job.Run, node string) string {
	switch {
	case r.Name == "first" || r.Name == "second":
		return pool
	case r.Name == "broadcast":
		return r.Name + "@" + node
	}
	return fmt.Sprint(r.JobUID, "/", r.Shard)
}

// user creates and changes jobs, and relies on the answers: a request with a lost answer is
// repeated.
type user struct {
	store     store.Store
	random    *rand.Rand
	now       func() time.Time
	schedules map[string]string // the expressions of edited jobs
	key       string            // the last idempotency key
}

// editEvery is how often a user makes a request, on average. A job is changed every ten seconds:
// other requests trigger or cancel runs, or change nothing.
const editEvery = 6 * time.Second

// newUser makes the steady jobs.
func newUser(s store.Store, random *rand.Rand, now func() time.Time) (*user, error) {
	u := &user{store: s, random: random, now: now, schedules: map[string]string{}}
	if _, err := s.PutDocument(context.Background(), job.Document{Pool: &job.Pool{Name: pool, Slots: job.Slots{Size: poolSlots}}}, 0, "user"); err != nil {
		return nil, err
	}
	if _, err := s.PutDocument(context.Background(), job.Document{Pool: &job.Pool{Name: rated, Slots: job.Slots{Rate: &rate}}}, 0, "user"); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(steady)) {
		if err := u.put(name, "", store.PutJob{}); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// otherSuffix follows the name of a job in the key of its other document.
const otherSuffix = "/other"

// documents are the jobs by name, decoded once for all worlds; edited ones have no expression.
var documents = sync.OnceValues(func() (map[string]*job.Job, error) {
	list := map[string]*job.Job{}
	for _, specs := range []map[string]spec{steady, edited} {
		for name, s := range specs {
			for key, rest := range map[string]string{name: s.rest, name + otherSuffix: s.other} {
				text := fmt.Sprintf("{name: %s, schedule: {%s}, run: %s", name, s.schedule, cmp.Or(s.run, "{shell: echo}"))
				if rest != "" {
					text += ", " + rest
				}
				docs, err := job.Decode("sim.yaml", []byte(text+"}"))
				if err != nil {
					return nil, fmt.Errorf("decode %s: %w", name, err)
				}
				list[key] = docs[0].Job
			}
		}
	}
	return list, nil
})

// put creates or changes a job, with another cron expression if one is given.
func (u *user) put(name, schedule string, p store.PutJob) error {
	known, err := documents()
	if err != nil {
		return err
	}
	key := name
	if specOf(name).other != "" && u.random.IntN(2) == 0 {
		key += otherSuffix
	}
	definition := *known[key]
	definition.Paused = p.Definition != nil && p.Definition.Paused
	command := &job.Shell{Command: fmt.Sprint("echo ", u.random.IntN(4))}
	if !definition.Run.IsFlow() {
		definition.Run.Shell = command
	} else {
		changed := *definition.Run.Flow
		changed.Steps = slices.Clone(changed.Steps)
		changed.Steps[0].Run.Shell = command
		definition.Run.Flow = &changed
	}
	if schedule != "" {
		definition.Schedule.Cron = []string{schedule}
	}
	p.Definition, p.IfVersion, p.Actor = &definition, store.AnyVersion, "user"
	_, err = store.PutOne(context.Background(), u.store, p)
	if err == nil && u.random.IntN(5) == 0 {
		_, err = store.PutOne(context.Background(), u.store, p) // its answer was lost
	}
	u.schedules[name] = schedule
	return err
}

// window opens, closes or deletes the window.
func (u *user) window() error {
	ctx := context.Background()
	now := u.now().Truncate(time.Second)
	if u.random.IntN(8) == 0 {
		err := u.store.DeleteDocument(ctx, job.KindWindow, job.DefaultNamespace+"/w", store.AnyVersion, "user")
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	}
	w := &job.Window{
		Name: "w", Match: job.WindowMatch{Labels: map[string]string{"window": "w"}}, Action: []job.WindowAction{job.WindowHold, job.WindowHold, job.WindowSkip}[u.random.IntN(3)],
		Schedule: job.Schedule{At: []time.Time{now.Add(time.Duration(u.random.IntN(20)) * time.Second)}}, For: job.Duration(time.Duration(5+u.random.IntN(90)) * time.Second),
	}
	if u.random.IntN(3) == 0 {
		w.Schedule.At[0], w.Closed = now.Add(-time.Minute), now
	}
	for range 1 + u.random.IntN(2) { // an answer may be lost
		if _, err := u.store.PutDocument(ctx, job.Document{Kind: job.KindWindow, Window: w}, store.AnyVersion, "user"); err != nil {
			return err
		}
	}
	return nil
}

// edit changes one of the edited jobs.
func (u *user) edit() error {
	ctx := context.Background()
	if u.random.IntN(6) == 0 {
		if err := u.window(); err != nil {
			return err
		}
	}
	if u.random.IntN(2) == 0 {
		if err := u.answer(); err != nil {
			return err
		}
	}
	if u.random.IntN(3) == 0 {
		if err := u.put(alternating, "*/10 * * * * *", store.PutJob{}); err != nil {
			return err
		}
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(edited)), func(name string) bool { return name == alternating })
	name := names[u.random.IntN(len(names))]
	j, err := store.JobNamed(ctx, u.store, job.DefaultNamespace, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	// The last one has instants so close that the first is still ahead when the second is claimed.
	schedule := []string{"*/10", "*/15", "*/20", "*/30", "0", "0,29,30,59"}[u.random.IntN(6)] + " * * * * *"
	var p store.PutJob
	switch n := u.random.IntN(20); {
	case err != nil: // there is none
	case n < 2:
		if err := u.store.DeleteJob(ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "user"}); err != nil {
			return err
		}
		return nil
	case n < 4:
		return u.cancel(j.Definition.UID)
	case n < 7:
		return u.trigger(j)
	case j.Definition.Paused:
		schedule = u.schedules[name]
		p.CatchUp = []job.Missed{"", job.MissedLatest, job.MissedAll}[u.random.IntN(3)]
	case n < 11:
		p.Definition = &job.Job{Paused: true}
		schedule = u.schedules[name]
		if u.random.IntN(2) == 0 {
			p.Pause = store.Pause{By: "user", Reason: job.Text("for a while"), Until: u.now().Add(time.Duration(u.random.IntN(40)) * time.Second)}
		}
	case n < 15:
		schedule = u.schedules[name]
	}
	if err := u.put(name, schedule, p); err != nil {
		return err
	}
	if p.Definition != nil && p.Pause.Until.IsZero() && u.random.IntN(2) == 0 {
		return u.put(name, schedule, store.PutJob{CatchUp: []job.Missed{"", job.MissedLatest, job.MissedAll}[u.random.IntN(3)]}) // a mistake
	}
	return nil
}

// cancel ends what is planned or runs of a job.
func (u *user) cancel(uid job.ID) error {
	ctx := context.Background()
	runs, err := u.store.ListActive(ctx, store.ActiveQuery{Job: uid, Limit: 4})
	if err != nil {
		return err
	}
	for i := range runs {
		if _, err := u.store.Cancel(ctx, runs[i].ID, "user", "not now"); err != nil {
			return err
		}
	}
	return nil
}

// answer approves or rejects a waiting step, sometimes twice.
func (u *user) answer() error {
	ctx := context.Background()
	j, err := store.JobNamed(ctx, u.store, job.DefaultNamespace, "flow-asks")
	if err != nil {
		return err
	}
	runs, err := u.store.ListActive(ctx, store.ActiveQuery{Job: j.Definition.UID, Limit: 100})
	if err != nil {
		return err
	}
	for i := range runs {
		if runs[i].Kind == job.RunStep {
			continue
		}
		for range 1 + u.random.IntN(2) {
			err := u.store.AnswerFlow(ctx, store.FlowAnswer{Run: runs[i].ID, Step: "ask", Reject: u.random.IntN(3) == 0, By: "user"})
			if err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

// trigger requests a manual run, or a run of the past.
func (u *user) trigger(j *store.Job) error {
	id := newID(u.now(), u.random)
	item := store.TriggerItem{ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Key: id.String(), Actor: "user"}
	switch u.random.IntN(4) {
	case 0:
		if u.key != "" {
			item.Key = u.key
		}
	case 1:
		item.Kind, item.Scheduled = job.RunBackfill, u.now().Add(-time.Hour).Truncate(time.Minute)
		item.Key, item.Overlap = "", job.OverlapQueue
	}
	if item.Kind == job.RunByHand {
		u.key = item.Key
	}
	for range 1 + u.random.IntN(2) { // an answer may be lost
		if _, err := u.store.Trigger(context.Background(), []store.TriggerItem{item}); err != nil {
			return err
		}
	}
	return nil
}

// newID makes an id from a generator.
func newID(now time.Time, random *rand.Rand) job.ID {
	id, err := job.NewID(now, reader{random})
	if err != nil {
		panic(err) // the reader never fails
	}
	return id
}

// reader reads random bytes from a generator.
type reader struct{ random *rand.Rand }

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.random.Uint32())
	}
	return len(p), nil
}
