package replica

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/btree"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// outbox has the records of a store whose history is elsewhere, until they are shipped, in the
// groups that commits have written. They stay encoded, since there may be a million.
type outbox struct {
	groups *btree.BTreeG[*encodedGroup] // by key
	byRun  map[job.ID][]*encodedGroup
	total  int
	bytes  int64
	// recent are records that were shipped a short time ago: decisions about repeated results
	// then need no history.
	recent []recentRecord // the oldest first
}

// Waiting implements [store.Outbox].
func (c *Control) Waiting(ctx context.Context, run job.ID, limit int) (list []store.Record, err error) {
	seen := map[recordKey]bool{}
	add := func(p *encodedGroup) bool {
		g, failed := decodeGroup(p.key, p.value)
		if failed != nil {
			err = fmt.Errorf("%w: records that wait for history: %w", store.ErrDamaged, failed)
			return false
		}
		for _, r := range slices.Backward(g.records) {
			of := recordKey{r.Run.ID, r.Attempt.Number}
			if len(list) < limit && !seen[of] && (run.IsZero() || r.Run.ID == run) {
				seen[of] = true
				list = append(list, *r)
			}
		}
		return len(list) < limit
	}
	if away := c.b.read(ctx, func(s *state) {
		if run.IsZero() {
			s.outbox.groups.Descend(add)
			return
		}
		groups := slices.Clone(s.outbox.byRun[run])
		slices.SortFunc(groups, func(a, b *encodedGroup) int { return strings.Compare(b.key, a.key) })
		for _, p := range groups {
			if !add(p) {
				return
			}
		}
	}); away != nil {
		return nil, away
	}
	return list, err
}

// UseHistory implements [store.Outbox].
func (c *Control) UseHistory(ctx context.Context, id store.HistoryID) error {
	for {
		values, err := c.b.driver.Get(ctx, []string{usedHistoryKey})
		if err != nil {
			return err
		}
		if values[0] != nil {
			if string(values[0]) != big(int64(id)) {
				return store.ErrConflict
			}
			return nil
		}
		t := newTxn()
		t.Compares[usedHistoryKey] = 0
		t.put(usedHistoryKey, []byte(big(int64(id))))
		if _, _, err := c.b.commit(ctx, t); err != nil {
			return err
		}
	}
}

// usedHistoryKey names the history of this control store.
const usedHistoryKey = "history-apart"

// ErrHistoryApart is returned by [Open] for a store with a separate history, if it is to be
// opened with its own.
var ErrHistoryApart = errors.New("its history is in another store: start with --history and the URL of that store")

// checkApart refuses to keep history in a store whose history is elsewhere.
func (b *Backend) checkApart(ctx context.Context) error {
	if b.opt.apart {
		return nil
	}
	values, err := b.driver.Get(ctx, []string{usedHistoryKey})
	if err == nil && values[0] != nil {
		err = ErrHistoryApart
	}
	return err
}

// encodedGroup is a group as it is encoded.
type encodedGroup struct {
	key   string
	value []byte
	runs  []job.ID
}

type recentRecord struct {
	*store.Record
	at time.Time
}

// recentLife is how long records are remembered that were shipped, and recentMax how many.
const (
	recentLife = 5 * time.Minute
	recentMax  = 20_000
)

func newOutbox() *outbox {
	return &outbox{
		groups: btree.NewG(degree, func(a, b *encodedGroup) bool { return a.key < b.key }),
		byRun:  map[job.ID][]*encodedGroup{},
	}
}

func (o *outbox) put(g *group, value []byte) {
	o.remove(g.key, time.Time{})
	p := &encodedGroup{key: g.key, value: value}
	for _, r := range g.records {
		p.runs = append(p.runs, r.Run.ID)
		o.byRun[r.Run.ID] = append(slices.Clip(o.byRun[r.Run.ID]), p)
	}
	o.groups.ReplaceOrInsert(p)
	o.total += len(p.runs)
	o.bytes += int64(len(p.key) + len(p.value))
}

// remove takes a group out. Unless now is zero, its records are remembered.
func (o *outbox) remove(key string, now time.Time) {
	p, ok := o.groups.Delete(&encodedGroup{key: key})
	if !ok {
		return
	}
	o.total -= len(p.runs)
	o.bytes -= int64(len(p.key) + len(p.value))
	for _, run := range p.runs {
		left := slices.DeleteFunc(slices.Clone(o.byRun[run]), func(other *encodedGroup) bool { return other == p })
		if o.byRun[run] = left; len(left) == 0 {
			delete(o.byRun, run)
		}
	}
	if now.IsZero() {
		return
	}
	for _, r := range p.records() {
		o.recent = append(o.recent, recentRecord{r, now})
	}
	o.forget(now)
}

