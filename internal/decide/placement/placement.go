// Package placement chooses nodes for runs. It is pure: the live sessions, their loads and
// the random numbers are arguments, so that two planners with the same view choose alike.
package placement

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Request is an occurrence, or another run, that needs a node.
type Request struct {
	UID     job.ID
	Place   job.Place
	Handler string // "" if any worker can run it
	// User is the user of a command. Nodes that refuse it get no runs, unless all refuse: then the runs
	// fail with that reason.
	User string
	// Split is among how many executors elsewhere each occurrence is split; 0 if nodes do the work.
	Split     int
	Scheduled time.Time
	// With is the scheduled time of an occurrence whose runs the strategy any puts onto one node;
	// zero for none.
	With time.Time
	// Near is the session that the strategy any prefers for unsplit runs, unless another has much
	// less to do; zero for none.
	Near job.ID
	// Sequence counts the occurrences of the job, for round_robin.
	Sequence int
	// Used is what the job has used the nodes for, by name, for the
	// strategies that go by it. May be nil.
	Used map[string]Use
}

// Use is how often and when last a job ran on a node.
type Use struct {
	Count int
	Last  time.Time
}

// Placed is one run of an occurrence.
type Placed struct {
	Session       job.ID // zero if no node is eligible
	Node          string // name of the session's node
	Shard, Shards int
}

// Eligible reports whether a session may run a job with a place and a handler.
func Eligible(s *store.Session, place *job.Place, handler string) bool {
	return s.Takes() && suits(s, place, handler)
}

// suits reports whether a session runs jobs and matches a place.
func suits(s *store.Session, place *job.Place, handler string) bool {
	return s.Works() && s.Suits(place.Labels, handler)
}

// Runs returns the runs of an occurrence and where they go: one, one for each
// shard, or with broadcast one for each eligible node. Without an eligible node
// the runs are planned all the same and wait, for the reason returned.
func Runs(r Request, live []store.Session) (runs []Placed, why job.Reason) {
	eligible := eligible(r, live)
	if len(eligible) == 0 {
		why = Nowhere(&r.Place, r.Handler, live)
	}
	if r.Place.Strategy == job.StrategyBroadcast {
		for i, s := range eligible {
			runs = append(runs, Placed{Session: s.ID, Node: s.Node, Shard: i, Shards: len(eligible)})
		}
		if len(runs) == 0 {
			runs = []Placed{{Shards: 1}} // unplaced, for the first node to come
		}
		return runs, why
	}
	if r.Split > 0 {
		r.Place.Shards = r.Split
	}
	shards := max(1, r.Place.Shards)
	runs = make([]Placed, shards)
	for i := range runs {
		if r.Place.Shards > 0 {
			runs[i].Shard, runs[i].Shards = i, shards
		}
		if len(eligible) > 0 {
			runs[i].Session = choose(r, eligible, i).ID
		}
	}
	return runs, why
}

// eligible returns the sessions that may run the job, in the order of the names
// of their nodes, so that first and last mean the same to all.
func eligible(r Request, live []store.Session) []*store.Session {
	list := make([]*store.Session, 0, len(live))
	for i := range live {
		if Eligible(&live[i], &r.Place, r.Handler) {
			list = append(list, &live[i])
		}
	}
	if allowed := slices.DeleteFunc(slices.Clone(list), func(s *store.Session) bool { return RefusesUser(s, r.User) }); len(allowed) > 0 {
		list = allowed
	}
	slices.SortFunc(list, func(a, b *store.Session) int {
		if order := strings.Compare(a.Node, b.Node); order != 0 {
			return order
		}
		return bytes.Compare(a.ID[:], b.ID[:])
	})
	return list
}

// choose returns the node for one shard of an occurrence.
func choose(r Request, eligible []*store.Session, shard int) *store.Session {
	n := len(eligible)
	switch r.Place.Strategy {
	case job.StrategyFirst:
		return eligible[shard%n]
	case job.StrategyLast:
		return eligible[n-1-shard%n]
	case job.StrategyRoundRobin:
		return eligible[(r.Sequence+shard)%n]
	case job.StrategyHash:
		return rendezvous(r.UID, eligible, shard)
	case job.StrategyRandom:
		return eligible[r.number(shard, 0)%uint64(n)]
	case job.StrategyLeastRecentlyUsed:
		return least(eligible, shard, func(a, b Use) bool { return a.Last.Before(b.Last) }, r.Used)
	case job.StrategyLeastFrequentlyUsed:
		return least(eligible, shard, func(a, b Use) bool { return a.Count < b.Count }, r.Used)
	default:
		// The less loaded of two is nearly as good as the least loaded of all, and a herd of runs
		// planned at once does not pile up on one node.
		if !r.With.IsZero() {
			r.Scheduled = r.With
		}
		a, b := eligible[r.number(shard, 0)%uint64(n)], eligible[r.number(shard, 1)%uint64(n)]
		if share(b) < share(a) {
			a = b
		}
		if r.Place.Shards == 0 {
			near := slices.IndexFunc(eligible, func(s *store.Session) bool { return s.ID == r.Near })
			if near >= 0 && share(eligible[near]) <= nearFactor*share(a) {
				return eligible[near]
			}
		}
		return a
	}
}

