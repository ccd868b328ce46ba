package cli_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli"
)

// TestWhatPeopleTypeIsAnswered has typical first inputs, with the expected hints. None of them
// reaches a server.
func TestWhatPeopleTypeIsAnswered(t *testing.T) {
	for _, row := range []struct{ typed, want string }{
		// Commands of other programs.
		{"restart", "systemctl restart belfry restarts the server; belfry job run NAME"},
		{"job restart hello", "belfry job run hello runs it again; belfry run retry RUN"},
		{"run restart", "belfry run retry RUN repeats a run"},
		{"stop", "belfry job pause NAME stops the schedule of a job; belfry run cancel RUN ends a run"},
		{"stop", "systemctl stop belfry stops the server"},
		{"stop hello", "belfry job pause hello stops the schedule"},
		{"kill hello", "belfry run list --job hello --state running names them"},
		{"cancel hello", "belfry run cancel RUN ends a run"},
		{"job stop hello", "belfry run list --job hello --state running names them"},
		{"job kill hello", "belfry run cancel RUN ends a run"},
		{"job cancel hello", "belfry job pause hello"},
		{"run stop x", "did you mean belfry run cancel x?"},
		{"run kill x", "did you mean belfry run cancel x?"},
		{"start", "belfry serve starts a server; belfry job run NAME"},
		{"start hello", "did you mean belfry job run hello?"},
		{"job start hello", "did you mean belfry job run hello?"},
		{"job trigger hello", "did you mean belfry job run hello?"},
		{"job disable hello", "did you mean belfry job pause hello?"},
		{"job enable hello", "did you mean belfry job resume hello?"},
		{"job describe hello", "did you mean belfry job get hello?"},
		{"job add hello", "did you mean belfry job create hello?"},
		{"list", "did you mean belfry job list?"},
		{"ls", "did you mean belfry job list?"},
		{"ps", "did you mean belfry job list?"},
		{"pause hello", "did you mean belfry job pause hello?"},
		{"resume hello", "did you mean belfry job resume hello?"},
		{"delete hello", "did you mean belfry job delete hello?"},
		{"get hello", "did you mean belfry job get hello?"},
		{"create hello", "did you mean belfry job create hello?"},
		{"edit hello", "did you mean belfry job edit hello?"},
		{"retry x", "did you mean belfry run retry x?"},
		{"drain a", "did you mean belfry node drain a?"},
		{"get jobs", "did you mean belfry job list?"},
		{"get job hello", "did you mean belfry job get hello?"},
		{"describe job hello", "did you mean belfry job get hello?"},
		{"delete job hello", "did you mean belfry job delete hello?"},
		{"list runs", "did you mean belfry run list?"},
		{"get nodes", "did you mean belfry node list?"},
		{"crontab -l", "belfry job list"},
		{"crontab -e", "belfry job edit"},
		{"run hello", "belfry job run hello runs a job"},
		{"init", "belfry serve starts a server"},
		{"setup", "belfry service install runs it under systemd"},
		{"install", "belfry service install"},
		{"import", "belfry crontab import"},
		{"uninstall", "belfry service uninstall"},
		{"migrate", "belfry crontab import"},
		{"reload", "systemctl reload belfry"},
		{"upgrade", "systemctl restart belfry"},
		{"update", "systemctl restart belfry"},
		{"notify", "kind: channel"},
		{"webhook", "kind: channel"},
		{"info", "belfry status shows the server"},
		{"ping", "belfry status"},
		{"metrics", "at /metrics"},
		{"shutdown", "systemctl stop belfry"},
		{"job info hello", "did you mean belfry job get hello?"},
		{"job status hello", "did you mean belfry job get hello?"},
		{"job exec hello", "did you mean belfry job run hello?"},
		{"run status x", "did you mean belfry run get x?"},
		{"secret get a", "belfry secret list shows the names"},
		{"server", "belfry serve starts a server"},
		{"daemon", "belfry serve starts a server"},
		{"up", "belfry serve starts a server"},
		{"history", "belfry run list lists runs"},
		{"failures", "belfry run list --outcome failed"},
		{"errors", "belfry attention shows what needs a person"},
		{"alerts", "belfry attention shows what needs a person"},
		{"health", "belfry doctor"},
		{"check", "belfry validate -f FILE checks jobs"},
		{"test", "belfry job run NAME --logs"},
		{"explain", "belfry why NAME"},
		{"cron", "belfry next EXPRESSION"},
		{"schedule", "belfry job create NAME --cron"},
		{"users", "belfry token list"},
		{"dashboard", "belfry ui"},
		{"web", "belfry ui"},
		{"top", "belfry status"},
		{"queue", "belfry run list"},
		{"aply -f jobs.yaml", "did you mean belfry apply"},
		{"seerve", "did you mean belfry serve?"},
		{"jobs lst", "did you mean belfry job list?"},
		{"logss x", "did you mean belfry logs"},
		{"frobnicate", `unknown command "frobnicate"`},

		// Flags of other programs.
		{"serve --port 9000", "did you mean --listen 127.0.0.1:PORT?"},
		{"serve -p 9000", "did you mean --listen 127.0.0.1:PORT?"},
		{"serve --host 0.0.0.0", "did you mean --listen?"},
		{"serve --bind :80", "did you mean --listen?"},
		{"serve --db postgres://a/b", "did you mean --store?"},
		{"serve --database postgres://a/b", "did you mean --store?"},
		{"serve --dsn postgres://a/b", "did you mean --store?"},
		{"serve --data-dir d", "did you mean --data?"},
		{"serve --debug", "did you mean --log-level debug?"},
		{"serve --cert a.pem", "did you mean --tls-cert?"},
		{"serve --insecure", "did you mean --plain-http?"},
		{"serve --tz UTC", "did you mean --timezone?"},
		{"job list --port 9000", "did you mean --server http://127.0.0.1:PORT?"},
		{"job list -p 9000", "did you mean --server http://127.0.0.1:PORT?"},
		{"job list --host http://a", "did you mean --server?"},
		{"job list --url http://a", "did you mean --server?"},
		{"job list --all", "did you mean --all-namespaces?"},
		{"job list -a", "did you mean --all-namespaces?"},
		{"run list -a", "did you mean --all-namespaces?"},
		{"job list --token x", "set BELFRY_TOKEN"},
		{"job list --json", "did you mean --output json?"},
		{"job list --format json", "did you mean --output?"},
		{"job list --quiet", "did you mean --output name?"},
		{"job list --wide", "did you mean --output wide?"},
		{"job list --verbose", "did you mean --output wide?"},
		{"job list --selector a=b", "did you mean --label?"},
		{"job list --tag a=b", "did you mean --label?"},
		{"next '* * * * *' --timezone UTC", "did you mean --tz?"},
		{"next '* * * * *' --zone UTC", "did you mean --tz?"},
		{"job create a --schedule @daily -- ls", "did you mean --cron?"},
		{"job create a --in 5m -- ls", "did you mean --at?"},
		{"job create a --interval 5m -- ls", "did you mean --every?"},
		{"job create a --timezone UTC -- ls", "did you mean --tz?"},
		{"job create a --retry 3 -- ls", "did you mean --retries?"},
		{"job create a --max-retries 3 -- ls", "did you mean --retries?"},
		{"job create a --cwd /tmp -- ls", "did you mean --dir?"},
		{"job create a --workdir /tmp -- ls", "did you mean --dir?"},
		{"job create a -e A=b -- ls", "did you mean --env?"},
		{"job create a --run-as root -- ls", "did you mean --user?"},
		{"job create a --command ls", "write the command behind --"},
		{"job run a --follow", "did you mean --logs?"},
		{"job run a -f", "did you mean --logs?"},
		{"job run a --watch", "did you mean --logs?"},
		{"job run a --tail", "did you mean --logs?"},
		{"job run a --sync", "did you mean --wait or --logs?"},
		{"job run a --params x=1", "did you mean --param?"},
		{"job run a --arg x=1", "did you mean --param?"},
		{"job delete a --force", "did you mean --yes?"},
		{"job delete a --confirm", "did you mean --yes?"},
		{"job pause a --for 2h", "did you mean --until?"},
		{"job pause a --message x", "did you mean --reason?"},
		{"job pause a -m x", "did you mean --reason?"},
		{"apply --filename a", "did you mean --file?"},
		{"run list --failed", "did you mean --outcome failed?"},
		{"run list --errors", "did you mean --outcome failed?"},
		{"run list --running", "did you mean --state running?"},
		{"run list --pending", "did you mean --state waiting?"},
		{"run list --status failed", "did you mean --outcome or --state?"},
		{"run list --last 5", "did you mean --limit or --since?"},
		{"run list --lines 5", "did you mean --limit?"},
		{"run list --from yesterday", "did you mean --since?"},
		{"run list --to now", "did you mean --until?"},
		{"job list --failed", "did you mean --failing?"},
		{"job list --status failed", "did you mean --state or --failing?"},
		{"job list --state failed", "did you mean --failing?"},
		{"job list hello", "did you mean --text hello?"},
		{"run list hello", "did you mean --job hello?"},
		{"serve --tls", "did you mean --tls-cert?"},
		{"job create a --shell ls", "write the command behind --"},
		{"-V", "did you mean --version?"},
		{"run list --state failed", "did you mean --outcome failed?"},
		{"run list --outcome running", "did you mean --state running?"},
		{"run list --state lost", "did you mean --outcome lost?"},
		{"run list --outcome faild", `did you mean failed?`},

		// Values.
		{"serve --listen 21005", "such as 127.0.0.1:21005; one that other machines reach, such as :21005, needs TLS"},
		{"serve --listen :21005 --data d", "set tls.cert and tls.key (--tls-cert, --tls-key), or plain_http (--plain-http)"},
		{"serve --listen :21005 --data d", "127.0.0.1:21005 is reached from this machine only"},
		{"job list --server localhost:21000", "did you mean http://localhost:21000 or https://localhost:21000?"},
		{"job list --server 10.0.0.1:8420", "did you mean http://10.0.0.1:8420 or"},
		{"job list --server :21000", "did you mean http://127.0.0.1:21000?"},
		{"job create a --every 5min -- ls", "did you mean 5m?"},
		{"job create a --every '5 minutes' -- ls", "did you mean 5m?"},
		{"job create a --every '1 Hour' -- ls", "did you mean 1h?"},
		{"next @daily --tz Bejing", `did you mean "Asia/Shanghai"?`},
		{"job list --server belfry.example.com", "did you mean http://belfry.example.com or"},
		{"job list --server ftp://a/", "is not the address of a server, such as http://"},
		{"run list --since lately", "a day such as yesterday or 2026-03-28"},
		{"run list --until 2026-13-01", "a day such as yesterday or 2026-03-28"},
		{"apply -f j.yaml --dry-run", "needs a value: client or server"},
		{"job create a --every 0s -- ls", `--every: "0s" is too short; the minimum for commands is 1s`},
		{"secret set db-password", "did you mean db_password?"},
		{"next @daily --tz Asia/Beijing", `did you mean "Asia/Shanghai"?`},
		{"next @daily --tz Beijing", `did you mean "Asia/Shanghai"?`},
		{"next @daily --tz CST", `such as "Asia/Shanghai"`},
		{"next daily", "did you mean @daily?"},
		{"next @daily --from lately", "a day such as yesterday or 2026-03-28"},
		{"next 'every 5 minutes'", `did you mean "@every 5m"?`},
		{"next 'every hour'", `did you mean "@every 1h"?`},
		{"next 'every 90 seconds'", `did you mean "@every 90s"?`},
		{"next 'every tuesday'", "found 2 fields"},
	} {
		var stderr bytes.Buffer
		code := cli.Run(context.Background(), cli.Env{
			Stdout: &stderr, Stderr: &stderr, Stdin: strings.NewReader(""), Dir: t.TempDir(),
			Getenv: func(string) string { return "" },
			Now:    func() time.Time { return clock },
		}, shellWords(row.typed))
		if code == cli.ExitOK || !strings.Contains(stderr.String(), row.want) {
			t.Errorf("belfry %s ended with %d; its answer has no %q:\n%s", row.typed, code, row.want, stderr.String())
		}
	}
}

