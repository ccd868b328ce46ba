// Package notify delivers notifications: it takes ends from the feed of the store and lasting
// problems from checks, keeps pending messages in the store, and sends them to the services of the
// channels. Package notification decides what is sent, and when. One node delivers at a time, by a
// lease in the store. Nothing is lost when the lease moves: each write of the state compares
// versions, an entry of the feed stays until its event is in the state, and an event stays in the
// state until its message is delivered.
package notify

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// consumer is the name of the notifications in the feed of the store.
var consumer = notification.Consumer().Name

const (
	// passEvery is the interval at which the delivering node polls for events and due
	// messages.
	passEvery = 2 * time.Second
	// lookEvery is the interval of checks for lasting problems and their ends.
	lookEvery = 15 * time.Second
	// leaseMax is how long the lease lasts without renewal: longer than an answer of the store, and
	// too short for people to notice.
	leaseMax = 15 * time.Second
	// batch is how many events one read of the feed returns.
	batch = 200
	// groupsMax is the maximum of groups of a channel, and allGroupsMax of all channels. Events
	// beyond it count as dropped.
	groupsMax    = 1000
	allGroupsMax = 10_000
	// notesPage is how many notes one read returns.
	notesPage = 200
	// checkMax is the number of jobs that one check examines for a recovery, each with a
	// short read of history.
	checkMax = 100
	// detailsMax is how many problems of a message get output and the beginning of their failures, and
	// detailsWait how long that is read: a message is not late for them.
	detailsMax  = 5
	detailsWait = 5 * time.Second
	// saveMax bounds the write of delivery results when the node stops.
	saveMax = 5 * time.Second
)

// Store is the part of a store that notifications use.
type Store interface {
	store.Feed
	store.Notes
	Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error)
	JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error)
	Attempts(ctx context.Context, q store.HistoryQuery) (list []store.Record, next store.RecordRef, err error)
	AttemptsOf(ctx context.Context, run job.ID) ([]store.Record, error)
	store.RunLister
	Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error)
	Now(ctx context.Context) (time.Time, error)
}

// Config configures a [Notifier].
type Config struct {
	Store Store
	// Node is the name of this node.
	Node string
	// Send delivers a message. Its error is a *notification.Failure.
	Send func(ctx context.Context, c *job.Channel, m *notification.Message) error
	// Look returns the lasting problems, except failures of jobs. Nil: there are none.
	Look func(ctx context.Context) (notification.Lasting, error)
	// Output returns the last lines of the output of an attempt; for a flow, of the step that failed.
	// Nil: messages have none.
	Output func(ctx context.Context, run job.ID, attempt, lines int) ([]string, error)
	// Behind reports whether reads of history may lack the latest ends of runs. Nil: they never do.
	Behind func() bool
	// Now is the clock of the process. Default: [time.Now].
	Now func() time.Time
	Log *slog.Logger
}

// Notifier delivers notifications. Use [New].
type Notifier struct {
	Config
	trouble *failurelog.Log
	wake    chan struct{} // of capacity one: an end or an answer

	mu    sync.Mutex // guards what follows
	stats Stats

	// Only Run uses the fields below.
	lease    lease
	wanted   store.Consumer // as last put; Name is "" before that
	channels map[job.ID]*job.Channel
	groups   map[string]*group // by the note's name
	states   map[job.ID]*state
	sending  map[job.ID]bool
	done     chan outcome // results of deliveries; has room for all channels
	looked   time.Time
	sends    sync.WaitGroup
}

// Stats counts the notifications of this process.
type Stats struct {
	Delivers bool  // this node has the lease
	Pending  int   // groups with news to report
	Open     int   // groups with a lasting problem
	Sent     int64 // messages
	Failed   int64 // tries
	GivenUp  int64 // messages
	Dropped  int64 // events
}

// New returns a notifier.
func New(c Config) *Notifier {
	if c.Now == nil {
		c.Now = time.Now
	}
	n := &Notifier{Config: c, wake: make(chan struct{}, 1), done: make(chan outcome, store.ChannelsMax), sending: map[job.ID]bool{}}
	n.trouble = failurelog.New(c.Log, "the store cannot keep notifications; they wait", "the store keeps notifications again")
	n.forget()
	return n
}

// Wake makes the delivering node poll for events soon. It never waits, and may be called
// from any goroutine.
func (n *Notifier) Wake() {
	select {
	case n.wake <- struct{}{}:
	default: // it will look
	}
}

