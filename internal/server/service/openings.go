package service

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// openingsMax is the most openings of one window in a list: more are a pattern that its schedule
// says better.
const openingsMax = 100

// windows returns the maintenance windows of the store, compiled.
func (b *rulebook) windows(ctx context.Context) (*engine.Windows, error) {
	list, err := b.store.Documents(ctx, job.KindWindow, job.KindCalendar)
	if err != nil {
		return nil, err
	}
	all := engine.Documents{}
	for _, d := range list {
		all.Put(d)
	}
	return engine.NewWindows(all), nil
}

// openingOver returns the opening that applies to a job at a moment, nil for none.
func openingOver(ws *engine.Windows, j *store.Job, at time.Time) *client.Opening {
	if j.Filled.Run.IsReported() {
		return nil
	}
	open, yes := ws.Open(j.Filled.Namespace, j.Filled.Labels, at)
	if !yes {
		return nil
	}
	shown := shownOpening(&open)
	return &shown
}

func shownOpening(o *engine.Opening) client.Opening {
	return client.Opening{Window: o.Window, Action: o.Action, Opened: o.Opened, Until: o.Until, Why: client.WhyOf(o.Reason())}
}

// Openings returns when the windows that match jobs of a namespace, or of all, are open within a
// span, in the order of their beginnings.
func (s *Load) Openings(ctx context.Context, who Caller, namespace string, from, to time.Time) ([]client.Opening, error) {
	of, err := who.reads(namespace)
	if err != nil {
		return nil, err
	}
	return s.openings(ctx, from, to, func(w *job.Window) bool {
		in := w.In()
		return slices.Contains(in, job.AllNamespaces) || slices.ContainsFunc(in, of.has)
	})
}

// OpeningsOf is Openings for a job with labels, whose work Belfry starts.
func (s *Load) OpeningsOf(ctx context.Context, who Caller, namespace string, labels map[string]string, from, to time.Time) ([]client.Opening, error) {
	if _, err := who.reads(namespace); err != nil {
		return nil, err
	}
	return s.openings(ctx, from, to, func(w *job.Window) bool { return w.Matches(namespace, labels) })
}

func (s *Load) openings(ctx context.Context, from, to time.Time, chosen func(*job.Window) bool) ([]client.Opening, error) {
	list := []client.Opening{}
	now := s.jobs.now()
	from = cmp.Or(from, now)
	to = cmp.Or(to, from.Add(24*time.Hour))
	switch {
	case !from.Before(to):
		return list, WrongParameter("from", phrase.NotBeforeEnd.Of(phrase.MomentOf(to)))
	case to.Sub(now) > aheadMax:
		return list, WrongParameter("to", phrase.TooFarAhead)
	}
	ws, err := s.jobs.rules.windows(ctx)
	if err != nil {
		return list, err
	}
	for _, o := range ws.Between(from, to, openingsMax, chosen) {
		list = append(list, shownOpening(&o))
	}
	return list, nil
}
