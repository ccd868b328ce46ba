package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// jobStore is the part of a store that jobs use.
type jobStore interface {
	JobsNamed(ctx context.Context, names []string) ([]*store.Job, error)
	PutJobs(ctx context.Context, list []store.PutJob) ([]*store.Job, error)
	JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error)
	ListJobs(ctx context.Context, q store.JobQuery) (list []*store.Job, next string, err error)
	Followers(ctx context.Context, upstream string, after job.ID, limit int) (list []*store.Job, more bool, err error)
	DeleteJob(ctx context.Context, d store.DeleteJob) error
	RestoreJob(ctx context.Context, r store.RestoreJob) (*store.Job, error)
	auditStore
	sourceStore
	Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error)
	Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error)
	recallStore
}

// Jobs creates, changes and shows jobs.
type Jobs struct {
	*base
	rules     *rulebook
	store     jobStore
	revisions revisionStore
}

// Name is the name of a job, calendar or pool.
type Name struct{ Namespace, Name string }

// String returns the full name.
func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Expect is the expected version of a change's object. The zero value is any existing
// version.
type Expect struct {
	// Absent creates a new object.
	Absent bool
	// Versions are the versions that may be changed; none are all.
	Versions []int64
}

// match refuses other versions.
func (e Expect) match(present int64) error {
	if len(e.Versions) == 0 || slices.Contains(e.Versions, present) {
		return nil
	}
	wanted := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(e.Versions)), ", "), "[]")
	refused := Refuse(client.TypeChanged, phrase.AtVersion.Of(int(present), wanted), phrase.ReadAgain)
	refused.Version = present
	return refused
}

// Changed is the result of a change of a job.
type Changed struct {
	client.Change
	Version int64
}

// noJob is the error of a job that does not exist.
func noJob(name Name) *Error {
	return Refuse(client.TypeNotFound, phrase.NoSuchJob.Of(name), phrase.ListJobs.Of("belfry job list -A"))
}

// find reads a job for a caller that has a right.
func (s *Jobs) find(ctx context.Context, who Caller, r Right, name Name) (*store.Job, error) {
	if err := who.MayIn(r, name.Namespace); err != nil {
		return nil, err
	}
	j, err := store.JobNamed(ctx, s.store, name.Namespace, name.Name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, noJob(name)
	}
	return j, err
}

// Get returns a job as its author wrote it, or with defaults filled in, and its version.
func (s *Jobs) Get(ctx context.Context, who Caller, name Name, filled bool) (client.Document, int64, error) {
	j, err := s.find(ctx, who, Read, name)
	if err != nil {
		return client.Document{}, 0, err
	}
	shown, err := s.show(ctx, j, filled)
	return shown, j.Definition.Version, err
}

// GetAt is Get with the next occurrence after a moment and without Barred, for a page that has
// read the time and knows what needs attention.
func (s *Jobs) GetAt(ctx context.Context, who Caller, name Name, filled bool, at time.Time) (client.Document, int64, error) {
	j, err := s.find(ctx, who, Read, name)
	if err != nil {
		return client.Document{}, 0, err
	}
	shown, err := s.showAt(ctx, j, filled, at, nil)
	return shown, j.Definition.Version, err
}

// show returns a job with its state.
func (s *Jobs) show(ctx context.Context, j *store.Job, filled bool) (client.Document, error) {
	now, err := s.store.Now(ctx)
	if err != nil {
		return client.Document{}, err
	}
	live, err := s.liveSessions(ctx)
	if err != nil {
		return client.Document{}, err
	}
	return s.showAt(ctx, j, filled, now, live)
}

// showAt is show with the next occurrence after a moment.
func (s *Jobs) showAt(ctx context.Context, j *store.Job, filled bool, at time.Time, live []store.Session) (client.Document, error) {
	last, err := s.store.Recent(ctx, []job.ID{j.Definition.UID}, 1)
	if err != nil {
		return client.Document{}, err
	}
	shown, err := s.shownOf(ctx, j, filled, at, last[0], live)
	if err != nil {
		return client.Document{}, err
	}
	if shown.Status.Source, err = s.sourceOf(ctx, j); err != nil {
		return client.Document{}, err
	}
	return client.DocumentOf(job.Document{Job: shown})
}

