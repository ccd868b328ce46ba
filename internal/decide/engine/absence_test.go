package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestSessionsKnowEarlierAbsences(t *testing.T) {
	now := at(t, "2026-11-20T12:00:00Z")
	ago := func(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }
	worker := []string{store.RoleWorker}
	for _, c := range []struct {
		name    string
		joining store.Session
		others  []store.Session
		want    string // seconds ago
	}{
		{"no node before", store.Session{Roles: worker}, nil, ""},
		{"another one is live", store.Session{Roles: worker}, []store.Session{{Roles: worker, Renewed: ago(1)}, {Roles: worker, Renewed: ago(100)}}, ""},
		{"all are silent", store.Session{Roles: worker}, []store.Session{{Roles: worker, Renewed: ago(90)}, {Roles: worker, Renewed: ago(100)}}, "90"},
		{"the last one has left", store.Session{Roles: worker}, []store.Session{{Roles: worker, Renewed: ago(10), Leaving: true, Left: ago(70)}}, "70"},
		{"it takes the place of one that was live", store.Session{Roles: worker, Predecessors: []job.ID{{7}}}, []store.Session{{ID: job.ID{7}, Roles: worker, Renewed: ago(1)}}, "1"},
		{"one that serves the API is live", store.Session{Roles: worker}, []store.Session{{Roles: []string{store.RoleAPI}, Renewed: ago(1)}, {Roles: worker, Renewed: ago(90)}}, "90"},
		{"it serves the API alone", store.Session{Roles: []string{store.RoleAPI}}, []store.Session{{Roles: worker, Renewed: ago(90)}}, ""},
		{"it plans alone", store.Session{Roles: []string{store.RolePlanner}}, []store.Session{{Roles: worker, Renewed: ago(90)}}, "90"},
		{"others know more", store.Session{Roles: worker}, []store.Session{
			{Roles: worker, Renewed: ago(90), Absences: []store.Absence{{From: ago(500), To: ago(400)}}},
			{Roles: worker, Renewed: ago(95), Absences: []store.Absence{{From: ago(500), To: ago(400)}}},
		}, "500 90"},
	} {
		others := make([]*store.Session, len(c.others))
		for i := range c.others {
			others[i] = &c.others[i]
		}
		var got []string
		for _, a := range Absences(&c.joining, others, now) {
			got = append(got, fmt.Sprint(int(now.Sub(a.From).Seconds())))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: got %q, want %q", c.name, text, c.want)
		}
	}
}

func TestAbsenceBeginsWhenTheLastNodeStopsTakingRuns(t *testing.T) {
	for _, c := range []struct {
		name    string
		renewed []time.Duration // before and after the node leaves
		leaves  time.Duration
		from    time.Duration
	}{
		{"it was live until it left", []time.Duration{10 * time.Second, 12 * time.Second}, 13 * time.Second, 13 * time.Second},
		{"its last runs took some time", []time.Duration{12 * time.Second, 15 * time.Second, 40 * time.Second}, 13 * time.Second, 13 * time.Second},
		{"it was silent before it left", []time.Duration{12 * time.Second}, 80 * time.Second, 12 * time.Second},
		{"it stood still, woke up, left and was renewed", []time.Duration{12 * time.Second, 81 * time.Second}, 80 * time.Second, 12 * time.Second},
		{"it was renewed before it left", []time.Duration{12 * time.Second, 79 * time.Second}, 80 * time.Second, 80 * time.Second},
	} {
		w, _ := cell(t, "schedule: {cron: '* * * * *'}")
		began, id := w.now, w.sessions[0].ID
		do := func(after time.Duration, op Operation) {
			t.Helper()
			w.now = began.Add(after)
			changes, err := w.do(op)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			for _, s := range changes.Sessions {
				w.sessions = slices.DeleteFunc(w.sessions, func(o store.Session) bool { return o.ID == s.ID })
				w.sessions = append(w.sessions, *s)
			}
		}
		left := false
		for _, at := range append(c.renewed, time.Hour) {
			if !left && at > c.leaves {
				do(c.leaves, &Leave{Session: id})
				left = true
			}
			if at < time.Hour {
				do(at, &Renewal{Session: id})
			}
		}
		joining := &Join{Session: store.Session{ID: job.ID{3}, Node: "b", Roles: []string{store.RoleWorker}}}
		do(3*time.Minute, joining)
		want := []store.Absence{{From: began.Add(c.from), To: w.now}}
		if got := joining.Session.Absences; !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", c.name, got, want)
		}
	}
}

