package service

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/sys/cache"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// bucketsMax is the most buckets in a response: the hours of 90 days and one more day.
	bucketsMax = 2200
	// stepMin is the shortest bucket.
	stepMin = time.Second
	// statisticsRuns is the number of last runs in the statistics of a job: reading them
	// takes a store some milliseconds.
	statisticsRuns = 2000
	// statisticsFor is how long the statistics of this many runs are cached: the page of a job is
	// read again after each of its runs, and one more run changes them little. Fewer runs are
	// read each time. knownMax bounds the jobs in the cache, of some ten kilobytes each.
	statisticsFor = 10 * time.Second
	knownMax      = 200
	// settledAfter is how long after its end a stretch of history is kept in memory.
	settledAfter = time.Minute
	// keptFor is how long: a late result replaces the loss of an attempt in the past.
	keptFor = 5 * time.Minute
	// stretchBuckets is how many buckets a stretch has that is read at once and kept: the
	// last one is read each time, so it is short.
	stretchBuckets = 5
	// stretchesMax bounds the stretches in memory, of about a kilobyte each.
	stretchesMax = 6000
)

// statsStore is the part of a store that statistics use.
type statsStore interface {
	Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.Aggregate, error)
	Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error)
	Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error)
	Now(ctx context.Context) (time.Time, error)
}

// Stats counts finished runs. It counts history itself, so that the numbers agree with it.
type Stats struct {
	*base
	jobs  *Jobs
	runs  *Runs
	store statsStore

	mu        sync.Mutex
	byStretch map[stretch]keptStretch
	known     cache.Map[ofJob, knownStatistics]
	past      cache.Map[lanesBegin, *lanesPast]
}

// ofJob names the statistics of a job by the days of a time zone.
type ofJob struct {
	uid  job.ID
	zone string
}

type knownStatistics struct {
	read  time.Time
	job   string // its full name
	stats client.JobStatistics
}

// stretch names some buckets that are read at once.
type stretch struct {
	namespace string
	job       job.ID
	step      time.Duration
	from      int64 // in steps since 1970
}

type keptStretch struct {
	read    time.Time
	buckets []store.Aggregate
}

// Over counts what ended within a span, in buckets that begin at multiples of the step since
// 1970. It begins with the bucket that [From] is in.
func (s *Stats) Over(ctx context.Context, who Caller, q client.StatsQuery) (client.Stats, error) {
	stats := client.Stats{Items: []client.StatsBucket{}}
	of, err := who.reads(q.Namespace)
	if err != nil {
		return stats, err
	}
	uid, err := s.runs.jobOf(ctx, who, q.Job)
	if err != nil {
		return stats, err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return stats, err
	}
	from, n, err := buckets(&q.From, &q.To, &q.Step, now.Add(-24*time.Hour), now)
	if err != nil {
		return stats, err
	}
	stats.Step = int(q.Step / time.Second)
	first := from.UnixNano() / int64(q.Step)
	var list []store.Aggregate
	for i, namespace := range of.namespaces() {
		part, err := s.stretches(ctx, stretch{namespace, uid, q.Step, floor(first, stretchBuckets)}, first+int64(n), now)
		if err != nil {
			return stats, err
		}
		if i == 0 && len(of) <= 1 {
			list = part // which is kept, and must not change
		} else {
			list = addUp(list, part)
		}
	}
	for i := range list {
		b := &list[i]
		if b.Start.Before(from) || !b.Start.Before(q.To) {
			continue
		}
		stats.Items = append(stats.Items, client.StatsBucket{
			Start: b.Start, Outcomes: b.Outcomes, Seconds: b.Duration.Seconds(), Longest: b.Longest.Seconds(),
		})
	}
	return stats, nil
}

// floor returns the largest multiple of m that is not above n.
func floor(n, m int64) int64 {
	return int64(math.Floor(float64(n)/float64(m))) * m
}

// buckets fills in and checks a span, and returns the beginning of its first bucket and how
// many there are.
func buckets(from, to *time.Time, step *time.Duration, earliest, latest time.Time) (first time.Time, n int, err error) {
	if to.IsZero() {
		*to = latest
	}
	if from.IsZero() {
		*from = earliest
	}
	if *step == 0 {
		*step = time.Minute
	}
	switch {
	case *step < stepMin || *step%time.Second != 0:
		return first, 0, WrongParameter("step", phrase.NotWholeSeconds.Of(*step))
	case !from.Before(*to):
		return first, 0, WrongParameter("from", phrase.NotBeforeEnd.Of(phrase.MomentOf(*to)))
	}
	first = time.Unix(0, floor(from.UnixNano(), int64(*step))).UTC()
	count := (to.Sub(first) + *step - 1) / *step
	if count > bucketsMax {
		return first, 0, WrongParameter("step", phrase.TooManyBuckets.Of(strconv.FormatInt(int64(count), 10), bucketsMax), phrase.LongerStep)
	}
	return first, int(count), nil
}

