package cli_test

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli"
)

// ending is a way in which a command ends.
type ending struct {
	command string
	args    []string // as for a verb; {failed} is a run, {slow} an ended one
	says    string
	// meanwhile runs another client's commands between the read and the change.
	meanwhile []string
	before    []string // a preparing command
}

// conflicts has each changing command, with how it finds that an object has changed.
var conflicts = []ending{
	{command: "apply", before: []string{"apply", "-f", "jobs.yaml", "--owner", "us"}, args: []string{"-f", "changed.yaml", "--owner", "them"}, says: "belong to another owner"},
	{command: "diff", before: []string{"apply", "-f", "jobs.yaml", "--owner", "us"}, args: []string{"-f", "changed.yaml", "--owner", "them"}, says: "belong to another owner"},
	{command: "crontab import", before: []string{"crontab", "import", "jobs.cron", "--apply", "--owner", "us"}, args: []string{"jobs.cron", "--apply", "--owner", "them"}, says: "belong to another owner"},
	{command: "kubernetes import", before: []string{"kubernetes", "import", "cronjobs.yaml", "--apply", "--owner", "us"}, args: []string{"cronjobs.yaml", "--apply", "--owner", "them"}, says: "belong to another owner"},
	{command: "dkron import", before: []string{"dkron", "import", "dkron.json", "--apply", "--owner", "us"}, args: []string{"dkron.json", "--apply", "--owner", "them"}, says: "belong to another owner"},
	{command: "sync", before: []string{"apply", "-f", "synced.yaml", "--owner", "us"}, args: []string{"file://{dir}/repository", "--once", "--owner", "them"}, says: "belong to another owner"},
	{command: "backup", args: []string{"jobs.yaml"}, says: "exists"},
	{command: "restore", args: []string{"jobs.yaml"}, says: "in use|exists|uses"},
	{command: "job create", args: []string{"a", "--", "true"}, says: "job default/a already exists"},
	{command: "calendar delete", before: []string{"apply", "-f", "user.yaml"}, args: []string{"off", "--yes"}, says: "names the calendar default/off"},
	{command: "pool delete", args: []string{"db", "--yes"}, meanwhile: []string{"apply", "-f", "larger.yaml"}, says: "version"},
	{command: "hook create", args: []string{"deploy", "--job", "a"}, says: "exists"},
	{command: "hook delete", args: []string{"deploy", "--yes"}, meanwhile: []string{"apply", "-f", "paused.yaml"}, says: "version"},
	{command: "window delete", args: []string{"upgrade", "--yes"}, meanwhile: []string{"apply", "-f", "longer.yaml"}, says: "version"},
	{command: "executor delete", args: []string{"orders", "--yes"}, meanwhile: []string{"apply", "-f", "more.yaml"}, says: "version"},
	{command: "channel delete", args: []string{"ops", "--yes"}, meanwhile: []string{"apply", "-f", "louder.yaml"}, says: "version"},
	{command: "job backfill", before: []string{"job", "pause", "a"}, args: []string{"a", "--from", "1d"}, says: "is paused"},
	{command: "job delete", args: []string{"b", "--yes"}, meanwhile: []string{"apply", "-f", "other.yaml"}, says: "version"},
	{command: "run cancel", args: []string{"{ended}"}, says: "has already ended"},
	{command: "run approve", args: []string{"{ended}/step"}, says: "has already ended"},
	{command: "run reject", args: []string{"{ended}/step"}, says: "has already ended"},
	{command: "run signal", args: []string{"{ended}", "go"}, says: "has already ended"},
	{command: "run retry", args: []string{"{active}"}, says: "has not ended"},
	{command: "token create", before: []string{"token", "create", "t", "--role", "viewer"}, args: []string{"t", "--role", "viewer"}, says: "token t already exists"},
	{command: "token revoke", args: []string{"admin", "--yes"}, says: "the last token"},
}

