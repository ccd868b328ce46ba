// Package joined combines two stores into one: control state in one system, history in
// another.
//
// Records of ended attempts are committed to the control store, in its outbox. A shipper
// appends them to history and then removes them from the outbox: both are idempotent, so a
// crash between them neither loses nor duplicates a record. Reads of history include the
// outbox. While history is unreachable, all decisions continue until the outbox is full:
// then claims stop, but results are still accepted.
package joined

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Control is the required interface of a control store.
type Control interface {
	store.Control
	store.Outbox
	// Operate makes a step of the engine, and Document returns a document for such a step: for
	// package storecopy.
	Operate(ctx context.Context, op engine.Operation) error
	Document(definition *job.Job) (*engine.Document, error)
}

// Options configure a joined store.
type Options struct {
	Log *slog.Logger
	// OutboxMax is how many bytes may be in the outbox. Default: [OutboxDefault].
	OutboxMax int64
	// Dir is the directory of output that waits while history is unreachable. Default: in
	// memory.
	Dir string
	// OutputMax is the most bytes of waiting output. Default: [OutputDefault].
	OutputMax int64
}

// The bounds of data waiting for an unreachable history.
const (
	// OutboxDefault is filled by 100 runs a second in five hours.
	OutboxDefault = 256 << 20
	// claimShare is the part of the outbox for claims, in percent: the rest is left for the results
	// of running attempts.
	claimShare = 80
	// OutputDefault is the most bytes of output that wait on a node. Beyond it the oldest
	// are dropped.
	OutputDefault = 1 << 30
	// warnShare is the used part of the outbox, in percent, from which a server warns
	// that history lags.
	warnShare = 50
)

// ErrOtherHistory is wrapped by [New] when the control store was used with another history.
var ErrOtherHistory = errors.New("the control store belongs to another history store: start with the one that it was used with, or with an empty control store")

// Store combines a control store with a history.
type Store struct {
	Control
	store.History
	opt  Options
	gate *gate
	// partly makes reads use the outbox alone while history is away.
	partly bool
	keeps  keeps

	mu      sync.Mutex
	backlog store.ConsumerState
	away    error // the error of the last write to history
	status  Status
	self    job.ID // the session of this node, once it has joined
	turn    bool   // this node ships
	// refusing is why and when history last refused output; err is nil if it was accepted.
	refusing struct {
		err error
		at  time.Time
	}

	spool *spool
}

var _ store.Store = (*Store)(nil)

// Status is the lag of history.
type Status struct {
	Held store.ConsumerState
	// Full is the used part of the outbox, in percent.
	Full int
	// Away is the error of the last write to history.
	Away error
	// Aside counts records that history rejected for their content, and OutputDropped output chunks
	// dropped for lack of space or rejected for their content.
	Aside, OutputDropped int
	// OutputBytes is the size of the output that waits on this node.
	OutputBytes int64
	// OutputRefused is why history refuses all output; it waits.
	OutputRefused error
}

// Warning describes a large lag or an outage of history; "" for none.
func (s Status) Warning() phrase.Text {
	switch {
	case errors.Is(s.Away, ErrOtherHistory):
		return phrase.OfError(s.Away)
	case s.Away != nil:
		return phrase.HistoryAway.Of(s.Held.Entries, s.Full)
	case s.OutputRefused != nil:
		return phrase.HistoryRefuses.Of(int(s.OutputBytes), phrase.Words(s.OutputRefused.Error()))
	case s.Full >= warnShare:
		return phrase.HistoryBehind.Of(s.Held.Entries, s.Full)
	}
	return phrase.Text{}
}

// Err returns why a server is not ready: the outbox is full, or the history does not belong to
// the control store.
func (s Status) Err() error {
	if errors.Is(s.Away, ErrOtherHistory) {
		return s.Away
	}
	if s.Full < 100 {
		return nil
	}
	return fmt.Errorf("%w: %d records wait for the history store, and the outbox is full", store.ErrNoSpace, s.Held.Entries)
}

// New joins two stores. A control store that was used with another history is refused, and the
// history is closed.
func New(ctx context.Context, control Control, history store.History, opt Options) (*Store, error) {
	s, err := unmet(control, func(context.Context) (store.History, error) { return history, nil }, opt)
	if err != nil {
		return nil, err
	}
	if err := s.gate.meet(ctx); err != nil {
		return nil, err
	}
	return s, s.look(ctx)
}

// meetMax is how long [Open] waits for history before it continues without it.
const meetMax = 10 * time.Second

