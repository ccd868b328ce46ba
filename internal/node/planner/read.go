package planner

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/planqueue"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The updates of the table from the store: the planner reads all changes of jobs, cursors
// that another planner has moved, and compares both at intervals.

const (
	// page bounds the changed jobs, and the cursors moved by other planners, that one read returns.
	page = 5000

	// compareEvery is how often the table is compared with the store, unless counting its jobs, a
	// second of the store's work for a million, would take more than one part in compareShare of its
	// time.
	compareEvery = time.Minute
	compareShare = 100
	// compareDiffering is that share while the table differs, which it does at any count while jobs
	// are changed all the time.
	compareDiffering = 10
	// compareMax bounds that interval by the time that tombstones are kept.
	compareMax = time.Hour
	// compareAgain is the shortest delay before differences are checked again: changes in the
	// meantime have been read by then.
	compareAgain = 5 * time.Second
)

// refresh reads the changed jobs, and updates its partitions.
func (p *Planner) refresh(ctx context.Context) error {
	partitions := p.Partitions()
	next, err := p.readJobs(ctx, store.AllPartitions, p.since, nil)
	if err != nil {
		return err
	}
	p.since = next
	p.ask(func(queue *planqueue.Queue) {
		if queue.Take(partitions, p.Now()) {
			p.compareSoon()
		}
	})
	return nil
}

// compareSoon schedules a comparison of the table with the store.
func (p *Planner) compareSoon() {
	p.compareAt = time.Now().Add(max(compareAgain, min(compareDiffering*p.counted, compareMax)))
}

// compareIn returns the delay after a comparison for which the store counted for a time.
func compareIn(counted time.Duration) time.Duration {
	return min(max(compareEvery, compareShare*counted), compareMax)
}

// readCursors reads unknown cursors of at most n jobs.
func (p *Planner) readCursors(ctx context.Context, n int) error {
	for ; n > 0; n -= store.MaxBatch {
		var uids []job.ID
		p.ask(func(queue *planqueue.Queue) { uids = queue.ToRead() })
		if len(uids) == 0 {
			return nil
		}
		list, err := p.Store.Cursors(ctx, uids)
		if err != nil {
			return fmt.Errorf("read how far jobs are planned: %w", err)
		}
		p.ask(func(queue *planqueue.Queue) { queue.Read(len(uids), list) })
	}
	return nil
}

// comparison is the answer of the store to a comparison.
type comparison struct {
	sums [job.Partitions]store.PartitionSummary
	took time.Duration
	err  error
}

// compare compares the table with the store. They only differ in jobs that were deleted while this
// node could not read, and whose tombstones have expired: these are removed. The comparison runs in
// the background.
func (p *Planner) compare(ctx context.Context) error {
	if p.compareAt.IsZero() {
		p.compareAt = time.Now().Add(compareEvery) // all jobs were just read
	}
	select {
	case c := <-p.counting:
		p.counting, p.counted, p.compareAt = nil, c.took, time.Now().Add(compareIn(c.took))
		if c.err != nil {
			p.Log.Warn("cannot verify that all changes of jobs were read; retrying", "error", c.err)
			return nil //nolint:nilerr // logged, and counted again later
		}
		return p.compareWith(ctx, &c.sums)
	default:
	}
	if p.counting == nil && time.Until(p.compareAt) <= 0 {
		p.ask((*planqueue.Queue).Count)
		answer := make(chan comparison, 1) // never closed
		p.counting = answer
		p.work.Go(func() {
			var c comparison
			began := time.Now()
			c.sums, c.err = p.Store.Summary(ctx)
			c.took = time.Since(began)
			answer <- c
		})
	}
	return nil
}

// compareWith rereads partitions that differ from the store's count.
func (p *Planner) compareWith(ctx context.Context, sums *[job.Partitions]store.PartitionSummary) error {
	var twice, once store.Partitions
	p.ask(func(queue *planqueue.Queue) { twice, once = queue.Differs(sums) })
	if once != (store.Partitions{}) {
		p.compareSoon()
	}
	if twice == (store.Partitions{}) {
		return nil
	}
	// Differing partitions are read completely, and the store is right.
	read := map[job.ID]bool{}
	if _, err := p.readJobs(ctx, twice, 0, read); err != nil {
		return err
	}
	p.ask(func(queue *planqueue.Queue) { queue.Keep(twice, read) })
	return nil
}

// readJobs reads the jobs changed after a position in the feed, and returns the next
// position. It records them in read, unless that is nil.
func (p *Planner) readJobs(ctx context.Context, partitions store.Partitions, since int64, read map[job.ID]bool) (next int64, err error) {
	for first := true; ; first = false {
		changed, next, err := p.Store.JobsChanged(ctx, partitions, since, page)
		if err != nil {
			return 0, fmt.Errorf("read changed jobs: %w", err)
		}
		// Calendars are read after the jobs that name them; a later change of a calendar
		// changes the job again.
		news := first && len(changed) > 0
		p.ask(func(queue *planqueue.Queue) { news = news || queue.NamesCalendars(changed) })
		if news {
			list, err := store.Calendars(ctx, p.Store)
			if err != nil {
				return 0, fmt.Errorf("read calendars: %w", err)
			}
			p.ask(func(queue *planqueue.Queue) { queue.SetCalendars(list) })
		}
		var broken map[string]error
		p.ask(func(queue *planqueue.Queue) { broken = queue.Put(changed) })
		for text, err := range broken {
			p.Log.Error("cannot plan a schedule", "timing", text, "error", err)
		}
		for i := range changed {
			if read != nil {
				read[changed[i].UID] = true
			}
		}
		since = next
		if len(changed) < page {
			return since, nil
		}
	}
}
