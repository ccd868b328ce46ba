// Package forecast counts how often schedules fall due in future spans of time. It is pure: the
// caller passes the schedules and the span.
package forecast

import (
	"math"
	"time"
)

// Schedule is what falls due at moments.
type Schedule interface {
	// Next returns the first moment after t, the zero time for none.
	Next(t time.Time) time.Time
}

// Timing is a schedule that some jobs share.
type Timing struct {
	Schedule Schedule
	// Jobs is how many jobs have it.
	Jobs int
	// Spread is the span over which these are spread evenly, 0 for none.
	Spread time.Duration
}

// look is the number of moments counted one by one before a stretch is skipped. A stretch that is
// as regular at its end as before it counts as regular throughout, so that a schedule of seconds
// costs some dozen evaluations in a step and not one for each moment.
const look = 8

// Counts adds up the starts in steps of a span.
type Counts struct {
	from  time.Time
	step  time.Duration
	steps []float64
}

// New returns empty counts of n steps from a moment on.
func New(from time.Time, step time.Duration, n int) *Counts {
	return &Counts{from: from, step: step, steps: make([]float64, n)}
}

// Add counts the moments of a timing.
func (c *Counts) Add(t Timing) {
	if t.Jobs == 0 {
		return
	}
	end := c.from.Add(time.Duration(len(c.steps)) * c.step)
	// Earlier due occurrences may be spread into the span.
	at := c.from.Add(-t.Spread - 1)
	for {
		next := t.Schedule.Next(at)
		if next.IsZero() || !next.Before(end) {
			return
		}
		i := int64(math.Floor(float64(next.Sub(c.from)) / float64(c.step)))
		until := c.from.Add(time.Duration(i+1) * c.step)
		n := 0
		n, at = count(t.Schedule, next, until)
		c.put(i, float64(n*t.Jobs), t.Spread)
	}
}

// count returns the number of moments from first to a bound, and the last moment before the bound.
func count(s Schedule, first, until time.Time) (n int, last time.Time) {
	n, last = 1, first
	gap, equal, stretch := time.Duration(0), 0, look
	for {
		if far := last.Add(time.Duration(stretch) * gap); equal >= look && far.Before(until) && s.Next(far.Add(-1)).Equal(far) {
			n, last, stretch = n+stretch, far, 2*stretch
			continue
		}
		next := s.Next(last)
		if next.IsZero() || !next.Before(until) {
			return n, last
		}
		if next.Sub(last) == gap {
			equal++
		} else {
			gap, equal = next.Sub(last), 1
		}
		n, last, stretch = n+1, next, max(look, stretch/2)
	}
}

// put adds starts to a step, or spreads them over the steps that follow it.
func (c *Counts) put(i int64, starts float64, spread time.Duration) {
	over := int64(1)
	if spread > c.step {
		over = int64(spread / c.step)
	}
	for k := max(i, 0); k < min(i+over, int64(len(c.steps))); k++ {
		c.steps[k] += starts / float64(over)
	}
}

// Starts returns the starts of each step, rounded.
func (c *Counts) Starts() []int {
	list := make([]int, len(c.steps))
	for i, n := range c.steps {
		list[i] = int(math.Round(n))
	}
	return list
}

// Spread spreads the starts of each step evenly over that step and the next ones, over n steps in
// all, and returns the new counts. Starts beyond the last step are dropped.
func Spread(starts []int, over int) []int {
	c := Counts{step: 1, steps: make([]float64, len(starts))}
	for i, n := range starts {
		c.put(int64(i), float64(n), time.Duration(over))
	}
	return c.Starts()
}
