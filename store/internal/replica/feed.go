package replica

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/store"
)

const (
	consumerKeys = Copied + "z/" // consumers of the feed, by name
	feedKeys     = "f/"          // untaken entries, by consumer, moment, run and attempt
)

func feedOf(consumer string) string { return feedKeys + consumer + "/" }

// keptConsumer is a stored consumer.
type keptConsumer struct {
	store.Consumer
	Dropped int64
}

// feed adds records to the entries of the consumers that want them.
func (w *writer) feed(t *Txn, records []*store.Record) {
	if len(records) == 0 {
		return
	}
	w.t.b.mu.RLock()
	consumers := w.t.b.state.consumers
	w.t.b.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(consumers)) {
		c := consumers[name]
		for _, r := range records {
			if c.Wants(r) && !slices.Contains(w.words, r) {
				t.put(feedOf(name)+string(newPlace(w.now, r)), encode(r, codeRecord, 256))
			}
		}
	}
}

// wordsOnly returns the replaced records that are not late results.
func wordsOnly(list []*store.Record) []*store.Record {
	return slices.DeleteFunc(slices.Clone(list), func(r *store.Record) bool { return r.Replaces })
}

// newPlace is the place of a record that is fed at a moment.
func newPlace(at time.Time, r *store.Record) store.FeedRef {
	place := big(at.UnixMicro()) + string(r.Run.ID[:]) + big(int64(r.Attempt.Number))
	if r.Replaces {
		place += "r"
	}
	return store.FeedRef(place)
}

// PutConsumer implements ledger.Backend.
func (b *Backend) PutConsumer(ctx context.Context, c store.Consumer) error {
	for {
		t, known := newTxn(), 0
		var is keptConsumer
		if err := b.read(ctx, func(s *state) {
			if was := s.consumers[c.Name]; was != nil {
				is = *was
			} else {
				known = len(s.consumers)
			}
			t.Compares[consumerKeys+c.Name] = s.versions[consumerKeys+c.Name]
		}); err != nil {
			return err
		}
		if known >= store.ConsumersMax {
			return store.ErrLimit
		}
		is.Consumer = c
		b.set(t, consumerKeys+c.Name, &is)
		if done, err := b.write(ctx, t); done || err != nil {
			return err
		}
	}
}

// DeleteConsumer implements ledger.Backend. Sweep removes entries that concurrent steps add.
func (b *Backend) DeleteConsumer(ctx context.Context, name string) error {
	t := newTxn()
	t.Deletes = []string{consumerKeys + name}
	if _, err := b.write(ctx, t); err != nil {
		return err
	}
	return b.removeRange(ctx, feedOf(name), feedOf(name)+"\xff")
}

// write commits outside of a step, and reports whether the compares held.
func (b *Backend) write(ctx context.Context, t *Txn) (done bool, err error) {
	defer b.alone()()
	b.set(t, signalKey, &signal{writer: b.writer})
	version, done, err := b.commit(ctx, t)
	if err != nil || !done {
		return false, err
	}
	return true, b.await(ctx, version)
}

// Consumers implements ledger.Backend.
func (b *Backend) Consumers(ctx context.Context) (list []store.ConsumerState, err error) {
	var consumers map[string]*keptConsumer
	if err := b.read(ctx, func(s *state) {
		consumers = s.consumers
		if s.outbox != nil {
			list = append(list, s.outbox.backlog())
		}
	}); err != nil {
		return nil, err
	}
	for name, c := range consumers {
		is := store.ConsumerState{Consumer: c.Consumer, Dropped: c.Dropped}
		if err := b.eachEntry(ctx, name, func(p Pair, at time.Time) {
			if is.Entries++; is.Entries == 1 {
				is.Oldest = at
			}
			is.Bytes += int64(len(p.Key) + len(p.Value))
		}); err != nil {
			return nil, err
		}
		list = append(list, is)
	}
	slices.SortFunc(list, func(a, c store.ConsumerState) int { return strings.Compare(a.Name, c.Name) })
	return list, nil
}

// feedPage is the number of entries read at once to count them.
const feedPage = 1000