// Open is [New] for a history that may be unreachable: then Run opens it as soon as it is reachable,
// and records wait as in any outage of history. Until then reads return the records of the outbox.
// Open refuses a history that does not belong to the control store.
func Open(ctx context.Context, control Control, history Opener, opt Options) (*Store, error) {
	s, err := unmet(control, history, opt)
	if err != nil {
		return nil, err
	}
	s.partly = true
	meeting, cancel := context.WithTimeout(ctx, meetMax)
	defer cancel()
	err = s.gate.meet(meeting)
	switch away := errors.Is(err, store.ErrAway) || errors.Is(err, context.DeadlineExceeded); {
	case err == nil:
	case !away || ctx.Err() != nil:
		return nil, err
	default:
		_ = s.note(err)
		s.opt.Log.Warn("the history store is away: starting without it; records wait in the control store", "error", err)
	}
	return s, s.look(ctx)
}

// unmet returns a store whose history is not open yet.
func unmet(control Control, history Opener, opt Options) (*Store, error) {
	if opt.OutboxMax == 0 {
		opt.OutboxMax = OutboxDefault
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	waiting, err := openSpool(opt.Dir, cmp.Or(opt.OutputMax, OutputDefault))
	if err != nil {
		return nil, err
	}
	g := &gate{open: history, use: control.UseHistory}
	return &Store{Control: control, History: g, gate: g, keeps: keeps{control: control}, opt: opt, turn: true, spool: waiting}, nil
}

// Close closes the control store, and the history store if it can be closed.
func (s *Store) Close() error {
	return errors.Join(s.Control.Close(), s.gate.Close())
}

// MendKeys finds and repairs unreadable keys of the control store, for package storecopy.
func (s *Store) MendKeys(ctx context.Context, fix bool) ([]engine.Damage, error) {
	if k, ok := s.Control.(interface {
		MendKeys(ctx context.Context, fix bool) ([]engine.Damage, error)
	}); ok {
		return k.MendKeys(ctx, fix)
	}
	return nil, nil
}

// Join implements [store.Membership]. The session reports whether it is this node's turn to ship,
// unless it belongs to a worker that joins through this server.
func (s *Store) Join(ctx context.Context, session store.Session) (store.Session, error) {
	joined, err := s.Control.Join(ctx, session)
	if err == nil && session.HasStore() {
		s.mu.Lock()
		s.self, s.turn = joined.ID, false
		s.mu.Unlock()
		_ = s.look(ctx) // after an error the next check, in a second, finds whose turn it is
	}
	return joined, err
}

// Status returns the lag of history, as of the last check.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Held, status.Away, status.OutputRefused = s.backlog, s.away, s.refusing.err
	status.OutputBytes, status.OutputDropped = s.spool.state()
	status.Full = int(100 * s.backlog.Bytes / s.opt.OutboxMax)
	return status
}

// look measures the outbox.
func (s *Store) look(ctx context.Context) error {
	state, err := s.Held(ctx)
	if err != nil {
		return err
	}
	turn, err := s.isTurn(ctx, state.Oldest)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backlog, s.turn = state, turn
	return nil
}

// lateAfter is the age of the oldest record at which all nodes ship: the node whose turn it is may
// be unable to reach history.
const lateAfter = 15 * time.Second

// isTurn reports whether this node ships: of the live nodes with a store the one with the lowest
// session, which suffices, or a process without a session.
func (s *Store) isTurn(ctx context.Context, oldest time.Time) (bool, error) {
	s.mu.Lock()
	self := s.self
	s.mu.Unlock()
	if self.IsZero() {
		return true, nil
	}
	now, err := s.Now(ctx)
	if err != nil {
		return false, err
	}
	if !oldest.IsZero() && now.Sub(oldest) > lateAfter {
		return true, nil
	}
	sessions, err := s.Sessions(ctx)
	if err != nil {
		return false, err
	}
	for i := range sessions {
		one := &sessions[i]
		if one.HasStore() && now.Sub(one.Renewed) < store.SessionLife && bytes.Compare(one.ID[:], self[:]) < 0 {
			return false, nil
		}
	}
	return true, nil
}

// Held returns the amount of data that waits for history.
func (s *Store) Held(ctx context.Context) (state store.ConsumerState, err error) {
	list, err := s.Consumers(ctx)
	if err != nil {
		return state, fmt.Errorf("outbox: %w", err)
	}
	for i := range list {
		if list[i].Name == store.ConsumerHistory {
			state = list[i]
		}
	}
	return state, nil
}

// Plan implements [store.Planning]. Without room for claims the runs are only planned: each then
// needs a separate claim, which is refused.
func (s *Store) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	if s.Status().Full < claimShare {
		return s.Control.Plan(ctx, session, items)
	}
	bare := slices.Clone(items)
	claims := 0
	for i := range bare {
		bare[i].Runs = slices.Clone(bare[i].Runs)
		for k := range bare[i].Runs {
			if run := &bare[i].Runs[k]; !run.Token.IsZero() {
				run.Token = job.ID{}
				claims++
			}
		}
	}
	outcomes, _, err := s.Control.Plan(ctx, session, bare)
	if err != nil || claims == 0 {
		return outcomes, nil, err
	}
	now, err := s.Now(ctx)
	return outcomes, slices.Repeat([]store.ClaimOutcome{{Verdict: store.Taken, Now: now}}, claims), err
}

