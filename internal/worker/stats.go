package worker

import (
	"bytes"
	"slices"

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
	return Stats{Held: max(0, len(w.items)-w.busy), Pending: w.pending.len(), Busy: w.busy, Results: results}
}

// Running is an attempt that is going on.
type Running struct {
	Job     string // its full name
	Run     job.ID
	Attempt int
}

// Running returns the attempts that are going on, by run, which is about the order
// in which they were planned.
func (w *Worker) Running() []Running {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []Running
	for _, it := range w.items {
		if it.state == running {
			list = append(list, Running{it.run.Namespace + "/" + it.run.Name, it.run.ID, it.attempt.Number})
		}
	}
	slices.SortFunc(list, func(a, b Running) int { return bytes.Compare(a.Run[:], b.Run[:]) })
	return list
}
