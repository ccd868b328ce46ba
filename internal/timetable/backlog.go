package timetable

import (
	"math"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// What was missed is planned as fast as it is run, and not faster: a node that was away
// for a night may have millions of runs to make up for. All at once in the store they
// would slow down every look for runs, and what falls due now would wait behind them.

const (
	// BacklogFor is how long a node works at the runs that are due and wait for it when
	// more of what was missed is planned: what falls due now waits behind them, and four
	// looks later none is left.
	BacklogFor = 2 * time.Second
	// BacklogMin is how many those are at least: enough to see how fast they are run.
	BacklogMin = 200
	// growEvery is how soon is looked again while few may wait, which are soon counted, and
	// where the nodes run more than was thought: from the least to the most takes half a
	// second.
	growEvery = 100 * time.Millisecond
	// BacklogFew is fewer than that.
	BacklogFew = 10 * BacklogMin
	// rateKept is how old the last look may be for what was run since to say something: to
	// plan what there was room for then takes a slow store some seconds.
	rateKept = 10 * time.Second
	// BacklogMax is how many they are at most: what the fastest node takes on between two
	// looks, twice. None counts further.
	BacklogMax = 20_000
	// CatchUpMost is for how many missed occurrences a job is planned at a time: enough
	// that the moves of its cursor cost little beside them. Of a job whose runs wait for
	// each other fewer are planned if other jobs can use the room: see backlog.most.
	CatchUpMost = 50
)

// catchesUp reports whether an entry has missed occurrences that may be many.
func (t *Timetable) catchesUp(i uint32, now time.Time) bool {
	return t.entries[i].next < now.Add(-engine.OnTime).UnixNano() && t.timingOf(i).Missed == job.MissedAll
}

// Held returns how many jobs wait for room in the backlog.
func (t *Timetable) Held() int { return len(t.held) }

// LookSoon returns how soon more of what is held may be admitted.
func (t *Timetable) LookSoon() time.Duration { return t.backlog.again }

// Room takes over how many runs wait for each session, of which some are live, at a moment of the
// process: more of what was missed may be planned.
func (t *Timetable) Room(waiting map[job.ID]int, live []store.Session, at time.Time) {
	mine := t.mine.Len()
	if mine == 0 {
		t.backlog = backlog{seen: at, again: Every, limit: BacklogMin}
		return
	}
	var waits []int
	for _, s := range live {
		if s.Takes() && s.Works() {
			waits = append(waits, waiting[s.ID])
		}
	}
	if len(waits) == 0 {
		waits = append(waits, waiting[job.ID{}]) // they wait for a node
	}
	t.backlog.look(waits, float64(mine)/job.Partitions, at)
}

// backlog is what a planner knows of the runs that wait for nodes.
type backlog struct {
	// room is how many runs of what was missed may be planned, as of the last look.
	room  int
	seen  time.Time     // when that was
	again time.Duration // how long after that is looked again
	limit int           // how many may wait for each node
	waits int           // how many waited for all nodes
	added int           // how many this planner has planned of what was missed, since then
	// serial is how many runs a job gets at a time that wait for each other.
	serial int
}

// share divides the room among the jobs that wait for it. Each has a part at most, if its runs
// wait for each other: those that cannot start are claimed twice.
func (b *backlog) share(held int) { b.serial = min(max(1, BacklogFew/max(1, held)), CatchUpMost) }

// most returns for how many missed occurrences a job is planned at a time.
func (b *backlog) most(t *engine.Timing) int {
	if t.Serial {
		return max(1, b.serial)
	}
	return CatchUpMost
}

// look takes over how many runs wait for each of the nodes that take any, and for how many
// this planner has room: its share of what the nodes have room for.
func (b *backlog) look(waits []int, share float64, now time.Time) {
	all := 0
	for _, n := range waits {
		all += n
	}
	if since := now.Sub(b.seen); since > rateKept {
		b.limit = BacklogMin // what was true of other runs, long ago, says nothing
	} else {
		// The others have planned as much as this one for their shares. What fell due
		// meanwhile is left out, and keeps the limit low while there is much of it.
		ended := float64(b.waits-all) + float64(b.added)/share
		each := ended / float64(len(waits)) * float64(BacklogFor) / float64(since)
		// A stall, or what ends all at once, is no rate: it moves by steps.
		step := 2
		if all == 0 {
			step = 4 // a worker may be idle
		}
		b.limit = min(max(int(each), b.limit/2, BacklogMin), step*b.limit, BacklogMax)
	}
	if b.again = Every; b.limit < BacklogFew || all < b.limit*len(waits)/2 && b.limit < BacklogMax {
		b.again = growEvery
	}
	room := 0
	for _, n := range waits {
		room += max(0, b.limit-n)
	}
	b.room, b.seen, b.waits, b.added = int(math.Ceil(float64(room)*share)), now, all, 0
}

// plan takes from the room for runs that wait from now on.
func (b *backlog) plan(runs int) {
	b.room -= runs
	b.added += runs
}
