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
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/store/internal/address"
	"github.com/belfry-cron/belfry/store/internal/replica"
)

// Options configure a store.
type Options = replica.Options

// Store is a store in Redis.
type Store = replica.Store

// Control is a store in Redis without history.
type Control = replica.Control

// Open connects to the servers at an address such as
//
//	redis://user:password@host:6379/0
//	redis://user:password@host1:6379,host2:6379/prefix?sentinel=mymaster
//	rediss://host:6379/prefix?ca=/etc/redis/ca.crt
//
// Its parameters are tls, ca, cert, key, server-name, db, prefix, sentinel, sentinel-auth and wait. Open
// returns when the state of the cluster is read.
func Open(ctx context.Context, url string, opt Options) (*Store, error) {
	d, err := driverOf(ctx, url)
	if err != nil {
		return nil, err
	}
	return replica.Open(ctx, d, opt)
}

// OpenControl is [Open] for a store whose history is elsewhere: see package joined.
func OpenControl(ctx context.Context, url string, opt Options) (*Control, error) {
	d, err := driverOf(ctx, url)
	if err != nil {
		return nil, err
	}
	return replica.OpenControl(ctx, d, opt)
}

func driverOf(ctx context.Context, url string) (*driver, error) {
	a, err := parse(url)
	if err != nil {
		return nil, err
	}
	client, _, err := dial(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("connect to Redis at %s: %w", strings.Join(a.Hosts, ", "), err)
	}
	return newDriver(client, a), nil
}

// AddressError is a mistake in the address of a store.
type AddressError = address.Error

// location is a parsed address.
type location struct {
	address.Address
	db int
	// sentinel is the name of the master at the Sentinels; the hosts are then Sentinels.
	sentinel     string
	sentinelAuth bool // the Sentinels need the user and password, too
	wait         int  // how many replicas must have a commit before it is acknowledged
}

// waitMax is more replicas than a master has.
const waitMax = 10

func parse(text string) (a location, err error) {
	form := address.Form{System: "Redis", Scheme: "redis", Port: "6379", Parameters: []string{"db", "prefix", "sentinel", "sentinel-auth", "wait"}}
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
	// A number after the hosts is a database, as in every client of Redis.
	behind := ""
	if n, err := strconv.Atoi(a.Prefix); err == nil {
		if n < 0 || a.Parameters["db"] != "" && a.Parameters["db"] != a.Prefix {
			return fmt.Errorf("db: the number behind the hosts is %s, and ?db=%s says another one", a.Prefix, a.Parameters["db"])
		}
		behind, a.Prefix = a.Prefix, address.PrefixDefault
	}
	if prefix := a.Parameters["prefix"]; prefix != "" {
		if a.Prefix != address.PrefixDefault && a.Prefix != prefix {
			return fmt.Errorf("prefix: %q stands behind the hosts, and ?prefix=%s says another one", a.Prefix, prefix)
		}
		if strings.Trim(prefix, "/") != prefix {
			return fmt.Errorf("prefix: %q begins or ends with /", prefix)
		}
		a.Prefix = prefix
	}
	if strings.ContainsAny(a.Prefix, "{}") {
		return fmt.Errorf("prefix %q: a prefix has neither { nor }, between which Redis Cluster looks for the slot", a.Prefix)
	}
	if text := cmp.Or(a.Parameters["db"], behind); text != "" {
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