// nearFactor is how many times as much the near node may have to do.
const nearFactor = 2

// share returns how full a node is.
func share(s *store.Session) float64 {
	return float64(s.Load.Running+s.Load.Ready) / float64(max(1, s.Capacity))
}

// least returns the shard-th session in the order of how the job has used them; names decide
// between equals.
func least(eligible []*store.Session, shard int, less func(a, b Use) bool, used map[string]Use) *store.Session {
	order := slices.Clone(eligible)
	sort.SliceStable(order, func(i, j int) bool { return less(used[order[i].Node], used[order[j].Node]) })
	return order[shard%len(order)]
}

// rendezvous returns the node with the highest hash of job, shard and node: when a node joins or
// leaves, only its own jobs move.
func rendezvous(uid job.ID, eligible []*store.Session, shard int) *store.Session {
	var best *store.Session
	var highest uint64
	for _, s := range eligible {
		text := binary.BigEndian.AppendUint32(append([]byte(nil), uid[:]...), uint32(shard))
		sum := sha256.Sum256(append(text, s.Node...))
		if h := binary.BigEndian.Uint64(sum[:8]); best == nil || h > highest {
			best, highest = s, h
		}
	}
	return best
}

// number draws a number that is the same for all who plan this run.
func (r *Request) number(shard, n int) uint64 {
	text := append(make([]byte, 0, len(r.UID)+8+4+4), r.UID[:]...)
	text = binary.BigEndian.AppendUint64(text, uint64(r.Scheduled.UnixNano()))
	text = binary.BigEndian.AppendUint32(text, uint32(shard))
	text = binary.BigEndian.AppendUint32(text, uint32(n))
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:8])
}

// Nowhere explains why no live session may run a job with a place and a handler; none if one may.
func Nowhere(place *job.Place, handler string, live []store.Session) (why job.Reason) {
	workers, programs := 0, 0
	var drained, bound job.Reason
	for i := range live {
		if Eligible(&live[i], place, handler) {
			return why
		}
		if d := live[i].Drain; d != nil && drained.IsZero() && suits(&live[i], place, handler) {
			drained = reason.NodeDrained.Of(live[i].Node, d.By, reason.Words(d.Reason))
		}
		if bound.IsZero() {
			bound = boundElsewhere(&live[i], place)
		}
		switch {
		case live[i].Has(store.RoleWorker):
			workers++
		case live[i].Works():
			programs++
		}
	}
	switch {
	case !drained.IsZero():
		return drained
	case !bound.IsZero():
		return bound
	case workers == 0 && programs == 0:
		return reason.NoNodes.Of()
	case workers == 0 && handler == "":
		return reason.OnlyPrograms.Of()
	}
	return reason.NoNodeHas.Of(reason.Wants(place, handler))
}

// Partitions returns the partitions that a session plans: those for which its node has the highest
// hash among the live planners. All nodes with the same view agree, and when one joins or leaves,
// only its own partitions move. A disagreement does no harm: the cursor decides. The own session
// counts even if it is not listed as live.
func Partitions(self job.ID, live []store.Session) (set store.Partitions) {
	mine := seedOf(self)
	others := make([]uint64, 0, len(live))
	for i := range live {
		if live[i].ID != self && live[i].Has(store.RolePlanner) && !live[i].ClockOff {
			others = append(others, seedOf(live[i].ID))
		}
	}
	for p := range uint64(job.Partitions) {
		rank := mix(mine + p)
		if !slices.ContainsFunc(others, func(other uint64) bool { return mix(other+p) > rank }) {
			set.Add(uint8(p))
		}
	}
	return set
}

// seedOf returns what the hashes of a session begin with.
func seedOf(session job.ID) uint64 {
	sum := sha256.Sum256(session[:])
	return binary.BigEndian.Uint64(sum[:8])
}

// mix is the finalizer of splitmix64: numbers that are near each other have hashes
// that are not.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// boundElsewhere explains that a session is the worker in a place, but with a token for another
// namespace; none if it is not.
func boundElsewhere(s *store.Session, place *job.Place) (why job.Reason) {
	theirs, own := place.Labels[job.LabelWorkerNamespace], s.Labels[job.LabelWorkerNamespace]
	name := place.Labels[job.LabelWorker]
	if own == "" || own == theirs || name == "" || s.Labels[job.LabelWorker] != name {
		return why
	}
	return reason.WorkerElsewhere.Of(name, own, theirs)
}