// eachEntry calls a function for each entry of a consumer.
func (b *Backend) eachEntry(ctx context.Context, consumer string, each func(p Pair, at time.Time)) error {
	for from := feedOf(consumer); ; {
		pairs, err := b.driver.Range(ctx, from, feedOf(consumer)+"\xff", feedPage, false)
		if err != nil {
			return err
		}
		for _, p := range pairs {
			if place := strings.TrimPrefix(p.Key, feedOf(consumer)); len(place) >= 8 {
				each(p, time.UnixMicro(number(place[:8])).UTC())
			}
		}
		if len(pairs) < feedPage {
			return nil
		}
		from = pairs[len(pairs)-1].Key + "\x00"
	}
}

// Ended implements ledger.Backend.
func (b *Backend) Ended(ctx context.Context, consumer string, after store.FeedRef, limit int) (list []store.FeedEntry, err error) {
	known, apart := false, false
	if err := b.read(ctx, func(s *state) {
		known = s.consumers[consumer] != nil
		if apart = s.outbox != nil && consumer == store.ConsumerHistory; apart {
			list, err = s.outbox.entries(after, limit)
		}
	}); err != nil || apart {
		return list, err
	}
	if !known {
		return nil, store.ErrNotFound
	}
	from := feedOf(consumer)
	if after != "" {
		from += string(after) + "\x00"
	}
	pairs, err := b.driver.Range(ctx, from, feedOf(consumer)+"\xff", limit, false)
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		r, err := decode(p.Value, codeRecord)
		if err != nil {
			return nil, fmt.Errorf("%w: an entry of the feed: %w", store.ErrDamaged, err)
		}
		list = append(list, store.FeedEntry{Ref: store.FeedRef(strings.TrimPrefix(p.Key, feedOf(consumer))), Record: r})
	}
	return list, nil
}

// Taken implements ledger.Backend.
func (b *Backend) Taken(ctx context.Context, consumer string, refs []store.FeedRef) error {
	if b.opt.apart && consumer == store.ConsumerHistory {
		return b.shipped(ctx, refs)
	}
	keys := make([]string, len(refs))
	for i, ref := range refs {
		keys[i] = feedOf(consumer) + string(ref)
	}
	return b.removeKeys(ctx, keys)
}

// removeKeys removes keys that are not in the copy.
func (b *Backend) removeKeys(ctx context.Context, keys []string) error {
	most, _ := b.driver.Bounds()
	for some := range slices.Chunk(keys, most) {
		if _, _, err := b.commit(ctx, &Txn{Deletes: some}); err != nil {
			return err
		}
	}
	return nil
}

// feedSweepEvery is the interval of checks for entries beyond the bounds of the feed:
// counting them reads all.
const feedSweepEvery = time.Minute

// sweepFeed drops entries beyond the bounds of their consumers, and entries without a consumer.
func (b *Backend) sweepFeed(ctx context.Context, now time.Time) error {
	b.feedSwept.Lock()
	defer b.feedSwept.Unlock()
	if now.Sub(b.feedSwept.at) < feedSweepEvery {
		return nil
	}
	var consumers map[string]*keptConsumer
	if err := b.read(ctx, func(s *state) { consumers = s.consumers }); err != nil {
		return err
	}
	for from := feedKeys; ; { // finds the consumers that have entries
		pairs, err := b.driver.Range(ctx, from, feedKeys+"\xff", 1, false)
		if err != nil {
			return err
		}
		if len(pairs) == 0 {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(pairs[0].Key, feedKeys), "/")
		from = feedOf(name) + "\xff"
		if err := b.dropEntries(ctx, name, consumers[name]); err != nil {
			return err
		}
	}
	b.feedSwept.at = now
	return nil
}

// dropEntries drops the oldest entries of a consumer that has too many, or all entries of an
// unknown consumer.
func (b *Backend) dropEntries(ctx context.Context, name string, c *keptConsumer) error {
	if c == nil {
		return b.removeRange(ctx, feedOf(name), feedOf(name)+"\xff")
	}
	var keys []string
	if err := b.eachEntry(ctx, name, func(p Pair, _ time.Time) { keys = append(keys, p.Key) }); err != nil {
		return err
	}
	n := len(keys) - c.Most()
	if n <= 0 {
		return nil
	}
	t := newTxn()
	b.mu.RLock()
	t.Compares[consumerKeys+name] = b.state.versions[consumerKeys+name]
	b.mu.RUnlock()
	b.set(t, consumerKeys+name, &keptConsumer{c.Consumer, c.Dropped + int64(n)})
	if done, err := b.write(ctx, t); err != nil || !done { // another process drops them
		return err
	}
	return b.removeKeys(ctx, keys[:n])
}
