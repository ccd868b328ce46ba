package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// What planners read of a job has the defaults filled in, so that it is written
// again after a start with others. All jobs are looked at, in the order of their
// uids: for some seconds before the start goes on, and for the rest beside what the
// server does, which goes by the old defaults for a job until its turn has come.

const (
	// defaultsName is the setting that holds the defaults that all jobs have. It
	// is not there while some may have others.
	defaultsName = "defaults"
	// defaultsTime is how long a start is held up: enough for some ten thousand
	// jobs.
	defaultsTime = 3 * time.Second
	// refillLook is how many jobs are looked at in one read, some tens of
	// milliseconds, and refillMax how many are written in one call, some
	// milliseconds of the writer.
	refillLook = 500
	refillMax  = 50
	// refillAgain is how long after a failure it is tried again.
	refillAgain = time.Second
)

// applyDefaults begins to fill in the defaults, and waits for a bounded time.
func (s *Store) applyDefaults(ctx context.Context, most time.Duration) error {
	text, err := json.Marshal(s.defaults)
	if err != nil {
		return err
	}
	old := ""
	err = s.read(ctx, func(c *conn) error {
		q := c.stmt("select value from settings where name = ?").bindText(defaultsName)
		for q.next() {
			old = q.text()
		}
		return q.err()
	})
	if err != nil || old == string(text) {
		return err
	}
	r := &refill{s: s, defaults: string(text)}
	for begun := time.Now(); time.Since(begun) < most; {
		more, err := r.part(ctx)
		if errors.Is(err, store.ErrNoSpace) {
			break // the server says so, and it is tried again
		}
		if err != nil {
			return fmt.Errorf("fill in other defaults: %w", err)
		}
		if !more {
			return nil
		}
	}
	s.background.Go(r.rest)
	return nil
}

// refill is how far the jobs have the defaults of this start.
type refill struct {
	s        *Store
	defaults string // as JSON
	begun    bool
	last     job.ID // that was looked at
}

// rest does what is left, in half of the time.
func (r *refill) rest() {
	for {
		begun := time.Now()
		more, err := r.part(context.Background())
		if err == nil && !more {
			return
		}
		pause := time.Since(begun)
		if err != nil {
			pause = refillAgain
		}
		select {
		case <-r.s.closed:
			return
		case <-time.After(pause):
		}
	}
}

// part looks at some jobs and writes those that the defaults give another meaning.
// It tells whether there are more.
func (r *refill) part(ctx context.Context) (more bool, err error) {
	if !r.begun {
		if err := r.set(ctx, "delete from settings where name = ? and value <> ?"); err != nil {
			return false, err
		}
		r.begun = true
	}
	changed, last, err := r.look(ctx)
	if err != nil {
		return false, err
	}
	if last == r.last {
		return false, r.set(ctx, "insert or replace into settings (name, value) values (?, ?)")
	}
	for some := range slices.Chunk(changed, refillMax) {
		if err := r.s.write(ctx, func(t *tx) error { return t.refill(some) }); err != nil {
			return false, err
		}
	}
	r.last = last
	return true, nil
}

// set writes the setting.
func (r *refill) set(ctx context.Context, text string) error {
	return r.s.write(ctx, func(t *tx) error { return t.stmt(text).bindText(defaultsName).bindText(r.defaults).exec() })
}

const selectFilled = `select j.uid, j.definition, coalesce(t.text, ''), s.keep_runs, s.keep_for, s.keep_output
	from jobs j cross join job_state s on s.uid = j.uid left join timings t on t.id = s.timing
	where j.uid > ? and j.live is not null order by j.uid limit ?`

// look returns which of the next jobs are to be written again, and the last of all
// that it has looked at.
func (r *refill) look(ctx context.Context) (changed []job.ID, last job.ID, err error) {
	last = r.last
	err = r.s.read(ctx, func(c *conn) error {
		calendars, err := readCalendars(c)
		if err != nil {
			return err
		}
		q := c.stmt(selectFilled).bindID(r.last).bindInt(refillLook)
		for q.next() {
			last = q.id()
			definition, err := columns.DecodeJob(q.view())
			if err != nil {
				q.rewind()
				return fmt.Errorf("definition of job %s: %w", last, err)
			}
			filled := definition.WithDefaults(r.s.defaults)
			text, err := engine.TimingText(filled, columns.Finder(calendars))
			if err != nil {
				q.rewind()
				return err
			}
			keep := keepOf(filled)
			if q.text() != text || int(q.int()) != keep.Runs || q.int() != int64(keep.For) || q.int() != int64(keep.OutputFor) {
				changed = append(changed, last)
			}
		}
		return q.err()
	})
	return changed, last, err
}

// keepOf returns what a job says itself about how long its history is kept.
func keepOf(filled *job.Job) job.Keep {
	if keep := filled.Policy.Keep; keep != nil {
		return *keep
	}
	return job.Keep{}
}

// refill writes again what depends on the defaults for some jobs. A job whose
// schedule means something else by them begins a new epoch.
func (t *tx) refill(list []job.ID) error {
	st, err := t.step(len(list))
	if err != nil {
		return err
	}
	for _, uid := range list {
		l, err := st.job(uid)
		if err != nil {
			return err
		}
		if l == nil || l.Deleted {
			continue
		}
		if err := errors.Join(st.waitingRuns(l, l.Policy), st.runsOf(uid)); err != nil {
			return err
		}
		was := timingText(st.conn, l.timing)
		if err := st.time(l.jobRow, ""); err != nil {
			return err
		}
		st.b.Refit(l.Job)
		if !engine.SameOccurrences(was, timingText(st.conn, l.timing)) {
			st.b.Reschedule(l.Job)
		} else if err := st.announce(l.jobRow); err != nil {
			return err
		}
	}
	return st.write()
}
