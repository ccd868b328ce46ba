package sqldb

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

var registrationRows = &Table{Name: "registrations", Key: 3, Columns: []Column{
	{"kind", Text}, {"team", Text}, {"address", Text}, {"generation", Text}, {"seen", Int},
}}

// Register implements ledger.Backend.
func (s *backend) Register(ctx context.Context, list []store.Registration) error {
	err := s.write(ctx, func(t *tx) error {
		now, err := t.now()
		if err != nil {
			return err
		}
		b := t.rows(registrationRows, len(list))
		for _, r := range list {
			b.text(r.Kind).text(r.Group).text(r.Address).text(r.Generation).time(now)
		}
		return t.writeRows(Upsert, b)
	})
	return wrapped(err, "register")
}

// Unregister implements ledger.Backend.
func (s *backend) Unregister(ctx context.Context, list []store.Registration) error {
	err := s.write(ctx, func(t *tx) error {
		for _, r := range list {
			if err := t.exec("delete from registrations where kind = ? and team = ? and address = ?", r.Kind, r.Group, r.Address); err != nil {
				return err
			}
		}
		return nil
	})
	return wrapped(err, "unregister")
}

// Registrations implements ledger.Backend.
func (s *backend) Registrations(ctx context.Context, kind string) (list []store.Registration, err error) {
	err = s.read(ctx, func(t *tx) error {
		now, err := t.now()
		if err != nil {
			return err
		}
		list, err = t.registered(kind, now)
		return err
	})
	return list, wrapped(err, "registrations")
}

// registered returns the registrations of a kind that count at a moment.
func (t *tx) registered(kind string, now time.Time) (list []store.Registration, err error) {
	q := t.query("select team, address, generation, seen from registrations where kind = ? and seen > ? order by team, address limit ?",
		kind, columns.Nanos(now.Add(-store.RegistrationLife)), int64(store.RegistrationsMax))
	for q.Next() {
		list = append(list, store.Registration{Kind: kind, Group: q.Text(), Address: q.Text(), Generation: q.Text(), Seen: q.time()})
	}
	return list, q.Err()
}
