package xxlexec

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
)

const (
	// forwardsMax bounds the requests that wait for the other admin. Registrations are repeated, so
	// that the oldest may be dropped.
	forwardsMax = 1000
	// forwardsBytes bounds the size of these requests together: four of the largest, or
	// 60 kB each.
	forwardsBytes = 4 * bodyMax
	// forwardsDropped is how often the log reports dropped requests.
	forwardsDropped = 10 * time.Second
	// forwardTries is how often one is sent, and forwardRest the time between two tries, which
	// doubles.
	forwardTries = 5
	forwardRest  = time.Second
	forwarders   = 4
)

// forward is a request that is passed to another admin.
type forward struct {
	path, header string
	body         []byte
}

// forwards is the queue of requests for the other admin. Use newForwards.
type forwards struct {
	log  *slog.Logger
	more chan struct{} // of capacity one: a request waits

	mu      sync.Mutex
	queue   []forward // the oldest first
	bytes   int       // of their bodies
	dropped failurelog.Limit
}

func newForwards(log *slog.Logger) *forwards {
	return &forwards{log: log, more: make(chan struct{}, 1), dropped: failurelog.Limit{Every: forwardsDropped}}
}

// add queues a request. Beyond the bounds of the queue it drops the oldest ones.
func (f *forwards) add(one forward) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, one)
	f.bytes += len(one.body)
	for len(f.queue) > forwardsMax || f.bytes > forwardsBytes {
		oldest := f.pop()
		if left, ok := f.dropped.Allow(time.Now()); ok {
			f.log.Warn("dropped a request for the other admin: too many wait", "path", oldest.path, "bytes", len(oldest.body), "left_out", left)
		}
	}
	f.signal()
}

// pop removes the oldest request. The queue is locked and not empty.
func (f *forwards) pop() forward {
	oldest := f.queue[0]
	f.queue[0] = forward{}
	f.queue = f.queue[1:]
	f.bytes -= len(oldest.body)
	return oldest
}

// signal wakes a waiting call of next. The queue is locked.
func (f *forwards) signal() {
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// next waits for a request and removes it; ok is false when ctx has ended.
func (f *forwards) next(ctx context.Context) (one forward, ok bool) {
	for {
		f.mu.Lock()
		if len(f.queue) > 0 {
			one = f.pop()
			if len(f.queue) > 0 {
				f.signal()
			}
			f.mu.Unlock()
			return one, true
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return forward{}, false
		case <-f.more:
		}
	}
}

// run passes requests on until ctx ends.
func (f *forwards) run(ctx context.Context, a *Admin) {
	failing := failurelog.New(a.log, "requests of executors cannot be passed on to the other admin", "requests of executors are passed on to the other admin again")
	done := make(chan struct{})
	for range forwarders {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				if one, ok := f.next(ctx); ok {
					failing.Saw(a.passOn(ctx, one))
				}
			}
		}()
	}
	for range forwarders {
		<-done
	}
}

// passOn sends a request to the other admin, repeatedly if that refuses it.
func (a *Admin) passOn(ctx context.Context, one forward) (err error) {
	rest := forwardRest
	for range forwardTries {
		s := a.current.Load()
		if s.Forward == "" {
			return nil
		}
		if err = passOnce(ctx, s, one); err == nil || one.path != pathCallback {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
			rest *= 2
		}
	}
	return err
}

func passOnce(ctx context.Context, s *settings, one forward) error {
	ctx, cancel := context.WithTimeout(ctx, dialMax+answerWait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(s.Forward, "/")+one.path, bytes.NewReader(one.body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", xxl.ContentType)
	request.Header[xxl.HeaderToken] = []string{s.Tokens[0]}
	if one.header != "" {
		request.Header[xxl.HeaderGroup] = []string{one.header}
	}
	// The administrator of the node sets this address, which may be a loopback address.
	answer, err := s.caller.local.Do(request)
	if err != nil {
		return withoutURL(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, answerMax))
	if err != nil {
		return err
	}
	reply, err := xxl.ReadAnswer(body)
	if err == nil && !reply.OK() {
		err = fmt.Errorf("it refused: %s", reply.Message)
	}
	return err
}
