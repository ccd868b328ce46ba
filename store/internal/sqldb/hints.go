package sqldb

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/store"
)

const (
	// noticeGap is the minimum time between two notices to other nodes. Changes in between are
	// combined: a busy node sends a hundred each second, not one per commit.
	noticeGap = 10 * time.Millisecond
	// noticeMax bounds the sending of a notice.
	noticeMax = 2 * time.Second
	// listenAgain is the pause before a lost listening connection is opened again.
	listenAgain = 500 * time.Millisecond
)

// notices notifies the other nodes of changes.
type notices struct {
	sender  string // identifies our own notices
	pending atomic.Uint64
	wake    chan struct{} // of capacity one: notices are pending
}

func (n *notices) init() {
	n.sender, n.wake = rand.Text(), make(chan struct{}, 1)
}

// Hints returns a channel of hints about commits of all nodes. It is closed when ctx ends.
func (s *backend) Hints(ctx context.Context) <-chan store.Hint { return s.hints.Listen(ctx) }

// send passes a hint to this process, and queues it for other nodes.
func (s *backend) send(hint store.Hint) {
	if hint == 0 {
		return
	}
	s.hints.Send(hint)
	if s.db.Alone() {
		return
	}
	if s.db.KeepsNotices() {
		hint &^= store.HintAny // the hint is then about any job and run
	}
	for {
		pending := s.notices.pending.Load()
		if s.notices.pending.CompareAndSwap(pending, uint64(store.Hint(pending).With(hint))) {
			break
		}
	}
	select {
	case s.notices.wake <- struct{}{}:
	default: // it is awake
	}
}

// notify sends notices until ctx ends: the first at once, later ones combined. A lost notice delays
// other nodes until their next poll.
func (s *backend) notify(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.notices.wake:
		case <-ctx.Done():
			return
		}
		once, cancel := context.WithTimeout(ctx, noticeMax)
		_ = s.db.Notify(once, fmt.Sprintf("%s %d", s.notices.sender, s.notices.pending.Swap(0)))
		cancel()
		timer.Reset(noticeGap)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// listen passes on notices of other nodes, until ctx ends.
func (s *backend) listen(ctx context.Context) {
	for ctx.Err() == nil {
		_ = s.db.Listen(ctx, s.listening, s.heard)
		pause(ctx, listenAgain)
	}
}

// listening hints at everything that may have changed while this process did not listen, such as
// during a short failover. It waits until it listens again: while the database is away, hints would
// only make all workers ask it, twice a second.
func (s *backend) listening() {
	s.hints.Send(store.HintJobs | store.HintRuns | store.HintCancels | store.HintPlaced | store.HintNodes | store.HintLost)
}

func (s *backend) heard(payload string) {
	sender, text, _ := strings.Cut(payload, " ")
	if sender == s.notices.sender {
		return
	}
	switch text {
	case followPayload:
		s.followed.heard()
		return
	case NotedPayload:
		s.heardNote()
		return
	}
	if hint, err := strconv.ParseUint(text, 10, 64); err == nil {
		s.hints.Send(store.Hint(hint))
	}
}
