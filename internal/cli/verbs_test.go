package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-cron/belfry/internal/check/helptest"
	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/internal/cli"
)

// verb is the test data of a command.
type verb struct {
	args   []string // arguments that succeed
	absent []string // arguments that name a missing object
	reads  bool     // a viewer may
	code   cli.ExitCode
	// unrun explains why args are not run.
	unrun string
}

// verbs has each command that has none below it. {ended} and {active} are runs,
// {n} is another number each time.
var verbs = map[string]verb{
	"apply":                {args: []string{"-f", "jobs.yaml"}},
	"attention list":       {reads: true},
	"attention snooze":     {args: []string{"a", "--until", "1h"}, absent: []string{"nobody", "--until", "1h"}, unrun: "it needs a problem that is there, as the next four do, see attention.txtar"},
	"attention wake":       {args: []string{"a"}, absent: []string{"nobody"}, unrun: "it needs a problem"},
	"attention take":       {args: []string{"a"}, absent: []string{"nobody"}, unrun: "it needs a problem"},
	"attention release":    {args: []string{"a"}, absent: []string{"nobody"}, unrun: "it needs a problem"},
	"attention note":       {args: []string{"a", "--note", "known"}, absent: []string{"nobody", "--note", "known"}, unrun: "it needs a problem"},
	"status":               {reads: true},
	"audit":                {reads: true},
	"backup":               {args: []string{"backup-{n}.db"}},
	"calendar delete":      {args: []string{"off", "--yes"}, absent: []string{"nobody", "--yes"}},
	"calendar get":         {args: []string{"off"}, absent: []string{"nobody"}, reads: true},
	"calendar list":        {reads: true},
	"badge create":         {args: []string{"--job", "a"}, absent: []string{"--job", "nobody"}},
	"badge revoke":         {args: []string{"--job", "a"}, absent: []string{"--job", "nobody"}, unrun: "it needs a badge that is there, see badge.txtar"},
	"channel delete":       {args: []string{"ops", "--yes"}, absent: []string{"nobody", "--yes"}},
	"executor delete":      {args: []string{"orders", "--yes"}, absent: []string{"nobody", "--yes"}},
	"executor get":         {args: []string{"orders"}, absent: []string{"nobody"}, reads: true},
	"executor list":        {reads: true},
	"channel get":          {args: []string{"ops"}, absent: []string{"nobody"}, reads: true},
	"channel list":         {reads: true},
	"channel status":       {reads: true},
	"channel test":         {args: []string{"ops"}, absent: []string{"nobody"}, unrun: "its service refuses it, see notifications.txtar"},
	"completion":           {args: []string{"bash"}},
	"config":               {},
	"crontab export":       {reads: true},
	"crontab import":       {args: []string{"jobs.cron", "--apply"}, unrun: "-o yaml and --apply exclude each other, see crontab.txtar"},
	"diff":                 {args: []string{"-f", "changed.yaml"}, code: cli.ExitFailed, reads: true},
	"doctor":               {unrun: "it says what is wrong with the machine of the test"},
	"events":               {args: []string{"--after", "nowhere", "--limit", "1"}, reads: true},
	"exec":                 {args: []string{"--job", "reported", "--", "true"}},
	"export":               {reads: true},
	"job backfill":         {args: []string{"a", "--from", "1h", "--dry-run"}, absent: []string{"nobody", "--from", "1h"}},
	"job create":           {args: []string{"new-{n}", "--every", "1h", "--", "true"}},
	"job delete":           {args: []string{"a", "--yes"}, absent: []string{"nobody", "--yes"}},
	"job diff":             {args: []string{"a", "1", "2"}, absent: []string{"nobody"}, reads: true, code: cli.ExitFailed, unrun: "it needs two versions, see revisions.txtar"},
	"job edit":             {args: []string{"a"}, unrun: "it needs a terminal, see edit.txtar"},
	"job followers":        {args: []string{"a"}, absent: []string{"nobody"}, reads: true},
	"job get":              {args: []string{"a"}, absent: []string{"nobody"}, reads: true},
	"job history":          {args: []string{"a"}, absent: []string{"nobody"}, reads: true},
	"job list":             {reads: true},
	"job next":             {args: []string{"a"}, absent: []string{"nobody"}, reads: true},
	"job ping-key":         {args: []string{"reported"}, absent: []string{"nobody"}},
	"job pause":            {args: []string{"a"}, absent: []string{"nobody"}},
	"job restore":          {args: []string{"gone"}, absent: []string{"nobody"}, unrun: "it needs a deleted job, see restore.txtar"},
	"job resume":           {args: []string{"a"}, absent: []string{"nobody"}},
	"job revisions":        {args: []string{"a"}, absent: []string{"nobody"}, reads: true},
	"job rollback":         {args: []string{"a", "1"}, absent: []string{"nobody", "1"}},
	"job statistics":       {args: []string{"a"}, absent: []string{"nobody"}, reads: true},
	"job run":              {args: []string{"a"}, absent: []string{"nobody"}},
	"load":                 {reads: true},
	"login":                {unrun: "it needs a provider, see test/signin"},
	"logout":               {absent: []string{}, unrun: "it needs a session, see test/signin"},
	"logs":                 {args: []string{"a"}, absent: []string{"nobody"}, reads: true},
	"next":                 {args: []string{"0 9 * * *"}},
	"node drain":           {args: []string{"one"}, absent: []string{"nobody"}},
	"node list":            {reads: true},
	"kubernetes import":    {args: []string{"cronjobs.yaml", "--apply"}, unrun: "-o yaml and --apply exclude each other, see foreign.txtar"},
	"kubernetes give-back": {args: []string{"--kubeconfig", "config"}, unrun: "it needs a cluster, see clustertakeover_test.go"},
	"dkron import":         {args: []string{"dkron.json", "--apply"}, unrun: "-o yaml and --apply exclude each other, see foreign.txtar"},
	"mcp":                  {reads: true},
	"why":                  {args: []string{"a"}, absent: []string{"nobody"}, reads: true},
	"xxl executors":        {reads: true},
	"xxl give-back":        {args: []string{"--group", "shop", "--from", "mysql://127.0.0.1:1/xxl_job"}, unrun: "it needs the database of an xxl-job-admin, see xxlchange_test.go"},
	"xxl take-over":        {args: []string{"--group", "shop", "--from", "mysql://127.0.0.1:1/xxl_job"}, unrun: "the same"},
	"xxl import":           {args: []string{"--dump", "xxl_job.sql", "--zone", "Asia/Shanghai", "--apply"}, unrun: "-o yaml and --apply exclude each other, see xxl.txtar"},
	"node undrain":         {args: []string{"one"}, absent: []string{"nobody"}},
	"notification ack":     {args: []string{"x"}, absent: []string{"nobody"}, unrun: "it needs a notification, see notifications.txtar"},
	"notification list":    {reads: true},
	"hook create":          {args: []string{"paid{n}", "--job", "a"}},
	"hook delete":          {args: []string{"deploy", "--yes"}, absent: []string{"nobody", "--yes"}},
	"hook get":             {args: []string{"deploy"}, absent: []string{"nobody"}, reads: true},
	"hook list":            {reads: true},
	"hook rotate":          {args: []string{"deploy"}, absent: []string{"nobody"}},
	"window close":         {args: []string{"upgrade"}, absent: []string{"nobody"}},
	"window delete":        {args: []string{"upgrade", "--yes"}, absent: []string{"nobody", "--yes"}},
	"window get":           {args: []string{"upgrade"}, absent: []string{"nobody"}, reads: true},
	"window list":          {reads: true},
	"window next":          {reads: true},
	"window open":          {args: []string{"--for", "2h", "--label", "team=none"}, absent: []string{"nobody"}},
	"pool delete":          {args: []string{"db", "--yes"}, absent: []string{"nobody", "--yes"}},
	"pool get":             {args: []string{"db"}, absent: []string{"nobody"}, reads: true},
	"pool list":            {reads: true},
	"restore":              {unrun: "it needs an empty directory, see backup.txtar"},
	"service install":      {unrun: "it changes the machine, see service_test.go"},
	"service status":       {unrun: "the same"},
	"service uninstall":    {unrun: "the same"},
	"store check":          {unrun: "the same"},
	"store migrate":        {unrun: "the same"},
	"store copy":           {unrun: "it needs a stopped server, see store.txtar"},
	"run approve":          {args: []string{"{flow}/ask"}, absent: []string{"01M7WSD70J4JVRQ9N4TN6P9NR3/ask"}},
	"run reject":           {args: []string{"{flow}/ask"}, absent: []string{"01M7WSD70J4JVRQ9N4TN6P9NR3/ask"}},
	"run signal":           {args: []string{"{flow}", "go"}, absent: []string{"01M7WSD70J4JVRQ9N4TN6P9NR3", "go"}},
	"run cancel":           {args: []string{"{active}"}, absent: []string{"01M7WSD70J4JVRQ9N4TN6P9NR3"}},
	"run get":              {args: []string{"{ended}"}, absent: []string{"01M7WSD70J4JVRQ9N4TN6P9NR3"}, reads: true},
	"run list":             {reads: true},
	"run logs":             {args: []string{"{ended}"}, absent: []string{"01M7WSD70J4JVRQ9N4TN6P9NR3"}, reads: true},
	"run retry":            {args: []string{"{ended}"}, absent: []string{"01M7WSD70J4JVRQ9N4TN6P9NR3"}},
	"schema":               {},
	"worker":               {unrun: "it runs until it is stopped, see internal/remote"},
	"serve":                {unrun: "it is the server of this test"},
	"secret set":           {args: []string{"s{n}", "--file", "s"}},
	"secret list":          {reads: true},
	"secret delete":        {args: []string{"s{n}", "--yes"}, absent: []string{"none", "--yes"}, unrun: "it needs a secret that exists, see secret.txtar"},
	"secret rotate":        {},
	"secret key":           {},
	"session end":          {args: []string{"sso:ann@example.com", "--yes"}, absent: []string{"sso:ann@example.com", "--yes"}, unrun: "it needs a person who has signed in, see TestAnAdministratorEndsSessionsOfAPerson"},
	"session list":         {reads: true},
	"badge list":           {reads: true},
	"sync":                 {args: []string{"file://{dir}/repository", "--once"}},
	"token create":         {args: []string{"t{n}", "--role", "viewer"}},
	"token list":           {},
	"token reset":          {unrun: "it needs a server that is stopped, see token.txtar"},
	"token revoke":         {args: []string{"t{n}", "--yes"}, absent: []string{"nobody", "--yes"}, unrun: "it needs a token that is there, see token.txtar"},
	"ui":                   {args: []string{"--no-open"}, reads: true},
	"validate":             {args: []string{"-f", "jobs.yaml"}, reads: true},
	"version":              {},
}

