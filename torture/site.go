package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/torture/check"
)

// A system is a scheduler under test, with what it can do and what it promises.
type system struct {
	Name     string
	Version  string
	Settings string // how it is run, beside its defaults
	Promises string // quoted from its documentation
	Nodes    int
	Store    string        // the kind of server that its nodes share, or empty
	Every    time.Duration // the shortest interval that it can express
	// What it promises, or can express by a setting for one job.
	NoOverlap bool
	Serial    bool // runs of a job never overlap, whatever its setting

	// prepare builds what the nodes need, after the jobs are known.
	prepare func(ctx context.Context, s *site) error
	// node is the command of a node.
	node func(s *site, n int) *exec.Cmd
	// define sends the jobs to the nodes that have started; nil if they know them from prepare.
	define func(ctx context.Context, s *site) error
	// change sends a new definition of a job; Every is 0 when it pauses. Nil if it cannot.
	change func(ctx context.Context, s *site, j job) error
}

// A job of the workload.
type job struct {
	Name      string        `json:"name"`
	Every     time.Duration `json:"every"`
	Command   []string      `json:"command"`
	Sleep     time.Duration `json:"-"`
	NoOverlap bool          `json:"no_overlap"`
}

// cron is the schedule with a field for seconds, or of five fields for whole minutes.
func (j job) cron(seconds bool) string {
	n := int(j.Every / time.Second)
	switch {
	case n%60 == 0 && seconds:
		return "0 * * * * *"
	case n%60 == 0:
		return "* * * * *"
	case n == 1:
		return "* * * * * *"
	}
	return fmt.Sprintf("*/%d * * * * *", n)
}

