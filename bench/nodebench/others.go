package nodebench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// asynqWorkers is the concurrency of an asynq server.
const asynqWorkers = 1000

// silent is an asynq logger that discards everything.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

// runAsynq enqueues empty tasks while a server works on them, on a separate Redis.
func runAsynq(ctx context.Context, n int) (r caughtUp, err error) {
	p, err := onRedis.make("")
	if err != nil {
		return r, err
	}
	defer p.close()
	to := asynq.RedisClientOpt{Addr: p.endpoint}
	client := asynq.NewClient(to)
	defer client.Close()
	server := asynq.NewServer(to, asynq.Config{Concurrency: asynqWorkers, Logger: silent{}, LogLevel: asynq.FatalLevel})
	var done atomic.Int64
	last := make(chan struct{})
	own, db, err := p.spent()
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if done.Add(1) == int64(n) {
			close(last)
		}
		return nil
	})); err != nil {
		return r, err
	}
	defer server.Shutdown()
	// Tasks are enqueued one by one: asynq has no batches. More callers do not help.
	const callers = 64
	var enqueue sync.WaitGroup
	errs := make([]error, callers)
	for caller := range callers {
		enqueue.Go(func() {
			for i := caller; i < n && errs[caller] == nil; i += callers {
				_, errs[caller] = client.EnqueueContext(ctx, asynq.NewTask("nothing", nil))
			}
		})
	}
	enqueue.Wait()
	if err := errors.Join(errs...); err != nil {
		return r, err
	}
	select {
	case <-last:
	case <-time.After(patience):
		return r, errors.New("not all tasks were worked by asynq")
	case <-ctx.Done():
		return r, ctx.Err()
	}
	r.took, r.finished = time.Since(began), n
	return r, r.charge(p, own, db)
}

// onRedisBeside measures a node on Redis, the sketch and asynq.
func (b *bench) onRedisBeside(ctx context.Context) ([]Figure, error) {
	figures, ours, _, err := b.besideSketch(ctx, onRedis, redisSketch)
	if err != nil {
		return nil, err
	}
	theirs, err := runAsynq(ctx, b.scaled(20_000, 200))
	if err != nil {
		return nil, err
	}
	return append(figures,
		above("asynq: enqueued and worked, a second", theirs.rate(), 0).beside(theirs.cost()),
		share("the node, times asynq", ours.rate()/theirs.rate(), b.scaledGoal(asynqTimes)),
		fact("processor time, asynq's to the node's", number(float64(theirs.nodes+theirs.server)/float64(ours.nodes+ours.server), 1)),
	), nil
}

// The goals on key-value stores.
const (
	sketchShare = 0.5
	asynqTimes  = 5
	etcdP99     = 150 * time.Millisecond
)

// besideSketch measures a node on a backend and its sketch.
func (b *bench) besideSketch(ctx context.Context, on backend, sketch func(context.Context, place, time.Duration) (caughtUp, error)) (figures []Figure, ours, least caughtUp, err error) {
	load := backlog{jobs: b.scaled(sketchCells, 20), down: b.scaled(10, 10)}
	err = b.profiled(on.name+"-node", func() (err error) {
		ours, err = b.fresh(ctx, on, load, 1, patience)
		return err
	})
	if err != nil {
		return nil, ours, least, err
	}
	p, err := on.make("")
	if err != nil {
		return nil, ours, least, err
	}
	defer p.close()
	least, err = sketch(ctx, p, time.Duration(b.scaled(b.Seconds, 1))*time.Second)
	if err != nil {
		return nil, ours, least, err
	}
	return []Figure{
		above("a node, overlap allow: planned and finished with history, a second", ours.rate(), 0).beside(ours.cost()),
		above("the sketch: three steps of each run, a second", least.rate(), 0).beside(least.cost()),
		share("the node, times the sketch", ours.rate()/least.rate(), b.scaledGoal(sketchShare)),
	}, ours, least, nil
}

// onEtcdBeside measures a node on etcd, with history in it and in SQLite, and the sketch.
func (b *bench) onEtcdBeside(ctx context.Context) ([]Figure, error) {
	figures, ours, least, err := b.besideSketch(ctx, onEtcd, etcdSketch)
	if err != nil {
		return nil, err
	}
	apart, err := b.fresh(ctx, onEtcdWithSQLite, backlog{jobs: b.scaled(sketchCells, 20), down: b.scaled(10, 10)}, 1, patience)
	if err != nil {
		return nil, err
	}
	return append(figures,
		above("a node with history in SQLite: the same", apart.rate(), 0).beside(apart.cost()),
		share("with history in SQLite, times the sketch", apart.rate()/least.rate(), b.scaledGoal(sketchShare)),
		fact("with history in SQLite, times in etcd", number(apart.rate()/ours.rate(), 2)),
	), nil
}

