package service

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/account"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// attentionMax bounds a list: further problems are not examined.
	attentionMax = 100
	// lateAfter is how long a run is due before it counts as late.
	lateAfter = notification.LateAfter
	// lateLookMax is the number of late runs that are examined, beginning with the oldest.
	lateLookMax = 200
	// failedTime is how long failures are searched at most, failedLookMax how many are read
	// at once, and failedPart of how many jobs: most may have succeeded since. failedJobsMax is
	// how many jobs are listed: the last runs of all are read at once.
	failedTime    = 30 * time.Millisecond
	failedLookMax = 500
	failedPart    = 200
	failedJobsMax = 50
	// inRowMax is the most ends of a job that are counted.
	inRowMax = 20
	// A run is slow when it has been running for slowAfter, and for slowTimes as long as
	// the longest of the last slowRuns successful ones, which must be slowFew at least.
	// slowLookMax is the number of running attempts that are examined, beginning with the
	// oldest.
	slowAfter   = time.Minute
	slowTimes   = 2
	slowRuns    = 20
	slowFew     = 3
	slowLookMax = 200
	// flowLookMax is the number of running runs that are searched for flows waiting for a
	// person, beginning with the oldest.
	flowLookMax = 500
	// clockOffAfter is the largest tolerated clock error: beyond it a node does not plan or
	// claim.
	clockOffAfter = time.Second
)

// Attention finds problems that need a person.
type Attention struct {
	jobs   *Jobs
	runs   *Runs
	nodes  *Nodes
	alarms *Notifications
	store  markStore
	began  beginnings
}

// List returns the problems of the jobs of a namespace, or of all, and of the nodes: the
// worst first, and what is snoozed last.
func (s *Attention) List(ctx context.Context, who Caller, namespace string) ([]client.Attention, error) {
	of, err := who.reads(namespace)
	if err != nil {
		return nil, err
	}
	now, err := s.jobs.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	list := append([]client.Attention{}, s.ofStore()...)
	running, err := s.running(ctx, of)
	if err != nil {
		return nil, err
	}
	for _, find := range []func() ([]client.Attention, error){
		func() ([]client.Attention, error) { return s.ofAlarms(ctx, who, namespace) },
		func() ([]client.Attention, error) { return s.ofNodes(ctx) },
		func() ([]client.Attention, error) { return s.ofSources(ctx, of) },
		func() ([]client.Attention, error) { return s.occurrences(ctx, of, now) },
		func() ([]client.Attention, error) { return s.late(ctx, of, now) },
		func() ([]client.Attention, error) { return s.slow(ctx, running, now) },
		func() ([]client.Attention, error) { return asked(running), nil },
		func() ([]client.Attention, error) { return s.paused(ctx, of) },
		func() ([]client.Attention, error) { return s.barred(ctx, of) },
		func() ([]client.Attention, error) { return s.failing(ctx, of) },
	} {
		found, err := find()
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	list = slices.DeleteFunc(list, func(a client.Attention) bool { // its late runs say the same
		return a.Kind == client.AttentionBarred && slices.ContainsFunc(list, func(b client.Attention) bool { return b.Kind == client.AttentionLate && b.Job == a.Job })
	})
	if err := s.marked(ctx, list, now); err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(x, y client.Attention) int {
		return cmp.Or(first(x.Snoozed != nil)-first(y.Snoozed != nil), cmp.Compare(x.Severity, y.Severity), first(y.Kind == client.AttentionAlarms)-first(x.Kind == client.AttentionAlarms), cmp.Compare(y.Count, x.Count), x.Since.Compare(y.Since))
	})
	return list[:min(len(list), attentionMax)], nil
}

// ofStore says that this node cannot write its store, or that history is behind or away.
func (s *Attention) ofStore() []client.Attention {
	if s.nodes.remark == nil {
		return nil
	}
	why, err := s.nodes.remark()
	if err != nil {
		why = phrase.OfError(err)
	}
	if why.IsZero() {
		return nil
	}
	return []client.Attention{saying(client.Attention{Kind: client.AttentionStore, Severity: client.SeverityBad, Node: s.nodes.node}, reason.Say(why))}
}

// first is 1 for what stands before all that is as urgent: while alarms do not arrive, no other problem is
// reported.
func first(is bool) int {
	if is {
		return 1
	}
	return 0
}

