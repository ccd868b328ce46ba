package planner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// How the table comes to agree with the store: the changes of all jobs are read as they
// come, cursors where another planner has moved them, and now and then both are compared.

const (
	// page is how many changed jobs, and how many cursors of jobs that were another's, are
	// read before something else is done.
	page = 5000

	// compareEvery is how often the table is compared with the store, which counts its
	// jobs for it: a second of its work where there are a million.
	compareEvery = time.Minute
	// compareAgain is how soon after what differs: what has changed meanwhile was read.
	compareAgain = 5 * time.Second
	// lostMax is how much of what a store has acknowledged before it failed may be lost, as
	// in a failover to a standby that was behind: what was planned in that time is looked at
	// again.
	lostMax = time.Minute
)

// refresh reads the jobs that have changed, and takes note of the partitions that it has.
func (p *Planner) refresh(ctx context.Context) error {
	partitions, begun := p.Partitions(), p.since > 0
	next, err := p.readJobs(ctx, store.AllPartitions, p.since, nil)
	if err != nil {
		return err
	}
	p.since = next
	p.mu.Lock()
	was := p.mine
	p.mine = partitions
	p.mu.Unlock()
	if begun && partitions != was {
		p.gain(partitions.Without(was))
	}
	if begun && !p.failedAt.IsZero() {
		if err := p.doubt(ctx, p.failedAt.Add(-lostMax)); err != nil {
			return err
		}
		p.failedAt = time.Time{}
	}
	return nil
}

