package tutorial

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/test/servers"
)

// patience bounds the tutorial's waits on a busy machine.
const patience = 5 * time.Minute

// reader is who follows the tutorial.
type reader struct {
	t        *testing.T
	dir      string
	database string
	exports  string            // exports of earlier blocks
	ports    map[string]string // ports on the page, with their replacements here
	nodes    map[string]*exec.Cmd
	log      *os.File
}

// newReader returns a reader with the program, in its own directory.
func newReader(t *testing.T) *reader {
	t.Helper()
	bin := t.TempDir()
	if err := servers.Build(filepath.Join(bin, "belfry"), "cmd/belfry"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, name := range []string{"BELFRY_DATA", "BELFRY_STORE", "BELFRY_SERVER", "BELFRY_TOKEN", "BELFRY_NAMESPACE"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	log, err := os.Create(filepath.Join(bin, "log"))
	if err != nil {
		t.Fatal(err)
	}
	// Jobs of another user run in the directory of their server.
	dir, err := os.MkdirTemp("", "tutorial")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, log: log, dir: dir, nodes: map[string]*exec.Cmd{}, ports: map[string]string{}}
	for _, port := range []string{"8420", "8421", "8422"} {
		own, err := servers.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		r.ports[port] = fmt.Sprint(own)
	}
	t.Cleanup(func() {
		r.stop(os.Kill)
		if t.Failed() {
			said, err := os.ReadFile(log.Name())
			t.Logf("the servers said: %v\n%s", err, said)
		}
		log.Close()
		os.RemoveAll(dir)
	})
	return r
}

// read executes the blocks of a page, and returns their number. others replaces texts of the page
// that do not suit a test.
func (r *reader) read(page string, others *strings.Replacer) int {
	text, err := os.ReadFile(page)
	r.must(err)
	blocks := block.FindAllStringSubmatch(others.Replace(string(text)), -1)
	for i, b := range blocks {
		want := ""
		if i+1 < len(blocks) && blocks[i+1][1] == "text" {
			want = blocks[i+1][2]
		}
		kind, rest, _ := strings.Cut(b[1], " ")
		switch {
		case strings.HasPrefix(rest, "file="):
			name, _, _ := strings.Cut(strings.TrimPrefix(rest, "file="), " ")
			r.must(os.WriteFile(filepath.Join(r.dir, name), []byte(b[2]), 0o644))
		case kind == "sh":
			r.follow(rest, b[2], want)
		}
		if r.t.Failed() {
			r.t.Fatalf("this was to be done:\n%s", b[2])
		}
	}
	return len(blocks)
}

// follow executes a block.
func (r *reader) follow(how, text, want string) {
	switch how {
	case "": // a reader does it once: the program is built
	case "serve":
		for line := range strings.Lines(text) {
			r.serve(strings.TrimSpace(line))
		}
	case "start": // a program beside the server
		cmd := exec.Command("bash", "-c", r.exports+"exec "+text)
		cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, r.log, r.log
		r.must(cmd.Start())
		r.nodes[strings.TrimSpace(text)] = cmd
	case "stop":
		r.stop(os.Interrupt)
	case "kill": // the named node, or the only one
		for name, cmd := range r.nodes {
			if len(r.nodes) == 1 || name == strings.TrimSpace(text) {
				r.must(cmd.Process.Kill())
				_ = cmd.Wait()
				delete(r.nodes, name)
			}
		}
	case "database":
		r.exports += "export BELFRY_STORE='" + r.database + "'\n"
	case "run", "run fails":
		out, err := r.shell(r.t.Context(), text)
		if (err != nil) != (how == "run fails") {
			r.t.Errorf("it ends with %v and prints\n%s", err, out)
		}
		if missing := lacks(out, want); missing != "" {
			r.t.Errorf("it prints no line like %q:\n%s", missing, out)
		}
	case "until":
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		defer cancel()
		var parts []string // the last different outputs
		for {
			out, err := r.shell(ctx, text)
			if err == nil && lacks(out, want) == "" {
				return
			}
			if now := fmt.Sprintf("%v: %s", err, out); len(parts) == 0 || parts[len(parts)-1] != now {
				parts = append(parts[max(0, len(parts)-4):], now)
			}
			select {
			case <-ctx.Done():
				list, _ := r.shell(r.t.Context(), "belfry run list --limit 3")
				r.t.Errorf("it prints no line like %q, but in turn\n%s\nThe last runs are\n%s", lacks(out, want), strings.Join(parts, "\n"), list)
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	default:
		r.t.Errorf("the test does not know what to do with a block of %q", how)
	}
}

// shell runs commands in the terminal of the reader.
func (r *reader) shell(ctx context.Context, text string) (string, error) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "export ") {
			r.exports += line
		}
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", r.exports+text)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// serve starts a server in a separate terminal, and waits until it answers.
func (r *reader) serve(line string) {
	if !strings.Contains(line, "--listen") {
		line += " --listen 127.0.0.1:8420"
	}
	if os.Geteuid() == 0 && strings.Contains(r.exports, "BELFRY_STORE") {
		line += " --run-as nobody" // as on the page
	}
	port := ""
	for theirs, ours := range r.ports {
		if strings.Contains(line, ":"+theirs) {
			line, port = strings.ReplaceAll(line, ":"+theirs, ":"+ours), ours
		}
	}
	cmd := exec.Command("bash", "-c", r.exports+"exec "+line)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, r.log, r.log
	r.must(cmd.Start())
	name := "first"
	if _, after, ok := strings.Cut(line, "--name "); ok {
		name, _, _ = strings.Cut(after, " ")
	}
	r.nodes[name] = cmd
	deadline := time.Now().Add(patience)
	for {
		response, err := http.Get("http://127.0.0.1:" + port + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: %v", line, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// stop ends all servers.
func (r *reader) stop(signal os.Signal) {
	for _, cmd := range r.nodes {
		_ = cmd.Process.Signal(signal) // a killed server has ended
	}
	for name, cmd := range r.nodes {
		_ = cmd.Wait()
		delete(r.nodes, name)
	}
}

func (r *reader) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// lacks returns the first expected line that matches no printed line; "…" matches any text.
func lacks(out, want string) string {
	for line := range strings.Lines(want) {
		line = strings.TrimRight(line, "\n")
		var parts []string
		for _, part := range strings.Split(line, "…") {
			parts = append(parts, regexp.QuoteMeta(strings.TrimSpace(part)))
		}
		if !regexp.MustCompile("(?m)^.*" + strings.Join(parts, ".*") + ".*$").MatchString(out) {
			return line
		}
	}
	return ""
}
