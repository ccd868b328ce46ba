package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli"
)

func TestSortingReadsABoundedNumberOfJobs(t *testing.T) {
	pages := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		pages++
		var items []string
		for i := range 500 {
			items = append(items, fmt.Sprintf(`{"name":"j%d-%d","run":{"shell":"true"},"status":{}}`, pages, i))
		}
		fmt.Fprintf(w, `{"items":[%s],"next_page_token":"more"}`, strings.Join(items, ","))
	}))
	defer web.Close()
	var stdout, stderr bytes.Buffer
	env := cli.Env{Stdout: &stdout, Stderr: &stderr, Now: time.Now, Getenv: func(name string) string {
		return map[string]string{"BELFRY_SERVER": web.URL, "BELFRY_TOKEN": "x", "HOME": t.TempDir()}[name]
	}}
	if code := cli.Run(context.Background(), env, []string{"job", "list", "--sort", "last", "--limit", "10"}); code != cli.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	if pages != 20 || !strings.Contains(stderr.String(), "there are more than 10000 jobs") || stdout.Len() > 0 {
		t.Errorf("%d pages were read; %s%s", pages, stdout.String(), stderr.String())
	}
}
