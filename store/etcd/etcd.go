// Package etcd is a store in etcd 3.4 and later, for clusters that have one already. Jobs,
// runs, sessions and a bounded history lie under a prefix of the user's choice.
//
// Package store/internal/replica explains how it works. This package has the parts specific
// to etcd: transactions of a limited number of operations, watches that compaction ends,
// and no clock.
package etcd

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/address"
	"github.com/belfry-cron/belfry/store/internal/ledger"
	"github.com/belfry-cron/belfry/store/internal/replica"
)

// Options are what a store is opened with.
type Options struct {
	// Now is the clock in the place of that which nodes agree on, for tests.
	Now func() time.Time
	// LookAhead is how far ahead runs may be planned. Default: store.LookAheadDefault.
	LookAhead time.Duration
	// Defaults are filled in where jobs say nothing.
	Defaults job.Defaults
	// NewID makes the uids of jobs, calendars and pools. Default: by the clock and at
	// random.
	NewID func() job.ID
	// Revisions is how many definitions of a job are kept. Default:
	// store.RevisionsDefault.
	Revisions int
	// KeepDefaults leaves jobs with the defaults that they have, for a process that is not a
	// server.
	KeepDefaults bool
	// Refill receives how far the jobs have the new defaults.
	Refill func(store.Refill)
	// Ended receives after each commit what has ended.
	Ended func(store.Ends)
	// Lost receives how many steps, at least, are gone that this process was told of, after
	// etcd was restored from an older snapshot.
	Lost func(steps int64)

	guard  bool // see ledger.Options
	inCell int  // see replica.Options
}

// Store is a store in etcd. It is safe for concurrent use.
type Store struct {
	*ledger.Store
	refilled func() // waits for what is given to jobs in the background
}

// Close ends the connections.
func (s *Store) Close() error {
	s.refilled()
	return s.Store.Close()
}

// Control is a store in etcd that keeps no history. It is safe for concurrent use.
type Control struct {
	*replica.Control
	refilled func()
}

// Close ends the connections.
func (c *Control) Close() error {
	c.refilled()
	return c.Control.Close()
}

// RecordsMax is how many records of history are kept in etcd, whose database is small, 2 GB
// by default, and in the memory of each node.
const RecordsMax = 100_000

// Open connects to the cluster at an address such as
//
//	etcd://user:password@host1:2379,host2:2379/prefix?tls=true
//
// Its parameters are tls, ca, cert, key, server-name and compact. It returns when the state
// of the cluster is read.
func Open(ctx context.Context, address string, opt Options) (*Store, error) {
	b, ledgers, err := openBackend(ctx, address, opt, false)
	if err != nil {
		return nil, err
	}
	s := &Store{ledger.New(b, ledgers), func() {}}
	if !opt.KeepDefaults {
		if s.refilled, err = b.ApplyDefaults(ctx, s.Control, opt.Refill); err != nil {
			_ = b.Close()
			return nil, err
		}
	}
	return s, nil
}

// OpenControl is Open for a store whose history is elsewhere: see package joined.
func OpenControl(ctx context.Context, address string, opt Options) (*Control, error) {
	b, ledgers, err := openBackend(ctx, address, opt, true)
	if err != nil {
		return nil, err
	}
	c := &Control{replica.NewControl(b, ledgers), func() {}}
	if !opt.KeepDefaults {
		if c.refilled, err = b.ApplyDefaults(ctx, c.Control.Control, opt.Refill); err != nil {
			_ = b.Close()
			return nil, err
		}
	}
	return c, nil
}

func openBackend(ctx context.Context, address string, opt Options, apart bool) (b *replica.Backend, ledgers ledger.Options, err error) {
	a, err := parse(address)
	if err != nil {
		return nil, ledgers, err
	}
	client, err := connect(ctx, a)
	if err != nil {
		return nil, ledgers, err
	}
	d := newDriver(client, a) //nolint:contextcheck // its work in the background ends with Close
	if _, err := d.Tail(ctx); err != nil {
		_ = d.Close()
		return nil, ledgers, fmt.Errorf("connect to etcd at %s: %w", strings.Join(a.Hosts, ", "), err)
	}
	b, err = replica.Open(ctx, d, replica.Options{Now: opt.Now, Defaults: opt.Defaults, Revisions: opt.Revisions, Records: RecordsMax, Apart: apart, Lost: opt.Lost, InCell: opt.inCell})
	if err != nil {
		return nil, ledgers, err
	}
	newID := opt.NewID
	if newID == nil {
		newID = func() job.ID {
			id, _ := job.NewID(time.Now(), rand.Reader) // crypto/rand does not fail
			return id
		}
	}
	return b, ledger.Options{
		LookAhead: cmp.Or(opt.LookAhead, store.LookAheadDefault), Defaults: opt.Defaults, NewID: newID, Ended: opt.Ended, Guard: opt.guard,
	}, nil
}

func configOf(ctx context.Context, a location) clientv3.Config {
	redial := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: keepAlive}
	redial.Backoff.BaseDelay, redial.Backoff.MaxDelay = redialMax/4, redialMax
	return clientv3.Config{
		Endpoints: a.Hosts, Username: a.User, Password: a.Password, TLS: a.TLS,
		DialTimeout: callMax, DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAlive,
		PermitWithoutStream: true, Logger: zap.NewNop(), Context: context.WithoutCancel(ctx),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(redial)},
	}
}

// AddressError is a mistake in the address of a store.
type AddressError = address.Error

// location is what an address says.
type location struct {
	address.Address
	compact bool
}

func parse(text string) (a location, err error) {
	form := address.Form{System: "etcd", Scheme: "etcd", Port: "2379", Parameters: []string{"compact"}}
	if a.Address, err = form.Parse(text); err != nil {
		return a, err
	}
	if a.compact, err = a.Switch("compact", true); err != nil {
		return a, &AddressError{System: form.System, Cause: err}
	}
	return a, nil
}