// TestNoProposalIsRefused follows each command that an answer proposes: none is unknown, none takes
// other arguments, and none is about another kind of thing.
func TestNoProposalIsRefused(t *testing.T) {
	answer := func(words ...string) string {
		var out bytes.Buffer
		cli.Run(t.Context(), cli.Env{
			Stdout: &out, Stderr: &out, Stdin: strings.NewReader(""), Dir: t.TempDir(),
			Getenv: func(name string) string { return map[string]string{"BELFRY_SERVER": "http://127.0.0.1:1"}[name] },
			Now:    func() time.Time { return clock },
		}, words)
		return out.String()
	}
	groups := strings.Fields("channel crontab job node run secret token window")
	words := strings.Fields("ls show new rm start stop disable tail status exec why logs create delete edit list retry apply")
	for _, group := range append(groups, "") {
		for _, word := range words {
			typed := append(strings.Fields(group), word, "x")
			_, proposal, found := strings.Cut(answer(typed...), "did you mean belfry ")
			if proposal, _, _ = strings.Cut(proposal, "?"); !found {
				continue
			}
			if next := answer(strings.Fields(proposal)...); strings.Contains(next, "unknown command") || strings.Contains(next, "unexpected") || strings.Contains(next, "expected one") {
				t.Errorf("belfry %s proposes belfry %s:\n%s", strings.Join(typed, " "), proposal, next)
			}
			if about := strings.Fields(proposal)[0]; group != "" && group != "job" && group != "run" && about != group {
				t.Errorf("belfry %s proposes belfry %s", strings.Join(typed, " "), proposal)
			}
		}
	}
}

func TestHTTPSToAServerWithoutTLSIsAnsweredWithItsAddress(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	var stderr bytes.Buffer
	code := cli.Run(t.Context(), cli.Env{
		Stdout: &stderr, Stderr: &stderr, Stdin: strings.NewReader(""), Dir: t.TempDir(),
		Getenv: func(string) string { return "" },
		Now:    func() time.Time { return clock },
	}, []string{"job", "list", "--server", "https://" + host})
	if want := "it answers without TLS: did you mean http://" + host + "?"; code != cli.ExitUnreachable || !strings.Contains(stderr.String(), want) {
		t.Errorf("ended with %d:\n%s", code, stderr.String())
	}
}

// shellWords splits a line like a shell, at spaces outside of single quotes.
func shellWords(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}
