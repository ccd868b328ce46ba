package service

import (
	"context"
	"slices"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// liveSessions returns the sessions that runs can be placed on.
func (s *base) liveSessions(ctx context.Context) ([]store.Session, error) {
	sessions, err := s.nodes.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	now, err := s.nodes.Now(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(sessions, func(s store.Session) bool { return !s.Live(now) }), nil
}

// warnOfBarred warns of jobs that no live node may run. They are created all the same: nodes may
// come later.
func (d *Documents) warnOfBarred(ctx context.Context, steps []*step) error {
	live, err := d.liveSessions(ctx)
	if err != nil {
		return err
	}
	inParts(len(steps), func(i int) {
		s := steps[i]
		if s.document.Job == nil || s.result.Result == client.Deleted {
			return
		}
		if s.result.Barred = placement.Barred(s.document.Job.WithDefaults(d.rules.defaults), live).String(); s.result.Barred != "" {
			s.result.Warnings = append(s.result.Warnings, s.result.Barred)
		}
	})
	return nil
}

// barredLookMax is how many jobs are examined, beginning with those that fall due next: reading
// them takes some ten milliseconds.
const barredLookMax = 500

// barred finds active jobs that no live node may run.
func (s *Attention) barred(ctx context.Context, of scope) (list []client.Attention, err error) {
	live, err := s.jobs.liveSessions(ctx)
	if err != nil || len(live) == 0 {
		return nil, err
	}
	now, err := s.jobs.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	query := client.JobQuery{State: job.JobActive, Sort: client.ByNext}
	jobs, _, err := s.jobs.part(ctx, of, &query, "", barredLookMax, &now)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if why := placement.Barred(j.Filled, live); !why.IsZero() {
			list = append(list, saying(client.Attention{Kind: client.AttentionBarred, Severity: client.SeverityBad, Job: j.Definition.FullName()}, why))
		}
	}
	return list, nil
}
