package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/server"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newStoreMigrate(env Env) *cobra.Command {
	var (
		file  string
		flags config.Server
		sql   bool
	)
	cmd := &cobra.Command{
		Use:   "migrate [URL] [flags]",
		Short: "Bring the schema of a store up to date",
		Long: `Bring the schema of a store up to date, as the first server of a new version does when it
starts. URL is as for belfry serve --store; without it the store is that of the server's
configuration. Servers of the previous version may run meanwhile; an SQLite file must not be
in use.

--sql prints the statements that a database in PostgreSQL, MySQL or MariaDB still needs, and
changes nothing. An administrator runs them with psql or mysql, so that the user of the servers
needs no right to create tables. Without a statement to run it prints nothing.`,
		Example: "belfry store migrate\nbelfry store migrate --sql postgres://belfry@db.example.com/belfry > schema.sql",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misused("takes at most one URL")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				var err error
				if flags.Store, err = storeAddress(env, "URL", args[0]); err != nil {
					return err
				}
			}
			_, c, err := serverConfig(env, file, flags)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context(), nothing, nil, nil)
			defer stop()
			if sql {
				return printMigration(ctx, env, c)
			}
			s, err := server.OpenStore(ctx, c, server.StoreOptions{Now: env.Now, Log: logger(env, c), KeepDefaults: true})
			if err != nil {
				return openFailure(err, c, "URL", "stop the server that has it open: it has brought the schema up to date")
			}
			if err := s.Close(); err != nil {
				return failed("%v", err)
			}
			env.tell("the schema of %s is up to date\n", c.Store.Shown())
			return nil
		},
	}
	addStoreFlags(cmd, &file, &flags)
	cmd.Flags().BoolVar(&sql, "sql", false, "print the statements instead of running them")
	return cmd
}

// printMigration prints what the schema of a database still needs.
func printMigration(ctx context.Context, env Env, c config.Server) error {
	script, err := server.Migration(ctx, c.Store)
	switch {
	case errors.Is(err, server.ErrNoSQL):
		return misused("--sql is for PostgreSQL, MySQL and MariaDB, and the store is %s", c.Store.Shown())
	case err != nil:
		return openFailure(err, c, "URL", "")
	case script == "":
		env.tell("the schema of %s is up to date\n", c.Store.Shown())
	}
	_, err = fmt.Fprint(env.Stdout, script)
	return err
}
