package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/belfry-cron/belfry/store"
)

// Register implements ledger.Backend.
func (s *backend) Register(ctx context.Context, list []store.Registration) error {
	return s.withRegistry(ctx, func() {
		for _, r := range list {
			r.Seen = s.now()
			s.registrations[registryKey(r)] = r
		}
	})
}

// Unregister implements ledger.Backend.
func (s *backend) Unregister(ctx context.Context, list []store.Registration) error {
	return s.withRegistry(ctx, func() {
		for _, r := range list {
			delete(s.registrations, registryKey(r))
		}
	})
}

// Registrations implements ledger.Backend.
func (s *backend) Registrations(ctx context.Context, kind string) (list []store.Registration, err error) {
	err = s.withRegistry(ctx, func() { list = s.registered(kind) })
	return list, err
}

// registered returns the registrations of a kind that count. The store is locked.
func (s *backend) registered(kind string) (list []store.Registration) {
	for _, r := range s.registrations {
		if r.Kind == kind && r.Live(s.now()) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b store.Registration) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Address, b.Address))
	})
	return list[:min(len(list), store.RegistrationsMax)]
}

// withRegistry does something with the store locked.
func (s *backend) withRegistry(ctx context.Context, do func()) error {
	unlock, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	do()
	return nil
}

// registryKey returns what a registration is known by.
func registryKey(r store.Registration) store.Registration {
	return store.Registration{Kind: r.Kind, Group: r.Group, Address: r.Address}
}
