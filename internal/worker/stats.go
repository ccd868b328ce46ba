package worker

import (
	"bytes"
	"slices"

	"github.com/belfry-cron/belfry/internal/agenda"
	"github.com/belfry-cron/belfry/job"
)

// Stats are the worker's numbers at a moment.
type Stats struct {
	// Held are the unclaimed runs in memory, Pending those of them that are due.
	Held, Pending int
	// Busy are the attempts that take capacity, Results those of them whose result the
	// store has not acknowledged.
	Busy, Results int
}

// Stats returns the worker's numbers.
func (w *Worker) Stats() Stats {
	load := w.load()
	return Stats{Held: load.Held, Pending: load.Pending, Busy: load.Busy, Results: w.results.len()}
}

// Running is an attempt that is running.
type Running struct {
	Job     string // its full name
	Run     job.ID
	Attempt int
}

// Running returns the running attempts, by run, which is about the order in which they were
// planned.
func (w *Worker) Running() []Running {
	var running []*item
	w.decide(func(mind *agenda.Agenda[claim]) { running = mind.All(agenda.Running) })
	list := make([]Running, len(running))
	for i, it := range running {
		list[i] = Running{it.With.run.Namespace + "/" + it.With.run.Name, it.With.run.ID, it.Attempt.Number}
	}
	slices.SortFunc(list, func(a, b Running) int { return bytes.Compare(a.Run[:], b.Run[:]) })
	return list
}
