package service

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// bucketsMax is how many buckets an answer has: more than a screen has pixels.
	bucketsMax = 2000
	// stepMin is the shortest bucket.
	stepMin = time.Second
	// statisticsRuns is how many of its last runs the statistics of a job are of: reading
	// them takes a store some milliseconds.
	statisticsRuns = 2000
	// settledAfter is how long after its end a stretch of history is kept in memory.
	settledAfter = time.Minute
	// keptFor is how long: a late result replaces the loss of an attempt in the past.
	keptFor = 5 * time.Minute
	// stretchBuckets is how many buckets a stretch has that is read at once and kept: the
	// last one is read each time, so it is short.
	stretchBuckets = 15
	// stretchesMax bounds the stretches in memory, of some kilobytes each.
	stretchesMax = 1000
)

// statsStore is the part of a store that statistics use.
type statsStore interface {
	Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.Aggregate, error)
	Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error)
	Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error)
	Now(ctx context.Context) (time.Time, error)
}

// Stats counts what has run. It counts history itself, so that the numbers agree with it.
type Stats struct {
	*shared
	jobs  *Jobs
	runs  *Runs
	store statsStore

	mu   sync.Mutex
	kept map[stretch]keptStretch
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
// 1970. It begins with the bucket that From is in.
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
	for at := floor(first, stretchBuckets); at < first+int64(n); at += stretchBuckets {
		var list []store.Aggregate
		for i, namespace := range of.namespaces() {
			part, err := s.stretch(ctx, stretch{namespace, uid, q.Step, at}, now)
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
		return first, 0, WrongParameter("step", fmt.Sprintf("is %s, which is not a whole number of seconds", *step), "")
	case !from.Before(*to):
		return first, 0, WrongParameter("from", "is not before the end, "+to.Format(time.RFC3339), "")
	}
	first = time.Unix(0, floor(from.UnixNano(), int64(*step))).UTC()
	count := (to.Sub(first) + *step - 1) / *step
	if count > bucketsMax {
		return first, 0, WrongParameter("step", fmt.Sprintf("makes %d buckets, and at most %d are counted", count, bucketsMax), "choose a longer step or a shorter span")
	}
	return first, int(count), nil
}

// stretch returns the buckets of a stretch, from memory if it is over.
func (s *Stats) stretch(ctx context.Context, w stretch, now time.Time) ([]store.Aggregate, error) {
	s.mu.Lock()
	k, ok := s.kept[w]
	s.mu.Unlock()
	if ok && now.Sub(k.read) < keptFor && !now.Before(k.read) {
		return k.buckets, nil
	}
	from := time.Unix(0, w.from*int64(w.step)).UTC()
	to := from.Add(stretchBuckets * w.step)
	if from.After(now) {
		return nil, nil
	}
	list, err := s.store.Aggregate(ctx, store.AggregateQuery{Namespace: w.namespace, Job: w.job, From: from, To: to, Bucket: w.step})
	if err != nil {
		return nil, err
	}
	if to.Add(settledAfter).Before(now) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.kept == nil || len(s.kept) >= stretchesMax {
			s.kept = map[stretch]keptStretch{}
		}
		s.kept[w] = keptStretch{now, list}
	}
	return list, nil
}

// OfJob returns how the last runs of a job went.
func (s *Stats) OfJob(ctx context.Context, who Caller, name Name) (client.JobStatistics, error) {
	j, err := s.jobs.find(ctx, who, Read, name)
	if err != nil {
		return client.JobStatistics{}, err
	}
	lists, err := s.store.Recent(ctx, []job.ID{j.Definition.UID}, statisticsRuns)
	if err != nil {
		return client.JobStatistics{}, err
	}
	return statisticsOf(lists[0]), nil
}

// statisticsOf sums up final records, the latest first.
func statisticsOf(records []store.Record) client.JobStatistics {
	stats := client.JobStatistics{Runs: len(records), Outcomes: map[job.Outcome]int{}}
	var durations, late []float64
	succeeded, judged := 0, 0
	for i := range records {
		r := &records[i]
		n := max(r.Count, 1)
		stats.Outcomes[r.Attempt.Outcome] += n
		switch {
		case r.Attempt.Outcome == job.OutcomeSucceeded:
			succeeded, judged = succeeded+n, judged+n
			durations = append(durations, r.Attempt.Ended.Sub(endedRun(r).Started).Seconds())
		case r.Attempt.Outcome.Alarms():
			judged += n
		}
		if r.Attempt.Number > 1 {
			stats.Retried++
		}
		if r.Attempt.Number == 1 && !r.Attempt.Started.IsZero() {
			late = append(late, max(0, r.Attempt.Started.Sub(r.Run.Due).Seconds()))
		}
	}
	if n := len(records); n > 0 {
		stats.From, stats.To = records[n-1].Attempt.Ended, records[0].Attempt.Ended
	}
	if judged > 0 {
		rate := float64(succeeded) / float64(judged)
		stats.SuccessRate = &rate
	}
	stats.Duration, stats.Lateness = quantiles(durations), quantiles(late)
	return stats
}

// quantiles returns the quantiles of numbers, each of which is one of them.
func quantiles(numbers []float64) client.Quantiles {
	n := len(numbers)
	if n == 0 {
		return client.Quantiles{}
	}
	slices.Sort(numbers)
	at := func(share float64) float64 { return numbers[max(0, int(math.Ceil(share*float64(n)))-1)] }
	return client.Quantiles{Count: n, P50: at(0.50), P95: at(0.95), P99: at(0.99), Max: numbers[n-1]}
}
