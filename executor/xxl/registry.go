package xxlexec

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// beatEvery is how often a sign of life without news is written: four times within the life of a
// registration.
const beatEvery = 20 * time.Second

// registry is this node's copy of the registered and listed executors. It includes received
// registrations that are not written yet.
type registry struct {
	mu sync.Mutex
	// groups are the executors of each group, by address.
	groups map[string][]store.Registration
	// read is when the copy was read, by the clock of this process; zero before.
	read time.Time
	// written is when this node last wrote each sign of life, by the clock of this process, and
	// waiting are the ones to be written.
	written map[store.Registration]time.Time
	waiting map[store.Registration]store.Registration
	// learned are addresses whose generation turned out to differ from their registration.
	learned map[string]string
	changes int
}

func (r *registry) init() {
	r.groups, r.written = map[string][]store.Registration{}, map[store.Registration]time.Time{}
	r.waiting, r.learned = map[store.Registration]store.Registration{}, map[string]string{}
}

// keyOf returns the key of a registration.
func keyOf(r store.Registration) store.Registration {
	return store.Registration{Kind: r.Kind, Group: r.Group, Address: r.Address}
}

// refresh reads the registry.
func (a *Admin) refresh(ctx context.Context) error {
	before := a.registry.changed()
	list, err := a.store.Registrations(ctx, Kind)
	if err != nil {
		return fmt.Errorf("read the executors: %w", err)
	}
	listed, err := a.store.Documents(ctx, job.KindExecutors)
	if err != nil {
		return fmt.Errorf("read the executors that are listed: %w", err)
	}
	a.registry.set(store.Candidates(list, listed), before)
	a.groups.refresh(ctx, a, listed)
	return nil
}

// changed returns how often requests to this node have changed its copy.
func (r *registry) changed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}

// set replaces the copy by the read registry, unless it has changed since the read.
func (r *registry) set(list []store.Registration, before int) {
	groups := map[string][]store.Registration{}
	for _, one := range list {
		groups[one.Group] = append(groups[one.Group], one)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes != before {
		return // the next poll reads all changes
	}
	r.groups, r.read = groups, time.Now()
	for key, at := range r.written {
		if time.Since(at) > store.RegistrationLife {
			delete(r.written, key)
		}
	}
}

// find returns an executor of the copy.
func (r *registry) find(key store.Registration) (store.Registration, bool) {
	for _, one := range r.groups[key.Group] {
		if one.Address == key.Address {
			return one, true
		}
	}
	return store.Registration{}, false
}

// has reports whether an address is registered in a group. A listed one shows life only by its
// answers.
func (r *registry) has(group, address string, answers bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.find(store.Registration{Group: group, Address: address})
	return ok && (isRegistered(&one) || answers)
}

// isRegistered reports whether an executor of the copy has registered, and is not only listed.
func isRegistered(one *store.Registration) bool { return !one.Seen.IsZero() }

// targets returns the executors of a group by address, with the token that they are shown.
func (r *registry) targets(group, token string) []target {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]target, 0, len(r.groups[group]))
	for _, one := range r.groups[group] {
		list = append(list, target{group: group, address: one.Address, generation: cmp.Or(one.Generation, r.learned[one.Address]), token: token, typed: !isRegistered(&one)})
	}
	return list
}

// learn records the generation of an address.
func (r *registry) learn(address, generation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.learned) >= store.RegistrationsMax {
		clear(r.learned)
	}
	r.learned[address] = generation
}

// targetsOf returns the executors of a group. If the copy has none, or lacks the wanted one, it
// reads the registry: another node may just have received it.
func (a *Admin) targetsOf(ctx context.Context, group, wanted string) ([]target, error) {
	list := a.registry.targets(group, a.tokenOf(group))
	isThere := func(t target) bool { return wanted == "" || t.address == wanted }
	if slices.ContainsFunc(list, isThere) {
		return list, nil
	}
	if err := a.refresh(ctx); err != nil {
		return nil, err
	}
	return a.registry.targets(group, a.tokenOf(group)), nil
}

// register records a sign of life. A new registration is written at once, a repeated one soon.
func (a *Admin) register(ctx context.Context, registration xxl.Registration, generation string) error {
	one := store.Registration{Kind: Kind, Group: registration.Group, Address: xxl.Address(registration.Address), Generation: generation}
	key := keyOf(one)
	r := &a.registry
	r.mu.Lock()
	known, there := r.find(key)
	isListed := there && known.Listed
	there = there && isRegistered(&known)
	total := 0
	for _, group := range r.groups {
		total += len(group)
	}
	isNew := !there || known.Generation != generation
	if !isNew {
		if time.Since(r.written[key]) >= beatEvery {
			r.waiting[key] = one
		}
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	if !there && total >= store.RegistrationsMax {
		return xxl.Refusal(fmt.Sprintf("%d executors are registered already, the most that are allowed", total))
	}
	if err := a.store.Register(ctx, []store.Registration{one}); err != nil {
		return err
	}
	a.log.Info("an executor has registered", "group", one.Group, "address", one.Address)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[key] = time.Now()
	r.changes++
	one.Seen, one.Listed = time.Now(), isListed
	group := slices.DeleteFunc(slices.Clone(r.groups[one.Group]), func(other store.Registration) bool { return other.Address == one.Address })
	group = append(group, one)
	slices.SortFunc(group, func(a, b store.Registration) int { return cmp.Compare(a.Address, b.Address) })
	r.groups[one.Group] = group
	return nil
}

// unregister removes a stopping executor.
func (a *Admin) unregister(ctx context.Context, registration xxl.Registration) error {
	key := store.Registration{Kind: Kind, Group: registration.Group, Address: xxl.Address(registration.Address)}
	r := &a.registry
	r.mu.Lock()
	delete(r.waiting, key)
	delete(r.written, key)
	group := slices.Clone(r.groups[key.Group])
	if at := slices.IndexFunc(group, func(other store.Registration) bool { return other.Address == key.Address }); at >= 0 && group[at].Listed {
		group[at].Seen = time.Time{}
	} else if at >= 0 {
		group = slices.Delete(group, at, at+1)
	}
	r.groups[key.Group] = group
	r.changes++
	r.mu.Unlock()
	err := a.store.Unregister(ctx, []store.Registration{key})
	r.mu.Lock()
	r.changes++ // a poll that began earlier may still have it
	r.mu.Unlock()
	if err != nil {
		return err
	}
	a.log.Info("an executor has stopped", "group", key.Group, "address", key.Address)
	return nil
}

// flush writes the signs of life that were gathered.
func (a *Admin) flush(ctx context.Context) error {
	r := &a.registry
	for {
		r.mu.Lock()
		var list []store.Registration
		for key, one := range r.waiting {
			if len(list) == store.MaxBatch {
				break
			}
			list = append(list, one)
			delete(r.waiting, key)
		}
		r.mu.Unlock()
		if len(list) == 0 {
			return nil
		}
		err := a.store.Register(ctx, list)
		r.mu.Lock()
		for _, one := range list {
			if err != nil {
				r.waiting[keyOf(one)] = one
			} else {
				r.written[keyOf(one)] = time.Now()
			}
		}
		r.mu.Unlock()
		if err != nil {
			return fmt.Errorf("write signs of life of executors: %w", err)
		}
	}
}
