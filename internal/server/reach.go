package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/store"
)

const (
	// reachEvery is the wait between two tries to reach the store.
	reachEvery = time.Second
	// reachTry bounds a try that changes no schema: longer than a healthy store takes on a busy
	// machine, so that a dead connection is given up.
	reachTry = 30 * time.Second
	// silenceMax is how long a try may take until the log says that the server waits.
	silenceMax = 5 * time.Second
	// remindFirst and remindMost are the shortest and the longest time between two log lines of a
	// server that waits. Each is twice as long as the one before.
	remindFirst = 10 * time.Second
	remindMost  = 10 * time.Minute
)

// errSilent stands in the log for the error of a try that has not ended.
var errSilent = errors.New("the store has not answered yet")

// whenReached makes a call of the start again until the store can be reached, for as long as that takes.
func (s *Server) whenReached(ctx context.Context, call func(context.Context) error) error {
	return tryUntil(ctx, s.Log, call, s.mayReturn, s.answerUnready)
}

// tryUntil makes a call again until it succeeds or its error may not go away. Between the first failure
// and the end it is waiting, which returns what ends that.
func tryUntil(ctx context.Context, log *slog.Logger, call func(context.Context) error, goesAway func(error) bool, waiting func() (ended func())) error {
	failures, over, told := make(chan error), make(chan bool), make(chan struct{})
	go func() {
		defer close(told)
		tellWaiting(log, waiting, failures, over)
	}()
	for {
		err := call(ctx)
		if err == nil || ctx.Err() != nil || !goesAway(err) {
			over <- err == nil
			<-told
			return err
		}
		failures <- err
		select {
		case <-ctx.Done():
		case <-time.After(reachEvery):
		}
	}
}

// mayReturn reports whether a store may be reached later that could not be opened now. A database that is
// full or read-only is mended there; a file may be on the wrong disk.
func (s *Server) mayReturn(err error) bool {
	if errors.Is(err, store.ErrAway) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return s.Settings.Store.File() == "" && (errors.Is(err, store.ErrNoSpace) || errors.Is(err, store.ErrReadOnly))
}

// tellWaiting logs that a server waits for its store, until it is over.
func tellWaiting(log *slog.Logger, waiting func() (ended func()), failures <-chan error, over <-chan bool) {
	began, why, rest := time.Now(), errSilent, remindFirst
	var ended func() // nil before the first line
	timer := time.NewTimer(silenceMax)
	defer timer.Stop()
	for {
		select {
		case reached := <-over:
			if ended != nil {
				ended()
			}
			if reached && ended != nil {
				log.Info("the store can be reached", "waited", time.Since(began).Round(time.Second).String())
			}
			return
		case why = <-failures:
			if ended != nil {
				continue
			}
		case <-timer.C:
		}
		log.Error("the store cannot be reached; this server starts as soon as it can be", "error", why, "waited", time.Since(began).Round(time.Second).String())
		if ended == nil {
			ended = waiting()
		}
		timer.Reset(rest)
		rest = min(2*rest, remindMost)
	}
}

// answerUnready answers requests while the store is away: a supervisor must see that the process works,
// and that it is not ready. The returned function ends it and leaves the address open.
func (s *Server) answerUnready() (ended func()) {
	probes := s.answersWith(httpapi.Unready(store.ErrAway, s.Log))
	probes.SetKeepAlivesEnabled(false) // so that clients connect to what follows
	s.Log.Info("answering probes until then; nothing else is served", "url", s.URL())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.serveWith(probes, borrowed{s.listen, s.socket})
	}()
	return func() {
		closing, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		if err := probes.Shutdown(closing); err != nil {
			_ = probes.Close()
		}
		<-served
		_ = s.socket.SetDeadline(time.Time{})
	}
}
