//go:build servers

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/check/helptest"
)

// The hints of a first start are followed literally.
func TestFirstStartHintsCreateAFirstJob(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	defer s.stop()
	var answer struct{ Apply, Run, List string }
	eventually(t, "the server says how to make a first job", func() bool {
		for line := range strings.Lines(s.log.String()) {
			if json.Unmarshal([]byte(line), &answer) == nil && answer.Apply != "" {
				return true
			}
		}
		return false
	})
	for _, step := range []struct{ does, says string }{
		{answer.Apply, "job default/hello created\n"},
		{answer.Run, "hello\n"},
		{answer.List, "default/hello  every 10s  "},
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", step.does)
		cmd.Dir = t.TempDir()
		if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), step.says) {
			t.Errorf("%s: %v, and prints %q, which is without %q", step.does, err, out, step.says)
		}
	}
}

// call is a command as a person types it, and how it ends. In its words {n} is another
// number each time, {run} a run that has ended, and {path} a folder of the test.
type call struct {
	verb, args string
	code       int
}

// either is the code of a command that ends with 0 or 1, by the machine, and byMachine the code of
// one that may end with others too.
const (
	either    = -1
	byMachine = -2
)

// calls has each command, in an order in which each finds what it is about.
var calls = []call{
	{"version", "", 0},
	{"schema", "", 0},
	{"completion", "fish", 0},
	{"config", "", 0},
	{"next", "@daily -n 1", 0},
	{"validate", "-f {path}/jobs.yaml", 0},
	{"apply", "-f {path}/jobs.yaml", 0},
	{"diff", "-f {path}/changed.yaml", 1},
	{"sync", "file://{path}/repository --once", 0},
	{"exec", "--job pinged --spool {path}/spool -- true", 0},
	{"export", "", 0},
	{"crontab import", "{path}/crontab --format user --apply", 0},
	{"crontab export", "", 0},
	{"kubernetes import", "{path}/cronjobs.yaml --apply", 0},
	{"kubernetes give-back", "--kubeconfig {path}/none", 2},
	{"dkron import", "{path}/dkron.json --apply", 0},
	{"job create", "c{n} --every 1h -- true", 0},
	{"job list", "", 0},
	{"job get", "a", 0},
	{"job next", "a", 0},
	{"job run", "a --wait", 0},
	{"job run", "fails --wait", 8},
	{"job history", "a", 0},
	{"why", "a", 0},
	{"job statistics", "a", 0},
	{"job ping-key", "pinged", 0},
	{"job followers", "a", 0},
	{"job revisions", "a", 0},
	{"job pause", "b", 0},
	{"job resume", "b", 0},
	{"job diff", "b 1 2", 1},
	{"job rollback", "b 1", 0},
	{"job backfill", "a --from 1h --dry-run", 0},
	{"job edit", "a", 2}, // it wants a terminal
	{"job delete", "d{n} --yes", 0},
	{"job get", "d1", 3},
	{"job restore", "d{n}", 0},
	{"run list", "", 0},
	{"run get", "{run}", 0},
	{"run logs", "{run}", 0},
	{"run cancel", "{run}", 5},
	{"run retry", "{run} --wait", 0},
	{"logs", "a", 0},
	{"events", "--after nowhere --limit 1", 0},
	{"attention list", "", 0},
	{"attention snooze", "a --until 1h", 3},
	{"attention wake", "a", 3},
	{"attention take", "a", 3},
	{"attention release", "a", 3},
	{"attention note", "a --note {path}", 3},
	{"status", "", 0},
	{"load", "", 0},
	{"ui", "--no-open", 0},
	{"mcp", "", 0}, // standard input has ended
	{"calendar list", "", 0},
	{"calendar get", "off", 0},
	{"calendar delete", "off --yes", 0},
	{"hook create", "h{n} --job a --from url", 0},
	{"hook list", "", 0},
	{"hook get", "h", 3},
	{"hook rotate", "h", 3},
	{"hook delete", "h --yes", 3},
	{"window open", "upgrade --for 1h --reason {path} --label team=none", 0},
	{"window list", "", 0},
	{"window next", "", 0},
	{"window get", "upgrade", 0},
	{"window close", "upgrade", 0},
	{"window delete", "upgrade --yes", 0},
	{"pool list", "", 0},
	{"pool get", "db", 0},
	{"pool delete", "db --yes", 0},
	{"channel list", "", 0},
	{"channel get", "ops", 0},
	{"channel status", "", 0},
	{"channel test", "ops", 1}, // its secret is missing
	{"notification list", "", 0},
	{"notification ack", "none", 3},
	{"channel delete", "ops --yes", 0},
	{"run approve", "{run}/ask", 5},
	{"run reject", "{run}/ask", 5},
	{"run signal", "{run} start", 5},
	{"executor list", "", 0},
	{"executor get", "typed", 3},
	{"executor delete", "typed --yes", 3},
	{"xxl executors", "", 0},
	{"xxl import", "--zone UTC", 2}, // it wants the tables of an xxl-job-admin
	{"xxl take-over", "--group shop", 2},
	{"xxl give-back", "--group shop", 2},
	{"worker", "", 2}, // it wants a server
	{"service install", "--dry-run --program /usr/local/bin/belfry", either},
	{"service uninstall", "--dry-run", byMachine},
	{"service status", "", byMachine},
	{"node list", "", 0},
	{"node drain", "one", 0},
	{"node undrain", "one", 0},
	{"badge create", "--label n={n}", 0},
	{"badge list", "", 0},
	{"badge revoke", "--label n={n}", 0},
	{"secret set", "s{n} --file s", 0},
	{"secret list", "", 0},
	{"secret rotate", "", 0},
	{"secret delete", "s1 --yes", 0},
	{"secret key", "", 0},
	{"token create", "t{n} --role viewer", 0},
	{"token list", "", 0},
	{"token revoke", "t1 --yes", 0},
	{"token reset", "", 1}, // it wants the server to be stopped
	{"session list", "", 0},
	{"session end", "sso:ann@example.com --yes", 3}, // no person has signed in
	{"login", "", 5},                                // the server has no provider
	{"logout", "", 3},
	{"audit", "", 0},
	{"doctor", "", either},
	{"backup", "{path}/backup-{n}.db", 0},
	{"store check", "sqlite:{path}/backup-1.db", 0},
	{"store migrate", "sqlite:{path}/backup-1.db", 0},
	{"store copy", "sqlite:{path}/backup-1.db sqlite:{path}/copy-{n}.db --active", 0},
	{"restore", "{path}/backup-1.db --data {path}/other", 0},
	{"serve", "", 1}, // a second one
}

