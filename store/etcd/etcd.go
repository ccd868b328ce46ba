// Package etcd is a store in etcd 3.4 and later, for clusters that have one already. Jobs,
// runs, sessions and a bounded history lie under a prefix of the user's choice.
//
// Package store/internal/replica explains how it works. This package has the parts specific
// to etcd: transactions of a limited number of operations, watches that compaction ends,
// and no clock.
package etcd

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/belfry-cron/belfry/store/internal/address"
	"github.com/belfry-cron/belfry/store/internal/replica"
)

// Options configure a store.
type Options = replica.Options

// Store is a store in etcd.
type Store = replica.Store

// Control is a store in etcd without history.
type Control = replica.Control

// Open connects to the cluster at an address such as
//
//	etcd://user:password@host1:2379,host2:2379/prefix?tls=true
//
// Its parameters are tls, ca, cert, key, server-name and compact. It returns when the state
// of the cluster is read.
func Open(ctx context.Context, address string, opt Options) (*Store, error) {
	d, err := driverOf(ctx, address)
	if err != nil {
		return nil, err
	}
	return replica.Open(ctx, d, opt)
}

// OpenControl is [Open] for a store whose history is elsewhere: see package joined.
func OpenControl(ctx context.Context, address string, opt Options) (*Control, error) {
	d, err := driverOf(ctx, address)
	if err != nil {
		return nil, err
	}
	return replica.OpenControl(ctx, d, opt)
}

func driverOf(ctx context.Context, address string) (*driver, error) {
	a, err := parse(address)
	if err != nil {
		return nil, err
	}
	client, err := connect(ctx, a)
	if err != nil {
		return nil, err
	}
	d := newDriver(client, a) //nolint:contextcheck // its work in the background ends with Close
	if _, err := d.Tail(ctx); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(a.Hosts, ", "), err)
	}
	return d, nil
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

// location is a parsed address.
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
