package e2e_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// soak is a server with random traffic, which is killed now and then.
type soak struct {
	t      testing.TB
	f      *folder
	s      *server
	random *rand.Rand
	jobs   []*watched // that there are
	all    []*watched
	kinds  []kind
	keys   map[string]idempotent
	// h collects what is known.
	h     evidence.History
	kills int
	done  map[string]int // how often what was done
}

// idempotent is a run by hand that was acknowledged.
type idempotent struct {
	name string
	run  job.ID
}

// kind is a kind of jobs.
type kind struct {
	every  time.Duration
	words  []string
	policy string
	expect evidence.Job
}

func (f *folder) kinds() []kind {
	pool := "lock=" + f.path("pool")
	punctual := 10 * time.Second
	return []kind{
		{time.Second, []string{"slots=1"}, "{}", evidence.Job{Slots: 1, StartWithin: punctual}},
		{time.Second, []string{"slots=1", "for=1300ms"}, "{}", evidence.Job{Slots: 1}},
		{time.Second, []string{"for=700ms"}, "{overlap: allow}", evidence.Job{StartWithin: punctual}},
		{time.Second, []string{"slots=1", "for=800ms"}, "{overlap: queue, queue_limit: 3}", evidence.Job{Slots: 1}},
		{time.Second, []string{"slots=1", "for=1500ms"}, "{overlap: replace, kill_grace: 500ms}", evidence.Job{Slots: 1}},
		{time.Second, []string{"slots=2", "for=1200ms"}, "{max_parallel: 2}", evidence.Job{Slots: 2}},
		{time.Second, []string{"slots=1", "failures=1"}, "{retry: {attempts: 2, backoff: 100ms}}", evidence.Job{Slots: 1, Retries: 2}},
		{2 * time.Second, []string{"slots=1", "for=1s"}, "{retry: {attempts: 1, backoff: 0s, on: [lost]}}", evidence.Job{Slots: 1, Retries: 1}},
		{time.Second, []string{"slots=2", "for=300ms", pool}, "{concurrency_key: shared, overlap: queue, queue_limit: 5}", evidence.Job{Slots: 2, Lock: "pool"}},
		{time.Second, []string{"slots=2", "for=500ms", pool}, "{concurrency_key: shared}", evidence.Job{Slots: 2, Lock: "pool"}},
		{2 * time.Second, []string{"slots=1", "ignore", "for=3s"}, "{timeout: 1s, kill_grace: 200ms}", evidence.Job{Slots: 1}},
	}
}

