// Package planqueue makes the decisions of a planner: which jobs exist, how far each is planned,
// what to plan next, which jobs wait until the nodes have room, and where runs are placed. It is a
// value: the caller passes the time and the store's answers, and asks for the next actions. It
// reads no clock, calls no store and starts no goroutine; it is not safe for concurrent use.
//
// A turn begins with Collect, admits missed occurrences as far as the nodes have room (Admit), and
// is planned in batches (Next), each followed by Answered or Failed.
package planqueue

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// Every is the interval of a planner. It plans ahead, so that nothing waits for it but work
	// that wakes it.
	Every = 500 * time.Millisecond
	// runsMax is how many runs one call has, besides the runs of its last item: long calls delay
	// claims.
	runsMax = store.MaxBatch
	// occurrencesMax bounds the occurrences of a job per decision: a whole look-ahead at 10 ms, but
	// only a few if more jobs than a crowd are due, so that after a start no job waits until all
	// others are completely planned.
	occurrencesMax   = 2000
	occurrencesCrowd = 4
	crowd            = 2 * store.MaxBatch
	// LaneEntries is how many entries of a crowd are searched for entries of one stripe: enough for
	// about a batch.
	LaneEntries = runqueue.Stripes * store.MaxBatch
	// planAgainAt / planAgainOf is the part of the look-ahead below which a job is planned again,
	// for the whole of it: so a job that is due each second moves its cursor once for several runs.
	planAgainAt, planAgainOf = 2, 3
	// lostMax is the longest span of acknowledged writes that a failing store may lose, as
	// in a failover to a lagging standby: plans of that span are read again.
	lostMax = time.Minute
)

// Queue decides what a planner plans next. Use [New].
type Queue struct {
	// LookAhead is how far ahead runs are planned.
	LookAhead time.Duration
	table
	stripeOf  func(job.ID) int
	calendars map[string]*job.Calendar
	mine      store.Partitions // that it plans
	begun     bool             // Take was called before
	// asked is the moment up to which due entries have left the queue.
	asked int64
	// gained are entries whose cursors must be read, the most urgent first, because another
	// planner may have moved them, followed by doubted, whose moves the store may have
	// lost.
	gained, doubted []uint32
	// failedAt is since when the store may have lost plans; zero if it has not.
	failedAt time.Time
	// turn are the entries to plan; the first sent ones are in flight. With choice, a batch keeps
	// to one stripe.
	turn   []uint32
	sent   int
	most   int // occurrences of each
	choice bool

	backlog backlog
	// changing are the partitions with changed jobs since Count, and doubtful the partitions that
	// have differed once from the store's count.
	changing, doubtful store.Partitions
	// used is the use of nodes by jobs whose strategy depends on it.
	used map[job.ID]map[string]placement.Use
}

// New returns the queue of a planner with a look-ahead. stripeOf returns the stripe of a
// job, below [runqueue.Stripes].
func New(lookAhead time.Duration, stripeOf func(job.ID) int) *Queue {
	return &Queue{
		LookAhead: lookAhead, stripeOf: stripeOf, table: newTable(), used: map[job.ID]map[string]placement.Use{},
	}
}

// SetCalendars replaces the calendars.
func (t *Queue) SetCalendars(list []*job.Calendar) {
	t.calendars = make(map[string]*job.Calendar, len(list))
	for _, c := range list {
		t.calendars[c.FullName()] = c
	}
}

// NamesCalendars reports whether jobs name calendars in a new way: then the caller reads the
// calendars before it puts the jobs.
func (t *Queue) NamesCalendars(jobs []store.PlannedJob) bool {
	return slices.ContainsFunc(jobs, func(j store.PlannedJob) bool {
		_, known := t.byText[j.Timing]
		return !known && engine.NamesCalendars(j.Timing)
	})
}

// Put adds or updates jobs from the store. It returns timings that do not compile, which validation
// should have refused: such jobs are not planned, and delay no others.
func (t *Queue) Put(jobs []store.PlannedJob) (broken map[string]error) {
	compile := func(text string) timing {
		compiled, where, err := engine.CompileTiming(text, func(namespace, name string) *job.Calendar {
			return t.calendars[namespace+"/"+name]
		})
		if err != nil {
			if broken == nil {
				broken = map[string]error{}
			}
			broken[text] = err
			return timing{broken: err.Error()}
		}
		return timing{engine: compiled, where: where}
	}
	for i := range jobs {
		t.changing.Add(job.Partition(jobs[i].UID))
		t.put(jobs[i], compile)
	}
	return broken
}

