//go:build servers

package openapi

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/oapi-codegen/runtime" // imported by the generated client
)

// patience bounds waits on a busy machine.
const patience = 5 * time.Minute

// run runs a program in a folder, and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// copyTo copies files into a folder.
func copyTo(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// serve starts a server, and returns its program, its URL and a token of an administrator.
func serve(t *testing.T, flags ...string) (belfry, url, token string) {
	t.Helper()
	belfry = filepath.Join(t.TempDir(), "belfry")
	data, listen := filepath.Join(t.TempDir(), "data"), freeAddress(t)
	run(t, "../..", "go", "run", "-exec", "cp", "./cmd/belfry", belfry) // which keeps what it has linked
	cmd := exec.Command(belfry, append([]string{"serve", "--data", data, "--listen", listen}, flags...)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the server said:\n%s", said.String())
		}
	})
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		if answer, err := http.Get("http://" + listen + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the server is not ready")
		}
	}
	text, err := os.ReadFile(filepath.Join(data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	return belfry, "http://" + listen, strings.TrimSpace(string(text))
}

// freeAddress returns a free address of loopback, whose port no connection uses by chance: systems
// assign ports from 32768 on.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

func TestGeneratedClientsWork(t *testing.T) {
	t.Parallel()
	_, url, token := serve(t)
	t.Run("Go, by oapi-codegen", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		copyTo(t, dir, "go.mod", "go.sum", "testdata/client.go")
		generated := filepath.Join(dir, "belfry")
		if err := os.Mkdir(generated, 0o700); err != nil {
			t.Fatal(err)
		}
		run(t, ".", "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "belfry", "-o", filepath.Join(generated, "belfry.go"), "../../docs/openapi-3.0.json")
		// Without paths in it, the compiled client is in the cache the next time.
		run(t, dir, "go", "build", "-trimpath", "-o", "client", ".")
		run(t, dir, filepath.Join(dir, "client"), url, token, "go")
	})
	t.Run("TypeScript, by openapi-typescript", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		copyTo(t, dir, "testdata/package.json", "testdata/client.ts", "../../docs/openapi.json")
		if err := os.Symlink(modules(t, "testdata"), filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		run(t, dir, "node", "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "-o", "belfry.d.ts")
		run(t, dir, "node", "node_modules/typescript/bin/tsc", "--strict", "--noUncheckedIndexedAccess", "--skipDefaultLibCheck", "--lib", "es2022,dom", "--target", "es2022", "--module", "nodenext", "client.ts")
		run(t, dir, "node", "client.js", url, token, "typescript")
	})
}

// The package for workers is JavaScript: what it says of its types, a worker in TypeScript checks.
func TestTheTypesOfTheWorkersPackageAreRight(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copyTo(t, dir, "testdata/package.json", "testdata/worker.ts", "../../sdk/typescript/index.d.ts")
	run(t, dir, "node", filepath.Join(modules(t, "testdata"), "typescript/bin/tsc"), "--strict", "--noEmit", "--lib", "es2022,dom", "--target", "es2022", "--module", "nodenext", "worker.ts")
}

func TestRedoclyFindsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copyTo(t, dir, "testdata/package.json", "testdata/lint.js", "../../docs/openapi.json", "../../docs/openapi-3.0.json")
	if err := os.Symlink(modules(t, "testdata"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if said := run(t, dir, "node", "lint.js", "openapi.json", "openapi-3.0.json"); said != "" {
		t.Errorf("redocly lint says\n%s", said)
	}
	// It does look.
	text, err := os.ReadFile(filepath.Join(dir, "openapi-3.0.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "wrong.json"), bytes.Replace(text, []byte(`"type": "integer"`), []byte(`"type": ["integer", "null"]`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := run(t, dir, "node", "lint.js", "wrong.json"); !strings.Contains(said, "wrong.json#/") {
		t.Errorf("redocly lint says %q of a list of types", said)
	}
}
