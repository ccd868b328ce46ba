package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
	"github.com/belfry-cron/belfry/store/internal/refill"
)

// The defaults of all jobs, and the new defaults while they are being applied.
const (
	defaultsKey      = "defaults"
	defaultsBegunKey = "defaults-begun"
)

// refillMax is how many jobs one step rewrites with new defaults.
const refillMax = 50

// ApplyDefaults updates the jobs of a store that was opened with new defaults: for some seconds
// before it returns, and then in the background. The returned function waits for the end.
func (b *Backend) ApplyDefaults(ctx context.Context, s *ledger.Control, tell func(store.Refill)) (wait func(), err error) {
	text, err := json.Marshal(b.opt.Defaults)
	if err != nil {
		return nil, err
	}
	d := &defaults{b: b, s: s, text: text}
	have, err := b.driver.Get(ctx, []string{defaultsKey})
	if err != nil {
		return nil, err
	}
	if bytes.Equal(have[0], text) {
		return func() {}, nil
	}
	r := &refill.Refill{Jobs: d, Tell: tell}
	over, err := r.Start(ctx, refill.StartMax)
	if err != nil || over {
		return func() {}, err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	closed := make(chan struct{})
	var rest sync.WaitGroup
	rest.Go(func() { r.Rest(background, closed) })
	return func() { close(closed); stop(); rest.Wait() }, nil
}

// defaults is the progress of giving jobs the defaults of this start.
type defaults struct {
	b     *Backend
	s     *ledger.Control
	text  []byte // they, as JSON
	begun bool
	last  string // name of the last examined job
}

// Count implements [refill.Jobs].
func (d *defaults) Count(ctx context.Context) (n int, err error) {
	err = d.b.read(ctx, func(s *state) { n = s.names.Len() })
	return n, err
}

// Part implements [refill.Jobs].
func (d *defaults) Part(ctx context.Context) (p refill.Part, err error) {
	if !d.begun {
		t := &Txn{Deletes: []string{defaultsKey}}
		t.put(defaultsBegunKey, d.text)
		if _, _, err := d.b.commit(ctx, t); err != nil {
			return p, err
		}
		d.begun = true
	}
	if err := d.still(ctx); err != nil {
		return p, err
	}
	var cells []*cell
	if err := d.b.read(ctx, func(s *state) {
		s.names.AscendGreaterOrEqual(jobName{full: d.last}, func(n jobName) bool {
			if n.full > d.last {
				cells = append(cells, s.cells[n.uid])
			}
			return len(cells) < refillMax
		})
	}); err != nil {
		return p, err
	}
	if len(cells) == 0 {
		t := &Txn{Deletes: []string{defaultsBegunKey}}
		t.put(defaultsKey, d.text)
		_, _, err := d.b.commit(ctx, t)
		return p, err
	}
	changed, err := d.changed(ctx, cells)
	if err != nil {
		return p, err
	}
	if len(changed) > 0 {
		if err := d.s.Do(ctx, ledger.Order{Items: len(changed)}, &engine.Refit{Jobs: changed}); err != nil {
			return p, err
		}
	}
	d.last = cells[len(cells)-1].job.FullName()
	return refill.Part{Looked: len(cells), Changed: len(changed), More: true}, nil
}

// still returns [refill.ErrSuperseded] once a start with other defaults has begun.
func (d *defaults) still(ctx context.Context) error {
	is, err := d.b.driver.Get(ctx, []string{defaultsBegunKey, defaultsKey})
	if err != nil || bytes.Equal(is[0], d.text) || bytes.Equal(is[1], d.text) {
		return err
	}
	return refill.ErrSuperseded
}

// changed returns jobs whose meaning changes with the defaults: jobs with other due times,
// and jobs with unfinished runs, whose limits may change.
func (d *defaults) changed(ctx context.Context, cells []*cell) (list []job.ID, err error) {
	jobs, err := d.b.jobsOf(ctx, cells)
	if err != nil {
		return nil, err
	}
	documents, err := d.b.Documents(ctx, job.KindCalendar)
	if err != nil {
		return nil, err
	}
	calendars := engine.Documents{}
	for _, d := range documents {
		calendars.Put(d)
	}
	for i, j := range jobs {
		if j == nil || j.Deleted {
			continue
		}
		timing, err := engine.TimingText(j.Document.Filled, calendars.Calendar)
		if err != nil {
			return nil, err
		}
		if timing != cells[i].timing || len(cells[i].runs)+cells[i].apart > 0 {
			list = append(list, j.UID)
		}
	}
	return list, nil
}
