package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var _ work.Store = (*Client)(nil)

// own is the present session of the worker, for calls that name none.
type own struct{ session job.ID }

// session is the path of a session.
func session(id job.ID) string { return "/sessions/" + id.String() }

// present returns the path of the latest session.
func (c *Client) present() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own.session.IsZero() {
		return "", store.ErrSessionOver
	}
	return session(c.own.session), nil
}

// Join implements [work.Session].
func (c *Client) Join(ctx context.Context, s store.Session) (store.Session, error) {
	var joined wire.Joined
	if err := c.do(ctx, call{method: http.MethodPost, path: "/sessions", body: wire.JoinOf(&s), answer: &joined}); err != nil {
		return store.Session{}, err
	}
	if joined.Protocol < wire.Oldest || joined.Protocol > wire.Newest {
		return store.Session{}, fmt.Errorf("%w: the server speaks %d, and this worker %d to %d", errVersion, joined.Protocol, wire.Oldest, wire.Newest)
	}
	c.mu.Lock()
	c.own.session = s.ID
	c.mu.Unlock()
	s.Joined, s.Renewed, s.Predecessors = joined.Now, joined.Now, joined.Predecessors
	return s, nil
}

// Renew implements [work.Session].
func (c *Client) Renew(ctx context.Context, id job.ID, load store.Load) error {
	return c.do(ctx, call{method: http.MethodPost, path: session(id) + "/renew", body: wire.Load{
		Running: load.Running, Ready: load.Ready, Unreported: load.Unreported, ClockAhead: load.ClockAhead.Milliseconds(),
	}})
}

// Leave implements [work.Session].
func (c *Client) Leave(ctx context.Context, id job.ID) error {
	return c.do(ctx, call{method: http.MethodPost, path: session(id) + "/leave"})
}

// End implements [work.Session]. A session that is over has ended.
func (c *Client) End(ctx context.Context, id job.ID) error {
	err := c.do(ctx, call{method: http.MethodDelete, path: session(id)})
	if errors.Is(err, store.ErrSessionOver) {
		return nil
	}
	return err
}

// Sessions implements [work.Session]. Of the other sessions it returns what the worker may see.
func (c *Client) Sessions(ctx context.Context) ([]store.Session, error) {
	path, err := c.present()
	if err != nil {
		return nil, err
	}
	var members wire.Members
	if err := c.do(ctx, call{method: http.MethodGet, path: path + "/members", answer: &members}); err != nil {
		return nil, err
	}
	list := make([]store.Session, len(members.Sessions))
	for i := range list {
		list[i] = members.Sessions[i].Session()
	}
	return list, nil
}

// Now implements [work.Session] and [work.Runs].
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	var clock wire.Clock
	err := c.do(ctx, call{method: http.MethodGet, path: "/clock", answer: &clock})
	return clock.Now, err
}

// Hints implements [work.Session]. Each request continues at the position of the last answer, so that
// no hint is missed. A stream would gain little: see docs/decisions/0050.
func (c *Client) Hints(ctx context.Context) <-chan store.Hint {
	out := make(chan store.Hint, 1)
	go func() {
		defer close(out)
		place, rest := "", restMin
		for ctx.Err() == nil {
			hints, err := c.waitForHints(ctx, place)
			if err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(jittered(rest)):
				}
				rest = min(2*rest, restMax)
				continue
			}
			place, rest = hints.Place, restMin
			if hint := hints.Hint(); hint != 0 {
				select {
				case <-ctx.Done():
				case out <- hint:
				}
			}
		}
	}()
	return out
}

func (c *Client) waitForHints(ctx context.Context, place string) (wire.Hints, error) {
	var hints wire.Hints
	path, err := c.present()
	if err != nil {
		return hints, err
	}
	query := url.Values{"wait": {strconv.Itoa(int(wire.WaitMax / time.Second))}}
	if place != "" {
		query.Set("after", place)
	}
	return hints, c.do(ctx, call{method: http.MethodGet, path: path + "/hints", query: query, answer: &hints, wait: wire.WaitMax})
}

