package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// OpenWith opens an existing store with new defaults, which delay the start at most for a time.
type OpenWith func(t *testing.T, d job.Defaults, most time.Duration, tell func(store.Refill)) store.Store

// refilled is the number of jobs: more than one read examines or one call writes.
const refilled = 1201

// refills is a store that several servers share. Its jobs have the zone of the defaults,
// except one with an explicit value.
type refills struct {
	*testing.T
	open  OpenWith
	first store.Store // the store of the first server
}

// start starts a server with a zone as its default; heard receives its progress.
func (r *refills) start(zone string, most time.Duration) (s store.Store, heard <-chan store.Refill) {
	r.Helper()
	return r.startWith(job.Defaults{Timezone: zone}, most)
}

func (r *refills) startWith(d job.Defaults, most time.Duration) (s store.Store, heard <-chan store.Refill) {
	r.Helper()
	c := make(chan store.Refill, 1000)
	return r.open(r.T, d, most, func(is store.Refill) { c <- is }), c
}

// end waits for the last report.
func (r *refills) end(heard <-chan store.Refill) store.Refill {
	r.Helper()
	const wait = 2 * time.Minute // enough for a busy machine
	for over := time.After(wait); ; {
		select {
		case is := <-heard:
			if is.Err != nil {
				r.Fatal(is.Err)
			}
			if is.Over || is.Superseded {
				return is
			}
		case <-over:
			r.Fatal("the end is not told")
		}
	}
}

// put makes the jobs.
func (r *refills) put() {
	r.Helper()
	var list []store.PutJob
	for i := range refilled {
		j := &job.Job{Name: fmt.Sprint("j", i), Schedule: job.Schedule{Cron: []string{"0 3 * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}
		if i == 7 {
			j.Schedule.Timezone = "Asia/Tokyo"
		}
		if list = append(list, store.PutJob{Definition: j, Actor: "ann"}); len(list) == store.PutMax || i == refilled-1 {
			if _, err := r.first.PutJobs(r.Context(), list); err != nil {
				r.Fatal(err)
			}
			list = nil
		}
	}
}

// have checks that all jobs have a zone, and an epoch if one is given, except the job with an
// explicit zone.
func (r *refills) have(zone string, epochs ...int64) {
	r.Helper()
	jobs, _, err := r.first.JobsChanged(r.Context(), store.AllPartitions, 0, 2*refilled)
	if err != nil || len(jobs) != refilled {
		r.Fatalf("%d jobs, %v", len(jobs), err)
	}
	fields, n := 0, 0
	for _, j := range jobs {
		switch {
		case strings.Contains(j.Timing, "Asia/Tokyo"):
			if fields++; j.Epoch != 1 {
				r.Errorf("a job that says itself what it wants has epoch %d", j.Epoch)
			}
		case strings.Contains(j.Timing, zone):
			n++
			if len(epochs) > 0 && j.Epoch != epochs[0] {
				r.Fatalf("a job has epoch %d, want %d", j.Epoch, epochs[0])
			}
		}
	}
	if fields != 1 || n != refilled-1 {
		r.Errorf("%d jobs have the zone %s and %d say themselves what they want; want one of these and all others of those", n, zone, fields)
	}
}

func (r *refills) close(s store.Store) {
	r.Helper()
	if err := s.Close(); err != nil {
		r.Error(err)
	}
}

// OtherDefaults checks a store that several servers share when they start with different defaults.
// open creates it at the first call.
func OtherDefaults(t *testing.T, open OpenWith) {
	r := &refills{T: t, open: open}
	first, heard := r.start("UTC", time.Minute)
	r.first = first
	r.end(heard)
	r.put()
	r.have("UTC", 1)

	// A start does not wait for all jobs, and with the same defaults changes nothing.
	second, heard := r.start("Europe/Berlin", -1)
	if is := <-heard; is.Jobs != refilled || is.Looked > 0 {
		t.Errorf("the first report is %+v, want %d jobs", is, refilled)
	}
	if is := r.end(heard); !is.Over || is.Looked != refilled || is.Changed != refilled-1 {
		t.Errorf("the last report is %+v, want that all but one of %d are changed", is, refilled)
	}
	r.have("Europe/Berlin", 2)
	third, heard := r.start("Europe/Berlin", -1)
	select {
	case is := <-heard:
		t.Errorf("a start with the same defaults tells %+v", is)
	default:
	}

	// Jobs whose rows do not change are not written; changed rows begin an epoch only if the
	// schedule differs.
	grace := job.Duration(time.Minute)
	late := job.Duration(time.Minute)
	for _, other := range []struct {
		policy  job.Policy
		changed int
	}{{job.Policy{KillGrace: &grace}, 0}, {job.Policy{KillGrace: &grace, LateBy: &late}, refilled}} {
		s, heard := r.startWith(job.Defaults{Timezone: "Europe/Berlin", Policy: other.policy}, time.Minute)
		if is := r.end(heard); is.Changed != other.changed {
			t.Errorf("the report is %+v, want %d changed", is, other.changed)
		}
		r.have("Europe/Berlin", 2)
		r.close(s)
	}

	// The next start completes a stopped one, whatever its defaults.
	stopped, _ := r.start("Europe/Paris", -1)
	r.close(stopped)
	same, heard := r.start("Europe/Paris", time.Minute)
	select {
	case <-heard:
		r.end(heard)
	default: // it was complete before the stop
	}
	r.have("Europe/Paris")
	r.close(same)
	stopped, _ = r.start("Europe/Vienna", -1)
	r.close(stopped)
	after, heard := r.start("Europe/Berlin", -1)
	if is := r.end(heard); !is.Over {
		t.Errorf("after a stop in the middle of it the report is %+v", is)
	}
	r.have("Europe/Berlin")

	// The later of two consecutive starts counts.
	one, before := r.start("Europe/Rome", -1)
	two, heard := r.start("Europe/Madrid", -1)
	if is := r.end(heard); !is.Over {
		t.Errorf("the later one tells %+v", is)
	}
	r.end(before)
	r.have("Europe/Madrid")
	for _, s := range []store.Store{first, second, third, after, one, two} {
		r.close(s)
	}
}
