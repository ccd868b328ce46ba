package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/config"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/job"
)

// addServerFlags adds the flags by which a server is told something.
func addServerFlags(cmd *cobra.Command, file *string, c *config.Server) {
	f := cmd.Flags()
	addWord(f, file, "config", "c", "FILE", "file with the configuration")
	addWord(f, &c.Data, "data", "", "DIRECTORY", "directory of everything that the server keeps; else BELFRY_DATA, else belfry in $XDG_STATE_HOME, else /var/lib/belfry for root and ~/.local/state/belfry for others")
	addText(f, &c.Listen, "listen", "", config.DefaultListen, "ADDRESS", "address of the API")
	addText(f, &c.Store, "store", "", "SQLite in the data directory", "URL", "where jobs, runs and history are kept; else BELFRY_STORE")
	addWord(f, &c.Name, "name", "", "NAME", "name of this node; else that of the machine")
	addParsed(f, &c.Roles, "roles", "", "all three", "ROLE,...", "what this node does: planner, worker, api", config.ParseRoles)
	f.Var((*labels)(&c.Labels), "label", "label that jobs choose this node by: KEY=VALUE; may be repeated")
	addParsed(f, &c.Capacity, "capacity", "", fmt.Sprint(node.DefaultCapacity), "N", "how many attempts run at once", parsePositive)
	addText(f, &c.Timezone, "timezone", "", "UTC", "ZONE", "time zone of schedules that name none")
	addParsed(f, &c.Drain, "drain-timeout", "", "30s", "DURATION", "how long a server that stops waits for what it runs", parseLonger)
	addWord(f, &c.TLS.Cert, "tls-cert", "", "FILE", "file with the certificate of the server, in PEM")
	addWord(f, &c.TLS.Key, "tls-key", "", "FILE", "file with its private key, in PEM")
	addSwitch(f, &c.PlainHTTP, "plain-http", "allow an address that others reach without TLS")
	addWord(f, &c.Shell.DefaultUser, "run-as", "", "USER", "user of jobs that name none, if the server is root")
	addChoice(cmd, (*string)(&c.LogFormat), "log-format", "", "form of the log; text on a terminal, else json", c.LogFormat.Values()...)
	addChoice(cmd, (*string)(&c.LogLevel), "log-level", "", "least weight of what is logged; else info", c.LogLevel.Values()...)
	complete(cmd, "roles", config.Role("").Values()...)
	complete(cmd, "timezone", cron.ZoneNames()...)
}

// serverConfig puts together what flags, environment and file say.
func serverConfig(env Env, file string, flags config.Server) (config.Layers, config.Server, error) {
	l := config.Layers{Flags: flags, FileName: file}
	var err error
	if l.Env, err = config.ServerFromEnv(env.Getenv); err != nil {
		return l, config.Server{}, misused("%v", err)
	}
	if file != "" {
		if l.File, err = config.ReadServer(env.path(file), file); err != nil {
			return l, config.Server{}, wrongSettings(env, file, err)
		}
	}
	for _, name := range []*string{&l.Flags.Data, &l.Flags.TLS.Cert, &l.Flags.TLS.Key, &l.Env.Data} {
		if *name != "" {
			*name = env.path(*name)
		}
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "" // then it is called belfry
	}
	c := l.Flags.Over(l.Env).Over(l.File).Filled(env.Getenv, hostname, env.StderrIsTerminal)
	if err := c.Check(); err != nil {
		return l, c, &failure{code: ExitUsage, message: err.Error()}
	}
	return l, c, nil
}

// wrongSettings is the failure for a file of settings. All of its mistakes are
// shown.
func wrongSettings(env Env, name string, err error) *failure {
	var problems job.Problems
	if !errors.As(err, &problems) {
		return unreadable(name, err)
	}
	tellProblems(env, problems)
	f := failed("%s in %s", counted(len(problems), "mistake"), name)
	f.code = ExitUsage
	return f
}

// setting is a config.Setting as it is written.
type setting struct {
	Field   string `json:"field"`
	Value   any    `json:"value"`
	From    string `json:"from"`
	Default string `json:"default"`
	Doc     string `json:"doc"`
}

func newConfig(env Env) *cobra.Command {
	var (
		file   string
		flags  config.Server
		output string
	)
	cmd := &cobra.Command{
		Use:   "config [flags]",
		Short: "Show what a server is told, and by whom",
		Long: `Show the configuration that belfry serve would have with the same flags, here
and now, and where each value is from: a flag, a variable of the environment, the
file, or nobody, so that it is the default. What may hold a secret is not shown.

It reads the configuration and nothing else: no server is asked or started.`,
		Example: `belfry config
belfry config --config /etc/belfry.yaml
belfry config --config /etc/belfry.yaml -o wide
belfry config --listen :8420 --plain-http -o json`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			layers, c, err := serverConfig(env, file, flags)
			if err != nil {
				return err
			}
			var list []setting
			for _, s := range layers.Settings(c) {
				list = append(list, setting{s.Name, s.Value, s.From, s.Default, s.Doc})
			}
			return showList(env, output, list, "", func(s setting) string { return s.Field }, func(w io.Writer) {
				settingTable(w, env, list, output == asWide)
			})
		},
	}
	addServerFlags(cmd, &file, &flags)
	addOutput(cmd, &output, asTable, asWide, asJSON, asYAML, asJSONL, asName)
	return cmd
}

// settingTable writes settings for people.
func settingTable(w io.Writer, env Env, list []setting, wide bool) {
	head := []string{"FIELD", "VALUE", "FROM"}
	if wide {
		head = append(head, "DEFAULT", "MEANING")
	}
	var rows [][]string
	for _, s := range list {
		row := []string{s.Field, settingText(s.Value), s.From}
		if wide {
			row = append(row, orDash(s.Default), s.Doc)
		}
		rows = append(rows, row)
	}
	table(w, styleFor(env, env.StdoutIsTerminal), head, rows)
}

// settingText writes a value as a file would have it, in one line.
func settingText(value any) string {
	if value == nil {
		return "-"
	}
	var b bytes.Buffer
	if err := encodeJSONLine(&b, value); err != nil {
		return fmt.Sprint(value)
	}
	var text string
	if json.Unmarshal(b.Bytes(), &text) == nil {
		return text
	}
	return string(bytes.TrimSpace(b.Bytes()))
}
