package sqldb

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// A node that follows events of other nodes announces itself to all of them periodically. While
// announced, followers read a table of changes, which the other nodes write in separate
// transactions after the changes. Without a follower nothing is written.
const (
	// followAgain is how often a follower announces itself, followLife how long an announcement
	// holds: some may be lost.
	followAgain = 5 * time.Second
	followLife  = 15 * time.Second
	// followWait is how long following waits for the other nodes to start: longer than the
	// announcement takes. Earlier changes of a node that starts later are unknown.
	followWait = time.Second
	// tellEvery is how long a node gathers events for followers, and tellMax the most that it
	// writes at once: beyond 20,000 a second some are lost, which is reported.
	tellEvery = 100 * time.Millisecond
	tellMax   = 2000
	// hearEvery is how often a follower reads, and hearMax how many rows it reads at once.
	hearEvery = 200 * time.Millisecond
	hearMax   = 20
	// toldLife is how long events are kept: a slower follower loses them, and gets an event that
	// reports the loss.
	toldLife = 15 * time.Second
	// followPayload is the text of an announcement, in the place of hints.
	followPayload = "follow"
)

// followerState tracks how long other nodes follow this node's events.
type followerState struct {
	wake  chan struct{} // of capacity one: there is a follower
	mu    sync.Mutex
	until time.Time
}

func (f *followerState) heard() {
	f.mu.Lock()
	f.until = time.Now().Add(followLife)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default: // it is awake
	}
}

func (f *followerState) now() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.until)
}

// eventBatch is a batch of events for other nodes. Begun is set in the first one for a new follower.
type eventBatch struct {
	Begun  bool
	Events []store.Event
}

var eventRows = &Table{Name: "told", Key: 1, Columns: []Column{
	{"number", Int}, {"sender", Text}, {"batch", Int}, {"told_at", Int}, {"events", Blob},
}}

// tell writes this node's changes for its followers, until ctx ends.
func (s *backend) tell(ctx context.Context) {
	for batch := int64(0); ; {
		select {
		case <-s.followed.wake:
			batch = s.tellFollowers(ctx, batch)
		case <-ctx.Done():
			return
		}
	}
}

// tellFollowers writes events until there is no follower left. It numbers its batches from a number
// on, and returns the last number.
func (s *backend) tellFollowers(ctx context.Context, batch int64) int64 {
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := s.events(following)
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	next := eventBatch{Begun: true}
	for s.followed.now() {
		for room := true; room && len(next.Events) < tellMax; {
			select {
			case list, open := <-changes:
				next.Events = append(next.Events, list...)
				room = open // the channel closes with ctx
			default:
				room = false
			}
		}
		if next.Begun || len(next.Events) > 0 {
			// A failed write is repeated. If that takes long, the channel has lost events,
			// and reports that.
			if s.writeTold(ctx, batch+1, &next) == nil {
				batch++
				next = eventBatch{}
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return batch
		}
	}
	_ = s.write(ctx, func(t *tx) error { // or the next node with a follower removes it
		return t.exec("delete from told where sender = ?", s.notices.sender)
	})
	return batch
}

// writeTold writes events with the next number, and removes old ones. The counter stays locked
// until the commit, so that numbers become visible in order.
func (s *backend) writeTold(ctx context.Context, batch int64, next *eventBatch) error {
	data, err := pack(next)
	if err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		if t.again {
			there, err := t.number("select count(*) from told where sender = ? and batch = ?", s.notices.sender, batch)
			if err != nil || there > 0 {
				return err
			}
		}
		number, err := t.number("select value from counters where name = 'told' for update")
		if err != nil {
			return err
		}
		number++
		if err := t.exec("update counters set value = ? where name = 'told'", number); err != nil {
			return err
		}
		now := s.clock.now()
		if next.Begun || number%int64(toldLife/tellEvery) == 0 {
			if err := t.exec("delete from told where told_at < ?", columns.Nanos(now.Add(-toldLife))); err != nil {
				return err
			}
		}
		return t.writeRows(Insert, t.rows(eventRows, 1).int(number).text(s.notices.sender).int(batch).time(now).blob(data))
	})
}