// documentOf returns a job with its next occurrence after a moment and its last run, given
// its last final records, the latest first.
func (s *Jobs) documentOf(ctx context.Context, j *store.Job, filled bool, at time.Time, last []store.Record, live []store.Session) (client.Document, error) {
	shown, err := s.shownOf(ctx, j, filled, at, last, live)
	if err != nil {
		return client.Document{}, err
	}
	return client.DocumentOf(job.Document{Job: shown})
}

// shownOf converts a job with its status for clients.
func (s *Jobs) shownOf(ctx context.Context, j *store.Job, filled bool, at time.Time, last []store.Record, live []store.Session) (*job.Job, error) {
	chained, err := s.nextInChain(ctx, j)
	if err != nil {
		return nil, err
	}
	return s.shownWith(j, filled, at, last, chained, live), nil
}

// shownWith is shownOf with the waiting run of a chain, nil for none, and the live sessions.
func (s *Jobs) shownWith(j *store.Job, filled bool, at time.Time, last []store.Record, chained *store.Run, live []store.Session) *job.Job {
	shown := *j.Definition
	if filled {
		shown = *j.Filled
	}
	shown.UID, shown.Version = j.Definition.UID, j.Definition.Version
	var status job.Status
	if j.Definition.Status != nil {
		status = *j.Definition.Status
	}
	if s.planner != nil && status.State == job.JobActive {
		status.Next, _ = s.planner.NextAfter(shown.UID, at)
	}
	if status.State == job.JobActive {
		status.Barred = placement.Barred(j.Filled, live).String()
	}
	if chained != nil {
		status.Next = chained.Scheduled
	}
	if len(last) > 0 && j.Filled.Policy.PauseOnFailure == nil { // whose count a resume begins anew
		status.Failures = inARow(j, last)
	}
	if len(last) > 0 {
		status.LastRun, status.LastEnded, status.LastOutcome = last[0].Run.ID, last[0].Attempt.Ended, last[0].Attempt.Outcome
	}
	shown.Status = &status
	return &shown
}

// Create creates a job.
func (s *Jobs) Create(ctx context.Context, who Caller, draft Draft) (Changed, error) {
	if err := who.May(Define); err != nil {
		return Changed{}, err
	}
	d, err := s.rules.accept(ctx, who, Define, draft, job.KindJob)
	if err != nil {
		return Changed{}, err
	}
	return s.warned(ctx, d)(s.create(ctx, who, d.Job))
}

// warned adds warnings about the changed document to a change.
func (s *Jobs) warned(ctx context.Context, d job.Document) func(Changed, error) (Changed, error) {
	return func(out Changed, err error) (Changed, error) {
		if err != nil {
			return out, err
		}
		rules, err := s.rules.present(ctx, &d)
		if err != nil {
			return out, err
		}
		out.Warnings = append(warningsOf(d, rules), out.Warnings...)
		live, err := s.liveSessions(ctx)
		if err != nil {
			return out, err
		}
		if why := placement.Barred(d.Job.WithDefaults(s.rules.defaults), live); !why.IsZero() {
			out.Warnings = append(out.Warnings, why.String())
		}
		return out, nil
	}
}

// create writes a job that must not exist.
func (s *Jobs) create(ctx context.Context, who Caller, definition *job.Job) (Changed, error) {
	return s.put(ctx, who, store.PutJob{Definition: definition, New: true}, nil)
}

// nameOf returns the name that a job has in the store.
func nameOf(j *job.Job) Name {
	namespace, name, _ := strings.Cut(j.FullName(), "/")
	return Name{namespace, name}
}

func exists(name string) *Error {
	return Refuse(client.TypeExists, phrase.JobExists.Of(name), phrase.ChangeInstead)
}

