package callback_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/callback"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var sent = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestAHandoverEndsByCancelTimeoutOrSilence(t *testing.T) {
	const lostAfter = time.Minute
	for _, c := range []struct {
		name    string
		timeout time.Duration
		now     time.Duration // since it was sent
		seen    time.Duration // since it was sent; 0 for never
		watched time.Duration
		cancel  string
		want    job.Outcome
		next    time.Duration
		reason  string
	}{
		{name: "a service that never said that it runs is not judged by silence", timeout: 30 * time.Minute, now: 20 * time.Minute, watched: time.Hour, next: 10 * time.Minute},
		{name: "its timeout ends it", timeout: 30 * time.Minute, now: 30 * time.Minute, watched: time.Hour, want: job.OutcomeTimedOut, reason: "POST http://a within the timeout of 30 min"},
		{name: "without a timeout there is one", now: callback.TimeoutDefault, want: job.OutcomeTimedOut, reason: "timeout of 1 d"},
		{name: "a long rest is cut", timeout: 100 * time.Hour, now: time.Minute, next: time.Hour},
		{name: "a cancel ends it", timeout: time.Hour, now: time.Second, cancel: "ann", want: job.OutcomeCancelled, reason: "cancelled by ann: enough"},
		{name: "one that said so is given lost_after", timeout: time.Hour, now: 3 * time.Minute, seen: 150 * time.Second, watched: time.Hour, next: 30*time.Second + time.Millisecond},
		{name: "then its silence ends it", timeout: time.Hour, now: 4 * time.Minute, seen: 150 * time.Second, watched: time.Hour, want: job.OutcomeLost, reason: "reported last that it is running at 2026-11-20T12:02:30Z"},
		{name: "while no report could be taken it was not silent", timeout: time.Hour, now: 4 * time.Minute, seen: 150 * time.Second, watched: 10 * time.Second, next: 50*time.Second + time.Millisecond},
		{name: "the timeout comes first", timeout: 200 * time.Second, now: 180 * time.Second, seen: 170 * time.Second, watched: time.Hour, next: 20 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := store.Outstanding{Handover: store.Handover{To: "POST http://a", Sent: sent, Timeout: c.timeout}, Now: sent.Add(c.now)}
			o.Run.LostAfter, o.Run.CancelBy, o.Run.CancelReason = lostAfter, c.cancel, job.Text("enough")
			if c.seen > 0 {
				o.Seen = sent.Add(c.seen)
			}
			res, next := callback.Decide(&o, c.watched)
			if res == nil {
				res = &store.Result{}
			}
			if res.Outcome != c.want || next != c.next || !strings.Contains(res.Reason.String(), c.reason) {
				t.Errorf("it ended as %q (%s), next %s; want %q (%s), %s", res.Outcome, res.Reason, next, c.want, c.reason, c.next)
			}
		})
	}
}

// stored is a store with a keeper's data.
type stored struct {
	list     []store.Outstanding
	answers  []store.Answer
	finished []store.Result
}

func (s *stored) ToAsk(_ context.Context, kind string, limit int) ([]store.Outstanding, error) {
	n := min(limit, len(s.list))
	list := s.list[:n]
	s.list = s.list[n:]
	return list, nil
}

func (s *stored) Asked(_ context.Context, list []store.Answer) error {
	s.answers = append(s.answers, list...)
	return nil
}

func (s *stored) Finish(_ context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	s.finished = append(s.finished, results...)
	return make([]store.FinishOutcome, len(results)), nil
}

func TestAllPagesAreLookedAt(t *testing.T) {
	s := &stored{}
	for i := range store.MaxBatch + 10 {
		o := store.Outstanding{Handover: store.Handover{Number: int64(i), Sent: sent, Timeout: time.Minute}, Now: sent}
		if i%2 == 0 {
			o.Now = sent.Add(time.Minute)
		}
		s.list = append(s.list, o)
	}
	if err := callback.New(s, func() time.Duration { return 0 }).Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := (store.MaxBatch + 10) / 2; len(s.finished) != want || len(s.answers) != want || s.answers[0].Next != time.Minute {
		t.Errorf("%d ended, %d wait, want %d of both", len(s.finished), len(s.answers), want)
	}
}
