package nodebench

import (
	"context"
	"os"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// aboutCounts is what the scenarios of counts measure.
const aboutCounts = "100,000 missed runs that do nothing, and counting them for pages,"

const (
	// countsGoal is the most that counting finished runs for pages may cost, as a part of what they cost.
	countsGoal = 0.05
	// countsRounds is how many backlogs are made up for and counted, in turns.
	countsRounds = 3
	// countsLater is how much later they are counted: their slices are over by then.
	countsLater = time.Hour
)

// counts measures what the counts of history cost, beside the runs that are counted. A step that ends runs
// writes none of them, so the runs are what the same code takes without counts.
func (b *bench) counts(ctx context.Context, on backend) (figures []Figure, err error) {
	load := backlog{jobs: b.scaled(2000, 20), down: b.scaled(50, 10)}
	for range b.scaled(countsRounds, 1) {
		f, err := b.countsOnce(ctx, on, load)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

func (b *bench) countsOnce(ctx context.Context, on backend, load backlog) (figures []Figure, err error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p, err := on.make(dir)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := load.miss(ctx, p); err != nil {
		return nil, err
	}
	r, err := load.catchUp(ctx, p, 1, patience)
	if err != nil {
		return nil, err
	}
	counting, err := p.expire(ctx)
	if err != nil {
		return nil, err
	}
	rest, err := p.expire(ctx) // nothing is left to count
	if err != nil {
		return nil, err
	}
	n := time.Duration(r.finished)
	took, worked := max(0, counting.took-rest.took), max(0, counting.nodes+counting.server-rest.nodes-rest.server)/n
	runs := r.nodes + r.server
	cost := func(what string, part float64) Figure {
		f := fact(what, number(100*part, 2)+" %")
		if goal := b.scaledGoal(countsGoal); goal > 0 {
			f.Goal, f.missed = "≤ "+number(100*goal, 0)+" %", part > goal
		}
		return f
	}
	return []Figure{
		cost("time of counting, of that of the runs", took.Seconds()/r.took.Seconds()).beside(times(took) + " after " + times(r.took) + " of runs"),
		cost("processor time of counting, of that of the runs", float64(worked)/float64(runs)).beside(times(worked) + " of each, beside " + times(runs)),
	}, nil
}

// expire makes a round of expiry, which counts what has ended, some time later.
func (p place) expire(ctx context.Context) (r caughtUp, err error) {
	s, err := p.open(ctx, -countsLater)
	if err != nil {
		return r, err
	}
	defer s.Close()
	own, server, err := p.spent()
	if err != nil {
		return r, err
	}
	began := time.Now()
	for more := true; more; {
		if more, err = s.Expire(ctx, store.Retention{}); err != nil {
			return r, err
		}
	}
	r.took, r.finished = time.Since(began), 1
	return r, r.charge(p, own, server)
}
