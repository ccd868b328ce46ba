package replica_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
	"github.com/belfry-cron/belfry/store/internal/replica"
	"github.com/belfry-cron/belfry/store/joined"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/storetest"
)

// open returns the store of one process on a shelf.
func open(t *testing.T, s *shelf, opt storetest.Options) store.Store {
	t.Helper()
	return openOn(t, driver{s}, opt)
}

func openOn(t *testing.T, d replica.Driver, opt storetest.Options) store.Store {
	t.Helper()
	b, options := backend(t, d, opt, false)
	one := ledger.New(b, options)
	t.Cleanup(func() { _ = one.Close() })
	return one
}

// openApart returns the store of one process on a shelf and a history that is elsewhere.
func openApart(t *testing.T, s *shelf, history store.History, opt storetest.Options) *joined.Store {
	t.Helper()
	b, options := backend(t, driver{s}, opt, true)
	both, err := joined.New(t.Context(), replica.NewControl(b, options), history, joined.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = both.Close() })
	return both
}

func backend(t *testing.T, d replica.Driver, opt storetest.Options, apart bool) (*replica.Backend, ledger.Options) {
	t.Helper()
	b, err := replica.Open(t.Context(), d, replica.Options{Now: opt.Now, Defaults: opt.Defaults, Revisions: opt.Revisions, Apart: apart})
	if err != nil {
		t.Fatal(err)
	}
	newID := opt.NewID
	if newID == nil {
		newID = func() job.ID {
			id, _ := job.NewID(opt.Now(), rand.Reader)
			return id
		}
	}
	return b, ledger.Options{LookAhead: opt.LookAhead, Defaults: opt.Defaults, NewID: newID, Guard: true}
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, opt storetest.Options) store.Store { return open(t, newShelf(), opt) })
}

// The suite again, with every other call made by another process.
func TestStoreOfTwoProcesses(t *testing.T) {
	storetest.Run(t, func(t *testing.T, opt storetest.Options) store.Store {
		s := newShelf()
		if opt.NewID == nil {
			opt.NewID = func() job.ID {
				id, _ := job.NewID(opt.Now(), rand.Reader)
				return id
			}
		}
		return storetest.Nodes(open(t, s, opt), open(t, s, opt))
	})
}

// The suite again, with history in another store: read while all waits to be shipped, and
// shipped before each read.
func TestStoreWithHistoryApart(t *testing.T) {
	for _, ships := range []bool{false, true} {
		t.Run(fmt.Sprintf("ships: %t", ships), func(t *testing.T) {
			storetest.RunJoined(t, func(t *testing.T, opt storetest.Options) store.Store {
				history := memory.New(memory.Options{Now: opt.Now, Defaults: opt.Defaults})
				return storetest.Shipping(openApart(t, newShelf(), history, opt), ships)
			})
		})
	}
}

func TestAStoreWhoseHistoryIsElsewhereIsNotOpenedWithoutIt(t *testing.T) {
	s, opt := newShelf(), storetest.Options{Now: time.Now}
	_ = openApart(t, s, memory.New(memory.Options{}), opt)
	if _, err := replica.Open(t.Context(), driver{s}, replica.Options{}); !errors.Is(err, replica.ErrHistoryApart) {
		t.Errorf("opened with its own history: %v", err)
	}
}