// doubt reads again how far the jobs are planned that this node has planned beyond a
// moment: the store was away, and may have lost that. Whether it has lost changes of
// jobs is seen soon.
func (p *Planner) doubt(ctx context.Context, moment time.Time) error {
	p.compared = time.Now().Add(compareAgain - compareEvery)
	var uids []job.ID
	p.mu.Lock()
	all, noted := len(p.table.entries), map[uint32]bool{}
	for _, i := range p.gained {
		noted[i] = true // to be read all the same
	}
	p.mu.Unlock()
	for from := 0; from < all; from += sliceMax {
		p.mu.Lock()
		for i := from; i < min(all, from+sliceMax); i++ {
			if e := &p.table.entries[i]; e.cursor > moment.UnixNano() && p.mine.Has(job.Partition(e.uid)) && !noted[uint32(i)] {
				uids = append(uids, e.uid)
			}
		}
		p.mu.Unlock()
	}
	for part := range slices.Chunk(uids, store.MaxBatch) {
		if err := p.readCursors(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// gain takes note of the jobs of partitions that were another's whose cursors are to be
// read, and forgets those of partitions that are another's now. All else that the table
// has of them was read as it changed, and so was the cursor of each that has had nothing
// to plan since: that is most of a million jobs that are due once a day, some hours after
// the start of a node.
func (p *Planner) gain(partitions store.Partitions) {
	type urgent struct {
		at    int64 // when it is due next
		entry uint32
	}
	var list []urgent
	now, memo := p.Now(), &memo{}
	planned := now.Add(p.LookAhead + store.PlanSlack).UnixNano() // no planner has planned further
	p.mu.Lock()
	all := len(p.table.entries)
	if partitions == (store.Partitions{}) {
		all = 0
	}
	p.mu.Unlock()
	for from := 0; from < all; from += sliceMax {
		p.mu.Lock()
		for i := from; i < min(all, from+sliceMax); i++ {
			if e := &p.table.entries[i]; e.next <= planned && partitions.Has(job.Partition(e.uid)) {
				list = append(list, urgent{p.table.search(uint32(i), now.UnixNano(), memo), uint32(i)})
			}
		}
		p.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b urgent) int { return cmp.Compare(a.at, b.at) })
	p.mu.Lock()
	defer p.mu.Unlock()
	gained := make([]uint32, 0, len(list)+len(p.gained))
	for _, u := range list {
		gained = append(gained, u.entry)
	}
	for _, i := range p.gained {
		if p.mine.Has(job.Partition(p.table.entries[i].uid)) {
			gained = append(gained, i)
		}
	}
	p.gained = gained
}

// readGained reads how far some of the jobs of partitions that were another's are
// planned.
func (p *Planner) readGained(ctx context.Context) error {
	for range page / store.MaxBatch {
		p.mu.Lock()
		n := min(len(p.gained), store.MaxBatch)
		uids := make([]job.ID, 0, n)
		for _, i := range p.gained[:n] {
			uids = append(uids, p.table.entries[i].uid)
		}
		p.mu.Unlock()
		if n == 0 {
			return nil
		}
		if err := p.readCursors(ctx, uids); err != nil {
			return err
		}
		p.mu.Lock()
		if p.gained = p.gained[n:]; len(p.gained) == 0 {
			p.gained = nil
		}
		p.mu.Unlock()
	}
	return nil
}

// readCursors reads how far other planners have planned jobs. One with
// another epoch is about to be read as a whole.
func (p *Planner) readCursors(ctx context.Context, uids []job.ID) error {
	if len(uids) == 0 {
		return nil
	}
	list, err := p.Store.Cursors(ctx, uids)
	if err != nil {
		return fmt.Errorf("read how far jobs are planned: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range list {
		i, ok := p.table.byUID[c.UID]
		if !ok || p.table.entries[i].epoch != c.Epoch {
			continue
		}
		e := &p.table.entries[i]
		e.cursor, e.planned = c.Cursor.UnixNano(), uint32(c.Planned)
		p.table.schedule(i)
	}
	return nil
}

// behind returns how many jobs there are of which it is not known how far they are
// planned.
func (p *Planner) behind() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.gained)
}

// counted is the answer of the store to a comparison.
type counted struct {
	sums [job.Partitions]store.PartitionSummary
	err  error
}

// compare finds out whether the table has what the store has. It has, but for jobs that
// were deleted so long ago, while this node could not read, that nothing tells of them
// any more: those go. Nothing waits for the store to count.
func (p *Planner) compare(ctx context.Context) error {
	if p.compared.IsZero() {
		p.compared = time.Now() // all was just read
	}
	select {
	case c := <-p.counting:
		p.counting, p.compared = nil, time.Now()
		if c.err != nil {
			p.Log.Warn("cannot verify that all changes of jobs were read; retrying", "error", c.err)
			return nil //nolint:nilerr // logged, and counted again later
		}
		return p.compareWith(ctx, &c.sums)
	default:
	}
	if p.counting == nil && time.Since(p.compared) >= compareEvery {
		p.changing = store.Partitions{}
		answer := make(chan counted, 1) // never closed
		p.counting = answer
		p.work.Go(func() {
			var c counted
			c.sums, c.err = p.Store.Summary(ctx)
			answer <- c
		})
	}
	return nil
}

// compareWith reads partitions again that have differed from what was counted twice in a
// row. Those in which jobs have changed meanwhile are left to a later comparison: while many
// jobs are created all partitions differ, and to read them all takes longer each time.
func (p *Planner) compareWith(ctx context.Context, sums *[job.Partitions]store.PartitionSummary) error {
	var differ store.Partitions
	p.mu.Lock()
	for partition, sum := range sums {
		if sum != p.table.sums[partition] {
			differ.Add(uint8(partition))
		}
	}
	p.mu.Unlock()
	differ = differ.Without(p.changing)
	once := differ.Without(p.doubtful)
	differ = differ.Without(once)
	if p.doubtful = once; once != (store.Partitions{}) {
		p.compared = time.Now().Add(compareAgain - compareEvery)
	}
	if differ == (store.Partitions{}) {
		return nil
	}
	// What differs is read whole, and what is in it is right.
	read := map[job.ID]bool{}
	if _, err := p.readJobs(ctx, differ, 0, func(j *store.PlannedJob) { read[j.UID] = true }); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, i := range p.table.byUID {
		if differ.Has(job.Partition(uid)) && !read[uid] {
			p.table.remove(i)
		}
	}
	return nil
}

// readJobs takes over the jobs that were changed after a place in the feed, and
// returns the place to continue from. each, which may be nil, is called for every job.
func (p *Planner) readJobs(ctx context.Context, partitions store.Partitions, since int64, each func(*store.PlannedJob)) (next int64, err error) {
	for read := false; ; read = true {
		changed, next, err := p.Store.JobsChanged(ctx, partitions, since, page)
		if err != nil {
			return 0, fmt.Errorf("read changed jobs: %w", err)
		}
		// They are read after the jobs: what a job names is among them, and what is
		// changed by then changes the job again.
		if len(changed) > 0 && (!read || p.newCalendars(changed)) {
			if err := p.readCalendars(ctx); err != nil {
				return 0, err
			}
		}
		p.mu.Lock()
		for i := range changed {
			p.changing.Add(job.Partition(changed[i].UID))
			p.table.put(changed[i], p.compile)
			if each != nil {
				each(&changed[i])
			}
		}
		p.mu.Unlock()
		since = next
		if len(changed) < page {
			return since, nil
		}
	}
}

// newCalendars tells whether jobs name calendars in a way that was not seen yet.
func (p *Planner) newCalendars(jobs []store.PlannedJob) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(jobs, func(j store.PlannedJob) bool {
		_, known := p.table.byText[j.Timing]
		return !known && engine.NamesCalendars(j.Timing)
	})
}

func (p *Planner) readCalendars(ctx context.Context) error {
	list, err := p.Store.Calendars(ctx)
	if err != nil {
		return fmt.Errorf("read calendars: %w", err)
	}
	calendars := make(map[string]*job.Calendar, len(list))
	for _, c := range list {
		calendars[c.FullName()] = c
	}
	p.mu.Lock()
	p.calendars = calendars
	p.mu.Unlock()
	return nil
}

// compile reads the timing that jobs share. One that cannot be compiled, which
// validation should have refused, is not planned and delays no other job.
func (p *Planner) compile(text string) timing {
	t, where, err := engine.CompileTiming(text, func(namespace, name string) *job.Calendar {
		return p.calendars[namespace+"/"+name]
	})
	if err != nil {
		p.Log.Error("cannot plan a schedule", "timing", text, "error", err)
		return timing{broken: err.Error()}
	}
	return timing{engine: t, where: where}
}
