// Package redis is a store in Redis 6.2 and later, or Valkey, for clusters that have one
// already: a single server, one that Sentinels watch, or a Redis Cluster. Jobs, runs,
// sessions and a bounded history lie under a prefix of the user's choice.
//
// Package store/internal/replica explains how it works. This package has the parts specific
// to Redis: a script that compares and writes, a stream of changes, and failovers that lose
// acknowledged writes.
package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/address"
	"github.com/belfry-cron/belfry/store/internal/ledger"
	"github.com/belfry-cron/belfry/store/internal/replica"
)

// Options are what a store is opened with.
type Options struct {
	// Now replaces the clock of the server, for tests.
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
	// Lost receives how many acknowledged steps are gone after a failover or a restart. It is
	// called on the goroutine that follows the server and must not wait.
	Lost func(steps int64)

	guard  bool // see ledger.Options
	inCell int  // see replica.Options
}

// Store is a store in Redis. It is safe for concurrent use.
type Store struct {
	*ledger.Store
	refilled func() // waits for what is given to jobs in the background
}

// Close ends the connections.
func (s *Store) Close() error {
	s.refilled()
	return s.Store.Close()
}

// Control is a store in Redis that keeps no history. It is safe for concurrent use.
type Control struct {
	*replica.Control
	refilled func()
}

// Close ends the connections.
func (c *Control) Close() error {
	c.refilled()
	return c.Control.Close()
}

// RecordsMax is how many records of history are kept in the memory of Redis and of each node.
const RecordsMax = 100_000

// Open connects to the servers at an address such as
//
//	redis://user:password@host1:6379,host2:6379/prefix?sentinel=mymaster
//	rediss://host:6379/prefix?ca=/etc/redis/ca.crt
//
// Its parameters are tls, ca, cert, key, server-name, db, sentinel, sentinel-auth and wait. Open
// returns when the state of the cluster is read.
func Open(ctx context.Context, url string, opt Options) (*Store, error) {
	b, ledgers, err := openBackend(ctx, url, opt, false)
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
func OpenControl(ctx context.Context, url string, opt Options) (*Control, error) {
	b, ledgers, err := openBackend(ctx, url, opt, true)
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

func openBackend(ctx context.Context, url string, opt Options, apart bool) (b *replica.Backend, ledgers ledger.Options, err error) {
	a, err := parse(url)
	if err != nil {
		return nil, ledgers, err
	}
	client, _, err := dial(ctx, a)
	if err != nil {
		return nil, ledgers, fmt.Errorf("connect to Redis at %s: %w", strings.Join(a.Hosts, ", "), err)
	}
	d := newDriver(client, a)
	b, err = replica.Open(ctx, d, replica.Options{
		Now: opt.Now, Defaults: opt.Defaults, Revisions: opt.Revisions, Records: RecordsMax, Lost: opt.Lost, Apart: apart, InCell: opt.inCell,
	})
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

// AddressError is a mistake in the address of a store.
type AddressError = address.Error

// location is what an address says.
type location struct {
	address.Address
	db int
	// sentinel is the name by which Sentinels know the master; the hosts are theirs then.
	sentinel     string
	sentinelAuth bool // the Sentinels want the user and the password, too
	wait         int  // how many replicas have a commit before it is acknowledged
}

// waitMax is more replicas than a master has.
const waitMax = 10

func parse(text string) (a location, err error) {
	form := address.Form{System: "Redis", Scheme: "redis", Port: "6379", Parameters: []string{"db", "sentinel", "sentinel-auth", "wait"}}
	secure := strings.HasPrefix(text, "rediss://")
	if secure {
		form.Scheme = "rediss"
	} else if rest := strings.TrimPrefix(text, "redis://"); strings.HasPrefix(text, "redis://") && strings.HasPrefix(rest, "/") {
		return a, &AddressError{System: form.System, Cause: errors.New("a host is missing, such as redis://127.0.0.1:6379")}
	}
	if a.Address, err = form.Parse(text); err != nil {
		return a, err
	}
	if err := a.settings(secure); err != nil {
		return a, &AddressError{System: form.System, Cause: err}
	}
	return a, nil
}

func (a *location) settings(secure bool) (err error) {
	if secure && a.TLS == nil {
		if a.Parameters["tls"] != "" {
			return errors.New("tls=false stands behind rediss://")
		}
		a.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if _, err := strconv.Atoi(a.Prefix); err == nil {
		return fmt.Errorf("%q behind the hosts is the prefix of all keys; a database is chosen with ?db=%s", a.Prefix, a.Prefix)
	}
	if strings.ContainsAny(a.Prefix, "{}") {
		return fmt.Errorf("prefix %q: a prefix has neither { nor }, between which Redis Cluster looks for the slot", a.Prefix)
	}
	if text := a.Parameters["db"]; text != "" {
		if a.db, err = strconv.Atoi(text); err != nil || a.db < 0 {
			return fmt.Errorf("db: %q is not the number of a database", text)
		}
	}
	if text := a.Parameters["wait"]; text != "" {
		if a.wait, err = strconv.Atoi(text); err != nil || a.wait < 0 || a.wait > waitMax {
			return fmt.Errorf("wait: %q is not a number of replicas from 0 to %d", text, waitMax)
		}
	}
	a.sentinel = a.Parameters["sentinel"]
	if a.sentinelAuth, err = a.Switch("sentinel-auth", false); err != nil {
		return err
	}
	if a.sentinelAuth && a.sentinel == "" {
		return errors.New("sentinel-auth stands beside sentinel")
	}
	return nil
}
