package events

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is the hub's part of a store.
type Store interface {
	Events(ctx context.Context) <-chan []store.Event
	EventsElsewhere(ctx context.Context) <-chan []store.Event
	Sessions(ctx context.Context) ([]store.Session, error)
	Now(ctx context.Context) (time.Time, error)
}

const (
	// keptMax bounds the events kept for slow or returning listeners. With their texts they take at
	// most some 20 MB, and nothing without listeners.
	keptMax = 16_384
	// linger is how long a hub keeps following after the last listener has left: a listener with a
	// broken connection returns in that time.
	linger = time.Minute
	// nodesEvery is the interval for polling the nodes. A store does not report their
	// silence.
	nodesEvery = time.Second
	// gatherTime is how long events are gathered before listeners are woken: runs start at full
	// seconds, and their events should not wake a thousand listeners then. turnTime is the time to
	// wake all, in as many parts as turns, so that they do not compete for processors.
	gatherTime = 100 * time.Millisecond
	turnTime   = 100 * time.Millisecond
	turns      = 32
	// PartMax is how many events a listener receives at once, which bounds its unshared memory.
	PartMax = 32
)

// ErrOver is returned to listeners once the hub has ended.
var ErrOver = errors.New("the server stops")

// Event is an event with its position among all events.
type Event struct {
	store.Event
	// ID is the position after which to resume.
	ID string

	once sync.Once
	text []byte
}

// Text returns the text of the event from write, which is called once.
func (e *Event) Text(write func(*Event) []byte) []byte {
	e.once.Do(func() { e.text = write(e) })
	return e.text
}

// Hub keeps the latest events for many listeners. Use [New].
type Hub struct {
	store Store
	wake  chan struct{} // of capacity one: there is a listener

	mu     sync.Mutex // guards the following fields; never held across a call of the store
	epoch  string     // names this period of following: numbers count within it
	events []*Event
	first  uint64 // number of the first kept event
	// listening counts listeners; lastLeft is when one last left.
	listening int
	lastLeft  time.Time
	// following is closed once the store is followed, over when the hub has ended.
	following, over chan struct{}
	// turns has the parts of the listeners; joined is the part of the newest one.
	turns  [turns]turn
	joined int
}

// turn is a part of the listeners, which are woken together.
type turn struct {
	listening int
	more      chan struct{} // closed when they are woken
	next      uint64        // number of the first event that they have not received
}

// New makes a hub; Run makes it work.
func New(s Store) *Hub {
	h := &Hub{store: s, wake: make(chan struct{}, 1), following: make(chan struct{}), over: make(chan struct{})}
	for i := range h.turns {
		h.turns[i].more = make(chan struct{})
	}
	return h
}

// Run follows the store while there are listeners, until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	defer close(h.over)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-h.wake:
			h.follow(ctx)
		}
	}
	return nil
}

// follow keeps events until there have been no listeners for some time.
func (h *Hub) follow(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := h.store.Events(ctx)
	if elsewhere := h.store.EventsElsewhere(ctx); elsewhere != nil {
		own, ordered := changes, make(chan []store.Event)
		changes = ordered
		group.Go(func() { inOrder(ctx, own, elsewhere, ordered) })
	}
	nodes := h.look(ctx, nil)
	h.begin()
	ticker := time.NewTicker(nodesEvery)
	defer ticker.Stop()
	// telling is the next turn, from the first event until all listeners are woken.
	telling, timer := turns, time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case list, open := <-changes:
			if !open {
				return
			}
			h.add(list)
		case <-ticker.C:
			if h.stop() {
				return
			}
			nodes = h.look(ctx, nodes)
		case <-timer.C:
			if telling = h.tell(telling); telling < turns {
				timer.Reset(turnTime / turns)
			}
		}
		if telling == turns && h.hasUnread() {
			telling = 0
			timer.Reset(gatherTime)
		}
	}
}

// tell wakes the part of the listeners whose turn it is, or the next one, and returns the next
// turn.
func (h *Hub) tell(whose int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ; whose < turns; whose++ {
		if t := &h.turns[whose]; t.listening > 0 {
			t.next = h.next()
			close(t.more)
			t.more = make(chan struct{})
			return whose + 1
		}
	}
	return turns
}

// hasUnread reports whether some listeners have not received all events.
func (h *Hub) hasUnread() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.next()
	return slices.ContainsFunc(h.turns[:], func(t turn) bool { return t.listening > 0 && t.next < next })
}

// begin lets listeners in.
func (h *Hub) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epoch, h.events, h.first = rand.Text()[:10], nil, 1
	for i := range h.turns {
		h.turns[i].next = 1
	}
	close(h.following)
}

