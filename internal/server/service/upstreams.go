package service

import (
	"context"
	"errors"
	"strings"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/store"
)

// upstreams finds the jobs that the documents follow, transitively: from the documents, or
// else from the store.
type upstreams struct {
	job    func(namespace, name string) (*store.Job, error)
	of     map[string][]string // by the full name
	absent map[string]bool
	depths map[string]int
}

func (d *Documents) upstreams(ctx context.Context, steps []*step) *upstreams {
	u := &upstreams{
		job: func(namespace, name string) (*store.Job, error) { return store.JobNamed(ctx, d.store, namespace, name) },
		of:  make(map[string][]string, len(steps)), absent: map[string]bool{}, depths: make(map[string]int, len(steps)),
	}
	for _, s := range steps {
		if j := s.document.Job; j != nil {
			u.of[s.result.Name] = engine.Follows(j)
		}
	}
	return u
}

// follows returns the full names of the jobs that a job follows.
func (u *upstreams) follows(full string) ([]string, error) {
	if list, ok := u.of[full]; ok {
		return list, nil
	}
	namespace, name, _ := strings.Cut(full, "/")
	j, err := u.job(namespace, name)
	if errors.Is(err, store.ErrNotFound) {
		u.of[full], u.absent[full] = nil, true
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	u.of[full] = engine.Follows(j.Definition)
	return u.of[full], nil
}

// depth returns the length of the longest chain of upstream jobs. Cycles must not exist.
func (u *upstreams) depth(full string) (int, error) {
	if depth, ok := u.depths[full]; ok {
		return depth, nil
	}
	list, err := u.follows(full)
	if err != nil {
		return 0, err
	}
	depth := 0
	for _, up := range list {
		above, err := u.depth(up)
		if err != nil {
			return 0, err
		}
		depth = max(depth, above+1)
	}
	u.depths[full] = depth
	return depth, nil
}

// cycles adds the mistakes of jobs that would follow themselves through others, among the
// documents or in the store.
func (u *upstreams) cycles(steps []*step, wrong *Error) error {
	for _, s := range steps {
		if s.document.Job == nil || len(s.document.Job.Schedule.On) == 0 {
			continue
		}
		way, err := engine.Cycle(s.result.Name, u.of[s.result.Name], u.follows)
		if err != nil {
			return err
		}
		// The rules have found a job that follows itself directly.
		if len(way) > 2 {
			wrong.withErrors(mistakeAt(s.pointer, "schedule.on", phrase.GoesRound.Of(engine.CycleInWords(way)), phrase.BreakCycle))
		}
	}
	return nil
}

// tell sets the upstream jobs of the steps, and their depth.
func (u *upstreams) tell(steps []*step) (err error) {
	for _, s := range steps {
		if s.document.Job == nil {
			continue
		}
		if s.depth, err = u.depth(s.result.Name); err != nil {
			return err
		}
		s.follows, s.absent = u.of[s.result.Name], u.absent
	}
	return nil
}
