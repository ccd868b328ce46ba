package service

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// jobsPlace is the end of a page of jobs by name.
type jobsPlace struct {
	After string `json:"after"`
}

// List returns a page of jobs, with defaults filled in if that is wanted.
func (s *Jobs) List(ctx context.Context, who Caller, query client.JobQuery, filled bool) (client.JobPage, error) {
	out := client.JobPage{Page: client.Page[client.Document]{Items: []client.Document{}}}
	page, err := s.Listed(ctx, who, query, filled)
	if err != nil {
		return out, err
	}
	out.NextPageToken, out.Recent = page.NextPageToken, page.Recent
	for _, j := range page.Items {
		d, err := client.DocumentOf(job.Document{Job: j})
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, d)
	}
	return out, nil
}

// JobPage is a page of jobs that are not written as documents: a page of the web UI would read
// them again.
type JobPage struct {
	client.Page[*job.Job]
	Recent map[string][]client.RecentRun // by the full name of the job, the latest first
}

// Listed is like List, but without documents.
func (s *Jobs) Listed(ctx context.Context, who Caller, query client.JobQuery, filled bool) (page JobPage, err error) {
	of, err := who.reads(query.Namespace)
	if err != nil {
		return page, err
	}
	if !query.DueBefore.IsZero() && !query.Failing && query.Sort == client.ByFailure {
		return page, WrongParameter("due_before", phrase.ByWhenDue, phrase.NoFailureSort)
	}
	at, err := s.store.Now(ctx)
	if err != nil {
		return page, err
	}
	recent := min(max(query.Recent, 0), RecentMax)
	size := pageSize(query.PageSize)
	jobs, last, next, err := s.lookFor(ctx, of, &query, size, recent, &at)
	if err != nil {
		return page, err
	}
	page.NextPageToken = next
	chained, err := s.nextInChains(ctx, jobs)
	if err != nil {
		return page, err
	}
	live, err := s.liveSessions(ctx)
	if err != nil {
		return page, err
	}
	for i, j := range jobs {
		page.Items = append(page.Items, s.shownWith(j, filled, at, last[i], chained[i], live))
		if runs := recentRuns(last[i][:min(recent, len(last[i]))]); runs != nil {
			if page.Recent == nil {
				page.Recent = map[string][]client.RecentRun{}
			}
			page.Recent[j.Definition.FullName()] = runs
		}
	}
	return page, s.showSources(ctx, page.Items)
}

// neverTime is how long a page of jobs that never ran may search: there may be few among many,
// and each part reads the last runs of its jobs.
const neverTime = 50 * time.Millisecond

// lookFor returns a page of jobs with their last runs, and the token of the next. It moves at to
// the moment of the first page where the order depends on it.
func (s *Jobs) lookFor(ctx context.Context, of scope, query *client.JobQuery, size, recent int, at *time.Time) (jobs []*store.Job, last [][]store.Record, token string, err error) {
	began := s.now()
	for token = query.PageToken; ; {
		part, next, err := s.part(ctx, of, query, token, size-len(jobs), at)
		if err != nil {
			return nil, nil, "", err
		}
		runs, err := s.lastRuns(ctx, part, max(recent, 1))
		if err != nil {
			return nil, nil, "", err
		}
		for i, j := range part {
			if !query.NeverRan || len(runs[i]) == 0 {
				jobs, last = append(jobs, j), append(last, runs[i])
			}
		}
		if token = next; token == "" || !query.NeverRan || len(jobs) == size || s.now().Sub(began) >= neverTime {
			return jobs, last, token, nil
		}
	}
}

