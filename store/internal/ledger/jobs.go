package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// PutJobs implements [store.Jobs].
func (s *Control) PutJobs(ctx context.Context, list []store.PutJob) ([]*store.Job, error) {
	if len(list) > store.PutMax {
		return nil, store.ErrTooMany
	}
	op := engine.PutJobs{List: list, Documents: make([]*engine.Document, len(list)), NewID: s.newIDs()}
	for i := range list {
		var err error
		if op.Documents[i], err = s.Document(list[i].Definition); err != nil {
			return nil, &store.ItemError{Item: i, Err: fmt.Errorf("put job %s: %w", list[i].Definition.FullName(), err)}
		}
	}
	err := s.do(ctx, Order{Items: len(list), Adds: true}, &op)
	if refused := (*store.ItemError)(nil); errors.As(err, &refused) {
		return nil, err
	}
	return op.Jobs, wrapped(err, "put jobs")
}

// newIDs returns a generator for the ids of a call, which yields the same ids for each try of
// its step.
func (s *Control) newIDs() func(i int) job.ID {
	ids := map[int]job.ID{}
	return func(i int) job.ID {
		if ids[i].IsZero() {
			ids[i] = s.opt.NewID()
		}
		return ids[i]
	}
}

// JobsNamed implements [store.Jobs].
func (s *Control) JobsNamed(ctx context.Context, names []string) ([]*store.Job, error) {
	if len(names) > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	return s.ControlBackend.JobsNamed(ctx, names)
}

// JobsByUID implements [store.Jobs].
func (s *Control) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	if len(uids) > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	return s.ControlBackend.JobsByUID(ctx, uids)
}

// Cursors implements [store.Jobs].
func (s *Control) Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error) {
	if len(uids) > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	return s.ControlBackend.Cursors(ctx, uids)
}

// DeleteJob implements [store.Jobs].
func (s *Control) DeleteJob(ctx context.Context, d store.DeleteJob) error {
	return s.do(ctx, Order{Items: 1}, &engine.DeleteJob{DeleteJob: d})
}

// RestoreJob implements [store.Jobs].
func (s *Control) RestoreJob(ctx context.Context, r store.RestoreJob) (*store.Job, error) {
	op := engine.RestoreJob{RestoreJob: r}
	err := s.do(ctx, Order{Items: 1, Adds: true}, &op)
	return op.Job, err
}

// errNoDocument refuses jobs, which are for PutJobs.
var errNoDocument = errors.New("it is no calendar, pool, channel or list of executors")

// PutDocument implements [store.Documents].
func (s *Control) PutDocument(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error) {
	given, err := columns.ReadDocument(d)
	if err == nil && !slices.Contains(store.DocumentKinds, given.Kind) {
		err = errNoDocument
	}
	if err != nil {
		return job.Document{}, wrapped(err, "put %s %s", given.Kind, given.FullName())
	}
	op := engine.PutDocument{Given: given, IfVersion: ifVersion, Actor: actor, NewID: s.newIDs()}
	err = s.do(ctx, Order{Items: 1, Adds: true}, &op)
	return op.Put, err
}

// DeleteDocument implements [store.Documents].
func (s *Control) DeleteDocument(ctx context.Context, kind job.Kind, full string, ifVersion int64, actor string) error {
	return s.do(ctx, Order{Items: 1}, &engine.DeleteDocument{Kind: kind, Name: full, IfVersion: ifVersion, Actor: actor})
}

// PutToken implements [store.Tokens].
func (s *Control) PutToken(ctx context.Context, p store.PutToken) (store.Token, error) {
	op := engine.PutToken{PutToken: p}
	err := s.do(ctx, Order{Items: 1, Adds: true}, &op)
	return op.Token, err
}

// DeleteToken implements [store.Tokens].
func (s *Control) DeleteToken(ctx context.Context, name, actor string) error {
	return s.do(ctx, Order{Items: 1}, &engine.DeleteToken{Name: name, Actor: actor})
}

// Join implements [store.Membership].
func (s *Control) Join(ctx context.Context, session store.Session) (store.Session, error) {
	op := engine.Join{Session: session}
	err := s.do(ctx, Order{Items: 1}, &op)
	return op.Session, wrapped(err, "join")
}

// Renew implements [store.Membership].
func (s *Control) Renew(ctx context.Context, session job.ID, load store.Load) error {
	return wrapped(s.do(ctx, Order{Items: 1}, &engine.Renewal{Session: session, Load: load}), "renew")
}

// Leave implements [store.Membership].
func (s *Control) Leave(ctx context.Context, session job.ID) error {
	return wrapped(s.do(ctx, Order{Items: 1}, &engine.Leave{Session: session}), "leave")
}

// End implements [store.Membership].
func (s *Control) End(ctx context.Context, session job.ID) error {
	return s.do(ctx, Order{Items: 1}, &engine.End{Session: session})
}

// Drain implements [store.Membership].
func (s *Control) Drain(ctx context.Context, d store.DrainNode) error {
	return s.do(ctx, Order{Items: 1}, &engine.DrainNode{DrainNode: d})
}

// Sessions implements [store.Membership].
func (s *Control) Sessions(ctx context.Context) ([]store.Session, error) {
	members, err := s.Members(ctx)
	list := make([]store.Session, 0, len(members))
	for i := range members {
		if m := &members[i]; !engine.Ended(&m.Session, m.Over) {
			list = append(list, m.Session)
		}
	}
	return list, err
}
