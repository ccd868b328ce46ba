// Package runlog logs unsuccessful runs, and jobs paused because of them, so that failures are
// visible in the log.
package runlog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// jobEvery is the shortest time between two lines about runs of one job: a job that fails each
	// second gets one line a minute.
	jobEvery = time.Minute
	// jobsMax bounds the jobs with separate lines within that time. Otherwise an outage that fails
	// all jobs would fill the disk.
	jobsMax = 1000
	// queueMax is how many ends wait to be logged. An unread log blocks its
	// writer, and must not block the store.
	queueMax = 10_000
	// flushEvery is the interval of checks for suppressed lines that no other line
	// followed.
	flushEvery = 10 * time.Second
)

// words are the messages for the outcomes that alarm.
var words = map[job.Outcome]string{
	job.OutcomeFailed:   "a run failed",
	job.OutcomeTimedOut: "a run timed out",
	job.OutcomeLost:     "a run was lost",
	job.OutcomeMissed:   "a run was missed",
}

// Log logs ends. Use [New].
type Log struct {
	log *slog.Logger
	now func() time.Time

	wake   chan struct{} // of capacity one: lines are waiting
	mu     sync.Mutex    // guards the next two; never held during a write
	queue  []note
	unseen int // ends that did not fit into the queue

	// Only Run uses the following fields.
	jobs   map[job.ID]*jobLimit
	others failurelog.Limit // for jobs beyond jobsMax
}

// note is an end to be logged: a record or a pause.
type note struct {
	record *store.Record
	pause  *store.AuditRecord
}

// jobLimit is the limit of a job with separate lines.
type jobLimit struct {
	name string
	failurelog.Limit
}

// New returns a log. now is the clock of the process; nil is the clock of the machine.
func New(log *slog.Logger, now func() time.Time) *Log {
	if now == nil {
		now = time.Now
	}
	return &Log{log: log, now: now, wake: make(chan struct{}, 1), jobs: map[job.ID]*jobLimit{}, others: failurelog.Limit{Every: jobEvery}}
}

// Ended queues the ends of a commit without waiting.
func (l *Log) Ended(e store.Ends) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range e.Records {
		if r.Final && r.Attempt.Outcome.Alarms() {
			l.add(note{record: r})
		}
	}
	for i := range e.Paused {
		l.add(note{pause: &e.Paused[i]})
	}
	if len(l.queue) > 0 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

func (l *Log) add(n note) {
	if len(l.queue) == queueMax {
		l.unseen++
		return
	}
	l.queue = append(l.queue, n)
}

// Run logs until ctx ends, and then the rest.
func (l *Log) Run(ctx context.Context) {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			l.writeQueue()
			return
		case <-l.wake:
			l.writeQueue()
		case <-ticker.C:
			l.flush()
		}
	}
}

func (l *Log) writeQueue() {
	l.mu.Lock()
	queue, unseen := l.queue, l.unseen
	l.queue, l.unseen = nil, 0
	l.mu.Unlock()
	for _, n := range queue {
		if n.pause != nil {
			l.log.Warn("a job was paused by pause_on_failure", "job", n.pause.Object, "reason", n.pause.Detail.String())
		} else {
			l.writeRecord(n.record)
		}
	}
	if unseen > 0 {
		l.log.Warn("too many failures for the log; some are left out", "left_out", unseen)
	}
}

func (l *Log) writeRecord(r *store.Record) {
	name := r.Run.Namespace + "/" + r.Run.Name
	limit := &l.others
	if known := l.jobs[r.Run.JobUID]; known != nil {
		limit = &known.Limit
	} else if len(l.jobs) < jobsMax {
		own := &jobLimit{name, failurelog.Limit{Every: jobEvery}}
		l.jobs[r.Run.JobUID], limit = own, &own.Limit
	}
	left, ok := limit.Allow(l.now())
	if !ok {
		return
	}
	about := []any{"job", name, "run", r.Run.ID}
	if r.Attempt.Number > 0 {
		about = append(about, "attempt", r.Attempt.Number)
	}
	if r.Count > 1 {
		about = append(about, "occurrences", r.Count)
	}
	about = append(about, "reason", r.Attempt.Reason.String())
	if r.Attempt.Cause != "" {
		about = append(about, "cause", r.Attempt.Cause)
	}
	if left > 0 {
		about = append(about, "left_out", left)
	}
	l.log.Warn(words[r.Attempt.Outcome], about...)
}

// flush reports suppressed lines that no other line followed, and removes jobs whose span is over.
// A line right after the span reports them.
func (l *Log) flush() {
	now := l.now().Add(-flushEvery)
	for uid, j := range l.jobs {
		left, over := j.LeftOut(now)
		if left > 0 {
			l.log.Warn("more runs of the job failed", "job", j.name, "left_out", left)
		}
		if over {
			delete(l.jobs, uid)
		}
	}
	if left, _ := l.others.LeftOut(now); left > 0 {
		l.log.Warn("runs of more jobs failed", "left_out", left)
	}
}
