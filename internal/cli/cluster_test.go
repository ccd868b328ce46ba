package cli_test

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli"
)

const liveCronJobs = `{"kind":"CronJobList","items":[{"metadata":{"name":"live","namespace":"shop"},"spec":{"schedule":"0 4 * * *","timeZone":"UTC",
"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"busybox:1"}]}}}}}}]}`

// importLive runs an import with an environment, and returns its output.
func importLive(t *testing.T, env map[string]string, args ...string) (cli.ExitCode, string) {
	t.Helper()
	var output bytes.Buffer
	code := cli.Run(t.Context(), cli.Env{
		Stdout: &output, Stderr: &output, Stdin: strings.NewReader(""), Dir: t.TempDir(),
		Getenv: func(name string) string { return env[name] },
		Now:    func() time.Time { return clock },
	}, args)
	return code, output.String()
}

func TestCronJobsOfAClusterAreReadWithItsTokenAndCertificate(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer abc":
			http.Error(w, `{"message":"Unauthorized"}`, http.StatusUnauthorized)
		case r.URL.Path == "/apis/batch/v1/namespaces/shop/cronjobs":
			fmt.Fprint(w, liveCronJobs)
		case r.URL.Path == "/apis/batch/v1/namespaces/kube-system/cronjobs":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","message":"cronjobs.batch is forbidden: User \"u\" cannot list resource \"cronjobs\"","code":403}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	config := func(cluster, user string) string {
		path := filepath.Join(t.TempDir(), "config")
		text := fmt.Sprintf("current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u, namespace: shop}}]\nclusters: [{name: k, cluster: {%s}}]\nusers: [{name: u, user: {%s}}]\n", cluster, user)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	reached := fmt.Sprintf("server: %q, certificate-authority-data: %s", server.URL, ca)
	for _, row := range []struct {
		name, cluster, user, want string
		args                      []string
		code                      cli.ExitCode
	}{
		{"a token", reached, "token: abc", "-> default/live  at 04:00 every day, UTC, busybox:1", nil, cli.ExitOK},
		{"another namespace", reached, "token: abc", "404 Not Found", []string{"--kube-namespace", "a/b"}, cli.ExitFailed},
		{"no right", reached, "token: abc", `403 Forbidden: cronjobs.batch is forbidden: User "u" cannot list resource "cronjobs"`, []string{"--kube-namespace", "kube-system"}, cli.ExitFailed},
		{"a wrong token", reached, "token: abd", "401 Unauthorized: Unauthorized", nil, cli.ExitFailed},
		{"no authority", fmt.Sprintf("server: %q", server.URL), "token: abc", "certificate", nil, cli.ExitUnreachable},
		{"another program", reached, "exec: {command: aws}", "it signs in by another program", nil, cli.ExitFailed},
		{"no TLS", "server: 'http://127.0.0.1:1'", "token: abc", "without TLS", nil, cli.ExitFailed},
		{"no server", "insecure-skip-tls-verify: true", "token: abc", "has no cluster with a server", nil, cli.ExitFailed},
		{"an unknown context", reached, "token: abc", `there is no context "x"`, []string{"--kube-context", "x"}, cli.ExitFailed},
		{"no file", reached, "token: abc", "kubectl get cronjobs -o yaml | belfry kubernetes import -", []string{"--kubeconfig", "/nowhere"}, cli.ExitUsage},
	} {
		code, words := importLive(t, map[string]string{"KUBECONFIG": config(row.cluster, row.user)}, append([]string{"kubernetes", "import", "--live"}, row.args...)...)
		if code != row.code || !strings.Contains(words, row.want) || strings.Contains(words, "abc") {
			t.Errorf("%s: ended with %d, want %q:\n%s", row.name, code, row.want, words)
		}
	}
}

func TestJobsOfADkronServerAreRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/jobs" || r.Header.Get("Authorization") != "Bearer t" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `[{"name":"live","schedule":"@every 1h","executor":"shell","executor_config":{"command":"true"}}]`)
	}))
	defer server.Close()
	if code, text := importLive(t, map[string]string{"DKRON_TOKEN": "t"}, "dkron", "import", "--url", server.URL); code != cli.ExitOK || !strings.Contains(text, "-> default/live  every 1h") {
		t.Errorf("ended with %d:\n%s", code, text)
	}
	if code, text := importLive(t, nil, "dkron", "import", "--url", server.URL); code != cli.ExitFailed || !strings.Contains(text, "404 Not Found") {
		t.Errorf("ended with %d:\n%s", code, text)
	}
}

