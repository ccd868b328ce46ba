package replica

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// documentsMax is the most cached definitions, at about three kilobytes each.
const documentsMax = 20_000

// documents caches definitions.
type documents struct {
	mu  sync.Mutex
	max int
	all map[string]*engine.Document
}

func (d *documents) init(most int) { d.max, d.all = most, map[string]*engine.Document{} }

func (d *documents) get(key string) *engine.Document {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all[key]
}

func (d *documents) put(key string, doc *engine.Document) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.all) >= d.max {
		for other := range d.all {
			delete(d.all, other)
			break
		}
	}
	d.all[key] = doc
}

// knownDocument returns the document of a job, or nil if it must be read.
func (b *Backend) knownDocument(c *cell) *engine.Document {
	if c.doc != nil {
		return c.doc
	}
	return b.docs.get(c.document)
}

// written is a stored definition.
type written struct {
	Actor      string          `json:"actor"`
	Changed    time.Time       `json:"changed"`
	Epoch      int64           `json:"epoch"`
	Before     []byte          `json:"before"` // key of the previous version
	Definition json.RawMessage `json:"definition"`
}

// newDefinition returns a unique key for a version of a definition: of two processes that
// create the same version at once, one is refused when it names its definition.
func newDefinition(uid job.ID, version int64) string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // crypto/rand does not fail
	return definitionsOf(uid) + big(version) + string(random[:])
}

// jobsOf returns jobs with their documents, for the step or the reader to own, in the order
// of their cells.
func (b *Backend) jobsOf(ctx context.Context, cells []*cell) ([]*engine.Job, error) {
	return b.copiesOf(ctx, cells, func() *engine.Job { return &engine.Job{} })
}

// copiesOf is jobsOf with jobs of a maker.
func (b *Backend) copiesOf(ctx context.Context, cells []*cell, newJob func() *engine.Job) ([]*engine.Job, error) {
	jobs := make([]*engine.Job, len(cells))
	var missing []string
	var at []int
	for i, c := range cells {
		if c == nil {
			continue
		}
		own := newJob()
		*own = c.job
		jobs[i] = own
		if doc := b.knownDocument(c); doc != nil && doc.Timing == c.timing {
			own.Document, own.Policy = doc, doc.Policy
			continue
		}
		missing, at = append(missing, c.document), append(at, i)
	}
	if len(missing) == 0 {
		return jobs, nil
	}
	values, err := b.driver.Get(ctx, missing)
	if err != nil {
		return nil, err
	}
	for n, i := range at {
		c := cells[i]
		if values[n] == nil {
			return nil, fmt.Errorf("%w: the definition of job %s is missing", store.ErrDamaged, c.job.FullName())
		}
		doc, err := b.document(values[n], c.timing)
		if err != nil {
			return nil, fmt.Errorf("%w: the definition of job %s: %w", store.ErrDamaged, c.job.FullName(), err)
		}
		b.docs.put(c.document, doc)
		jobs[i].Document, jobs[i].Policy = doc, doc.Policy
	}
	return jobs, nil
}

func (b *Backend) document(value []byte, timing string) (*engine.Document, error) {
	var w written
	if err := json.Unmarshal(value, &w); err != nil {
		return nil, err
	}
	definition, err := columns.DecodeJob(w.Definition)
	if err != nil {
		return nil, err
	}
	doc := engine.NewDocument(definition, definition.WithDefaults(b.opt.Defaults))
	doc.Text, doc.Timing, doc.Actor = w.Definition, timing, w.Actor
	return doc, nil
}

// cellsOf returns cells by uid, nil for unknown ones.
func (s *state) cellsOf(uids []job.ID) []*cell {
	cells := make([]*cell, len(uids))
	for i, uid := range uids {
		cells[i] = s.cells[uid]
	}
	return cells
}
