// Package work is the interface between a node that only runs attempts and its cluster. Each step
// is atomic and can be repeated after a lost answer. On implements it on a store in the same
// process; a server can offer it over the network to nodes without a store, which see only the jobs
// of runs that they claim.
package work

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is the whole contract. Times are times of the store's clock, and errors are the errors of
// package store: ErrSessionOver requires the node to begin a new session; after ErrAway,
// ErrNoSpace and ErrReadOnly the result of the call is unknown and it must be repeated.
type Store interface {
	Session
	Runs
	// Calendars returns all calendars. Schedules name them, and attempts receive the
	// occurrences before and after theirs.
	Calendars(ctx context.Context) ([]*job.Calendar, error)
	// StartBoot starts the jobs that are due at the start of a process and that self may
	// run, once for each process.
	StartBoot(ctx context.Context, self store.Session, process job.ID) error
}

// Session maintains a node's membership of its cluster: see [store.Membership].
type Session interface {
	Join(ctx context.Context, s store.Session) (store.Session, error)
	Renew(ctx context.Context, session job.ID, load store.Load) error
	Leave(ctx context.Context, session job.ID) error
	End(ctx context.Context, session job.ID) error
	// Sessions returns this session, with its drain, and the sessions of the other nodes.
	Sessions(ctx context.Context) ([]store.Session, error)
	// Now returns the store's clock, which decides when a run is due.
	Now(ctx context.Context) (time.Time, error)
	// Hints make the node poll early. Hints may be lost.
	Hints(ctx context.Context) <-chan store.Hint
}

// Runs is the part of a store that works with runs: see [store.Working].
type Runs interface {
	// Ready returns runs that are assigned to the session and due until a moment.
	Ready(ctx context.Context, session job.ID, after store.RunRef, until time.Time, limit int) ([]store.ReadyRun, error)
	// Stealable returns overdue runs of other nodes that self may run. The next call continues
	// after next, zero at the end.
	Stealable(ctx context.Context, self store.Session, q Overdue) (runs []store.ReadyRun, next store.RunRef, err error)
	Claim(ctx context.Context, session job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error)
	Release(ctx context.Context, session job.ID, attempts []store.Attempt) error
	Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error)
	// Numbers and HandOver are for attempts whose work happens outside of Belfry: see
	// [store.Handovers].
	Numbers(ctx context.Context, n int, from int64) (first int64, err error)
	HandOver(ctx context.Context, session job.ID, list []store.Handover) ([]store.HandedOver, error)
	// AppendOutput stores output of running attempts. An existing chunk stays unchanged.
	AppendOutput(ctx context.Context, chunks []store.OutputChunk) error
	// Mine returns the runs that the store believes the session to run, with their cancels.
	Mine(ctx context.Context, session job.ID) ([]store.Run, error)
	// Versions returns the present versions of at most [store.MaxBatch] jobs, in their order.
	Versions(ctx context.Context, jobs []job.ID) ([]engine.JobVersion, error)
	// Over returns which of at most [store.MaxBatch] runs have ended, or never existed.
	Over(ctx context.Context, runs []job.ID) ([]job.ID, error)
	Now(ctx context.Context) (time.Time, error)
}

// SecretsOf requests the secrets of an attempt.
type SecretsOf struct {
	Session   job.ID
	Attempt   store.Attempt
	Namespace string
	Names     []string
}

// Overdue requests runs that are overdue by a time.
type Overdue struct {
	Now   time.Time // by the store's clock
	By    time.Duration
	After store.RunRef // the place after which to search
	Limit int          // runs to examine
}

// Backing is the part of a store that [On] needs.
type Backing interface {
	Session
	Ready(ctx context.Context, q store.ReadyQuery) ([]store.ReadyRun, error)
	Claim(ctx context.Context, session job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error)
	Release(ctx context.Context, session job.ID, attempts []store.Attempt) error
	Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error)
	Numbers(ctx context.Context, n int, from int64) (first int64, err error)
	HandOver(ctx context.Context, session job.ID, list []store.Handover) ([]store.HandedOver, error)
	store.RunLister
	JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error)
	AppendOutput(ctx context.Context, chunks []store.OutputChunk) error
	Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error)
	ListJobs(ctx context.Context, q store.JobQuery) (list []*store.Job, next string, err error)
	Trigger(ctx context.Context, items []store.TriggerItem) ([]store.TriggerOutcome, error)
}

// On returns the contract on a store. now is the clock for the ids of runs.
func On(s Backing, now func() time.Time) Store { return &local{s, now} }

type local struct {
	Backing
	now func() time.Time
}

