package worker

import (
	"bytes"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/job"
)

// Stats are metrics of the worker.
type Stats struct {
	// Held is the number of unclaimed runs in memory, and Pending of the due ones among them.
	Held, Pending int
	// Busy are the attempts that occupy capacity, Results the attempts among them with an
	// unacknowledged result.
	Busy, Results int
}

// Stats returns the worker's numbers.
func (w *Worker) Stats() Stats {
	load := w.load()
	return Stats{Held: load.Held, Pending: load.Pending, Busy: load.Busy, Results: w.results.len()}
}

// Running is a running attempt.
type Running struct {
	Job     string // its full name
	Run     job.ID
	Attempt int
}

// Running returns the running attempts, by run, which is about the order in which they were
// planned.
func (w *Worker) Running() []Running {
	var running []*item
	w.decide(func(queue *runqueue.Queue[claim]) { running = queue.All(runqueue.Running) })
	list := make([]Running, len(running))
	for i, it := range running {
		list[i] = Running{it.With.run.Namespace + "/" + it.With.run.Name, it.With.run.ID, it.Attempt.Number}
	}
	slices.SortFunc(list, func(a, b Running) int { return bytes.Compare(a.Run[:], b.Run[:]) })
	return list
}