// part returns at most n jobs, some of which a selective query leaves out later, and the token of
// what follows.
func (s *Jobs) part(ctx context.Context, of scope, query *client.JobQuery, token string, n int, at *time.Time) (jobs []*store.Job, next string, err error) {
	q := store.JobQuery{Text: query.Text, State: query.State, Work: query.Work, Labels: query.Labels}
	switch {
	case query.Failing:
		jobs, err = s.failingPart(ctx, of, query, *at)
		return jobs, "", err
	case query.Sort == client.ByFailure:
		var place failurePlace
		if err := readToken(token, &place); err != nil {
			return nil, "", err
		}
		place.At = cmp.Or(place.At, *at)
		return s.jobsByFailure(ctx, of, q, place, n)
	case (query.Sort == client.ByNext || !query.DueBefore.IsZero()) && s.planner != nil:
		var place upcomingPlace
		if err := readToken(token, &place); err != nil {
			return nil, "", err
		}
		place.At = cmp.Or(place.At, *at)
		*at = place.At
		return s.jobsByNext(ctx, of, q, place, query.DueBefore, n)
	case !query.DueBefore.IsZero():
		return nil, "", nil // nothing is planned here
	}
	var place jobsPlace
	if err := readToken(token, &place); err != nil {
		return nil, "", err
	}
	q.After = place.After
	var after string
	if jobs, after, err = s.look(ctx, of, q, n); after != "" {
		next = writeToken(jobsPlace{after})
	}
	return jobs, next, err
}

// failingPart returns the selected jobs whose last run failed: by name, or by when that ended.
func (s *Jobs) failingPart(ctx context.Context, of scope, query *client.JobQuery, at time.Time) ([]*store.Job, error) {
	jobs, ended, err := s.failing(ctx, of)
	if err != nil {
		return nil, err
	}
	failed := map[*store.Job]time.Time{}
	for i, j := range jobs {
		failed[j] = failures(ended[i])[0].Attempt.Ended
	}
	q := store.JobQuery{Text: query.Text, State: query.State, Work: query.Work, Labels: query.Labels}
	jobs = slices.DeleteFunc(jobs, func(j *store.Job) bool { return !selects(&q, j) || !s.isDue(j, at, query.DueBefore) })
	slices.SortFunc(jobs, func(a, b *store.Job) int {
		byName := cmp.Compare(a.Definition.FullName(), b.Definition.FullName())
		if query.Sort == client.ByFailure {
			return cmp.Or(failed[b].Compare(failed[a]), byName)
		}
		return byName
	})
	return jobs, nil
}

// isDue reports whether a job falls due before a moment, if there is one.
func (s *Jobs) isDue(j *store.Job, at, before time.Time) bool {
	if before.IsZero() || s.planner == nil {
		return before.IsZero()
	}
	next, ok := s.planner.NextAfter(j.Definition.UID, at)
	return ok && next.Before(before)
}

// failurePlace is the end of a page of jobs by their last failure: after a number of failed jobs, or
// after a name.
type failurePlace struct {
	// At is when the first page was made, and Since how far back failures were found before the rest
	// began: what fails later does not change the order.
	At     time.Time `json:"at"`
	Since  time.Time `json:"since,omitzero"`
	Failed int       `json:"failed,omitempty"`
	Rest   bool      `json:"rest,omitempty"`
	Name   string    `json:"name,omitempty"`
}

const (
	// failedOrderMax is how many jobs are listed by their last failure: the others follow by name.
	failedOrderMax = 500
	// failedOrderTime is how long they are searched for one page. It is less than failedTime, since the
	// page also has the last runs of its jobs.
	failedOrderTime = 15 * time.Millisecond
)

// jobsByFailure returns a page of jobs that failed, the latest first, and then of the others by
// name.
func (s *Jobs) jobsByFailure(ctx context.Context, of scope, q store.JobQuery, place failurePlace, n int) (page []*store.Job, token string, err error) {
	found := s.failures(of, store.HistoryQuery{From: place.Since, To: place.At})
	// What earlier pages have listed is found again, however long that takes.
	if _, err := found.next(ctx, place.Failed, 0); err != nil {
		return nil, "", err
	}
	left := failedOrderTime // at first, however busy the machine is
	for began := s.now(); !place.Rest && len(page) < n; left = failedOrderTime - s.now().Sub(began) {
		var some []job.ID
		if left > 0 {
			if some, err = found.next(ctx, min(n-len(page), failedOrderMax-place.Failed), left); err != nil {
				return nil, "", err
			}
		}
		if place.Rest = len(some) == 0; place.Rest {
			place.Since = found.since
			break
		}
		place.Failed += len(some)
		jobs, err := s.store.JobsByUID(ctx, some)
		if err != nil {
			return nil, "", err
		}
		for _, j := range jobs {
			if j != nil && !j.Deleted && of.has(j.Filled.Namespace) && selects(&q, j) {
				page = append(page, j)
			}
		}
	}
	q.After = place.Name
	for place.Rest && len(page) < n {
		jobs, next, err := s.look(ctx, of, q, n-len(page))
		if err != nil {
			return nil, "", err
		}
		for _, j := range jobs {
			if !slices.Contains(found.found, j.Definition.UID) {
				page = append(page, j)
			}
		}
		if q.After, place.Name = next, next; next == "" {
			return page, "", nil
		}
	}
	return page, writeToken(place), nil
}