// unconflicted explains why other changing commands find no conflict, or where it is tested.
var unconflicted = map[string]string{
	"exec":                 "it runs its command in any case",
	"xxl import":           "the same tables make the same jobs, whatever they were",
	"xxl take-over":        "it may be repeated, and does what is left to do",
	"xxl give-back":        "the same",
	"kubernetes give-back": "the same",
	"worker":               "it runs until it is stopped",
	"job edit":             "it needs a terminal, see edit.txtar",
	"hook rotate":          "it replaces whatever secret there is",
	"window open":          "whatever window there is, it is open",
	"window close":         "whatever opening there is, it is over",
	"job pause":            "whatever the job is by then, it is paused",
	"job resume":           "the same",
	"job restore":          "a name that is taken is another error, see restore.txtar",
	"job ping-key":         "whatever key there is, it makes another one",
	"job rollback":         "it makes a new version, whatever the latest is",
	"job run":              "it runs the job as it is",
	"node drain":           "it may be drained already",
	"node undrain":         "the same",
	"token list":           "it changes nothing",
	"login":                "a session is added to others",
	"logout":               "it may have ended already",
	"session end":          "it ends whatever sessions there are, see TestAnAdministratorEndsSessionsOfAPerson",
	"channel test":         "it sends in any case",
	"notification ack":     "it may be acknowledged already",
	"secret set":           "it replaces whatever value there is",
	"secret delete":        "it deletes whatever value there is",
	"attention snooze":     "whatever mark there is, it gets another one",
	"attention wake":       "the same",
	"attention take":       "the same",
	"attention release":    "the same",
	"attention note":       "the same",
	"badge create":         "whatever link there is, it makes another one",
	"badge revoke":         "it may have ended already",
	"secret rotate":        "it may be repeated, and seals what is left with the new key",
}

// notOver matches the message about a run that may not have begun on a busy machine.
const notOver = "has not (ended|started) after 100 ms"

// timeouts and failures have the waiting commands.
var (
	timeouts = []ending{
		{command: "apply", args: []string{"-f", "slow.yaml", "--run", "--wait", "--timeout", "100ms"}, says: notOver},
		{command: "job run", args: []string{"slow", "--wait", "--timeout", "100ms"}, says: notOver},
		{command: "job run", args: []string{"slow", "--logs", "--timeout", "100ms"}, says: notOver},
		{command: "run retry", args: []string{"{slow}", "--wait", "--timeout", "100ms"}, says: notOver},
		{command: "run retry", args: []string{"{slow}", "--logs", "--timeout", "100ms"}, says: notOver},
		{command: "node drain", args: []string{"one", "--wait", "--timeout", "100ms"}, says: "after 100 ms and stays drained"},
	}
	failures = []ending{
		{command: "apply", args: []string{"-f", "failing.yaml", "--run", "--wait"}, says: "failed: "},
		{command: "job run", args: []string{"failing", "--wait"}, says: "failed: "},
		{command: "job run", args: []string{"failing", "--logs"}, says: "failed: "},
		{command: "run retry", args: []string{"{failed}", "--wait"}, says: "failed: "},
		{command: "run retry", args: []string{"{failed}", "--logs"}, says: "failed: "},
	}
	// interrupted while they wait, which they do for a minute or without an end.
	waits = []ending{
		{command: "events"},
		{command: "apply", args: []string{"-f", "slow.yaml", "--run", "--wait"}},
		{command: "job run", args: []string{"slow", "--wait"}},
		{command: "job run", args: []string{"slow", "--logs"}},
		{command: "logs", args: []string{"slow", "-f"}, before: []string{"job", "run", "slow"}},
		{command: "run logs", args: []string{"{active}", "-f"}},
		{command: "run retry", args: []string{"{slow}", "--wait"}},
		{command: "run retry", args: []string{"{slow}", "--logs"}},
		{command: "node drain", args: []string{"one", "--wait"}, before: []string{"job", "run", "slow"}},
	}
)

// exitBench is a bench with a failing job, and a job for each change.
func exitBench(t *testing.T) *bench {
	b := newBench(t)
	b.write("other.yaml", "name: b\nrun: {shell: \"echo b\"}\n")
	b.write("larger.yaml", "kind: pool\nname: db\npool: {size: 3}\n")
	b.write("longer.yaml", "kind: window\nname: upgrade\nschedule: {cron: \"@yearly\"}\nfor: 2h\n")
	b.write("paused.yaml", "kind: hook\nname: deploy\njob: a\nfrom: standard\nsecret: hook_deploy\npaused: true\n")
	b.write("more.yaml", "kind: executors\nname: orders\naddresses: [http://10.0.0.5:9999, http://10.0.0.6:9999]\n")
	b.write("louder.yaml", "kind: channel\nname: ops\nto: {teams: {url: {file: teams}}}\nrules: [{events: [failed, missed]}]\n")
	b.write("synced.yaml", "name: synced\nrun: {shell: \"true\"}\n")
	b.write("user.yaml", "name: user\nschedule: {cron: \"@daily\", only: [off]}\nrun: {shell: \"true\"}\n")
	b.write("failing.yaml", "name: failing\nrun: {shell: \"exit 3\"}\npolicy: {overlap: allow}\n")
	b.write("slow.yaml", "name: slow-too\nrun: {shell: \"sleep 60\"}\npolicy: {overlap: allow, kill_grace: 1s}\n")
	b.need("apply", "-f", "failing.yaml")
	return b
}