// bench is a folder with a server that runs on a directory in it.
type bench struct {
	t   *testing.T
	dir string
	url string
	env map[string]string

	n     int    // number of commands so far
	ended string // a run
}

const benchJobs = `name: a
schedule: {cron: "0 9 * * *"}
run: {shell: "echo hello"}
policy: {overlap: allow}
---
name: slow
run: {shell: "sleep 60"}
policy: {overlap: allow}
---
kind: calendar
name: off
calendar: {weekdays: sat-sun, include: [2026-12-25, 2026-12-26]}
---
kind: executors
name: orders
addresses: [http://10.0.0.5:9999]
---
kind: channel
name: ops
to: {teams: {url: {file: teams}}}
rules: [{events: failed}]
---
kind: pool
name: db
pool: {size: 2}
---
kind: hook
name: deploy
job: a
from: standard
secret: hook_deploy
---
kind: window
name: upgrade
match: {labels: {team: none}}
schedule: {cron: "@yearly"}
for: 1h
---
name: reported
run: {external: {}}
`

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	b.env = map[string]string{"BELFRY_DATA": filepath.Join(b.dir, "data"), "BELFRY_SPOOL": filepath.Join(b.dir, "spool"), "HOME": b.dir, "NO_COLOR": "1"}
	b.write("jobs.yaml", benchJobs)
	b.write("xxl_job.sql", "CREATE TABLE xxl_job_group (id int, app_name text, address_type int); INSERT INTO xxl_job_group VALUES (1, 'shop', 0);\n"+
		"CREATE TABLE xxl_job_info (id int, job_group int, executor_handler text, glue_type text, trigger_status int, executor_route_strategy text, executor_block_strategy text);\n"+
		"INSERT INTO xxl_job_info VALUES (1, 1, 'sync', 'BEAN', 0, 'FIRST', 'SERIAL_EXECUTION');\n")
	repositoryWith(t, filepath.Join(b.dir, "repository"), "synced.yaml", "name: synced\nrun: {shell: \"true\"}\n")
	b.write("jobs.cron", "0 9 * * * echo hello\n")
	b.write("cronjobs.yaml", "kind: CronJob\nmetadata: {name: of-kubernetes}\nspec: {schedule: '0 9 * * *', jobTemplate: {spec: {template: {spec: {containers: [{image: busybox}]}}}}}\n")
	b.write("dkron.json", `{"name": "of-dkron", "schedule": "@manually", "executor": "shell", "executor_config": {"command": "true"}}`)
	b.write("changed.yaml", strings.Replace(benchJobs, "hello", "bye", 1))
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var log logtest.Log
	ended := make(chan cli.ExitCode, 1)
	env := b.environment(b.env)
	env.Stdout, env.Stderr = &log, &log
	go func() {
		ended <- cli.Run(ctx, env, []string{"serve", "--listen", "127.0.0.1:0", "--name", "one", "--run-as", me.Username, "--drain-timeout", "1s"})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		b.run(nil, "secret", "set", "hook_deploy", "--env", "HOOK") // which the hook names
		if _, _, code := b.run(nil, "apply", "-f", "jobs.yaml"); code == cli.ExitOK {
			b.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(log.String())
			return b
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not answer:\n%s", log.String())
		}
	}
}

