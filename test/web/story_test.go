//go:build servers

package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// A job of the story that runs for longer than ever, one that no node can run, a flow, and what
// goes with them.
const (
	storyLong = "data/warehouse-load"
	storyRest = `
namespace: data
name: warehouse-load
description: Loads the orders of the day before into the warehouse
labels: {team: data, tier: "1"}
schedule: {cron: "25 7 * * *", timezone: Europe/Berlin}
run: {external: {}}
---
namespace: ml
name: features-hourly
labels: {team: ml}
schedule: {cron: "0 * * * *"}
place: {labels: {gpu: a100}}
run: {shell: ./features.sh}
---
namespace: data
name: nightly-report
description: Numbers of the shop, for the morning
labels: {team: data}
schedule: {cron: "0 4 * * *", timezone: Europe/Berlin}
run:
  flow:
    steps:
      - {name: extract_orders, run: {shell: 'echo ''{"rows":1200,"parts":["eu","us","asia"]}'' > $BELFRY_RESULT; echo read 1200 rows'}}
      - {name: extract_stock, run: {shell: "sleep 1; echo stock of 4 stores"}}
      - {name: stage, needs: [extract_orders, extract_stock], run: {shell: "sleep 0.6; echo staged"}}
      - {name: load, needs: [stage], for_each: "{{ .Steps.extract_orders.Result.parts }}", run: {shell: "sleep 0.4; echo load $BELFRY_ITEM"}}
      - {name: check, needs: [extract_orders], allow_failure: true, run: {shell: "echo 'orders of asia are 3 % below last week' >&2; exit 3"}}
      - {name: approve, needs: [load, check], wait: {approval: "1200 rows: publish?", for: 12h}}
      - {name: publish, needs: [approve], run: {shell: "echo published"}}
---
kind: pool
namespace: shop
name: database
pool: {size: 4}
---
kind: channel
namespace: ops
name: on-call
to: {webhook: {url: "https://hooks.example.com/on-call", secret: {file: on-call}}}
rules: [{events: [failed, recovered, missed, late]}]
---
kind: executors
namespace: shop
name: order-executor
addresses: ["http://10.0.4.11:9999", "http://10.0.4.12:9999"]
---
namespace: shop
name: order-settle
labels: {team: shop}
schedule: {cron: "30 1 * * *", timezone: Asia/Shanghai}
run: {xxl: {group: order-executor, handler: settleHandler}}
`
)

// storySpan is how far back the runs of the story go.
const storySpan = 13 * time.Hour

// tell makes the jobs of the story, and reports their runs.
func tell(t *testing.T, on *served) {
	t.Helper()
	as := func(secret, documents string) {
		t.Helper()
		c := exec.Command(belfry.program, "apply", "-f", "-", "--server", on.url)
		c.Env = append(os.Environ(), "BELFRY_TOKEN="+secret)
		c.Stdin = strings.NewReader(documents)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("apply: %v\n%s", err, out)
		}
	}
	wei, ci := on.newToken(t, "wei", "--role", "admin"), on.newToken(t, "ci", "--role", "admin")
	var documents strings.Builder
	for _, j := range story {
		namespace, name, _ := strings.Cut(j.name, "/")
		fmt.Fprintf(&documents, "---\nnamespace: %s\nname: %s\nlabels: {%s}\nschedule: {cron: %q, timezone: Europe/Berlin}\nrun: {external: {}}\n", namespace, name, j.labels, j.cron)
	}
	as(ci, documents.String())
	as(wei, storyRest)
	as(wei, "namespace: shop\nname: price-import\ndescription: Imports the prices of the day from the feed\nlabels: {team: shop, tier: '1'}\nschedule: {cron: \"*/10 * * * *\", timezone: Europe/Berlin}\nrun: {external: {}}\n")
	token, err := os.ReadFile(filepath.Join(on.data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	report := func(name string, said map[string]any) {
		t.Helper()
		body, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, on.url+"/api/v1/jobs/"+name+"/report", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		_, _ = text.ReadFrom(answer.Body)
		answer.Body.Close()
		if answer.StatusCode >= 300 {
			t.Fatalf("the report of %s is answered with %s: %s", name, answer.Status, text.String())
		}
	}
	chance := rand.New(rand.NewPCG(1, 2))
	now := time.Now()
	long := storyJob{name: storyLong, took: "48m", every: 24 * time.Hour, ends: "sssss"}
	for _, j := range append(slices.Clone(story), long) {
		usual, err := time.ParseDuration(j.took)
		if err != nil {
			t.Fatal(err)
		}
		ends := strings.Repeat("s", max(0, int(storySpan/j.every)-len(j.ends))) + j.ends
		for i, end := range ends {
			took := time.Duration(float64(usual) * (0.75 + chance.Float64()/2))
			ended := now.Add(-time.Duration(len(ends)-1-i) * j.every).Truncate(j.every).Add(-j.every).Add(took)
			said := map[string]any{"state": "succeeded", "started": ended.Add(-took), "at": ended, "output": "read 12,400 rows\nwrote 12,400 rows\n"}
			if end == 'f' {
				said["state"], said["exit_code"], said["reason"] = "failed", 1, "feed.csv: 0 rows, expected at least 10,000"
				said["output"] = "reading feed.csv\nfeed.csv: 0 rows, expected at least 10,000\n"
			}
			report(j.name, said)
		}
	}
	report(storyLong, map[string]any{"state": "started", "at": now.Add(-136 * time.Minute)})
	on.must(t, "job", "run", "ml/features-hourly", "-o", "name")
	on.must(t, "job", "run", "data/nightly-report", "-o", "name")
	on.must(t, "job", "pause", "web/sitemap-rebuild", "--reason", "the new shop has its own")
	until(t, "what needs a person", func() bool {
		return strings.Count(on.must(t, "attention", "-o", "jsonl")+"\n", "\n") >= 3
	})
}