// stretches returns the buckets from a stretch until a step. Past stretches are cached; the
// others are read at once.
func (s *Stats) stretches(ctx context.Context, w stretch, until int64, now time.Time) (list []store.Aggregate, err error) {
	missing := w // start of the span to read
	read := func(end int64) error {
		if missing.from < end {
			more, err := s.readStretches(ctx, missing, end, now)
			list = append(list, more...)
			return err
		}
		return nil
	}
	for ; w.from < until && !w.start(w.from).After(now); w.from += stretchBuckets {
		s.mu.Lock()
		k, ok := s.byStretch[w]
		s.mu.Unlock()
		if !ok || now.Sub(k.read) >= keptFor || now.Before(k.read) {
			continue
		}
		if err := read(w.from); err != nil {
			return nil, err
		}
		list = append(list, k.buckets...)
		missing.from = w.from + stretchBuckets
	}
	return list, read(w.from)
}

// start is the moment of a step.
func (w *stretch) start(step int64) time.Time { return time.Unix(0, step*int64(w.step)).UTC() }

// readStretches reads the buckets between two stretches, and caches the past ones.
func (s *Stats) readStretches(ctx context.Context, w stretch, end int64, now time.Time) ([]store.Aggregate, error) {
	list, err := s.store.Aggregate(ctx, store.AggregateQuery{Namespace: w.namespace, Job: w.job, From: w.start(w.from), To: w.start(end), Bucket: w.step})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byStretch == nil || len(s.byStretch) >= stretchesMax {
		s.byStretch = map[stretch]keptStretch{}
	}
	rest := list
	for ; w.from < end; w.from += stretchBuckets {
		to := w.start(w.from + stretchBuckets)
		n := sort.Search(len(rest), func(i int) bool { return !rest[i].Start.Before(to) })
		if to.Add(settledAfter).Before(now) {
			s.byStretch[w] = keptStretch{now, rest[:n:n]}
		}
		rest = rest[n:]
	}
	return list, nil
}

// OfJob returns statistics of the last runs of a job, also by the days of a time zone.
func (s *Stats) OfJob(ctx context.Context, who Caller, name Name, timezone string) (client.JobStatistics, error) {
	if _, err := zoneOf(timezone); err != nil {
		return client.JobStatistics{}, err
	}
	j, err := s.jobs.find(ctx, who, Read, name)
	if err != nil {
		return client.JobStatistics{}, err
	}
	return s.Of(ctx, who, j.Definition.UID, timezone)
}

func zoneOf(timezone string) (*cron.Zone, error) {
	zone, err := cron.LoadZone(cmp.Or(timezone, "UTC"))
	if err != nil {
		return nil, WrongParameter("timezone", phrase.OfError(err), phrase.SuchAs.Of("Europe/Berlin"))
	}
	return zone, nil
}

// Of is OfJob by the uid of the job. It has no runs if the caller may not see the job, or if there is
// none.
func (s *Stats) Of(ctx context.Context, who Caller, uid job.ID, timezone string) (client.JobStatistics, error) {
	none := client.JobStatistics{}
	if err := who.May(Read); err != nil {
		return none, err
	}
	zone, err := zoneOf(timezone)
	if err != nil {
		return none, err
	}
	key, now := ofJob{uid, zone.Name()}, s.now()
	known, ok := s.known.Get(key)
	if age := now.Sub(known.read); !ok || age < 0 || age >= statisticsFor {
		lists, err := s.store.Recent(ctx, []job.ID{uid}, statisticsRuns)
		if err != nil {
			return none, err
		}
		known = knownStatistics{read: now, stats: statisticsOf(lists[0], zone.Location())}
		if len(lists[0]) > 0 {
			known.job = lists[0][0].Run.Namespace + "/" + lists[0][0].Run.Name
		}
		if known.stats.Runs >= statisticsRuns { // few are read quickly
			s.known.Put(key, known, knownMax)
		}
	}
	if known.job == "" || !who.sees(known.job) {
		return statisticsOf(nil, zone.Location()), nil
	}
	return known.stats, nil
}