func TestTheLastSignOfLifeIsKept(t *testing.T) {
	ending := store.Session{ID: job.ID{2}, Roles: []string{store.RoleWorker}, Renewed: time.Unix(100, 0), Leaving: true, Left: time.Unix(101, 0)}
	for _, c := range []struct {
		name    string
		renewed int64 // of another session
		leaving bool
		roles   []string
		kept    bool
	}{
		{"another one was renewed since", 102, false, ending.Roles, false},
		{"another one may have died before", 99, false, ending.Roles, true},
		{"another one leaves too", 102, true, ending.Roles, true},
		{"another one is silent", 90, false, ending.Roles, true},
		{"another one serves the API alone", 102, false, []string{store.RoleAPI}, true},
	} {
		other := store.Session{ID: job.ID{3}, Roles: c.roles, Renewed: time.Unix(c.renewed, 0), Leaving: c.leaving}
		if isKept := RemembersEnd(&ending, []*store.Session{&ending, &other}, time.Unix(103, 0)); isKept != c.kept {
			t.Errorf("%s: kept: %t", c.name, isKept)
		}
	}
}

// Settling runs of a lost node depends on its last renewal, which the next joining node must not
// forget.
func TestJoinKeepsAllSessions(t *testing.T) {
	w, _ := cell(t, "schedule: {cron: '* * * * *'}")
	w.sessions[0].Leaving, w.sessions[0].Left = true, w.now
	b := NewBatch(w.now.Add(30*time.Second), lookAhead, 0)
	op := &Join{Session: store.Session{ID: job.ID{3}, Node: "b", DataDir: "/b", Roles: []string{store.RoleWorker}}}
	b.AddSession(&w.sessions[0])
	b.AddOver(w.sessions[0].ID)
	if err := op.Decide(b); err != nil {
		t.Fatal(err)
	}
	if c := b.Changes(); len(c.Ended) > 0 || len(op.Session.Predecessors) > 0 {
		t.Errorf("ended %v, predecessors %v", c.Ended, op.Session.Predecessors)
	}
}

// A node that could not reach the store for a while was not absent.
func TestKeptSessionMeansNoAbsence(t *testing.T) {
	now := at(t, "2026-11-20T12:00:00Z")
	roles := []string{store.RoleWorker}
	knows := store.Session{Roles: roles, Joined: now, Renewed: now.Add(time.Second), Absences: []store.Absence{{From: now.Add(-time.Minute), To: now}}}
	session := store.Session{Roles: roles, Joined: now.Add(-time.Hour), Renewed: now.Add(2 * time.Second)}
	silent := store.Session{Roles: roles, Joined: now.Add(-time.Hour), Renewed: now.Add(-time.Minute)}
	leaving, left := session, session
	leaving.Leaving, leaving.Left = true, now.Add(time.Second)
	left.Leaving, left.Left = true, now.Add(-time.Minute)
	for _, c := range []struct {
		name  string
		other store.Session
		want  int
	}{{"kept", session, 0}, {"kept, and leaving since", leaving, 0}, {"silent", silent, 1}, {"kept by one that had left", left, 1}} {
		if got := AbsencesOf([]store.Session{knows, c.other}); len(got) != c.want {
			t.Errorf("%s: %d absences, want %d", c.name, len(got), c.want)
		}
	}
}