// repositoryWith makes a git repository with a file in its only commit.
func repositoryWith(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "--quiet", "--initial-branch=main"}, {"add", "--all"}, {"commit", "--quiet", "-m", "Jobs"}} {
		cmd := exec.Command("git", append([]string{"-c", "user.name=Ann", "-c", "user.email=ann@example.com"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) environment(env map[string]string) cli.Env {
	return cli.Env{
		Stdin: strings.NewReader(""), Getenv: func(name string) string { return env[name] }, Now: time.Now, Dir: b.dir,
	}
}

// run runs a command with more in its environment.
func (b *bench) run(more map[string]string, args ...string) (stdout, stderr string, code cli.ExitCode) {
	b.t.Helper()
	env := maps.Clone(b.env)
	maps.Copy(env, more)
	var out, errs bytes.Buffer
	e := b.environment(env)
	e.Stdout, e.Stderr = &out, &errs
	code = cli.Run(b.t.Context(), e, args)
	return out.String(), errs.String(), code
}

// withFlags adds flags to the arguments of a command, before arguments that are no flags of it.
func withFlags(args []string, flags ...string) []string {
	if dash := slices.Index(args, "--"); dash >= 0 {
		return slices.Insert(slices.Clone(args), dash, flags...)
	}
	return append(args, flags...)
}

// need runs a command that must succeed.
func (b *bench) need(args ...string) string {
	b.t.Helper()
	out, errs, code := b.run(nil, args...)
	if code != cli.ExitOK {
		b.t.Fatalf("belfry %s ends with %d:\n%s", strings.Join(args, " "), code, errs)
	}
	return strings.TrimSpace(out)
}

// command returns a command whose arguments name existing objects.
func (b *bench) command(name string, args []string) []string {
	b.t.Helper()
	b.n++
	words := strings.Fields(name)
	for _, arg := range args {
		switch arg {
		case "{ended}":
			if b.ended == "" {
				b.ended = b.need("job", "run", "a", "--wait", "-o", "name")
			}
			arg = b.ended
		case "{ended}/step":
			arg = b.command(name, []string{"{ended}"})[len(words)] + "/step"
		case "{active}":
			arg = b.need("job", "run", "slow", "-o", "name")
		case "{flow}", "{flow}/ask":
			arg = strings.ReplaceAll(arg, "{flow}", b.flow())
		}
		words = append(words, strings.NewReplacer("{n}", fmt.Sprint(b.n), "{dir}", b.dir).Replace(arg))
	}
	return words
}

// flow returns a run of a flow that waits.
func (b *bench) flow() string {
	b.t.Helper()
	b.write("flow.yaml", "name: flow\npolicy: {overlap: allow}\nrun: {flow: {steps: [{name: ask, wait: {approval: sure}}, {name: told, wait: {signal: go}}]}}")
	b.need("apply", "-f", "flow.yaml")
	run := b.need("job", "run", "flow", "-o", "name")
	for deadline := time.Now().Add(patience); !strings.Contains(b.need("run", "get", run, "-o", "json"), `"open"`); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("run %s of the flow does not begin", run)
		}
	}
	return run
}

// commands returns the commands that have none below them, with their help.
func commands(t *testing.T) map[string]string {
	t.Helper()
	return helptest.Commands(func(words []string) string {
		help, code := run(t, t.TempDir(), false, words...)
		if code != cli.ExitOK {
			t.Fatalf("belfry %q ends with %d: %s", words, code, help)
		}
		return help
	})
}

// Each command in each failure: the common exit codes.
func TestEachCommandEndsAsDocumented(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	b, all := newBench(t), commands(t)
	viewer := b.need("token", "create", "reader", "--role", "viewer")
	for name := range verbs {
		if all[name] == "" {
			t.Errorf("there is no command belfry %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v, known := verbs[name]
		if !known {
			t.Errorf("belfry %s is not in the table of this test", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			b.t = t
			ends := func(want cli.ExitCode, says string, env map[string]string, args ...string) {
				t.Helper()
				out, errs, code := b.run(env, args...)
				if code != want || !regexp.MustCompile(says).MatchString(errs) || out != "" {
					t.Errorf("belfry %s ends with %d, want %d and %q:\n%s%s", strings.Join(args, " "), code, want, says, out, errs)
				}
			}
			words := strings.Fields(name)
			ends(cli.ExitUsage, "(?s)^belfry "+name+": unknown flag --no-such-flag.*belfry "+name+" --help says more", nil, append(words, "--no-such-flag")...)
			if helptest.Formats(all[name]) != nil {
				ends(cli.ExitUsage, `"nonsense"`, nil, append(words, "-o", "nonsense")...)
			}
			if !strings.Contains(all[name], "--server URL") {
				return
			}
			if v.absent != nil {
				ends(cli.ExitNotFound, "there is no |is no |has no |no such", nil, append(words, v.absent...)...)
			}
			if name == "job edit" || name == "exec" || name == "worker" || name == "login" || name == "logout" {
				return // the rest needs a terminal; a command runs whatever the server says, a worker waits for it, and a person needs no token
			}
			args := b.command(name, v.args)
			if name == "events" {
				args = words // a command that continues after an event retries for a while
			}
			ends(cli.ExitUnreachable, "http://127.0.0.1:1", map[string]string{"BELFRY_TOKEN": "x"}, withFlags(args, "--server", "http://127.0.0.1:1")...)
			if name == "validate" {
				return // it only uses a named server
			}
			ends(cli.ExitNotAllowed, "token", map[string]string{"BELFRY_DATA": b.dir, "BELFRY_SERVER": b.url}, args...)
			if !v.reads {
				ends(cli.ExitNotAllowed, "viewer", map[string]string{"BELFRY_TOKEN": viewer}, args...)
			}
		})
	}
}

// Each form of each output can be parsed.
func TestEachFormOfEachOutputCanBeRead(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	b, all := newBench(t), commands(t)
	b.need("job", "run", "a", "--wait")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v := verbs[name]
		if v.unrun != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b.t = t
			for _, form := range append(helptest.Formats(all[name]), "") {
				b.need("apply", "-f", "jobs.yaml")
				args := b.command(name, v.args)
				if form != "" {
					args = withFlags(args, "-o", form)
				}
				out, errs, code := b.run(nil, args...)
				if code != v.code {
					t.Errorf("belfry %s ends with %d:\n%s", strings.Join(args, " "), code, errs)
				}
				if err := readable(form, out); err != nil {
					t.Errorf("belfry %s: %v:\n%s", strings.Join(args, " "), err, out)
				}
				if strings.Contains(out, "\x1b") {
					t.Errorf("belfry %s prints colours where there is no terminal", strings.Join(args, " "))
				}
			}
		})
	}
}

