package cli

import (
	"context"
	"errors"

	"github.com/belfry-cron/belfry/history/mongo"
	"github.com/belfry-cron/belfry/internal/server"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/etcd"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// openStore opens the store of a server for a command. named is the user's name of the address, and
// inUse the remedy for a file that a server has open.
func openStore(ctx context.Context, env Env, c config.Server, named, inUse string) (store.Store, error) {
	s, err := server.OpenStore(ctx, c, server.StoreOptions{Now: env.Now, Log: logger(env, c)})
	if err != nil {
		return nil, openFailure(err, c, named, inUse)
	}
	return s, nil
}

// openFailure explains why a store could not be opened.
func openFailure(err error, c config.Server, named, inUse string) error {
	var wrong *postgres.AddressError
	var wrongHosts *etcd.AddressError
	var wrongHistory *mongo.AddressError
	switch {
	case errors.As(err, &wrong):
		return misused("%s: %v", named, wrong.Cause)
	case errors.As(err, &wrongHosts): // of Redis, too
		return misused("%s: %v", named, wrongHosts.Cause)
	case errors.As(err, &wrongHistory):
		return misused("--history: %v", wrongHistory.Cause)
	case errors.Is(err, sqlite.ErrInUse):
		return failed("%v", err).withHint("%s", inUse)
	case c.Store.File() == "":
		return failed("%v", err).withHint("belfry doctor looks at the database")
	}
	return failed("%v", err)
}

// fileOf returns the file of a store, for file commands. instead names the alternative for each
// kind of database.
func fileOf(c config.Server, instead map[string]string) (string, error) {
	if file := c.Store.File(); file != "" {
		return file, nil
	}
	return "", failed("the store is %s, not a file", c.Store.Shown()).withHint("%s", instead[c.Store.Kind()])
}
