package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Registry keeps receivers of work that register themselves, such as the executors of XXL-JOB: they
// have no session, and count while they repeat their registration.
type Registry interface {
	// Register records a sign of life of each receiver, by the store's clock. It updates existing
	// registrations. It takes at most [MaxBatch].
	Register(ctx context.Context, list []Registration) error
	// Unregister removes registrations at once. Unknown ones are ignored.
	Unregister(ctx context.Context, list []Registration) error
	// Registrations returns the registrations of a kind with a sign of life in the last
	// [RegistrationLife], by group and address, at most [RegistrationsMax].
	Registrations(ctx context.Context, kind string) ([]Registration, error)
}

// ExecutorsOfXXL is the kind of the registrations of executors of XXL-JOB.
const ExecutorsOfXXL = "xxl"

const (
	// RegistrationLife is how long after its last sign of life a registration counts: executors of
	// XXL-JOB register each 10 to 30 s, and one or two calls may be lost.
	RegistrationLife = 90 * time.Second
	// RegistrationsMax is the most registrations of a kind: each node keeps all of them in
	// memory, and reads them every two seconds.
	RegistrationsMax = 10_000
)

// Registration is a registered receiver of work.
type Registration struct {
	Kind, Group, Address string // together its key
	// Generation is its variant of the protocol; "" for the usual one.
	Generation string
	// Seen is the time of its last sign of life, set by the store.
	Seen time.Time
	// Listed is set for an executor that a document lists. Stores do not keep it.
	Listed bool
}

// Candidates returns the executors that can receive work, by group and address: registered ones,
// and executors listed in documents, which need no sign of life.
func Candidates(registered []Registration, listed []job.Document) []Registration {
	all := slices.Clone(registered)
	for _, l := range listed {
		for _, address := range l.Executors.Addresses {
			all = append(all, Registration{Kind: ExecutorsOfXXL, Group: l.Executors.Appname(), Address: strings.TrimRight(address, "/"), Listed: true})
		}
	}
	slices.SortStableFunc(all, func(a, b Registration) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Address, b.Address))
	})
	rest := all[:0]
	for _, one := range all {
		if n := len(rest); n > 0 && rest[n-1].Group == one.Group && rest[n-1].Address == one.Address {
			rest[n-1].Listed = rest[n-1].Listed || one.Listed // the executor is registered as well
			continue
		}
		rest = append(rest, one)
	}
	return rest
}

// Live reports whether a registration is live at a moment of the store's clock.
func (r *Registration) Live(now time.Time) bool { return now.Sub(r.Seen) < RegistrationLife }
