package alerts

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/test/servers"
)

// scrape starts a server, runs a job that succeeds and one that fails, and returns the metrics of
// the server with their labels.
func scrape(t *testing.T) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	program, data := filepath.Join(dir, "belfry"), filepath.Join(dir, "data")
	if err := servers.Build(program, "cmd/belfry"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	server := exec.CommandContext(ctx, program, "serve", "--data", data, "--listen", "127.0.0.1:0", "--log-level", "error")
	server.Stderr = t.Output()
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = server.Wait()
	}()
	belfry := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = append(os.Environ(), "BELFRY_DATA="+data)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for {
		out, err := belfry("job", "create", "good", "--cron", "@daily", "--", "true")
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the server does not start: %s", out)
		case <-time.After(200 * time.Millisecond):
		}
	}
	for _, args := range [][]string{{"job", "run", "good", "--wait"}, {"job", "create", "bad", "--cron", "@daily", "--", "false"}} {
		if out, err := belfry(args...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if out, err := belfry("job", "run", "bad", "--wait"); err == nil {
		t.Fatalf("the job succeeds: %s", out)
	}
	token, err := os.ReadFile(filepath.Join(data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	address, err := os.ReadFile(filepath.Join(data, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(string(address))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v\n%s", response.Status, err, text)
	}
	return metricsOf(string(text))
}

// metricsOf returns the metrics in the text format of Prometheus, with the labels of their series.
func metricsOf(text string) map[string][]string {
	list := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) \S+$`).FindAllStringSubmatch(text, -1) {
		list[m[1]] = []string{}
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+)\{(.*)\} \S+$`).FindAllStringSubmatch(text, -1) {
		name := m[1]
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, part); list[base] != nil {
				name = base
			}
		}
		for _, label := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(m[2], -1) {
			if label[1] != "le" {
				list[name] = append(list[name], label[1])
			}
		}
	}
	return list
}
