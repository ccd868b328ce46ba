package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/health"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// addStoreFlags adds the flags that say where the store of a server is.
func addStoreFlags(cmd *cobra.Command, file *string, c *config.Server) {
	f := cmd.Flags()
	addWord(f, file, "config", "c", "FILE", "configuration file of the server")
	addWord(f, &c.Data, "data", "", "DIRECTORY", "data directory of the server; else BELFRY_DATA, else that of belfry serve")
	addText(f, &c.Store, "store", "", "SQLite in the data directory", "URL", "store of the server; else BELFRY_STORE")
	addText(f, &c.History, "history", "", "in the store", "URL", "history store of the server; else BELFRY_HISTORY")
}

func newBackup(env Env) *cobra.Command {
	var (
		file string
		c    config.Server
	)
	cmd := &cobra.Command{
		Use:   "backup FILE [flags]",
		Short: "Back up the store to a file",
		Long: `Back up the store to a file: jobs, history with output, tokens and audit, as of one
moment. It reads the store in the data directory, so run it on the machine of the
server and as its user. The server may be running.

FILE must not exist. Only its owner can read it, and it is complete when the
command exits with 0.`,
		Example: `belfry backup /backup/belfry-$(date +%F).db
sudo -u belfry belfry backup --data /var/lib/belfry /backup/belfry.db`,
		Args:              oneName("file"),
		ValidArgsFunction: files,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, c, err := serverConfig(env, file, c)
			if err != nil {
				return err
			}
			path, err := fileOf(c, map[string]string{
				config.Postgres: "pg_dump makes backups of PostgreSQL",
				config.MySQL:    "mysqldump --single-transaction makes backups of MySQL, mariadb-dump those of MariaDB",
			})
			if err != nil {
				return err
			}
			// An interrupt leaves no part of it lying.
			ctx, stop := untilSignal(cmd.Context(), nothing, nil, nil)
			defer stop()
			if err := sqlite.Backup(ctx, path, env.path(args[0])); err != nil {
				return storeFailure(ctx, err, "choose a new file name; existing files are not overwritten")
			}
			if err := health.SaveBackup(c.Data, health.Saved{At: env.Now(), File: env.path(args[0])}); err != nil {
				env.tell("the backup is complete, but belfry doctor will not know of it: %v\n", err)
			}
			return nil
		},
	}
	addStoreFlags(cmd, &file, &c)
	return cmd
}

func newRestore(env Env) *cobra.Command {
	var (
		file string
		c    config.Server
	)
	cmd := &cobra.Command{
		Use:   "restore FILE [flags]",
		Short: "Restore a store from a backup",
		Long: `Restore a store from a backup. The data directory must not have a store yet, and no
server may use it. A backup of a newer belfry is refused.

No run is repeated: runs that were planned or running at the time of the backup are
ended, and occurrences since then are not caught up, because they may have run
already. All jobs continue from now.`,
		Example: `belfry restore /backup/belfry-2026-11-21.db
belfry restore --data /var/lib/belfry /backup/belfry.db`,
		Args:              oneName("file"),
		ValidArgsFunction: files,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, c, err := serverConfig(env, file, c)
			if err != nil {
				return err
			}
			path, err := fileOf(c, map[string]string{
				config.Postgres: "pg_restore restores PostgreSQL",
				config.MySQL:    "mysql reads what mysqldump has written, mariadb what mariadb-dump has",
			})
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context(), nothing, nil, nil)
			defer stop()
			r, err := sqlite.Restore(ctx, env.path(args[0]), path, env.Now)
			if err != nil {
				return storeFailure(ctx, err, fmt.Sprintf("move %s and the files beside it away, or name another directory with --data", filepath.Base(path)))
			}
			env.tell("%s restored, last changed %s; ended %s that %s planned or running\n",
				counted(r.Jobs, "job"), instant(env, r.Changed), counted(r.Ended, "run"), was(r.Ended))
			token := filepath.Join(c.Data, auth.TokenFile)
			if _, err := os.Stat(token); errors.Is(err, fs.ErrNotExist) {
				env.tell("backups do not include %s: put it back, or create another one with belfry token reset\n", token)
			}
			return nil
		},
	}
	addStoreFlags(cmd, &file, &c)
	return cmd
}

func was(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// files lets shells complete the names of files.
func files(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// nothing is done before a second signal ends the process.
func nothing(os.Signal) {}

// storeFailure is the failure of a command about the file of a store.
func storeFailure(ctx context.Context, err error, exists string) error {
	f := failed("%v", err)
	switch {
	case ctx.Err() != nil:
		f = &failure{code: ExitInterrupted, message: "interrupted; nothing was written"}
	case errors.Is(err, sqlite.ErrInUse):
		f.code = ExitConflict
	case errors.Is(err, fs.ErrExist):
		f.code = ExitConflict
		return f.withHint("%s", exists)
	case errors.Is(err, fs.ErrNotExist):
		f.code = ExitUsage
	}
	return f
}
