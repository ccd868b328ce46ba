// Package memory is a store in the memory of one process, for simulations, tests and programs. Its
// content ends with the process.
//
// It is the backend of etcd and Redis on a map instead of a server: a commit passes decoded values, so
// nothing is encoded, and steps run one after another. In tests decisions load exactly their needs: reading
// more panics. It uses only the given clock, and starts only the goroutine that ends a subscription to
// hints.
package memory

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
)

// Options configure a store.
type Options struct {
	// Now is the store's clock. Default: the clock of the machine.
	Now func() time.Time
	// LookAhead is how far ahead runs may be planned. Default: [store.LookAheadDefault].
	LookAhead time.Duration
	// Defaults are the values of settings that jobs omit.
	Defaults job.Defaults
	// NewID makes the uids of jobs, calendars and pools. It is called with the
	// store locked. Default: by the clock and at random.
	NewID func() job.ID
	// Revisions is how many definitions of a job are kept. Default:
	// [store.RevisionsDefault].
	Revisions int
	// Records is how many finished attempts are kept at least; once there are twice as many, the
	// oldest are removed. Default: no bound but Expire.
	Records int
	// Fate, if set, makes steps compare at the commit what they have read, and commit in parts if they
	// may, as on etcd and Redis. It decides the fate of each part, and is called with the store
	// locked.
	Fate func(part, parts int) Fate
	// unguarded leaves out the checks of what decisions read, for programs.
	unguarded bool
}

// Store is a store in memory. It is safe for concurrent use.
type Store struct{ *replica.Store }

// New returns an empty store.
func New(opt Options) *Store {
	d, options := parts(&opt)
	s, err := replica.Open(context.Background(), d, options)
	if err != nil {
		panic(err) // the driver fails only by the fate of a step
	}
	return &Store{s}
}

// Control is a store in memory without history: ended attempts are in its feed, for
// [store.ConsumerHistory]. It is safe for concurrent use.
type Control struct{ *replica.Control }

// NewControl returns an empty store without history.
func NewControl(opt Options) *Control {
	d, options := parts(&opt)
	c, err := replica.OpenControl(context.Background(), d, options)
	if err != nil {
		panic(err) // the driver fails only by the fate of a step
	}
	return &Control{c}
}

// parts returns the driver and the options of a new store, and fills in what the options leave out.
func parts(opt *Options) (replica.Driver, replica.Options) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.NewID == nil {
		now := opt.Now
		opt.NewID = func() job.ID {
			id, _ := job.NewID(now(), rand.Reader) // crypto/rand does not fail
			return id
		}
	}
	var d replica.Driver = newMap()
	if opt.Fate != nil {
		d = &faultyDriver{table: newMap(), fate: opt.Fate}
	}
	return d, replica.Options{
		Now: opt.Now, LookAhead: opt.LookAhead, Defaults: opt.Defaults, NewID: opt.NewID, Revisions: opt.Revisions,
		KeepAtLeast: opt.Records, KeepDefaults: true, Guard: !opt.unguarded, Compares: opt.Fate != nil, OneEach: opt.Fate != nil,
	}
}

// EventsElsewhere implements [store.Control]: all events are of this process.
func (s *Store) EventsElsewhere(context.Context) <-chan []store.Event { return nil }
