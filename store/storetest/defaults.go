package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// OpenWith opens a store that is there, with other defaults, which hold the start up for
// a time at most.
type OpenWith func(t *testing.T, d job.Defaults, most time.Duration, tell func(store.Refill)) store.Store

// OtherDefaults checks what a store that several servers share does when they start with
// other defaults. open makes it at the first call.
func OtherDefaults(t *testing.T, open OpenWith) {
	zone := func(zone string) job.Defaults { return job.Defaults{Timezone: zone} }
	const told = 2 * time.Minute // for a machine that does much else
	await := func(t *testing.T, from <-chan store.Refill) store.Refill {
		t.Helper()
		for over := time.After(told); ; {
			select {
			case is := <-from:
				if is.Err != nil {
					t.Fatal(is.Err)
				}
				if is.Over || is.Superseded {
					return is
				}
			case <-over:
				t.Fatal("the end is not told")
			}
		}
	}
	teller := func() (<-chan store.Refill, func(store.Refill)) {
		c := make(chan store.Refill, 1000)
		return c, func(is store.Refill) { c <- is }
	}
	// More than are looked at, and written, at once.
	const many = 1201
	heard, tell := teller()
	first := open(t, zone("UTC"), time.Minute, tell)
	await(t, heard)
	var list []store.PutJob
	for i := range many {
		j := &job.Job{Name: fmt.Sprint("j", i), Schedule: job.Schedule{Cron: []string{"0 3 * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}
		if i == 7 {
			j.Schedule.Timezone = "Asia/Tokyo" // says it itself
		}
		if list = append(list, store.PutJob{Definition: j, Actor: "ann"}); len(list) == store.PutMax || i == many-1 {
			if _, err := first.PutJobs(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			list = nil
		}
	}
	// check reads all jobs, and returns how many have the zone.
	check := func(zone string, epochs ...int64) (n int) {
		t.Helper()
		jobs, _, err := first.JobsChanged(t.Context(), store.AllPartitions, 0, 2*many)
		if err != nil || len(jobs) != many {
			t.Fatalf("%d jobs, %v", len(jobs), err)
		}
		said := 0
		for _, j := range jobs {
			switch {
			case strings.Contains(j.Timing, "Asia/Tokyo"):
				if said++; j.Epoch != 1 {
					t.Errorf("a job that says itself what it wants has epoch %d", j.Epoch)
				}
			case strings.Contains(j.Timing, zone):
				n++
				if len(epochs) > 0 && j.Epoch != epochs[0] {
					t.Fatalf("a job has epoch %d, want %d", j.Epoch, epochs[0])
				}
			}
		}
		if said != 1 {
			t.Errorf("%d jobs say themselves what they want, want one", said)
		}
		return n
	}
	if n := check("UTC", 1); n != many-1 {
		t.Fatalf("%d jobs are put by the first defaults", n)
	}

	// A start does not wait for all, and with the same again does nothing.
	heard, tell = teller()
	second := open(t, zone("Europe/Berlin"), -1, tell)
	if is := <-heard; is.Jobs != many || is.Looked > 0 {
		t.Errorf("at the beginning %+v is told, want %d jobs", is, many)
	}
	if is := await(t, heard); !is.Over || is.Looked != many || is.Changed != many-1 {
		t.Errorf("at the end %+v is told, want that all but one of %d are changed", is, many)
	}
	if n := check("Europe/Berlin", 2); n != many-1 {
		t.Errorf("%d jobs have the other defaults", n)
	}
	heard, tell = teller()
	third := open(t, zone("Europe/Berlin"), -1, tell)
	select {
	case is := <-heard:
		t.Errorf("a start with the same defaults tells %+v", is)
	default:
	}

	// What changes no row is looked at and not written; what changes one begins no epoch
	// unless it is another schedule.
	grace := job.Duration(time.Minute)
	late := job.Duration(time.Minute)
	for _, other := range []struct {
		policy  job.Policy
		changed int
	}{{job.Policy{KillGrace: &grace}, 0}, {job.Policy{KillGrace: &grace, LateBy: &late}, many}} {
		d := zone("Europe/Berlin")
		d.Policy = other.policy
		heard, tell = teller()
		s := open(t, d, time.Minute, tell)
		if is := await(t, heard); is.Changed != other.changed {
			t.Errorf("%+v is told, want %d changed", is, other.changed)
		}
		if n := check("Europe/Berlin", 2); n != many-1 {
			t.Errorf("%d jobs have the zone that they had", n)
		}
		mustClose(t, s)
	}

	// A stop in the middle is made up for by the next start, whatever its defaults.
	_, tell = teller()
	mustClose(t, open(t, zone("Europe/Paris"), -1, tell))
	heard, tell = teller()
	same := open(t, zone("Europe/Paris"), time.Minute, tell)
	select {
	case <-heard:
		await(t, heard)
	default: // it was done before it was stopped
	}
	if n := check("Europe/Paris"); n != many-1 {
		t.Errorf("%d jobs have the defaults of a start that was stopped in the middle of it, and of the next", n)
	}
	mustClose(t, same)
	_, tell = teller()
	mustClose(t, open(t, zone("Europe/Vienna"), -1, tell))
	heard, tell = teller()
	s := open(t, zone("Europe/Berlin"), -1, tell)
	if is := await(t, heard); !is.Over {
		t.Errorf("after a stop in the middle of it %+v is told", is)
	}
	if n := check("Europe/Berlin"); n != many-1 {
		t.Errorf("%d jobs have the defaults of the latest start", n)
	}

	// Of two that start after each other the later one counts.
	before, tell := teller()
	one := open(t, zone("Europe/Rome"), -1, tell)
	heard, tell = teller()
	two := open(t, zone("Europe/Madrid"), -1, tell)
	if is := await(t, heard); !is.Over {
		t.Errorf("the later one tells %+v", is)
	}
	is := await(t, before)
	if n := check("Europe/Madrid"); n != many-1 {
		t.Errorf("%d jobs have the defaults of the later one; the earlier one tells %+v", n, is)
	}
	for _, s := range []store.Store{first, second, third, s, one, two} {
		mustClose(t, s)
	}
}

func mustClose(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
