//go:build servers

package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// requesters is how many ask at the same time: more than there are processors, so
// that requests meet in the store.
const requesters = 4

// soak is a server with random traffic, which is killed now and then.
type soak struct {
	t     testing.TB
	f     *folder
	kinds []kind

	mu   sync.Mutex // guards what follows; never held during a request
	s    *server
	all  []*watched
	down []evidence.Span
	told map[string]string // acknowledged runs, with their outcome if it was seen
	done map[string]int    // how often what was done
}

// requester is one of those who ask. Each has jobs of its own, of which it alone
// knows what may run, and cancels and looks at the runs of all.
type requester struct {
	*soak
	name   string
	random *rand.Rand
	jobs   []*watched // that there are
	made   int        // jobs, those that are gone included
	keys   map[string]idempotent
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
		t.Parallel() // beside the one that only waits
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
	k := &soak{t: t, f: f, s: f.serve(t, options{}), kinds: f.kinds(), told: map[string]string{}, done: map[string]int{}}
	k.s.apply("kind: pool\nname: shared\npool: {size: 2}\n")
	began := time.Now()
	end := began.Add(length)
	list := make([]*requester, requesters)
	var group sync.WaitGroup
	for i := range list {
		r := &requester{
			soak: k, name: fmt.Sprintf("r%d", i), random: rand.New(rand.NewPCG(seed, uint64(i))), keys: map[string]idempotent{},
		}
		list[i] = r
		group.Go(func() { r.work(i, end) })
	}
	const kills = 2
	random := rand.New(rand.NewPCG(seed, requesters))
	for n := range kills {
		// Somewhere in its part of the time, amid the traffic.
		part := length / (kills + 1)
		until(t, began.Add(time.Duration(n)*part+part/2+time.Duration(random.Int64N(int64(part)))))
		k.killAndRestart()
	}
	group.Wait()
	if t.Failed() {
		return
	}
	for _, r := range list {
		r.repeatKeys() // all that was acknowledged is known after the kills
		for _, w := range r.jobs {
			r.must(w.withdraw(func() (client.Change, error) {
				return r.server().Pause(t.Context(), "default", w.name, client.PauseRequest{})
			}, r.again))
		}
	}
	k.s.settled()
	h := evidence.History{Down: k.down, Acknowledged: k.told, Events: f.events(t), Records: k.s.records()}
	occurrences := 0
	for _, w := range k.all {
		h.Jobs = append(h.Jobs, w.finish())
		occurrences += len(h.Jobs[len(h.Jobs)-1].Occurrences)
	}
	check(t, h)
	t.Logf("%v; %d kills, %d jobs, %d occurrences, %d runs, %d lines of evidence",
		k.done, kills, len(k.all), occurrences, len(h.Records), len(h.Events))
	recorded := 0
	for _, r := range h.Records {
		recorded += 1 + max(0, int(r.Until.Sub(r.Scheduled)/(2*time.Second))) // those that were missed have one together
	}
	if recorded < occurrences/2 {
		t.Errorf("%d occurrences have %d records", occurrences, len(h.Records))
	}
	k.s.stop()
}

// server returns the one that answers now.
func (k *soak) server() *server {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.s
}

// killAndRestart kills the server while requests are under way.
func (k *soak) killAndRestart() {
	s := k.server()
	down := evidence.Span{From: time.Now()}
	s.kill()
	s = k.f.serve(k.t, options{})
	down.To = time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.s = s
	k.down = append(k.down, down)
	k.done["restart"]++
}

// did counts what was done.
func (k *soak) did(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done[what]++
}

// acknowledged remembers an acknowledged run, and its outcome if it
// has one.
func (k *soak) acknowledged(run job.ID, outcome job.Outcome) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// Lost attempts may still report a result.
	if id := run.String(); k.told[id] == "" || k.told[id] == string(job.OutcomeLost) {
		k.told[id] = string(outcome)
	}
}

// work asks for something again and again.
func (r *requester) work(number int, end time.Time) {
	for kind := number; kind < len(r.kinds); kind += requesters {
		r.create(kind)
	}
	restarts := 0
	for time.Now().Before(end) && !r.t.Failed() {
		r.mu.Lock()
		now := len(r.down)
		r.mu.Unlock()
		if now > restarts {
			restarts = now
			r.repeatKeys()
		}
		r.act()
		// A pause of some milliseconds, so that jobs have processors too.
		until(r.t, time.Now().Add(time.Duration(r.random.IntN(100))*time.Millisecond))
	}
}

// repeatKeys makes the requests by key once more: they must give the same runs.
func (r *requester) repeatKeys() {
	for key, known := range maps.Clone(r.keys) {
		r.byHand(known.name, key)
	}
}

