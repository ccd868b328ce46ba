package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/cli/doctor"
	"github.com/belfry-cron/belfry/internal/cli/storecopy"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newStoreCheck(env Env) *cobra.Command {
	var (
		file   string
		flags  config.Server
		fix    bool
		output string
	)
	cmd := &cobra.Command{
		Use:   "check [URL] [flags]",
		Short: "Check a store for damage, and mend it",
		Long: `Check a store for damage: contradictions in jobs, cursors, unfinished runs, slots, names,
indexes, the feed of planners, revisions, the audit and history. URL is as
for belfry serve --store; without it the store is that of the server's configuration.
With --history, or that of the configuration, history in another store is checked too.

--fix repairs damage that has only one possible repair: each job in one step, with a record
in the audit. Other damage is only reported; you may need a backup. Servers on a database may
run meanwhile; an SQLite file must not be in use.

The exit code is 1 if there is damage that was not repaired.`,
		Example: "belfry store check\nbelfry store check postgres://belfry@db.example.com/belfry\nbelfry store check --fix -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misused("takes at most one URL")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var named config.Store
			if len(args) == 1 {
				var err error
				if named, err = storeAddress(env, "URL", args[0]); err != nil {
					return err
				}
				if named.KeepsNoHistory() {
					flags.Store = named // used with --history
				}
			}
			_, c, err := serverConfig(env, file, flags)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if c.Store = named; !named.KeepsNoHistory() {
					c.History = "" // from the configuration
				}
			}
			ctx, stop := untilSignal(cmd.Context(), nothing, nil, nil)
			defer stop()
			return checkStore(ctx, env, c, fix, output)
		},
	}
	addStoreFlags(cmd, &file, &flags)
	cmd.Flags().BoolVar(&fix, "fix", false, "mend what can be mended")
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL)
	return cmd
}

func checkStore(ctx context.Context, env Env, c config.Server, fix bool, output string) (err error) {
	if file := c.Store.File(); file != "" {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return &failure{code: ExitUsage, message: file + " does not exist"}
		}
	}
	list := []doctor.Finding{doctor.Store(ctx, "store", c.Store)}
	if c.History != "" {
		list = append(list, doctor.HistoryStore(ctx, c.History))
	}
	if !slices.ContainsFunc(list, func(f doctor.Finding) bool { return f.Status == doctor.Wrong }) {
		s, err := openWhole(ctx, env, c, c.Store, c.History, "URL")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		checked, err := storecopy.Check(ctx, s, storecopy.CheckOptions{Fix: fix, Progress: progress(env)})
		if ctx.Err() != nil {
			return &failure{code: ExitInterrupted, message: "interrupted"}
		}
		if err != nil {
			return failed("%v", err)
		}
		list = append(list, findingsOf(&checked)...)
	}
	if err := showList(env, output, list, "", func(f doctor.Finding) string { return f.Check }, func(w io.Writer) { findingTable(w, env, list) }); err != nil {
		return err
	}
	return problems(list)
}

// findingsOf describes the findings and the scope of a check.
func findingsOf(c *storecopy.Checked) (list []doctor.Finding) {
	for i := range c.Damage {
		d := &c.Damage[i]
		f := doctor.Finding{Check: d.Check, Status: doctor.Wrong, Found: d.Object + ": " + d.Found, Do: "only a person can decide: restore a backup, or delete what is damaged"}
		switch {
		case d.Mended:
			f.Status, f.Do = doctor.Mended, "done: "+d.Mend
		case d.Mend != "":
			f.Do = "--fix would " + d.Mend
		}
		list = append(list, f)
	}
	all := doctor.Finding{Check: "all", Status: doctor.Well, Found: fmt.Sprintf("looked at %s, %s, %s of the audit and %s",
		counted(c.Jobs, "job"), counted(c.Runs, "unfinished run"), counted(c.Audit, "record"), counted(c.Attempts, "finished attempt"))}
	return append(list, all)
}

// problems is the end of a check: it fails if there is a problem.
func problems(list []doctor.Finding) error {
	wrong := 0
	for _, f := range list {
		if f.Status == doctor.Wrong {
			wrong++
		}
	}
	switch wrong {
	case 0:
		return nil
	case 1:
		return failed("1 problem")
	}
	return failed("%d problems", wrong)
}