// token returns the administrator's token, for an address other than the server's.
func (b *bench) token() string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, "data", "token"))
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// words returns a command of the bench, after its preparation.
func (e *ending) words(b *bench) []string {
	b.t.Helper()
	if e.before != nil {
		b.run(nil, e.before...) // it may be done already
	}
	args := slices.Clone(e.args)
	for i, arg := range args {
		switch arg {
		case "{failed}":
			out, _, _ := b.run(nil, "job", "run", "failing", "--wait", "-o", "name")
			args[i] = strings.TrimSpace(out)
		case "{slow}":
			args[i] = b.need("job", "run", "slow", "-o", "name")
			b.need("run", "cancel", args[i])
			b.run(nil, "run", "logs", args[i], "-f")
		}
	}
	return b.command(e.command, args)
}

// ends checks the exit code of a command.
func (e *ending) ends(t *testing.T, b *bench, want cli.ExitCode) {
	t.Helper()
	b.need("node", "undrain", "one")
	args := e.words(b)
	env := map[string]string{}
	if e.meanwhile != nil {
		b.run(nil, "job", "delete", "b", "--yes")
		b.write("first.yaml", "name: b\nrun: {shell: \"echo a\"}\n")
		b.need("apply", "-f", "first.yaml")
		env["BELFRY_SERVER"] = between(t, b.url, func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet {
				b.need(e.meanwhile...)
			}
			return true
		})
		env["BELFRY_TOKEN"] = b.token()
	}
	if out, errs, code := b.run(env, args...); code != want || !regexp.MustCompile(e.says).MatchString(errs) {
		t.Errorf("belfry %s ends with %d, want %d and %q:\n%s%s", strings.Join(args, " "), code, want, e.says, out, errs)
	}
}

// between returns the address of a proxy that forwards requests to a server if pass allows it.
func between(t *testing.T, server string, pass func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pass(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Each exit code that not all commands have, for each command that has it.
func TestEachCommandExitsWithTheDocumentedCode(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	b, all := exitBench(t), commands(t)
	tested := func(list []ending) (names []string) {
		for i := range list {
			names = append(names, list[i].command)
		}
		return names
	}
	for name, help := range all {
		asks := strings.Contains(help, "--server URL")
		if _, never := unconflicted[name]; asks && !verbs[name].reads && !never && !slices.Contains(tested(conflicts), name) {
			t.Errorf("belfry %s changes something, and is in no table of this test", name)
		}
		for what, flag := range map[string]string{"how long to wait": "--timeout", "exit code 8": "--wait"} {
			list := map[string][]ending{"--timeout": timeouts, "--wait": failures}[flag]
			if strings.Contains(strings.Join(strings.Fields(help), " "), what) && !slices.Contains(tested(list), name) {
				t.Errorf("belfry %s has %s, and is not in the table of this test", name, flag)
			}
		}
		if regexp.MustCompile(`(?m)^ +(-. |-., )?--(wait|follow) `).MatchString(help) && !slices.Contains(tested(waits), name) {
			t.Errorf("belfry %s waits, and is not in the table of this test", name)
		}
	}
	for want, list := range map[cli.ExitCode][]ending{cli.ExitConflict: conflicts, cli.ExitTimedOut: timeouts, cli.ExitRunFailed: failures} {
		for i := range list {
			t.Run(list[i].command, func(t *testing.T) {
				b.t = t
				list[i].ends(t, b, want)
			})
		}
	}
}

func TestInterruptEndsEachClientCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	b, all := exitBench(t), commands(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.Contains(all[name], "--server URL") || name == "job edit" || name == "doctor" || name == "exec" || name == "worker" || name == "logout" || name == "validate" {
			continue // these need a terminal, the machine, a signal, a session, or a named server
		}
		t.Run(name, func(t *testing.T) {
			b.t = t
			args := b.command(name, verbs[name].args)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			var out, errs bytes.Buffer
			env := b.environment(b.env)
			env.Stdout, env.Stderr = &out, &errs
			if code := cli.Run(ctx, env, args); code != cli.ExitInterrupted || out.Len() > 0 {
				t.Errorf("belfry %s ends with %d:\n%s%s", strings.Join(args, " "), code, &out, &errs)
			}
		})
	}
	for i := range waits {
		t.Run("while "+waits[i].command+" waits", func(t *testing.T) {
			b.t = t
			b.need("node", "undrain", "one")
			args := waits[i].words(b)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			// It waits once it has made a second request, or one without an end.
			var asked atomic.Int32
			at := between(t, b.url, func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet && (strings.Contains(r.Header.Get("Accept"), "event-stream") || asked.Add(1) == 3) {
					time.AfterFunc(10*time.Millisecond, cancel)
				}
				return true
			})
			var out, errs bytes.Buffer
			environment := maps.Clone(b.env)
			environment["BELFRY_SERVER"], environment["BELFRY_TOKEN"] = at, b.token()
			env := b.environment(environment)
			env.Stdout, env.Stderr = &out, &errs
			if code := cli.Run(ctx, env, args); code != cli.ExitInterrupted || !strings.Contains(errs.String(), "interrupted") {
				t.Errorf("belfry %s ends with %d:\n%s%s", strings.Join(args, " "), code, &out, &errs)
			}
		})
	}
}

