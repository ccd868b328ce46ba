package nodebench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// The goals of nodes that share a database server.
const (
	postgresRate = 30_000
	mariaDBRate  = 10_000
	// leaveTakeOver is how soon other nodes plan the jobs of a leaving node, and killTakeOver of a
	// killed node: a session lives for 6 s.
	leaveTakeOver = 3 * time.Second
	killTakeOver  = 9 * time.Second
	// killedLate is how late what a killed node had not claimed may start.
	killedLate = 1500 * time.Millisecond
)

// serverScenarios returns the scenarios that need a database server.
func serverScenarios() []Scenario {
	var list []Scenario
	add := func(name, about string, run func(*bench, context.Context) ([]Figure, error)) {
		list = append(list, Scenario{Name: name, About: about, Server: true, run: run})
	}
	for _, on := range []struct {
		backend
		prefix string
		rate   float64
	}{{onPostgres, "postgres", postgresRate}, {onMariaDB, "mariadb", mariaDBRate}} {
		load := noopLoads[len(noopLoads)-1]
		add(on.prefix+"-"+load.name, load.about+", on "+on.name, func(b *bench, ctx context.Context) ([]Figure, error) {
			return b.noop(ctx, on.backend, load)
		})
		add(on.prefix+"-nodes", "200,000 missed runs that do nothing, by 1, 2, 4 and 8 nodes on "+on.name, func(b *bench, ctx context.Context) ([]Figure, error) {
			return b.nodes(ctx, on.backend, on.rate)
		})
		add(on.prefix+"-catch-up", "100,000 missed runs of jobs that allow, skip and queue overlaps, on "+on.name, func(b *bench, ctx context.Context) ([]Figure, error) {
			return b.catchUps(ctx, on.backend)
		})
		add(on.prefix+"-counts", aboutCounts+" on "+on.name, func(b *bench, ctx context.Context) ([]Figure, error) { return b.counts(ctx, on.backend) })
		add(on.prefix+"-keys", "100,000 missed runs with a key for each of 10,000 jobs, on "+on.name, func(b *bench, ctx context.Context) ([]Figure, error) {
			return b.keys(ctx, on.backend)
		})
		add(on.prefix+"-api", "pages of jobs, and making jobs, with 100,000 jobs on "+on.name, func(b *bench, ctx context.Context) ([]Figure, error) {
			return b.apiOnServer(ctx, on.backend)
		})
		add(on.prefix+"-jobs", "100,000 missed runs that do nothing, beside 10,000, 100,000 and 1,000,000 jobs on "+on.name, func(b *bench, ctx context.Context) ([]Figure, error) {
			return b.beside(ctx, on.backend)
		})
		add(on.prefix+"-hold", "two nodes that work as fast as they can on "+on.name+", held", func(b *bench, ctx context.Context) ([]Figure, error) {
			return b.holdRate(ctx, on.backend, on.rate)
		})
	}
	for _, on := range []struct {
		prefix string
		backend
	}{{"postgres", onPostgres}, {"etcd", onEtcd}, {"redis", onRedis}} {
		add(on.prefix+"-flows", aboutFlows+" on "+on.name, func(b *bench, ctx context.Context) ([]Figure, error) { return b.flows(ctx, on.backend) })
	}
	add("postgres-ui", "pages of the web UI with 100,000 jobs and 1,000,000 runs on PostgreSQL", (*bench).uiOnServer)
	add("postgres-river", "100,000 runs that do nothing, by a node on PostgreSQL, by River and by bare statements", (*bench).river)
	add("etcd-sketch", "100,000 missed runs that do nothing, by a node on etcd, beside the least that etcd must do", (*bench).onEtcdBeside)
	add("etcd-cron", "10,000 jobs that do nothing each second, by a node on etcd and by go-etcd-cron", (*bench).etcdCron)
	add("redis-asynq", "100,000 missed runs that do nothing, by a node on Redis, beside the least that Redis must do and asynq", (*bench).onRedisBeside)
	add("stores", "50,000 missed runs, and 1,000 runs of one instant each second, on all stores", (*bench).sideBySide)
	add("stores-commands", "100 commands at the same instant, each second, on SQLite, etcd and Redis", (*bench).commandsOn)
	for _, on := range []struct {
		backend
		prefix string
	}{{onEtcd, "etcd"}, {onRedis, "redis"}} {
		add(on.prefix+"-kill", "three nodes on "+on.name+" with 100 commands each second, which are killed, and lost with their machine", func(b *bench, ctx context.Context) ([]Figure, error) {
			return b.kill(ctx, on.backend)
		})
	}
	add("kill", "three nodes on PostgreSQL with 100 commands each second, which are killed, and lost with their machine", func(b *bench, ctx context.Context) ([]Figure, error) {
		return b.kill(ctx, onPostgres)
	})
	add("millions", "three nodes with 1,000,000 and 10,000,000 jobs on PostgreSQL", (*bench).millions)
	add("leave", "three nodes with 1,000,000 jobs on PostgreSQL, of which one leaves and one is killed", (*bench).leave)
	return list
}

