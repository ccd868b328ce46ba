package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli"
)

// signInServer is a server whose sign-in page has an address, and which refuses all codes.
func signInServer(t *testing.T, page func(self string) string) string {
	t.Helper()
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"url": "`+page(s.URL)+`"}`)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"type": "urn:belfry:problem:unauthenticated", "title": "no", "status": 401}`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// loginAt runs belfry login, and streams its standard error.
func loginAt(ctx context.Context, t *testing.T, server, stdin string, flags ...string) (stderr *bufio.Reader, ended chan cli.ExitCode) {
	t.Helper()
	return loginOn(ctx, t, cli.Env{}, server, stdin, flags...)
}

// loginOn is loginAt in an environment.
func loginOn(ctx context.Context, t *testing.T, env cli.Env, server, stdin string, flags ...string) (stderr *bufio.Reader, ended chan cli.ExitCode) {
	t.Helper()
	out, in := io.Pipe()
	home := t.TempDir()
	ended = make(chan cli.ExitCode, 1)
	go func() {
		env.Stdin, env.Stdout, env.Stderr, env.Dir, env.Now = strings.NewReader(stdin), io.Discard, in, home, time.Now
		env.Getenv = func(name string) string { return map[string]string{"HOME": home}[name] }
		ended <- cli.Run(ctx, env, append([]string{"login", "--server", server}, flags...))
		in.Close()
	}()
	return bufio.NewReader(out), ended
}

func TestLoginThatFailsSaysWhy(t *testing.T) {
	page := func(self string) string { return self + "/ui/sign-in/command" }
	for _, c := range []struct {
		what, stdin string
		page        func(string) string
		code        cli.ExitCode
		says        string
	}{
		{"a page of another server", "", func(string) string { return "https://belfry.example.com/ui/sign-in/command" }, cli.ExitUsage, "belfry login --server https://belfry.example.com"},
		{"a page on another port", "", func(string) string { return "http://127.0.0.1:1/" }, cli.ExitUsage, "http://127.0.0.1:1"},
		{"an address that is no page", "", func(string) string { return "javascript:alert(1)" }, cli.ExitUsage, "people sign in to this server at"},
		{"no code", "\n", page, cli.ExitUsage, "there is no code on standard input"},
		{"a wrong code", "wrong\n", page, cli.ExitNotAllowed, "the code is wrong, was used, or is older than a minute"},
	} {
		stderr, ended := loginAt(t.Context(), t, signInServer(t, c.page), c.stdin, "--no-browser")
		said, err := io.ReadAll(stderr)
		if code := <-ended; err != nil || code != c.code || !strings.Contains(string(said), c.says) {
			t.Errorf("%s: it ends with %d, want %d and %q:\n%s", c.what, code, c.code, c.says, said)
		}
	}
}

func TestLoginTakesOnlyItsOwnAnswer(t *testing.T) {
	stderr, ended := loginAt(t.Context(), t, signInServer(t, func(self string) string { return self + "/ui/sign-in/command" }), "")
	address := addressIn(t, stderr)
	at := "http://127.0.0.1:" + address.Query().Get("port")
	for query, want := range map[string]int{
		"/?code=x":               http.StatusBadRequest,
		"/?code=x&state=another": http.StatusBadRequest,
		"/?state=" + address.Query().Get("state"):         http.StatusBadRequest,
		"/x?code=x&state=" + address.Query().Get("state"): http.StatusBadRequest,
	} {
		if got := statusOf(t, at+query); got != want {
			t.Errorf("%s has the status %d, want %d", query, got, want)
		}
	}
	if got := statusOf(t, at+"/?code=x&state="+address.Query().Get("state")); got != http.StatusOK {
		t.Errorf("its own answer has the status %d", got)
	}
	said, err := io.ReadAll(stderr)
	if code := <-ended; err != nil || code != cli.ExitNotAllowed {
		t.Errorf("with a wrong code it ends with %d: %s", code, said)
	}
}

func TestLoginCanBeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr, ended := loginAt(ctx, t, signInServer(t, func(self string) string { return self + "/" }), "")
	addressIn(t, stderr)
	cancel()
	said, err := io.ReadAll(stderr)
	if code := <-ended; err != nil || code != cli.ExitInterrupted {
		t.Errorf("it ends with %d: %s", code, said)
	}
}

// Without a desktop xdg-open returns when the browser is closed.
func TestLoginDoesNotWaitForTheBrowserToBeClosed(t *testing.T) {
	bin := t.TempDir()
	open, closed := filepath.Join(bin, "open-window"), filepath.Join(bin, "closed")
	for _, pipe := range []string{open, closed} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	script := fmt.Sprintf("#!/bin/sh\nexec 3<>%s\nread line <&3\necho closed >%s\n", open, closed)
	if err := os.WriteFile(filepath.Join(bin, program), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Cleanup(func() {
		f, err := os.OpenFile(open, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.WriteString(f, "close\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.ReadFile(closed); err != nil {
			t.Error(err)
		}
	})
	stderr, ended := loginOn(t.Context(), t, cli.Env{StdoutIsTerminal: true}, signInServer(t, func(self string) string { return self + "/" }), "")
	address := addressIn(t, stderr)
	if got := statusOf(t, "http://127.0.0.1:"+address.Query().Get("port")+"/?code=x&state="+address.Query().Get("state")); got != http.StatusOK {
		t.Errorf("the code is answered with the status %d", got)
	}
	said, err := io.ReadAll(stderr)
	if code := <-ended; err != nil || code != cli.ExitNotAllowed {
		t.Errorf("it ends with %d: %s", code, said)
	}
}

// addressIn returns the address that a command prints.
func addressIn(t *testing.T, stderr *bufio.Reader) *url.URL {
	t.Helper()
	for {
		line, err := stderr.ReadString('\n')
		if strings.HasPrefix(line, "http") {
			address, err := url.Parse(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			return address
		}
		if err != nil {
			t.Fatalf("there is no address: %q, %v", line, err)
		}
	}
}

func statusOf(t *testing.T, address string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}