// TestSoak lasts as long as BELFRY_SOAK says. `make soak` has the longer one of
// continuous integration. The seed is logged, and BELFRY_SEED repeats it.
func TestSoak(t *testing.T) {
	length := 7 * time.Second
	if text := os.Getenv("BELFRY_SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("BELFRY_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("BELFRY_SEED=%d BELFRY_SOAK=%s", seed, length)

	f := newFolder(t)
	k := &soak{
		t: t, f: f, s: f.serve(t, options{}), random: rand.New(rand.NewPCG(seed, 1)), kinds: f.kinds(),
		keys: map[string]idempotent{}, h: evidence.History{Acknowledged: map[string]string{}}, done: map[string]int{},
	}
	k.s.apply("kind: pool\nname: shared\npool: {size: 2}\n")
	for i := range k.kinds {
		k.create(i)
	}
	began := time.Now()
	const kills = 2
	for time.Since(began) < length {
		if k.kills < kills && time.Since(began) > length*time.Duration(k.kills+1)/(kills+1) {
			k.killSoon()
		}
		k.act()
		// A pause of some milliseconds, so that jobs have processors too.
		until(t, time.Now().Add(time.Duration(k.random.IntN(60))*time.Millisecond))
	}
	if k.kills < kills {
		t.Errorf("%d kills in %s", k.kills, length)
	}
	for _, w := range k.jobs {
		k.withdraw(w, func() (client.Change, error) {
			return k.s.Pause(t.Context(), "default", w.name, client.PauseRequest{})
		})
	}
	k.s.settled()
	for _, w := range k.all {
		k.h.Jobs = append(k.h.Jobs, w.finish())
	}
	k.h.Events, k.h.Records = f.events(t), k.s.records()
	check(t, k.h)
	occurrences := 0
	for _, j := range k.h.Jobs {
		occurrences += len(j.Occurrences)
	}
	t.Logf("%v; %d kills, %d jobs, %d occurrences, %d runs, %d lines of evidence",
		k.done, k.kills, len(k.all), occurrences, len(k.h.Records), len(k.h.Events))
	if len(k.h.Records) < occurrences/2 {
		t.Errorf("%d occurrences have %d records", occurrences, len(k.h.Records))
	}
	k.s.stop()
}

// killSoon kills the server in the middle of whatever comes next.
func (k *soak) killSoon() {
	k.kills++
	s, when := k.s, time.Duration(k.random.IntN(50))*time.Millisecond
	time.AfterFunc(when, func() { _ = s.cmd.Process.Kill() })
	// What is asked meanwhile is answered or not.
	for time.Now().Before(time.Now().Add(when)) {
		select {
		case <-s.exited:
			k.restart()
			return
		default:
			k.act()
		}
		if k.s != s {
			return // it was noticed there
		}
	}
}

// restart starts the server that was killed.
func (k *soak) restart() {
	<-k.s.exited
	// It was alive until somewhat before now.
	down := evidence.Span{From: time.Now().Add(-time.Second)}
	k.s = k.f.serve(k.t, options{})
	down.To = time.Now()
	k.h.Down = append(k.h.Down, down)
	k.done["restart"]++
	for key, known := range k.keys {
		k.byHand(known.name, key)
	}
}

// again tells whether a request that failed is made again, by the next server.
func (k *soak) again(err error) bool {
	if !errors.Is(err, client.ErrUnreachable) {
		return false
	}
	k.restart()
	return true
}

// must fails the test for an error.
func (k *soak) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// create makes a job of a kind.
func (k *soak) create(number int) {
	kind := k.kinds[number]
	w := newWatched(fmt.Sprintf("job-%02d-%d", number, len(k.all)), kind.every)
	name, named := w.job.Name, w.job.Named
	w.job = kind.expect
	w.job.Name, w.job.Named = name, named
	text := fmt.Sprintf("name: %s\nschedule: {every: %s}\nrun: {shell: %s}\npolicy: %s\n", w.name, w.every, k.f.witness(kind.words...), kind.policy)
	k.must(w.change(func() (client.Change, error) {
		_, err := k.s.tryApply(text)
		return client.Change{}, err
	}, k.again))
	k.jobs, k.all = append(k.jobs, w), append(k.all, w)
	k.done["apply"]++
}

func (k *soak) withdraw(w *watched, request func() (client.Change, error)) {
	k.must(w.withdraw(request, k.again))
}

// act does something.
func (k *soak) act() {
	ctx := k.t.Context()
	number := k.random.IntN(len(k.jobs))
	w := k.jobs[number]
	switch action := k.random.IntN(100); {
	case action < 25 && w.withdrawn.IsZero():
		k.withdraw(w, func() (client.Change, error) {
			return k.s.Pause(ctx, "default", w.name, client.PauseRequest{Reason: "the soak"})
		})
		k.done["pause"]++
	case action < 55:
		if w.withdrawn.IsZero() {
			return
		}
		k.must(w.change(func() (client.Change, error) {
			return k.s.Resume(ctx, "default", w.name, client.ResumeRequest{})
		}, k.again))
		k.done["resume"]++
	case action < 75:
		k.byHand(w.name, fmt.Sprintf("key-%d", k.random.IntN(1000)))
	case action < 88:
		k.cancel()
	case action < 92:
		k.withdraw(w, func() (client.Change, error) {
			change, err := k.s.DeleteJob(ctx, "default", w.name, 0)
			if client.IsType(err, client.TypeNotFound) {
				err = nil // the answer to an earlier request was lost
			}
			return change, err
		})
		k.jobs = append(k.jobs[:number], k.jobs[number+1:]...)
		for key, known := range k.keys {
			if known.name == w.name {
				delete(k.keys, key)
			}
		}
		k.done["delete"]++
		var kind int
		_, err := fmt.Sscanf(w.name, "job-%d-", &kind)
		k.must(err)
		k.create(kind)
	default:
		k.look()
	}
}

// byHand runs a job by hand, for the first time or again.
func (k *soak) byHand(name, key string) {
	key = name + "-" + key
	if known, ok := k.keys[key]; ok {
		name = known.name
	}
	request := func() (client.Run, error) {
		return k.s.RunJob(k.t.Context(), "default", name, client.RunRequest{}, key)
	}
	run, err := request()
	for err != nil && k.again(err) {
		run, err = request()
	}
	k.must(err)
	if known, ok := k.keys[key]; ok && known.run != run.ID {
		k.t.Errorf("NothingAcknowledgedIsLost: the request %s made run %s, and then %s", key, known.run, run.ID)
	}
	k.keys[key] = idempotent{name, run.ID}
	if _, ok := k.h.Acknowledged[run.ID.String()]; !ok {
		k.h.Acknowledged[run.ID.String()] = ""
	}
	k.done["run"]++
}

// cancel cancels one of the runs that are planned or going on.
func (k *soak) cancel() {
	page, err := k.s.Runs(k.t.Context(), client.RunQuery{States: []job.RunState{job.StateRunning, job.StateWaiting}})
	if err != nil && k.again(err) {
		return
	}
	k.must(err)
	if len(page.Items) == 0 {
		return
	}
	run := page.Items[k.random.IntN(len(page.Items))]
	_, err = k.s.Cancel(k.t.Context(), run.ID, client.CancelRequest{Reason: "the soak"})
	switch {
	case err != nil && k.again(err), client.IsType(err, client.TypeConflict):
		return // or it has ended meanwhile
	}
	k.must(err)
	k.done["cancel"]++
}

// look remembers how runs have ended.
func (k *soak) look() {
	page, err := k.s.Runs(k.t.Context(), client.RunQuery{States: []job.RunState{job.StateDone}})
	if err != nil && k.again(err) {
		return
	}
	k.must(err)
	for _, run := range page.Items {
		k.h.Acknowledged[run.ID.String()] = string(run.Outcome)
	}
	k.done["look"]++
}