// Many invalid tokens have the same exit code as one.
func TestRepeatedWrongTokensStayForbidden(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	b := newBench(t)
	limited := false
	for range 30 {
		_, errs, code := b.run(map[string]string{"BELFRY_TOKEN": "wrong"}, "job", "list")
		if code != cli.ExitNotAllowed {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		limited = limited || strings.Contains(errs, "many others")
	}
	if !limited {
		t.Error("a client that guesses is not slowed")
	}
	b.need("job", "list") // with the right token
}

// losing returns the address of a proxy that loses the server's answer to the first, executed
// request, and the idempotency keys of all requests.
func (b *bench) losing(want int) (at string, keys func() []string) {
	t := b.t
	var mu sync.Mutex
	var came []string
	at = between(t, b.url, func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if came = append(came, r.Header.Get("Idempotency-Key")); len(came) > 1 {
			return true
		}
		again, err := http.NewRequestWithContext(r.Context(), r.Method, b.url+r.URL.Path, r.Body)
		if err != nil {
			t.Error(err)
			return false
		}
		again.Header = r.Header.Clone()
		answer, err := http.DefaultClient.Do(again)
		if err != nil || answer.StatusCode != want {
			t.Errorf("%v, %+v", err, answer)
		} else {
			answer.Body.Close()
		}
		panic(http.ErrAbortHandler)
	})
	return at, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return came
	}
}

func TestALostResponseToAnApprovalIsNoFailure(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	b := exitBench(t)
	for verb, text := range map[string]string{"approve": "approved by", "reject": "rejected by"} {
		t.Run(verb, func(t *testing.T) {
			b.t = t
			step := b.flow() + "/ask"
			at, requests := b.losing(http.StatusOK)
			out, errs, code := b.run(map[string]string{"BELFRY_SERVER": at, "BELFRY_TOKEN": b.token()}, "run", verb, step, "--note", "it is right")
			if code != cli.ExitOK || len(requests()) != 2 || !strings.Contains(out, text) {
				t.Errorf("exit code %d after %d requests: %s%s", code, len(requests()), out, errs)
			}
		})
	}
}

// The request arrives but its answer is lost: it is repeated, and creates one run.
func TestALostAnswerMakesNoSecondRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	b := exitBench(t)
	failed := ending{command: "run retry", args: []string{"{failed}"}}
	for name, args := range map[string][]string{
		"job run": {"job", "run", "a", "-o", "name"}, "run retry": append(failed.words(b), "-o", "name"),
		"with a key": {"job", "run", "a", "--idempotency-key", "mine", "-o", "name"},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			at, posts := b.losing(http.StatusCreated)
			// A run that ends between pages may be listed twice.
			runs := func() map[string]bool {
				ids := map[string]bool{}
				for _, id := range strings.Fields(b.need("run", "list", "--limit", "500", "-o", "name")) {
					ids[id] = true
				}
				return ids
			}
			before := len(runs())
			id, errs, code := b.run(map[string]string{"BELFRY_SERVER": at, "BELFRY_TOKEN": b.token()}, args...)
			if keys := posts(); code != cli.ExitOK || len(keys) != 2 || keys[0] == "" || keys[0] != keys[1] {
				t.Fatalf("exit code %d after requests with the keys %q: %s", code, keys, errs)
			}
			after := runs()
			if len(after) != before+1 || !after[strings.TrimSpace(id)] {
				t.Errorf("%d runs were made, and %s is named", len(after)-before, id)
			}
		})
	}
}
