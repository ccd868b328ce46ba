package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/auth"
	"github.com/belfry-cron/belfry/internal/config"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// addStoreFlags adds the flags that say where the store of a server is.
func addStoreFlags(cmd *cobra.Command, file *string, c *config.Server) {
	f := cmd.Flags()
	addWord(f, file, "config", "c", "FILE", "file with the configuration of the server")
	addWord(f, &c.Data, "data", "", "DIRECTORY", "data directory of the server; else BELFRY_DATA, else that of belfry serve")
	addText(f, &c.Store, "store", "", "SQLite in the data directory", "URL", "store of the server; else BELFRY_STORE")
}

func newBackup(env Env) *cobra.Command {
	var (
		file string
		c    config.Server
	)
	cmd := &cobra.Command{
		Use:   "backup FILE [flags]",
		Short: "Copy the store into a file, while the server runs or not",
		Long: `Copy the store into a file: jobs, history with output, tokens and audit, as they
are at one moment. It reads the store in the data directory itself, so that it must
run on the machine of the server and as its user; the server may run, and goes on.

FILE must not exist. It can be read by its owner alone, and is whole once the
command has ended with 0.`,
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
			ctx, stop := untilSignal(cmd.Context(), nothing)
			defer stop()
			if err := sqlite.Backup(ctx, path, env.path(args[0])); err != nil {
				return storeFailure(ctx, err, "the backup is not written over another file: give it a name of its own")
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
		Short: "Make a store of a backup, where there is none",
		Long: `Make a store of a backup. There must be none yet in the data directory, and no
server may run on it. A backup of a newer belfry is refused.

Nothing runs twice for it: what was planned or going on when the backup was made
is ended, and what has fallen due since is not caught up, since it may have run
where the backup is from. All jobs go on from now.`,
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
			ctx, stop := untilSignal(cmd.Context(), nothing)
			defer stop()
			r, err := sqlite.Restore(ctx, env.path(args[0]), path, env.Now)
			if err != nil {
				return storeFailure(ctx, err, fmt.Sprintf("move away %s and what begins with its name, or name another directory with --data", filepath.Base(path)))
			}
			env.tell("%s restored, last changed %s; %s ended that %s planned or going on\n",
				counted(r.Jobs, "job"), instant(env, r.Changed), counted(r.Ended, "run"), was(r.Ended))
			token := filepath.Join(c.Data, auth.TokenFile)
			if _, err := os.Stat(token); errors.Is(err, fs.ErrNotExist) {
				env.tell("%s is not in a backup: put it back, or belfry token reset makes another one\n", token)
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
		f = &failure{code: ExitInterrupted, message: "interrupted, and nothing was made"}
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
