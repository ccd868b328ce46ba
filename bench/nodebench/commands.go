package nodebench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// commandLoad is jobs that fall due each second and run the program.
type commandLoad struct {
	name, about string
	jobs        int
	shell       bool // by sh -c
	spread      bool // over the second
	hold        bool // for Options.Hold; memory is watched
	p50, p99    time.Duration
}

var commandLoads = []commandLoad{
	{name: "commands-10", about: "10 commands at the same instant, each second", jobs: 10, p50: 4 * time.Millisecond, p99: 10 * time.Millisecond},
	{name: "commands-100", about: "100 commands at the same instant, each second", jobs: 100, p50: 25 * time.Millisecond, p99: 50 * time.Millisecond},
	{name: "commands-1000", about: "1,000 commands at the same instant, each second", jobs: 1000, p99: 550 * time.Millisecond},
	{name: "spread-1000", about: "1,000 commands each second, one each millisecond", jobs: 1000, spread: true, p99: 5 * time.Millisecond},
	{name: "sh-1200", about: "1,200 commands through `sh -c` at the same instant, each second", jobs: 1200, shell: true},
	{name: "hold-1500", about: "1,500 commands at the same instant, each second, held", jobs: 1500, hold: true},
	{name: "hold-2000", about: "2,000 commands at the same instant, each second, held", jobs: 2000, hold: true},
}

// offset is how long after the full second a job falls due.
func (l commandLoad) offset(i, jobs int) time.Duration {
	if !l.spread {
		return 0
	}
	return time.Duration(i) * time.Second / time.Duration(jobs)
}

// job returns the definition of a job.
func (l commandLoad) job(p *program, file string, i, jobs int) *job.Job {
	j := &job.Job{Name: fmt.Sprintf("job-%d", i)}
	if l.spread {
		j.Schedule = job.Schedule{Every: job.Duration(time.Second), Offset: job.Duration(l.offset(i, jobs))}
	} else {
		j.Schedule = job.Schedule{Cron: []string{"* * * * * *"}}
	}
	if l.shell {
		j.Run.Shell = &job.Shell{Command: l.line(p, file, i)}
	} else {
		j.Run.Shell = &job.Shell{Command: p.path, Args: []string{file, strconv.Itoa(i)}}
	}
	return j
}

const (
	// capacityFactor is the ratio of capacity to attempts due per second: the next second is
	// claimed ahead, and attempts of a stalled second still run.
	capacityFactor = 4
	// applied is how many jobs one request applies.
	applied = 1000
)

// apply applies jobs to a server.
func (s *server) apply(ctx context.Context, jobs []*job.Job) error {
	for from := 0; from < len(jobs); from += applied {
		var request client.Apply
		for _, j := range jobs[from:min(from+applied, len(jobs))] {
			document, err := client.DocumentOf(job.Document{Kind: job.KindJob, Job: j})
			if err != nil {
				return err
			}
			request.Documents = append(request.Documents, document)
		}
		if _, err := s.Apply(ctx, request); err != nil {
			return err
		}
	}
	return nil
}

// commands measures how late commands start on a server.
func (b *bench) commands(ctx context.Context, l commandLoad) ([]Figure, error) {
	p, err := b.tiny(ctx)
	if err != nil {
		return nil, err
	}
	jobs, seconds := b.scaled(l.jobs, 20), b.Seconds
	if l.hold {
		seconds = max(1, int(b.Hold/time.Second))
	}
	limit, err := b.bareSpawns(p, l, jobs)
	if err != nil {
		return nil, err
	}
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := b.serve(ctx, filepath.Join(dir, "data"), "--capacity", strconv.Itoa(max(512, capacityFactor*jobs)))
	if err != nil {
		return nil, err
	}
	defer s.kill()
	r, err := s.measure(ctx, p, l, jobs, seconds, b.settling(), filepath.Join(dir, "starts"))
	if err != nil {
		return nil, err
	}
	if err := s.stop(); err != nil {
		return nil, err
	}
	if err := r.read(l, jobs); err != nil {
		return nil, err
	}

	missed := below(fmt.Sprintf("not started, of %s in %d s", number(float64(r.due), 0), seconds), float64(r.due-r.started), 0, 0, "")
	how := "directly"
	if l.shell {
		how = "by `sh -c`"
	}
	each := func(d time.Duration) string { return times(d / time.Duration(r.started)) }
	figures := []Figure{
		missed.beside(fmt.Sprintf("%s, %s; %s", limit, how, p.kind)),
		atMost("late, p50", r.late.quantile(.5), l.p50).beside("bare spawns: " + times(limit.late.quantile(.5))),
		atMost("late, p99", r.late.quantile(.99), l.p99).beside("bare spawns: " + times(limit.late.quantile(.99))),
		atMost("late, the latest", r.late.quantile(1), 0).beside("bare spawns: " + times(limit.late.quantile(1))),
		fact("processor time of each", each(r.own+r.children)).
			beside(fmt.Sprintf("server %s, command %s; bare spawn %s", each(r.own), each(r.children), times(limit.processor))),
	}
	if r.doubled > 0 || r.early > 0 {
		figures = append(figures, below("started twice", float64(r.doubled), 0, 0, ""), below("started early", float64(r.early), 0, 0, ""))
	}
	if missed.missed {
		figures = append(figures, fact("why, for one of them", cmp.Or(r.unstarted, "the server has no record of it")))
	}
	if l.hold {
		figures = append(figures,
			fact("memory at the start", number(r.before, 0)+" MB"),
			below("memory at the end", r.after, r.before*growthMax+growthMB, 0, " MB").beside("so much is flat: at the start and a fifth, and 10 MB"),
			fact("in use after the first and the last garbage collection", fmt.Sprintf("%.0f and %.0f MB", r.liveFirst, r.liveLast)),
		)
	}
	figures = append(figures, fact("longest pause of a garbage collection", times(r.pause)))
	return figures, nil
}