// TestOccurrencesOfAnAbsenceFollowTheMissedPolicy combines occurrences planned before an absence and
// after it. Of those due in the absence, the policy latest runs the latest, none runs it only if it
// was due within OnTime of the end, and all runs every one.
func TestOccurrencesOfAnAbsenceFollowTheMissedPolicy(t *testing.T) {
	const seed = 5
	random := rand.New(rand.NewPCG(seed, 1))
	for n := range 3000 {
		timing := Timing{
			UID: job.ID{byte(n), byte(n >> 8)}, Planned: true, LateBy: -1, MissedLimit: 10_000,
			Schedule: parse(t, []string{"* * * * * *", "*/5 * * * * *", "*/7 * * * * *", "*/20 * * * * *", "* * * * *", "*/3 * * * *"}[random.IntN(6)]),
			Missed:   []job.Missed{job.MissedNone, job.MissedLatest, job.MissedAll}[random.IntN(3)],
		}
		if random.IntN(3) == 0 {
			timing.Jitter = time.Duration(random.IntN(4000)) * time.Millisecond
		}
		if random.IntN(3) == 0 {
			timing.Spread = time.Duration(random.IntN(90)) * time.Second
		}
		from := at(t, "2026-11-20T12:00:00Z").Add(time.Duration(random.IntN(100_000)) * time.Millisecond)
		gap := store.Absence{From: from, To: from.Add(time.Duration(random.IntN(200_000)) * time.Millisecond)}
		absences := []store.Absence{gap}

		begin := timing.Begin(from)
		before := timing.Decide(Progress{Cursor: begin}, from, time.Duration(random.IntN(15_000))*time.Millisecond, Most{10_000, 10_000})
		runs := map[time.Time]string{}
		for _, o := range before.Due {
			runs[o.Due] = "runs"
			if reason, yes := SettledByMissed(timing.Missed, o.Due, o.NextDue, absences); yes {
				runs[o.Due] = reason.String()
			}
		}
		back := gap.To.Add(time.Duration(random.IntN(20_000)) * time.Millisecond) // when a planner plans again
		progress := Progress{Cursor: before.To}
		for {
			d := timing.Decide(progress, back, 0, Most{1 + random.IntN(20), 1 + random.IntN(20)}, absences...)
			for _, s := range d.Missed {
				for o := range cron.Between(timing.Schedule, s.First.Add(-1), s.Last) {
					runs[timing.dueAt(o)] = s.Reason.String()
				}
			}
			for _, o := range d.Due {
				if _, yes := SettledByMissed(timing.Missed, o.Due, o.NextDue, absences); yes {
					t.Fatalf("%s is planned after the absence, and its claim says that it was missed", o.Due)
				}
				runs[o.Due] = "runs"
			}
			if d.To.Equal(progress.Cursor) {
				break
			}
			progress = Progress{Cursor: d.To, CatchUp: d.CatchUp}
		}

		fresh := lastOf(gap.From, gap.To.Add(-OnTime))
		var window []time.Time // due times that the policy settles
		var last time.Time     // the latest due time before the first node returned
		for o := range cron.Between(timing.Schedule, begin, back) {
			due := timing.dueAt(o)
			what, isSet := runs[due]
			if !due.After(gap.To) {
				last = lastOf(last, due)
			}
			switch {
			case due.After(back):
			case !isSet:
				t.Fatalf("what is due at %s is nowhere", due)
			case gap.Has(due):
				window = append(window, due)
			case what != "runs":
				t.Fatalf("policy %s, absence from %s to %s: what is due at %s does not run: %s", timing.Missed, gap.From, gap.To, due, what)
			}
		}
		for _, due := range window {
			isLast := due.Equal(last)
			wants := timing.Missed == job.MissedAll || isLast && (timing.Missed == job.MissedLatest || !due.Before(fresh))
			if what := runs[due]; (what == "runs") != wants {
				t.Fatalf("policy %s, absence from %s to %s, %d occurrences: the one due at %s: %q, wants to run: %t",
					timing.Missed, gap.From, gap.To, len(window), due, what, wants)
			} else if !wants && !strings.HasPrefix(what, reasonOf(gap).String()) {
				t.Fatalf("absence from %s to %s: missed because %s", gap.From, gap.To, what)
			}
		}
	}
}
