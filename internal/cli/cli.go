// Package cli is Belfry's command line: it reads arguments, calls the packages that do the
// work and prints their results. It decides nothing about schedules or jobs, and follows
// the conventions in docs/cli.md.
//
// Each command has a file. Its environment is an [Env], so that tests run commands as
// functions.
package cli

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Env is the environment of commands.
type Env struct {
	Stdin  io.Reader
	Stdout io.Writer // data
	Stderr io.Writer // everything else
	Getenv func(string) string
	Now    func() time.Time
	Dir    string // base of relative file names
	// Program is how this program is called; "" is belfry.
	Program string

	// Whether the streams are terminals. A terminal shows colours and countdowns, and can
	// prompt; anything else gets exact data.
	StdinIsTerminal  bool
	StdoutIsTerminal bool
	StderrIsTerminal bool

	// root is the folder that files of strangers must not leave; nil for those of the user.
	root *os.Root
}

// System returns the [Env] of this process.
func System() Env {
	// A server's messages must name its files from any folder. If the folder no longer exists, ""
	// leaves names unchanged.
	dir, _ := os.Getwd()
	return Env{
		Dir:              dir,
		Stdin:            os.Stdin,
		Stdout:           os.Stdout,
		Stderr:           os.Stderr,
		Getenv:           os.Getenv,
		Now:              time.Now,
		Program:          program(),
		StdinIsTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		StdoutIsTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		StderrIsTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}
}

// path returns where a file is that a person has named.
func (env Env) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(env.Dir, name)
}

// open opens a file that a person or a document has named.
func (env Env) open(name string) (*os.File, error) {
	if env.root != nil {
		return env.root.Open(name)
	}
	return os.Open(env.path(name))
}

// Run runs the command that args name, without the name of the program, and
// returns its exit code. What went wrong is on env.Stderr by then.
func Run(ctx context.Context, env Env, args []string) ExitCode {
	root := newRoot(env) //nolint:contextcheck // commands receive ctx when they run
	// The command library ignores whether the help could be printed.
	var help error
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { help = printHelp(env, cmd) })
	root.SetArgs(args)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// A mistyped command may have flags that its parents lack.
		if group, rest, e := root.Find(args); e == nil && group.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			return unknownCommand(group, rest)
		}
		return flagFailure(cmd, err)
	})
	cmd, err := root.ExecuteContextC(ctx)
	if err = cmp.Or(err, help); err == nil {
		return ExitOK
	}
	f := asFailure(err)
	f.report(env, cmd)
	return f.code
}

// Commands returns the tree of all commands, for manual pages.
func Commands() *cobra.Command { return newRoot(System()) }

// newRoot returns the tree of all commands.
func newRoot(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "belfry",
		Short: "A distributed crontab",
		Long: `Belfry is a distributed crontab: it runs commands and HTTP calls on a schedule.
belfry serve runs the server; the other commands are its client or work offline.`,
		Example: `belfry serve
belfry apply -f jobs.yaml
belfry job run nightly --logs
belfry next '30 2 * * 1-5' --tz Europe/Berlin`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, withDash(cmd, args))
			}
			return cmd.Help()
		},
		Version:       versionOf(buildInfo()).Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.Flags().BoolP("version", "v", false, "print the version")
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetHelpCommand(newHelp())
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		newServe(env),
		newWorker(env),
		newUI(env),
		newLogin(env),
		newLogout(env),
		newConfig(env),
		newDoctor(env),
		newStatus(env),
		newService(env),
		newBackup(env),
		newRestore(env),
		newStore(env),
		newApply(env),
		newDiff(env),
		newSync(env),
		newExport(env),
		newCrontab(env),
		newExec(env),
		newJob(env),
		newRun(env),
		newLogs(env),
		newEvents(env),
		newAttention(env),
		newLoad(env),
		newCalendar(env),
		newPool(env),
		newWindow(env),
		newHook(env),
		newChannel(env),
		newListed(env),
		newNotification(env),
		newNode(env),
		newXXL(env),
		newKubernetes(env),
		newDkron(env),
		newToken(env),
		newBadge(env),
		newSession(env),
		newSecret(env),
		newAudit(env),
		newWhy(env),
		newMCP(env),
		newNext(env),
		newValidate(env),
		newSchema(env),
		newVersion(env),
		newCompletion(env),
	)
	finish(root)
	return root
}

// finish adds the common settings to a command and its subcommands.
func finish(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolP("help", "h", false, "show this help")
	cmd.ValidArgsFunction = orNoFiles(cmd.ValidArgsFunction)
	for _, inner := range cmd.Commands() {
		finish(inner)
	}
}

// orNoFiles keeps shells from completing file names for other arguments.
func orNoFiles(f cobra.CompletionFunc) cobra.CompletionFunc {
	if f != nil {
		return f
	}
	return cobra.NoFileCompletions
}