// Calendars implements [Store].
func (l *local) Calendars(ctx context.Context) ([]*job.Calendar, error) {
	return store.Calendars(ctx, l)
}

// Ready implements [Runs].
func (l *local) Ready(ctx context.Context, session job.ID, after store.RunRef, until time.Time, limit int) ([]store.ReadyRun, error) {
	return l.Backing.Ready(ctx, store.ReadyQuery{Session: session, After: after, Until: until, Limit: limit})
}

// Mine implements [Runs].
func (l *local) Mine(ctx context.Context, session job.ID) ([]store.Run, error) {
	return store.RunsOn(ctx, l, session)
}

// Stealable implements [Runs].
func (l *local) Stealable(ctx context.Context, self store.Session, q Overdue) ([]store.ReadyRun, store.RunRef, error) {
	runs, err := l.Backing.Ready(ctx, store.ReadyQuery{Any: true, Until: q.Now.Add(-q.By - 1), After: q.After, Limit: q.Limit})
	if err != nil {
		return nil, store.RunRef{}, err
	}
	var next store.RunRef
	if len(runs) == q.Limit {
		next = runs[len(runs)-1].RunRef
	}
	var takeable []store.ReadyRun
	for batch := range slices.Chunk(runs, store.MaxBatch) {
		some, err := l.takeable(ctx, &self, batch, &q)
		if err != nil {
			return nil, store.RunRef{}, err
		}
		takeable = append(takeable, some...)
	}
	return takeable, next, nil
}

// takeable returns the runs of a batch that a session may take.
func (l *local) takeable(ctx context.Context, self *store.Session, runs []store.ReadyRun, q *Overdue) ([]store.ReadyRun, error) {
	var uids []job.ID
	asked := map[job.ID]int{} // indexes in uids
	runs = slices.DeleteFunc(runs, func(r store.ReadyRun) bool {
		if r.Session == self.ID {
			return true // Ready returns it
		}
		if age := q.Now.Sub(r.ID.Time()); age >= 0 && age < q.By {
			return true // missed and just planned: its own node will take it
		}
		if _, ok := asked[r.Job]; !ok {
			asked[r.Job] = len(uids)
			uids = append(uids, r.Job)
		}
		return false
	})
	if len(runs) == 0 {
		return nil, nil
	}
	jobs, err := l.JobsByUID(ctx, uids)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(runs, func(r store.ReadyRun) bool {
		j := jobs[asked[r.Job]]
		if j == nil {
			return true // the job was deleted, and the run with it
		}
		place := j.Filled.Nodes()
		user, _, _ := j.Filled.Run.AsCommand()
		return engine.Belongs(place.Binds(), r.Session) || !placement.Eligible(self, &place, j.Filled.Run.HandlerName()) || placement.RefusesUser(self, user)
	}), nil
}

// Versions implements [Runs].
func (l *local) Versions(ctx context.Context, uids []job.ID) ([]engine.JobVersion, error) {
	jobs, err := l.JobsByUID(ctx, uids)
	if err != nil {
		return nil, err
	}
	versions := make([]engine.JobVersion, len(jobs))
	for i, j := range jobs {
		versions[i] = engine.VersionOf(j)
	}
	return versions, nil
}

// Over implements [Runs].
func (l *local) Over(ctx context.Context, runs []job.ID) (over []job.ID, err error) {
	for _, id := range runs {
		switch _, err := store.ActiveRun(ctx, l, id); {
		case errors.Is(err, store.ErrNotFound):
			over = append(over, id)
		case err != nil:
			return nil, err
		}
	}
	return over, nil
}

// StartBoot implements [Store].
func (l *local) StartBoot(ctx context.Context, self store.Session, process job.ID) error {
	const page = 500
	query := store.JobQuery{Boot: true, State: job.JobActive, Limit: page}
	for {
		jobs, next, err := l.ListJobs(ctx, query)
		if err != nil {
			return fmt.Errorf("read the jobs that are due at the start of a node: %w", err)
		}
		var items []store.TriggerItem
		for _, j := range jobs {
			user, _, _ := j.Filled.Run.AsCommand()
			if place := j.Filled.Nodes(); placement.Eligible(&self, &place, j.Filled.Run.HandlerName()) && !placement.RefusesUser(&self, user) {
				items = append(items, engine.BootRuns(j, self.ID, process)...)
			}
		}
		for i := range items {
			if items[i].ID, err = job.NewID(l.now(), rand.Reader); err != nil {
				return err
			}
		}
		for part := range slices.Chunk(items, store.MaxBatch) {
			if _, err := l.Trigger(ctx, part); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		query.After = next
	}
}