// Growth of memory up to this does not count: garbage collections make it vary.
const growthMax, growthMB = 1.2, 10.0

// result is the result of a load.
type result struct {
	from, until time.Time
	file        string
	due         int
	started     int
	doubled     int
	early       int
	late        lateness
	unstarted   string // why an attempt did not start, by the server

	own, children       time.Duration // processor time of the server and of the jobs
	before, after       float64       // MB
	pause               time.Duration
	liveFirst, liveLast float64 // MB
}

// measure applies jobs to a server and lets it run them.
func (s *server) measure(ctx context.Context, p *program, l commandLoad, jobs, seconds int, settle time.Duration, file string) (*result, error) {
	var list []*job.Job
	for i := range jobs {
		list = append(list, l.job(p, file, i, jobs))
	}
	if err := s.apply(ctx, list); err != nil {
		return nil, err
	}
	r := &result{file: file, due: jobs * seconds}
	r.from = time.Now().Add(settle).Truncate(time.Second).Add(time.Second)
	r.until = r.from.Add(time.Duration(seconds) * time.Second)
	if err := sleep(ctx, time.Until(r.from)); err != nil {
		return nil, err
	}
	var err error
	if r.before, _, err = memory(s.cmd.Process.Pid); err != nil {
		return nil, err
	}
	own, children, err := processorTime(s.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	_, _, _, collections := s.said.collections(0)
	if err := sleep(ctx, time.Until(r.until)); err != nil {
		return nil, err
	}
	if err := r.awaitStart(ctx); err != nil {
		return nil, err
	}
	if r.after, _, err = memory(s.cmd.Process.Pid); err != nil {
		return nil, err
	}
	if r.own, r.children, err = processorTime(s.cmd.Process.Pid); err != nil {
		return nil, err
	}
	r.own, r.children = r.own-own, r.children-children
	query := client.RunQuery{
		Outcomes: []job.Outcome{job.OutcomeSkipped, job.OutcomeMissed, job.OutcomeLost, job.OutcomeFailed}, From: r.from, PageSize: 1,
	}
	for more := true; more && r.unstarted == ""; { // the few may be on later pages
		page, err := s.Runs(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, run := range page.Items {
			r.unstarted = fmt.Sprintf("%s of %s: %s", run.Outcome, run.Scheduled.Format(time.TimeOnly), run.Reason)
		}
		query.PageToken = page.NextPageToken
		more = query.PageToken != ""
	}
	r.pause, r.liveFirst, r.liveLast, _ = s.said.collections(collections)
	return r, nil
}

// awaitStart waits until a run has started: a busy machine gets more time, so that there are runs
// to count.
func (r *result) awaitStart(ctx context.Context) error {
	for waited := time.Now(); time.Since(waited) < patience; {
		// A line may be being written.
		if starts, err := readStarts(r.file); err == nil && slices.ContainsFunc(starts, r.counts) {
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil // read reports that there is none
}

// counts reports whether a start falls into the measured time.
func (r *result) counts(s start) bool {
	return !s.scheduled.Before(r.from) && s.scheduled.Before(r.until)
}

// read counts what the jobs have written.
func (r *result) read(l commandLoad, jobs int) error {
	starts, err := readStarts(r.file)
	if err != nil {
		return err
	}
	type occurrence struct {
		job       int
		scheduled int64
	}
	seen := make(map[occurrence]bool, r.due)
	for _, s := range starts {
		if !r.counts(s) {
			continue
		}
		o := occurrence{s.job, s.scheduled.Unix()}
		if seen[o] {
			r.doubled++
			continue
		}
		seen[o] = true
		late := s.at.Sub(s.scheduled.Add(l.offset(s.job, jobs)))
		if late < 0 {
			r.early++
		}
		r.late = append(r.late, late)
	}
	if r.started = len(seen); r.started == 0 {
		return fmt.Errorf("none of %d commands was started", r.due)
	}
	r.late.sort()
	return nil
}