// EventsElsewhere implements [store.Store].
func (s *backend) EventsElsewhere(ctx context.Context) <-chan []store.Event {
	if s.db.Alone() {
		return nil
	}
	ch := make(chan []store.Event)
	if s.check(ctx) != nil {
		close(ch)
		return ch
	}
	ctx, cancel := context.WithCancel(ctx)
	begun := make(chan struct{})
	s.work.Go(func() {
		defer cancel()
		defer close(ch)
		s.hear(ctx, begun, ch)
	})
	select {
	case <-begun:
	case <-ctx.Done():
	}
	return ch
}

// hear reads the events of other nodes and sends them to a channel, until ctx ends or the store is
// closed. It closes begun once it follows.
func (s *backend) hear(ctx context.Context, begun chan<- struct{}, to chan<- []store.Event) {
	const unknown = -1
	last, began := int64(unknown), time.Now()
	var at time.Time
	hints := s.hints.Listen(ctx)
	for {
		if at.IsZero() || time.Since(at) > followAgain {
			once, cancel := context.WithTimeout(ctx, noticeMax)
			_ = s.db.Notify(once, s.notices.sender+" "+followPayload) // the next announcement will do
			cancel()
			at = time.Now()
		}
		starting := begun != nil
		var heard []store.Event
		var err error
		if last != unknown {
			heard, last, err = s.readTold(ctx, last, starting)
		} else if last, err = s.lastTold(ctx); err == nil && !starting {
			heard = []store.Event{{Kind: store.EventLost, Time: s.clock.now()}}
		}
		if starting && (last != unknown || err != nil) && time.Since(began) > followWait {
			close(begun)
			begun = nil
		}
		if len(heard) > 0 && !starting {
			select {
			case to <- heard:
				continue // there may be more
			case <-ctx.Done():
				return
			case <-s.closed:
				return
			}
		}
		if s.awayWithin(ctx, hints, hearEvery) {
			last = unknown // after a failover the numbers may continue from an earlier one
		}
		if s.check(ctx) != nil {
			return
		}
	}
}

// awayWithin waits, and reports whether hints say that the database was away in that time.
func (s *backend) awayWithin(ctx context.Context, hints <-chan store.Hint, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case hint := <-hints:
			if hint&store.HintLost != 0 {
				return true
			}
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		case <-s.closed:
			return false
		}
	}
}

// lastTold returns the number of the last batch.
func (s *backend) lastTold(ctx context.Context) (last int64, err error) {
	err = s.read(ctx, func(t *tx) error {
		last, err = t.number("select value from counters where name = 'told'")
		return err
	})
	if err != nil {
		return -1, err
	}
	return last, nil
}

// readTold returns the events of other nodes after a number, and the number to continue from. An
// event that reports a loss replaces missing events, and possibly missing ones of a node that has
// just started to write; while all nodes are starting none are missing.
func (s *backend) readTold(ctx context.Context, behind int64, beginning bool) (heard []store.Event, last int64, err error) {
	err = s.read(ctx, func(t *tx) error {
		heard, last = nil, behind
		q := t.query("select number, sender, told_at, events from told where number > ? order by number limit ?", behind, int64(hearMax))
		for q.Next() {
			number, sender, at := q.Int(), q.Text(), q.time()
			next, data := eventBatch{}, q.View()
			lost := number != last+1
			if sender != s.notices.sender && (unpack(data, &next) != nil || next.Begun && !beginning) {
				lost = true // another version of the program has written it
			}
			if lost {
				heard = append(heard, store.Event{Kind: store.EventLost, Time: at})
			}
			heard = append(heard, next.Events...)
			last = number
		}
		return q.Err()
	})
	if err != nil {
		return nil, behind, wrapped(err, "events of others")
	}
	return heard, last, nil
}

// pack compresses events.
func pack(next *eventBatch) ([]byte, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(w).Encode(next); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func unpack(data []byte, next *eventBatch) error {
	r := flate.NewReader(bytes.NewReader(data))
	return json.NewDecoder(io.LimitReader(r, unpackedMax)).Decode(next)
}

// unpackedMax bounds one batch: tellMax events of some kilobytes.
const unpackedMax = 64 << 20