// ofAlarms finds channels whose last delivery failed, as one problem.
func (s *Attention) ofAlarms(ctx context.Context, who Caller, namespace string) (list []client.Attention, err error) {
	if s.alarms == nil {
		return nil, nil
	}
	channels, err := s.alarms.Deliveries(ctx, who, namespace)
	if err != nil {
		return nil, err
	}
	a, used := client.Attention{Kind: client.AttentionAlarms, Severity: client.SeverityWarning}, 0
	var last time.Time
	for i := range channels {
		d := &channels[i]
		if d.Paused {
			continue
		}
		used++
		if d.Error == "" {
			continue
		}
		a.Count++
		if a.Since.IsZero() || d.FailedAt.Before(a.Since) {
			a.Since = d.FailedAt
		}
		if a.Channel == "" || d.FailedAt.After(last) {
			last, a.Channel, a.Text, a.TextCode, a.TextArgs = d.FailedAt, d.Channel, d.Error, d.ErrorCode, d.ErrorArgs
		}
	}
	if a.Count == 0 {
		return nil, nil
	}
	if a.Count == used {
		a.Severity = client.SeverityBad
	}
	return []client.Attention{a}, nil
}

// ofNodes finds silent nodes, nodes with a wrong clock, and what nodes say about themselves.
func (s *Attention) ofNodes(ctx context.Context) (list []client.Attention, err error) {
	nodes, now, err := s.nodes.all(ctx)
	if err != nil {
		return nil, err
	}
	reports, _, err := s.nodes.withReports(ctx, nodes, now)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.Disk != "" {
			since := reportOf(reports, &n).DiskSince
			list = append(list, saying(client.Attention{Kind: client.AttentionNode, Severity: client.SeverityBad, Node: n.Name, Since: since}, reason.DiskLow.Of(reason.Words(n.Disk))))
		}
		if len(n.Warnings) > 0 {
			for _, why := range reportOf(reports, &n).Warnings {
				list = append(list, saying(client.Attention{Kind: client.AttentionNode, Severity: client.SeverityWarning, Node: n.Name}, why))
			}
		}
		off := time.Duration(math.Round(n.ClockAhead*1000)) * time.Millisecond
		switch {
		case n.State == string(store.SessionSilent):
			a := client.Attention{Kind: client.AttentionNodeSilent, Severity: client.SeverityWarning, Node: n.Name, Count: n.Running, Since: n.Renewed}
			if n.Running > 0 {
				a.Severity = client.SeverityBad
			}
			list = append(list, saying(a, reason.NodeUnheard.Of(n.Running)))
		case n.ClockOff:
			why := reason.ClockAhead.Of(off)
			if off < 0 {
				why = reason.ClockBehind.Of(-off)
			}
			list = append(list, saying(client.Attention{Kind: client.AttentionClockOff, Severity: client.SeverityBad, Node: n.Name}, why))
		case off.Abs() > clockOffAfter:
			why := reason.StoreClockAhead.Of(off)
			if off < 0 {
				why = reason.StoreClockBehind.Of(-off)
			}
			list = append(list, saying(client.Attention{Kind: client.AttentionClockOff, Severity: client.SeverityWarning, Node: n.Name}, why))
		}
	}
	return list, nil
}

// occurrences lists jobs with occurrences that are not as they must be.
func (s *Attention) occurrences(ctx context.Context, of scope, now time.Time) (list []client.Attention, err error) {
	found, err := account.Found(ctx, s.store, now)
	if err != nil {
		return nil, err
	}
	byJob := map[string]int{}
	for i := range found {
		f := &found[i]
		if !of.hasObject(f.Job) {
			continue
		}
		at, seen := byJob[f.Job]
		if !seen {
			at, byJob[f.Job] = len(list), len(list)
			list = append(list, client.Attention{Kind: client.AttentionOccurrence, Severity: client.SeverityBad, Job: f.Job, Since: f.Scheduled})
		}
		a := saying(list[at], f.Reason())
		a.Run, a.Count = f.Run, a.Count+1
		list[at] = a
	}
	return list, nil
}

