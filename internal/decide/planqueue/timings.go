package planqueue

import (
	"github.com/belfry-cron/belfry/internal/decide/forecast"
	"github.com/belfry-cron/belfry/job"
)

// Timings returns the distinct schedules of the active jobs. of restricts the jobs; nil means all.
func (t *Queue) Timings(of []job.ID) []forecast.Timing {
	jobs := make(map[uint32]int, len(t.timings))
	if of == nil {
		for i := range t.timings {
			jobs[uint32(i)] = t.timings[i].jobs
		}
	}
	for _, uid := range of {
		if i, ok := t.byUID[uid]; ok {
			jobs[t.entries[i].timing]++
		}
	}
	list := make([]forecast.Timing, 0, len(jobs))
	for i, n := range jobs {
		if tm := &t.timings[i]; n > 0 && tm.broken == "" && tm.engine.Schedule != nil {
			list = append(list, forecast.Timing{Schedule: tm.engine.Schedule, Jobs: n, Spread: tm.engine.Spread})
		}
	}
	return list
}