// tally collects the data of statistics.
type tally struct {
	runs, succeeded, judged, retried int
	durations, late                  []float64
	cpu, memory                      []float64
}

func (p *tally) add(r *store.Record) {
	n := max(r.Count, 1)
	p.runs++
	switch {
	case r.Attempt.Outcome == job.OutcomeSucceeded:
		p.succeeded, p.judged = p.succeeded+n, p.judged+n
		p.durations = append(p.durations, r.Attempt.Ended.Sub(cmp.Or(r.Begun, r.Attempt.Started)).Seconds())
	case r.Attempt.Outcome.Alarms():
		p.judged += n
	}
	if used := &r.Attempt.Usage; used.CPUSeconds > 0 {
		p.cpu = append(p.cpu, used.CPUSeconds)
	}
	if used := &r.Attempt.Usage; used.MemoryBytes > 0 && !used.MemoryAtMost {
		p.memory = append(p.memory, float64(used.MemoryBytes))
	}
	if r.Attempt.Number > 1 {
		p.retried++
	}
	if r.Attempt.Number == 1 && !r.Attempt.Started.IsZero() {
		p.late = append(p.late, max(0, r.Attempt.Started.Sub(r.Run.Due).Seconds()))
	}
}

// rate is the share of successful runs, nil if none says how the job does.
func (p *tally) rate() *float64 {
	if p.judged == 0 {
		return nil
	}
	rate := float64(p.succeeded) / float64(p.judged)
	return &rate
}

// parts are the statistics of parts of the runs, by their key.
type parts[K cmp.Ordered] map[K]*tally

func (p parts[K]) of(key K) *tally {
	if p[key] == nil {
		p[key] = &tally{}
	}
	return p[key]
}

// list returns the statistics in the order of the keys.
func (p parts[K]) list(name func(K, *client.PartStatistics)) []client.PartStatistics {
	list := []client.PartStatistics{}
	for _, key := range slices.Sorted(maps.Keys(p)) {
		of := p[key]
		stats := client.PartStatistics{Runs: of.runs, SuccessRate: of.rate(), Duration: quantiles(of.durations), Lateness: quantiles(of.late)}
		name(key, &stats)
		list = append(list, stats)
	}
	return list
}

// statisticsOf sums up final records, the latest first.
func statisticsOf(records []store.Record, zone *time.Location) client.JobStatistics {
	stats := client.JobStatistics{Runs: len(records), Outcomes: map[job.Outcome]int{}}
	var all tally
	days, nodes, kinds := parts[int64]{}, parts[string]{}, parts[string]{}
	for i := range records {
		r := &records[i]
		stats.Outcomes[r.Attempt.Outcome] += max(r.Count, 1)
		all.add(r)
		year, month, day := r.Attempt.Ended.In(zone).Date()
		days.of(time.Date(year, month, day, 0, 0, 0, 0, zone).Unix()).add(r)
		kinds.of(string(r.Run.Kind)).add(r)
		if r.Attempt.Number > 0 && r.Attempt.Node != "" {
			nodes.of(r.Attempt.Node).add(r)
		}
	}
	if n := len(records); n > 0 {
		stats.From, stats.To = records[n-1].Attempt.Ended, records[0].Attempt.Ended
	}
	stats.SuccessRate, stats.Retried = all.rate(), all.retried
	stats.Duration, stats.Lateness = quantiles(all.durations), quantiles(all.late)
	stats.CPU, stats.Memory = quantiles(all.cpu), quantiles(all.memory)
	stats.Days = days.list(func(at int64, p *client.PartStatistics) { p.At = time.Unix(at, 0).In(zone) })
	named := func(name string, p *client.PartStatistics) { p.Name = name }
	stats.Nodes, stats.Kinds = nodes.list(named), kinds.list(named)
	return stats
}

// quantiles returns the quantiles of numbers, each one of the numbers.
func quantiles(numbers []float64) client.Quantiles {
	n := len(numbers)
	if n == 0 {
		return client.Quantiles{}
	}
	slices.Sort(numbers)
	at := func(share float64) float64 { return numbers[max(0, int(math.Ceil(share*float64(n)))-1)] }
	return client.Quantiles{Count: n, P50: at(0.50), P95: at(0.95), P99: at(0.99), Max: numbers[n-1]}
}
