package doctor

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

func TestTheDoctorComparesCountsWithRuns(t *testing.T) {
	at := time.Date(2026, 11, 28, 2, 40, 0, 0, time.UTC)
	bucket := func(minute int, outcomes map[job.Outcome]int) client.StatsBucket {
		return client.StatsBucket{Start: at.Add(time.Duration(minute) * time.Minute), Outcomes: outcomes}
	}
	runs := client.Stats{Items: []client.StatsBucket{
		bucket(0, map[job.Outcome]int{job.OutcomeSucceeded: 2}), bucket(3, map[job.Outcome]int{job.OutcomeSucceeded: 1, job.OutcomeFailed: 1}),
		bucket(7, map[job.Outcome]int{job.OutcomeFailed: 4}),
	}}
	agree := client.Stats{Items: []client.StatsBucket{
		bucket(0, map[job.Outcome]int{job.OutcomeSucceeded: 5, job.OutcomeFailed: 1}), bucket(5, map[job.Outcome]int{job.OutcomeFailed: 4}),
	}}
	if _, _, n, _ := disagreement(runs, agree); n != 0 {
		t.Errorf("counts with expired runs disagree by %d", n)
	}
	few := client.Stats{Items: agree.Items[:1]}
	if start, outcome, n, counted := disagreement(runs, few); !start.Equal(at.Add(5*time.Minute)) || outcome != job.OutcomeFailed || n != 4 || counted != 0 {
		t.Errorf("a missing slice is %s %s, %d and %d", start, outcome, n, counted)
	}
}
