//go:build servers

package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// storyJob is a job of the pictures, and how its last runs went: a letter for each, the latest
// last. Each took about so long.
type storyJob struct {
	name, cron, labels, took string
	every                    time.Duration
	ends                     string
}

// story is what the pictures show.
var story = []storyJob{
	{"billing/invoice-close", "*/15 8-20 * * *", "team: billing", "38s", 15 * time.Minute, "ssssssssssssssssssssssss"},
	{"crm/contact-sync", "*/10 * * * *", "team: crm", "63s", 10 * time.Minute, "sssssssssssfssssssssssss"},
	{"data/events-compact", "20 * * * *", "team: data", "11m", time.Hour, "sssssssssssssss"},
	{"finance/fx-rates", "0 * * * *", "team: finance", "800ms", time.Hour, "sssssssfsssssss"},
	{"mail/digest-daily", "15 10 * * *", "team: mail", "3m9s", 24 * time.Hour, "ssss"},
	{"ops/cert-renew", "42 */12 * * *", "team: ops", "4s", 12 * time.Hour, "sssss"},
	{"ops/pg-basebackup", "10 2 * * *", "team: ops, tier: '1'", "22m", 24 * time.Hour, "ssfs"},
	{"risk/score-nightly", "0 1 * * 1-5", "team: risk, tier: '1'", "54m", 24 * time.Hour, "sssf"},
	{"search/reindex-delta", "*/10 * * * *", "team: search", "7m40s", 10 * time.Minute, "sssssssssssssssssssssssss"},
	{"shop/feed-export", "*/30 * * * *", "team: shop", "95s", 30 * time.Minute, "ssssssssssssssssssss"},
	{"shop/stock-sync", "*/5 * * * *", "team: shop", "12s", 5 * time.Minute, "ssssssssssssssssssssssssssssss"},
	{"shop/price-import", "*/10 * * * *", "team: shop, tier: '1'", "2s", 10 * time.Minute, "sssssssssssssssssssssffff"},
	{"web/link-check", "30 */2 * * *", "team: web", "17m", 2 * time.Hour, "sssssssssss"},
	{"web/sitemap-rebuild", "5 3 * * *", "team: web", "5m51s", 24 * time.Hour, "sss"},
}

// tell makes the jobs of the story, and reports their runs.
func tell(t *testing.T, on *served) {
	t.Helper()
	var documents strings.Builder
	for _, j := range story {
		namespace, name, _ := strings.Cut(j.name, "/")
		fmt.Fprintf(&documents, "---\nnamespace: %s\nname: %s\nlabels: {%s}\nschedule: {cron: %q, timezone: Europe/Berlin}\nrun: {external: {}}\n", namespace, name, j.labels, j.cron)
	}
	on.apply(t, documents.String())
	token, err := os.ReadFile(filepath.Join(on.data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	chance := rand.New(rand.NewPCG(1, 2))
	now := time.Now()
	for _, j := range story {
		usual, err := time.ParseDuration(j.took)
		if err != nil {
			t.Fatal(err)
		}
		for i, end := range j.ends {
			took := time.Duration(float64(usual) * (0.75 + chance.Float64()/2))
			ended := now.Add(-time.Duration(len(j.ends)-1-i) * j.every).Truncate(j.every).Add(-j.every).Add(took)
			report := map[string]any{"state": "succeeded", "started": ended.Add(-took), "at": ended, "output": "read 12,400 rows\nwrote 12,400 rows\n"}
			if end == 'f' {
				report["state"], report["exit_code"], report["output"] = "failed", 1, "feed.csv: 0 rows, expected at least 10,000\n"
			}
			body, err := json.Marshal(report)
			if err != nil {
				t.Fatal(err)
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, on.url+"/api/v1/jobs/"+j.name+"/report", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
			request.Header.Set("Content-Type", "application/json")
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			_, _ = said.ReadFrom(answer.Body)
			answer.Body.Close()
			if answer.StatusCode >= 300 {
				t.Fatalf("the report of %s is answered with %s: %s", j.name, answer.Status, said.String())
			}
		}
	}
}
