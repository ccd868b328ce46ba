package belfry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/server/inside"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Errors that a caller can handle, for [errors.Is].
var (
	// ErrNotFound means that the job or run does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists means that a job of that name exists.
	ErrExists = errors.New("exists already")
	// ErrConflict means that the state of the job or run does not allow the call.
	ErrConflict = errors.New("conflict")
	// ErrInvalid means that an argument or an option is invalid; the error names it.
	ErrInvalid = errors.New("invalid")
)

// callError is the error of a refused call.
type callError struct {
	kind error // nil for none
	err  *service.Error
}

func (e *callError) Error() string {
	text := e.err.Error()
	if e.err.Type == client.TypeInternal {
		if cause := errors.Unwrap(e.err); cause != nil {
			text = cause.Error()
		}
	}
	return text
}

// Unwrap returns the kind of the error and its cause.
func (e *callError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.err}
	}
	return []error{e.kind, e.err}
}

// outside converts an error of the service to one of this package.
func outside(err error) error {
	if err == nil {
		return nil
	}
	e := &callError{err: service.ErrorOf(err)}
	switch e.err.Type {
	case client.TypeNotFound:
		e.kind = ErrNotFound
	case client.TypeExists:
		e.kind = ErrExists
	case client.TypeConflict, client.TypeChanged:
		e.kind = ErrConflict
	case client.TypeInvalid:
		e.kind = ErrInvalid
	}
	return e
}

func (s *Scheduler) nameOf(name string) service.Name {
	return service.Name{Namespace: s.settings.namespace, Name: name}
}

// TriggerOption configures a run that Trigger creates.
type TriggerOption func(*triggering)

type triggering struct {
	params           map[string]string
	key              string
	at               time.Time
	unique, debounce *client.Sameness
}

// Unique makes all calls of Trigger in a time, with the same values of some parameters or, if none is named,
// of all, create one run, whatever became of it.
func Unique(within time.Duration, by ...string) TriggerOption {
	return func(t *triggering) { t.unique = &client.Sameness{For: job.Duration(within), By: by} }
}

// Debounce starts the run when no such call has come for a time, as [Unique] says which are the same, with the
// parameters of the last one, and at the latest ten times this time after the first.
func Debounce(quiet time.Duration, by ...string) TriggerOption {
	return func(t *triggering) { t.debounce = &client.Sameness{For: job.Duration(quiet), By: by} }
}

// AtTime makes the run due at a time, at most 32 days ahead; one that has passed is now.
func AtTime(at time.Time) TriggerOption { return func(t *triggering) { t.at = at } }

// In makes the run due after a while, like [AtTime].
func In(d time.Duration) TriggerOption {
	return func(t *triggering) { t.at = time.Now().Add(d) }
}

// Params overrides parameters of the job.
func Params(values map[string]string) TriggerOption {
	return func(t *triggering) { t.params = merged(t.params, values) }
}

// Key makes all calls of Trigger with the same key create one run, for 24 hours: so a call can be
// repeated when its response was lost.
func Key(key string) TriggerOption { return func(t *triggering) { t.key = key } }

// Trigger runs a job now, on any eligible node, even if the job is paused. It returns the run
// without waiting for it; with [Shards], the first of the runs.
func (s *Scheduler) Trigger(ctx context.Context, name string, options ...TriggerOption) (RunID, error) {
	t := triggeringOf(options)
	if s.light != nil {
		return s.light.trigger(ctx, name, &t)
	}
	svc, err := s.open(ctx)
	if err != nil {
		return RunID{}, err
	}
	run, err := svc.Runs.StartWith(ctx, s.caller(), s.nameOf(name), t.request(), t.key, s.metadataFor(ctx))
	return run.Run.ID, outside(err)
}

// ErrNoTransactions is returned by [Scheduler.TriggerTx] for a store in which the program has no transactions
// of its own: etcd, Redis, memory, and servers.
var ErrNoTransactions = service.ErrNoTransactions

