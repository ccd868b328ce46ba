package worker

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
	w.resultsMu.Lock()
	results := len(w.results)
	w.resultsMu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return Stats{Held: max(0, len(w.items)-w.busy), Pending: len(w.pending), Busy: w.busy, Results: results}
}
