package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// PutJob implements store.Jobs.
func (s *Control) PutJob(ctx context.Context, p store.PutJob) (*store.Job, error) {
	list, err := s.PutJobs(ctx, []store.PutJob{p})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// PutJobs implements store.Jobs.
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

// newIDs returns what makes the ids of a call: the same ones again each time that its step is
// made again.
func (s *Control) newIDs() func(i int) job.ID {
	made := map[int]job.ID{}
	return func(i int) job.ID {
		if made[i].IsZero() {
			made[i] = s.opt.NewID()
		}
		return made[i]
	}
}

// Job implements store.Jobs.
func (s *Control) Job(ctx context.Context, namespace, name string) (*store.Job, error) {
	full := namespace + "/" + name
	list, err := s.JobsNamed(ctx, []string{full})
	if err == nil && list[0] == nil {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, wrapped(err, "job %s", full)
	}
	return list[0], nil
}

// JobByUID implements store.Jobs.
func (s *Control) JobByUID(ctx context.Context, uid job.ID) (*store.Job, error) {
	list, err := s.JobsByUID(ctx, []job.ID{uid})
	if err == nil && list[0] == nil {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, wrapped(err, "job %s", uid)
	}
	return list[0], nil
}

// JobsNamed implements store.Jobs.
func (s *Control) JobsNamed(ctx context.Context, names []string) ([]*store.Job, error) {
	if len(names) > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	return s.ControlBackend.JobsNamed(ctx, names)
}

// JobsByUID implements store.Jobs.
func (s *Control) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	if len(uids) > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	return s.ControlBackend.JobsByUID(ctx, uids)
}

// Cursors implements store.Jobs.
func (s *Control) Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error) {
	if len(uids) > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	return s.ControlBackend.Cursors(ctx, uids)
}

// DeleteJob implements store.Jobs.
func (s *Control) DeleteJob(ctx context.Context, d store.DeleteJob) error {
	return s.do(ctx, Order{Items: 1}, &engine.DeleteJob{DeleteJob: d})
}

// PutCalendar implements store.Jobs.
func (s *Control) PutCalendar(ctx context.Context, c *job.Calendar, ifVersion int64, actor string) (*job.Calendar, error) {
	given, err := columns.Copied(*c)
	if err != nil {
		return nil, err
	}
	op := engine.PutCalendar{Given: &given, IfVersion: ifVersion, Actor: actor, NewID: s.newIDs()}
	err = s.do(ctx, Order{Items: 1, Adds: true}, &op)
	return op.Calendar, err
}

// PutPool implements store.Jobs.
func (s *Control) PutPool(ctx context.Context, p *job.Pool, ifVersion int64, actor string) (*job.Pool, error) {
	given, err := columns.Copied(*p)
	if err != nil {
		return nil, err
	}
	op := engine.PutPool{Given: &given, IfVersion: ifVersion, Actor: actor, NewID: s.newIDs()}
	err = s.do(ctx, Order{Items: 1, Adds: true}, &op)
	return op.Pool, err
}

// PutChannel implements store.Jobs.
func (s *Control) PutChannel(ctx context.Context, c *job.Channel, ifVersion int64, actor string) (*job.Channel, error) {
	given, err := columns.Copied(*c)
	if err != nil {
		return nil, err
	}
	op := engine.PutChannel{Given: &given, IfVersion: ifVersion, Actor: actor, NewID: s.newIDs()}
	err = s.do(ctx, Order{Items: 1, Adds: true}, &op)
	return op.Channel, err
}

// PutExecutors implements store.Jobs.
func (s *Control) PutExecutors(ctx context.Context, e *job.Executors, ifVersion int64, actor string) (*job.Executors, error) {
	given, err := columns.Copied(*e)
	if err != nil {
		return nil, err
	}
	op := engine.PutExecutors{Given: &given, IfVersion: ifVersion, Actor: actor, NewID: s.newIDs()}
	err = s.do(ctx, Order{Items: 1, Adds: true}, &op)
	return op.Executors, err
}

// DeleteCalendar implements store.Jobs.
func (s *Control) DeleteCalendar(ctx context.Context, namespace, name string, ifVersion int64, actor string) error {
	return s.do(ctx, Order{Items: 1}, &engine.Drop{Kind: job.KindCalendar, Namespace: namespace, Name: name, IfVersion: ifVersion, Actor: actor})
}

// DeletePool implements store.Jobs.
func (s *Control) DeletePool(ctx context.Context, namespace, name string, ifVersion int64, actor string) error {
	return s.do(ctx, Order{Items: 1}, &engine.Drop{Kind: job.KindPool, Namespace: namespace, Name: name, IfVersion: ifVersion, Actor: actor})
}

// DeleteChannel implements store.Jobs.
func (s *Control) DeleteChannel(ctx context.Context, namespace, name string, ifVersion int64, actor string) error {
	return s.do(ctx, Order{Items: 1}, &engine.Drop{Kind: job.KindChannel, Namespace: namespace, Name: name, IfVersion: ifVersion, Actor: actor})
}

// DeleteExecutors implements store.Jobs.
func (s *Control) DeleteExecutors(ctx context.Context, namespace, name string, ifVersion int64, actor string) error {
	return s.do(ctx, Order{Items: 1}, &engine.Drop{Kind: job.KindExecutors, Namespace: namespace, Name: name, IfVersion: ifVersion, Actor: actor})
}

// PutToken implements store.Tokens.
func (s *Control) PutToken(ctx context.Context, p store.PutToken) (store.Token, error) {
	op := engine.PutToken{PutToken: p}
	err := s.do(ctx, Order{Items: 1, Adds: true}, &op)
	return op.Token, err
}

// DeleteToken implements store.Tokens.
func (s *Control) DeleteToken(ctx context.Context, name, actor string) error {
	return s.do(ctx, Order{Items: 1}, &engine.DeleteToken{Name: name, Actor: actor})
}

// Join implements store.Membership.
func (s *Control) Join(ctx context.Context, session store.Session) (store.Session, error) {
	op := engine.Join{Session: session}
	err := s.do(ctx, Order{Items: 1}, &op)
	return op.Session, wrapped(err, "join")
}

// Renew implements store.Membership.
func (s *Control) Renew(ctx context.Context, session job.ID, load store.Load) error {
	return wrapped(s.do(ctx, Order{Items: 1}, &engine.Renewal{Session: session, Load: load}), "renew")
}

// Leave implements store.Membership.
func (s *Control) Leave(ctx context.Context, session job.ID) error {
	return wrapped(s.do(ctx, Order{Items: 1}, &engine.Leave{Session: session}), "leave")
}

// End implements store.Membership.
func (s *Control) End(ctx context.Context, session job.ID) error {
	return s.do(ctx, Order{Items: 1}, &engine.End{Session: session})
}

// Drain implements store.Membership.
func (s *Control) Drain(ctx context.Context, d store.DrainNode) error {
	return s.do(ctx, Order{Items: 1}, &engine.DrainNode{DrainNode: d})
}

// Sessions implements store.Membership.
func (s *Control) Sessions(ctx context.Context) ([]store.Session, error) {
	members, err := s.Members(ctx)
	var list []store.Session
	for i := range members {
		if m := &members[i]; !engine.Ended(&m.Session, m.Over) {
			list = append(list, m.Session)
		}
	}
	return list, err
}
