package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/health"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// addStoreFlags adds the flags for the store of a server.
func addStoreFlags(cmd *cobra.Command, file *string, c *config.Server) {
	f := cmd.Flags()
	addWord(f, file, "config", "c", "FILE", "configuration file of the server")
	addWord(f, &c.Data, "data", "", "DIRECTORY", "data directory of the server; else BELFRY_DATA, else that of belfry serve")
	addText(f, &c.Store, "store", "", "SQLite in the data directory", "URL", "store of the server; else BELFRY_STORE")
	addText(f, &c.History, "history", "", "in the store", "URL", "history store of the server; else BELFRY_HISTORY")
}

func newBackup(env Env) *cobra.Command {
	var (
		file     string
		c        config.Server
		withKeys bool
	)
	cmd := &cobra.Command{
		Use:   "backup FILE [flags]",
		Short: "Back up the store to a file",
		Long: `Back up the store to a file: jobs, history with output, tokens and audit, as of one
moment. It reads the store in the data directory, so run it on the machine of the
server and as its user. The server may be running.

FILE must not exist. Only its owner can read it, and it is complete when the
command exits with 0.

With --with-keys FILE is an archive with all that a new machine needs: the store, the key of
its secrets, the files of secrets, the token, and the configuration that --config names. Protect
it like these files: it opens all secrets. Without it the command names the files that
it leaves out.`,
		Example: `belfry backup /backup/belfry-$(date +%F).db
belfry backup --with-keys --config /etc/belfry/belfry.yaml /backup/belfry-$(date +%F).tar
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
			// An interrupt leaves no partial file.
			ctx, stop := untilSignal(cmd.Context(), nothing, nil, nil)
			defer stop()
			if withKeys {
				err = backUpWithKeys(ctx, env, file, c, path, env.path(args[0]))
			} else {
				err = sqlite.Backup(ctx, path, env.path(args[0]))
			}
			if err != nil {
				return storeFailure(ctx, err, "choose a new file name; existing files are not overwritten")
			}
			if err := health.SaveBackup(c.Data, health.Saved{At: env.Now(), File: env.path(args[0])}); err != nil {
				env.tell("the backup is complete, but belfry doctor will not know of it: %v\n", err)
			}
			if !withKeys {
				sayLeftOut(env, file, c)
			}
			return nil
		},
	}
	addStoreFlags(cmd, &file, &c)
	cmd.Flags().BoolVar(&withKeys, "with-keys", false, "add the key of secrets, files of secrets, the token and the configuration: FILE is an archive")
	return cmd
}

// sayLeftOut names the files without which a restored store has no secrets.
func sayLeftOut(env Env, file string, c config.Server) {
	files, err := keptFiles(env, file, c)
	if err != nil {
		env.tell("files beside the store were not examined: %v\n", err)
	}
	var names []string
	for _, f := range files {
		if f.name == keptKey || strings.HasPrefix(f.name, keptSecrets) {
			names = append(names, f.at)
		}
	}
	if len(names) > 0 {
		env.tell("not in the backup, and needed with it: %s; keep them too, or use --with-keys\n", shortList(names))
	}
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
already. All jobs continue from now.

FILE may be an archive of belfry backup --with-keys: its files are restored too, and none
that is there is overwritten. The command names what the store needs and this machine lacks.`,
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
			if err := otherUser(filepath.Dir(path)); err != nil {
				return err
			}
			var r sqlite.Restored
			if from := env.path(args[0]); isArchive(from) {
				r, err = restoreArchive(ctx, env, c, from, path)
			} else {
				r, err = sqlite.Restore(ctx, from, path, env.Now)
			}
			if err != nil {
				return storeFailure(ctx, err, fmt.Sprintf("move %s and the files beside it away, or name another directory with --data", filepath.Base(path)))
			}
			env.tell("%s restored, last changed %s; ended %s that %s planned or running\n",
				counted(r.Jobs, "job"), instant(env, r.Changed), counted(r.Ended, "run"), was(r.Ended))
			if err := sayMissing(ctx, env, c); err != nil {
				env.tell("the store is restored, and what it needs was not examined: %v\n", err)
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

// nothing ignores the second signal, which then ends the process.
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