// nodes measures how fast several nodes together catch up on missed runs.
func (b *bench) nodes(ctx context.Context, on backend, goal float64) (figures []Figure, err error) {
	load := backlog{jobs: b.scaled(2000, 20), down: b.scaled(100, 10)}
	counts := []int{1, 2, 4, 8}
	if b.Quick {
		counts = counts[:2]
	}
	for _, n := range counts {
		r, err := b.fresh(ctx, on, load, n, patience)
		if err != nil {
			return nil, err
		}
		figures = append(figures, above(fmt.Sprintf("%d nodes: finished with history, a second", n), r.rate(), b.scaledGoal(goal)).beside(r.cost()))
	}
	return figures, nil
}

const (
	// catchUpShare is the goal for other policies, as a part of the rate of allow.
	catchUpShare = 0.4
	// catchUpMax bounds how long each policy is measured.
	catchUpMax = time.Minute
)

// catchUps measures how fast a node catches up on missed runs by overlap policy. Jobs that skip or
// queue never have two unfinished runs at once.
func (b *bench) catchUps(ctx context.Context, on backend) (figures []Figure, err error) {
	load := backlog{jobs: b.scaled(2000, 20), down: b.scaled(50, 10)}
	var allowed float64
	for _, load.overlap = range []job.Overlap{job.OverlapAllow, job.OverlapSkip, job.OverlapQueue} {
		r, err := b.fresh(ctx, on, load, 1, catchUpMax)
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("overlap %s: finished with history, a second", load.overlap)
		if load.overlap == job.OverlapAllow {
			allowed = r.rate()
		}
		figures = append(figures, above(what, r.rate(), 0).beside(r.cost()))
		if load.overlap != job.OverlapAllow {
			figures = append(figures, share(fmt.Sprintf("%s, times allow", load.overlap), r.rate()/allowed, b.scaledGoal(catchUpShare)))
		}
	}
	return figures, nil
}

// keysShare is the rate with a key for each job, times that without keys, in the same policy.
const keysShare = 0.8

// keys measures what 10,000 keys cost: each job has the slots or the rate of its own.
func (b *bench) keys(ctx context.Context, on backend) (figures []Figure, err error) {
	load := backlog{jobs: b.scaled(10_000, 20), down: b.scaled(10, 10), overlap: job.OverlapQueue}
	var without float64
	for _, of := range []struct{ what, key, rateKey string }{
		{"without keys", "", ""}, {"a concurrency_key for each job", "k-{{ .Param.n }}", ""}, {"a rate_key for each job", "", "k-{{ .Param.n }}"},
	} {
		load.key, load.rateKey = of.key, of.rateKey
		var r caughtUp
		if err := b.profiled(fmt.Sprintf("keys-%s-%s", on.name, strings.Fields(of.what)[1]), func() (err error) {
			r, err = b.fresh(ctx, on, load, 1, catchUpMax)
			return err
		}); err != nil {
			return nil, err
		}
		figures = append(figures, above(of.what+": finished with history, a second", r.rate(), 0).beside(r.cost()))
		if of.key+of.rateKey == "" {
			without = r.rate()
		} else {
			figures = append(figures, share(of.what+", times without", r.rate()/without, b.scaledGoal(keysShare)))
		}
	}
	return figures, nil
}