// forget removes records that were shipped long ago or that exceed recentMax.
func (o *outbox) forget(now time.Time) {
	old := max(0, len(o.recent)-recentMax)
	for old < len(o.recent) && now.Sub(o.recent[old].at) > recentLife {
		old++
	}
	o.recent = o.recent[old:]
}

func (p *encodedGroup) records() []*store.Record {
	g, err := decodeGroup(p.key, p.value)
	if err != nil {
		return nil
	}
	return g.records
}

// backlog returns how much waits for history.
func (o *outbox) backlog() store.ConsumerState {
	is := store.ConsumerState{Consumer: store.Consumer{Name: store.ConsumerHistory}, Entries: o.total, Bytes: o.bytes}
	if first, ok := o.groups.Min(); ok {
		is.Oldest = timeOfGroup(first.key)
	}
	return is
}

// refIn returns the place of a record in its group: the key of the group, then the order of the
// records.
func refIn(key string, r *store.Record) store.FeedRef {
	return store.FeedRef(key + string(r.Run.ID[:]) + big(int64(r.Attempt.Number)))
}

const refSuffix = 16 + 8 // length that refIn adds to the key

// entries returns entries after a place.
func (o *outbox) entries(after store.FeedRef, limit int) (list []store.FeedEntry, err error) {
	from := &encodedGroup{}
	if len(after) > refSuffix {
		from.key = string(after[:len(after)-refSuffix])
	}
	o.groups.AscendGreaterOrEqual(from, func(p *encodedGroup) bool {
		g, failed := decodeGroup(p.key, p.value)
		if failed != nil {
			err = fmt.Errorf("%w: records that wait for history: %w", store.ErrDamaged, failed)
			return false
		}
		slices.SortFunc(g.records, func(a, b *store.Record) int {
			return cmp.Or(bytes.Compare(a.Run.ID[:], b.Run.ID[:]), cmp.Compare(a.Attempt.Number, b.Attempt.Number))
		})
		for _, r := range g.records {
			if ref := refIn(p.key, r); ref > after && len(list) < limit {
				list = append(list, store.FeedEntry{Ref: ref, Record: *r})
			}
		}
		return len(list) < limit
	})
	return list, err
}

// ofRun returns the records of a run, and calls seen with the keys of the groups that they are in.
// If an attempt is there twice, the later record counts.
func (o *outbox) ofRun(run job.ID, seen func(key string)) (list []*store.Record) {
	add := func(r *store.Record) {
		if r.Run.ID != run {
			return
		}
		list = slices.DeleteFunc(list, func(other *store.Record) bool { return other.Attempt.Number == r.Attempt.Number })
		list = append(list, r)
	}
	for _, r := range o.recent {
		add(r.Record)
	}
	groups := slices.Clone(o.byRun[run])
	slices.SortFunc(groups, func(a, b *encodedGroup) int { return strings.Compare(a.key, b.key) })
	for _, p := range groups {
		seen(p.key)
		for _, r := range p.records() {
			add(r)
		}
	}
	return list
}

// shipped removes records that history has.
func (b *Backend) shipped(ctx context.Context, refs []store.FeedRef) error {
	taken := map[store.FeedRef]bool{}
	var keys []string // of their groups
	for _, ref := range refs {
		if len(ref) > refSuffix {
			taken[ref] = true
			keys = append(keys, string(ref[:len(ref)-refSuffix]))
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	for len(keys) > 0 {
		t, n := newTxn(), 0
		if err := b.read(ctx, func(s *state) { n = b.taking(s, t, keys, taken) }); err != nil {
			return err
		}
		done := true
		if len(t.Compares) > 0 {
			var err error
			if done, err = b.write(ctx, t); err != nil {
				return err
			}
		}
		if done { // if not, another process has taken some of them
			keys = keys[n:]
		}
	}
	return nil
}

// taking adds to a transaction the removal of records from groups, and returns how many groups it
// changes.
func (b *Backend) taking(s *state, t *Txn, keys []string, taken map[store.FeedRef]bool) (n int) {
	most, room := b.driver.Bounds()
	for size := 0; n < len(keys) && len(t.Compares) < most-1 && size < room/2; n++ {
		key := keys[n]
		p, ok := s.outbox.groups.Get(&encodedGroup{key: key})
		if !ok {
			continue
		}
		t.Compares[key] = s.versions[key]
		left := slices.DeleteFunc(p.records(), func(r *store.Record) bool { return taken[refIn(key, r)] })
		if len(left) == 0 {
			t.Deletes = append(t.Deletes, key)
			continue
		}
		b.set(t, key, &group{key, left})
		size += len(t.Puts[len(t.Puts)-1].Value)
	}
	return n
}

// lookOutbox adds the known records of a run.
func (t *tx) lookOutbox(run job.ID, b *engine.Batch) {
	for _, r := range t.b.state.outbox.ofRun(run, t.saw) {
		b.AddRecord(r)
	}
}
