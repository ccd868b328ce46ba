package storecopy_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli/storecopy"
	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/joined"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/sqlite"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// world is a store that is used as a node would use it.
type world struct {
	*testing.T
	storecopy.Store
	ctx  context.Context
	now  time.Time
	node store.Session
}

func newWorld(t *testing.T, open func(now func() time.Time) storecopy.Store) *world {
	w := &world{T: t, ctx: t.Context(), now: start}
	w.Store = open(w.clock)
	return w
}

func (w *world) clock() time.Time { return w.now }

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) id() job.ID {
	id, err := job.NewID(w.now, rand.Reader)
	w.must(err)
	return id
}

func (w *world) put(text string) *store.Job {
	w.Helper()
	docs, err := job.Decode("test.yaml", []byte(text))
	w.must(err)
	j, err := store.PutOne(w.ctx, w, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "ann"})
	w.must(err)
	return j
}

func (w *world) join() {
	s, err := w.Join(w.ctx, store.Session{ID: w.id(), Node: "a", Machine: "a", DataDir: "/data", Roles: []string{store.RolePlanner, store.RoleWorker}, Capacity: 10})
	w.must(err)
	w.node = s
}

// leave ends the session of the node, like a gentle stop.
func (w *world) leave() {
	w.must(w.Leave(w.ctx, w.node.ID))
	w.must(w.End(w.ctx, w.node.ID))
}

// plan plans a job for n minutes from now.
func (w *world) plan(j *store.Job, minutes ...int) (list []store.Attempt) {
	w.Helper()
	j, err := store.JobByUID(w.ctx, w, j.Definition.UID)
	w.must(err)
	item := store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: j.Cursor, Planned: j.Planned}
	for _, n := range minutes {
		at := start.Add(time.Duration(n) * time.Minute)
		item.Runs = append(item.Runs, store.NewRun{ID: w.id(), Session: w.node.ID, Node: "a", Scheduled: at, Due: at})
		item.To = at
		list = append(list, store.Attempt{Job: item.Job, Run: item.Runs[len(item.Runs)-1].ID, Number: 1, Token: w.id()})
	}
	got, _, err := w.Plan(w.ctx, w.node.ID, []store.PlanItem{item})
	w.must(err)
	if got[0] != store.Planned {
		w.Fatalf("planned: %d", got[0])
	}
	return list
}

func (w *world) run(a store.Attempt, o job.Outcome, output string) {
	w.Helper()
	got, err := w.Claim(w.ctx, w.node.ID, []store.Attempt{a})
	w.must(err)
	if got[0].Verdict != store.Started {
		w.Fatalf("claimed: %+v", got[0])
	}
	result := store.Result{Attempt: a, Started: w.now, Ended: w.now.Add(time.Second), Outcome: o, Reason: job.Text("by the test")}
	if output != "" {
		result.OutputBytes = int64(len(output))
		result.Output = []store.OutputChunk{{Run: a.Run, Attempt: a.Number, Bytes: len(output), Time: w.now, Data: []byte(output)}}
	}
	done, err := w.Finish(w.ctx, w.node.ID, []store.Result{result})
	w.must(err)
	if !done[0].Accepted {
		w.Fatal("the result is refused")
	}
}