// cost describes the cost of a run.
func (r caughtUp) cost() string {
	return fmt.Sprintf("processor time of each: nodes %s, server %s", times(r.nodes), times(r.server))
}

// fresh lets nodes make up for a backlog on a server of their own.
func (b *bench) fresh(ctx context.Context, on backend, load backlog, nodes int, atMost time.Duration) (caughtUp, error) {
	dir, err := b.folder()
	if err != nil {
		return caughtUp{}, err
	}
	defer os.RemoveAll(dir)
	p, err := on.make(dir)
	if err != nil {
		return caughtUp{}, err
	}
	defer p.close()
	if err := load.miss(ctx, p); err != nil {
		return caughtUp{}, err
	}
	return load.catchUp(ctx, p, nodes, atMost)
}

// beside measures the same beside more and more jobs that are not due.
func (b *bench) beside(ctx context.Context, on backend) (figures []Figure, err error) {
	counts := []int{10_000, 100_000, 1_000_000}
	if b.Quick {
		counts = counts[1:2]
	}
	for _, n := range counts {
		p, err := on.make("")
		if err != nil {
			return nil, err
		}
		some, err := b.besideOne(ctx, p, b.scaled(n, n/1000))
		if err := p.close(); err != nil {
			return nil, err
		}
		if err != nil {
			return nil, err
		}
		figures = append(figures, some...)
	}
	return figures, nil
}

func (b *bench) besideOne(ctx context.Context, p place, n int) ([]Figure, error) {
	put, err := putFar(ctx, p, 0, n)
	if err != nil {
		return nil, err
	}
	load := backlog{jobs: b.scaled(1000, 20), down: b.scaled(100, 10)}
	if err := load.miss(ctx, p); err != nil {
		return nil, err
	}
	r, err := load.catchUp(ctx, p, 2, patience)
	if err != nil {
		return nil, err
	}
	jobs := number(float64(n), 0)
	return []Figure{
		fact(jobs+" jobs: put, a second", number(float64(n)/put.Seconds(), 0)),
		above(jobs+" jobs: finished with history, a second", r.rate(), 0).beside(r.cost()),
	}, nil
}

