package service

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// jobsPlace is where a page of jobs by name ended.
type jobsPlace struct {
	After string `json:"after"`
}

// List returns a page of jobs, with defaults filled in if that is wanted.
func (s *Jobs) List(ctx context.Context, who Caller, said client.JobQuery, filled bool) (client.JobPage, error) {
	out := client.JobPage{Page: client.Page[client.Document]{Items: []client.Document{}}}
	page, err := s.Listed(ctx, who, said, filled)
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

// Listed is List without documents.
func (s *Jobs) Listed(ctx context.Context, who Caller, said client.JobQuery, filled bool) (page JobPage, err error) {
	of, err := who.reads(said.Namespace)
	if err != nil {
		return page, err
	}
	q := store.JobQuery{Text: said.Text, State: said.State, Work: said.Work, Labels: said.Labels}
	size := pageSize(said.PageSize)
	at, err := s.store.Now(ctx)
	if err != nil {
		return page, err
	}
	var jobs []*store.Job
	if said.Failing {
		jobs, _, err = s.failing(ctx, of, at)
		jobs = slices.DeleteFunc(jobs, func(j *store.Job) bool { return !selects(&q, j) })
		slices.SortFunc(jobs, func(a, b *store.Job) int { return cmp.Compare(a.Definition.FullName(), b.Definition.FullName()) })
	} else if said.Sort == client.ByNext && s.planner != nil {
		var place upcomingPlace
		if err := readToken(said.PageToken, &place); err != nil {
			return page, err
		}
		if place.At.IsZero() {
			place.At = at
		}
		at = place.At
		jobs, page.NextPageToken, err = s.jobsByNext(ctx, of, q, place, size)
	} else {
		var place jobsPlace
		if err := readToken(said.PageToken, &place); err != nil {
			return page, err
		}
		q.After = place.After
		var next string
		if jobs, next, err = s.look(ctx, of, q, size); next != "" {
			page.NextPageToken = writeToken(jobsPlace{next})
		}
	}
	if err != nil {
		return page, err
	}
	uids := make([]job.ID, len(jobs))
	for i, j := range jobs {
		uids[i] = j.Definition.UID
	}
	recent := min(max(said.Recent, 0), RecentMax)
	last, err := s.store.Recent(ctx, uids, max(recent, 1))
	if err != nil {
		return page, err
	}
	for i, j := range jobs {
		shown, err := s.shownOf(ctx, j, filled, at, last[i])
		if err != nil {
			return page, err
		}
		page.Items = append(page.Items, shown)
		if runs := recentRuns(last[i][:min(recent, len(last[i]))]); runs != nil {
			if page.Recent == nil {
				page.Recent = map[string][]client.RecentRun{}
			}
			page.Recent[j.Definition.FullName()] = runs
		}
	}
	return page, nil
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
	of, err := who.reads("")
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !of.hasObject(name) })
	if len(names) == 0 {
		return nil, nil
	}
	jobs, err := s.store.JobsNamed(ctx, names)
	if err != nil {
		return nil, err
	}
	jobs = slices.DeleteFunc(jobs, func(j *store.Job) bool { return j == nil })
	uids := make([]job.ID, len(jobs))
	for i, j := range jobs {
		uids[i] = j.Definition.UID
	}
	last, err := s.store.Recent(ctx, uids, min(n, RecentMax))
	if err != nil {
		return nil, err
	}
	recent := map[string][]client.RecentRun{}
	for i, j := range jobs {
		recent[j.Definition.FullName()] = recentRuns(last[i])
	}
	return recent, nil
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
	// jobPartsMax is how many parts of store.JobLookMax jobs are searched for one page,
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
		if q.After = next; next == "" || len(jobs) == n || s.now().Sub(began) >= lookTime {
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
	// lookMax is the number of jobs of the table that are read for one page. Reading an
	// uncached one takes some ten microseconds.
	lookMax = 2000
	// readTogether is how many of them are read at once: a page of the web UI, so that it takes
	// one round trip to the store.
	readTogether = 100
	// restPart is how many of those at the end are read at a time.
	restPart = 200
)

// jobsByNext returns a page of jobs by their next due time, then those without one, by
// name. A page may be shorter than requested before the last.
func (s *Jobs) jobsByNext(ctx context.Context, of scope, q store.JobQuery, place upcomingPlace, size int) (page []*store.Job, token string, err error) {
	selective := of != nil || len(q.Labels) > 0 || q.Text != "" || q.State != "" || q.Work != ""
	if selective && !place.Many {
		all, next, err := s.look(ctx, of, q, sortMax+1)
		if err != nil {
			return nil, "", err
		}
		if next == "" && len(all) <= sortMax {
			page, token = s.sortByNext(all, place, size)
			return page, token, nil
		}
		// Paused and completed jobs do not fall due.
		place.Many, place.Rest = true, q.State != "" && q.State != job.JobActive
	}
	if !place.Rest {
		if page, err = s.upcoming(ctx, of, &q, &place, size); err != nil || !place.Rest {
			return page, writeToken(place), err
		}
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
func (s *Jobs) sortByNext(all []*store.Job, place upcomingPlace, size int) (page []*store.Job, token string) {
	type entry struct {
		engine.Upcoming
		job *store.Job
	}
	var due, rest []entry
	for _, j := range all {
		e := entry{engine.Upcoming{Job: j.Definition.UID}, j}
		var ok bool
		if e.Next, ok = s.planner.NextAfter(e.Job, place.At); !ok {
			rest = append(rest, e)
		} else {
			due = append(due, e)
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
func (s *Jobs) upcoming(ctx context.Context, of scope, q *store.JobQuery, place *upcomingPlace, size int) (page []*store.Job, err error) {
	began := s.now()
	// If matches are sparse, the table is scanned once more.
	for _, part := range [...]int{size, lookMax - size} {
		list := s.planner.Upcoming(place.At, place.Last, part)
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
				// The table may be a moment behind.
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
