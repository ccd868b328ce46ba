package nodebench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const aboutFlows = "10,000 steps of flows in diamonds beside 10,000 plain runs, a fan-out and a chain,"

// The goals of flows.
const (
	flowShare     = .6 // of the rate of plain runs
	fanOut        = 1000
	fanOutWithin  = time.Second
	chainLength   = 100
	chainWithin   = 3 * time.Second
	diamondSteps  = 10
	flowsCapacity = 20_000
)

// noopStep is a step that does nothing.
func noopStep(name string, needs ...string) job.Step {
	return job.Step{Name: name, Needs: needs, Run: job.RunSpec{Handler: &job.Handler{Name: "noop"}}}
}

// diamonds is a flow of ten steps that fork and join twice.
func diamonds() *job.Flow {
	return &job.Flow{Steps: []job.Step{
		noopStep("a"), noopStep("b", "a"), noopStep("c", "a"), noopStep("d", "a"), noopStep("e", "b", "c", "d"),
		noopStep("f", "e"), noopStep("g", "e"), noopStep("h", "e"), noopStep("i", "f", "g", "h"), noopStep("j", "i"),
	}}
}

// chain is a flow whose steps follow each other.
func chain(n int) *job.Flow {
	f := &job.Flow{}
	for i := range n {
		s := noopStep(fmt.Sprint("s", i))
		if i > 0 {
			s.Needs = []string{fmt.Sprint("s", i-1)}
		}
		f.Steps = append(f.Steps, s)
	}
	return f
}

// fan is a flow of one step with n items.
func fan(n int) *job.Flow {
	s := noopStep("each")
	for i := range n {
		s.ForEach = append(s.ForEach, fmt.Sprint(i))
	}
	return &job.Flow{MaxParallel: n, Steps: []job.Step{s}}
}

// flows measures steps of flows beside runs of jobs on the same store, a fan-out and a chain.
func (b *bench) flows(ctx context.Context, on backend) ([]Figure, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p, err := on.make(dir)
	if err != nil {
		return nil, err
	}
	defer p.close()
	s, err := p.open(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	jobs, each := b.scaled(100, 4), b.scaled(10, 2)
	items, length := b.scaled(fanOut, 20), b.scaled(chainLength, 5)
	list := noopJobs(jobs, "0 0 1 1 *", job.Policy{Overlap: job.OverlapAllow})
	for i := range jobs {
		list = append(list, &job.Job{Name: fmt.Sprint("flow-", i), Policy: job.Policy{Overlap: job.OverlapAllow}, Run: job.RunSpec{Flow: diamonds()}})
	}
	list = append(list, &job.Job{Name: "fan", Run: job.RunSpec{Flow: fan(items)}}, &job.Job{Name: "chain", Run: job.RunSpec{Flow: chain(length)}})
	if err := putJobs(ctx, s, list); err != nil {
		return nil, err
	}
	n := jobs * each * diamondSteps
	var plain, steps timed
	var plainCost, stepsCost string
	err = b.profiled(on.name+"-plain", func() (err error) {
		plain, plainCost, err = s.charged(ctx, p, "job-", jobs, each*diamondSteps, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = b.profiled(on.name+"-steps", func() (err error) {
		steps, stepsCost, err = s.charged(ctx, p, "flow-", jobs, each, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	fanned, err := s.timeRuns(ctx, "fan", 0, 1, items)
	if err != nil {
		return nil, err
	}
	chained, err := s.timeRuns(ctx, "chain", 0, 1, length)
	if err != nil {
		return nil, err
	}
	rate := func(t timed) string { return number(float64(n)/t.ended.Seconds(), 0) }
	return []Figure{
		share("steps of flows a second, of the plain runs a second", plain.ended.Seconds()/steps.ended.Seconds(), b.scaledGoal(flowShare)),
		fact("plain runs a second, from claimed to finished", rate(plain)).beside(plainCost),
		fact("steps of flows a second", rate(steps)).beside(stepsCost),
		atMost(fmt.Sprintf("the last of %d items has started after", items), fanned.started, time.Duration(b.scaledGoal(float64(fanOutWithin)))),
		atMost(fmt.Sprintf("a chain of %d steps has ended after", length), chained.ended, time.Duration(b.scaledGoal(float64(chainWithin)))),
	}, nil
}

// profiled writes a processor profile of a function, if that was requested.
func (b *bench) profiled(name string, do func() error) error {
	if b.Profile == "" {
		return do()
	}
	file, err := os.Create(filepath.Join(b.Profile, name+".pprof"))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(err, file.Close())
	}
	err = do()
	pprof.StopCPUProfile()
	return errors.Join(err, file.Close())
}

// charged is timeRuns of n attempts, with what each has cost.
func (s openStore) charged(ctx context.Context, p place, name string, jobs, each, attempts int) (t timed, cost string, err error) {
	own, server, err := p.spent()
	if err != nil {
		return t, "", err
	}
	if t, err = s.timeRuns(ctx, name, jobs, each, attempts); err != nil {
		return t, "", err
	}
	r := caughtUp{finished: attempts}
	err = r.charge(p, own, server)
	return t, r.cost(), err
}

// timed is how long runs took from the start of a node to the start of the last attempt, and to
// the end of the last run.
type timed struct{ started, ended time.Duration }

// timeRuns triggers runs of jobs, starts a node, and waits until all have ended. The names of
// several jobs end with their numbers.
func (s openStore) timeRuns(ctx context.Context, name string, jobs, each, attempts int) (t timed, err error) {
	var items []store.TriggerItem
	for i := range max(1, jobs) {
		full := name
		if jobs > 0 {
			full = fmt.Sprint(name, i)
		}
		j, err := store.JobNamed(ctx, s, job.DefaultNamespace, full)
		if err != nil {
			return t, err
		}
		for range each {
			id, err := job.NewID(time.Now(), rand.Reader)
			if err != nil {
				return t, err
			}
			items = append(items, store.TriggerItem{ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Key: id.String(), Actor: "bench"})
		}
	}
	rec := &recorder{}
	n, err := newNode(s, "bench-"+name, flowsCapacity, rec)
	if err != nil {
		return t, err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- n.Run(running) }()
	defer func() {
		stop()
		if e := <-done; !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}()
	if err := sleep(ctx, time.Second); err != nil { // until the node has joined
		return t, err
	}
	before, began := s.succeeded.Load(), time.Now()
	for len(items) > 0 {
		batch := items[:min(len(items), store.MaxBatch)]
		if _, err := s.Trigger(ctx, batch); err != nil {
			return t, err
		}
		items = items[len(batch):]
	}
	want := int64(max(1, jobs) * each)
	for t.ended == 0 {
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return t, err
		}
		at := time.Since(began)
		if t.started == 0 && rec.count() >= attempts {
			t.started = at
		}
		if s.succeeded.Load()-before >= want {
			t.ended = at
		}
		if at > patience {
			return t, fmt.Errorf("%d of %d runs of %s have ended after %s", s.succeeded.Load()-before, want, name, at)
		}
	}
	if got := rec.count(); got != attempts {
		return t, fmt.Errorf("%d attempts of %s have started, want %d", got, name, attempts)
	}
	return t, nil
}