// shell is the command as a text for sh, with more words behind it.
func (j job) shell(more ...string) string {
	words := make([]string, 0, len(j.Command)+len(more))
	for _, w := range j.Command {
		words = append(words, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
	}
	return "exec " + strings.Join(append(words, more...), " ")
}

// A site is one system at work.
type site struct {
	system  *system
	options *options
	dir     string // with all evidence
	bin     string // of programs that were built
	jobs    []job
	nodes   []*process
	clocks  []clock // of the nodes
	disk    *disk   // with the data of nodes and store
	proxies []*proxy
	store   *store
	checked map[string]*check.Job
}

// evidence is the file that says what should have been, beside the lines of the witnesses.
type evidence struct {
	System, Version, Settings, Promises string
	StoreVersion                        string
	Nodes                               int
	Every                               time.Duration
	NoOverlap                           bool
	Seed                                uint64
	Begin, End                          time.Time
	Limits                              check.Limits
	Jobs                                []check.Job
	Faults                              []fault
	Omitted, Notes                      []string
	Samples                             []sample `json:",omitempty"`
}

// storeAddress is the address of the store as a node sees it.
func (s *site) storeAddress(n int) string {
	if s.store == nil {
		return ""
	}
	return s.store.at(s.proxies[n].address())
}

func (s *site) witnesses() string { return filepath.Join(s.dir, "witness.log") }

// workload is what each system gets, as far as it can express it; what is left out is named.
func (s *site) workload(witness string) (jobs []job, omitted []string) {
	add := func(name string, every, sleep time.Duration, noOverlap bool, flags ...string) {
		command := append([]string{witness, "-sleep", sleep.String()}, flags...)
		jobs = append(jobs, job{Name: name, Every: max(every, s.system.Every), Command: append(command, s.witnesses(), name), Sleep: sleep, NoOverlap: noOverlap})
	}
	if s.system.Every <= time.Second {
		add("second", time.Second, 0, false)
	} else {
		omitted = append(omitted, "jobs each second: it has no seconds; they are due each minute")
	}
	add("minute", time.Minute, 0, false)
	add("failing", time.Second, 0, false, "-fail")
	if s.system.Serial {
		omitted = append(omitted, "a job whose runs may overlap: they never do")
	} else {
		add("overlapping", time.Second, 2500*time.Millisecond, false)
	}
	if s.system.NoOverlap {
		add("long", time.Second, 2500*time.Millisecond, true)
	} else {
		omitted = append(omitted, "a long job without overlaps: not promised")
	}
	if s.system.change != nil {
		add("paused", time.Second, 0, false)
		add("edited", time.Second, 0, false)
	} else {
		omitted = append(omitted, "a job that is paused, a job that is edited: not while it runs, or not by its commands")
	}
	return jobs, omitted
}

// tail is how long runs may still start and end after the last target: more than any of them lasts.
const tail = 5 * time.Second

// torture runs one system through the plan, writes its evidence and judges it.
func torture(ctx context.Context, o *options, sys *system) (*evidence, *check.Result, error) {
	s := &site{system: sys, options: o, dir: filepath.Join(o.out, sys.Name), bin: filepath.Join(o.out, "bin"), checked: map[string]*check.Job{}}
	unmount(filepath.Join(s.dir, dataDir))
	if err := os.RemoveAll(s.dir); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(os.MkdirAll(s.dir, 0o755), os.MkdirAll(s.bin, 0o755)); err != nil {
		return nil, nil, err
	}
	defer s.close()
	e := &evidence{System: sys.Name, Settings: sys.Settings, Promises: sys.Promises, Nodes: sys.Nodes,
		Every: sys.Every, NoOverlap: sys.NoOverlap, Seed: o.seed, Limits: o.limits, Faults: plan(o.seed, o.length, o.calm)}
	witness, err := build(s.bin, "./witness")
	if err != nil {
		return nil, nil, err
	}
	s.jobs, e.Omitted = s.workload(witness)
	created := time.Now()
	if err := s.start(ctx); err != nil {
		return nil, nil, err
	}
	e.Version = sys.Version
	if s.store != nil {
		e.StoreVersion = s.store.version
	}
	e.Begin = time.Now().Truncate(time.Second).Add(o.settle)
	if sys.Every >= time.Minute {
		// Otherwise a short time may have no target at all.
		e.Begin = e.Begin.Truncate(time.Minute).Add(time.Minute - 2*time.Second)
	}
	e.End = e.Begin.Add(o.length)
	for _, j := range s.jobs {
		s.checked[j.Name] = &check.Job{Name: j.Name, Sleep: j.Sleep, NoOverlap: j.NoOverlap, Phases: []check.Phase{
			{From: created, To: e.Begin, Every: j.Every, Optional: true},
			{From: e.Begin, To: e.End, Every: j.Every},
			{From: e.End, To: e.End.Add(time.Hour), Every: j.Every, Optional: true},
		}}
	}
	pause(ctx, time.Until(e.Begin))
	s.drive(ctx, e)
	pause(ctx, time.Until(e.End.Add(tail)))
	s.close()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	for _, j := range s.jobs {
		e.Jobs = append(e.Jobs, *s.checked[j.Name])
	}
	text, err := json.MarshalIndent(e, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, evidenceFile), text, 0o644)
	}
	if err != nil {
		return nil, nil, err
	}
	return judge(s.dir)
}

const (
	evidenceFile = "plan.json"
	dataDir      = "data"
)

// judge reads the evidence in a folder.
func judge(dir string) (*evidence, *check.Result, error) {
	text, err := os.ReadFile(filepath.Join(dir, evidenceFile))
	if err != nil {
		return nil, nil, err
	}
	var e evidence
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	lines, err := os.ReadFile(filepath.Join(dir, "witness.log"))
	if err != nil && !os.IsNotExist(err) {
		return nil, nil, err
	}
	return &e, check.History(e.Jobs, e.Limits, string(lines)), nil
}

