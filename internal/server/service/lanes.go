package service

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// lanesMax is the most lanes of a page, and laneBuckets the most buckets of a lane: more are not seen
	// on any screen.
	lanesMax    = 300
	laneBuckets = 300
	// lanesLook is how many jobs are examined, by name: they are counted within tens of milliseconds.
	// Of further jobs the latest failures tell which have trouble.
	lanesLook = 1000
)

// lanesPlace is a place in a list of lanes.
type lanesPlace struct {
	Lane int `json:"lane"`
}

// Lanes counts what ended within a span by job, in buckets that begin at multiples of the step since
// 1970. Jobs with trouble come first.
func (s *Stats) Lanes(ctx context.Context, who Caller, q client.LanesQuery) (client.Lanes, error) {
	lanes := client.Lanes{Items: []client.Lane{}}
	of, err := who.reads(q.Namespace)
	if err != nil {
		return lanes, err
	}
	var place lanesPlace
	if err := readToken(q.PageToken, &place); err != nil {
		return lanes, err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return lanes, err
	}
	q.Step = cmp.Or(q.Step, 10*time.Minute)
	from, n, err := buckets(&q.From, &q.To, &q.Step, now.Add(-24*time.Hour), now)
	if err != nil {
		return lanes, err
	}
	if n > laneBuckets {
		return lanes, WrongParameter("step", phrase.TooManyBuckets.Of(strconv.Itoa(n), laneBuckets), phrase.LongerStep)
	}
	jobs, err := s.laneJobs(ctx, of, q, from)
	if err != nil {
		return lanes, err
	}
	lanes.Step, lanes.Jobs = int(q.Step/time.Second), len(jobs)
	list := make([]jobLane, len(jobs))
	byJob := make(map[job.ID]*jobLane, len(jobs))
	uids := make([]job.ID, len(jobs))
	for i, j := range jobs {
		d := j.Definition
		list[i] = jobLane{uid: d.UID, lane: client.Lane{Job: d.FullName(), Labels: d.Labels, Failures: d.Status.Failures, Buckets: []client.StatsBucket{}}}
		byJob[d.UID], uids[i] = &list[i], d.UID
	}
	whole := store.AggregateQuery{From: from, To: q.To, Bucket: time.Duration(n) * q.Step, ByJob: true}
	if err := s.ofJobs(ctx, whole, uids, func(a *store.Aggregate) {
		l := &byJob[a.Job].lane
		for outcome, count := range a.Outcomes {
			l.Runs += count
			if outcome.Alarms() {
				l.Failed += count
			}
		}
	}); err != nil {
		return lanes, err
	}
	slices.SortStableFunc(list, func(a, b jobLane) int { return a.compare(&b) })
	size := min(pageSize(q.PageSize), lanesMax)
	place.Lane = min(max(place.Lane, 0), len(list))
	shown := list[place.Lane:min(place.Lane+size, len(list))]
	if end := place.Lane + len(shown); end < len(list) {
		lanes.Next = writeToken(lanesPlace{end})
	}
	busy := make([]job.ID, 0, len(shown))
	clear(byJob)
	for i := range shown {
		if byJob[shown[i].uid] = &shown[i]; shown[i].lane.Runs > 0 {
			busy = append(busy, shown[i].uid)
		}
	}
	whole.Bucket = q.Step
	err = s.ofJobs(ctx, whole, busy, func(a *store.Aggregate) {
		l := &byJob[a.Job].lane
		l.Buckets = append(l.Buckets, client.StatsBucket{Start: a.Start, Outcomes: a.Outcomes, Seconds: a.Duration.Seconds(), Longest: a.Longest.Seconds()})
	})
	for i := range shown {
		lanes.Items = append(lanes.Items, shown[i].lane)
	}
	return lanes, err
}

type jobLane struct {
	uid  job.ID
	lane client.Lane
}

// compare puts jobs that fail now first, then those with the most failures, then names.
func (l *jobLane) compare(other *jobLane) int {
	a, b := &l.lane, &other.lane
	return cmp.Or(first(b.Failures > 0)-first(a.Failures > 0), cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.Job, b.Job))
}

// laneJobs returns the jobs of lanes.
func (s *Stats) laneJobs(ctx context.Context, of scope, q client.LanesQuery, from time.Time) (jobs []*store.Job, err error) {
	query := store.JobQuery{Labels: q.Labels, Text: q.Text}
	for len(jobs) < lanesLook {
		query.Limit = min(PageMax, lanesLook-len(jobs))
		part, next, err := of.jobs(ctx, s.jobs.store, query)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, part...)
		if query.After = next; next == "" {
			return jobs, nil
		}
	}
	known := make(map[job.ID]bool, len(jobs))
	for _, j := range jobs {
		known[j.Definition.UID] = true
	}
	records, _, err := of.attempts(ctx, s.store, store.HistoryQuery{Failed: true, From: from, To: q.To, Limit: store.LookMax})
	if err != nil {
		return nil, err
	}
	var more []job.ID
	for i := range records {
		if uid := records[i].Run.JobUID; !known[uid] && len(more) < store.MaxBatch {
			known[uid] = true
			more = append(more, uid)
		}
	}
	failed, err := s.jobs.store.JobsByUID(ctx, more)
	if err != nil {
		return nil, err
	}
	for _, j := range failed {
		if j != nil && !j.Deleted && query.Matches(j.Definition) {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// ofJobs passes the counts of jobs on.
func (s *Stats) ofJobs(ctx context.Context, q store.AggregateQuery, uids []job.ID, each func(*store.Aggregate)) error {
	for part := range slices.Chunk(uids, store.MaxBatch) {
		q.Jobs = part
		list, err := s.store.Aggregate(ctx, q)
		if err != nil {
			return err
		}
		for i := range list {
			each(&list[i])
		}
	}
	return nil
}