// Count notes that the store begins to count its jobs.
func (t *Queue) Count() { t.changing = store.Partitions{} }

// Differs returns the partitions that have differed from the store's count twice in a row, which
// must be read again, and the partitions that have differed once. Partitions with changed jobs are
// left to a later comparison: while many jobs are created all partitions differ, and reading them
// takes longer each time.
func (t *Queue) Differs(sums *[job.Partitions]store.PartitionSummary) (twice, once store.Partitions) {
	for partition, sum := range sums {
		if sum != t.sums[partition] {
			twice.Add(uint8(partition))
		}
	}
	twice = twice.Without(t.changing)
	once = twice.Without(t.doubtful)
	t.doubtful = once
	return twice.Without(once), once
}

// Keep drops the jobs of some partitions that were missing from a full read.
func (t *Queue) Keep(partitions store.Partitions, read map[job.ID]bool) {
	for uid, i := range t.byUID {
		if partitions.Has(job.Partition(uid)) && !read[uid] {
			t.remove(i)
		}
	}
}

// Take sets the partitions to plan from now on. The cursors of jobs taken over from another
// planner, and of jobs whose last moves the store may have lost, must be read (ToRead). The rest of
// the table is current, and so is the cursor of each job without occurrences since, such as most of
// a million daily jobs. It returns true if the store may have lost more than cursors: then the
// table must be compared with it soon.
func (t *Queue) Take(partitions store.Partitions, now time.Time) (lost bool) {
	was := t.mine
	if t.mine = partitions; !t.begun {
		t.begun = true // all jobs were just read
		return false
	}
	if partitions != was {
		t.gain(partitions.Without(was), now)
	}
	if t.failedAt.IsZero() {
		return false
	}
	t.doubt(t.failedAt.Add(-lostMax))
	t.failedAt = time.Time{}
	return true
}

// MayHaveLost records that the store may have lost recent plans.
func (t *Queue) MayHaveLost(now time.Time) {
	if t.failedAt.IsZero() {
		t.failedAt = now
	}
}

// gain collects the jobs of newly gained partitions whose cursors must be read, and removes
// the jobs of lost partitions.
func (t *Queue) gain(partitions store.Partitions, now time.Time) {
	type urgent struct {
		at    int64 // its next due time
		entry uint32
	}
	var list []urgent
	memo := &memo{}
	planned := now.Add(t.LookAhead + store.PlanSlack).UnixNano() // no planner has planned further
	if partitions != (store.Partitions{}) {
		for i := range t.entries {
			if e := &t.entries[i]; e.next <= planned && partitions.Has(job.Partition(e.uid)) {
				list = append(list, urgent{t.search(uint32(i), now.UnixNano(), memo), uint32(i)})
			}
		}
	}
	slices.SortFunc(list, func(a, b urgent) int { return cmp.Compare(a.at, b.at) })
	gained := make([]uint32, 0, len(list)+len(t.gained))
	for _, u := range list {
		gained = append(gained, u.entry)
	}
	for _, i := range t.gained {
		if t.mine.Has(job.Partition(t.entries[i].uid)) {
			gained = append(gained, i)
		}
	}
	t.gained = gained
}

// doubt notes the jobs that this planner has planned beyond a moment. A comparison finds changes of
// jobs that the store has lost.
func (t *Queue) doubt(moment time.Time) {
	noted := make(map[uint32]bool, t.Behind())
	for _, i := range slices.Concat(t.gained, t.doubted) {
		noted[i] = true
	}
	for i := range t.entries {
		if e := &t.entries[i]; e.cursor > moment.UnixNano() && t.mine.Has(job.Partition(e.uid)) && !noted[uint32(i)] {
			t.doubted = append(t.doubted, uint32(i))
		}
	}
}

// ToRead returns the first jobs whose cursors must be read, at most [store.MaxBatch].
func (t *Queue) ToRead() []job.ID {
	var uids []job.ID
	for _, list := range [][]uint32{t.gained, t.doubted} {
		for _, i := range list[:min(len(list), store.MaxBatch-len(uids))] {
			uids = append(uids, t.entries[i].uid)
		}
	}
	return uids
}