// forms returns those in which a command prints its answer, by its help: the one for
// people and the one for programs.
func forms(help string) []string {
	all := helptest.Formats(help)
	if len(all) == 0 {
		return []string{""}
	}
	if slices.Contains(all, "json") {
		return []string{all[0], "json"}
	}
	return []string{all[0], "jsonl"}
}

// withFlags adds flags to a command line, in front of the words of another command.
func withFlags(args []string, flags ...string) []string {
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	return slices.Concat(args[:end], flags, args[end:])
}

// Each command of the program itself: in both forms, with the exit codes that it has of its
// own and those that all have.
func TestEachCommandOfTheProgramAsPeopleTypeIt(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	defer s.stop()
	path := filepath.Dir(f.evidence)
	jobs := "name: a\nschedule: {cron: \"@daily\"}\nrun: {shell: echo hello}\npolicy: {overlap: allow}\n---\nname: b\nrun: {shell: \"true\"}\n---\n" +
		"name: fails\nrun: {shell: exit 3}\n---\nname: d1\nrun: {shell: \"true\"}\n---\nname: d2\nrun: {shell: \"true\"}\n---\n" +
		"name: pinged\nschedule: {cron: \"@daily\"}\nrun: {external: {grace: 1h}}\n---\n" +
		"kind: calendar\nname: off\ncalendar: {weekdays: sat-sun}\n---\nkind: pool\nname: db\npool: {size: 2}\n---\nkind: channel\nname: ops\nto: {slack: {url: {file: missing}}}\nrules: [{events: [failed]}]\n"
	for name, text := range map[string]string{"jobs.yaml": jobs, "changed.yaml": strings.Replace(jobs, "hello", "bye", 1), "crontab": "0 5 * * * true\n",
		"cronjobs.yaml": "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: cronjob}\nspec:\n  schedule: 0 5 * * *\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: busybox, command: [\"true\"]}]}}}}\n",
		"dkron.json":    `[{"name": "of-dkron", "schedule": "@every 1h", "executor": "shell", "executor_config": {"command": "true"}}]`,
	} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	repository := filepath.Join(path, "repository")
	for _, args := range []string{"init --quiet", "add --all", "-c user.name=ann -c user.email=ann@example.com commit --quiet -m Jobs"} {
		if err := os.MkdirAll(repository, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(repository, "synced.yaml"), []byte("name: synced\nrun: {shell: \"true\"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("git", strings.Fields(args)...)
		cmd.Dir = repository
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	helps := helptest.Commands(func(words []string) string {
		help, told, code := f.belfry(t, words...)
		if code != 0 || told != "" {
			t.Fatalf("belfry %q ends with %d: %s", words, code, told)
		}
		return help
	})
	run := ""
	called := map[string]bool{}
	for _, c := range calls {
		if run == "" && strings.Contains(c.args, "{run}") {
			out, _, _ := f.belfry(t, "job", "run", "a", "--wait", "-o", "name")
			run = strings.TrimSpace(out)
		}
		called[c.verb] = true
		for i, form := range forms(helps[c.verb]) {
			words := strings.NewReplacer("{n}", fmt.Sprint(i+1), "{run}", run, "{path}", path).Replace(c.verb + " " + c.args)
			args := strings.Fields(words)
			if form != "" {
				args = withFlags(args, "-o", form)
			}
			out, told, code := f.belfry(t, args...)
			if code != c.code && c.code != byMachine && (c.code != either || code > 1) {
				t.Errorf("belfry %q ends with %d, want %d:\n%s%s", args, code, c.code, out, told)
			}
			if strings.HasPrefix(form, "json") && out != "" && !json.Valid([]byte(out)) {
				t.Errorf("belfry %q prints no JSON:\n%s", args, out)
			}
			// Commands that need a server end with 6 without one, unless their arguments are refused.
			if i == 0 && c.code != 2 && strings.Contains(helps[c.verb], "--server URL") && c.verb != "job edit" && c.verb != "events" && c.verb != "exec" && c.verb != "worker" && c.verb != "logout" {
				if out, told, code := f.belfry(t, withFlags(args, "--server", "http://127.0.0.1:1")...); code != 6 || out != "" {
					t.Errorf("belfry %q without a server ends with %d:\n%s%s", args, code, out, told)
				}
			}
		}
		if out, told, code := f.belfry(t, append(strings.Fields(c.verb), "--no-such-flag")...); code != 2 || out != "" || !strings.HasPrefix(told, "belfry "+c.verb+": ") {
			t.Errorf("belfry %s --no-such-flag ends with %d:\n%s%s", c.verb, code, out, told)
		}
	}
	for name := range helps {
		if !called[name] {
			t.Errorf("belfry %s is in no line of this test", name)
		}
	}
	for verb := range called {
		if helps[verb] == "" {
			t.Errorf("there is no belfry %s", verb)
		}
	}
}
