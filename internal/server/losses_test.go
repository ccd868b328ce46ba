package server

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// unanswered is a store that writes notes, and whose first answers are lost or are a failure before that.
type unanswered struct {
	*memory.Store
	before, after int
}

func (s *unanswered) PutAudited(ctx context.Context, n store.AuditedNote) error {
	if s.before--; s.before >= 0 {
		return errors.New("away")
	}
	err := s.Store.PutAudited(ctx, n)
	if s.after--; s.after >= 0 {
		return errors.New("no answer")
	}
	return err
}

func TestLostStepsAreCountedBeyondTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &unanswered{Store: memory.New(memory.Options{Now: time.Now}), before: 2, after: 1}
		var count atomic.Int64
		process := func() (l *losses, stop func()) {
			count.Store(0)
			l = newLosses("one", slog.New(slog.DiscardHandler), func(steps int64) { count.Add(steps) })
			if err := l.Restore(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				l.Run(ctx, s)
				close(done)
			}()
			return l, func() { cancel(); <-done }
		}
		is := func(what string, want int64) {
			t.Helper()
			if got := count.Load(); got != want {
				t.Errorf("%s: %d lost steps are counted, want %d", what, got, want)
			}
		}
		l, stop := process()
		l.Lost(7)
		is("at once", 7)
		time.Sleep(time.Minute)
		l.Lost(5)
		time.Sleep(time.Minute)
		is("later", 12)
		stop()
		_, stop = process()
		is("after a restart", 12)
		stop()
		records, _, err := s.Audit(t.Context(), store.AuditQuery{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		total := ""
		for i := range records {
			total += records[i].Action + " " + records[i].Object + ": " + records[i].Detail.String() + "\n"
		}
		const want = "store.lost one: the store no longer has 5 steps that it had acknowledged to the node, as after a failover or a crash\n" +
			"store.lost one: the store no longer has 7 steps that it had acknowledged to the node, as after a failover or a crash\n"
		if total != want {
			t.Errorf("the audit has\n%swant\n%s", total, want)
		}
	})
}
