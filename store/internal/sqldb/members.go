package sqldb

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// aboutsMax bounds the remembered sessions: more than there are at a time.
const aboutsMax = 10_000

// members returns all sessions by id, and the mark of the windows.
func (t *tx) members() (list []ledger.Member, windows string, err error) {
	q := t.query(selectSessions)
	list, windows = scanMembers(q)
	if err := q.Err(); err != nil {
		return nil, "", err
	}
	list, err = t.described(list)
	return list, windows, err
}

// selectSessions reads what changes about sessions, for scanMembers.
const selectSessions = `select s.id, s.joined, s.renewed, s.steady, s.before_gap, s.leaving, s.reaped, s.running, s.ready, s.unreported, s.clock_ahead,
	coalesce(d.since, 0), coalesce(d.made_by, ''), coalesce(d.reason, ''), coalesce((select value from settings where name = '` + windowsName + `'), '')
	from sessions s left join drains d on d.node = s.node order by s.id`

// scanMembers reads sessions that described completes, and the mark of the windows.
func scanMembers(q reader) (list []ledger.Member, windows string) {
	for q.Next() {
		row := ledger.Member{Session: store.Session{ID: q.id()}}
		row.Joined, row.Renewed, row.Steady, row.BeforeGap, row.Leaving, row.Over = q.time(), q.time(), q.time(), q.time(), q.bool(), q.bool()
		row.Load = store.Load{Running: int(q.Int()), Ready: int(q.Int()), Unreported: int(q.Int()), ClockAhead: time.Duration(q.Int())}
		if d := (store.Drain{Since: q.time(), By: q.Text(), Reason: q.Text()}); !d.Since.IsZero() {
			row.Drain = &d
		}
		windows = q.Text()
		list = append(list, row)
	}
	return list, windows
}

// described completes sessions with their immutable data, from the cache or the store. It
// omits sessions removed since scanMembers.
func (t *tx) described(list []ledger.Member) ([]ledger.Member, error) {
	abouts := make(map[job.ID]store.Session, len(list))
	var unknown []job.ID
	for i := range list {
		row := &list[i]
		about, ok := t.s.abouts.Get(row.ID)
		// A process that executes another version joins again, with a later time. While a
		// session leaves, another process may have written when it left.
		if ok && about.Joined.Equal(row.Joined) && !(row.Leaving && about.Left.IsZero()) {
			abouts[row.ID] = about
		} else {
			unknown = append(unknown, row.ID)
		}
	}
	if len(unknown) > 0 {
		q := t.query("select joined, about from sessions where id in (?*)", set(unknown))
		for q.Next() {
			joined := q.time()
			var about store.Session
			if err := json.Unmarshal(q.View(), &about); err != nil {
				q.Close()
				return nil, err
			}
			about.Joined = joined
			t.s.abouts.Put(about.ID, about, aboutsMax)
			abouts[about.ID] = about
		}
		if err := q.Err(); err != nil {
			return nil, err
		}
	}
	known := list[:0]
	for _, row := range list {
		about, ok := abouts[row.ID]
		if !ok {
			continue
		}
		about.Joined, about.Renewed, about.Leaving, about.Load, about.Drain = row.Joined, row.Renewed, row.Leaving, row.Load, row.Drain
		about.Steady, about.BeforeGap = row.Steady, row.BeforeGap
		row.Session = about
		known = append(known, row)
	}
	return known, nil
}

// Members implements [ledger.Backend].
func (s *backend) Members(ctx context.Context) (list []ledger.Member, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, _, err = t.members()
		return err
	})
	return list, err
}

var sessionRows = &Table{Name: "sessions", Key: 1, Columns: []Column{
	{"id", Blob}, {"node", Text}, {"machine", Text}, {"datadir", Text}, {"joined", Int}, {"renewed", Int}, {"steady", Int}, {"before_gap", Int},
	{"leaving", Int}, {"reaped", Int}, {"running", Int}, {"ready", Int}, {"unreported", Int}, {"clock_ahead", Int}, {"about", Text},
}}

// writeSessions writes sessions that begin or have changed.
func (st *step) writeSessions(list []*store.Session) error {
	b := st.rows(sessionRows, len(list))
	for _, s := range list {
		about := *s
		about.Joined, about.Renewed, about.Steady, about.BeforeGap = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		about.Leaving, about.Load, about.Drain = false, store.Load{}, nil
		text, err := json.Marshal(about)
		if err != nil {
			return err
		}
		st.s.abouts.Delete(s.ID)
		over := slices.ContainsFunc(st.sessions, func(m ledger.Member) bool { return m.ID == s.ID && m.Over })
		b.id(&s.ID).text(s.Node).text(s.Machine).text(s.DataDir).time(s.Joined).time(s.Renewed).time(s.Steady).time(s.BeforeGap)
		b.bool(s.Leaving).bool(over).int(int64(s.Load.Running)).int(int64(s.Load.Ready)).int(int64(s.Load.Unreported)).int(int64(s.Load.ClockAhead)).text(string(text))
	}
	return st.writeRows(Upsert, b)
}

var drainRows = &Table{Name: "drains", Key: 1, Columns: []Column{{"node", Text}, {"since", Int}, {"made_by", Text}, {"reason", Text}}}

// drains returns the drains of nodes.
func (t *tx) drains() (map[string]*store.Drain, error) {
	all := map[string]*store.Drain{}
	q := t.query("select node, since, made_by, reason from drains")
	for q.Next() {
		all[q.Text()] = &store.Drain{Since: q.time(), By: q.Text(), Reason: q.Text()}
	}
	return all, q.Err()
}

func (st *step) writeDrains(list []engine.NodeDrain) error {
	b := st.rows(drainRows, len(list))
	for _, d := range list {
		if d.Drain != nil {
			b.text(d.Node).time(d.Drain.Since).text(d.Drain.By).text(d.Drain.Reason)
		} else if err := st.exec("delete from drains where node = ?", d.Node); err != nil {
			return err
		}
	}
	return st.writeRows(Upsert, b)
}

// handOn unassigns the unclaimed runs of a session, to be placed again. It skips locked runs: with
// a backlog it would queue for the locks of all jobs. A run of a concurrent or later step keeps the
// session, which accepts nothing, and other nodes place or claim it as well.
func (s *backend) handOn(ctx context.Context, session job.ID) (err error) {
	for more := true; err == nil && more; {
		err = s.write(ctx, func(t *tx) error {
			text := "select id, job from active where session = ? and state = ? order by due, id limit ? for update skip locked"
			if s.caches() {
				text = "select a.id, a.job from active a join job_state s on s.uid = a.job where a.session = ? and a.state = ? order by a.due, a.id limit ? for update skip locked"
			}
			runs, err := t.refs(text, idOf(session), columns.States.Of(job.StateReady), int64(store.MaxBatch))
			if err != nil {
				return err
			}
			more = len(runs) == store.MaxBatch
			t.hint |= store.HintRuns
			ids, jobs := make([]job.ID, len(runs)), make([]job.ID, len(runs))
			for i, r := range runs {
				ids[i], jobs[i] = r.Run, r.Job
			}
			if s.caches() {
				if err := t.exec(setCachedBy, int64(0), set(jobs)); err != nil {
					return err
				}
			}
			return t.exec("update active set session = ? where id in (?*)", none, set(ids))
		})
	}
	return err
}
