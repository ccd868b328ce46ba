package planner

import "time"

// Stats are what a planner has at a moment.
type Stats struct {
	// Jobs is how many jobs it plans: those of its partitions that are neither
	// paused nor completed, and of which it knows how far they are planned.
	Jobs int
	// Held is how many of them wait to catch up what was missed.
	Held int
	// Ahead is how far ahead all others are planned, at most LookAhead. It is
	// less than 0 when something that was due is not planned.
	Ahead time.Duration
}

// Stats returns what the planner has.
func (p *Planner) Stats() Stats {
	now := p.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Held: len(p.table.held), Ahead: p.LookAhead}
	for partition, sum := range p.table.sums {
		if p.mine.Has(uint8(partition)) {
			s.Jobs += sum.Jobs
		}
	}
	s.Jobs = max(0, s.Jobs-len(p.gained))
	if first, ok := p.table.due.Next(); ok {
		s.Ahead = min(s.Ahead, time.Unix(0, first).Sub(now))
	}
	return s
}
