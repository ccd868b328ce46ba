package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// do decides an operation with exactly the data that it requests.
func (w *world) do(op Operation) (Changes, error) {
	b := NewBatch(w.now, lookAhead, 0)
	b.Guard()
	for need := (Need{}); ; {
		need.Reset()
		if b.Needs(op, &need); need.Empty() {
			break
		}
		w.load(&need, b)
		b.Answered(&need)
	}
	if err := op.Decide(b); err != nil {
		return Changes{}, err
	}
	c := b.Changes()
	w.write(b)
	return c, nil
}

func (w *world) load(n *Need, b *Batch) {
	for _, uid := range n.Jobs {
		if j, ok := w.jobs[uid]; ok {
			b.AddJob(&j)
		}
	}
	for _, r := range w.sortedRuns() {
		inSlot := slices.ContainsFunc(n.Slots, func(s SlotNeed) bool { return s.Key == r.Slot })
		asked := slices.ContainsFunc(n.Runs, func(ref RunRef) bool { return ref.Run == r.ID })
		if inSlot || asked || slices.Contains(n.Whole, r.JobUID) || slices.Contains(n.Waiting, r.JobUID) && r.State != job.StateReady {
			b.AddRun(&r)
		}
	}
	for _, j := range w.sortedJobs() {
		for _, up := range j.Policy.On {
			if slices.Contains(n.Upstreams, up.Job) {
				follower := j
				b.AddFollower(up.Job, &follower)
			}
		}
	}
	for i := range w.records {
		if slices.ContainsFunc(n.Records, func(ref RunRef) bool { return ref.Run == w.records[i].Run.ID }) {
			b.AddRecord(&w.records[i])
		}
	}
	if n.Sessions {
		for i := range w.sessions {
			b.AddSession(&w.sessions[i])
		}
	}
}

// cell returns a world with a node and a job of a definition.
func cell(t *testing.T, text string) (*world, job.ID) {
	t.Helper()
	now := at(t, "2026-11-20T12:00:00Z")
	f := filled(t, "name: j\n"+text)
	j := Job{UID: job.ID{1}, Namespace: "default", Name: "j", Version: 1, Epoch: 1, State: job.JobActive, Policy: CompilePolicy(f), Cursor: now, Document: NewDocument(f, f)}
	return &world{
		now: now, jobs: map[job.ID]Job{j.UID: j}, runs: map[job.ID]store.Run{},
		sessions: []store.Session{{ID: job.ID{2}, Node: "a", Roles: []string{store.RoleWorker}, Joined: now, Steady: now, Renewed: now}},
	}, j.UID
}

// run adds a run of a job that is due now.
func (w *world) run(id byte, uid job.ID, change func(*store.Run)) job.ID {
	j := w.jobs[uid]
	r := store.Run{
		Run: job.Run{
			ID: job.ID{9, id}, JobUID: uid, Namespace: j.Namespace, Name: j.Name, Kind: job.RunScheduled, Key: KeyOf(w.now), Epoch: j.Epoch,
			State: job.StateReady, Attempt: 1, Scheduled: w.now, Due: w.now,
		},
		Session: job.ID{2},
	}
	if change != nil {
		change(&r)
	}
	r.Slot = j.Policy.SlotKey(&r.Run, r.Node)
	w.runs[r.ID] = r
	return r.ID
}

// goesOn makes a run a running one.
func goesOn(r *store.Run) {
	r.State, r.Token, r.HoldsSlot, r.Node = job.StateRunning, job.ID{5, r.ID[1]}, true, "a"
	r.First, r.Claimed = r.Due, r.Due
}

