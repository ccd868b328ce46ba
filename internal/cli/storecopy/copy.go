// Package storecopy copies the content of a store to another one, of any kind, and checks a store
// for damage. Its steps are operations of package engine, which decides about jobs and runs.
package storecopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is a store that can execute operations of the engine: every store with a ledger.
type Store interface {
	store.Store
	Operate(ctx context.Context, op engine.Operation) error
	Document(definition *job.Job) (*engine.Document, error)
}

// The reasons to refuse a copy.
var (
	// ErrActive is returned while nodes are live or runs are running.
	ErrActive = errors.New("active")
	// ErrOther is returned for a target that holds other data.
	ErrOther = errors.New("the target holds something else")
	// ErrDiffers is returned if the target differs from its source after the copy.
	ErrDiffers = errors.New("the copy differs")
)

// Options configure a copy.
type Options struct {
	// Active allows nodes of the source to be live, and runs to be running.
	Active bool
	// Dry only counts what the source has. The target is nil.
	Dry bool
	// KeepEnds makes notifications of the source record ends that no server has noted. It is called
	// if no server is live, and may be nil.
	KeepEnds func(ctx context.Context) error
	// From names the source in the audit of the target, without a password.
	From string
	// Progress is called after each batch. May be nil.
	Progress func(stage string, done int)
}

// Counts are the numbers of items in a store.
type Counts struct {
	Jobs, Revisions          int
	Calendars, Pools, Tokens int
	Ready, Waiting, Running  int // unfinished runs
	Audit                    int
	Attempts, Chunks         int // of the history, and of its output
	Keys                     int // idempotency keys of the last 24 hours
	Notes                    int // of notifications that wait, and of their channels
	Nodes                    int // that are live
	LeftOut                  int // unfinished runs of deleted jobs, which never start
}

// Result is the result of a copy.
type Result struct {
	Counts
	// Written is how many items the target lacked before.
	Written int
	// Digest is the digest of both stores; "" if live nodes of the source prevented the comparison.
	Digest string
}

// The sizes of reads and writes.
const (
	jobsPage    = 100
	auditPage   = 100 // records have differences of definitions
	historyPage = store.MaxBatch
	chunksPage  = 32
	// outputBatch bounds the output of one append, in bytes: a request to etcd, less its frame.
	outputBatch = 1 << 20
)

// Copy makes a target equal to a source. It may be repeated, even after a kill: equal data is not
// written again.
func Copy(ctx context.Context, from, to Store, o Options) (Result, error) {
	if o.Progress == nil {
		o.Progress = func(string, int) {}
	}
	c := &copying{from: from, to: to, o: o}
	err := c.run(ctx)
	return c.result, err
}

type copying struct {
	from, to Store
	o        Options
	result   Result
	now      time.Time // of the source
	others   engine.Kept
	jobs     map[job.ID]bool // of the source
	keys     []engine.Key
	keyed    map[engine.Identity]bool // identities in keys
	audit    auditPlace
}

