package service

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Lasting returns the lasting problems that deserve a notification, except failures of
// jobs.
func (s *Attention) Lasting(ctx context.Context, who Caller) (notification.Lasting, error) {
	l := notification.Lasting{Live: map[string]bool{}}
	if err := who.May(Observe); err != nil {
		return l, err
	}
	now, err := s.jobs.store.Now(ctx)
	if err != nil {
		return l, err
	}
	for _, find := range []func(context.Context, *notification.Lasting, time.Time) error{s.lostNodes, s.staleSources, s.lateRuns, s.slowRuns, s.pausedJobs, s.approvals} {
		if err := find(ctx, &l, now); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (s *Attention) lostNodes(ctx context.Context, l *notification.Lasting, _ time.Time) error {
	nodes, now, err := s.nodes.all(ctx)
	if err != nil {
		return err
	}
	reports, _, err := s.nodes.withReports(ctx, nodes, now)
	if err != nil {
		return err
	}
	for i := range nodes {
		n := &nodes[i]
		if n.State != string(store.SessionSilent) {
			if n.State != string(store.SessionLeft) {
				l.Live[n.Name] = true
			}
			if n.Disk != "" {
				since := reportOf(reports, n).DiskSince
				l.Events = append(l.Events, notification.Event{Kind: job.NoticeDisk, Node: n.Name, Time: since, Text: reason.DiskLow.Of(reason.Words(n.Disk))})
			}
			continue
		}
		e := notification.Event{Kind: job.NoticeNodeLost, Node: n.Name, Time: n.Renewed, Text: reason.NodeUnheard.Of(n.Running)}
		l.Events = append(l.Events, e)
	}
	l.Whole = append(l.Whole, job.NoticeNodeLost, job.NoticeDisk)
	return nil
}

// staleSources finds repositories that are not reached, or whose last commit was not applied.
func (s *Attention) staleSources(ctx context.Context, l *notification.Lasting, _ time.Time) error {
	sources, err := s.wrongSources(ctx)
	for i := range sources {
		since, why := sources[i].problem()
		l.Events = append(l.Events, notification.Event{Kind: job.NoticeSource, Owner: sources[i].Owner, Time: since, Text: reason.Say(why)})
	}
	l.Whole = append(l.Whole, job.NoticeSource)
	return err
}

// lateRuns finds due runs that do not start, the oldest of each job.
func (s *Attention) lateRuns(ctx context.Context, l *notification.Lasting, now time.Time) error {
	runs, err := s.runs.store.ListActive(ctx, store.ActiveQuery{State: job.StateReady, Limit: lateLookMax})
	if err != nil {
		return err
	}
	live, err := s.runs.liveSessions(ctx)
	if err != nil {
		return err
	}
	placed := map[job.ID]bool{}
	for i := range live {
		placed[live[i].ID] = true
	}
	if len(runs) < lateLookMax {
		l.Whole = append(l.Whole, job.NoticeLate, job.NoticeWaiting)
	}
	late := runs[:0]
	for i := range runs {
		if isLate(&runs[i], now) {
			late = append(late, runs[i])
		}
	}
	if err := s.runs.explain(ctx, late); err != nil {
		return err
	}
	seen := map[job.ID]bool{}
	for i := range late {
		r := &late[i]
		if seen[r.JobUID] {
			continue
		}
		seen[r.JobUID] = true
		e := notification.Event{
			Kind: job.NoticeLate, Namespace: r.Namespace, Job: r.Name, UID: r.JobUID, Run: r.ID, Time: r.Due,
			Text: reason.DueSince.Of(r.Due.Truncate(time.Second), r.Reason),
		}
		if !placed[r.Session] && !r.Reason.IsZero() {
			e.Kind = job.NoticeWaiting
		}
		l.Events = append(l.Events, e)
	}
	return nil
}

// slowRuns finds runs that take much longer than the last ones of their job, one for each
// job. It examines the oldest, so that a slow one stays among them.
func (s *Attention) slowRuns(ctx context.Context, l *notification.Lasting, now time.Time) error {
	slow, err := s.slow(ctx, nil, now)
	if err != nil {
		return nil //nolint:nilerr // history is unreachable: lasting problems do not change
	}
	l.Whole = append(l.Whole, job.NoticeSlow)
	var names []string
	first := map[string]*client.Attention{}
	for i := range slow {
		if a := &slow[i]; first[a.Job] == nil {
			first[a.Job] = a
			names = append(names, a.Job)
		}
	}
	if len(names) == 0 {
		return nil
	}
	jobs, err := s.jobs.store.JobsNamed(ctx, names)
	if err != nil {
		return err
	}
	for i, j := range jobs {
		if j == nil {
			continue
		}
		a, d := first[names[i]], j.Definition
		l.Events = append(l.Events, notification.Event{
			Kind: job.NoticeSlow, Namespace: d.Namespace, Job: d.Name, UID: d.UID, Run: a.Run, Time: a.Since, Text: a.TextArgs.Reason(a.Text, a.TextCode),
		})
	}
	return nil
}

// pausedJobs finds jobs that Belfry has paused, because they failed too often.
func (s *Attention) pausedJobs(ctx context.Context, l *notification.Lasting, now time.Time) error {
	jobs, next, err := s.jobs.look(ctx, nil, store.JobQuery{State: job.JobPaused}, store.MaxBatch)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if status := j.Definition.Status; status != nil && status.PausedBy == engine.System {
			l.Events = append(l.Events, notification.Event{
				Kind: job.NoticePaused, Namespace: j.Definition.Namespace, Job: j.Definition.Name, UID: j.Definition.UID, Time: now, Text: status.PausedFor,
			})
		}
	}
	if next == "" {
		l.Whole = append(l.Whole, job.NoticePaused)
	}
	return nil
}

// approvals finds steps of flows that wait for a person.
func (s *Attention) approvals(ctx context.Context, l *notification.Lasting, _ time.Time) error {
	list, all, err := s.questions(ctx, nil)
	if err != nil {
		return err
	}
	if all {
		l.Whole = append(l.Whole, job.NoticeApproval)
	}
	for _, q := range list {
		l.Events = append(l.Events, notification.Event{
			Kind: job.NoticeApproval, Namespace: q.run.Namespace, Job: q.run.Name, UID: q.run.JobUID, Run: q.run.ID, Step: q.step,
			Time: cmp.Or(q.since, q.run.Due), Text: reason.StepAsks.Of(q.step, q.asked),
		})
	}
	return nil
}

// Approvals counts the steps of flows that wait for a person, of all namespaces.
func (s *Attention) Approvals(ctx context.Context, who Caller) (int, error) {
	if err := who.May(Observe); err != nil {
		return 0, err
	}
	list, _, err := s.questions(ctx, nil)
	return len(list), err
}

// question is a step of a flow that waits for a person.
type question struct {
	run   *store.Run
	step  string
	asked job.Reason
	since time.Time
}

// questions finds steps of flows that wait for a person, and reports whether these are all.
func (s *Attention) questions(ctx context.Context, of scope) (list []question, all bool, err error) {
	runs, err := s.running(ctx, of)
	return questionsOf(runs), len(runs) < flowLookMax, err
}

// questionsOf finds the steps that wait for a person in running runs.
func questionsOf(runs []store.Run) (list []question) {
	for i := range runs {
		var state flow.State
		if runs[i].Flow == nil || json.Unmarshal(runs[i].Flow, &state) != nil {
			continue
		}
		for _, ref := range state.Open() {
			// Of the steps that are open, those have a reason that ask something.
			if u := state.Unit(ref); !u.Reason.IsZero() {
				list = append(list, question{&runs[i], state.Steps[ref.Step].Name, u.Reason, milli(u.Began)})
			}
		}
	}
	return list
}
