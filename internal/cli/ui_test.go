package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli"
)

// Every user of a machine can read the arguments of programs.
func TestTheLoginCodeIsNoArgumentOfTheBrowser(t *testing.T) {
	const code = "login-code-of-the-test"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"code": "`+code+`", "expires": "2030-01-01T00:00:00Z"}`)
	}))
	t.Cleanup(s.Close)
	bin, private := t.TempDir(), t.TempDir()
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	opened := filepath.Join(bin, "opened")
	if err := syscall.Mkfifo(opened, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, program), fmt.Appendf(nil, "#!/bin/sh\nprintf '%%s\\n' \"$*\" >%s\n", opened), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan cli.ExitCode, 1)
	go func() {
		ended <- cli.Run(ctx, cli.Env{
			Stdin: strings.NewReader(""), Stdout: in, Stderr: io.Discard, StdoutIsTerminal: true, Dir: bin, Now: time.Now,
			Getenv: func(name string) string {
				return map[string]string{"HOME": bin, "XDG_RUNTIME_DIR": private, "BELFRY_TOKEN": "belfry_x"}[name]
			},
		}, []string{"ui", "--server", s.URL})
		in.Close()
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasSuffix(address, "/ui/login#"+code+"\n") {
		t.Fatalf("the terminal shows %q, %v", address, err)
	}
	args, err := os.ReadFile(opened)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(args), code) {
		t.Errorf("the arguments of the browser have the code: %s", args)
	}
	file := strings.TrimPrefix(strings.TrimSpace(string(args)), "file://")
	page, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(page), `content="0; url=`+strings.TrimSpace(address)+`"`) {
		t.Errorf("the page is %s, %v", page, err)
	}
	for name, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): os.ModeDir | 0o700} {
		if about, err := os.Stat(name); err != nil || about.Mode() != want {
			t.Errorf("%s: mode %v, %v, want %v", name, about, err, want)
		}
	}
	if rel, err := filepath.Rel(private, file); err != nil || strings.HasPrefix(rel, "..") {
		t.Errorf("the page is not in XDG_RUNTIME_DIR: %s", file)
	}
	cancel()
	if code := <-ended; code != cli.ExitOK {
		t.Errorf("it ends with %d", code)
	}
	if left, err := os.ReadDir(private); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
