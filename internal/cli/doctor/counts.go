package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// countedFor is how much of history the doctor counts twice, and countedUntil how long ago it ends: by then
	// its slices are counted.
	countedFor   = 30 * time.Minute
	countedUntil = 30 * time.Minute
)

// countsOfHistory reports whether the counts of history agree with its runs.
func countsOfHistory(ctx context.Context, server *Server, now time.Time) Finding {
	f := Finding{Check: "counts", Status: Well, Found: "the counts of history agree with its runs"}
	to := now.Add(-countedUntil).Truncate(store.Slice)
	q := client.StatsQuery{From: to.Add(-countedFor), To: to, Step: time.Minute}
	runs, err := server.Stats(ctx, q)
	var counts client.Stats
	if err == nil {
		q.Step = store.Slice
		counts, err = server.Stats(ctx, q)
	}
	if err != nil {
		f.Status, f.Found = Note, "not checked: "+server.Refused(err).Error()
		return f
	}
	if at, outcome, n, counted := disagreement(runs, counts); n > 0 {
		f.Status, f.Found = Wrong, fmt.Sprintf("%d runs ended %s in the five minutes from %s, and %d are counted", n, outcome, at.Format(time.RFC3339), counted)
		f.Do = "the timeline and statistics show too little; report it with the version of the server"
	}
	return f
}

// disagreement returns the first slice and outcome with fewer counted runs than there are; n is 0
// without one. More counts are possible, since they stay when runs expire.
func disagreement(runs, counts client.Stats) (at time.Time, outcome job.Outcome, n, counted int) {
	there, inCounts := map[time.Time]map[job.Outcome]int{}, map[time.Time]map[job.Outcome]int{}
	var order []time.Time
	for _, b := range runs.Items {
		start := b.Start.Truncate(store.Slice)
		if there[start] == nil {
			there[start] = map[job.Outcome]int{}
			order = append(order, start)
		}
		for o, n := range b.Outcomes {
			there[start][o] += n
		}
	}
	for _, b := range counts.Items {
		inCounts[b.Start] = b.Outcomes
	}
	for _, start := range order {
		for _, name := range outcome.Values() {
			o := job.Outcome(name)
			if there[start][o] > inCounts[start][o] {
				return start, o, there[start][o], inCounts[start][o]
			}
		}
	}
	return at, outcome, 0, 0
}
