package httpapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

type listJobsInput struct {
	PageInput
	Namespace string   `query:"namespace" doc:"Only jobs of this namespace."`
	Label     []string `query:"label,explode" nullable:"false" maxItems:"16" doc:"Only jobs with this label: key=value. May be repeated; all must match."`
	Text      string   `query:"text" maxLength:"256" doc:"Only jobs with this in their name or description."`
	State     string   `query:"state" enum:"active,paused,completed" doc:"Only jobs in this state."`
	Sort      string   `query:"sort" enum:"name,next" default:"name" doc:"The order: by name, or by when they fall due next, with those at the end that fall due at no known time."`
	Filled    bool     `query:"filled" doc:"Fill in the defaults."`
}

type listJobsOutput struct {
	Body client.Page[client.Document]
}

// jobsPlace is where a page of jobs by name ended.
type jobsPlace struct {
	After string `json:"after"`
}

func (a *api) listJobs(ctx context.Context, in *listJobsInput) (*listJobsOutput, error) {
	q := store.JobQuery{Namespace: in.Namespace, Text: in.Text, State: job.JobState(in.State)}
	for _, pair := range in.Label {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, wrongParameter("label", fmt.Sprintf("%q is not of the form key=value", pair), "")
		}
		if before, twice := q.Labels[key]; twice && before != value {
			return nil, wrongParameter("label", fmt.Sprintf("is given twice for %s, as %q and %q, and no job has both", key, before, value), "")
		}
		if q.Labels == nil {
			q.Labels = map[string]string{}
		}
		q.Labels[key] = value
	}
	at, err := a.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	var jobs []*store.Job
	out := &listJobsOutput{}
	if in.Sort == "next" && a.Planner != nil {
		var place upcomingPlace
		if err := readToken(in.PageToken, &place); err != nil {
			return nil, err
		}
		if place.At.IsZero() {
			place.At = at
		}
		at = place.At
		jobs, out.Body.NextPageToken, err = a.jobsByNext(ctx, q, place, in.PageSize)
	} else {
		var place jobsPlace
		if err := readToken(in.PageToken, &place); err != nil {
			return nil, err
		}
		q.After = place.After
		var next string
		if jobs, next, err = a.look(ctx, q, in.PageSize); next != "" {
			out.Body.NextPageToken = writeToken(jobsPlace{next})
		}
	}
	if err != nil {
		return nil, err
	}
	out.Body.Items = []client.Document{}
	for _, j := range jobs {
		d, err := a.showAt(ctx, j, in.Filled, at)
		if err != nil {
			return nil, err
		}
		out.Body.Items = append(out.Body.Items, d)
	}
	return out, nil
}

const (
	// lookTime is how long is looked for what a page is to have, where a query
	// selects a few of many. After that the page is given as it is, and its token
	// goes on: others want the store as well, and nobody waits long to see that
	// something is done.
	lookTime = 10 * time.Millisecond
	// jobPartsMax is how many parts of store.JobLookMax jobs are looked at for one
	// page, however fast that is.
	jobPartsMax = 50
)

// look returns at most n jobs by name, and the name to go on behind, if there are
// more to look at.
func (a *api) look(ctx context.Context, q store.JobQuery, n int) (jobs []*store.Job, next string, err error) {
	began := a.Now()
	for range jobPartsMax {
		q.Limit = n - len(jobs)
		part, next, err := a.Store.ListJobs(ctx, q)
		if err != nil {
			return nil, "", err
		}
		jobs = append(jobs, part...)
		if q.After = next; next == "" || len(jobs) == n || a.Now().Sub(began) >= lookTime {
			break
		}
	}
	return jobs, q.After, nil
}