// isLate reports whether a ready run should have started: one that waits for the end of a window or for
// its turn is due then.
func isLate(r *store.Run, now time.Time) bool {
	waits := reason.InWindow.Is(r.Reason) || reason.OutOfTurn.Is(r.Reason)
	return !r.Due.After(now.Add(-lateAfter)) || r.IsPostponed() && !waits
}

// late finds jobs with due runs that do not start, and the reasons.
func (s *Attention) late(ctx context.Context, of scope, now time.Time) (list []client.Attention, err error) {
	runs, err := of.active(ctx, s.runs.store, store.ActiveQuery{State: job.StateReady, Limit: lateLookMax})
	if err != nil {
		return nil, err
	}
	runs = slices.DeleteFunc(runs, func(r store.Run) bool { return !isLate(&r, now) })
	if err := s.runs.explain(ctx, runs); err != nil {
		return nil, err
	}
	byJob := map[job.ID]int{}
	for i := range runs {
		r := &runs[i]
		at, seen := byJob[r.JobUID]
		if !seen {
			at, byJob[r.JobUID] = len(list), len(list)
			list = append(list, saying(client.Attention{
				Kind: client.AttentionLate, Severity: client.SeverityBad, Job: r.Namespace + "/" + r.Name, Run: r.ID, Since: cmp.Or(r.FirstDue, r.Due),
			}, cmp.Or(r.Reason, reason.Unclaimed.Of())))
		}
		list[at].Count++
	}
	return list, nil
}

// running returns the running runs that are examined, the oldest first.
func (s *Attention) running(ctx context.Context, of scope) ([]store.Run, error) {
	return of.active(ctx, s.runs.store, store.ActiveQuery{State: job.StateRunning, Limit: flowLookMax})
}

// slow finds running runs that take much longer than earlier ones.
func (s *Attention) slow(ctx context.Context, running []store.Run, now time.Time) (list []client.Attention, err error) {
	runs := slices.DeleteFunc(slices.Clone(running[:min(len(running), slowLookMax)]), func(r store.Run) bool { return now.Sub(engine.Begun(&r)) < slowAfter })
	if len(runs) == 0 {
		return nil, nil
	}
	var uids []job.ID
	for i := range runs {
		if !slices.Contains(uids, runs[i].JobUID) {
			uids = append(uids, runs[i].JobUID)
		}
	}
	recent, err := s.jobs.store.Recent(ctx, uids, slowRuns)
	if err != nil {
		return nil, err
	}
	for i := range runs {
		r := &runs[i]
		n, longest := 0, time.Duration(0)
		for _, record := range recent[slices.Index(uids, r.JobUID)] {
			if record.Attempt.Outcome == job.OutcomeSucceeded {
				n, longest = n+1, max(longest, record.Attempt.Ended.Sub(cmp.Or(record.Begun, record.Attempt.Started)))
			}
		}
		began := engine.Begun(r)
		if took := now.Sub(began); n >= slowFew && took >= slowTimes*longest {
			list = append(list, saying(client.Attention{
				Kind: client.AttentionSlow, Severity: client.SeverityWarning, Job: r.Namespace + "/" + r.Name, Run: r.ID, Count: 1, Since: began,
			}, reason.RunsLong.Of(took.Round(time.Second), n, longest.Round(time.Millisecond))))
		}
	}
	return list, nil
}

// asked finds running flows that wait for a person.
func asked(running []store.Run) (list []client.Attention) {
	for _, q := range questionsOf(running) {
		list = append(list, saying(client.Attention{
			Kind: client.AttentionApproval, Severity: client.SeverityWarning, Job: q.run.Namespace + "/" + q.run.Name, Run: q.run.ID, Count: 1, Since: q.since,
		}, reason.StepWaits.Of(q.step, q.asked)))
	}
	return list
}

