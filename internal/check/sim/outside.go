package sim

import (
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// outside is the receiver of handovers: a service that works, and reports the end. The death of a
// node does not affect it.
type outside struct {
	history *History
	now     func() time.Time

	mu    sync.Mutex
	works map[attemptKey]*outsideWork
	// ended are the tokens of attempts that it was told to end: later requests do not start them.
	ended map[job.ID]bool
}

// outsideWork is an attempt that the service works on.
type outsideWork struct {
	attempt store.Attempt
	seen    *Attempt
	over    bool
}

func newOutside(h *History, now func() time.Time) *outside {
	return &outside{history: h, now: now, works: map[attemptKey]*outsideWork{}, ended: map[job.ID]bool{}}
}

// begin accepts an attempt, and returns nil for one that it was told to end before. It checks that
// nothing is sent twice.
func (o *outside) begin(a store.Attempt, run *job.Run) *outsideWork {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended[a.Token] {
		return nil
	}
	key := attemptKey{a.Run, a.Number}
	if o.works[key] != nil {
		o.history.broken("handed over", "attempt %d of %s of %s was sent twice", a.Number, run.Name, run.Due)
		return nil
	}
	w := &outsideWork{attempt: a, seen: &Attempt{Run: *run, Number: a.Number, Node: "outside", Started: o.now()}}
	o.works[key] = w
	o.history.begin(w.seen)
	return w
}

// end ends work at its own time, and reports whether it was still running.
func (o *outside) end(w *outsideWork, outcome job.Outcome) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w.over {
		return false
	}
	w.over = true
	o.history.end(w.seen, o.now(), outcome)
	return true
}

// kill ends work at the request of a keeper.
func (o *outside) kill(r *store.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended[r.Token] = true
	if w := o.works[attemptKey{r.Run, r.Number}]; w != nil && w.attempt.Token == r.Token && !w.over {
		w.over = true
		o.history.end(w.seen, o.now(), r.Outcome)
	}
}

// sendMax is how long after it was noted a request is sent: a node that stood still for longer
// has given it up.
const sendMax = 5 * time.Second

// fate is the fate of a request, and of the report about its end.
type fate struct {
	arrives bool
	takes   time.Duration
	outcome job.Outcome
	// tells are the times after the end at which it is reported: none for never.
	tells []time.Duration
}

// draw draws what becomes of a request.
func draw(calm bool, chance func(permille int) bool, between func(least, most time.Duration) time.Duration) fate {
	f := fate{arrives: true, takes: between(10*time.Millisecond, 6*time.Second), outcome: job.OutcomeSucceeded, tells: []time.Duration{0}}
	if chance(120) {
		f.outcome = job.OutcomeFailed
	}
	if calm {
		return f
	}
	if chance(200) {
		f.takes *= 15
	}
	if chance(150) {
		f.takes = 0 // before the answer to the request
	}
	switch {
	case chance(30):
		f.arrives = false
	case chance(40):
		f.tells = nil
	case chance(60):
		f.tells = []time.Duration{between(time.Second, 3*time.Minute)}
	case chance(150):
		f.tells = append(f.tells, between(0, time.Minute))
	}
	return f
}

// checkHandedOver: what was handed over ends by a result, a cancel or its timeout, and never by
// the end of a node.
func (c *checker) checkHandedOver() {
	for key, handed := range c.handed {
		record := c.record(key)
		if record == nil {
			continue
		}
		switch ended := record.Attempt.Ended; {
		case record.Attempt.Outcome == job.OutcomeLost:
			c.problem("handed over", "attempt %d of %s of %s was handed over and is lost: %s", key.number, record.Run.Name, record.Run.Due, record.Attempt.Reason)
		case record.Attempt.Outcome == job.OutcomeTimedOut && ended.Before(handed.at.Add(handed.timeout)):
			c.problem("handed over", "attempt %d of %s of %s timed out after %s", key.number, record.Run.Name, record.Run.Due, ended.Sub(handed.at))
		}
		for _, a := range c.absences {
			if a.from.After(handed.at) && record.Attempt.Ended.After(a.to) {
				c.Outlived++
				break
			}
		}
	}
}

// handedOver is when an attempt was handed over, and for how long.
type handedOver struct {
	token   job.ID
	at      time.Time
	timeout time.Duration
}