func (c *copying) run(ctx context.Context) error {
	if err := c.examine(ctx); err != nil {
		return err
	}
	if c.o.Dry {
		return c.count(ctx)
	}
	if c.result.Nodes+c.result.Running > 0 && !c.o.Active {
		return fmt.Errorf("%w: %s and %s in the source", ErrActive, plural(c.result.Nodes, "live node"), plural(c.result.Running, "running run"))
	}
	if c.result.Nodes == 0 && c.o.KeepEnds != nil {
		if err := c.o.KeepEnds(ctx); err != nil {
			return fmt.Errorf("notifications of the source: %w", err)
		}
	}
	for _, stage := range []func(context.Context) error{c.mark, c.rest, c.removeJobs, c.copyJobs, c.copyAudit, c.copyHistory, c.copyKeys, c.copyNotes} {
		if err := stage(ctx); err != nil {
			return err
		}
	}
	if c.result.Nodes > 0 {
		return nil // the source changes during the read
	}
	return c.verify(ctx)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// examine reads what the source has besides jobs and history, and who uses it.
func (c *copying) examine(ctx context.Context) error {
	var err error
	if c.now, err = c.from.Now(ctx); err != nil {
		return err
	}
	survey := engine.Survey{All: true}
	if err := c.from.Operate(ctx, &survey); err != nil {
		return err
	}
	c.others = survey.Kept
	c.result.Calendars, c.result.Pools, c.result.Tokens = len(c.others.Documents[job.KindCalendar]), len(c.others.Documents[job.KindPool]), len(c.others.Tokens)
	c.result.Nodes = liveNodes(c.others, c.now, nil)
	c.jobs = map[job.ID]bool{}
	err = eachJob(ctx, c.from, func(list []*store.Job) error {
		for _, j := range list {
			c.jobs[j.Definition.UID] = true
		}
		c.o.Progress("counting jobs", len(c.jobs))
		return nil
	})
	if err != nil {
		return err
	}
	notes, err := notesOf(ctx, c.from)
	if err != nil {
		return err
	}
	c.result.Jobs, c.result.Notes = len(c.jobs), len(notes)
	return eachRun(ctx, c.from, func(list []store.Run) error {
		for i := range list {
			r := &list[i]
			switch {
			case !c.jobs[r.JobUID]:
				c.result.LeftOut++
			case r.State == job.StateRunning:
				c.result.Running++
			case r.State == job.StateWaiting:
				c.result.Waiting++
			default:
				c.result.Ready++
			}
			c.addKey(&r.Run)
		}
		return nil
	})
}

// liveNodes counts the sessions that are members, except sessions of another store.
func liveNodes(k engine.Kept, now time.Time, without map[job.ID]store.Session) (n int) {
	for id, s := range k.Sessions {
		if _, known := without[id]; !known && !k.Over[id] && s.Left.IsZero() && s.Live(now) {
			n++
		}
	}
	return n
}

// eachJob calls f with pages of all undeleted jobs.
func eachJob(ctx context.Context, s Store, f func([]*store.Job) error) error {
	q := store.JobQuery{Limit: jobsPage}
	for {
		list, next, err := s.ListJobs(ctx, q)
		if err != nil {
			return err
		}
		if err := f(list); err != nil || next == "" {
			return err
		}
		q.After = next
	}
}

// eachRun calls f with pages of all unfinished runs.
func eachRun(ctx context.Context, s Store, f func([]store.Run) error) error {
	q := store.ActiveQuery{Limit: store.MaxBatch}
	for {
		list, err := s.ListActive(ctx, q)
		if err != nil {
			return err
		}
		if err := f(list); err != nil || len(list) < q.Limit {
			return err
		}
		last := &list[len(list)-1]
		q.After = last.Ref()
	}
}

// addKey copies the identity of a requested run, so that a request repeated after the copy makes no
// second run. Stores cannot list keys, but each belongs to a run.
func (c *copying) addKey(r *job.Run) {
	if r.Kind != job.RunByHand && r.Kind != job.RunBackfill || r.Key == "" {
		return
	}
	if expires := r.ID.Time().UTC().Add(store.KeyLife); expires.After(c.now) {
		id := engine.Identity{Job: r.JobUID, Kind: r.Kind, Key: r.Key, Shard: r.Shard}
		if c.keyed[id] {
			return // by another attempt
		}
		if c.keyed == nil {
			c.keyed = map[engine.Identity]bool{}
		}
		c.keyed[id] = true
		c.keys = append(c.keys, engine.Key{Identity: id, Run: r.ID, Expires: expires})
	}
}

// rest copies the data outside jobs.
func (c *copying) rest(ctx context.Context) error {
	return c.adopt(ctx, &engine.Adopt{Kept: &c.others})
}

// surplusMax is the most records of a job that the target has and the source lacks: a store has no
// more unfinished runs of a job.
const surplusMax = 100_000

// changesMax bounds the changes of an adoption: each record is written once, and extra ones in the
// target are removed.
func changesMax(op *engine.Adopt) int {
	most := surplusMax + len(op.Audit) + len(op.Keys)
	for i := range op.Cells {
		most += 1 + len(op.Cells[i].Runs) + len(op.Cells[i].Handovers) + surplusMax
	}
	if k := op.Kept; k != nil {
		for _, documents := range k.Documents {
			most += len(documents)
		}
		most += len(k.Tokens) + len(k.Drains) + len(k.Sessions) + len(k.Over) + 1
	}
	return most
}

// adopt makes steps until no change is left. They are bounded, since a target that drops writes would
// need endless ones.
func (c *copying) adopt(ctx context.Context, op *engine.Adopt) error {
	most, changed := changesMax(op), 0
	for {
		if changed > most {
			return fmt.Errorf("the target does not keep what is written to it: after %d changes, more than there are records, it still differs. Was it made by another version of Belfry, or does another program write to it?", changed)
		}
		if err := c.to.Operate(ctx, op); err != nil {
			if ahead := (engine.AheadError{}); errors.As(err, &ahead) {
				return fmt.Errorf("%w: it was used since it was copied to: %w", ErrOther, err)
			}
			return err
		}
		c.result.Written += op.Changed
		changed += op.Changed
		if !op.More {
			return nil
		}
	}
}

// removeJobs removes jobs that the source no longer has: other jobs may have their names.
func (c *copying) removeJobs(ctx context.Context) error {
	var gone []job.ID
	err := eachJob(ctx, c.to, func(list []*store.Job) error {
		for _, j := range list {
			if !c.jobs[j.Definition.UID] {
				gone = append(gone, j.Definition.UID)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, uid := range gone {
		for op := (engine.DeleteAdopted{Job: uid, More: true}); op.More; {
			if err := c.to.Operate(ctx, &op); err != nil {
				return err
			}
		}
		c.result.Written++
	}
	return nil
}

// copyJobs copies jobs with their revisions and unfinished runs.
func (c *copying) copyJobs(ctx context.Context) error {
	done := 0
	return eachJob(ctx, c.from, func(list []*store.Job) error {
		uids := make([]job.ID, len(list))
		for i, j := range list {
			uids[i] = j.Definition.UID
		}
		survey := engine.Survey{Jobs: uids}
		if err := c.from.Operate(ctx, &survey); err != nil {
			return err
		}
		known, err := c.to.JobsByUID(ctx, uids)
		if err != nil {
			return err
		}
		versions := map[job.ID]int64{}
		for i, j := range known {
			if j != nil {
				versions[uids[i]] = j.Definition.Version
			}
		}
		var rounds [][]engine.Adopted // the i-th has the i-th version of each job
		for i := range survey.Cells {
			cell := &survey.Cells[i]
			if cell.Job.Deleted {
				continue // since the page was read
			}
			ways, err := c.versions(ctx, cell, versions[cell.Job.UID])
			if err != nil {
				return fmt.Errorf("job %s: %w", cell.Job.FullName(), err)
			}
			for at, way := range ways {
				if at == len(rounds) {
					rounds = append(rounds, nil)
				}
				rounds[at] = append(rounds[at], way)
			}
		}
		for _, cells := range rounds {
			if err := c.adopt(ctx, &engine.Adopt{Cells: cells}); err != nil {
				return err
			}
		}
		done += len(list)
		c.o.Progress("jobs", done)
		return nil
	})
}

// versions returns the versions of a job to write, one after another: each leaves its revision.
func (c *copying) versions(ctx context.Context, cell *engine.Cell, known int64) (list []engine.Adopted, err error) {
	revisions, err := revisionsOf(ctx, c.from, cell.Job.UID, known)
	if err != nil {
		return nil, err
	}
	slices.Reverse(revisions)
	for i := range revisions {
		r := &revisions[i]
		d, err := c.document(r.Definition, r.Actor)
		if err != nil {
			return nil, err
		}
		past := engine.Adopted{Cell: *cell, Document: d, Past: true}
		past.Runs, past.Handovers = nil, nil
		past.Job.Version, past.Job.Changed = r.Version, r.Changed
		if r.Definition.Epoch > 0 {
			past.Job.Epoch = r.Definition.Epoch
		}
		list = append(list, past)
	}
	d, err := c.document(cell.Job.Document.Definition, cell.Job.Document.Actor)
	if err != nil {
		return nil, err
	}
	last := engine.Adopted{Cell: *cell, Document: d}
	if n := len(list); n > 0 && list[n-1].Job.Version == cell.Job.Version && list[n-1].Job.Changed.Equal(cell.Job.Changed) {
		last.Document, list = list[n-1].Document, list[:n-1]
	}
	return append(list, last), nil
}

func (c *copying) document(definition *job.Job, actor string) (*engine.Document, error) {
	d, err := c.to.Document(definition)
	if err == nil {
		d.Actor = actor
	}
	return d, err
}

// revisionsOf returns the definitions that a job had after a version, the latest first.
func revisionsOf(ctx context.Context, s Store, uid job.ID, behind int64) (all []store.Revision, err error) {
	var before int64
	for {
		page, err := s.Revisions(ctx, uid, before, jobsPage)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if page[i].Version <= behind {
				return all, nil
			}
			all = append(all, page[i])
		}
		if len(page) < jobsPage {
			return all, nil
		}
		before = page[len(page)-1].Version
	}
}

// copyKeys adds the identities of requests.
func (c *copying) copyKeys(ctx context.Context) error {
	c.result.Keys = len(c.keys)
	for some := range slices.Chunk(c.keys, jobsPage) {
		if err := c.to.Operate(ctx, &engine.Adopt{Keys: some}); err != nil {
			return err
		}
	}
	return nil
}

// count counts what examine has not.
func (c *copying) count(ctx context.Context) error {
	err := eachJob(ctx, c.from, func(list []*store.Job) error {
		for _, j := range list {
			revisions, err := revisionsOf(ctx, c.from, j.Definition.UID, 0)
			if err != nil {
				return err
			}
			c.result.Revisions += len(revisions)
		}
		return nil
	})
	if err != nil {
		return err
	}
	first, last, err := auditSpan(ctx, c.from)
	if err != nil {
		return err
	}
	if last > 0 {
		c.result.Audit = int(last - first + 1)
	}
	s := &stream{s: c.from}
	for {
		r, err := s.next(ctx)
		if err != nil || r == nil {
			return err
		}
		c.result.Attempts++
		if c.result.Attempts%historyPage == 0 {
			c.o.Progress("counting history", c.result.Attempts)
		}
	}
}

// isEmpty describes the content of a target that should be empty.
func isEmpty(ctx context.Context, s Store, k *engine.Kept) error {
	var holds []string
	jobs, _, err := s.ListJobs(ctx, store.JobQuery{Limit: 1})
	if err != nil {
		return err
	}
	records, _, err := s.Attempts(ctx, store.HistoryQuery{Limit: 1})
	if err != nil {
		return err
	}
	runs, err := s.ListActive(ctx, store.ActiveQuery{Limit: 1})
	if err != nil {
		return err
	}
	audit, _, err := s.Audit(ctx, store.AuditQuery{Limit: 1})
	if err != nil {
		return err
	}
	for _, one := range []struct {
		n    int
		what string
	}{
		{len(jobs), "jobs"}, {len(runs), "runs"}, {len(records), "history"}, {k.Documents.Len(), "documents"}, {len(k.Tokens), "tokens"}, {len(audit), "an audit"},
	} {
		if one.n > 0 {
			holds = append(holds, one.what)
		}
	}
	if len(holds) > 0 {
		return fmt.Errorf("%w: it has %s, and not from this source", ErrOther, strings.Join(holds, ", "))
	}
	return nil
}