// TriggerTx is Trigger in a transaction of the program in the database of the store: a pgx.Tx, or a *sql.Tx on
// PostgreSQL, MySQL, MariaDB or the file of SQLite. The run is created, once, when the transaction is committed,
// and never if it is not: any node finds the request within a quarter of a second, on PostgreSQL at once. A mistake,
// such as an unknown job or a wrong parameter, is returned before anything is written. The id is that of the run,
// unless [Unique], [Debounce] or [Key] find another one.
func (s *Scheduler) TriggerTx(ctx context.Context, tx any, name string, options ...TriggerOption) (RunID, error) {
	if s.light != nil || s.remote != nil {
		return RunID{}, ErrNoTransactions
	}
	svc, err := s.open(ctx)
	if err != nil {
		return RunID{}, err
	}
	t := triggeringOf(options)
	id, err := svc.Requests.In(ctx, tx, s.caller(), s.nameOf(name), t.request(), t.key, s.metadataFor(ctx))
	return id, outside(err)
}

func triggeringOf(options []TriggerOption) (t triggering) {
	for _, option := range options {
		option(&t)
	}
	return t
}

func (t *triggering) request() client.RunRequest {
	return client.RunRequest{Params: t.params, At: t.at, Unique: t.unique, Debounce: t.debounce}
}

// metadataFor returns the metadata of a run that Trigger creates, nil for none.
func (s *Scheduler) metadataFor(ctx context.Context) map[string]string {
	var metadata map[string]string
	for _, inject := range s.settings.inject {
		if metadata == nil {
			metadata = map[string]string{}
		}
		inject(ctx, metadata)
	}
	return metadata
}

// Cancel ends a run that has not started, or makes its node end it: the context of its handler ends
// with [ErrCancelled].
func (s *Scheduler) Cancel(ctx context.Context, id RunID, reason string) error {
	if s.light != nil {
		return s.light.cancel(id, s.caller().Name, reason)
	}
	svc, err := s.open(ctx)
	if err != nil {
		return err
	}
	_, err = svc.Runs.Cancel(ctx, s.caller(), id, reason)
	return outside(err)
}

// Pause keeps a job from falling due until Resume, or until the given time unless it is
// zero. Running runs continue.
func (s *Scheduler) Pause(ctx context.Context, name, reason string, until time.Time) error {
	if s.light != nil {
		return s.light.pause(name, true, until)
	}
	svc, err := s.open(ctx)
	if err != nil {
		return err
	}
	_, err = svc.Jobs.Pause(ctx, s.caller(), s.nameOf(name), client.PauseRequest{Reason: reason, Until: until}, service.Expect{})
	return outside(err)
}

// Resume ends the pause of a job. Occurrences that fell due during the pause do not run, unless
// missed says otherwise: [job.MissedLatest] runs the latest of them, [job.MissedAll] all.
func (s *Scheduler) Resume(ctx context.Context, name string, missed ...job.Missed) error {
	if len(missed) > 1 {
		return fmt.Errorf("resume job %q: %w: there are %d answers to what was missed, and at most one counts", name, ErrInvalid, len(missed))
	}
	var request client.ResumeRequest
	for _, m := range missed {
		request.Missed = m
	}
	if s.light != nil {
		if request.Missed != "" && request.Missed != job.MissedNone {
			return fmt.Errorf("resume job %q: %w", name, errLight)
		}
		return s.light.pause(name, false, time.Time{})
	}
	svc, err := s.open(ctx)
	if err != nil {
		return err
	}
	_, err = svc.Jobs.Resume(ctx, s.caller(), s.nameOf(name), request, service.Expect{})
	return outside(err)
}

// Add creates a job that does not belong to the code: it stays until Remove, even after the
// program ends, and is visible to every instance. The error wraps [ErrExists] if the name is
// taken, and [ErrInvalid] if an option is invalid.
func (s *Scheduler) Add(ctx context.Context, name string, options ...JobOption) error {
	if s.light != nil {
		return s.light.put("add", s.declare(caller(), name, options), false) //nolint:contextcheck // runs have contexts of their own
	}
	svc, err := s.open(ctx)
	if err != nil {
		return err
	}
	draft, err := s.draft(ctx, "add", s.declare(caller(), name, options))
	if err != nil {
		return err
	}
	_, err = svc.Jobs.Create(ctx, s.caller(), draft)
	return outside(err)
}

// Update replaces all options of a job that [Scheduler.Add] has created. Runs that are waiting or
// running continue. The error wraps [ErrNotFound] if there is no such job, and [ErrInvalid] if an
// option is invalid. A concurrent change of the job is another error.
func (s *Scheduler) Update(ctx context.Context, name string, options ...JobOption) error {
	if s.light != nil {
		return s.light.put("update", s.declare(caller(), name, options), true) //nolint:contextcheck // runs have contexts of their own
	}
	svc, err := s.open(ctx)
	if err != nil {
		return err
	}
	draft, err := s.draft(ctx, "update", s.declare(caller(), name, options))
	if err != nil {
		return err
	}
	_, version, err := svc.Jobs.Get(ctx, s.caller(), s.nameOf(name), false)
	if err != nil {
		return outside(err)
	}
	_, err = svc.Jobs.Put(ctx, s.caller(), s.nameOf(name), draft, service.Expect{Versions: []int64{version}})
	return outside(err)
}

