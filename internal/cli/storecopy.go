package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/cli/storecopy"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/server"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/notify"
	"github.com/belfry-cron/belfry/store"
)

func newStore(env Env) *cobra.Command {
	cmd := group("store", "stores", "Copy, check and upgrade stores", "belfry store copy sqlite:belfry.db postgres://belfry@db.example.com/belfry\nbelfry store check")
	cmd.Long = "Copy, check and upgrade stores. These commands open stores themselves, without a server."
	cmd.AddCommand(newStoreCopy(env), newStoreCheck(env), newStoreMigrate(env))
	return cmd
}

// fromVariable begins an address in an environment variable.
const fromVariable = "env:"

// storeAddress reads the URL of a store, or the name of a variable with it: others can see
// passwords on a command line.
func storeAddress(env Env, name, text string) (s config.Store, err error) {
	if variable, ok := strings.CutPrefix(text, fromVariable); ok {
		if text = env.Getenv(variable); text == "" {
			return s, misused("%s: the environment variable %s is empty", name, variable)
		}
	}
	if err := s.UnmarshalText([]byte(text)); err != nil {
		return s, misused("%s %v", name, err)
	}
	if file := s.File(); file != "" {
		s = config.StoreIn(env.path(file))
	}
	return s, nil
}

// openWhole opens a store for a command on the whole store, with its history if that is
// separate. named is the user's name for its address.
func openWhole(ctx context.Context, env Env, c config.Server, at config.Store, history config.History, named string) (storecopy.Store, error) {
	c.Store, c.History = at, history
	s, err := server.OpenStore(ctx, c, server.StoreOptions{Now: env.Now, Log: logger(env, c), KeepDefaults: true})
	if err != nil {
		return nil, openFailure(err, c, named, "stop the server that has it open")
	}
	return s.(storecopy.Store), nil
}

// historyAddress is storeAddress for the history of a store that may have a separate one.
func historyAddress(env Env, name, text string, of config.Store) (h config.History, err error) {
	if text == "" {
		return h, nil
	}
	if variable, ok := strings.CutPrefix(text, fromVariable); ok {
		if text = env.Getenv(variable); text == "" {
			return h, misused("%s: the environment variable %s is empty", name, variable)
		}
	}
	if err := h.UnmarshalText([]byte(text)); err != nil {
		return h, misused("%s %v", name, err)
	}
	if !of.KeepsNoHistory() {
		return h, misused("%s: a store of the kind %s keeps its own history", name, of.Kind())
	}
	if file := h.File(); file != "" {
		h = config.History(config.StoreIn(env.path(file)))
	}
	return h, nil
}

type copyFlags struct {
	file string
	// fromHistory and toHistory are where FROM and TO have their history if that is elsewhere.
	fromHistory, toHistory string
	dry                    bool
	active                 bool
	output                 string
}

func newStoreCopy(env Env) *cobra.Command {
	var ask copyFlags
	cmd := &cobra.Command{
		Use:   "copy FROM TO [flags]",
		Short: "Copy all that a store keeps to another store",
		Long: `Copy all that a store keeps to another store of any kind: jobs with revisions and
cursors, planned runs, calendars, pools, channels, tokens, notifications that wait, the audit,
and history with output.
FROM and TO are URLs as for belfry serve --store; env:NAME is the URL in the environment
variable NAME, which hides a password from other users of the machine. A store in etcd
or Redis whose history is in another store needs --from-history or --to-history.

Stop all servers of FROM first, and start them with TO afterwards: planned runs and later
occurrences then start there, once. The copy is refused while servers of FROM are live or
runs are running. --active copies anyway: running runs become lost in TO, and servers that
still use FROM continue to run the same jobs.

TO must be empty, or a copy of FROM that was not used since. A repeated copy writes only
what is new; an interrupted one continues. At the end both are read again and compared.
If the servers have a configuration file, name it with --config: jobs are copied with
the defaults in it. The key of secrets is in no store: servers of TO need it too.`,
		Example: `belfry store copy sqlite:/var/lib/belfry/belfry.db postgres://belfry@db.example.com/belfry
belfry store copy sqlite:belfry.db env:NEW_STORE --dry-run
belfry store copy sqlite:belfry.db etcd://etcd1.example.com/belfry --to-history env:NEW_HISTORY`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return misused("takes FROM and TO, the URLs of two stores")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			_, c, err := serverConfig(env, ask.file, config.Server{})
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context(), nothing, nil, nil)
			defer stop()
			return copyStore(ctx, env, c, args, ask)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&ask.dry, "dry-run", false, "count what FROM keeps, and write nothing")
	f.BoolVar(&ask.active, "active", false, "copy even if servers of FROM are live or runs are running; these become lost in TO")
	addWord(f, &ask.fromHistory, "from-history", "", "URL", "history store of FROM; else its history is in FROM")
	addWord(f, &ask.toHistory, "to-history", "", "URL", "history store of TO; else its history goes to TO")
	addWord(f, &ask.file, "config", "c", "FILE", "configuration file of the servers")
	addOutput(cmd, &ask.output, asTable, asJSON, asYAML)
	return cmd
}

