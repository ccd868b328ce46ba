package service

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
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
	// lanesKept is how many beginnings of lanes have counts in memory. Of each these are the totals of at most
	// totalsKept jobs, and the columns of as many jobs as a page shows, of at most 300 bytes each.
	lanesKept  = 3
	totalsKept = 4000
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
	past := s.pastOf(from, q.To, q.Step, now)
	if err := s.ofJobs(ctx, store.AggregateQuery{From: past.until, To: q.To, Bucket: q.Step, ByJob: true}, uids, func(a *store.Aggregate) {
		l := byJob[a.Job]
		l.add(a)
		l.lane.Buckets = append(l.lane.Buckets, bucketOf(a))
	}); err != nil {
		return lanes, err
	}
	before, err := past.totals.of(uids, func(missing []job.ID, each func(*store.Aggregate)) error {
		return s.ofJobs(ctx, store.AggregateQuery{From: from, To: past.until, Bucket: past.until.Sub(from), ByJob: true}, missing, each)
	})
	if err != nil {
		return lanes, err
	}
	for i := range list {
		for k := range before[i] {
			list[i].add(&before[i][k])
		}
	}
	slices.SortStableFunc(list, func(a, b jobLane) int { return a.compare(&b) })
	size := min(pageSize(q.PageSize), lanesMax)
	place.Lane = min(max(place.Lane, 0), len(list))
	shown := list[place.Lane:min(place.Lane+size, len(list))]
	if end := place.Lane + len(shown); end < len(list) {
		lanes.Next = writeToken(lanesPlace{end})
	}
	uids = make([]job.ID, len(shown))
	for i := range shown {
		uids[i] = shown[i].uid
	}
	before, err = past.columns.of(uids, func(missing []job.ID, each func(*store.Aggregate)) error {
		return s.ofJobs(ctx, store.AggregateQuery{From: from, To: past.until, Bucket: q.Step, ByJob: true}, missing, each)
	})
	for i := range before {
		all := make([]client.StatsBucket, 0, len(before[i])+len(shown[i].lane.Buckets))
		for k := range before[i] {
			all = append(all, bucketOf(&before[i][k]))
		}
		shown[i].lane.Buckets = append(all, shown[i].lane.Buckets...)
	}
	for i := range shown {
		lanes.Items = append(lanes.Items, shown[i].lane)
	}
	return lanes, err
}

func bucketOf(a *store.Aggregate) client.StatsBucket {
	return client.StatsBucket{Start: a.Start, Outcomes: a.Outcomes, Seconds: a.Duration.Seconds(), Longest: a.Longest.Seconds()}
}

// lanesPast is what ended by job from the beginning of lanes until a moment. It is in memory as long as
// stretches are: a page is read again each ten seconds, and most of a day is settled.
type lanesPast struct {
	read, until     time.Time
	totals, columns countsOfJobs // of at most totalsKept and lanesMax jobs
}

// lanesBegin names lanes by when they begin.
type lanesBegin struct {
	from int64
	step time.Duration
}

// pastOf returns what is settled of lanes, which may be nothing.
func (s *Stats) pastOf(from, to time.Time, step time.Duration, now time.Time) *lanesPast {
	until := to
	if settled := now.Add(-settledAfter); settled.Before(until) {
		until = settled
	}
	if until = time.Unix(0, floor(until.UnixNano(), int64(step))).UTC(); until.Before(from) {
		until = from
	}
	key := lanesBegin{from.UnixNano(), step}
	if past, ok := s.past.Get(key); ok && !past.until.After(until) && now.Sub(past.read) < keptFor && !now.Before(past.read) {
		return past
	}
	past := &lanesPast{read: now, until: until, totals: countsOfJobs{most: totalsKept}, columns: countsOfJobs{most: lanesMax}}
	s.past.Put(key, past, lanesKept)
	return past
}

// countsOfJobs are counts that are in memory, by job.
type countsOfJobs struct {
	mu    sync.Mutex
	known map[job.ID][]store.Aggregate
	most  int // of jobs
}

// of returns the counts of some jobs in their order, and reads the missing ones.
func (c *countsOfJobs) of(uids []job.ID, read func(missing []job.ID, each func(*store.Aggregate)) error) ([][]store.Aggregate, error) {
	counts := make([][]store.Aggregate, len(uids))
	at := map[job.ID]int{} // the missing ones
	var missing []job.ID
	c.mu.Lock()
	for i, uid := range uids {
		var ok bool
		if counts[i], ok = c.known[uid]; !ok {
			missing, at[uid] = append(missing, uid), i
		}
	}
	c.mu.Unlock()
	if len(missing) == 0 {
		return counts, nil
	}
	if err := read(missing, func(a *store.Aggregate) { counts[at[a.Job]] = append(counts[at[a.Job]], *a) }); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known)+len(at) > c.most {
		c.known = map[job.ID][]store.Aggregate{}
	}
	for uid, i := range at {
		c.known[uid] = counts[i]
	}
	return counts, nil
}

type jobLane struct {
	uid  job.ID
	lane client.Lane
}

// add adds to the numbers of the lane.
func (l *jobLane) add(a *store.Aggregate) {
	for outcome, count := range a.Outcomes {
		l.lane.Runs += count
		if outcome.Alarms() {
			l.lane.Failed += count
		}
	}
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

// ofJobs passes the counts of jobs on, by the time of their buckets.
func (s *Stats) ofJobs(ctx context.Context, q store.AggregateQuery, uids []job.ID, each func(*store.Aggregate)) error {
	if !q.From.Before(q.To) {
		return nil
	}
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