// Get returns a job with its state: next due time, pause, counts. The error wraps [ErrNotFound] if there is
// no such job.
func (s *Scheduler) Get(ctx context.Context, name string) (*job.Job, error) {
	svc, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	document, _, err := svc.Jobs.Get(ctx, s.caller(), s.nameOf(name), false)
	if err != nil {
		return nil, outside(err)
	}
	return document.Job()
}

// List returns the jobs of the scheduler's namespace by name, those of the code and others, with their
// state. It reads them in pages, and ends with the first error.
func (s *Scheduler) List(ctx context.Context) iter.Seq2[*job.Job, error] {
	return func(yield func(*job.Job, error) bool) {
		svc, err := s.open(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		query := client.JobQuery{Namespace: s.settings.namespace}
		for {
			page, err := svc.Jobs.Listed(ctx, s.caller(), query, false)
			if err != nil {
				yield(nil, outside(err))
				return
			}
			for _, j := range page.Items {
				if !yield(j, nil) {
					return
				}
			}
			if query.PageToken = page.NextPageToken; query.PageToken == "" {
				return
			}
		}
	}
}

// draft returns the document of a job that does not belong to the code.
func (s *Scheduler) draft(ctx context.Context, verb string, d *declaration) (service.Draft, error) {
	name := d.job.Name
	if d.function != nil {
		return service.Draft{}, fmt.Errorf("%s job %q: %w: Func is for jobs that are declared: register the function with HandleFunc and name it with Do", verb, name, ErrInvalid)
	}
	if d.after > 0 {
		now, err := s.storeNow(ctx)
		if err != nil {
			return service.Draft{}, err
		}
		d.job.Schedule.At = []time.Time{now.Add(d.after)}
		d.job.Schedule.DeleteAfter = new(job.Duration(time.Hour))
	}
	if mistakes := d.check(nil); len(mistakes) > 0 {
		return service.Draft{}, fmt.Errorf("%w: %w", ErrInvalid, errors.Join(mistakes...))
	}
	return service.Draft{Document: job.Document{Kind: job.KindJob, Job: &d.job}}, nil
}

// Remove deletes a job. Running runs continue. The next [Run] creates a declared job again.
func (s *Scheduler) Remove(ctx context.Context, name string) error {
	if s.light != nil {
		return s.light.remove(name)
	}
	svc, err := s.open(ctx)
	if err != nil {
		return err
	}
	_, err = svc.Jobs.Delete(ctx, s.caller(), s.nameOf(name), "", service.Expect{})
	return outside(err)
}

// Inside returns the parts for packages dashboard, metrics and otelbelfry. It is no part of the stable
// API.
func (s *Scheduler) Inside(ctx context.Context) (inside.Parts, error) {
	if _, err := s.open(ctx); err != nil && !errors.Is(err, ErrNoStore) {
		return inside.Parts{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := inside.Parts{Store: s.store, Metrics: s.metrics, Version: version(), Node: s.settings.node, Now: s.settings.now, Log: s.settings.log}
	if s.node != nil {
		stats := s.node.Stats()
		p.Load, p.Live = inside.LoadOf(stats), stats.Live
		if planner := s.node.Planner(); planner != nil {
			p.Planner = planner
		}
	}
	return p, nil
}

// storeNow returns the time of the store's clock, which decides.
func (s *Scheduler) storeNow(ctx context.Context) (time.Time, error) {
	st, err := s.opened()
	if err != nil {
		return time.Time{}, err
	}
	now, err := st.Now(ctx)
	return now, outside(err)
}

// opened returns the store, which was opened before.
func (s *Scheduler) opened() (store.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	return s.store, nil
}

// Next returns the next n due times of a job, in its zone; fewer if there are no more.
func (s *Scheduler) Next(ctx context.Context, name string, n int) ([]time.Time, error) {
	if s.light != nil {
		return s.light.next(name, n)
	}
	svc, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	next, err := svc.Jobs.Next(ctx, s.caller(), s.nameOf(name), time.Time{}, n)
	if err != nil {
		return nil, outside(err)
	}
	list := make([]time.Time, len(next.Items))
	for i, o := range next.Items {
		list[i] = o.Due
	}
	return list, nil
}

// Runs returns at most n runs of a job: planned and running ones by due time, then finished
// ones, the latest first.
func (s *Scheduler) Runs(ctx context.Context, name string, n int) ([]client.Run, error) {
	if s.light != nil {
		return s.light.runs(name, n)
	}
	svc, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	q := client.RunQuery{Job: s.nameOf(name).String(), Namespace: s.settings.namespace, PageSize: n}
	var list []client.Run
	for {
		page, err := svc.Runs.List(ctx, s.caller(), q)
		if err != nil {
			return nil, outside(err)
		}
		list = append(list, page.Items...)
		if q.PageToken = page.NextPageToken; q.PageToken == "" || len(list) >= n {
			return list[:min(n, len(list))], nil
		}
	}
}

const (
	// waitFirst and waitMost are the shortest and longest intervals between polls of Wait.
	waitFirst = 10 * time.Millisecond
	waitMost  = 500 * time.Millisecond
)

// Wait waits until a run has ended and returns it, however it ended.
func (s *Scheduler) Wait(ctx context.Context, id RunID) (client.Run, error) {
	if s.light != nil {
		run, _, err := s.light.wait(ctx, id)
		return run, err
	}
	svc, err := s.open(ctx)
	if err != nil {
		return client.Run{}, err
	}
	for pause := waitFirst; ; pause = min(2*pause, waitMost) {
		run, err := svc.Runs.Get(ctx, s.caller(), id)
		if err != nil {
			return client.Run{}, outside(err)
		}
		if run.State == job.StateDone {
			return run, nil
		}
		select {
		case <-ctx.Done():
			return run, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// RunError is the error of a run that did not succeed. Run has its outcome and reason.
type RunError struct{ Run client.Run }

func (e *RunError) Error() string {
	text := fmt.Sprintf("run %s of job %s: %s", e.Run.ID, e.Run.Job, e.Run.Outcome)
	if e.Run.Reason != "" {
		text += ": " + e.Run.Reason
	}
	return text
}

// Result waits for a run and returns the result of its handler. A run that did not succeed
// is a *RunError.
func Result[Out any](ctx context.Context, s *Scheduler, id RunID) (out Out, err error) {
	var run client.Run
	var text []byte
	if s.light != nil {
		run, text, err = s.light.wait(ctx, id)
	} else {
		run, err = s.Wait(ctx, id)
	}
	if err != nil {
		return out, err
	}
	if run.Outcome != job.OutcomeSucceeded {
		return out, &RunError{run}
	}
	if s.light == nil {
		if text, err = s.read(ctx, &run, output.Stdout); err != nil {
			return out, err
		}
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	text = text[bytes.LastIndexByte(text, '\n')+1:] // after the gap in the output
	if len(text) == 0 {
		return out, nil
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("read the result of run %s: %w", id, err)
	}
	return out, nil
}

// Output returns the output so far of the latest attempt of a run: from Run.Log and
// [Run.Write], and its result.
func (s *Scheduler) Output(ctx context.Context, id RunID) (string, error) {
	svc, err := s.open(ctx)
	if err != nil {
		return "", err
	}
	run, err := svc.Runs.Get(ctx, s.caller(), id)
	if err != nil {
		return "", outside(err)
	}
	text, err := s.read(ctx, &run, 0)
	return string(text), err
}

// chunksMax is how many chunks of output one read returns.
const chunksMax = 100

// read returns the output of an attempt on a stream, 0 for both.
func (s *Scheduler) read(ctx context.Context, run *client.Run, stream output.Stream) ([]byte, error) {
	st, err := s.opened()
	if err != nil {
		return nil, err
	}
	reader := output.Reader{Stream: stream}
	var text []byte
	for seq := 0; ; {
		chunks, err := st.Output(ctx, run.ID, run.Attempt, seq, chunksMax)
		if err != nil {
			return nil, outside(err)
		}
		for i := range chunks {
			chunk := output.Chunk(chunks[i])
			if text, err = reader.Append(text, &chunk); err != nil {
				return nil, fmt.Errorf("read the output of run %s: %w", run.ID, err)
			}
			seq = chunk.Seq + 1
		}
		if len(chunks) < chunksMax {
			return text, nil
		}
	}
}