// copyReport is the output of belfry store copy.
type copyReport struct {
	From         string `json:"from"`
	To           string `json:"to"`
	DryRun       bool   `json:"dry_run,omitempty"`
	Jobs         int    `json:"jobs"`
	Revisions    int    `json:"revisions"`
	Calendars    int    `json:"calendars"`
	Pools        int    `json:"pools"`
	Tokens       int    `json:"tokens"`
	Runs         int    `json:"unfinished_runs"`
	Running      int    `json:"running_runs"`
	LeftOut      int    `json:"runs_of_deleted_jobs_left_out"`
	AuditRecords int    `json:"audit_records"`
	Attempts     int    `json:"finished_attempts"`
	Written      int    `json:"written"`
	Digest       string `json:"digest,omitempty"`
}

func copyStore(ctx context.Context, env Env, c config.Server, args []string, ask copyFlags) (err error) {
	at := make([]config.Store, 2)
	history := make([]config.History, 2)
	for i, name := range []string{"FROM", "TO"} {
		if at[i], err = storeAddress(env, name, args[i]); err != nil {
			return err
		}
		if at[i].Password() && !strings.HasPrefix(args[i], fromVariable) {
			env.tell("the password in %s is visible to other users of this machine; better %sNAME\n", name, fromVariable)
		}
		flag, text := "--from-history", ask.fromHistory
		if i == 1 {
			flag, text = "--to-history", ask.toHistory
		}
		if history[i], err = historyAddress(env, flag, text, at[i]); err != nil {
			return err
		}
		if history[i].Password() && !strings.HasPrefix(text, fromVariable) {
			env.tell("the password in %s is visible to other users of this machine; better %sNAME\n", flag, fromVariable)
		}
	}
	if at[0].Kind() == config.SQLite {
		if _, err := os.Stat(at[0].File()); errors.Is(err, fs.ErrNotExist) {
			return &failure{code: ExitUsage, message: fmt.Sprintf("FROM: %s does not exist", at[0].File())}
		}
	}
	from, err := openWhole(ctx, env, c, at[0], history[0], "FROM")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	o := storecopy.Options{Active: ask.active, Dry: ask.dry, From: at[0].Shown(), Progress: progress(env), KeepEnds: func(ctx context.Context) error { return notify.KeepEnds(ctx, from, env.Now) }}
	var to storecopy.Store
	if !ask.dry {
		if to, err = openWhole(ctx, env, c, at[1], history[1], "TO"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, to.Close()) }()
	}
	if !ask.dry {
		if err := shipAll(ctx, from); err != nil { // reads of history only include some waiting records
			return failed("FROM: %v", err)
		}
	}
	r, err := storecopy.Copy(ctx, from, to, o)
	if err == nil && !ask.dry {
		err = shipAll(ctx, to)
	}
	if err != nil {
		return copyFailure(ctx, err)
	}
	sayKeys(ctx, env, from, at)
	shown := copyReport{
		From: at[0].Shown(), To: at[1].Shown(), DryRun: ask.dry, Jobs: r.Jobs, Revisions: r.Revisions, Calendars: r.Calendars, Pools: r.Pools, Tokens: r.Tokens,
		Runs: r.Ready + r.Waiting, Running: r.Running, LeftOut: r.LeftOut, AuditRecords: r.Audit, Attempts: r.Attempts, Written: r.Written, Digest: r.Digest,
	}
	return showOne(env, ask.output, shown, "", func(w io.Writer) { copyTable(w, &shown) })
}