// again reports whether a request that failed is made again, by the next server,
// which it waits for.
func (r *requester) again(err error) bool {
	if !errors.Is(err, client.ErrUnreachable) {
		return false
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if _, err := r.server().Nodes(r.t.Context()); err == nil {
			return true
		}
		until(r.t, time.Now().Add(10*time.Millisecond))
	}
	r.t.Error("no server answers")
	return false
}

// must fails the test for an error.
func (r *requester) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Error(err)
		runtime.Goexit()
	}
}

// create makes a job of a kind.
func (r *requester) create(number int) {
	kind := r.kinds[number]
	r.made++
	w := newWatched(fmt.Sprintf("job-%02d-%s-%d", number, r.name, r.made), kind.every)
	name, named := w.job.Name, w.job.Named
	w.job = kind.expect
	w.job.Name, w.job.Named = name, named
	text := fmt.Sprintf("name: %s\nschedule: {every: %s}\nrun: {shell: %s}\npolicy: %s\n", w.name, w.every, r.f.witness(kind.words...), kind.policy)
	r.must(w.change(func() (client.Change, error) {
		_, err := r.server().tryApply(text)
		return client.Change{}, err
	}, r.again))
	r.jobs = append(r.jobs, w)
	r.mu.Lock()
	r.all = append(r.all, w)
	r.mu.Unlock()
	r.did("apply")
}

func (r *requester) withdraw(w *watched, request func() (client.Change, error)) {
	r.must(w.withdraw(request, r.again))
}

// act does something.
func (r *requester) act() {
	ctx := r.t.Context()
	number := r.random.IntN(len(r.jobs))
	w := r.jobs[number]
	switch action := r.random.IntN(100); {
	case action < 25 && w.withdrawn.IsZero():
		r.withdraw(w, func() (client.Change, error) {
			return r.server().Pause(ctx, "default", w.name, client.PauseRequest{Reason: "the soak"})
		})
		r.did("pause")
	case action < 55:
		if w.withdrawn.IsZero() {
			return
		}
		r.must(w.change(func() (client.Change, error) {
			return r.server().Resume(ctx, "default", w.name, client.ResumeRequest{})
		}, r.again))
		r.did("resume")
	case action < 75:
		r.byHand(w.name, fmt.Sprintf("%s-key-%d", w.name, r.random.IntN(1000)))
	case action < 88:
		r.cancel()
	case action < 92:
		r.withdraw(w, func() (client.Change, error) {
			change, err := r.server().DeleteJob(ctx, "default", w.name, 0, "")
			if client.IsType(err, client.TypeNotFound) {
				err = nil // the answer to an earlier request was lost
			}
			return change, err
		})
		r.jobs = append(r.jobs[:number], r.jobs[number+1:]...)
		for key, known := range r.keys {
			if known.name == w.name {
				delete(r.keys, key)
			}
		}
		r.did("delete")
		var kind int
		_, err := fmt.Sscanf(w.name, "job-%d-", &kind)
		r.must(err)
		r.create(kind)
	default:
		r.look()
	}
}

// byHand runs a job by hand, for the first time or again.
func (r *requester) byHand(name, key string) {
	if known, ok := r.keys[key]; ok {
		name = known.name
	}
	request := func() (client.Run, error) {
		return r.server().RunJob(r.t.Context(), "default", name, client.RunRequest{}, key)
	}
	run, err := request()
	for err != nil && r.again(err) {
		run, err = request()
	}
	r.must(err)
	if known, ok := r.keys[key]; ok && known.run != run.ID {
		r.t.Errorf("NothingAcknowledgedIsLost: the request %s made run %s, and then %s", key, known.run, run.ID)
	}
	r.keys[key] = idempotent{name, run.ID}
	r.acknowledged(run.ID, "")
	r.did("run")
}

// cancel cancels one of the runs that are planned or running.
func (r *requester) cancel() {
	page, err := r.server().Runs(r.t.Context(), client.RunQuery{States: []job.RunState{job.StateRunning, job.StateWaiting}})
	if err != nil && r.again(err) {
		return
	}
	r.must(err)
	if len(page.Items) == 0 {
		return
	}
	run := page.Items[r.random.IntN(len(page.Items))]
	_, err = r.server().Cancel(r.t.Context(), run.ID, client.CancelRequest{Reason: "the soak"})
	switch {
	case err != nil && r.again(err), client.IsType(err, client.TypeConflict):
		return // or it has ended meanwhile
	}
	r.must(err)
	r.did("cancel")
}

// look remembers how runs have ended.
func (r *requester) look() {
	page, err := r.server().Runs(r.t.Context(), client.RunQuery{States: []job.RunState{job.StateDone}})
	if err != nil && r.again(err) {
		return
	}
	r.must(err)
	for _, run := range page.Items {
		r.acknowledged(run.ID, run.Outcome)
	}
	r.did("look")
}