// Put creates a job or replaces its definition. The document must have the name, as of [ReadNamed].
func (s *Jobs) Put(ctx context.Context, who Caller, name Name, draft Draft, expect Expect) (Changed, error) {
	if err := who.MayIn(Define, name.Namespace); err != nil {
		return Changed{}, err
	}
	d, err := s.rules.accept(ctx, who, Define, draft, job.KindJob)
	if err != nil {
		return Changed{}, err
	}
	if d.FullName() != name.String() {
		return Changed{}, misnamed(d, name)
	}
	if expect.Absent {
		out, err := s.warned(ctx, d)(s.create(ctx, who, d.Job))
		if isType(err, client.TypeExists) {
			return Changed{}, Refuse(client.TypeChanged, phrase.JobExists.Of(d.Job.FullName()))
		}
		return out, err
	}
	old, err := s.find(ctx, who, Define, name)
	if err != nil {
		return Changed{}, err
	}
	if err := expect.match(old.Definition.Version); err != nil {
		return Changed{}, err
	}
	out, err := s.warned(ctx, d)(s.put(ctx, who, store.PutJob{Definition: d.Job, IfVersion: old.Definition.Version}, old))
	if err == nil && len(expect.Versions) > 0 && out.Version == old.Definition.Version+1 {
		err = s.wroteIt(ctx, who, old, out.Version)
	}
	return out, err
}

// misnamed refuses a document whose name is not the name in the request.
func misnamed(d job.Document, name Name) *Error {
	wrong := mistakeAt("", "name", phrase.NotOfRequest.Of(d.FullName(), name.String()), phrase.NotRenamed.Of(string(d.Kind)))
	if namespace, short, _ := strings.Cut(d.FullName(), "/"); short == name.Name {
		wrong = mistakeAt("", "namespace", phrase.NotOfRequest.Of(namespace, name.String()), phrase.WriteNamespace.Of(name.Namespace))
	}
	return Refuse(client.TypeInvalid, phrase.AboutAnother.Of(string(d.Kind))).withErrors(wrong)
}

// wroteIt refuses a change that another caller has made meanwhile: a store treats an
// equal existing definition as a repeated request.
func (s *Jobs) wroteIt(ctx context.Context, who Caller, j *store.Job, version int64) error {
	r, err := s.revision(ctx, j, version)
	if err == nil && r.Actor != who.Name {
		err = changedMeanwhile(job.KindJob, j.Definition.FullName())
	}
	return err
}

// isType reports whether an error is an [Error] of a type.
func isType(err error, kind client.ProblemType) bool {
	var e *Error
	return errors.As(err, &e) && e.Type == kind
}

// put writes a job, plans it and returns the change. old is the job as read before, or nil.
func (s *Jobs) put(ctx context.Context, who Caller, p store.PutJob, old *store.Job) (Changed, error) {
	p.Actor = who.Name
	if p.Definition.Paused && p.Pause == (store.Pause{}) {
		p.Pause.By = p.Actor
	}
	var before int64
	if old != nil {
		before = old.Definition.Version
		if p.Definition.Paused && old.Definition.Paused && p.Pause.Reason.IsZero() && p.Pause.Until.IsZero() {
			p.Pause = store.Pause{} // the pause keeps its author and reason
		}
	}
	j, err := store.PutOne(ctx, s.store, p)
	if err != nil {
		return Changed{}, putError(err, p)
	}
	s.sync(ctx)
	var out Changed
	switch {
	case old == nil:
		out, err = s.created(ctx, j)
	case j.Definition.Paused || j.Definition.Version != before:
		out, err = s.calledBack(ctx, j, j.Definition.Version-1)
	default:
		var now time.Time
		if now, err = s.store.Now(ctx); err == nil {
			out, err = s.changed(ctx, j, now, before)
		}
	}
	if err != nil {
		return Changed{}, err
	}
	if j.Definition.Version == before {
		out.Result = client.Unchanged
	}
	if out.Warnings, err = s.warnOfUpstreams(ctx, j.Definition); err != nil {
		return out, err
	}
	ofSource, err := s.warnOfSource(ctx, j)
	out.Warnings = append(out.Warnings, ofSource...)
	return out, err
}

// warnOfUpstreams warns of missing jobs that a job follows. They may be created later.
func (s *Jobs) warnOfUpstreams(ctx context.Context, j *job.Job) (list []string, err error) {
	for _, up := range engine.Follows(j) {
		namespace, name, _ := strings.Cut(up, "/")
		switch _, err := store.JobNamed(ctx, s.store, namespace, name); {
		case errors.Is(err, store.ErrNotFound):
			list = append(list, absentWarning(up))
		case err != nil:
			return nil, err
		}
	}
	return list, nil
}

