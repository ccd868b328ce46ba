package sqldb

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var (
	consumerRows = &Table{Name: "consumers", Key: 1, Columns: []Column{{"name", Text}, {"wants", Text}}}
	feedRows     = &Table{Name: "feed", Key: 5, Columns: []Column{
		{"consumer", Text}, {"added", Int}, {"run", Blob}, {"attempt", Int}, {"replaces", Int}, {"record", Text},
	}}
)

// consumersKept is how long a process remembers the consumers: a part of [store.FeedDelay].
const consumersKept = time.Second

// consumers caches the consumers, so that steps need not query them. The zero value is
// ready for use.
type consumers struct {
	mu    sync.Mutex
	asked time.Time
	list  []store.Consumer
}

// remember caches consumers that were read after a moment.
func (c *consumers) remember(asked time.Time, list []store.Consumer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked.After(c.asked) {
		c.asked, c.list = asked, list
	}
}

func (c *consumers) remembered() (list []store.Consumer, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list, time.Since(c.asked) < consumersKept
}

func (c *consumers) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = time.Time{}
}

// consumers returns the consumers as they were at most consumersKept ago.
func (t *tx) consumers() ([]store.Consumer, error) {
	if list, ok := t.s.consumers.remembered(); ok {
		return list, nil
	}
	asked := time.Now()
	states, err := t.consumerStates()
	if err != nil {
		return nil, err
	}
	list := make([]store.Consumer, len(states))
	for i := range states {
		list[i] = states[i].Consumer
	}
	t.s.consumers.remember(asked, list)
	return list, nil
}

func (t *tx) consumerStates() (list []store.ConsumerState, err error) {
	q := t.query("select name, wants, dropped from consumers order by name")
	for q.Next() {
		var c store.ConsumerState
		name := q.Text()
		if err := json.Unmarshal(q.View(), &c.Consumer); err != nil {
			q.Close()
			return nil, fmt.Errorf("consumer %s: %w: %w", name, store.ErrDamaged, err)
		}
		c.Dropped = q.Int()
		list = append(list, c)
	}
	return list, q.Err()
}

// feed adds records to the entries of the consumers that want them.
func (st *step) feed(records []*store.Record) error {
	if len(records) == 0 {
		return nil
	}
	list, err := st.consumers()
	if err != nil || len(list) == 0 {
		return err
	}
	b := st.rows(feedRows, len(records))
	for _, r := range records {
		var text string
		for i := range list {
			if !list[i].Wants(r) {
				continue
			}
			if text == "" {
				encoded, err := json.Marshal(r)
				if err != nil {
					return fmt.Errorf("encode the record of run %s: %w", r.Run.ID, err)
				}
				text = string(encoded)
			}
			b.text(list[i].Name).time(st.moment).id(&r.Run.ID).int(int64(r.Attempt.Number)).bool(r.Replaces).text(text)
		}
	}
	return st.writeRows(InsertNew, b)
}

// PutConsumer implements [store.Feed].
func (s *backend) PutConsumer(ctx context.Context, c store.Consumer) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	err = s.write(ctx, func(t *tx) error {
		others, err := t.number("select count(*) from consumers where name <> ?", c.Name)
		if err != nil {
			return err
		}
		if others >= store.ConsumersMax {
			return store.ErrLimit
		}
		return t.writeRows(Upsert, t.rows(consumerRows, 1).text(c.Name).text(string(text)))
	})
	s.consumers.forget()
	return err
}

// DeleteConsumer implements [store.Feed]. Entries that other processes still add, because they
// remember the consumer, are removed by Sweep.
func (s *backend) DeleteConsumer(ctx context.Context, name string) error {
	err := s.write(ctx, func(t *tx) error {
		if err := t.exec("delete from feed where consumer = ?", name); err != nil {
			return err
		}
		return t.exec("delete from consumers where name = ?", name)
	})
	s.consumers.forget()
	return err
}