// live fills a store with one of everything, as after an hour of a node's use.
func (w *world) live() {
	w.join()
	docs, err := job.Decode("test.yaml", []byte("kind: calendar\nname: off\ncalendar: {include: ['2026-12-25']}\n---\nkind: pool\nname: db\npool: {size: 2}\n---\nkind: window\nname: closed\nschedule: {cron: '0 3 * * *'}\nfor: 1h\nmatch: {labels: {team: none}}\n"))
	w.must(err)
	for _, d := range docs {
		_, err = w.PutDocument(w.ctx, d, store.AnyVersion, "ann")
		w.must(err)
	}
	_, err = w.PutToken(w.ctx, store.PutToken{Name: "ci", Hash: store.TokenHash{1}, Role: store.RoleAdmin, Actor: "ann"})
	w.must(err)
	a := w.put("name: a\nschedule: {cron: '* * * * *', except: [off]}\nrun: {shell: 'true'}\npolicy: {retry: {attempts: 2}}")
	w.put("name: a\nschedule: {cron: '* * * * *', except: [off]}\nrun: {shell: 'false'}\npolicy: {retry: {attempts: 2}}")
	q := w.put("name: q\nschedule: {cron: '* * * * *'}\nrun: {shell: 'true'}\npolicy: {overlap: queue, concurrency_key: db}")
	w.put("name: after\nschedule: {on: [{job: a}]}\nrun: {shell: 'true'}")
	gone := w.put("name: gone\nschedule: {cron: '* * * * *'}\nrun: {shell: 'true'}")
	w.now = start.Add(time.Minute)
	w.must(w.Renew(w.ctx, w.node.ID, store.Load{}))
	w.run(w.plan(a, 1)[0], job.OutcomeSucceeded, "hello\n")
	w.run(w.plan(gone, 1)[0], job.OutcomeFailed, "")
	w.must(w.DeleteJob(w.ctx, store.DeleteJob{UID: gone.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
	w.now = start.Add(2 * time.Minute)
	w.must(w.Renew(w.ctx, w.node.ID, store.Load{}))
	w.run(w.plan(a, 2)[0], job.OutcomeFailed, "oh\n") // it will be retried
	w.plan(q, 2)
	_, err = w.Trigger(w.ctx, []store.TriggerItem{{ID: w.id(), Job: a.Definition.UID, Kind: job.RunByHand, Key: "once", Actor: "ann"}})
	w.must(err)
	w.must(w.Drain(w.ctx, store.DrainNode{Node: "a", Reason: "to copy", Actor: "ann"}))
}

func inMemory(now func() time.Time) storecopy.Store { return memory.New(memory.Options{Now: now}) }

// apart is a store with a separate history, both in memory.
func apart(t *testing.T) func(func() time.Time) storecopy.Store {
	return func(now func() time.Time) storecopy.Store {
		o := memory.Options{Now: now}
		s, err := joined.New(t.Context(), memory.NewControl(o), memory.New(o), joined.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func inFile(t *testing.T) func(now func() time.Time) storecopy.Store {
	return func(now func() time.Time) storecopy.Store {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "belfry.db"), sqlite.Options{Now: now, Guard: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
}

func copied(t *testing.T, from, to storecopy.Store, o storecopy.Options) storecopy.Result {
	t.Helper()
	r, err := storecopy.Copy(t.Context(), from, to, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A store copied through other stores arrives unchanged.
func TestCopyTakesEverythingAlong(t *testing.T) {
	w := newWorld(t, inMemory)
	w.live()
	w.leave()
	copyAlong(t, w, inFile(t), apart(t), inMemory)
}

func TestCopyTakesTheKeyOfARetriedRunOnce(t *testing.T) {
	w := newWorld(t, inMemory)
	w.join()
	j := w.put("name: a\nschedule: {cron: '* * * * *'}\nrun: {shell: 'true'}\npolicy: {retry: {attempts: 2}}")
	got, err := w.Trigger(w.ctx, []store.TriggerItem{{ID: w.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: "once", Actor: "ann", Session: w.node.ID}})
	w.must(err)
	w.run(store.Attempt{Job: j.Definition.UID, Run: got[0].Run, Number: 1, Token: w.id()}, job.OutcomeFailed, "") // it will be retried
	w.leave()
	if r := copied(t, w.Store, inMemory(w.clock), storecopy.Options{From: "a store"}); r.Keys != 1 || r.Attempts != 1 || r.Ready != 1 {
		t.Errorf("got %+v", r)
	}
}

// copyAlong copies a store to others, one after another.
func copyAlong(t *testing.T, w *world, opens ...func(func() time.Time) storecopy.Store) {
	from := w.Store
	for i, open := range opens {
		to := open(w.clock)
		r := copied(t, from, to, storecopy.Options{From: fmt.Sprint("store ", i)})
		if r.Jobs != 3 || r.Revisions != 4 || r.Ready != 4 || r.Attempts != 3 || r.Chunks != 2 || r.Calendars != 1 || r.Pools != 1 || r.Tokens != 1 || r.Keys != 1 || r.Audit < 9 {
			t.Errorf("copy %d: %+v", i, r)
		}
		again := copied(t, from, to, storecopy.Options{From: fmt.Sprint("store ", i)})
		if again.Written != 0 || again.Digest != r.Digest {
			t.Errorf("copied again: %+v", again)
		}
		from = to
	}
	windows, err := from.Documents(w.ctx, job.KindWindow)
	w.must(err)
	if len(windows) != 1 || windows[0].Window.Match.Labels["team"] != "none" {
		t.Errorf("of windows there are %+v", windows)
	}
	// The last store is used: planned runs run once, and a repeated request makes no second run.
	w.Store = from
	a, err := store.JobNamed(w.ctx, w, "default", "a")
	w.must(err)
	got, err := w.Trigger(w.ctx, []store.TriggerItem{{ID: w.id(), Job: a.Definition.UID, Kind: job.RunByHand, Key: "once", Actor: "ann"}})
	w.must(err)
	if got[0].Made {
		t.Error("a request with the key of one before the copy has made another run")
	}
	w.must(w.Drain(w.ctx, store.DrainNode{Node: "a", Undo: true, Actor: "ann"}))
	w.now = w.now.Add(time.Minute)
	w.join()
	if len(w.node.Absences) != 1 {
		t.Errorf("the first node knows of the absences %v, want the time of the copy", w.node.Absences)
	}
	q, err := store.JobNamed(w.ctx, w, "default", "q")
	w.must(err)
	if want := start.Add(2 * time.Minute); !q.Cursor.Equal(want) {
		t.Errorf("q is planned until %s, want %s", q.Cursor, want)
	}
	runs, err := w.ListActive(w.ctx, store.ActiveQuery{Job: q.Definition.UID, Limit: 10})
	w.must(err)
	if len(runs) != 1 {
		t.Fatalf("q has %d unfinished runs, want the one that was planned", len(runs))
	}
	token := runs[0].Present()
	token.Token = w.id()
	w.run(token, job.OutcomeSucceeded, "")
	list, err := w.Revisions(w.ctx, a.Definition.UID, 0, 10)
	w.must(err)
	if len(list) != 2 || list[0].Actor != "ann" || list[1].Definition.Run.Shell == list[0].Definition.Run.Shell {
		t.Errorf("the revisions of a are %+v", list)
	}
}

func TestCopyIsRefusedWhileSomethingRuns(t *testing.T) {
	w := newWorld(t, inMemory)
	w.live()
	to := inMemory(w.clock)
	if _, err := storecopy.Copy(t.Context(), w, to, storecopy.Options{}); !errors.Is(err, storecopy.ErrActive) {
		t.Fatalf("with a live node: %v", err)
	}
	// With leave it is copied again after the node has stopped.
	copied(t, w, to, storecopy.Options{Active: true})
	q, err := store.JobNamed(w.ctx, w, "default", "q")
	w.must(err)
	w.must(w.DeleteJob(w.ctx, store.DeleteJob{UID: q.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
	w.put("name: q\nrun: {shell: 'echo another'}") // the name of a job that the target still has
	after, err := store.JobNamed(w.ctx, w, "default", "after")
	w.must(err)
	runs, err := w.ListActive(w.ctx, store.ActiveQuery{Job: after.Definition.UID, Limit: 1})
	w.must(err)
	_, err = w.Cancel(w.ctx, runs[0].ID, "ann", "the target still has it")
	w.must(err)
	plain := w.put("name: plain\nschedule: {cron: '* * * * *'}\nrun: {shell: 'true'}")
	w.must(w.Drain(w.ctx, store.DrainNode{Node: "a", Undo: true, Actor: "ann"}))
	w.now = start.Add(3 * time.Minute)
	w.must(w.Renew(w.ctx, w.node.ID, store.Load{}))
	attempt := w.plan(plain, 3)[0]
	if _, err := w.Claim(w.ctx, w.node.ID, []store.Attempt{attempt}); err != nil {
		t.Fatal(err)
	}
	w.must(w.Leave(w.ctx, w.node.ID))
	w.now = start.Add(4 * time.Minute)
	if _, err := storecopy.Copy(t.Context(), w, to, storecopy.Options{}); !errors.Is(err, storecopy.ErrActive) {
		t.Fatalf("with a running run: %v", err)
	}
	copied(t, w, to, storecopy.Options{Active: true})
	if again, err := store.JobNamed(t.Context(), to, "default", "q"); err != nil || again.Definition.UID == q.Definition.UID {
		t.Errorf("q is still the deleted job: %v", err)
	}
	// Running runs are lost in the target, once a node there has waited long enough.
	w.Store = to
	w.join()
	for range 20 {
		w.now = w.now.Add(5 * time.Second)
		w.must(w.Renew(w.ctx, w.node.ID, store.Load{}))
	}
	lost, err := to.Lost(t.Context(), 10)
	w.must(err)
	if len(lost) != 1 || lost[0].Run != attempt.Run {
		t.Errorf("lost are %v, want %s", lost, attempt.Run)
	}
}

func TestCopyRefusesAForeignTarget(t *testing.T) {
	w := newWorld(t, inMemory)
	w.live()
	w.leave()
	w.now = w.now.Add(time.Minute)
	other := newWorld(t, inMemory)
	other.put("name: other\nrun: {shell: 'true'}")
	if _, err := storecopy.Copy(t.Context(), w, other, storecopy.Options{}); !errors.Is(err, storecopy.ErrOther) {
		t.Errorf("into a store with a job: %v", err)
	}
	if _, err := storecopy.Copy(t.Context(), w, w, storecopy.Options{}); !errors.Is(err, storecopy.ErrOther) {
		t.Errorf("into itself: %v", err)
	}
	to := inMemory(w.clock)
	copied(t, w, to, storecopy.Options{From: "w"})
	if _, err := storecopy.Copy(t.Context(), other, to, storecopy.Options{}); !errors.Is(err, storecopy.ErrOther) {
		t.Errorf("into a copy of another store: %v", err)
	}
}

func TestCopyIsRefusedIntoATargetThatWasUsedSince(t *testing.T) {
	for name, use := range map[string]func(w *world){
		"a job was planned": func(w *world) {
			a, err := store.JobNamed(w.ctx, w, "default", "a")
			w.must(err)
			w.join()
			w.plan(a, 3)
			w.leave()
		},
		"a job was added": func(w *world) { w.put("name: new\nrun: {shell: 'true'}") },
		"a node is live":  func(w *world) { w.join() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, inMemory)
			w.live()
			w.leave()
			w.now = start.Add(3 * time.Minute)
			from, to := w.Store, inMemory(w.clock)
			copied(t, from, to, storecopy.Options{})
			w.Store = to
			use(w)
			if _, err := storecopy.Copy(t.Context(), from, to, storecopy.Options{}); !errors.Is(err, storecopy.ErrOther) && !errors.Is(err, storecopy.ErrActive) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCopyContinuesWhereItWasKilled(t *testing.T) {
	w := newWorld(t, inMemory)
	w.live()
	w.leave()
	whole := copied(t, w, inMemory(w.clock), storecopy.Options{})
	// It is killed before each of its writes.
	for at := 1; ; at++ {
		to := &killed{Store: inMemory(w.clock), after: at}
		_, err := storecopy.Copy(t.Context(), w, to, storecopy.Options{})
		if err == nil {
			if at < 8 {
				t.Errorf("a copy has %d writes", at)
			}
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if r := copied(t, w, to.Store, storecopy.Options{}); r.Digest != whole.Digest {
			t.Errorf("continued after write %d: digest %s, want %s", at, r.Digest, whole.Digest)
		}
	}
}

// The target knows handed-over requests by their number, so that it accepts their results.
func TestCopyTakesHandoversAlong(t *testing.T) {
	w := newWorld(t, inMemory)
	plain := w.put("name: plain\nschedule: {cron: '* * * * *'}\nrun: {shell: 'true'}")
	w.join()
	w.now = start.Add(3 * time.Minute)
	w.must(w.Renew(w.ctx, w.node.ID, store.Load{}))
	a := w.plan(plain, 3)[0]
	_, err := w.Claim(w.ctx, w.node.ID, []store.Attempt{a})
	w.must(err)
	number, err := w.Numbers(w.ctx, 10, 1000)
	w.must(err)
	handed, err := w.HandOver(w.ctx, w.node.ID, []store.Handover{{Number: number, Attempt: a, Kind: "stub", To: "someone", About: "{}", Timeout: time.Hour}})
	w.must(err)
	if handed[0] != store.Handed {
		t.Fatalf("handed over: %d", handed[0])
	}
	w.must(w.Leave(w.ctx, w.node.ID))
	w.must(w.End(w.ctx, w.node.ID))
	to := inMemory(w.clock)
	copied(t, w, to, storecopy.Options{Active: true})
	copied(t, w, to, storecopy.Options{Active: true}) // a repetition changes nothing
	known, err := to.Handovers(w.ctx, store.HandoverQuery{Numbers: []int64{number}, Limit: store.MaxBatch})
	w.must(err)
	if len(known) != 1 || known[0].Attempt != a || known[0].About != "{}" || known[0].IsOver() {
		t.Fatalf("the target knows %+v", known)
	}
	if next, err := to.Numbers(w.ctx, 1, 0); err != nil || next != 1010 {
		t.Errorf("the next number is %d, %v", next, err)
	}
	done, err := to.Finish(w.ctx, job.ID{}, []store.Result{{Attempt: known[0].Attempt, Outcome: job.OutcomeSucceeded}})
	if err != nil || !done[0].Accepted {
		t.Errorf("its result: %+v, %v", done, err)
	}
}

func TestCopyKeepsEndsOfAStoppedSourceBeforeItTakesMessagesAlong(t *testing.T) {
	for _, live := range []bool{false, true} {
		w, kept := newWorld(t, inMemory), 0
		w.put("name: plain\nschedule: {cron: '* * * * *'}\nrun: {shell: 'true'}")
		if live {
			_, err := w.Join(w.ctx, store.Session{ID: job.ID{1}, Node: "n", Machine: "m"})
			w.must(err)
		}
		o := storecopy.Options{Active: true, KeepEnds: func(ctx context.Context) error {
			kept++
			_, err := w.PutNote(ctx, store.Note{Name: notification.GroupNotes + "x/1", Text: []byte("{}")})
			return err
		}}
		to := inMemory(w.clock)
		r := copied(t, w, to, o)
		list, err := to.Notes(w.ctx, "", "", 10)
		w.must(err)
		if want := map[bool]int{false: 1}[live]; kept != want || len(list) != want || r.Notes != want {
			t.Errorf("live %v: ends are kept %d times, and of %d notes %d are in the target, want %d", live, kept, r.Notes, len(list), want)
		}
		o.Dry = true
		if copied(t, w, nil, o); kept > 1 {
			t.Error("a dry run keeps ends")
		}
		o = storecopy.Options{KeepEnds: func(context.Context) error { return store.ErrDamaged }}
		if _, err := storecopy.Copy(w.ctx, w, to, o); !live && !errors.Is(err, store.ErrDamaged) {
			t.Errorf("ends that cannot be kept: %v", err)
		}
	}
}

func TestCopyTakesMessagesThatWaitAlong(t *testing.T) {
	w := newWorld(t, inMemory)
	put := func(s store.Notes, name, text string, version int64) {
		t.Helper()
		_, err := s.PutNote(w.ctx, store.Note{Name: name, Version: version, Text: []byte(text)})
		w.must(err)
	}
	w.put("name: plain\nschedule: {cron: '* * * * *'}\nrun: {shell: 'true'}")
	put(w, notification.LeaseNote, `{"node": "a"}`, 0)
	put(w, notification.ChannelNotes+"x", `{"sent": 7}`, 0)
	for i := range 450 {
		put(w, fmt.Sprintf("%sx/%03d", notification.GroupNotes, i), `{"news": 1}`, 0)
	}
	to := inMemory(w.clock)
	put(to, notification.ChannelNotes+"x", `{"sent": 6}`, 0) // from an earlier copy
	put(to, notification.ChannelNotes+"gone", `{"sent": 1}`, 0)
	if r := copied(t, w, to, storecopy.Options{}); r.Notes != 451 {
		t.Errorf("%d notes are copied", r.Notes)
	}
	list := func() (texts []string) {
		for after := ""; ; {
			page, err := to.Notes(w.ctx, "", after, 100)
			w.must(err)
			for _, n := range page {
				texts, after = append(texts, n.Name+" "+string(n.Text)), n.Name
			}
			if len(page) < 100 {
				return texts
			}
		}
	}
	if got := list(); len(got) != 451 || got[0] != notification.ChannelNotes+`x {"sent": 7}` || got[450] != notification.GroupNotes+`x/449 {"news": 1}` {
		t.Errorf("the target has %d notes: %.3q", len(got), got)
	}
	if r := copied(t, w, to, storecopy.Options{}); r.Written != 0 {
		t.Errorf("a second copy has written %d", r.Written)
	}
}