// stop drops everything if there have been no listeners for some time.
func (h *Hub) stop() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listening > 0 || time.Since(h.lastLeft) < linger {
		return false
	}
	h.epoch, h.events, h.following = "", nil, make(chan struct{})
	select {
	case <-h.wake: // from a listener that has left since
	default:
	}
	return true
}

// add keeps events, and drops the oldest beyond the bound.
func (h *Hub) add(list []store.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range list {
		next := h.next()
		if list[i].Kind == store.EventLost {
			h.events, h.first = nil, next+1 // a listener before this number has missed events
			continue
		}
		h.events = append(h.events, &Event{Event: list[i], ID: h.epoch + "-" + strconv.FormatUint(next, 10)})
	}
	if n := len(h.events); n >= 2*keptMax {
		h.first += uint64(n - keptMax)
		h.events = append([]*Event(nil), h.events[n-keptMax:]...)
	}
}

// next returns the number of the next event.
func (h *Hub) next() uint64 { return h.first + uint64(len(h.events)) }

// sessionState is the last seen state of a session.
type sessionState struct {
	store.Session
	state store.SessionState
}

// look reads the nodes and reports changes since before, which is nil at first. It reports none
// while the store does not answer.
func (h *Hub) look(ctx context.Context, before map[job.ID]sessionState) map[job.ID]sessionState {
	ctx, cancel := context.WithTimeout(ctx, nodesEvery)
	defer cancel()
	sessions, err := h.store.Sessions(ctx)
	if err != nil {
		return before
	}
	now, err := h.store.Now(ctx)
	if err != nil {
		return before
	}
	var list []store.Event
	tell := func(s *store.Session, state store.SessionState) {
		list = append(list, store.Event{Kind: "node." + string(state), Time: now, Session: s})
	}
	after := make(map[job.ID]sessionState, len(sessions))
	for i := range sessions {
		s := &sessions[i]
		state := s.State(now)
		after[s.ID] = sessionState{*s, state}
		if before[s.ID].state != state {
			tell(s, state)
		}
	}
	for id, s := range before {
		if _, there := after[id]; !there {
			tell(&s.Session, store.SessionLeft)
		}
	}
	if before != nil && len(list) > 0 {
		h.add(list)
	}
	return after
}

// Listener receives events. It belongs to one goroutine.
type Listener struct {
	hub         *Hub
	turn        *turn
	next        uint64 // number of the next event
	delayedFrom uint64 // the first event that is delayed until the turn ends
	gap         bool   // events before it are missing
}

// Listen begins to listen after an event, "" for now. It delivers all events after its return.
// Close must be called.
func (h *Hub) Listen(ctx context.Context, behind string) (*Listener, error) {
	h.mu.Lock()
	h.listening++
	h.joined = (h.joined + 1) % turns
	l := &Listener{hub: h, turn: &h.turns[h.joined]}
	if l.turn.listening++; l.turn.listening == 1 {
		l.turn.next = h.next() // they do not wait for earlier events
	}
	following := h.following
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
	select {
	case <-h.over: // whatever was followed until then
		l.Close()
		return nil, ErrOver
	default:
	}
	select {
	case <-following:
	case <-h.over:
		l.Close()
		return nil, ErrOver
	case <-ctx.Done():
		l.Close()
		return nil, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.next, l.delayedFrom = h.next(), h.next()
	if behind == "" {
		return l, nil
	}
	epoch, text, _ := strings.Cut(behind, "-")
	number, err := strconv.ParseUint(text, 10, 64)
	if l.gap = err != nil || epoch != h.epoch || number+1 < h.first || number+1 > l.next; !l.gap {
		l.next = number + 1
	}
	return l, nil
}

// Close ends the listening.
func (l *Listener) Close() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.hub.listening--
	l.turn.listening--
	l.hub.lastLeft = time.Now()
}

// Wait returns when there are events to take, with the error of ctx if that ended first, or
// [ErrOver] once the hub has ended.
func (l *Listener) Wait(ctx context.Context) error {
	h := l.hub
	h.mu.Lock()
	there, more := l.gap || l.next < max(l.delayedFrom, l.turn.next), l.turn.more
	h.mu.Unlock()
	if there {
		return nil
	}
	select {
	case <-more:
		return nil
	case <-h.over:
		return ErrOver
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Take returns the next events, at most [PartMax], possibly none. gap is set if events before them
// are lost.
func (l *Listener) Take() (list []*Event, gap bool) {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.next < h.first {
		l.next, l.gap = h.next(), true
	}
	there := h.events[min(uint64(len(h.events)), l.next-h.first):]
	list = append(list, there[:min(len(there), PartMax)]...)
	l.next += uint64(len(list))
	gap, l.gap = l.gap, false
	return list, gap
}

// Place returns the id of the last received event, or of the position before the first: where to
// resume.
func (l *Listener) Place() string {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return fmt.Sprintf("%s-%d", l.hub.epoch, l.next-1)
}
