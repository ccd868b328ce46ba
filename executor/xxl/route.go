package xxlexec

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/belfry-cron/belfry/job"
)

// routedMax is the most jobs whose executors a node remembers. An evicted job begins again
// with the first executor.
const routedMax = 10_000

// routes is the history of this node's requests, for strategies that depend on it.
type routes struct {
	mu   sync.Mutex
	jobs map[job.ID]*usage
}

// usage is how a job has used executors.
type usage struct {
	turn  int            // requests so far
	count map[string]int // requests by address
	last  map[string]int // turn of the latest request by address
}

func (r *routes) init() { r.jobs = map[job.ID]*usage{} }

// order returns executors, given by address, in the order in which they are tried.
func (r *routes) order(list []target, strategy job.Strategy, uid job.ID, shard int) []target {
	order := slices.Clone(list)
	n := len(order)
	if n < 2 {
		return order
	}
	switch strategy {
	case job.StrategyFirst, job.StrategyFirstIdle:
	case job.StrategyLast:
		slices.Reverse(order)
	case job.StrategyBroadcast:
		order = rotated(order, shard)
	case job.StrategyRoundRobin:
		order = rotated(order, r.next(uid))
	case job.StrategyHash:
		slices.SortStableFunc(order, func(a, b target) int { return bytes.Compare(rank(uid, shard, b), rank(uid, shard, a)) })
	case job.StrategyLeastFrequentlyUsed, job.StrategyLeastRecentlyUsed:
		r.sortByUse(order, strategy, uid)
	default: // any, random
		rand.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	return order
}

// rotated returns a list that begins with another item.
func rotated(list []target, by int) []target {
	by %= len(list)
	return slices.Concat(list[by:], list[:by])
}

// rank returns the weight of an executor for a job: when one joins or leaves, only its own jobs
// move.
func rank(uid job.ID, shard int, t target) []byte {
	sum := sha256.Sum256(append(append(uid[:], byte(shard>>8), byte(shard)), t.address...))
	return sum[:]
}

// of returns the use of executors by a job. The caller holds the mutex.
func (r *routes) of(uid job.ID) *usage {
	u := r.jobs[uid]
	if u == nil {
		for old := range r.jobs { // any will do
			if len(r.jobs) < routedMax {
				break
			}
			delete(r.jobs, old)
		}
		u = &usage{count: map[string]int{}, last: map[string]int{}}
		r.jobs[uid] = u
	}
	return u
}

// next returns whose turn it is.
func (r *routes) next(uid job.ID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.of(uid)
	u.turn++
	return u.turn - 1
}

// sortByUse puts the executor first whose turn it is, and counts a use at once, so that
// simultaneous runs are spread.
func (r *routes) sortByUse(order []target, strategy job.Strategy, uid job.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.of(uid)
	used := u.last
	if strategy == job.StrategyLeastFrequentlyUsed {
		used = u.count
	}
	slices.SortStableFunc(order, func(a, b target) int { return cmp.Compare(used[a.address], used[b.address]) })
	u.use(order[0].address)
}

// instead records that a run was sent to another executor than the one whose turn it was.
func (r *routes) instead(uid job.ID, strategy job.Strategy, address string) {
	if strategy != job.StrategyLeastFrequentlyUsed && strategy != job.StrategyLeastRecentlyUsed {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(uid).use(address)
}

// use counts a use. If there are too many executors, all counts of the job are dropped.
func (u *usage) use(address string) {
	const addressesMax = 1000
	if len(u.count) >= addressesMax {
		clear(u.count)
		clear(u.last)
	}
	u.turn++
	u.count[address]++
	u.last[address] = u.turn
}