// sayKeys names the place of the secrets' key, which no store has.
func sayKeys(ctx context.Context, env Env, from secret.Notes, at []config.Store) {
	keeper := secret.Keeper{Store: from}
	if sealed, err := keeper.AnySealed(ctx); err != nil || sealed == nil {
		return
	}
	key := "the key file of the servers of FROM"
	if file := at[0].File(); file != "" {
		key = filepath.Join(filepath.Dir(file), config.KeyFileName) + " (or what secrets.key_file names)"
	}
	where := "to each server of TO, and set secrets.key_file"
	if file := at[1].File(); file != "" {
		if from := at[0].File(); from != "" && filepath.Dir(from) == filepath.Dir(file) {
			return
		}
		where = "to " + filepath.Join(filepath.Dir(file), config.KeyFileName)
	}
	env.tell("the copy has the secrets, and not the key that opens them: copy %s %s\n", key, where)
}

// shipAll ships the records that wait for a separate history.
func shipAll(ctx context.Context, s store.Store) error {
	if apart, ok := s.(interface {
		ShipAll(ctx context.Context) error
	}); ok {
		return apart.ShipAll(ctx)
	}
	return nil
}

// progress returns a function that shows the progress of a copy: each part, and every few seconds
// the number of items.
func progress(env Env) func(string, int) {
	const every = 5 * time.Second
	last, at := "", time.Time{}
	return func(stage string, done int) {
		if now := env.Now(); stage != last || now.Sub(at) > every {
			last, at = stage, now
			env.tell("%s: %d\n", stage, done)
		}
	}
}

func copyTable(w io.Writer, c *copyReport) {
	rows := [][2]any{
		{"jobs", c.Jobs}, {"calendars", c.Calendars}, {"pools", c.Pools}, {"tokens", c.Tokens},
		{"unfinished runs", c.Runs}, {"running runs", c.Running}, {"audit records", c.AuditRecords}, {"finished attempts", c.Attempts},
	}
	if c.LeftOut > 0 {
		rows = append(rows, [2]any{"left out", fmt.Sprintf("%s of deleted jobs, which never start", counted(c.LeftOut, "run"))})
	}
	if !c.DryRun {
		rows = append(rows, [2]any{"written", c.Written})
		if c.Digest == "" {
			rows = append(rows, [2]any{"verified", "no, since servers of FROM are live: copy again when they have stopped"})
		} else {
			rows = append(rows, [2]any{"verified", "both stores have the digest " + c.Digest})
		}
	}
	for _, row := range rows {
		fmt.Fprintf(w, "%-17s  %v\n", row[0], row[1])
	}
}

func copyFailure(ctx context.Context, err error) error {
	f := failed("%v", err)
	switch {
	case ctx.Err() != nil:
		return &failure{code: ExitInterrupted, message: "interrupted", hint: "the same command continues the copy; start no server with TO before it has ended"}
	case errors.Is(err, storecopy.ErrActive):
		f.code = ExitConflict
		return f.withHint("stop the servers; one that was killed is live for 6s. --active copies nevertheless, and runs that are running become lost in TO")
	case errors.Is(err, storecopy.ErrOther):
		f.code = ExitConflict
		return f.withHint("name an empty store: another file, database, schema or prefix")
	case errors.Is(err, storecopy.ErrDiffers):
		return f.withHint("something was changed meanwhile: see that no server uses either, and copy again")
	}
	return f.withHint("the same command continues the copy; start no server with TO before it has ended")
}