// Consumers implements [store.Feed].
func (s *backend) Consumers(ctx context.Context) (list []store.ConsumerState, err error) {
	err = s.read(ctx, func(t *tx) error {
		if list, err = t.consumerStates(); err != nil {
			return err
		}
		for i := range list {
			q := t.query("select count(*), coalesce(sum(length(record)), 0), coalesce(min(added), 0) from feed where consumer = ?", list[i].Name)
			for q.Next() {
				list[i].Entries, list[i].Bytes, list[i].Oldest = int(q.Int()), q.Int(), q.time()
			}
			if err := q.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	return list, wrapped(err, "consumers of the feed")
}

// feedPlace is the place of an entry of a consumer.
type feedPlace struct {
	added    int64
	run      job.ID
	attempt  int64
	replaces int64
}

func (p *feedPlace) ref() store.FeedRef {
	return store.FeedRef(fmt.Sprintf("%019d.%s.%d.%d", p.added, p.run, p.attempt, p.replaces))
}

func placeInFeed(ref store.FeedRef) (p feedPlace, err error) {
	var id string
	if _, err := fmt.Sscanf(string(ref), "%d.%26s.%d.%d", &p.added, &id, &p.attempt, &p.replaces); err != nil {
		return p, fmt.Errorf("place %q: %w", ref, err)
	}
	p.run, err = job.ParseID(id)
	return p, err
}

// Ended implements [store.Feed].
func (s *backend) Ended(ctx context.Context, consumer string, after store.FeedRef, limit int) (list []store.FeedEntry, err error) {
	behind := feedPlace{added: math.MinInt64}
	if after != "" {
		if behind, err = placeInFeed(after); err != nil {
			return nil, err
		}
	}
	err = s.read(ctx, func(t *tx) error {
		list = nil
		known, err := t.number("select count(*) from consumers where name = ?", consumer)
		if err != nil {
			return err
		}
		if known == 0 {
			return store.ErrNotFound
		}
		q := t.query(`select added, run, attempt, replaces, record from feed
			where consumer = ? and added >= ? and (added, run, attempt, replaces) > (?, ?, ?, ?)
			order by added, run, attempt, replaces limit ?`,
			consumer, behind.added, behind.added, idOf(behind.run), behind.attempt, behind.replaces, int64(limit))
		for q.Next() {
			p := feedPlace{q.Int(), q.id(), q.Int(), q.Int()}
			e := store.FeedEntry{Ref: p.ref()}
			if err := json.Unmarshal(q.View(), &e.Record); err != nil {
				q.Close()
				return fmt.Errorf("entry %s: %w: %w", e.Ref, store.ErrDamaged, err)
			}
			list = append(list, e)
		}
		return q.Err()
	})
	return list, err
}

// Taken implements [store.Feed].
func (s *backend) Taken(ctx context.Context, consumer string, refs []store.FeedRef) error {
	places := make([]feedPlace, len(refs))
	for i, ref := range refs {
		var err error
		if places[i], err = placeInFeed(ref); err != nil {
			return err
		}
	}
	return s.write(ctx, func(t *tx) error {
		b := t.rows(feedRows, len(places))
		for i := range places {
			p := &places[i]
			b.text(consumer).int(p.added).id(&p.run).int(p.attempt).int(p.replaces).text("")
		}
		return t.writeRows(Delete, b)
	})
}

// feedSweepEvery is how often entries beyond the bounds of the feed are sought: counting reads them
// all.
const feedSweepEvery = time.Minute

// sweepFeed drops entries beyond the bounds of their consumers, and entries without a consumer.
func (s *backend) sweepFeed(ctx context.Context, now time.Time) (more bool, err error) {
	s.feedSwept.Lock()
	defer s.feedSwept.Unlock()
	if now.Sub(s.feedSwept.at) < feedSweepEvery {
		return false, nil
	}
	err = s.write(ctx, func(t *tx) error {
		more = false
		list, err := t.consumerStates()
		if err != nil {
			return err
		}
		if err := t.dropStrays(list); err != nil {
			return err
		}
		for i := range list {
			n, err := t.dropEntries(&list[i])
			if err != nil {
				return err
			}
			more = more || n == tidyMax
		}
		return nil
	})
	if err == nil && !more {
		s.feedSwept.at = now
	}
	return more, err
}

// dropStrays removes entries without a consumer.
func (t *tx) dropStrays(list []store.ConsumerState) error {
	for name := ""; ; {
		found, err := t.texts("select coalesce(min(consumer), '') from feed where consumer > ?", name)
		if err != nil || len(found) == 0 || found[0] == "" {
			return err
		}
		name = found[0]
		if slices.ContainsFunc(list, func(c store.ConsumerState) bool { return c.Name == name }) {
			continue
		}
		if err := t.exec("delete from feed where consumer = ?", name); err != nil {
			return err
		}
	}
}

// dropEntries drops some of the oldest entries of a consumer that has too many.
func (t *tx) dropEntries(c *store.ConsumerState) (dropped int, err error) {
	count, err := t.number("select count(*) from feed where consumer = ?", c.Name)
	if err != nil || count <= int64(c.Most()) {
		return 0, err
	}
	b := t.rows(feedRows, tidyMax)
	q := t.query("select added, run, attempt, replaces from feed where consumer = ? order by added, run, attempt, replaces limit ?",
		c.Name, min(tidyMax, count-int64(c.Most())))
	for q.Next() {
		p := feedPlace{q.Int(), q.id(), q.Int(), q.Int()}
		b.text(c.Name).int(p.added).id(&p.run).int(p.attempt).int(p.replaces).text("")
	}
	if err := q.Err(); err != nil {
		return 0, err
	}
	if err := t.exec("update consumers set dropped = dropped + ? where name = ?", int64(b.Len()), c.Name); err != nil {
		return 0, err
	}
	return b.Len(), t.writeRows(Delete, b)
}