// Read stores the cursors of the first n jobs that ToRead returned. A job with another epoch is
// about to be read as a whole.
func (t *Queue) Read(n int, list []store.JobCursor) {
	for _, c := range list {
		i, ok := t.byUID[c.UID]
		if !ok || t.entries[i].epoch != c.Epoch {
			continue
		}
		e := &t.entries[i]
		e.cursor, e.planned = c.Cursor.UnixNano(), uint32(c.Planned)
		t.schedule(i)
	}
	first := min(n, len(t.gained))
	if t.gained, t.doubted = t.gained[first:], t.doubted[n-first:]; t.Behind() == 0 {
		t.gained, t.doubted = nil, nil
	}
}

// Behind returns the number of jobs whose cursors must be read.
func (t *Queue) Behind() int { return len(t.gained) + len(t.doubted) }

// Splits reports whether any job's occurrences are split among executors.
func (t *Queue) Splits() bool {
	return slices.ContainsFunc(t.timings, func(tm timing) bool { return tm.where.Split != "" })
}

// View is a planner's view of the cluster.
type View struct {
	Now time.Time // the store's clock
	// Self is the planner's session, and Live the sessions that accept runs.
	Self job.ID
	Live []store.Session
	// Executors are the executors that occurrences are split among.
	Executors []store.Registration
	// Most bounds the planned occurrences of a job; 0 leaves that to the queue.
	Most int
	// Paced is set if the caller reports granted claims ([Batch.Claimed]) and ended attempts
	// ([Queue.Ended]).
	Paced bool
}

// Batch is the content of one planning call.
type Batch struct {
	Items     []store.PlanItem
	decisions []engine.Decision
	self      job.ID
	caughtUp  []bool // whether each item catches up a job at its pace
	claims    map[job.ID]claimCounts
}

// planAgain returns the least distance that a job is planned ahead.
func (t *Queue) planAgain() time.Duration { return t.LookAhead * planAgainAt / planAgainOf }

// Collect begins a turn of all jobs whose next occurrence is within the look-ahead, and holds back
// missed ones. It returns true if it must know the room for these, at a moment of the process
// clock.
func (t *Queue) Collect(now, at time.Time) (wantsRoom bool) {
	moment := now.Add(t.planAgain()).UnixNano()
	if moment < t.asked-int64(store.PlanSlack) {
		t.rebuild() // the store's clock was set back
	}
	t.asked = moment
	t.expire(at)
	t.turn = slices.DeleteFunc(t.due.Due(moment, t.turn[:0]), func(i uint32) bool {
		if !t.catchesUp(i, now) {
			t.forgetPace(i)
			return false
		}
		if !t.park(i, at) {
			t.waitForRoom = append(t.waitForRoom, i)
		}
		return true
	})
	return len(t.waitForRoom) > 0 && at.Sub(t.backlog.seen) >= t.backlog.again
}

// Admit adds held entries to the turn while there is room, and returns the number of entries to
// plan.
func (t *Queue) Admit() int {
	admitted := 0
	if t.backlog.room > 0 {
		t.backlog.share(t.Held())
		for left := t.backlog.room; admitted < len(t.waitForRoom) && left > 0; admitted++ {
			i := t.waitForRoom[admitted]
			if p := t.paced(i); p != nil {
				left -= max(1, p.width-p.out)
			} else {
				left -= t.backlog.most(t.timingOf(i))
			}
		}
		t.turn = append(t.turn, t.waitForRoom[:admitted]...)
		if t.waitForRoom = t.waitForRoom[admitted:]; len(t.waitForRoom) == 0 {
			t.waitForRoom = nil // frees its memory
		}
	}
	t.most = occurrencesMax
	if t.choice = admitted > 0; len(t.turn) > crowd {
		t.most, t.choice = occurrencesCrowd, true
	}
	return len(t.turn)
}

// Left returns the number of unplanned entries of the turn.
func (t *Queue) Left() int { return len(t.turn) }

// Next returns the next batch of the turn, possibly empty, and the stripes of its jobs. enter is
// called once to choose stripes without other calls. newID generates the ids of runs and records. A
// batch with items must be followed by Answered or Failed.
func (t *Queue) Next(v View, enter func(choose func(busy runqueue.Set) runqueue.Set) runqueue.Set, newID func() (job.ID, error)) (b Batch, within runqueue.Set, err error) {
	some := t.turn
	within = enter(func(busy runqueue.Set) (within runqueue.Set) {
		if t.choice {
			some, within = t.ofOneLane(busy)
		}
		return within
	})
	n, err := t.decide(v, some, &b, newID)
	if t.sent = n; len(b.Items) == 0 && err == nil {
		t.planned()
	}
	return b, within, err
}