// namespacesMax bounds the names in a menu: each takes a read of the store.
const namespacesMax = 100

// Namespaces returns the namespaces that have jobs, by name: the first ones, if there are many.
func (s *Jobs) Namespaces(ctx context.Context, who Caller) ([]string, error) {
	of, err := who.reads("")
	if err != nil {
		return nil, err
	}
	var list []string
	for q := (store.JobQuery{Limit: 1}); len(list) < namespacesMax; {
		jobs, _, err := of.jobs(ctx, s.store, q)
		if err != nil {
			return nil, err
		}
		if len(jobs) == 0 {
			break
		}
		namespace := jobs[0].Filled.Namespace
		list = append(list, namespace)
		q.After = namespace + "0" // '0' is the letter behind '/'
	}
	return list, nil
}

// Recent returns the last n runs of some jobs by name, the latest first. Jobs that the caller
// may not see, or that do not exist, have none.
func (s *Jobs) Recent(ctx context.Context, who Caller, names []string, n int) (map[string][]client.RecentRun, error) {
	jobs, err := s.named(ctx, who, names)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	last, err := s.lastRuns(ctx, jobs, min(n, RecentMax))
	if err != nil {
		return nil, err
	}
	recent := map[string][]client.RecentRun{}
	for i, j := range jobs {
		recent[j.Definition.FullName()] = recentRuns(last[i])
	}
	return recent, nil
}

// Labels returns the labels of some jobs by name. Jobs that the caller may not see, or that do not
// exist, have none.
func (s *Jobs) Labels(ctx context.Context, who Caller, names []string) (map[string]map[string]string, error) {
	jobs, err := s.named(ctx, who, names)
	if err != nil {
		return nil, err
	}
	labels := map[string]map[string]string{}
	for _, j := range jobs {
		labels[j.Definition.FullName()] = j.Definition.Labels
	}
	return labels, nil
}

// named returns the existing jobs of a list that the caller may see.
func (s *Jobs) named(ctx context.Context, who Caller, names []string) ([]*store.Job, error) {
	of, err := who.reads("")
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !of.hasObject(name) })
	if len(names) == 0 {
		return nil, nil
	}
	jobs, err := s.store.JobsNamed(ctx, names)
	return slices.DeleteFunc(jobs, func(j *store.Job) bool { return j == nil }), err
}

// lastRuns returns the last n runs of some jobs, and of flows the state of the last one.
func (s *Jobs) lastRuns(ctx context.Context, jobs []*store.Job, n int) ([][]store.Record, error) {
	uids := make([]job.ID, len(jobs))
	var flows []job.ID
	var at []int
	for i, j := range jobs {
		uids[i] = j.Definition.UID
		if j.Filled.Run.IsFlow() {
			flows, at = append(flows, uids[i]), append(at, i)
		}
	}
	last, err := s.store.Recent(ctx, uids, n)
	if err != nil || n == 1 || len(flows) == 0 {
		return last, err
	}
	whole, err := s.store.Recent(ctx, flows, 1)
	if err != nil {
		return nil, err
	}
	for k, i := range at {
		if len(whole[k]) > 0 && len(last[i]) > 0 && whole[k][0].Run.ID == last[i][0].Run.ID {
			last[i][0].Run.Flow = whole[k][0].Run.Flow
		}
	}
	return last, nil
}