// putError explains why a job was not written, such as a faster request.
func putError(err error, p store.PutJob) error {
	name := p.Definition.FullName()
	switch {
	case errors.Is(err, store.ErrExists):
		return exists(name)
	case errors.Is(err, store.ErrCycle):
		way, _ := phrase.InWords(err)
		return Refuse(client.TypeInvalid, mistakesIn(1)).withErrors(mistakeAt("", "schedule.on", way, phrase.BreakCycle))
	case errors.Is(err, store.ErrNotFound):
		return Refuse(client.TypeConflict, phrase.DeletedMeanwhile.Of(name))
	case errors.Is(err, store.ErrConflict):
		return changedMeanwhile(job.KindJob, name)
	}
	return err
}

// changedMeanwhile is the error of a change that came second.
func changedMeanwhile(kind job.Kind, name string) *Error {
	return Refuse(client.TypeChanged, phrase.ChangedMeanwhile.Of(string(kind), name), phrase.ReadAgain)
}

// created returns the result of creating a job, which has no runs yet.
func (s *Jobs) created(ctx context.Context, j *store.Job) (Changed, error) {
	now, err := s.store.Now(ctx)
	if err != nil {
		return Changed{}, err
	}
	shown, err := s.documentOf(ctx, j, false, now, nil, nil)
	return Changed{client.Change{Result: client.Created, Job: shown, Running: []client.Run{}}, j.Definition.Version}, err
}

// runningMax bounds the runs that the result of a change names.
const runningMax = 100

// calledBack returns the result of a change after which no run of the job starts under an
// earlier version, except those that it names.
func (s *Jobs) calledBack(ctx context.Context, j *store.Job, version int64) (Changed, error) {
	at, rest, err := unreleased(ctx, s.store, map[job.ID]int64{j.Definition.UID: version})
	if err != nil {
		return Changed{}, err
	}
	out, err := s.changed(ctx, j, at, version)
	for i := range rest {
		out.MayStart = append(out.MayStart, activeRun(&rest[i]))
	}
	return out, err
}

// running returns the claimed runs of a job.
func (s *Jobs) running(ctx context.Context, j *store.Job) ([]store.Run, error) {
	return s.store.ListActive(ctx, store.ActiveQuery{Job: j.Definition.UID, State: job.StateRunning, Limit: runningMax})
}

// changed returns the result of a change at a moment: the job, and the runs that continue
// under a version or an earlier one.
func (s *Jobs) changed(ctx context.Context, j *store.Job, at time.Time, version int64) (Changed, error) {
	shown, err := s.show(ctx, j, false)
	if err != nil {
		return Changed{}, err
	}
	running, err := s.running(ctx, j)
	if err != nil {
		return Changed{}, err
	}
	out := Changed{client.Change{Result: client.Changed, Job: shown, Running: []client.Run{}}, j.Definition.Version}
	for i := range running {
		if running[i].Version <= version && !running[i].Due.After(at) {
			out.Running = append(out.Running, activeRun(&running[i]))
		}
	}
	return out, nil
}

// Delete removes a job, for a reason that only the audit keeps.
func (s *Jobs) Delete(ctx context.Context, who Caller, name Name, why string, expect Expect) (Changed, error) {
	j, err := s.find(ctx, who, Define, name)
	if err != nil {
		return Changed{}, err
	}
	if err := expect.match(j.Definition.Version); err != nil {
		return Changed{}, err
	}
	err = s.store.DeleteJob(ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: j.Definition.Version, Actor: who.Name, Reason: job.Text(why)})
	if errors.Is(err, store.ErrConflict) {
		return Changed{}, changedMeanwhile(job.KindJob, name.String())
	}
	if err != nil {
		return Changed{}, err
	}
	s.sync(ctx)
	out, err := s.calledBack(ctx, j, j.Definition.Version)
	out.Result = client.Deleted
	return out, err
}