// The node of an attempt applies the definition of the claim to its end.
func TestEditOfLostAfterKeepsRunningAttempts(t *testing.T) {
	const short, long = 20 * time.Second, time.Minute
	for _, c := range []struct {
		name             string
		claimed, present time.Duration
		old              bool // claimed by an older Belfry, which did not record it
		silent           time.Duration
		lost             bool
	}{
		{"made shorter, silent for the new one", long, short, false, 30 * time.Second, false},
		{"made shorter, silent for the old one", long, short, false, 61 * time.Second, true},
		{"made longer, silent for the old one", short, long, false, 30 * time.Second, true},
		{"not noted at the claim", 0, short, true, 30 * time.Second, true},
		{"not noted at the claim, silent for less", 0, long, true, 30 * time.Second, false},
	} {
		w, uid := cell(t, "schedule: {cron: '* * * * *'}")
		id := w.run(1, uid, nil)
		change := func(lostAfter time.Duration) {
			j := w.jobs[uid]
			policy := *j.Policy
			policy.LostAfter = lostAfter
			j.Policy = &policy
			w.jobs[uid] = j
		}
		change(c.claimed)
		a := store.Attempt{Job: uid, Run: id, Number: 1, Token: job.ID{5, 1}}
		b := w.batch()
		b.Claim(&w.sessions[0], a)
		w.write(b)
		if r := w.runs[id]; r.State != job.StateRunning || r.LostAfter != c.claimed {
			t.Fatalf("%s: claimed, the run is %s with lost_after %s", c.name, r.State, r.LostAfter)
		}
		change(c.present)
		w.now = w.now.Add(c.silent)
		w.sessions = append(w.sessions, store.Session{ID: job.ID{3}, Node: "b", Roles: []string{store.RoleWorker}, Steady: w.sessions[0].Steady, Renewed: w.now})
		if _, err := w.do(&Reap{Session: job.ID{3}, Attempts: []store.Attempt{a}}); err != nil {
			t.Fatal(err)
		}
		if r, running := w.runs[id]; running == c.lost {
			t.Errorf("%s: the run is %q, lost: %t", c.name, r.State, c.lost)
		}
	}
}

func TestWorstShardDecidesTheOutcome(t *testing.T) {
	s, f, c, w := job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeCancelled, job.OutcomeWithdrawn
	for _, test := range []struct{ a, b, want job.Outcome }{
		{s, "", s}, {"", s, s}, {s, f, f}, {f, s, f}, {f, job.OutcomeLost, f}, {s, c, c}, {c, f, f}, {w, w, w}, {w, "", w},
		{w, s, c}, {s, w, c}, {w, f, f}, {c, w, c}, {"", "", ""},
	} {
		if got := together(test.a, test.b); got != test.want {
			t.Errorf("%q and %q: got %q, want %q", test.a, test.b, got, test.want)
		}
	}
}

func TestSplitOccurrenceIsFollowedOnceByItsWorstShard(t *testing.T) {
	for _, test := range []struct {
		outcomes []job.Outcome
		follows  bool // another job follows failures
	}{
		{[]job.Outcome{job.OutcomeSucceeded, job.OutcomeSucceeded, job.OutcomeSucceeded}, false},
		{[]job.Outcome{job.OutcomeFailed, job.OutcomeSucceeded, job.OutcomeSucceeded}, true},
		{[]job.Outcome{job.OutcomeSucceeded, job.OutcomeTimedOut, job.OutcomeSucceeded}, true},
		{[]job.Outcome{job.OutcomeSucceeded, job.OutcomeCancelled, job.OutcomeFailed}, true},
	} {
		w, uid := cell(t, "schedule: {every: 1m}\nplace: {shards: 3}\npolicy: {pause_on_failure: 1}")
		follower := Job{
			UID: job.ID{3}, Namespace: "default", Name: "f", Epoch: 1, State: job.JobActive,
			Policy: CompilePolicy(filled(t, "name: f\nschedule: {on: [{job: j, outcome: failed}]}")),
		}
		w.jobs[follower.UID] = follower
		for i := range test.outcomes {
			w.run(byte(i), uid, func(r *store.Run) { r.Shard, r.Shards = i, 3; goesOn(r) })
		}
		claims := 0
		for i, o := range test.outcomes {
			r := w.runs[job.ID{9, byte(i)}]
			op := Finish{Results: []store.Result{{Attempt: r.Present(), Outcome: o}}}
			c, err := w.do(&op)
			if err != nil || !op.Outcomes[0].Accepted {
				t.Fatalf("finish: %+v, %v", op.Outcomes, err)
			}
			if claims += len(c.Made); claims > 0 && i < 2 {
				t.Errorf("%v: it is followed after %d of 3 shares", test.outcomes, i+1)
			}
		}
		if paused := w.jobs[uid].State == job.JobPaused; (claims == 1) != test.follows || paused != test.follows {
			t.Errorf("%v: followed %d times, paused %t, want %t", test.outcomes, claims, paused, test.follows)
		}
	}
}