// Ready implements [work.Runs].
func (c *Client) Ready(ctx context.Context, id job.ID, after store.RunRef, until time.Time, limit int) ([]store.ReadyRun, error) {
	query := url.Values{"until": {until.UTC().Format(time.RFC3339Nano)}, "limit": {strconv.Itoa(limit)}}
	if !after.Due.IsZero() {
		query.Set("after_due", after.Due.UTC().Format(time.RFC3339Nano))
	}
	if !after.ID.IsZero() {
		query.Set("after_id", after.ID.String())
	}
	var runs wire.Runs
	err := c.do(ctx, call{method: http.MethodGet, path: session(id) + "/ready", query: query, answer: &runs})
	return wire.ReadyRuns(runs.Runs), err
}

// Stealable implements [work.Runs].
func (c *Client) Stealable(ctx context.Context, self store.Session, q work.Overdue) ([]store.ReadyRun, store.RunRef, error) {
	var runs wire.Runs
	err := c.do(ctx, call{method: http.MethodPost, path: session(self.ID) + "/overdue", answer: &runs, body: wire.Overdue{
		Now: q.Now, By: q.By.Milliseconds(), After: wire.Place(q.After), Limit: q.Limit,
	}})
	return wire.ReadyRuns(runs.Runs), store.RunRef(runs.Next), err
}

