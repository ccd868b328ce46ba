package xxlexec

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// liveEvery is how often the log of a running run is requested, however
	// many follow it.
	liveEvery = time.Second
	// liveKept is how long logs stay cached after their last follower, and liveMax for how many
	// runs.
	liveKept = time.Minute
	liveMax  = 1000
)

// liveLogs are logs of runs in progress, as far as they were read.
type liveLogs struct {
	mu   sync.Mutex
	runs map[job.ID]*liveLog
}

// liveLog is the log of a run so far.
type liveLog struct {
	// gate admits one reader.
	gate    chan struct{}
	attempt int
	read    time.Time
	from    int // the next line
	offset  int64
	chunks  []store.OutputChunk
	cut     bool
}

func (l *liveLogs) init() { l.runs = map[job.ID]*liveLog{} }

// of returns the cached log of an attempt.
func (l *liveLogs) of(run job.ID, attempt int) *liveLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.runs[run]
	if one != nil && one.attempt == attempt {
		return one
	}
	for id := range l.runs { // any one: it can be read again
		if len(l.runs) < liveMax {
			break
		}
		delete(l.runs, id)
	}
	one = &liveLog{gate: make(chan struct{}, 1), attempt: attempt, from: 1}
	l.runs[run] = one
	time.AfterFunc(liveKept, func() { l.forget(run, one) })
	return one
}

// forget drops a log without followers.
func (l *liveLogs) forget(run job.ID, one *liveLog) {
	one.gate <- struct{}{}
	used := time.Since(one.read) < liveKept
	<-one.gate
	if used {
		time.AfterFunc(liveKept, func() { l.forget(run, one) })
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[run] == one {
		delete(l.runs, run)
	}
}

// Log returns the log so far of an attempt at an executor, in immutable chunks numbered from 0;
// none for other attempts. Missing parts may follow in later calls.
func (a *Admin) Log(ctx context.Context, run job.ID, attempt int) ([]store.OutputChunk, error) {
	list, err := a.store.Handovers(ctx, store.HandoverQuery{Run: run, Limit: store.MaxBatch})
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list, func(h store.Handover) bool {
		return h.Kind == Kind && h.Attempt.Number == attempt && !h.IsOver()
	})
	if at < 0 {
		return nil, nil
	}
	one := a.live.of(run, attempt)
	select {
	case one.gate <- struct{}{}:
		defer func() { <-one.gate }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if time.Since(one.read) >= liveEvery && !one.cut {
		one.read = time.Now()
		a.readLive(ctx, one, &list[at])
	}
	return slices.Clone(one.chunks), nil
}

// readLive reads what is new in a log.
func (a *Admin) readLive(ctx context.Context, one *liveLog, h *store.Handover) {
	ab, err := aboutOf(h)
	left := a.outputLimit - int(one.offset)
	if err != nil || left <= 0 {
		return
	}
	part, err := a.logFrom(ctx, h, &ab, one.from, left)
	if err != nil || part.Text == "" || part.To < one.from {
		return // it has no news, or does not answer now
	}
	capture := a.capture(h)
	_, _ = (&lines{to: capture.Stdout()}).Write([]byte(part.Text)) // writes to captures succeed
	chunks, summary := capture.Close()
	for _, c := range chunks {
		one.chunks = append(one.chunks, moved(c, len(one.chunks), one.offset))
	}
	one.offset += summary.Bytes
	one.from, one.cut = part.To+1, part.Cut
}

// moved returns a chunk shifted behind others.
func moved(c output.Chunk, seq int, by int64) store.OutputChunk {
	c.Seq, c.Offset = seq, c.Offset+by
	c.DropFrom, c.DropTo = 0, 0
	return store.OutputChunk(c)
}