func TestMissedOccurrenceIsRecordedAndRaisesTheFloor(t *testing.T) {
	w, uid := cell(t, "schedule: {every: 1m}")
	from := w.now.Add(-time.Hour)
	j := w.jobs[uid]
	j.Cursor = from
	w.jobs[uid] = j
	last := w.now.Add(-time.Minute)
	plan := func(last time.Time) store.PlanOutcome {
		op := Plan{Session: job.ID{2}, Items: []store.PlanItem{{
			Job: uid, Epoch: 1, From: from, To: last, Missed: []store.MissedSpan{{ID: job.ID{8}, First: from.Add(time.Minute), Last: last, Count: 59}},
		}}}
		if _, err := w.do(&op); err != nil {
			t.Fatal(err)
		}
		return op.Outcomes[0]
	}
	if got := plan(w.now.Add(time.Second)); got != store.TooFar {
		t.Errorf("what is to come is missed: answered %d", got)
	}
	for range 2 { // the second is a repetition
		if got := plan(last); got != store.Planned {
			t.Fatalf("answered %d", got)
		}
	}
	if len(w.records) != 1 || w.records[0].Attempt.Outcome != job.OutcomeMissed || w.records[0].Count != 59 || !w.records[0].Until.Equal(last) {
		t.Errorf("records: %+v", w.records)
	}
	if j := w.jobs[uid]; !j.Floor.Equal(last) || !j.Cursor.Equal(last) {
		t.Errorf("the floor is %s, the cursor %s, want %s", j.Floor, j.Cursor, last)
	}
}

func TestUnmetExpectationAlertsOnce(t *testing.T) {
	w, uid := cell(t, "schedule: {every: 1m}\npolicy: {late_by: 1h, expect: {start_within: 10s, finish_within: 30s}}")
	id := w.run(1, uid, func(r *store.Run) { r.AlertAt = r.Due.Add(10 * time.Second) })
	for _, test := range []struct {
		after time.Duration
		want  string
	}{{9 * time.Second, ""}, {10 * time.Second, "has not started"}, {20 * time.Second, ""}, {31 * time.Second, "has not ended"}, {time.Minute, ""}} {
		w.now = w.runs[id].Due.Add(test.after)
		op := Alert{Runs: []RunRef{{Run: id}, {Run: job.ID{77}}}}
		if _, err := w.do(&op); err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, a := range op.Alerts {
			for _, why := range a.Unmet {
				text += why.String()
			}
		}
		if (text == "") != (test.want == "") || !strings.Contains(text, test.want) {
			t.Errorf("after %s: said %q, want %q", test.after, text, test.want)
		}
	}
}

func TestOnlySilentNodesAreReaped(t *testing.T) {
	other := job.ID{6}
	for _, test := range []struct {
		name   string
		silent time.Duration // silence of its node
		change func(reaper *store.Session, a *store.Attempt)
		reaped bool
	}{
		{"it is heard of", 19 * time.Second, nil, false},
		{"it is silent", 21 * time.Second, nil, true},
		{"another token", 21 * time.Second, func(_ *store.Session, a *store.Attempt) { a.Token = job.ID{1} }, false},
		{"another attempt", 21 * time.Second, func(_ *store.Session, a *store.Attempt) { a.Number = 2 }, false},
		{"a predecessor, heard of", 0, func(s *store.Session, _ *store.Attempt) { s.Predecessors = []job.ID{other} }, true},
	} {
		w, uid := cell(t, "schedule: {every: 1m}\npolicy: {lost_after: 20s}")
		id := w.run(1, uid, func(r *store.Run) { goesOn(r); r.Session = other })
		w.sessions = append(w.sessions, store.Session{ID: other, Node: "b", Joined: w.now, Steady: w.now, Renewed: w.now})
		w.now = w.now.Add(test.silent)
		w.sessions[0].Renewed = w.now
		r := w.runs[id]
		a := r.Present()
		if test.change != nil {
			test.change(&w.sessions[0], &a)
		}
		c, err := w.do(&Reap{Session: job.ID{2}, Attempts: []store.Attempt{a}})
		if err != nil {
			t.Fatal(err)
		}
		_, there := w.runs[id]
		if there == test.reaped || slices.Contains(c.Reaped, other) != test.reaped {
			t.Errorf("%s: the run is there: %t, over are %v; want reaped %t", test.name, there, c.Reaped, test.reaped)
		}
	}
	w, _ := cell(t, "schedule: {every: 1m}")
	if _, err := w.do(&Reap{Session: job.ID{99}}); !errors.Is(err, store.ErrSessionOver) {
		t.Errorf("a reaper that does not exist: %v", err)
	}
}