// etcdCron measures empty jobs due each second, on a node with etcd and on go-etcd-cron, which
// keeps no history.
func (b *bench) etcdCron(ctx context.Context) ([]Figure, error) {
	load := noopLoad{jobs: b.scaled(10_000, 50), cron: everySecond}
	figures, err := b.noop(ctx, onEtcd, load)
	if err != nil {
		return nil, err
	}
	for i := range figures {
		figures[i].What = "a node: " + figures[i].What
	}
	late, due, err := b.runEtcdCron(ctx, load.jobs)
	if err != nil {
		return nil, err
	}
	figures = append(figures, fact("go-etcd-cron: called, of those due", fmt.Sprintf("%s of %s", number(float64(len(late)), 0), number(float64(due), 0))))
	if len(late) > 0 {
		figures = append(figures,
			fact("go-etcd-cron: late, p50", times(late.quantile(.5))),
			fact("go-etcd-cron: late, p99", times(late.quantile(.99))),
		)
	}
	return figures, nil
}

// runEtcdCron lets go-etcd-cron call a function for each of its jobs each second, in a separate
// program.
func (b *bench) runEtcdCron(ctx context.Context, jobs int) (late lateness, due int, err error) {
	p, err := onEtcd.make("")
	if err != nil {
		return nil, 0, err
	}
	defer p.close()
	dir, err := repository(ctx)
	if err != nil {
		return nil, 0, err
	}
	cmd := exec.CommandContext(ctx, "go", "run", ".", "-endpoint", p.endpoint, "-jobs", fmt.Sprint(jobs), "-seconds", fmt.Sprint(b.Seconds), "-settle", b.settling().String())
	cmd.Dir = filepath.Join(dir, "bench", "etcdcron")
	said := &strings.Builder{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		return nil, 0, fmt.Errorf("run go-etcd-cron: %w\n%s", err, said)
	}
	for line := range strings.Lines(string(out)) {
		micros, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return nil, 0, fmt.Errorf("go-etcd-cron said %q", line)
		}
		late = append(late, time.Duration(micros)*time.Microsecond)
	}
	return late.sort(), jobs * b.Seconds, nil
}

// sideBySide measures the same load on all stores, one after the other.
func (b *bench) sideBySide(ctx context.Context) (figures []Figure, err error) {
	load := backlog{jobs: b.scaled(2000, 20), down: b.scaled(25, 10)}
	noop := noopLoad{jobs: b.scaled(1000, 20), cron: everySecond}
	for _, on := range []backend{embedded, onPostgres, onMariaDB, onEtcd, onEtcdWithSQLite, onRedis} {
		r, err := b.fresh(ctx, on, load, 1, catchUpMax)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", on.name, err)
		}
		figures = append(figures, above(on.name+": planned and finished with history, a second", r.rate(), 0).beside(r.cost()))
		some, err := b.noop(ctx, on, noop)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", on.name, err)
		}
		for _, f := range some {
			if strings.HasPrefix(f.What, "late") || strings.HasPrefix(f.What, "memory") {
				f.What, f.Limit = fmt.Sprintf("%s: %s", on.name, f.What), ""
				figures = append(figures, f)
			}
		}
	}
	return figures, nil
}

// commandsOn measures how late 100 simultaneous commands start on SQLite and other stores.
func (b *bench) commandsOn(ctx context.Context) (figures []Figure, err error) {
	var first time.Duration
	for _, on := range []backend{embedded, onEtcd, onRedis} {
		late, err := b.commandsLate(ctx, on)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", on.name, err)
		}
		p50, p99 := late.quantile(.5), late.quantile(.99)
		figures = append(figures, atMost(on.name+": late, p50", p50, 0), atMost(on.name+": late, p99", p99, 0))
		if first == 0 {
			first = p50
			continue
		}
		figures = append(figures, atMostTimes(on.name+": p50, times SQLite", float64(p50)/float64(first), b.scaledGoal(lateTimes)))
	}
	return figures, nil
}

// lateTimes is how many times as late as on SQLite commands may start.
const lateTimes = 2

func (b *bench) commandsLate(ctx context.Context, on backend) (lateness, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	p, err := on.make(dir)
	if err != nil {
		return nil, err
	}
	defer p.close()
	program, err := b.tiny(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"--capacity", "512"}
	if p.address != "" {
		args = append(args, "--store", p.address)
	}
	s, err := b.serve(ctx, dir+"/data", args...)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	load := commandLoad{jobs: b.scaled(100, 20)}
	r, err := s.measure(ctx, program, load, load.jobs, b.Seconds, b.settling(), dir+"/starts")
	if err != nil {
		return nil, err
	}
	if err := s.stop(); err != nil {
		return nil, err
	}
	if err := r.read(load, load.jobs); err != nil {
		return nil, err
	}
	if len(r.late) == 0 {
		return nil, errors.New("no command has started")
	}
	return r.late, nil
}
