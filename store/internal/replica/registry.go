package replica

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// registryKeys are the keys of registrations. They are not copied, since no step decides by them
// and they are rewritten often.
const registryKeys = "registry/"

func registryOf(kind string) string { return registryKeys + kind + "/" }

func registryKey(r *store.Registration) string {
	return registryOf(r.Kind) + url.PathEscape(r.Group) + "/" + url.PathEscape(r.Address)
}

// Register implements ledger.Backend.
func (b *Backend) Register(ctx context.Context, list []store.Registration) error {
	now, err := b.Now(ctx)
	if err != nil {
		return err
	}
	most, _ := b.driver.Bounds()
	for some := range slices.Chunk(list, most) {
		t := newTxn()
		for i := range some {
			r := some[i]
			r.Seen = now
			value, err := json.Marshal(r)
			if err != nil {
				return err
			}
			t.put(registryKey(&r), value)
		}
		if _, _, err := b.commit(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// Unregister implements ledger.Backend.
func (b *Backend) Unregister(ctx context.Context, list []store.Registration) error {
	keys := map[string]bool{} // delete each key once
	for i := range list {
		keys[registryKey(&list[i])] = true
	}
	most, _ := b.driver.Bounds()
	for some := range slices.Chunk(slices.Collect(maps.Keys(keys)), most) {
		t := newTxn()
		t.Deletes = some
		if _, _, err := b.commit(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// Registrations implements ledger.Backend.
func (b *Backend) Registrations(ctx context.Context, kind string) ([]store.Registration, error) {
	now, err := b.Now(ctx)
	if err != nil {
		return nil, err
	}
	var live []store.Registration
	err = b.eachRegistration(ctx, registryOf(kind), func(r store.Registration, _ Pair) {
		if r.Live(now) {
			live = append(live, r)
		}
	})
	slices.SortFunc(live, func(a, c store.Registration) int {
		return cmp.Or(cmp.Compare(a.Group, c.Group), cmp.Compare(a.Address, c.Address))
	})
	return live[:min(len(live), store.RegistrationsMax)], err
}

// registryPage is how many registrations are read at once.
const registryPage = 1000

// eachRegistration calls a function with all registrations whose keys have a prefix. It
// skips unreadable ones, from a newer version of the program.
func (b *Backend) eachRegistration(ctx context.Context, keys string, see func(store.Registration, Pair)) error {
	for from := keys; ; {
		pairs, err := b.driver.Range(ctx, from, keys+"\xff", registryPage, false)
		if err != nil {
			return err
		}
		for _, p := range pairs {
			var r store.Registration
			if json.Unmarshal(p.Value, &r) == nil {
				see(r, p)
			}
		}
		if len(pairs) < registryPage {
			return nil
		}
		from = pairs[len(pairs)-1].Key + "\x00"
	}
}

// registrySweepEvery is the interval of checks for expired registrations: finding them
// reads all.
const registrySweepEvery = time.Minute

// sweepRegistrations removes expired registrations.
func (b *Backend) sweepRegistrations(ctx context.Context, now time.Time) error {
	b.registrySwept.Lock()
	defer b.registrySwept.Unlock()
	if now.Sub(b.registrySwept.at) < registrySweepEvery {
		return nil
	}
	t := newTxn()
	err := b.eachRegistration(ctx, registryKeys, func(r store.Registration, p Pair) {
		if !r.Live(now) && len(t.Deletes) < sweepMax {
			t.Deletes, t.Compares[p.Key] = append(t.Deletes, p.Key), p.Version
		}
	})
	if err == nil && len(t.Deletes) > 0 {
		_, _, err = b.commit(ctx, t) // if one has a newer sign of life, all stay
	}
	if err == nil {
		b.registrySwept.at = now
	}
	return err
}