// upcomingPlace is where a page of jobs by their next moment ended: behind a job
// that falls due or, in the rest, behind a name.
type upcomingPlace struct {
	// At is when the first page was made. The moments of all pages are those
	// after it, so that a job which comes round meanwhile is not listed again.
	At   time.Time       `json:"at"`
	Last engine.Upcoming `json:"last"`
	Rest bool            `json:"rest,omitempty"`
	Name string          `json:"name,omitempty"`
	// Many says that more than sortMax jobs match, or that there are too many
	// to look for those that do.
	Many bool `json:"many,omitempty"`
}

const (
	// sortMax is how many jobs are read and sorted for a page, where a query
	// selects a few of many. If more match, jobs are taken as they come in the
	// table of the planner: then some of each page's worth will match.
	sortMax = 1000
	// lookMax is how many jobs of the table are read for one page. Reading one
	// that is not in memory takes some ten microseconds.
	lookMax = 2000
	// restPart is how many of those at the end are read at a time.
	restPart = 200
)

// jobsByNext returns a page of jobs in the order in which they fall due, then
// those that fall due at no known time, by name. A page may be shorter than asked
// for and not the last.
func (a *api) jobsByNext(ctx context.Context, q store.JobQuery, place upcomingPlace, size int) (page []*store.Job, token string, err error) {
	selective := q.Namespace != "" || len(q.Labels) > 0 || q.Text != "" || q.State != ""
	if selective && !place.Many {
		all, next, err := a.look(ctx, q, sortMax+1)
		if err != nil {
			return nil, "", err
		}
		if next == "" && len(all) <= sortMax {
			page, token = a.sortByNext(all, place, size)
			return page, token, nil
		}
		// What is paused or completed does not fall due.
		place.Many, place.Rest = true, q.State != "" && q.State != job.JobActive
	}
	if !place.Rest {
		if page, err = a.upcoming(ctx, &q, &place, size); err != nil || !place.Rest {
			return page, writeToken(place), err
		}
	}
	// The table has no more: what is left are the others.
	q.After, q.Limit = place.Name, restPart
	began := a.Now()
	for looked := 0; len(page) < size && looked < lookMax && a.Now().Sub(began) < lookTime; looked += restPart {
		jobs, next, err := a.Store.ListJobs(ctx, q)
		if err != nil {
			return nil, "", err
		}
		for _, j := range jobs {
			if len(page) == size {
				return page, writeToken(place), nil
			}
			place.Name = j.Definition.FullName()
			if _, ok := a.Planner.NextAfter(j.Definition.UID, place.At); !ok {
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
func (a *api) sortByNext(all []*store.Job, place upcomingPlace, size int) (page []*store.Job, token string) {
	type entry struct {
		engine.Upcoming
		job *store.Job
	}
	var due, rest []entry
	for _, j := range all {
		e := entry{engine.Upcoming{Job: j.Definition.UID}, j}
		var ok bool
		if e.Next, ok = a.Planner.NextAfter(e.Job, place.At); !ok {
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

// upcoming returns jobs that match from the table of the planner, and moves the
// place to where the next page begins: to the rest when there are no more.
func (a *api) upcoming(ctx context.Context, q *store.JobQuery, place *upcomingPlace, size int) (page []*store.Job, err error) {
	began := a.Now()
	// Where what matches is sparse, the table is looked through once more.
	for _, part := range [...]int{size, lookMax - size} {
		list := a.Planner.Upcoming(place.At, place.Last, part)
		for _, u := range list {
			if len(page) == size {
				return page, nil
			}
			place.Last = u
			j, err := a.Store.JobByUID(ctx, u.Job)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			// The table may be a moment behind.
			if !j.Deleted && j.Definition.Status.State == job.JobActive && selects(q, j) {
				page = append(page, j)
			}
			if place.Many && a.Now().Sub(began) >= lookTime {
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

// selects tells whether a query wants a job, as a store does in its lists.
func selects(q *store.JobQuery, j *store.Job) bool {
	return (q.Namespace == "" || j.Filled.Namespace == q.Namespace) &&
		(q.State == "" || j.Definition.Status.State == q.State) &&
		q.Matches(j.Definition)
}