// planned removes the sent entries from the turn.
func (t *Queue) planned() {
	t.turn = t.turn[t.sent:]
	t.sent = 0
}

// ofOneLane moves entries of one stripe to the front, preferably an idle one, and returns them.
func (t *Queue) ofOneLane(busy runqueue.Set) (some []uint32, within runqueue.Set) {
	stripe := func(i uint32) int { return t.stripeOf(t.entries[i].uid) }
	first := t.turn[:min(len(t.turn), LaneEntries)]
	free := slices.IndexFunc(first, func(i uint32) bool { return !busy.Has(stripe(i)) })
	chosen := stripe(first[max(0, free)])
	var others []uint32
	n := 0
	for _, i := range first {
		if stripe(i) != chosen {
			others = append(others, i)
			continue
		}
		first[n] = i
		n++
	}
	copy(first[n:], others)
	within.Add(chosen)
	return first[:n], within
}

// decide decides what to plan for the first of the entries, and returns for how many it has.
func (t *Queue) decide(v View, due []uint32, b *Batch, newID func() (job.ID, error)) (n int, err error) {
	absences := engine.AbsencesOf(v.Live)
	runs, most := 0, v.Most
	if most == 0 {
		most = math.MaxInt
	}
	horizon := v.Now.Add(t.LookAhead).UnixNano()
	seen := make(map[uint32]bool, len(due))
	for n < len(due) && len(b.Items) < store.MaxBatch && runs < runsMax {
		i := due[n]
		n++
		e := &t.entries[i]
		if e.next > horizon || seen[i] || !t.mine.Has(job.Partition(e.uid)) {
			continue // it was planned, changed or lost since
		}
		seen[i] = true
		timing := *t.timingOf(i)
		timing.UID = e.uid
		from := t.progress(i)
		d := timing.Decide(from, v.Now, t.LookAhead, engine.Most{Missed: min(most, t.portion(i, &v)), OnTime: min(most, t.most)}, absences...)
		item := store.PlanItem{Job: e.uid, Epoch: e.epoch, From: from.Cursor, To: d.To, Complete: d.Complete, Planned: from.Planned}
		if item.Runs, err = t.runsOf(v, i, d.Due, newID); err != nil {
			return 0, err
		}
		for _, s := range d.Missed {
			id, err := newID()
			if err != nil {
				return 0, err
			}
			item.Missed = append(item.Missed, store.MissedSpan{ID: id, First: s.First, Last: s.Last, Count: s.Count, Reason: s.Reason})
		}
		runs += len(item.Runs)
		b.Items = append(b.Items, item)
		b.decisions = append(b.decisions, d)
		b.caughtUp = append(b.caughtUp, t.isCaughtUp(&v, i, &d))
	}
	b.self = v.Self
	return n, nil
}

// runsOf returns the due runs of an entry, with their places.
func (t *Queue) runsOf(v View, i uint32, due []engine.Occurrence, newID func() (job.ID, error)) (runs []store.NewRun, err error) {
	e, where := &t.entries[i], &t.timings[t.entries[i].timing].where
	catchesUp := t.catchesUp(i, v.Now)
	for sequence, o := range due {
		request := placement.Request{
			UID: e.uid, Place: where.Place, Handler: where.Handler, User: where.User, Split: engine.SplitOf(where.Split, v.Executors), Scheduled: o.Scheduled,
			Sequence: int(e.planned) + sequence, Used: t.used[e.uid],
		}
		if catchesUp {
			// Nodes with runs of the same jobs at the same time would wait for each other in the
			// store, including the planning node.
			request.With, request.Near = due[0].Scheduled, v.Self
		}
		placed, _ := placement.Runs(request, v.Live)
		t.remember(e.uid, where.Place.Strategy, placed, v.Live, o.Scheduled)
		if catchesUp && !o.Due.After(v.Now) {
			t.backlog.plan(len(placed))
		}
		for _, r := range placed {
			id, err := newID()
			if err != nil {
				return nil, err
			}
			runs = append(runs, store.NewRun{
				ID: id, Session: r.Session, Node: r.Node, Scheduled: o.Scheduled, Due: o.Due, NextDue: o.NextDue, Shard: r.Shard, Shards: r.Shards,
			})
		}
	}
	return runs, nil
}