// TestImportsRunAsTheirPagesSay runs the commands of the two pages, each in its order, against a server of
// Belfry and a stand-in for the other scheduler.
func TestImportsRunAsTheirPagesSay(t *testing.T) {
	const dkron = `[{"name":"live","schedule":"@every 1h","executor":"shell","executor_config":{"command":"true"}}]`
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, map[string]string{"/v1/jobs": dkron, "/apis/batch/v1/namespaces/shop/cronjobs": liveCronJobs}[r.URL.Path])
	}))
	defer other.Close()
	for page, input := range map[string]string{"docs/from-dkron.md": dkron, "docs/from-kubernetes-cronjob.md": liveCronJobs} {
		b := newBench(t)
		b.write("cronjobs.yaml", liveCronJobs)
		b.write("config", fmt.Sprintf("current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: %q}}]\n", other.URL))
		b.env["KUBECONFIG"] = filepath.Join(b.dir, "config")
		text := readDocument(t, page)
		list := typedIn(text)
		undone := false
		for _, match := range inText.FindAllStringSubmatch(text, -1) {
			if strings.Contains(match[1], "--undo") {
				list, undone = append(list, match[1]+" --yes"), true
			}
		}
		if len(list) < 4 || !undone {
			t.Errorf("%s has the commands %q", page, list)
		}
		for _, command := range list {
			command = strings.NewReplacer("http://dkron:8080", other.URL, "--url …", "--url "+other.URL).Replace(command)
			if code, output := b.typed(command, input); code != cli.ExitOK || !strings.Contains(output, "default/live") {
				t.Errorf("%s: %s ended with %d:\n%s", page, command, code, output)
			}
		}
	}
}

// typedIn returns the commands in the blocks of a page.
func typedIn(text string) (list []string) {
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		for _, match := range typed.FindAllStringSubmatch(block[3], -1) {
			if strings.HasPrefix(block[2], "sh") {
				list = append(list, strings.TrimSpace(match[1]))
			}
		}
	}
	return list
}

// typed runs a command as a page has it, with a text on its standard input.
func (b *bench) typed(command, input string) (cli.ExitCode, string) {
	env := b.environment(b.env)
	var output bytes.Buffer
	env.Stdout, env.Stderr, env.Stdin = &output, &output, strings.NewReader(input)
	words := word.FindAllString(command, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], `'"`)
	}
	return cli.Run(b.t.Context(), env, words[1:]), output.String()
}

// TestPagesRunOnAServer runs the commands of pages in their order on a server, but for those that start
// another one, need a browser or people, belong to another machine or database, or make the token of the line before otherwise.
func TestPagesRunOnAServer(t *testing.T) {
	elsewhere := regexp.MustCompile(`^belfry (serve|ui|worker|login|restore|token reset|session end|store copy|secret rotate)|--vault|--from-file|--from mysql|--certificate|--label 'rack|/etc/`)
	for page, least := range map[string]int{"README.md": 5, "docs/security.md": 6, "docs/secrets.md": 3, "docs/sign-in.md": 2, "docs/xxl.md": 2, "docs/xxl.zh.md": 2, "docs/operations.md": 4} {
		b := newBench(t)
		text := readDocument(t, page)
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
			if name, named := attribute(block[2], "file"); named {
				b.write(name, strings.NewReplacer("MON-FIR", "MON-FRI", "Berln", "Berlin", "{{ .Schedule }}", "{{ .Scheduled }}").Replace(block[3]))
			}
		}
		ran := 0
		for _, command := range typedIn(text) {
			if elsewhere.MatchString(command) {
				continue
			}
			ran++
			command = strings.Replace(command, "revoke", "revoke --yes", 1) // a person is asked
			if code, output := b.typed(command, "correct-horse-battery"); code != cli.ExitOK {
				t.Errorf("%s: %s ended with %d:\n%s", page, command, code, output)
			}
		}
		if ran < least {
			t.Errorf("%s has %d commands that were run", page, ran)
		}
	}
}