// Claim implements [work.Runs].
func (c *Client) Claim(ctx context.Context, id job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	var claims wire.Claims
	if err := c.do(ctx, call{method: http.MethodPost, path: session(id) + "/claims", body: wire.AttemptsOf(attempts), answer: &claims}); err != nil {
		return nil, err
	}
	if len(claims.Claims) != len(attempts) {
		return nil, fmt.Errorf("the server has answered %d of %d claims", len(claims.Claims), len(attempts))
	}
	outcomes := make([]store.ClaimOutcome, len(attempts))
	for i := range outcomes {
		var err error
		if outcomes[i], err = claims.Claims[i].Outcome(); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// Release implements [work.Runs].
func (c *Client) Release(ctx context.Context, id job.ID, attempts []store.Attempt) error {
	return c.do(ctx, call{method: http.MethodPost, path: session(id) + "/releases", body: wire.AttemptsOf(attempts)})
}

// Finish implements [work.Runs]. Results too large for one request are split: output precedes its
// result.
func (c *Client) Finish(ctx context.Context, id job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	var outcomes []store.FinishOutcome
	for len(results) > 0 {
		n, size := 0, 0
		for n < len(results) {
			own := outputSize(results[n].Output)
			if n > 0 && size+own > wire.OutputMax {
				break
			}
			size += own
			n++
		}
		part, err := c.finish(ctx, id, results[:n], size)
		if err != nil {
			return nil, err
		}
		outcomes, results = append(outcomes, part...), results[n:]
	}
	return outcomes, nil
}

// finish reports results whose output has a size.
func (c *Client) finish(ctx context.Context, id job.ID, results []store.Result, size int) ([]store.FinishOutcome, error) {
	body := wire.Results{Results: make([]wire.Result, len(results))}
	for i := range results {
		body.Results[i] = wire.ResultOf(&results[i])
	}
	if size > wire.OutputMax { // a single result
		if err := c.AppendOutput(ctx, results[0].Output); err != nil && !errors.Is(err, store.ErrSessionOver) {
			return nil, err
		}
		body.Results[0].Output = nil
	}
	var finished wire.Finished
	if err := c.do(ctx, call{method: http.MethodPost, path: session(id) + "/results", body: body, answer: &finished}); err != nil {
		return nil, err
	}
	if len(finished.Results) != len(results) {
		return nil, fmt.Errorf("the server has answered %d of %d results", len(finished.Results), len(results))
	}
	outcomes := make([]store.FinishOutcome, len(results))
	for i, a := range finished.Results {
		outcomes[i] = store.FinishOutcome{Accepted: a.Accepted, Undecided: a.Undecided, Ready: wire.ReadyRuns(a.Ready)}
	}
	return outcomes, nil
}

// chunkCost bounds the overhead of a chunk in a request: a body filled by this estimate also stays
// within the bound of its number of values.
const chunkCost = 600

// outputSize estimates the size of chunks in a request, before base64.
func outputSize(chunks []store.OutputChunk) (size int) {
	for i := range chunks {
		size += len(chunks[i].Data) + chunkCost
	}
	return size
}

// AppendOutput implements [work.Store], in several requests if necessary.
func (c *Client) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	path, err := c.present()
	if err != nil {
		return err
	}
	for len(chunks) > 0 {
		n := 1
		for size := outputSize(chunks[:1]); n < len(chunks); n++ {
			if size += outputSize(chunks[n : n+1]); size > wire.OutputMax {
				break
			}
		}
		if err := c.do(ctx, call{method: http.MethodPost, path: path + "/output", body: wire.Output{Chunks: wire.ChunksOf(chunks[:n])}}); err != nil {
			return err
		}
		chunks = chunks[n:]
	}
	return nil
}

// Mine implements [work.Runs].
func (c *Client) Mine(ctx context.Context, id job.ID) ([]store.Run, error) {
	var mine wire.Mine
	if err := c.do(ctx, call{method: http.MethodGet, path: session(id) + "/runs", answer: &mine}); err != nil {
		return nil, err
	}
	var runs []store.Run
	for i := range mine.Runs {
		r := mine.Runs[i].Run()
		r.Session = id
		runs = append(runs, r)
	}
	return runs, nil
}

// Versions implements [work.Runs].
func (c *Client) Versions(ctx context.Context, jobs []job.ID) ([]engine.JobVersion, error) {
	path, err := c.present()
	if err != nil {
		return nil, err
	}
	var versions wire.Versions
	if err := c.do(ctx, call{method: http.MethodPost, path: path + "/versions", body: wire.Jobs{Jobs: jobs}, answer: &versions}); err != nil {
		return nil, err
	}
	if len(versions.Versions) != len(jobs) {
		return nil, fmt.Errorf("the server has answered for %d of %d jobs", len(versions.Versions), len(jobs))
	}
	return versions.List(), nil
}

// Over implements [work.Runs].
func (c *Client) Over(ctx context.Context, runs []job.ID) ([]job.ID, error) {
	path, err := c.present()
	if err != nil {
		return nil, err
	}
	var over wire.RunIDs
	err = c.do(ctx, call{method: http.MethodPost, path: path + "/over", body: wire.RunIDs{Runs: runs}, answer: &over})
	return over.Runs, err
}

// Calendars implements [work.Store].
func (c *Client) Calendars(ctx context.Context) ([]*job.Calendar, error) {
	var answer wire.Calendars
	if err := c.do(ctx, call{method: http.MethodGet, path: "/calendars", answer: &answer}); err != nil {
		return nil, err
	}
	var list []*job.Calendar
	for _, text := range answer.Calendars {
		calendar := new(job.Calendar)
		if err := json.Unmarshal(text.RawMessage, calendar); err != nil {
			return nil, fmt.Errorf("read a calendar: %w", err)
		}
		list = append(list, calendar)
	}
	return list, nil
}

// StartBoot implements [work.Store].
func (c *Client) StartBoot(ctx context.Context, self store.Session, process job.ID) error {
	return c.do(ctx, call{method: http.MethodPost, path: session(self.ID) + "/boot", body: wire.Boot{Process: process}})
}

// errHandOver is why no work is handed over: servers would poll it later, at an address
// chosen by the worker.
var errHandOver = errors.New("a worker that reaches no store cannot hand work over; choose another node by place.labels")

// Numbers implements [work.Runs].
func (c *Client) Numbers(context.Context, int, int64) (int64, error) { return 0, errHandOver }

// HandOver implements [work.Runs].
func (c *Client) HandOver(context.Context, job.ID, []store.Handover) ([]store.HandedOver, error) {
	return nil, errHandOver
}
