package service

import (
	"context"
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Executors shows what executors of XXL-JOB are registered.
type Executors struct{ store runStore }

// countedMax bounds the runs that are counted at executors: each is asked for.
const countedMax = store.MaxBatch

// List returns the executors by group and address.
func (s *Executors) List(ctx context.Context, who Caller) ([]client.Executor, error) {
	if err := who.May(Read); err != nil {
		return nil, err
	}
	registered, err := s.store.Registrations(ctx, store.ExecutorsOfXXL)
	if err != nil {
		return nil, err
	}
	list := make([]client.Executor, len(registered))
	for i, r := range registered {
		list[i] = client.Executor{Group: r.Group, Address: r.Address, Generation: r.Generation, Seen: r.Seen}
	}
	running, err := s.running(ctx)
	for i := range list {
		list[i].Running = running[list[i].Address]
	}
	return list, err
}

// running returns how many runs are at each address.
func (s *Executors) running(ctx context.Context) (map[string]int, error) {
	runs, err := s.store.ListActive(ctx, store.ActiveQuery{State: job.StateRunning, Limit: countedMax})
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for i := range runs {
		if !runs[i].Session.IsZero() {
			continue // a node has it
		}
		list, err := s.store.HandoversOfRun(ctx, runs[i].ID)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(list, func(h store.Handover) bool { return h.Kind == store.ExecutorsOfXXL && !h.IsOver() })
		if at >= 0 {
			count[list[at].To]++
		}
	}
	return count, nil
}

// NumberMax bounds the numbers that may be left out: executors in Node read no larger ones.
const NumberMax = 1 << 52

// Raise lets the numbers of runs at executors begin with one that is not below another, so that
// no run has the number of one that another admin has sent. It returns the first.
func (s *Executors) Raise(ctx context.Context, who Caller, r client.NumberRequest) (client.Number, error) {
	if err := who.May(Administer); err != nil {
		return client.Number{}, err
	}
	if r.From < 1 || r.From > NumberMax {
		return client.Number{}, Wrong(client.FieldError{Pointer: "/from", Path: "from", Detail: fmt.Sprintf("must be from 1 to %d", int64(NumberMax))})
	}
	first, err := s.store.Numbers(ctx, 1, r.From)
	return client.Number{First: first}, err
}

// executorOf returns who was asked to do the work of a run last, "" if nodes do it.
func (s *Runs) executorOf(ctx context.Context, id job.ID) (string, error) {
	list, err := s.store.HandoversOfRun(ctx, id)
	if err != nil || len(list) == 0 {
		return "", err
	}
	return list[len(list)-1].To, nil
}
