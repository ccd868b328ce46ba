package nodebench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/etcd"
	"github.com/belfry-cron/belfry/store/joined"
	"github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/redis"
	"github.com/belfry-cron/belfry/store/sqlite"
	"github.com/belfry-cron/belfry/test/servers"
)

// backend is a storage system of a store.
type backend struct {
	name string
	// make creates an empty store; dir is its own folder.
	make func(dir string) (place, error)
}

// place is a store that begins empty.
type place struct {
	address  string // for belfry serve --store
	endpoint string // of etcd or Redis, for their clients
	open     func(context.Context, time.Duration) (openStore, error)
	// processor is the processor time of the database server so far.
	processor func() (time.Duration, error)
	close     func() error
}

// connect returns connections to the PostgreSQL server of an empty store, outside its schema.
func (p place) connect(ctx context.Context, connections int) (*pgxpool.Pool, error) {
	address, err := url.Parse(p.address)
	if err != nil {
		return nil, err
	}
	query := address.Query()
	query.Del("schema")
	query.Set("pool_max_conns", fmt.Sprint(connections))
	address.RawQuery = query.Encode()
	return pgxpool.New(ctx, address.String())
}

// openStore also counts the runs that succeed on it.
type openStore struct {
	store.Store
	succeeded *atomic.Int64
}

// counted opens a store that counts.
func counted[S store.Store](open func(ended func(store.Ends)) (S, error)) (openStore, error) {
	var n atomic.Int64
	s, err := open(func(e store.Ends) {
		for _, r := range e.Records {
			if r.Final && r.Attempt.Outcome == job.OutcomeSucceeded {
				n.Add(1)
			}
		}
	})
	return openStore{s, &n}, err
}

// shipping is a joined store that ships ended attempts while it is open, as a server does.
type shipping struct {
	*joined.Store
	stop func()
}

func ship(s *joined.Store) shipping {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	return shipping{s, func() { cancel(); running.Wait() }}
}

func (s shipping) Close() error {
	s.stop()
	return s.Store.Close()
}

// served are a server's defaults: with others it would rewrite all jobs at its start.
var served = job.Defaults{Timezone: "UTC"}

// embedded is the store that is a file.
var embedded = backend{name: "SQLite", make: func(dir string) (place, error) {
	return place{
		open: func(ctx context.Context, ago time.Duration) (openStore, error) {
			return counted(func(ended func(store.Ends)) (*sqlite.Store, error) {
				return sqlite.Open(ctx, filepath.Join(dir, "belfry.db"), sqlite.Options{Now: clock(ago), Defaults: served, Ended: ended})
			})
		},
		processor: func() (time.Duration, error) { return 0, nil }, // it runs in this process
		close:     func() error { return nil },
	}, nil
}}

// Servers have the settings that they are installed with, but for the number of
// connections: eight nodes in two processes of a test are more than most machines have.
var (
	onPostgres = backend{name: "PostgreSQL", make: func(string) (place, error) {
		server, err := servers.NewPostgres("max_connections = 300")
		if err != nil {
			return place{}, err
		}
		address := server.Schema()
		return place{
			address: address,
			open: func(ctx context.Context, ago time.Duration) (openStore, error) {
				return counted(func(ended func(store.Ends)) (*postgres.Store, error) {
					return postgres.Open(ctx, address, postgres.Options{Now: clock(ago), Defaults: served, Ended: ended})
				})
			},
			processor: server.CPU,
			close:     server.Close,
		}, nil
	}}
	onMariaDB = backend{name: "MariaDB", make: func(string) (place, error) {
		server, err := servers.NewMariaDB("--max-connections=300")
		if err != nil {
			return place{}, err
		}
		address, err := server.Database()
		if err != nil {
			return place{}, fmt.Errorf("%w (%w)", err, server.Close())
		}
		return place{
			address: address,
			open: func(ctx context.Context, ago time.Duration) (openStore, error) {
				return counted(func(ended func(store.Ends)) (*mysql.Store, error) {
					return mysql.Open(ctx, address, mysql.Options{Now: clock(ago), Defaults: served, Ended: ended})
				})
			},
			processor: server.CPU,
			close:     server.Close,
		}, nil
	}}
)

// A key-value store has the settings of its package, except that Redis syncs each change before it
// answers.
var (
	onEtcd = backend{name: "etcd", make: func(string) (place, error) {
		return etcdPlace(func(ctx context.Context, address string, opt etcd.Options) (store.Store, error) {
			return etcd.Open(ctx, address, opt)
		})
	}}
	onEtcdWithSQLite = backend{name: "etcd with history in SQLite", make: func(dir string) (place, error) {
		return etcdPlace(func(ctx context.Context, address string, opt etcd.Options) (store.Store, error) {
			control, err := etcd.OpenControl(ctx, address, opt)
			if err != nil {
				return nil, err
			}
			history, err := sqlite.Open(ctx, filepath.Join(dir, "history.db"), sqlite.Options{KeepDefaults: true})
			if err != nil {
				return nil, errors.Join(err, control.Close())
			}
			both, err := joined.New(ctx, control, history, joined.Options{})
			if err != nil {
				return nil, errors.Join(err, control.Close())
			}
			return ship(both), nil
		})
	}}
	onRedis = backend{name: "Redis", make: func(string) (place, error) {
		server, err := servers.NewRedis()
		if err != nil {
			return place{}, err
		}
		address := server.URL()
		return place{
			address: address, endpoint: strings.TrimPrefix(address, "redis://"),
			open: func(ctx context.Context, ago time.Duration) (openStore, error) {
				return counted(func(ended func(store.Ends)) (*redis.Store, error) {
					return redis.Open(ctx, address, redis.Options{Now: clock(ago), Defaults: served, Ended: ended})
				})
			},
			processor: server.CPU,
			close:     server.Close,
		}, nil
	}}
)

func etcdPlace(open func(ctx context.Context, address string, opt etcd.Options) (store.Store, error)) (place, error) {
	server, err := servers.NewEtcd()
	if err != nil {
		return place{}, err
	}
	endpoint := strings.TrimPrefix(server.URL(), "http://")
	return place{
		address: "etcd://" + endpoint, endpoint: endpoint,
		open: func(ctx context.Context, ago time.Duration) (openStore, error) {
			return counted(func(ended func(store.Ends)) (store.Store, error) {
				return open(ctx, "etcd://"+endpoint, etcd.Options{Now: clock(ago), Defaults: served, Ended: ended})
			})
		},
		processor: server.CPU,
		close:     server.Close,
	}, nil
}

// clock returns a clock that stands still some time ago, or nil for the store's own.
func clock(ago time.Duration) func() time.Time {
	if ago == 0 {
		return nil
	}
	then := time.Now().Add(-ago)
	return func() time.Time { return then }
}
