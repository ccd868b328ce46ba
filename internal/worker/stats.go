package worker

import (
	"bytes"
	"slices"

	"github.com/belfry-cron/belfry/internal/agenda"
	"github.com/belfry-cron/belfry/job"
)

// Stats are what a worker holds at a moment.
type Stats struct {
	// Held are the runs in memory that are not claimed, Pending those of them
	// that are due.
	Held, Pending int
	// Busy are the attempts that take capacity, Results those of them whose
	// result the store has not acknowledged.
	Busy, Results int
}

// Stats returns what the worker holds.
func (w *Worker) Stats() Stats {
	results := w.results.len()
	w.mu.Lock()
	defer w.mu.Unlock()
	load := w.mind.Load()
	return Stats{Held: load.Held, Pending: load.Pending, Busy: load.Busy, Results: results}
}

// Running is an attempt that is running.
type Running struct {
	Job     string // its full name
	Run     job.ID
	Attempt int
}

// Running returns the attempts that are running, by run, which is about the order
// in which they were planned.
func (w *Worker) Running() []Running {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []Running
	w.mind.Items(agenda.Running, func(it *item) {
		list = append(list, Running{it.With.run.Namespace + "/" + it.With.run.Name, it.With.run.ID, it.Attempt.Number})
	})
	slices.SortFunc(list, func(a, b Running) int { return bytes.Compare(a.Run[:], b.Run[:]) })
	return list
}
