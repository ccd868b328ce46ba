package cli

import (
	"context"
	"errors"
	"log/slog"
	"time"

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

// openStore opens the store of a server. named is what its user calls its address, and
// inUse says what to do about a file that another server has.
func openStore(ctx context.Context, env Env, c config.Server, named, inUse string) (serverStore, error) {
	var s serverStore
	var err error
	switch c.Store.Kind() {
	case config.Postgres:
		s, err = postgres.Open(ctx, string(c.Store), postgres.Options{Defaults: c.JobDefaults(), Revisions: c.Keep.Revisions, Refill: tellRefill(logger(env, c))})
	case config.MySQL:
		s, err = mysql.Open(ctx, string(c.Store), mysql.Options{Defaults: c.JobDefaults(), Revisions: c.Keep.Revisions, Refill: tellRefill(logger(env, c))})
	default:
		return openFile(ctx, env, c, inUse)
	}
	var wrong *postgres.AddressError
	if errors.As(err, &wrong) {
		return nil, misused("%s: %v", named, wrong.Cause)
	}
	if err != nil {
		return nil, failed("%v", err).withHint("belfry doctor looks at the database")
	}
	return s, nil
}

func openFile(ctx context.Context, env Env, c config.Server, inUse string) (serverStore, error) {
	s, err := sqlite.Open(ctx, c.Store.File(), sqlite.Options{Now: env.Now, Defaults: c.JobDefaults(), Revisions: c.Keep.Revisions, Refill: tellRefill(logger(env, c))})
	if errors.Is(err, sqlite.ErrInUse) {
		return nil, failed("%v", err).withHint("%s", inUse)
	}
	if err != nil {
		return nil, failed("%v", err)
	}
	return s, nil
}

// tellRefill returns what logs how far a store is that was opened with other defaults
// than before.
func tellRefill(log *slog.Logger) func(store.Refill) {
	begun := false
	return func(r store.Refill) {
		first := !begun
		begun = true
		switch took := r.Took.Round(time.Millisecond); {
		case r.Err != nil:
			log.Error("jobs cannot be given the other defaults; it is tried again", "looked_at", r.Looked, "error", r.Err)
		case r.Superseded:
			log.Warn("another server has started with other defaults, which count: this one leaves off", "looked_at", r.Looked, "changed", r.Changed)
		case r.Over && r.Looked > 0:
			log.Info("all jobs have the other defaults", "jobs", r.Looked, "changed", r.Changed, "took", took)
		case r.Over || first && r.Jobs == 0 && r.Took < time.Second:
			// There are no jobs, as at the first start.
		case first:
			log.Info("this server has other defaults than the one that was started last: jobs that say nothing are given them, and go by the old ones until then", "jobs", r.Jobs)
		default:
			log.Info("jobs are given the other defaults", "looked_at", r.Looked, "jobs", r.Jobs, "changed", r.Changed, "for", took)
		}
	}
}

// fileOf returns the file of a store, for the commands that are about it. instead
// says by kind what does it for databases.
func fileOf(c config.Server, instead map[string]string) (string, error) {
	if file := c.Store.File(); file != "" {
		return file, nil
	}
	return "", failed("the store is %s and not a file", c.Store.Shown()).withHint("%s", instead[c.Store.Kind()])
}