// paused finds jobs that Belfry has paused, because they failed too often, with the cause of the last failure.
func (s *Attention) paused(ctx context.Context, of scope) (list []client.Attention, err error) {
	jobs, _, err := s.jobs.look(ctx, of, store.JobQuery{State: job.JobPaused}, store.MaxBatch)
	if err != nil {
		return nil, err
	}
	jobs = slices.DeleteFunc(jobs, func(j *store.Job) bool {
		return j.Definition.Status == nil || j.Definition.Status.PausedBy != engine.System
	})
	jobs = jobs[:min(len(jobs), attentionMax)]
	if len(jobs) == 0 {
		return nil, nil
	}
	uids := make([]job.ID, len(jobs))
	for i, j := range jobs {
		uids[i] = j.Definition.UID
	}
	recent, err := s.jobs.store.Recent(ctx, uids, inRowMax)
	if err != nil {
		return nil, err
	}
	for i, j := range jobs {
		a := client.Attention{Kind: client.AttentionPaused, Severity: client.SeverityBad, Job: j.Definition.FullName()}
		if failed := failures(recent[i]); len(failed) > 0 {
			a.Run, a.Count, a.Since, a.Failure = failed[0].Run.ID, inARow(j, recent[i]), failed[len(failed)-1].Attempt.Ended, client.FailureOf(&failed[0].Attempt)
		}
		list = append(list, saying(a, j.Definition.Status.PausedFor))
	}
	return list, nil
}

// failing finds jobs whose last run failed, and counts their failures in a row.
func (s *Attention) failing(ctx context.Context, of scope) (list []client.Attention, err error) {
	jobs, ended, err := s.jobs.failing(ctx, of)
	var outages []sharedOutage
	if err != nil {
		return nil, err
	}
	for i, j := range jobs {
		began, err := s.began.of(ctx, s.jobs.store, j.Definition.UID, ended[i])
		if err != nil {
			return nil, err
		}
		a := failuresOf(j, ended[i], began)
		if outages = joinOutage(outages, list, &a); a.Kind != "" {
			list = append(list, a)
		}
	}
	for _, o := range outages {
		if o.others > 0 {
			list[o.at] = saying(list[o.at], reason.OthersToo.Of(list[o.at].TextArgs.Reason(list[o.at].Text, list[o.at].TextCode), o.others))
		}
	}
	return list, err
}

// sharedOutage is an outage of all nodes or of the store, and the problem that stands for all that follow from it.
type sharedOutage struct {
	from, to   time.Time
	at, others int
}

// joinOutage adds a problem to the one in a list that follows from the same outage, and clears it. A problem
// without one in the list begins an outage.
func joinOutage(outages []sharedOutage, list []client.Attention, a *client.Attention) []sharedOutage {
	from, to, ok := reason.OutageIn(a.TextArgs.Reason(a.Text, a.TextCode))
	if !ok {
		return outages
	}
	for i := range outages {
		if o := &outages[i]; from.Before(o.to) && o.from.Before(to) {
			o.others++
			one := &list[o.at]
			one.Severity = min(one.Severity, a.Severity) // its count is of its own job, as its text is
			if a.Since.Before(one.Since) {
				one.Since = a.Since
			}
			*a = client.Attention{}
			return outages
		}
	}
	return append(outages, sharedOutage{from: from, to: to, at: len(list)})
}

// failing returns the active jobs whose last run failed, with their last runs: those that failed
// last, at most failedJobsMax.
func (s *Jobs) failing(ctx context.Context, of scope) (jobs []*store.Job, ended [][]store.Record, err error) {
	began := s.now()
	search := s.failures(of, store.HistoryQuery{})
	var uids []job.ID
	for !search.over && len(uids) < failedJobsMax && (len(search.found) == 0 || s.now().Sub(began) < failedTime) {
		some, err := search.next(ctx, failedPart, failedTime)
		if err != nil {
			return nil, nil, err
		}
		if len(some) > failedJobsMax {
			if some, err = s.stillFailing(ctx, some); err != nil {
				return nil, nil, err
			}
		}
		uids = append(uids, some...)
	}
	if uids = uids[:min(len(uids), failedJobsMax)]; len(uids) == 0 {
		return nil, nil, nil
	}
	found, err := s.store.JobsByUID(ctx, uids)
	if err != nil {
		return nil, nil, err
	}
	recent, err := s.store.Recent(ctx, uids, inRowMax)
	if err != nil {
		return nil, nil, err
	}
	for i, j := range found {
		if j != nil && !j.Deleted && stateOf(j) == job.JobActive && len(failures(recent[i])) > 0 {
			jobs, ended = append(jobs, j), append(ended, recent[i])
		}
	}
	return jobs, ended, nil
}