// Claim implements [store.Working]. It is refused while the outbox only has space for the
// results of running attempts.
func (s *Store) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	if status := s.Status(); status.Full >= claimShare {
		return nil, fmt.Errorf("claim: %w: %d records wait for the history store", store.ErrNoSpace, status.Held.Entries)
	}
	return s.Control.Claim(ctx, session, attempts)
}

// Finish implements [store.Working]. Output goes to history, or waits for it in this process. If the
// record of an attempt is already in history, that record decides the result, which stays undecided
// while history is away.
func (s *Store) Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	bare := make([]store.Result, len(results))
	for i, r := range results {
		bare[i] = r
		bare[i].Output = nil
	}
	out, err := s.Control.Finish(ctx, session, bare)
	if err != nil {
		return nil, err
	}
	if err := s.finishLate(ctx, session, bare, out); err != nil {
		return nil, err
	}
	for i := range results {
		if out[i].Accepted && len(results[i].Output) > 0 {
			if err := s.AppendOutput(ctx, results[i].Output); err != nil {
				s.opt.Log.Error("the end of the output of an attempt is lost", "run", results[i].Run, "attempt", results[i].Number, "error", err)
			}
		}
	}
	return out, nil
}

// Report implements [store.Working]. Output is handled as by Finish.
func (s *Store) Report(ctx context.Context, r store.Report) (store.ReportOutcome, error) {
	bare := r
	bare.Result.Output = nil
	out, err := s.Control.Report(ctx, bare)
	if err != nil || out.Attempt == 0 || len(r.Result.Output) == 0 {
		return out, err
	}
	chunks := slices.Clone(r.Result.Output)
	for i := range chunks {
		chunks[i].Run, chunks[i].Attempt = out.Run, out.Attempt
	}
	err = s.AppendOutput(ctx, chunks)
	if err != nil && ctx.Err() != nil {
		err = s.spool.put(chunks) // the reporter may be gone, and a repeated report ends nothing
	}
	if err != nil {
		s.opt.Log.Error("the output that came with a report is lost", "run", out.Run, "attempt", out.Attempt, "error", err)
	}
	return out, nil
}

// finishLate decides about refused results by the records of their attempts in history.
func (s *Store) finishLate(ctx context.Context, session job.ID, results []store.Result, out []store.FinishOutcome) error {
	var late []store.Result
	var was []store.Record
	var places []int
	for i := range results {
		if out[i].Accepted {
			continue
		}
		var records []store.Record
		err := s.ask(func() (err error) {
			records, err = s.History.AttemptsOf(ctx, results[i].Run)
			return err
		})
		if out[i].Undecided = errors.Is(err, store.ErrHistoryAway); out[i].Undecided {
			continue
		}
		if err != nil {
			return fmt.Errorf("history of run %s: %w", results[i].Run, err)
		}
		for _, r := range records {
			if r.Attempt.Number == results[i].Number && r.Attempt.Token == results[i].Token {
				late, was, places = append(late, results[i]), append(was, r), append(places, i)
			}
		}
	}
	if len(late) == 0 {
		return nil
	}
	again, err := s.FinishLate(ctx, session, late, was)
	for i := range again {
		out[places[i]] = again[i]
	}
	return err
}

// AppendOutput implements [store.History]: in history, or on this node until history is back.
// Later output must not overtake waiting output.
func (s *Store) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	if len(chunks) > store.MaxBatch {
		return store.ErrTooMany
	}
	if s.Status().Away == nil && s.spool.isEmpty() {
		err := s.History.AppendOutput(ctx, chunks)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return s.spool.put(chunks)
}

// Expire implements [store.History]. While history is unreachable, no records expire.
func (s *Store) Expire(ctx context.Context, keep store.Retention) (more bool, err error) {
	if keep.Jobs == nil {
		if keep.Jobs, err = s.saidByJobs(ctx); err != nil {
			return false, err
		}
	}
	more, err = s.History.Expire(ctx, keep)
	if errors.Is(err, store.ErrAway) && s.Status().Away != nil {
		return false, nil //nolint:nilerr // Run has said so
	}
	return more, err
}

// saidByJobs returns the retention of jobs that set their own.
func (s *Store) saidByJobs(ctx context.Context) (*store.JobKeeps, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	return s.keeps.now(ctx, now)
}
