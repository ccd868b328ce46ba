package worker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// waiting returns items that are to be started.
func waiting(n int) []*item {
	items := make([]*item, n)
	for i := range items {
		items[i] = &item{Attempt: store.Attempt{Number: i}, With: claim{prepared: &preparedAttempt{}}}
	}
	return items
}

// alone runs a starter on a single goroutine, until there is nothing left to do.
func alone(s *starter, begin, end func(*item)) {
	s.over = true // it does not wait
	var last *item
	for {
		switch it, ended := s.next(last, false); {
		case it == nil:
			return
		case ended:
			end(it)
			last = nil
		default:
			begin(it)
			last = it
		}
	}
}

func TestResultsWaitForStarts(t *testing.T) {
	const n = 1000
	now := time.Now()
	s := newStarter(nil, nil)
	s.coming = true // no other is summoned
	s.add(waiting(n))
	var order []string
	var ends []uint32
	alone(s, func(it *item) {
		it.With.prepared.over = now
		order = append(order, "begin")
	}, func(it *item) {
		order = append(order, "end")
		ends = append(ends, uint32(it.Attempt.Number))
	})
	if first := slices.Index(order, "end"); len(order) != 2*n || first != n {
		t.Errorf("the first of %d ends stands behind %d starts", len(order)-n, first)
	}
	if !slices.IsSorted(ends) {
		t.Error("the ends are out of order")
	}
}

func TestResultsWaitForStartsOnlyBriefly(t *testing.T) {
	const each, most = time.Millisecond, 200
	now := time.Now()
	s := newStarter(nil, nil)
	s.coming = true // no other is summoned
	s.add(waiting(1))
	starts, waited := 0, time.Duration(0)
	alone(s, func(it *item) {
		now = now.Add(each)
		it.With.prepared.over = now
		if starts++; starts < most { // one is always pending
			s.add(waiting(1))
		}
	}, func(it *item) { waited = max(waited, now.Sub(it.With.prepared.over)) })
	if waited < startsFirst || waited > startsFirst+2*each {
		t.Errorf("an end has waited for %s, want %s and little more", waited, startsFirst)
	}
}

func TestResultsDoNotWaitForRunningAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := waiting(4)
		release := make(chan struct{})
		ended := make(chan uint32, len(items)) // handles
		s := newStarter(func(it *item) {
			if uint32(it.Attempt.Number) > 0 {
				<-release
			}
			it.With.prepared.over = time.Now()
		}, func(it *item) { ended <- uint32(it.Attempt.Number) })
		s.add(items)
		synctest.Wait()
		select {
		case handle := <-ended:
			if handle != 0 {
				t.Errorf("attempt %d has ended", handle)
			}
		default:
			t.Error("the end of an attempt waits for others that go on")
		}
		close(release)
		s.close()
		if len(ended) != len(items)-1 {
			t.Errorf("%d others have ended", len(ended))
		}
	})
}
