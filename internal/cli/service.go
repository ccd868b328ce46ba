package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/cli/systemd"
)

const (
	unitName = "belfry.service"
	unitDir  = "/etc/systemd/system"
	// systemdIsHere exists on machines that systemd has started.
	systemdIsHere = "/run/systemd/system"
)

func newService(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Run the server under systemd",
		Long: `Install, remove and show the systemd unit of the server. The packages for Debian and Red Hat
contain the same unit; this is for a program that was installed by hand.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newServiceInstall(env), newServiceUninstall(env), newServiceStatus(env))
	return cmd
}

func newServiceInstall(env Env) *cobra.Command {
	var (
		o      systemd.Options
		dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "install [flags]",
		Short: "Write the unit, enable it and start the server",
		Long: `Create the user that jobs run as, write ` + unitDir + `/` + unitName + `, enable it and start
the server. It replaces nothing that exists: a second install changes nothing.
Put settings into the configuration file that --config names, and a store URL with a
password into /etc/default/belfry, as BELFRY_STORE=postgres://...`,
		Example: "belfry service install\nbelfry service install --data /srv/belfry --run-as jobs --dry-run",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Program == "" {
				self, err := os.Executable()
				if err != nil {
					return failed("%v", err)
				}
				o.Program = self
			}
			return hostOf(env, dryRun).install(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Data, "data", systemd.DefaultData, "the data directory of the server")
	cmd.Flags().StringVar(&o.RunAs, "run-as", systemd.DefaultUser, "the user whose rights jobs have; created if it does not exist")
	cmd.Flags().StringVar(&o.Program, "program", "", "the program to start (default: this one)")
	cmd.Flags().StringVar(&o.Config, "config", "", "the configuration file of the server, an absolute path")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be done, and do nothing")
	return cmd
}

func newServiceUninstall(env Env) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:     "uninstall [flags]",
		Short:   "Stop the server and remove the unit; the data stay",
		Example: "belfry service uninstall",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return hostOf(env, dryRun).uninstall(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be done, and do nothing")
	return cmd
}

func newServiceStatus(env Env) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show what systemd knows of the server",
		Long:    "Show the status of the server in systemd. The exit code is that of systemctl.",
		Example: "belfry service status",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h := hostOf(env, false)
			if err := h.ready(); err != nil {
				return err
			}
			return h.run(cmd.Context(), "systemctl", "--no-pager", "status", unitName)
		},
	}
}

// host is the machine that a server is installed on.
type host struct {
	env    Env
	dryRun bool
	unit   string // path of the unit
	// ready reports what is missing for changes, hasUser whether there is a user, and run runs a
	// command.
	ready   func() error
	hasUser func(name string) bool
	run     func(ctx context.Context, name string, args ...string) error
}

func hostOf(env Env, dryRun bool) *host {
	return &host{
		env: env, dryRun: dryRun, unit: filepath.Join(unitDir, unitName),
		ready: func() error {
			if _, err := os.Stat(systemdIsHere); err != nil {
				return failed("systemd does not run on this machine").withHint("run belfry serve by hand or under another supervisor")
			}
			return nil
		},
		hasUser: func(name string) bool {
			_, err := user.Lookup(name)
			return err == nil
		},
		run: func(ctx context.Context, name string, args ...string) error {
			cmd := exec.CommandContext(ctx, name, args...)
			cmd.Stdout, cmd.Stderr = env.Stdout, env.Stderr
			var exit *exec.ExitError
			switch err := cmd.Run(); {
			case errors.As(err, &exit):
				return &failure{code: ExitCode(exit.ExitCode()), message: name + " " + strings.Join(args, " ") + ": " + err.Error()}
			case err != nil:
				return failed("%v", err)
			}
			return nil
		},
	}
}

// install makes the user, the unit and the service, as far as they are not there.
func (h *host) install(ctx context.Context, o systemd.Options) error {
	text, err := systemd.Unit(o)
	if err != nil {
		return misused("%v", err)
	}
	if strings.HasPrefix(o.Program, os.TempDir()+"/") {
		return failed("%s is a temporary file, which a service would soon miss", o.Program).withHint("build it first: go install ./cmd/belfry")
	}
	if !h.dryRun {
		if err := h.ready(); err != nil {
			return err
		}
	}
	there, err := os.ReadFile(h.unit)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return failed("%v", err)
	case err == nil && !bytes.Equal(there, []byte(text)):
		return failed("%s exists and is another unit", h.unit).withHint("belfry service uninstall removes it; systemctl edit belfry changes it")
	}
	if !h.hasUser(o.RunAs) {
		if err := h.do("create user "+o.RunAs, func() error {
			return h.run(ctx, "useradd", "--system", "--create-home", "--shell", "/usr/sbin/nologin", o.RunAs)
		}); err != nil {
			return err
		}
	}
	if there == nil {
		if err := h.do("write "+h.unit, func() error {
			if err := os.WriteFile(h.unit, []byte(text), 0o644); err != nil {
				return failed("%v", err)
			}
			return h.run(ctx, "systemctl", "daemon-reload")
		}); err != nil {
			return err
		}
		if h.dryRun {
			if _, err := io.WriteString(h.env.Stdout, text); err != nil {
				return failed("write: %v", err)
			}
		}
	}
	if err := h.do("enable and start "+unitName, func() error { return h.run(ctx, "systemctl", "enable", "--now", unitName) }); err != nil {
		return err
	}
	if !h.dryRun {
		h.env.tell("The server runs. Root can use it at once: belfry job list\n")
	}
	return nil
}

// uninstall stops the service and removes the unit.
func (h *host) uninstall(ctx context.Context) error {
	if _, err := os.Stat(h.unit); errors.Is(err, fs.ErrNotExist) {
		return &failure{code: ExitNotFound, message: h.unit + " does not exist"}
	}
	if !h.dryRun {
		if err := h.ready(); err != nil {
			return err
		}
	}
	if err := h.do("stop and disable "+unitName, func() error { return h.run(ctx, "systemctl", "disable", "--now", unitName) }); err != nil {
		return err
	}
	return h.do("remove "+h.unit, func() error {
		if err := os.Remove(h.unit); err != nil {
			return failed("%v", err)
		}
		return h.run(ctx, "systemctl", "daemon-reload")
	})
}

// do prints an action and does it, unless it is only shown.
func (h *host) do(what string, do func() error) error {
	if h.dryRun {
		h.env.tell("would %s\n", what)
		return nil
	}
	h.env.tell("%s\n", what)
	return do()
}