// stillFailing leaves out jobs whose last run succeeded.
func (s *Jobs) stillFailing(ctx context.Context, uids []job.ID) (list []job.ID, err error) {
	last, err := s.store.Recent(ctx, uids, 2) // one alone would have the state of its flow
	for i := range last {
		if len(last[i]) > 0 && last[i][0].Attempt.Outcome != job.OutcomeSucceeded {
			list = append(list, uids[i])
		}
	}
	return list, err
}

// failureSearch finds jobs with failed runs, by the last of them, the latest first.
type failureSearch struct {
	s     *Jobs
	of    scope
	q     store.HistoryQuery
	found []job.ID
	over  bool
	since time.Time // how far back it searched
}

// failures begins a search in the span of a query.
func (s *Jobs) failures(of scope, q store.HistoryQuery) *failureSearch {
	q.Failed, q.Limit = true, failedLookMax
	return &failureSearch{s: s, of: of, q: q}
}

// next returns at most n further jobs. It searches for a limited time, or with 0 back to
// the beginning of the time span.
func (f *failureSearch) next(ctx context.Context, most int, search time.Duration) ([]job.ID, error) {
	began, known := f.s.now(), len(f.found)
	for most > 0 && !f.over {
		f.q.Except = f.found
		records, next, err := f.of.attempts(ctx, f.s.store, f.q)
		if err != nil {
			return nil, err
		}
		for i := range records {
			r := &records[i]
			if uid := r.Run.JobUID; !slices.Contains(f.found, uid) {
				f.found = append(f.found, uid)
			}
			if f.since = r.Attempt.Ended; len(f.found)-known == most {
				f.q.Before = r.Ref()
				return f.found[known:], nil
			}
		}
		if f.q.Before, f.over = next, next == (store.RecordRef{}); f.over {
			f.since = f.q.From
			return f.found[known:], nil
		}
		if f.since = next.Ended; search > 0 && f.s.now().Sub(began) >= search {
			return f.found[known:], nil
		}
	}
	return nil, nil
}

// failures returns the failures of a job since it last succeeded, the latest first.
func failures(ended []store.Record) (list []*store.Record) {
	for i := range ended {
		if ended[i].Attempt.Outcome == job.OutcomeSucceeded {
			break
		}
		if ended[i].Attempt.Outcome.Alarms() { // skipped and cancelled runs say nothing about the health of the job
			list = append(list, &ended[i])
		}
	}
	return list
}

// lastSuccess returns the success that a job last had, nil if its last runs have none.
func lastSuccess(ended []store.Record) *store.Record {
	for i := range ended {
		if ended[i].Attempt.Outcome == job.OutcomeSucceeded {
			return &ended[i]
		}
	}
	return nil
}

// inARow returns how many runs of a job failed in a row, for all that show it: as many as the job has
// counted, or of its last runs where it has not.
func inARow(j *store.Job, ended []store.Record) int {
	n := len(failures(ended))
	if j.Definition.Status != nil {
		n = max(n, j.Definition.Status.Failures)
	}
	return n
}

// telling returns the latest of some failures that an outage does not explain: what a job missed meanwhile hides nothing. Without
// one it is the latest of all.
func telling(list []*store.Record) *store.Record {
	for _, r := range list {
		if _, _, ok := reason.OutageIn(r.Attempt.Reason); !ok {
			return r
		}
	}
	return list[0]
}

// failuresOf returns the problem of a failing job with its last runs.
func failuresOf(j *store.Job, ended []store.Record, began beginning) client.Attention {
	latest, n := telling(failures(ended)), inARow(j, ended)
	a := client.Attention{
		Kind: client.AttentionFailing, Severity: client.SeverityWarning, Job: j.Definition.FullName(), Run: latest.Run.ID,
		Count: n, Since: began.first.Attempt.Ended, Failure: client.FailureOf(&latest.Attempt),
	}
	if was, first := began.success, began.first.Run.Version; was != nil && was.Run.Version != first {
		a.SinceVersion = first
	}
	if n > 1 {
		a.Severity = client.SeverityBad
		return saying(a, reason.LastRuns.Of(n, latest.Attempt.Outcome, latest.Attempt.Reason))
	}
	return saying(a, reason.LastRun.Of(latest.Attempt.Outcome, latest.Attempt.Reason))
}

// saying adds to a problem what is wrong.
func saying(a client.Attention, why job.Reason) client.Attention {
	a.Text = why.String()
	a.TextCode, a.TextArgs = why.For()
	return a
}
