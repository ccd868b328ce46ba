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
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// addServerFlags adds the flags that configure a server.
func addServerFlags(cmd *cobra.Command, file *string, c *config.Server) {
	f := cmd.Flags()
	addWord(f, file, "config", "c", "FILE", "configuration file")
	addWord(f, &c.Data, "data", "", "DIRECTORY", "data directory of the server; else BELFRY_DATA, else belfry in $XDG_STATE_HOME, else /var/lib/belfry for root and ~/.local/state/belfry for others")
	addText(f, &c.Listen, "listen", "", config.DefaultListen, "ADDRESS", "address of the API")
	addText(f, &c.Store, "store", "", "SQLite in the data directory", "URL", "where jobs, runs and history are kept; else BELFRY_STORE")
	addText(f, &c.History, "history", "", "in the store", "URL", "where history and output are kept, for a store in etcd or Redis; else BELFRY_HISTORY")
	addWord(f, &c.Name, "name", "", "NAME", "name of this node; else the host name")
	addParsed(f, &c.Roles, "roles", "", "all three", "ROLE,...", "what this node does: planner, worker, api", config.ParseRoles)
	f.Var((*labels)(&c.Labels), "label", "label by which jobs choose this node: KEY=VALUE; may be repeated")
	addParsed(f, &c.Capacity, "capacity", "", fmt.Sprint(node.DefaultCapacity), "N", "how many attempts may run at once", parsePositive)
	addText(f, &c.Timezone, "timezone", "", "UTC", "ZONE", "time zone of schedules without one")
	addParsed(f, &c.Drain, "drain-timeout", "", "30s", "DURATION", "how long a stopping server waits for running commands", parseLonger)
	addWord(f, &c.TLS.Cert, "tls-cert", "", "FILE", "certificate of the server, a PEM file")
	addWord(f, &c.TLS.Key, "tls-key", "", "FILE", "private key of the certificate, a PEM file")
	addSwitch(f, &c.PlainHTTP, "plain-http", "allow plain HTTP on an address that other machines can reach")
	addText(f, &c.XXL.Listen, "xxl-listen", "", "none", "ADDRESS", "address for executors of XXL-JOB; else BELFRY_XXL_LISTEN")
	addParsed(f, &c.XXL.Tokens, "xxl-token", "", "none", "FILE,...", "files with the access token of executors; else BELFRY_XXL_TOKENS", config.ParsePaths)
	addWord(f, &c.Shell.DefaultUser, "run-as", "", "USER", "user that runs commands of jobs without run.user; only root can switch users")
	addChoice(cmd, (*string)(&c.LogFormat), "log-format", "", "log format; text on a terminal, else json", c.LogFormat.Values()...)
	addChoice(cmd, (*string)(&c.LogLevel), "log-level", "", "lowest level that is logged; else info", c.LogLevel.Values()...)
	complete(cmd, "roles", config.Role("").Values()...)
	complete(cmd, "timezone", cron.ZoneNames()...)
}

// serverConfig combines flags, environment and file.
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
	for _, list := range [][]config.Path{l.Flags.XXL.Tokens, l.Env.XXL.Tokens} {
		for i, name := range list {
			list[i] = config.Path(env.path(string(name)))
		}
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "" // the name is then belfry
	}
	c := l.Flags.Over(l.Env).Over(l.File).Filled(env.Getenv, hostname, env.StderrIsTerminal)
	if err := c.Check(); err != nil {
		return l, c, &failure{code: ExitUsage, message: err.Error()}
	}
	return l, c, nil
}

// wrongSettings is the failure for a settings file, with all of its mistakes.
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

// setting is a [config.Setting] as it is written.
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
		Short: "Show the effective configuration and where each value comes from",
		Long: `Show the configuration that belfry serve would have with the same flags, and where
each value comes from: a flag, an environment variable, the file, or the default.
Values that may be secret are hidden.

It neither starts nor contacts a server.`,
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

// settingText formats a value as in a file, in one line.
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