// recentRuns are the last runs of a job, the latest first. Only that has the states of its steps.
func recentRuns(records []store.Record) (list []client.RecentRun) {
	for k := range records {
		r := records[k]
		if k > 0 {
			r.Run.Flow = nil
		}
		run := endedRun(&r)
		one := client.RecentRun{ID: run.ID, Outcome: run.Outcome, Started: run.Started, Ended: run.Ended, Attempt: run.Attempt}
		for i := range run.Steps {
			one.Steps = append(one.Steps, run.Steps[i].State)
		}
		list = append(list, one)
	}
	return list
}

// RecentMax is the number of last runs in a list of jobs: as many as a person can
// distinguish in a row.
const RecentMax = 50

const (
	// lookTime is how long a page of a selective query may search. After that the page is
	// returned with a token to continue: other requests need the store too, and a reader
	// sees progress.
	lookTime = 10 * time.Millisecond
	// emptyTime is the limit while a page of jobs by name is still empty, since an empty page
	// is of no use.
	emptyTime = 80 * time.Millisecond
	// jobPartsMax is how many parts of [store.JobLookMax] jobs are searched for one page,
	// however fast that is.
	jobPartsMax = 50
)

// look returns at most n jobs by name, and the name to continue after if there may be more.
func (s *Jobs) look(ctx context.Context, of scope, q store.JobQuery, n int) (jobs []*store.Job, next string, err error) {
	began := s.now()
	for range jobPartsMax {
		q.Limit = n - len(jobs)
		part, next, err := of.jobs(ctx, s.store, q)
		if err != nil {
			return nil, "", err
		}
		jobs = append(jobs, part...)
		looked := s.now().Sub(began)
		if q.After = next; next == "" || len(jobs) == n || looked >= emptyTime || looked >= lookTime && len(jobs) > 0 {
			break
		}
	}
	return jobs, q.After, nil
}

// upcomingPlace is the end of a page of jobs by their next due time: after a due job or,
// for jobs without one, after a name.
type upcomingPlace struct {
	// At is when the first page was made. All pages show due times after it, so that a job
	// which runs in the meantime is not listed again.
	At   time.Time       `json:"at"`
	Last engine.Upcoming `json:"last"`
	Rest bool            `json:"rest,omitempty"`
	Name string          `json:"name,omitempty"`
	// Many is set if more than sortMax jobs match, or too many exist to search them.
	Many bool `json:"many,omitempty"`
}

const (
	// sortMax is how many jobs are read and sorted for a page, where a query
	// selects a few of many. If more match, jobs are taken as they come in the
	// table of the planner: then some of each page's worth will match.
	sortMax = 1000
	// lookMax is the most jobs of the table that are read for one page. Reading an
	// uncached one takes some ten microseconds.
	lookMax = 2000
	// readTogether is how many of them are read at once: a page of the web UI, so that it takes
	// one round trip to the store.
	readTogether = 100
	// restPart is how many of those at the end are read at a time.
	restPart = 200
)

// jobsByNext returns a page of jobs by their next due time, then those without one, by
// name. With a moment they are those that fall due before it. A page may be shorter than
// requested before the last.
func (s *Jobs) jobsByNext(ctx context.Context, of scope, q store.JobQuery, place upcomingPlace, before time.Time, size int) (page []*store.Job, token string, err error) {
	selective := of != nil || len(q.Labels) > 0 || q.Text != "" || q.State != "" || q.Work != ""
	if selective && !place.Many {
		all, next, err := s.look(ctx, of, q, sortMax+1)
		if err != nil {
			return nil, "", err
		}
		if next == "" && len(all) <= sortMax {
			page, token = s.sortByNext(all, place, before, size)
			return page, token, nil
		}
		// Paused and completed jobs do not fall due.
		place.Many, place.Rest = true, q.State != "" && q.State != job.JobActive
	}
	if !place.Rest {
		if page, err = s.upcoming(ctx, of, &q, &place, before, size); err != nil || !place.Rest {
			return page, writeToken(place), err
		}
	}
	if !before.IsZero() {
		return page, "", nil
	}
	// The table is at its end: the jobs without a due time follow.
	q.After, q.Limit = place.Name, restPart
	began := s.now()
	for looked := 0; len(page) < size && looked < lookMax && s.now().Sub(began) < lookTime; looked += restPart {
		jobs, next, err := of.jobs(ctx, s.store, q)
		if err != nil {
			return nil, "", err
		}
		for _, j := range jobs {
			if len(page) == size {
				return page, writeToken(place), nil
			}
			place.Name = j.Definition.FullName()
			if _, ok := s.planner.NextAfter(j.Definition.UID, place.At); !ok {
				page = append(page, j)
			}
		}
		if next == "" {
			return page, "", nil
		}
		place.Name, q.After = next, next
	}
	return page, writeToken(place), nil
}