func (s *site) start(ctx context.Context) error {
	sys := s.system
	var err error
	if s.disk, err = openDisk(filepath.Join(s.dir, dataDir), s.options.disk); err != nil {
		return err
	}
	s.clocks = make([]clock, sys.Nodes)
	if sys.Store != "" {
		if s.store, err = openStore(ctx, sys.Store, filepath.Join(s.disk.dir, "store"), filepath.Join(s.dir, "store.log"), s.options.stores[sys.Store]); err != nil {
			return err
		}
		for range sys.Nodes {
			p, err := newProxy(s.store.url.Host)
			if err != nil {
				return err
			}
			s.proxies = append(s.proxies, p)
		}
	}
	if sys.prepare != nil {
		if err := sys.prepare(ctx, s); err != nil {
			return err
		}
	}
	for n := range sys.Nodes {
		p := &process{name: fmt.Sprintf("node %d", n+1), log: filepath.Join(s.dir, fmt.Sprintf("node%d.log", n+1)), command: func() *exec.Cmd { return sys.node(s, n) }, supervised: true}
		s.nodes = append(s.nodes, p)
		if err := p.start(); err != nil {
			return err
		}
	}
	if sys.define != nil {
		err := eventually(ctx, func() error {
			return sys.define(ctx, s)
		})
		if err != nil {
			return fmt.Errorf("define the jobs (the logs of the nodes are in %s): %w", s.dir, err)
		}
	}
	return nil
}

// drive makes the faults and the changes of the plan, until both are through.
func (s *site) drive(ctx context.Context, e *evidence) {
	var both sync.WaitGroup
	both.Go(func() {
		for i := range e.Faults {
			pause(ctx, time.Until(e.Begin.Add(e.Faults[i].At)))
			if ctx.Err() != nil {
				return
			}
			s.run(ctx, &e.Faults[i])
		}
	})
	both.Go(func() {
		if s.system.change == nil {
			return
		}
		length := e.End.Sub(e.Begin)
		for _, c := range []struct {
			at    time.Duration
			job   string
			every time.Duration
		}{{length / 4, "paused", 0}, {length / 2, "paused", s.system.Every}, {length * 2 / 3, "edited", 2 * time.Second}} {
			pause(ctx, time.Until(e.Begin.Add(c.at)))
			s.alter(ctx, c.job, c.every)
		}
	})
	both.Go(func() {
		e.Samples = s.sampled(e.End, e.End.Sub(e.Begin), func(d time.Duration) bool { pause(ctx, d); return ctx.Err() == nil })
	})
	both.Wait()
	for _, n := range s.nodes {
		if revived := n.restarts(); revived > 0 {
			e.Notes = append(e.Notes, fmt.Sprintf("%s ended by itself %d times and was started again, as a supervisor does", n.name, revived))
		}
	}
}

// alter changes a job, again until the system has acknowledged it, and writes down what is expected of it.
func (s *site) alter(ctx context.Context, name string, every time.Duration) {
	sent := time.Now()
	for _, j := range s.jobs {
		if j.Name != name {
			continue
		}
		j.Every = every
		for s.system.change(ctx, s, j) != nil && ctx.Err() == nil {
			pause(ctx, 200*time.Millisecond)
		}
	}
	acknowledged := time.Now()
	phases := &s.checked[name].Phases
	last := len(*phases) - 2 // the one until the end
	current, after := (*phases)[last], (*phases)[last+1]
	if acknowledged.After(current.To) {
		acknowledged = current.To
	}
	if sent.After(acknowledged) {
		sent = acknowledged
	}
	before, between, next := current, current, current
	before.To = sent
	between.From, between.To, between.Optional = sent, acknowledged, true
	between.Every = max(current.Every, every)
	if current.Every > 0 && every > 0 {
		between.Every = min(current.Every, every)
	}
	next.From, next.Every = acknowledged, every
	after.Every = every
	*phases = append((*phases)[:last], before, between, next, after)
}

func (s *site) close() {
	var all sync.WaitGroup
	for _, n := range s.nodes {
		all.Go(n.end)
	}
	all.Wait()
	for _, p := range s.proxies {
		p.close()
	}
	if s.store != nil && s.store.process != nil {
		s.store.process.end()
	}
	if s.disk != nil {
		s.disk.close()
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
