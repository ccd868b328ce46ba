package storetest

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// atOnceRounds is how often two concurrent calls are made. Without their lock most rounds fail.
const atOnceRounds = 10

// OpenAtOnce checks that ten nodes which open an empty store at the same time all do.
func OpenAtOnce(t *testing.T, open func() (io.Closer, error)) {
	t.Helper()
	calls := slices.Repeat([]func() error{func() error {
		s, err := open()
		if err != nil {
			return err
		}
		return s.Close()
	}}, 10)
	for _, err := range atOnce(calls...) {
		if err != nil {
			t.Error(err)
		}
	}
}

// atOnce makes calls concurrently.
func atOnce(calls ...func() error) []error {
	errs := make([]error, len(calls))
	var wait sync.WaitGroup
	begin := make(chan struct{})
	for i, call := range calls {
		wait.Go(func() {
			<-begin
			errs[i] = call()
		})
	}
	close(begin)
	wait.Wait()
	return errs
}

// In these tests, two calls that change different rows must still wait for each other.
var atOnceTests = []test{
	{"concurrent edits make no circle of followers", func(e *env) {
		for i := range atOnceRounds {
			follow := func(name, on string) func() error {
				put := e.puts(fmt.Sprintf("name: %s%d\nschedule: {on: %s%d}", name, i, on, i))[0]
				return func() error {
					_, err := store.PutOne(e.ctx, e, put)
					return err
				}
			}
			errs := atOnce(follow("a", "b"), follow("b", "a"))
			if (errs[0] == nil) == (errs[1] == nil) {
				e.Fatalf("of two that would follow each other one is refused, not %v", errs)
			}
			e.want(errors.Join(errs...), store.ErrCycle)
		}
	}},
	{"a job edited while its calendar changes follows the new calendar", func(e *env) {
		_, err := e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "off", Days: job.Days{Include: []string{"2026-12-24"}}}}, 0, "ann")
		e.must(err)
		const schedule = "\nschedule: {cron: '* * * * *', except: [off]}"
		for i := range atOnceRounds {
			days := job.Days{Include: []string{start.AddDate(0, 0, i).Format(time.DateOnly)}}
			put := e.puts(fmt.Sprintf("name: a%d%s", i, schedule))[0]
			for _, err := range atOnce(func() error {
				_, err := store.PutOne(e.ctx, e, put)
				return err
			}, func() error {
				_, err := e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "off", Days: days}}, store.AnyVersion, "ann")
				return err
			}) {
				e.must(err)
			}
			e.put(fmt.Sprintf("name: b%d%s", i, schedule)) // by the current calendar
			changed, _, err := e.JobsChanged(e.ctx, store.AllPartitions, 0, 1000)
			e.must(err)
			for _, c := range changed {
				equal(e, "timing", c.Timing, changed[len(changed)-1].Timing)
			}
		}
	}},
	{"claims of different jobs take no more turns of a rate than there are", func(e *env) {
		for i := range atOnceRounds {
			name := fmt.Sprint("api", i)
			e.rate(name, job.Slots{Rate: &job.Rate{Limit: 1, Per: job.Duration(time.Hour), Burst: 2}})
			started := make([]bool, 6)
			var calls []func() error
			for n := range started {
				a := e.trigger(e.put(fmt.Sprintf("name: j%d-%d\npolicy: {overlap: queue, queue_limit: 9, rate_key: %s}", i, n, name)))
				calls = append(calls, func() error {
					out, err := e.Claim(e.ctx, e.a.ID, []store.Attempt{a})
					started[n] = err == nil && out[0].Verdict == store.Started
					return err
				})
			}
			e.must(errors.Join(atOnce(calls...)...))
			equal(e, "claims that start", len(slices.DeleteFunc(started, func(yes bool) bool { return !yes })), 2)
		}
	}},
	{"one of the last two admin tokens stays when both are revoked concurrently", func(e *env) {
		for range atOnceRounds {
			var calls []func() error
			for _, name := range []string{"admin", "ann"} {
				e.putToken(store.PutToken{Name: name, Hash: hashOf(name), Role: store.RoleAdmin, Replace: true, Actor: "belfry"})
				calls = append(calls, func() error { return e.DeleteToken(e.ctx, name, "belfry") })
			}
			e.want(errors.Join(atOnce(calls...)...), store.ErrLastAdmin)
			list, err := e.Tokens(e.ctx)
			e.must(err)
			equal(e, "tokens", len(list), 1)
		}
	}},
	{"a session renewed while another one reaps it is either over or live", func(e *env) {
		b := e.join("b")
		for i := range atOnceRounds {
			a := e.join(fmt.Sprintf("a%d", i))
			attempt := e.plan(e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {lost_after: 30s}", i)), time.Second)[0]
			e.claim(a, attempt, store.Started)
			e.pass(31*time.Second, b)
			renew := func() error { return e.Renew(e.ctx, a.ID, store.Load{}) }
			errs := atOnce(func() error {
				time.Sleep(time.Duration(i) * 300 * time.Microsecond) // during the other call, in some round
				return renew()
			}, func() error { return e.Reap(e.ctx, b.ID, []store.Attempt{attempt}) })
			e.must(errs[1])
			if again := renew(); (errs[0] == nil) != (again == nil) {
				e.Fatalf("renewed with the answer %v, and then %v", errs[0], again)
			}
		}
	}},
}
