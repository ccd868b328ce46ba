//go:build servers

package storecopy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-cron/belfry/internal/cli/storecopy"
	"github.com/belfry-cron/belfry/store/etcd"
	"github.com/belfry-cron/belfry/store/joined"
	"github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/redis"
	"github.com/belfry-cron/belfry/test/servers"
)

// opened closes a store at the end of its test.
func opened[S storecopy.Store](t *testing.T, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A copy through all kinds of databases and back to a file is complete.
func TestCopyTakesEverythingThroughDatabases(t *testing.T) {
	w := newWorld(t, inFile(t))
	w.live()
	w.leave()
	copyAlong(t, w, inPostgres(t), inMariaDB(t), inEtcd(t), inRedis(t), inTwo(t), inFile(t))
}

func inPostgres(t *testing.T) func(func() time.Time) storecopy.Store {
	p := servers.StartPostgres(t, "fsync = off")
	return func(now func() time.Time) storecopy.Store {
		s, err := postgres.Open(t.Context(), p.URL(), postgres.Options{Now: now, Guard: true})
		return opened(t, s, err)
	}
}

func inMariaDB(t *testing.T) func(func() time.Time) storecopy.Store {
	m := servers.StartMariaDB(t)
	return func(now func() time.Time) storecopy.Store {
		address, err := m.Database()
		if err != nil {
			t.Fatal(err)
		}
		s, err := mysql.Open(t.Context(), address, mysql.Options{Now: now, Guard: true})
		return opened(t, s, err)
	}
}

// inTwo has jobs in Redis, and history in PostgreSQL.
func inTwo(t *testing.T) func(func() time.Time) storecopy.Store {
	r, p := servers.StartRedis(t), servers.StartPostgres(t, "fsync = off")
	return func(now func() time.Time) storecopy.Store {
		control, err := redis.OpenControl(t.Context(), r.URL()+"/two", redis.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		history, err := postgres.Open(t.Context(), p.URL(), postgres.Options{Now: now, Guard: true})
		if err != nil {
			t.Fatal(err)
		}
		s, err := joined.New(t.Context(), control, history, joined.Options{})
		return opened(t, s, err)
	}
}

func inEtcd(t *testing.T) func(func() time.Time) storecopy.Store {
	e := servers.StartEtcd(t, "--unsafe-no-fsync")
	return func(now func() time.Time) storecopy.Store {
		s, err := etcd.Open(t.Context(), "etcd://"+strings.TrimPrefix(e.URL(), "http://")+"/copy", etcd.Options{Now: now})
		return opened(t, s, err)
	}
}

// Thousands of waiting runs of a job have keys of their own in etcd and Redis.
func TestCopyTakesABacklogThroughKeys(t *testing.T) {
	copyBacklog(t, newWorld(t, inEtcd(t)), 3000, inRedis(t), inFile(t), inEtcd(t))
}

// The check mends a database as it mends a file.
func TestCheckMendsDamageInPostgres(t *testing.T) {
	p := servers.StartPostgres(t, "fsync = off")
	w := newWorld(t, func(now func() time.Time) storecopy.Store {
		s, err := postgres.Open(t.Context(), p.URL(), postgres.Options{Now: now, Guard: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
	w.live()
	w.leave()
	w.must(w.Close())
	for _, d := range damages {
		if d.lasts || strings.Contains(d.sql, ";") {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			db, err := pgx.Connect(t.Context(), p.URL())
			w.must(err)
			_, err = db.Exec(t.Context(), d.sql)
			w.must(err)
			w.must(db.Close(t.Context()))
			s, err := postgres.Open(t.Context(), p.URL(), postgres.Options{Now: w.clock, Guard: true})
			d.found(t, opened(t, s, err))
		})
	}
}

func inRedis(t *testing.T) func(func() time.Time) storecopy.Store {
	r := servers.StartRedis(t)
	return func(now func() time.Time) storecopy.Store {
		s, err := redis.Open(t.Context(), r.URL(), redis.Options{Now: now})
		return opened(t, s, err)
	}
}

// Each state is copied from each kind of store to each other kind.
func TestCopyKeepsEveryStateBetweenAllStores(t *testing.T) {
	p, m, e, r := servers.StartPostgres(t, "fsync = off"), servers.StartMariaDB(t), servers.StartEtcd(t, "--unsafe-no-fsync"), servers.StartRedis(t)
	n := 0
	open := func(open func() (storecopy.Store, error)) func() storecopy.Store {
		return again(t, func() storecopy.Store {
			s, err := open()
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	}
	kinds := []func() func() storecopy.Store{
		func() func() storecopy.Store { return sqliteAt(t) },
		func() func() storecopy.Store {
			at := p.Schema()
			return open(func() (storecopy.Store, error) {
				return postgres.Open(t.Context(), at, postgres.Options{Now: clockAt, Guard: true})
			})
		},
		func() func() storecopy.Store {
			at, err := m.Database()
			if err != nil {
				t.Fatal(err)
			}
			return open(func() (storecopy.Store, error) {
				return mysql.Open(t.Context(), at, mysql.Options{Now: clockAt, Guard: true})
			})
		},
		func() func() storecopy.Store {
			at := fmt.Sprintf("etcd://%s/copy%d", strings.TrimPrefix(e.URL(), "http://"), n)
			return open(func() (storecopy.Store, error) { return etcd.Open(t.Context(), at, etcd.Options{Now: clockAt}) })
		},
		func() func() storecopy.Store {
			at := fmt.Sprintf("%s/copy%d", r.URL(), n)
			return open(func() (storecopy.Store, error) { return redis.Open(t.Context(), at, redis.Options{Now: clockAt}) })
		},
	}
	// A tour of all pairs: with each stride around the circle of five.
	places := []func() storecopy.Store{kinds[0]()}
	for stride := 1; stride < len(kinds); stride++ {
		for i := 1; i <= len(kinds); i++ {
			n++
			places = append(places, kinds[i*stride%len(kinds)]())
		}
	}
	copyStates(t, places...)
}