// sortByNext returns a page of few jobs, which come by name.
func (s *Jobs) sortByNext(all []*store.Job, place upcomingPlace, before time.Time, size int) (page []*store.Job, token string) {
	type entry struct {
		engine.Upcoming
		job *store.Job
	}
	var due, rest []entry
	for _, j := range all {
		e := entry{engine.Upcoming{Job: j.Definition.UID}, j}
		var ok bool
		switch e.Next, ok = s.planner.NextAfter(e.Job, place.At); {
		case ok && (before.IsZero() || e.Next.Before(before)):
			due = append(due, e)
		case !ok && before.IsZero():
			rest = append(rest, e)
		}
	}
	slices.SortFunc(due, func(x, y entry) int { return x.Compare(y.Upcoming) })
	for _, e := range slices.Concat(due, rest) {
		unscheduled := e.Next.IsZero()
		if unscheduled && place.Rest && e.job.Definition.FullName() <= place.Name || !unscheduled && (place.Rest || e.Compare(place.Last) <= 0) {
			continue
		}
		if len(page) == size {
			return page, writeToken(place)
		}
		page = append(page, e.job)
		if place.Last, place.Rest = e.Upcoming, unscheduled; unscheduled {
			place.Name = e.job.Definition.FullName()
		}
	}
	return page, ""
}

// upcoming returns matching jobs from the planner's table, and moves the place to the next
// page: to the jobs without a due time at the end.
func (s *Jobs) upcoming(ctx context.Context, of scope, q *store.JobQuery, place *upcomingPlace, before time.Time, size int) (page []*store.Job, err error) {
	began := s.now()
	// If matches are sparse, the table is scanned once more.
	for _, part := range [...]int{size, lookMax - size} {
		list := s.planner.Upcoming(place.At, place.Last, part)
		if end := slices.IndexFunc(list, func(u engine.Upcoming) bool { return !before.IsZero() && !u.Next.Before(before) }); end >= 0 {
			list = list[:end]
		}
		for some := range slices.Chunk(list, readTogether) {
			jobs, err := s.jobsOf(ctx, some)
			if err != nil {
				return nil, err
			}
			for i, u := range some {
				if len(page) == size {
					return page, nil
				}
				place.Last = u
				// The table may be slightly stale.
				if j := jobs[i]; j != nil && !j.Deleted && j.Definition.Status.State == job.JobActive && of.has(j.Filled.Namespace) && selects(q, j) {
					page = append(page, j)
				}
			}
			if place.Many && s.now().Sub(began) >= lookTime {
				return page, nil
			}
		}
		if len(list) < part {
			place.Rest = true
			return page, nil
		}
		if len(page) == size {
			return page, nil
		}
	}
	return page, nil
}

// jobsOf reads jobs of the table, with nil for deleted ones.
func (s *Jobs) jobsOf(ctx context.Context, list []engine.Upcoming) ([]*store.Job, error) {
	uids := make([]job.ID, len(list))
	for i, u := range list {
		uids[i] = u.Job
	}
	return s.store.JobsByUID(ctx, uids)
}

// selects reports whether a query selects a job, as a store does in its lists of a namespace.
func selects(q *store.JobQuery, j *store.Job) bool {
	return (q.State == "" || j.Definition.Status.State == q.State) &&
		q.Matches(j.Definition)
}