func TestTokens(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	admin := store.Token{Name: "ann", Hash: store.TokenHash{1}, Role: store.RoleAdmin}
	viewer := store.Token{Name: "bob", Hash: store.TokenHash{2}, Role: store.RoleViewer}
	narrow := store.Token{Name: "eve", Hash: store.TokenHash{3}, Role: store.RoleAdmin, Namespace: "team"}
	old := store.Token{Name: "old", Hash: store.TokenHash{4}, Role: store.RoleAdmin, Expires: now}
	for _, test := range []struct {
		name    string
		have    []store.Token
		put     store.PutToken
		want    error
		changed bool
	}{
		{"a new one", []store.Token{admin}, store.PutToken{Name: "new", Hash: store.TokenHash{9}}, nil, true},
		{"the same again", []store.Token{admin}, store.PutToken{Name: "ann", Hash: admin.Hash}, nil, false},
		{"the name is taken", []store.Token{admin}, store.PutToken{Name: "ann", Hash: store.TokenHash{9}}, store.ErrExists, false},
		{"it replaces", []store.Token{admin}, store.PutToken{Name: "ann", Hash: store.TokenHash{9}, Replace: true}, nil, true},
		{"the hash is taken", []store.Token{admin}, store.PutToken{Name: "new", Hash: admin.Hash}, store.ErrExists, false},
		{"the first", nil, store.PutToken{Name: "new", Hash: store.TokenHash{9}, First: true}, nil, true},
		{"not the first", []store.Token{viewer}, store.PutToken{Name: "new", Hash: store.TokenHash{9}, First: true}, store.ErrExists, false},
		{"too many", make([]store.Token, store.TokensMax), store.PutToken{Name: "new", Hash: store.TokenHash{9}}, store.ErrLimit, false},
	} {
		b := NewBatch(now, lookAhead, 0)
		_, changed, err := b.PutToken(test.have, &test.put)
		if !errors.Is(err, test.want) || changed != test.changed || len(b.Changes().Audit) != map[bool]int{true: 1}[changed] {
			t.Errorf("%s: changed %t, audited %d, %v", test.name, changed, len(b.Changes().Audit), err)
		}
	}
	for _, test := range []struct {
		have []store.Token
		name string
		want error
	}{
		{[]store.Token{admin, viewer}, "bob", nil},
		{[]store.Token{admin, viewer}, "nobody", store.ErrNotFound},
		{[]store.Token{admin, viewer}, "ann", store.ErrLastAdmin},
		{[]store.Token{admin, narrow}, "ann", store.ErrLastAdmin}, // the other has one namespace
		{[]store.Token{admin, old}, "ann", store.ErrLastAdmin},    // the other has expired
		{[]store.Token{admin, narrow}, "eve", nil},
	} {
		if err := NewBatch(now, lookAhead, 0).DeleteToken(test.have, test.name, "ann"); !errors.Is(err, test.want) {
			t.Errorf("revoke %s of %d: %v, want %v", test.name, len(test.have), err, test.want)
		}
	}
}

func TestRecountKeepsRunningRuns(t *testing.T) {
	w, uid := cell(t, "schedule: {every: 1m, max_runs: 5}")
	w.run(1, uid, goesOn)
	w.run(2, uid, nil)
	b := w.batch()
	j := b.Job(uid)
	j.Planned = 4
	b.countAnew(j)
	b.saveJob(j)
	c := b.Changes()
	if j.Planned != 0 || len(c.Saved) != 1 || c.Saved[0].ID != (job.ID{9, 1}) || !isCounted(c.Saved[0]) {
		t.Errorf("planned are %d, saved %s", j.Planned, fmt.Sprint(c.Saved))
	}
}
