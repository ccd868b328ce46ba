package planqueue

import (
	"math"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Missed occurrences are planned only as fast as they run: after a night without a node there may
// be millions to catch up on. Planned all at once they would slow down every poll, and delay runs
// that fall due now.

const (
	// BacklogFor is the length of the backlog, in time, below which more missed occurrences are
	// planned: runs that fall due now wait behind it, for four polls at most.
	BacklogFor = 2 * time.Second
	// BacklogMin is the least size of the backlog: enough to measure how fast it runs.
	BacklogMin = 200
	// growEvery is the interval of checks while the backlog is short and cheap to count, or the
	// nodes are faster than estimated: growing from the least to the most takes half a second.
	growEvery = 100 * time.Millisecond
	// BacklogFew is fewer than that.
	BacklogFew = 10 * BacklogMin
	// rateKept is the age at which a measurement becomes useless: planning the admitted runs takes
	// a slow store some seconds.
	rateKept = 10 * time.Second
	// BacklogMax is the largest backlog: twice what the fastest node starts between two
	// checks. Runs beyond it are not counted.
	BacklogMax = 20_000
	// CatchUpMost is how many missed occurrences are planned for a job at once: enough that moving
	// its cursor costs little beside them. A job whose runs wait for each other gets fewer if other
	// jobs can use the room: see backlog.most.
	CatchUpMost = 50
)

// catchesUp reports whether an entry has missed occurrences that may be many.
func (t *Queue) catchesUp(i uint32, now time.Time) bool {
	return t.entries[i].next < now.Add(-engine.OnTime).UnixNano() && t.timingOf(i).Missed == job.MissedAll
}

// Held returns how many jobs wait for room in the backlog, or for the end of their run.
func (t *Queue) Held() int { return len(t.waitForRoom) + t.parkedNow }

// LookSoon returns how soon more held runs may be admitted.
func (t *Queue) LookSoon() time.Duration { return t.backlog.again }

// Room records the backlog of each session and which sessions are live, at a moment of the
// process: more missed occurrences may be planned.
func (t *Queue) Room(waiting map[job.ID]int, live []store.Session, at time.Time) {
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
		waits = append(waits, waiting[job.ID{}]) // unplaced runs wait for a node
	}
	t.backlog.look(waits, float64(mine)/job.Partitions, at)
}

// backlog is a planner's estimate of the nodes' backlogs.
type backlog struct {
	// room is how many missed runs may be planned, as of the last check.
	room  int
	seen  time.Time     // when that was
	again time.Duration // time until the next check
	limit int           // how many runs may wait per node
	waits int           // how many runs waited on all nodes
	added int           // missed runs that this planner has planned since
	// serial is the number of runs per decision for a job whose runs wait for each other.
	serial int
}

// share divides the room among the waiting jobs. A job whose runs wait for each other gets at most
// its share, since runs that cannot start are claimed twice.
func (b *backlog) share(slots int) { b.serial = min(max(1, BacklogFew/max(1, slots)), CatchUpMost) }

// most returns how many missed occurrences are planned for a job at once.
func (b *backlog) most(t *engine.Timing) int {
	if t.Serial {
		return max(1, b.serial)
	}
	return CatchUpMost
}

// look records the backlogs of the nodes, and computes this planner's share of the room.
func (b *backlog) look(waits []int, share float64, now time.Time) {
	all := 0
	for _, n := range waits {
		all += n
	}
	if since := now.Sub(b.seen); since > rateKept {
		b.limit = BacklogMin // an old measurement of other runs does not apply
	} else {
		// The other planners are assumed to have planned in proportion to their shares. Newly due
		// runs are ignored, and keep the limit low while they are many.
		ended := float64(b.waits-all) + float64(b.added)/share
		each := ended / float64(len(waits)) * float64(BacklogFor) / float64(since)
		// A stall, or a burst of ends, is no rate: the limit moves by steps.
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

// plan takes room for newly waiting runs.
func (b *backlog) plan(runs int) {
	b.room -= runs
	b.added += runs
}