// remember records a job's use of the nodes, if its strategy needs it.
func (t *Queue) remember(uid job.ID, strategy job.Strategy, runs []placement.Placed, live []store.Session, at time.Time) {
	if strategy != job.StrategyLeastRecentlyUsed && strategy != job.StrategyLeastFrequentlyUsed {
		return
	}
	uses := t.used[uid]
	if uses == nil {
		uses = map[string]placement.Use{}
		t.used[uid] = uses
	}
	for _, r := range runs {
		for i := range live {
			if live[i].ID == r.Session {
				use := uses[live[i].Node]
				uses[live[i].Node] = placement.Use{Count: use.Count + 1, Last: at}
			}
		}
	}
}

// Own returns the runs of a batch that are due and placed on a session, whose worker may
// claim them in the step that creates them, and the question to it about them.
func (b *Batch) Own(session job.ID, now time.Time) (due []*store.NewRun, runs []store.ReadyRun) {
	for i := range b.Items {
		for k := range b.Items[i].Runs {
			if r := &b.Items[i].Runs[k]; r.Session == session && !r.Due.After(now) {
				due = append(due, r)
				runs = append(runs, store.ReadyRun{RunRef: store.RunRef{Due: r.Due, ID: r.ID}, Job: b.Items[i].Job, Session: session, Attempt: 1})
			}
		}
	}
	return due, runs
}

// Answered updates the table by the answer to a batch, at a moment of the process. It returns whether other planners
// have moved cursors of jobs, which must be read first, and the refused items, which would
// be refused again: a bug of this program that must not hold up other jobs.
func (t *Queue) Answered(b *Batch, outcomes []store.PlanOutcome, now, at time.Time) (moved bool, refused []*store.PlanItem) {
	t.planned()
	var others []uint32
	for k, outcome := range outcomes {
		item := &b.Items[k]
		i, ok := t.byUID[item.Job]
		switch {
		case outcome == store.Malformed:
			refused = append(refused, item)
		case !ok || t.entries[i].epoch != item.Epoch:
			// The change that has done so was read, or is about to be.
		case outcome == store.Planned:
			t.pacedBy(i, b, k, at)
			t.move(i, item.To, &b.decisions[k])
		case outcome == store.Moved:
			others = append(others, i)
		case outcome == store.TooFar && t.entries[i].next != never:
			// By the store's clock it is not due yet.
			t.due.Push(now.Add(t.planAgain()+Every).UnixNano(), i)
		}
	}
	if len(others) > 0 {
		t.gained = slices.Concat(others, t.gained)
	}
	return len(others) > 0, refused
}

// move updates an entry after planning.
func (t *Queue) move(i uint32, to time.Time, d *engine.Decision) {
	e := &t.entries[i]
	t.keepCatchUp(i, d.CatchUp)
	e.cursor = to.UnixNano()
	e.planned += uint32(len(d.Due))
	e.next = never
	if !d.Next.IsZero() {
		e.next = d.Next.UnixNano()
		t.due.Push(e.next, i)
	}
}

// Failed ends a turn: the next turn plans the rest.
func (t *Queue) Failed() {
	for _, i := range t.turn {
		if e := &t.entries[i]; e.next != never {
			t.due.Push(e.next, i)
		}
	}
	t.turn, t.sent = nil, 0
}

// ClockStepped must be called after a step of the wall clock: the queue is in the old time.
func (t *Queue) ClockStepped() {
	t.rebuild()
	t.asked = 0
}

// Stats are the planner's numbers at a moment.
type Stats struct {
	// Jobs is the number of planned jobs: active jobs of its partitions with a known cursor.
	Jobs int
	// Held is the number of jobs among them that wait to catch up.
	Held int
	// Ahead is how far ahead the rest is planned, at most LookAhead. It is negative if a due
	// occurrence is not planned.
	Ahead time.Duration
}

// Stats returns the planner's numbers.
func (t *Queue) Stats(now time.Time) Stats {
	s := Stats{Held: t.Held(), Ahead: t.LookAhead}
	for partition, sum := range t.sums {
		if t.mine.Has(uint8(partition)) {
			s.Jobs += sum.Jobs
		}
	}
	s.Jobs = max(0, s.Jobs-len(t.gained))
	if first, ok := t.due.Next(); ok {
		s.Ahead = min(s.Ahead, time.Unix(0, first).Sub(now))
	}
	return s
}