// Restore brings back a job that was deleted in the last hour. The definition must be one that the
// caller may write now.
func (s *Jobs) Restore(ctx context.Context, who Caller, name Name) (Changed, error) {
	if err := who.MayIn(Define, name.Namespace); err != nil {
		return Changed{}, err
	}
	uid, err := s.lastDeleted(ctx, name)
	if err != nil {
		return Changed{}, err
	}
	j, err := store.JobByUID(ctx, s.store, uid)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Changed{}, Refuse(client.TypeNotFound, phrase.NotDeletedLately.Of(name), phrase.ApplyItAgain)
	case err != nil:
		return Changed{}, err
	case !j.Deleted:
		return Changed{}, exists(name.String())
	}
	definition := *j.Definition
	definition.Status = nil
	if err := s.mayWriteAgain(ctx, who, name, &definition, definition.Version); err != nil {
		return Changed{}, err
	}
	if j, err = s.store.RestoreJob(ctx, store.RestoreJob{UID: uid, Actor: who.Name}); err != nil {
		return Changed{}, putError(err, store.PutJob{Definition: &definition})
	}
	s.sync(ctx)
	out, err := s.created(ctx, j)
	if err == nil {
		out.Warnings, err = s.warnOfUpstreams(ctx, j.Definition)
	}
	return out, err
}

// lastDeleted returns the uid of the job that last lost a name. The audit has it.
func (s *Jobs) lastDeleted(ctx context.Context, name Name) (uid job.ID, err error) {
	now, err := s.store.Now(ctx)
	if err != nil {
		return uid, err
	}
	q := store.AuditQuery{Object: name.String(), Action: "job.delete", From: now.Add(-undoneFor), Limit: 1}
	for range partsMax {
		records, next, err := s.store.Audit(ctx, q)
		if err != nil {
			return uid, err
		}
		for _, r := range records {
			for _, c := range r.Changes {
				if c.Path == store.DeletedUID {
					return job.ParseID(c.Before)
				}
			}
		}
		if q.Before = next; next == 0 {
			break
		}
	}
	return uid, nil
}

// Pause pauses a job.
func (s *Jobs) Pause(ctx context.Context, who Caller, name Name, request client.PauseRequest, expect Expect) (Changed, error) {
	if err := who.MayIn(Define, name.Namespace); err != nil {
		return Changed{}, err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return Changed{}, err
	}
	if !request.Until.IsZero() && !request.Until.After(now) {
		return Changed{}, WrongField("until", phrase.InThePast)
	}
	return s.edit(ctx, who, name, expect, func(j *job.Job, p *store.PutJob) {
		j.Paused = true
		p.Pause = store.Pause{By: who.Name, Reason: job.Text(request.Reason), Until: request.Until}
	})
}

// Resume ends the pause of a job.
func (s *Jobs) Resume(ctx context.Context, who Caller, name Name, request client.ResumeRequest, expect Expect) (Changed, error) {
	nothing := false // to catch up with
	out, err := s.edit(ctx, who, name, expect, func(j *job.Job, p *store.PutJob) {
		j.Paused = false
		p.CatchUp = request.Missed
		nothing = len(j.Schedule.Cron)+len(j.Schedule.At) == 0 && j.Schedule.Every == 0
	})
	if err == nil && nothing && (request.Missed == job.MissedLatest || request.Missed == job.MissedAll) {
		out.Warnings = append(out.Warnings, "missed: nothing to catch up: only a job with cron, every or at has scheduled times")
	}
	return out, err
}

// editMax is the most retries of a small change after concurrent changes of the job.
const editMax = 10

// edit makes a small change to the current version of a job.
func (s *Jobs) edit(ctx context.Context, who Caller, name Name, expect Expect, change func(*job.Job, *store.PutJob)) (Changed, error) {
	for tries := 1; ; tries++ {
		old, err := s.find(ctx, who, Define, name)
		if err != nil {
			return Changed{}, err
		}
		if err := expect.match(old.Definition.Version); err != nil {
			return Changed{}, err
		}
		definition := *old.Definition
		p := store.PutJob{Definition: &definition, IfVersion: old.Definition.Version}
		change(&definition, &p)
		out, err := s.put(ctx, who, p, old)
		if isType(err, client.TypeChanged) && len(expect.Versions) == 0 && tries < editMax {
			continue
		}
		return out, err
	}
}
