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
	"github.com/belfry-cron/belfry/store/internal/refill"
)

// The planner's data of a job includes the defaults, so a start with other defaults
// rewrites it. All jobs are examined, in the order of their uids: for some seconds before
// the start continues, and for the rest in the background, while the server uses the old
// defaults for a job until its turn. The defaults of the latest start count: an earlier
// process with other ones stops.

const (
	// DefaultsName is the setting with the defaults of all jobs. It does not exist while
	// some jobs may have others: then begunName holds the new ones.
	DefaultsName = "defaults"
	begunName    = "defaults begun"
	// refillLook is the number of jobs examined in one read, some tens of milliseconds, and
	// refillMax the number locked and written in one call, some milliseconds for which
	// their runs wait.
	refillLook = 500
	refillMax  = 100
)

var settings = &Table{Name: "settings", Key: 1, Columns: []Column{{"name", Text}, {"value", Text}}}

// applyDefaults begins to apply the defaults, and waits for a bounded time.
func (s *backend) applyDefaults(ctx, background context.Context, most time.Duration, tell func(store.Refill)) error {
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

// defaults returns the defaults of all jobs, and the new ones that are being applied; "" for none.
func (t *tx) defaults() (have, begun string, err error) {
	q := t.query("select name, value from settings where name in (?*)", []string{DefaultsName, begunName})
	for q.Next() {
		if q.Text() == DefaultsName {
			have = q.Text()
		} else {
			begun = q.Text()
		}
	}
	return have, begun, q.Err()
}

// defaults is the progress of applying the defaults of this start.
type defaults struct {
	s     *backend
	text  string // they, as JSON
	begun bool
	last  job.ID // last examined job
}

// Count implements [refill.Jobs].
func (d *defaults) Count(ctx context.Context) (n int, err error) {
	err = d.s.read(ctx, func(t *tx) error {
		t.Whole()
		all, err := t.number("select count(*) from jobs where live is not null")
		n = int(all)
		return err
	})
	return n, err
}

// Part implements [refill.Jobs].
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
		o := ledger.Order{Items: len(some), Kept: &retryState{refits: true, first: d.lock}}
		if err := d.s.ledger.Do(ctx, o, &engine.Refit{Jobs: some}); err != nil {
			return p, err
		}
	}
	d.last = last
	return refill.Part{Looked: looked, Changed: len(changed), More: true}, nil
}

// set writes both settings, "" for none.
func (d *defaults) set(ctx context.Context, have, begun string) error {
	return d.s.write(ctx, func(t *tx) error {
		if err := t.lock(defaultsLock); err != nil {
			return err
		}
		return t.setDefaults(have, begun)
	})
}

func (t *tx) setDefaults(have, begun string) error {
	b := t.rows(settings, 2)
	for name, value := range map[string]string{DefaultsName: have, begunName: begun} {
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

// lock returns [refill.ErrSuperseded] if a start with other defaults has begun. A later start with
// other defaults waits until the transaction has ended.
func (d *defaults) lock(t *tx) error {
	if err := t.lock(defaultsLock); err != nil {
		return err
	}
	return d.still(t)
}

func (d *defaults) still(t *tx) error {
	// Another process with the same defaults may have been faster.
	if have, begun, err := t.defaults(); err != nil || begun == d.text || have == d.text {
		return err
	}
	return refill.ErrSuperseded
}

// dependentPart is the part of a job's row that depends on the defaults.
type dependentPart struct {
	timing                     string
	keepRuns, keepFor, keepOut int64
	removeAt                   int64
}

// look returns the next jobs to rewrite, the last examined job, and the number examined.
func (d *defaults) look(ctx context.Context) (changed []job.ID, last job.ID, looked int, err error) {
	err = d.s.read(ctx, func(t *tx) error {
		changed, last, looked = nil, d.last, 0
		if err := d.still(t); err != nil {
			return err
		}
		calendars, err := t.documents(job.KindCalendar)
		if err != nil {
			return err
		}
		q := t.query("select "+definitionColumns+`, j.keep_runs, j.keep_for, j.keep_output, j.remove_at, s.state, s.completed
			from jobs j join job_state s on s.uid = j.uid
			where j.uid > ? and s.uid > ? and j.live is not null order by j.uid limit ?`, idOf(d.last), idOf(d.last), int64(refillLook))
		for ; q.Next(); looked++ {
			uid, definition, err := d.s.scanDefinition(q)
			if err != nil {
				q.Close()
				return err
			}
			document := definition.document
			is := dependentPart{document.Timing, q.Int(), q.Int(), q.Int(), q.Int()}
			j := engine.Job{Policy: document.Policy, State: columns.JobStates.Value(q.Int()), Completed: q.time()}
			keep := keepOf(document)
			want := dependentPart{"", int64(keep.Runs), int64(keep.For), int64(keep.OutputFor), columns.Nanos(j.RemoveAt())}
			if want.timing, err = engine.TimingText(document.Filled, calendars.Calendar); err != nil {
				q.Close()
				return err
			}
			if last = uid; is != want {
				changed = append(changed, uid)
			}
		}
		return q.Err()
	})
	return changed, last, looked, err
}
