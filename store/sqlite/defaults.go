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
	"github.com/belfry-cron/belfry/store/internal/refill"
)

// What planners read of a job has the defaults filled in, so that it is written
// again after a start with others. All jobs are looked at, in the order of their
// uids: for some seconds before the start goes on, and for the rest beside what the
// server does, which goes by the old defaults for a job until its turn has come.

const (
	// defaultsName is the setting that holds the defaults that all jobs have. It
	// is not there while some may have others.
	defaultsName = "defaults"
	// refillLook is how many jobs are looked at in one read, some tens of
	// milliseconds, and refillMax how many are written in one call, some
	// milliseconds of the writer.
	refillLook = 500
	refillMax  = 50
)

// applyDefaults begins to fill in the defaults, and waits for a bounded time.
func (s *Store) applyDefaults(ctx context.Context, most time.Duration, tell func(store.Refill)) error {
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
	r := &refill.Refill{Jobs: &defaults{s: s, text: string(text)}, Tell: tell}
	over, err := r.Start(ctx, most)
	if err == nil && !over {
		s.background.Go(func() { r.Rest(context.Background(), s.closed) })
	}
	return err
}

// defaults is how far the jobs have those of this start.
type defaults struct {
	s     *Store
	text  string // they, as JSON
	begun bool
	last  job.ID // that was looked at
}

// Count implements refill.Jobs.
func (d *defaults) Count(ctx context.Context) (n int, err error) {
	err = d.s.read(ctx, func(c *conn) error {
		q := c.stmt("select count(*) from jobs where live is not null")
		for q.next() {
			n = int(q.int())
		}
		return q.err()
	})
	return n, err
}

// Part implements refill.Jobs.
func (d *defaults) Part(ctx context.Context) (p refill.Part, err error) {
	if !d.begun {
		if err := d.set(ctx, "delete from settings where name = ? and value <> ?"); err != nil {
			return p, err
		}
		d.begun = true
	}
	changed, last, looked, err := d.look(ctx)
	if err != nil {
		return p, err
	}
	if looked == 0 {
		return p, d.set(ctx, "insert or replace into settings (name, value) values (?, ?)")
	}
	for some := range slices.Chunk(changed, refillMax) {
		if err := d.s.write(ctx, func(t *tx) error { return t.refill(some) }); err != nil {
			return p, err
		}
	}
	d.last = last
	return refill.Part{Looked: looked, Changed: len(changed), More: true}, nil
}

// set writes the setting.
func (d *defaults) set(ctx context.Context, text string) error {
	return d.s.write(ctx, func(t *tx) error { return t.stmt(text).bindText(defaultsName).bindText(d.text).exec() })
}

const selectFilled = `select j.uid, j.definition, coalesce(t.text, ''), s.keep_runs, s.keep_for, s.keep_output
	from jobs j cross join job_state s on s.uid = j.uid left join timings t on t.id = s.timing
	where j.uid > ? and j.live is not null order by j.uid limit ?`

// look returns which of the next jobs are to be written again, the last of all that it
// has looked at, and how many those are.
func (d *defaults) look(ctx context.Context) (changed []job.ID, last job.ID, looked int, err error) {
	last = d.last
	err = d.s.read(ctx, func(c *conn) error {
		calendars, err := readCalendars(c)
		if err != nil {
			return err
		}
		q := c.stmt(selectFilled).bindID(d.last).bindInt(refillLook)
		for q.next() {
			last, looked = q.id(), looked+1
			definition, err := columns.DecodeJob(q.view())
			if err != nil {
				q.rewind()
				return fmt.Errorf("definition of job %s: %w", last, err)
			}
			filled := definition.WithDefaults(d.s.defaults)
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
	return changed, last, looked, err
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
		was, err := timingText(st.conn, l.timing)
		if err != nil {
			return err
		}
		if err := st.time(l.jobRow, ""); err != nil {
			return err
		}
		is, err := timingText(st.conn, l.timing)
		if err != nil {
			return err
		}
		st.b.Refit(l.Job)
		if !engine.SameOccurrences(was, is) {
			if err := st.reschedule(l); err != nil {
				return err
			}
		} else if err := st.announce(l.jobRow); err != nil {
			return err
		}
	}
	return st.write()
}
