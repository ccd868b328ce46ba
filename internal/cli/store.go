package cli

import (
	"context"
	"errors"

	"github.com/belfry-cron/belfry/internal/config"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// serverStore is a store as a server has it.
type serverStore interface {
	store.Store
	// Ended returns how many runs have ended so since it was opened.
	Ended(outcome job.Outcome) int64
}

// openStore opens the store of a server. inUse says what to do about a file that
// another server has.
func openStore(ctx context.Context, env Env, c config.Server, inUse string) (serverStore, error) {
	var s serverStore
	var err error
	switch c.Store.Kind() {
	case config.Postgres:
		s, err = postgres.Open(ctx, string(c.Store), postgres.Options{Defaults: c.JobDefaults(), Revisions: c.Keep.Revisions})
	case config.MySQL:
		s, err = mysql.Open(ctx, string(c.Store), mysql.Options{Defaults: c.JobDefaults(), Revisions: c.Keep.Revisions})
	default:
		return openFile(ctx, env, c, inUse)
	}
	if err != nil {
		return nil, failed("%v", err).withHint("belfry doctor looks at the database")
	}
	return s, nil
}

func openFile(ctx context.Context, env Env, c config.Server, inUse string) (serverStore, error) {
	s, err := sqlite.Open(ctx, c.Store.File(), sqlite.Options{Now: env.Now, Defaults: c.JobDefaults(), Revisions: c.Keep.Revisions})
	if errors.Is(err, sqlite.ErrInUse) {
		return nil, failed("%v", err).withHint("%s", inUse)
	}
	if err != nil {
		return nil, failed("%v", err)
	}
	return s, nil
}

// fileOf returns the file of a store, for the commands that are about it. instead
// says by kind what does it for databases.
func fileOf(c config.Server, instead map[string]string) (string, error) {
	if file := c.Store.File(); file != "" {
		return file, nil
	}
	return "", failed("the store is %s and not a file", c.Store.Shown()).withHint("%s", instead[c.Store.Kind()])
}
