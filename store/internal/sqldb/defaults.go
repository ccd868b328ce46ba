package sqldb

import (
	"context"
	"encoding/json"
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
// server does, which goes by the old defaults for a job until its turn has come. Those
// of the latest start count: whoever has begun with others before leaves off.

const (
	// defaultsName is the setting that holds the defaults that all jobs have. It
	// is not there while some may have others: then begunName holds those that they
	// are given.
	defaultsName = "defaults"
	begunName    = "defaults begun"
	// refillLook is how many jobs are looked at in one read, some tens of
	// milliseconds, and refillMax how many are locked and written in one call, some
	// milliseconds for which their runs wait.
	refillLook = 500
	refillMax  = 100
)

var settings = &Table{Name: "settings", Key: 1, Columns: []Column{{"name", Text}, {"value", Text}}}

// applyDefaults begins to fill in the defaults, and waits for a bounded time.
func (s *Store) applyDefaults(ctx, background context.Context, most time.Duration, tell func(store.Refill)) error {
	text, err := json.Marshal(s.defaults)
	if err != nil {
		return err
	}
	d := &defaults{s: s, text: string(text)}
	same := false
	err = s.read(ctx, func(t *tx) error {
		have, _, err := t.defaults()
		same = have == d.text
		return err
	})
	if err != nil || same {
		return err
	}
	r := &refill.Refill{Jobs: d, Tell: tell}
	over, err := r.Start(ctx, most)
	if err == nil && !over {
		s.work.Go(func() { r.Rest(background, s.closed) })
	}
	return err
}

// defaults returns those that all jobs have, and those that they are given; "" if there
// are none.
func (t *tx) defaults() (have, begun string, err error) {
	q := t.query("select name, value from settings where name in (?*)", []string{defaultsName, begunName})
	for q.Next() {
		if q.Text() == defaultsName {
			have = q.Text()
		} else {
			begun = q.Text()
		}
	}
	return have, begun, q.Err()
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
	err = d.s.read(ctx, func(t *tx) error {
		t.Whole()
		all, err := t.number("select count(*) from jobs where live is not null")
		n = int(all)
		return err
	})
	return n, err
}

// Part implements refill.Jobs.
func (d *defaults) Part(ctx context.Context) (p refill.Part, err error) {
	if !d.begun {
		if err := d.set(ctx, "", d.text); err != nil {
			return p, err
		}
		d.begun = true
	}
	changed, last, looked, err := d.look(ctx)
	if err != nil {
		return p, err
	}
	if looked == 0 {
		return p, d.end(ctx)
	}
	for some := range slices.Chunk(changed, refillMax) {
		err := d.s.write(ctx, func(t *tx) error {
			if err := d.lock(t); err != nil {
				return err
			}
			return t.refill(some)
		})
		if err != nil {
			return p, err
		}
	}
	d.last = last
	return refill.Part{Looked: looked, Changed: len(changed), More: true}, nil
}

// set writes the settings, "" for none.
func (d *defaults) set(ctx context.Context, have, begun string) error {
	return d.s.write(ctx, func(t *tx) error {
		if err := t.lock(defaultsLock); err != nil {
			return err
		}
		return t.setDefaults(have, begun)
	})
}

func (t *tx) setDefaults(have, begun string) error {
	b := settings.rows(2)
	for name, value := range map[string]string{defaultsName: have, begunName: begun} {
		if value == "" {
			if err := t.exec("delete from settings where name = ?", name); err != nil {
				return err
			}
		} else {
			b.text(name).text(value)
		}
	}
	return t.writeRows(Upsert, b)
}

// end notes that all jobs have the defaults.
func (d *defaults) end(ctx context.Context) error {
	return d.s.write(ctx, func(t *tx) error {
		if err := d.lock(t); err != nil {
			return err
		}
		return t.setDefaults(d.text, "")
	})
}

// lock returns refill.ErrSuperseded if other defaults count by now. Others that count
// later wait until the transaction has ended.
func (d *defaults) lock(t *tx) error {
	if err := t.lock(defaultsLock); err != nil {
		return err
	}
	return d.still(t)
}

func (d *defaults) still(t *tx) error {
	// Another one with the same may have been faster.
	if have, begun, err := t.defaults(); err != nil || begun == d.text || have == d.text {
		return err
	}
	return refill.ErrSuperseded
}

// given is what the defaults decide about the row of a job.
type given struct {
	timing                     string
	keepRuns, keepFor, keepOut int64
	removeAt                   int64
}

const selectGivenColumns = "j.uid, j.timing, j.keep_runs, j.keep_for, j.keep_output, j.remove_at"

func scanGiven(q reader) (uid job.ID, g given) {
	uid = q.id()
	return uid, given{q.Text(), q.Int(), q.Int(), q.Int(), q.Int()}
}

// givenTo returns what it is to be.
func (r *jobRow) givenTo(calendars map[string]*job.Calendar) (g given, err error) {
	if keep := r.doc.filled.Policy.Keep; keep != nil {
		g.keepRuns, g.keepFor, g.keepOut = int64(keep.Runs), int64(keep.For), int64(keep.OutputFor)
	}
	g.removeAt = columns.Nanos(r.RemoveAt())
	g.timing, err = engine.TimingText(r.doc.filled, columns.Finder(calendars))
	return g, err
}

// look returns which of the next jobs are to be written again, the last of all that it
// has looked at, and how many those are.
func (d *defaults) look(ctx context.Context) (changed []job.ID, last job.ID, looked int, err error) {
	err = d.s.read(ctx, func(t *tx) error {
		changed, last, looked = nil, d.last, 0
		if err := d.still(t); err != nil {
			return err
		}
		calendars, err := t.calendars()
		if err != nil {
			return err
		}
		q := t.query("select "+selectGivenColumns+", s.state, s.completed, "+documentColumns+` from jobs j join job_state s on s.uid = j.uid
			where j.uid > ? and s.uid > ? and j.live is not null order by j.uid limit ?`, idOf(d.last), idOf(d.last), int64(refillLook))
		for q.Next() {
			uid, is := scanGiven(q)
			r := &jobRow{Job: &engine.Job{State: columns.JobStates.Value(q.Int()), Completed: q.time()}}
			if _, r.doc, err = d.s.scanDocument(q); err != nil {
				q.Close()
				return err
			}
			r.Policy = r.doc.policy
			want, err := r.givenTo(calendars)
			if err != nil {
				q.Close()
				return err
			}
			if is != want {
				changed = append(changed, uid)
			}
			looked, last = looked+1, uid
		}
		return q.Err()
	})
	return changed, last, looked, err
}

// refill writes again what depends on the defaults. A job whose schedule means something
// else by them begins a new epoch.
func (t *tx) refill(list []job.ID) error {
	st, err := t.step(about{jobs: list, whole: list})
	if err != nil {
		return err
	}
	calendars, err := t.calendars()
	if err != nil {
		return err
	}
	q := t.query("select "+selectGivenColumns+" from jobs j where j.uid in (?*)", set(list))
	is := make(map[job.ID]given, len(list))
	for q.Next() {
		uid, g := scanGiven(q)
		is[uid] = g
	}
	if err := q.Err(); err != nil {
		return err
	}
	for _, uid := range list {
		l := st.jobs[uid]
		if l == nil || l.Deleted {
			continue
		}
		want, err := l.givenTo(calendars)
		if err != nil {
			return fmt.Errorf("job %s: %w", l.doc.filled.FullName(), err)
		}
		if is[uid] == want {
			continue // another one was faster
		}
		l.timing = want.timing
		if !engine.SameOccurrences(is[uid].timing, want.timing) {
			st.b.Reschedule(l.Job, l.doc.filled, columns.Finder(calendars))
		} else {
			st.touched = append(st.touched, l)
		}
	}
	return st.write()
}
