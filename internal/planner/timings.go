package planner

import (
	"github.com/belfry-cron/belfry/internal/forecast"
	"github.com/belfry-cron/belfry/job"
)

// Timings returns the schedules of the active jobs, those of equal schedules once. Of lists
// the jobs to count; nil is for all.
func (p *Planner) Timings(of []job.ID) []forecast.Timing {
	p.mu.Lock()
	defer p.mu.Unlock()
	jobs := make(map[uint32]int, len(p.table.timings))
	if of == nil {
		for i := range p.table.timings {
			jobs[uint32(i)] = p.table.timings[i].jobs
		}
	}
	for _, uid := range of {
		if i, ok := p.table.byUID[uid]; ok {
			jobs[p.table.entries[i].timing]++
		}
	}
	list := make([]forecast.Timing, 0, len(jobs))
	for i, n := range jobs {
		if t := &p.table.timings[i]; n > 0 && t.broken == "" && t.engine.Schedule != nil {
			list = append(list, forecast.Timing{Schedule: t.engine.Schedule, Jobs: n, Spread: t.engine.Spread})
		}
	}
	return list
}