// Stats returns the current counts. It may be called from any goroutine.
func (n *Notifier) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// count changes the stats.
func (n *Notifier) count(change func(*Stats)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.stats)
}

// Run delivers until ctx ends, while this node has the lease.
func (n *Notifier) Run(ctx context.Context) {
	ticker := time.NewTicker(passEvery)
	defer ticker.Stop()
	for {
		err := n.pass(ctx)
		switch {
		case ctx.Err() != nil:
			n.stop(ctx)
			return
		case errors.Is(err, errStale):
			n.forget()
		default:
			n.trouble.Saw(err)
		}
		n.sum()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-n.wake:
		}
	}
}

// stop waits for messages in flight, stores their results, and passes the lease to another
// node.
func (n *Notifier) stop(ctx context.Context) {
	n.sends.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveMax)
	defer cancel()
	if err := n.settle(ctx); err != nil {
		n.Log.Debug("the latest deliveries are not kept, and their messages will be sent again", "error", err)
	}
	if n.lease.own {
		_, _ = n.Store.PutNote(ctx, store.Note{Name: notification.LeaseNote, Version: n.lease.version}) // it would expire
	}
}

// forget clears the cache, so that the state is read again.
func (n *Notifier) forget() {
	n.channels, n.groups, n.states = nil, nil, map[job.ID]*state{}
	n.looked = time.Time{}
}

// sum counts the state for the metrics.
func (n *Notifier) sum() {
	pending, open := 0, 0
	for _, g := range n.groups {
		if g.Pending() {
			pending++
		}
		if len(g.Open()) > 0 {
			open++
		}
	}
	n.count(func(s *Stats) { s.Delivers, s.Pending, s.Open = n.lease.own, pending, open })
}

// pass does one round of work.
func (n *Notifier) pass(ctx context.Context) error {
	list, err := store.Channels(ctx, n.Store)
	if err != nil {
		return err
	}
	runs, err := n.awaits(ctx)
	if err != nil {
		return err
	}
	if len(list)+len(runs) == 0 && !n.lease.own {
		return nil // most servers have none, and no further work
	}
	if hadSlot, err := n.hold(ctx); err != nil || !hadSlot {
		return err
	}
	if err := n.take(ctx, list, runs); err != nil {
		return err
	}
	if err := n.settle(ctx); err != nil {
		return err
	}
	if err := n.drain(ctx); err != nil {
		return err
	}
	if err := n.report(ctx, runs); err != nil {
		return err
	}
	if now := n.Now(); now.Sub(n.looked) >= lookEvery {
		n.looked = now
		if err := n.look(ctx); err != nil {
			return err
		}
	}
	return n.send(ctx)
}

// take applies the present channels: it reads unknown state, removes the state of deleted channels,
// and adjusts the feed to the rules.
func (n *Notifier) take(ctx context.Context, list []*job.Channel, runs []*awaited) error {
	n.channels = make(map[job.ID]*job.Channel, len(list))
	for _, c := range list {
		n.channels[c.UID] = c.WithDefaults()
	}
	for _, a := range runs {
		n.channels[a.Run] = a.Channel()
	}
	if n.groups == nil {
		if err := n.read(ctx); err != nil {
			return err
		}
	}
	for _, note := range slices.Sorted(maps.Keys(n.groups)) {
		if g := n.groups[note]; n.channels[g.UID] == nil {
			if err := n.remove(ctx, g); err != nil {
				return err
			}
		}
	}
	for uid, s := range n.states {
		if n.channels[uid] == nil {
			if err := put(ctx, n.Store, &s.ref, nil); err != nil {
				return err
			}
			delete(n.states, uid)
		}
	}
	return n.consume(ctx, list)
}

// consume subscribes to the outcomes that the rules need, or to none without channels.
func (n *Notifier) consume(ctx context.Context, list []*job.Channel) error {
	if len(list) == 0 {
		if n.wanted.Name == "" {
			return nil
		}
		n.wanted = store.Consumer{}
		return n.Store.DeleteConsumer(ctx, consumer)
	}
	c := notification.Consumer(list...)
	if n.wanted.Name != "" && slices.Equal(n.wanted.Outcomes, c.Outcomes) && n.wanted.OrUnmet == c.OrUnmet {
		return nil
	}
	if err := n.Store.PutConsumer(ctx, c); err != nil {
		return err
	}
	n.wanted = c
	return nil
}