// readable reports why a text is not valid in a form.
func readable(form, text string) error {
	var value any
	switch form {
	case "json":
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return err
		}
	case "yaml":
		return yaml.Unmarshal([]byte(text), &value)
	case "jsonl":
		for line := range strings.Lines(text) {
			if err := json.Unmarshal([]byte(line), &value); err != nil {
				return err
			}
		}
	case "name":
		for line := range strings.Lines(text) {
			if len(strings.Fields(line)) != 1 {
				return fmt.Errorf("%q is no name", line)
			}
		}
	}
	return nil
}

// An interrupted wait says that the run continues, and how to follow it.
func TestAnInterruptedWaitSaysThatTheRunContinues(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	b := newBench(t)
	for _, how := range []string{"--logs", "--wait"} {
		cmd := exec.Command(os.Args[0], asBelfry, "job", "run", "slow", how)
		cmd.Env = append(os.Environ(), "BELFRY_DATA="+b.env["BELFRY_DATA"], "HOME="+b.dir)
		var said logtest.Log
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(patience); !strings.Contains(said.String(), "run 0"); <-time.After(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				_ = cmd.Process.Kill()
				t.Fatalf("it does not wait:\n%s", said.String())
			}
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		want := regexp.MustCompile(`interrupted; run (\w{26}) continues\n  belfry logs -f (\w{26}) follows it, belfry run cancel (\w{26}) ends it\n`)
		if code := cmd.ProcessState.ExitCode(); code != int(cli.ExitInterrupted) || !want.MatchString(said.String()) {
			t.Errorf("belfry job run slow %s ends with %d:\n%s", how, code, said.String())
		}
	}
}
