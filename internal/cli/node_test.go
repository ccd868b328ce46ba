package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/cli"
)

func TestTheWideListOfNodesSaysHowFastTheStoreIsAndHowLateRunsStart(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 41, 0, 0, time.UTC)
	late := func(node string, attempt int, by time.Duration) client.Run {
		return client.Run{Node: node, Attempt: attempt, Due: now.Add(-time.Minute), Started: now.Add(by - time.Minute)}
	}
	asked := ""
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = client.Page[client.Node]{Items: []client.Node{
			{Name: "ber-1", State: "live", StoreRead: 0.001, StoreWrite: 0.0021, StoreP50: 0.0017, StoreP99: 0.006, Starts: []int{3, 4}, Engine: "Podman 5.4.2", Handlers: []string{"report", ":kubernetes=prod-eu"}},
			{Name: "sha-1", State: "live"},
		}}
		if strings.HasSuffix(r.URL.Path, "/runs") {
			asked = r.URL.RawQuery
			answer = client.Page[client.Run]{Items: []client.Run{
				late("ber-1", 1, 40*time.Millisecond), late("ber-1", 1, 20*time.Millisecond), late("ber-1", 1, 1500*time.Millisecond),
				late("ber-1", 2, time.Hour), late("", 1, time.Hour), late("gone", 1, time.Hour),
			}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer web.Close()
	for output, want := range map[string][]string{
		"wide":  {" STORE ", " CALLS ", " LATE ", " 1.0ms/2.1ms ", " 1.7ms/6.0ms ", " 7 ", " report,kubernetes:prod-eu ", " Podman 5.4.2 ", " 40.0ms/1500.0ms "},
		"table": {"ber-1"},
	} {
		asked = ""
		var stdout, stderr bytes.Buffer
		env := cli.Env{Stdout: &stdout, Stderr: &stderr, Now: func() time.Time { return now }, Getenv: func(name string) string {
			return map[string]string{"BELFRY_SERVER": web.URL, "BELFRY_TOKEN": "x", "HOME": t.TempDir()}[name]
		}}
		if code := cli.Run(context.Background(), env, []string{"node", "list", "-o", output}); code != 0 {
			t.Fatalf("the list exits with %d: %s", code, stderr.String())
		}
		for _, text := range want {
			if !strings.Contains(strings.ReplaceAll(stdout.String(), "\n", " \n"), text) {
				t.Errorf("-o %s has no %q:\n%s", output, text, stdout.String())
			}
		}
		if isWide := output == "wide"; isWide != (asked != "") || isWide && (!strings.Contains(asked, "state=done") || !strings.Contains(asked, "from=2026-11-23T07")) {
			t.Errorf("-o %s reads runs by %q", output, asked)
		}
	}
}
