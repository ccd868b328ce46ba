package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/health"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/etcd"
	"github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/redis"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// Store checks a store.
func Store(ctx context.Context, check string, s config.Store) Finding {
	f := Finding{Check: check, Status: Wrong}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	switch s.Kind() {
	case config.Postgres:
		about, err := postgres.Check(ctx, string(s))
		return databaseOf(f, about, err, "psql with the same host, user and database", "synchronous_commit and fsync to on", "give them to this user, or all tables with alter table … owner to")
	case config.Etcd:
		about, err := etcd.Check(ctx, string(s))
		return etcdOf(f, about, err)
	case config.Redis:
		about, err := redis.Check(ctx, string(s))
		return redisOf(f, about, err)
	case config.MySQL:
		about, err := mysql.Check(ctx, string(s))
		return databaseOf(f, about, err, "mysql with the same host, user and database", "innodb_flush_log_at_trx_commit to 1, and sync_binlog where there is a binary log", "grant all on the database to this user")
	}
	path := s.File()
	complete, err := sqlite.Check(ctx, path)
	if err == nil {
		err = writable(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Status, f.Found, f.Do = Note, path+" does not exist", "belfry serve creates it; belfry restore creates it from a backup"
	case errors.Is(err, store.ErrDamaged):
		f.Found, f.Do = err.Error(), "stop the server, move the file and its -wal away, and restore a backup"
	case err != nil:
		f.Found, f.Do = err.Error(), "run this as the user of the server, with the version of the server"
	case !complete:
		f.Status, f.Found = Note, fmt.Sprintf("no damage found in %s, as far as it was checked", checkTime)
		f.Do = "sqlite3 " + path + " 'pragma integrity_check' checks all of it"
	default:
		f.Status, f.Found = Well, path+" is whole"
	}
	return f
}

// writable reports whether this user may write the file of a store, and the files beside it.
func writable(path string) error {
	for _, name := range []string{path, path + "-wal", path + "-shm", path + "-lock", path + "-ballast"} {
		if err := syscall.Access(name, health.MayWrite); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &fs.PathError{Op: "write", Path: name, Err: err}
		}
	}
	return nil
}

// databaseOf reports the findings of a check of the store's database. try is how people connect,
// durable how acknowledged writes are kept, and grant how a user gets rights.
func databaseOf(f Finding, about postgres.About, err error, try, durable, grant string) Finding {
	var wrong *postgres.AddressError
	switch {
	case errors.As(err, &wrong):
		f.Found, f.Do = err.Error(), "belfry config, with the same flags, shows where the address comes from"
	case err != nil:
		f.Found, f.Do = err.Error(), "check that the database is running and this user may connect: "+try
	case about.Unusable != nil:
		f.Found, f.Do = about.Unusable.Error(), "belfry version prints the version of this program"
	case len(about.Denied) > 0:
		f.Found = about.Server + ", where this user may not " + strings.Join(about.Denied, "; nor ")
		f.Do = "servers do that, at the latest when they are upgraded: " + grant
	case !about.Durable:
		f.Status, f.Found = Note, about.String()
		f.Do = "a crash of the database may lose acknowledged writes: set " + durable
	case about.Offset.Abs() > offsetMax:
		f.Status, f.Found = Note, about.String()
		f.Do = "synchronize the clocks of both machines; jobs follow the clock of the database"
	default:
		f.Status, f.Found = Well, about.String()
	}
	return f
}

// etcdOf reports the findings of a check of an etcd cluster.
func etcdOf(f Finding, about etcd.About, err error) Finding {
	var wrong *etcd.AddressError
	switch {
	case errors.As(err, &wrong):
		f.Found, f.Do = err.Error(), "belfry config, with the same flags, shows where the address comes from"
	case err != nil:
		f.Found, f.Do = err.Error(), "see that the cluster runs, and that this user may connect to it: etcdctl endpoint status"
	case about.Full:
		f.Found = about.String() + "; its database is full, and nothing is written"
		f.Do = "etcdctl defrag, then etcdctl alarm disarm"
	case about.NearlyFull():
		f.Found = about.String() + "; it is nearly full, and with less than a tenth left no run starts"
		f.Do = "raise --quota-backend-bytes of etcd, or keep history in another store with --history"
	case about.IsLoose():
		f.Status, f.Found = Note, about.String()
		f.Do = "etcdctl defrag gives the rest back to the disk, one member after the other"
	default:
		f.Status, f.Found = Well, about.String()
	}
	return f
}

// redisOf reports the findings of a check of a Redis server.
func redisOf(f Finding, about redis.About, err error) Finding {
	var wrong *redis.AddressError
	switch {
	case errors.As(err, &wrong):
		f.Found, f.Do = err.Error(), "belfry config, with the same flags, shows where the address comes from"
	case err != nil:
		f.Found, f.Do = err.Error(), "check that the server is running and this user may connect: redis-cli with the same host, user and password"
	case about.Most > 0 && about.Used > about.Most/10*9:
		f.Found = about.String() + "; its memory is nearly full, and nothing new is claimed"
		f.Do = "raise maxmemory, or keep less history"
	case !about.Durable():
		f.Status, f.Found = Note, about.String()
		f.Do = "set appendonly to yes and appendfsync to always"
	case about.Replicas > 0 && about.Wait == 0:
		f.Status, f.Found = Note, about.String()
		f.Do = "add wait=1 to the address of the store, so that a failover loses no step"
	case about.Offset.Abs() > offsetMax:
		f.Status, f.Found = Note, about.String()
		f.Do = "synchronize the clocks of both machines; jobs follow the clock of the server"
	default:
		f.Status, f.Found = Well, about.String()
	}
	return f
}

// offsetMax is the difference of machines' clocks from which it is reported.
const offsetMax = time.Second
