package ledger

import (
	"context"

	"github.com/belfry-cron/belfry/store"
)

// Register implements [store.Registry]. Backends receive each address of a group once.
func (s *Control) Register(ctx context.Context, list []store.Registration) error {
	if len(list) > store.MaxBatch {
		return store.ErrTooMany
	}
	places := map[store.Registration]int{}
	once := make([]store.Registration, 0, len(list))
	for _, r := range list {
		key := store.Registration{Kind: r.Kind, Group: r.Group, Address: r.Address}
		if at, ok := places[key]; ok {
			once[at] = r
			continue
		}
		places[key] = len(once)
		once = append(once, r)
	}
	if len(once) == 0 {
		return nil
	}
	return s.ControlBackend.Register(ctx, once)
}

// Unregister implements [store.Registry].
func (s *Control) Unregister(ctx context.Context, list []store.Registration) error {
	if len(list) > store.MaxBatch {
		return store.ErrTooMany
	}
	if len(list) == 0 {
		return nil
	}
	return s.ControlBackend.Unregister(ctx, list)
}