// putFar puts the jobs that are missing, from a number on, of n that do not fall due.
func putFar(ctx context.Context, p place, from, n int) (time.Duration, error) {
	s, err := p.open(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	began := time.Now()
	const schedules, together = 2100, 10_000
	for ; from < n; from += together {
		var jobs []*job.Job
		for i := from; i < min(n, from+together); i++ {
			j := farJob(i%schedules, began)
			j.Name = fmt.Sprintf("job-%07d", i)
			jobs = append(jobs, j)
		}
		if err := putJobs(ctx, s, jobs); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// holdRate lets two nodes work as fast as they can, and compares the beginning with the
// end.
func (b *bench) holdRate(ctx context.Context, on backend, goal float64) ([]Figure, error) {
	seconds := max(2, int(b.Hold/time.Second))
	// More seconds of 2,000 runs than the nodes make up for.
	const ahead = 25
	load := backlog{jobs: 2000, down: ahead * seconds}
	r, err := b.fresh(ctx, on, load, 2, time.Duration(seconds)*time.Second+100*time.Millisecond)
	if err != nil {
		return nil, err
	}
	n := len(r.began)
	if n < seconds {
		return nil, fmt.Errorf("all was made up for after %d s", n)
	}
	fifth := max(1, n/5)
	first := float64(r.began[fifth-1]) / float64(fifth)
	last := float64(r.began[n-1]-r.began[n-1-fifth]) / float64(fifth)
	return []Figure{
		above(fmt.Sprintf("finished with history, a second, for %d s", seconds), r.rate(), b.scaledGoal(goal)).beside(r.cost()),
		fact("begun a second in the first and in the last fifth", number(first, 0)+" and "+number(last, 0)),
	}, nil
}

// leave measures the effect of a node that leaves, and of one that is killed.
func (b *bench) leave(ctx context.Context) ([]Figure, error) {
	jobs := b.scaled(1_000_000, 1000)
	p, err := onPostgres.make("")
	if err != nil {
		return nil, err
	}
	defer p.close()
	if _, err := putFar(ctx, p, 0, jobs); err != nil {
		return nil, err
	}
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var nodes []*server
	defer func() {
		for _, s := range nodes {
			s.kill()
		}
	}()
	for i := range 3 {
		var token string
		if i > 0 {
			token = nodes[0].token
		}
		s, err := b.join(ctx, filepath.Join(dir, strconv.Itoa(i)), token, "--store", p.address, "--name", fmt.Sprint("bench-", i))
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, s)
	}
	tiny, err := b.tiny(ctx)
	if err != nil {
		return nil, err
	}
	load := commandLoad{jobs: b.scaled(100, 20)}
	file := filepath.Join(dir, "starts")
	all := jobs + load.jobs
	if _, err := nodes[0].measure(ctx, tiny, load, load.jobs, 1, b.settling(), file); err != nil {
		return nil, err
	}
	if _, err := plannedBy(ctx, nodes, all); err != nil {
		return nil, err
	}
	var figures []Figure
	for _, how := range []struct {
		what     string
		takeOver time.Duration
		late     time.Duration
		end      func(*server) error
	}{
		{"one leaves", leaveTakeOver, 100 * time.Millisecond, (*server).stop},
		{"one is killed", killTakeOver, killedLate, func(s *server) error { s.kill(); return nil }},
	} {
		gone := nodes[len(nodes)-1]
		nodes = nodes[:len(nodes)-1]
		r := &result{file: file, from: time.Now().Truncate(time.Second).Add(time.Second)}
		// In the middle of a second, when no run starts.
		if err := sleep(ctx, time.Until(r.from.Add(500*time.Millisecond))); err != nil {
			return nil, err
		}
		ended := make(chan error, 1)
		go func() { ended <- how.end(gone) }()
		took, err := plannedBy(ctx, nodes, all)
		if err != nil {
			return nil, err
		}
		if err := <-ended; err != nil {
			return nil, err
		}
		const after = 15 * time.Second // runs planned at the end of the node have ended
		r.until = r.from.Add(after)
		if err := sleep(ctx, time.Until(r.until.Add(2*killedLate))); err != nil {
			return nil, err
		}
		r.due = load.jobs * int(after/time.Second)
		if err := r.read(load, load.jobs); err != nil {
			return nil, err
		}
		figures = append(figures,
			atMost(how.what+": all jobs are planned by the others after", took, how.takeOver),
			below(fmt.Sprintf("%s: not started, of %d", how.what, r.due), float64(r.due-r.started), 0, 0, ""),
			below(how.what+": started twice", float64(r.doubled), 0, 0, ""),
			atMost(how.what+": late, p99", r.late.quantile(.99), 0),
			atMost(how.what+": late, the latest", r.late.quantile(1), how.late),
		)
	}
	return figures, nil
}

// patiencePerJob is how much longer a node may take to read a job: twenty times as long as one takes.
const patiencePerJob = 50 * time.Microsecond

// plannedBy waits until nodes plan n jobs together.
func plannedBy(ctx context.Context, nodes []*server, jobs int) (time.Duration, error) {
	began := time.Now()
	for {
		planned := 0
		for _, s := range nodes {
			n, err := s.metric(ctx, "belfry_planned_jobs")
			if err != nil {
				return 0, err
			}
			planned += int(n)
		}
		took := time.Since(began)
		if planned == jobs {
			return took, nil
		}
		if took > patience+time.Duration(jobs)*patiencePerJob {
			return 0, fmt.Errorf("%d of %d jobs are planned after %s", planned, jobs, took)
		}
		const look = 50 * time.Millisecond
		if err := sleep(ctx, look); err != nil {
			return 0, err
		}
	}
}

// metric returns the value of a metric without labels.
func (s *server) metric(ctx context.Context, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", answer.Status, name)
}
