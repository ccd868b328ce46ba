//go:build servers

package web

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/test/servers"
)

// nightNodes are the names of the nodes, as clouds give them. The last one is drained.
var nightNodes = []string{"fra-prod-worker-01.eu-central-1.compute.internal", "dub-prod-worker-01.eu-west-1.compute.internal", "sin-edge-worker-06.ap-southeast-1.compute.internal"}

// nightJob is a job that other programs report on, and how its last runs went: a number and a letter
// for each stretch of equal ends, the latest last: 4f is four failures, r a run that has not ended.
type nightJob struct {
	name, schedule, labels, took string
	every                        time.Duration
	ends                         string
	line                         string // the last one that a failed run wrote
}

// The lines that several failures of the night have in common, and one that fills its room.
const (
	nightRefused = `connection to server at "pg-prod-03.cluster-c9akciq32.eu-central-1.rds.amazonaws.com" (10.20.4.17), port 5432 failed: Connection refused`
	nightEmpty   = "feed.csv: 0 rows, expected at least 10,000"
)

// What people and other programs say in the night.
const (
	nightPause   = "the coupons of the summer are kept until the audit of the auditors who audit the audits is over, see ticket OPS-4711"
	nightSkipped = "the run before it had not ended"
	nightNote    = "the vendor answers on Monday"
	nightDrained = "its disk is replaced, and the edge of the wind parks moves to the new machine meanwhile"
)

// nightReason is a reason of 3,000 letters, as an old admin has kept it of a stack trace.
var nightReason = ("java.lang.IllegalStateException: the settlement is not balanced" + strings.Repeat("\n\tat com.example.settle.SettleHandler.execute(SettleHandler.java:118)", 45))[:3000]

// night is the night of 28 November 2026: an incident, a bad feed, and what happens anyway. Its times are
// told as distances from now.
var night = []nightJob{
	{"billing/ledger-check-of-all-subsidiaries-and-currencies-emea", "every: 20s", "team: billing", "1s", 20 * time.Second, "4s20f", nightRefused},
	{"billing/invoice-close", `cron: "*/15 8-20 * * *"`, "team: billing", "5s", 15 * time.Minute, "24s", ""},
	{"billing/dunning-letters", `cron: "0 9 * * 1-5"`, "team: billing, tier: '1'", "5s", 24 * time.Hour, "3s", ""},
	{"billing/payout", `cron: "0 10 25 * *", only: mon-fri, except: [holidays], off_day: previous`, "team: billing, tier: '1'", "2s", 24 * time.Hour, "", ""},
	{"shop/stock-sync", `cron: "* * * * *"`, "team: shop", "3s", time.Minute, "24s", ""},
	{"shop/feed-export", "every: 30s", "team: shop", "2s", 30 * time.Second, "24s", ""},
	{"shop/cart-expire", "every: 10s", "team: shop", "200ms", 10 * time.Second, "24s", ""},
	{"shop/coupon-cleanup", `cron: "0 4 * * *"`, "team: shop", "1s", 24 * time.Hour, "3s", ""},
	{"shop/recommendation-model-refresh-with-a-very-long-name-that-a-person-really-gave-to-a-job-in-production-v2", `cron: "*/3 * * * *"`, "team: recommendations-and-personalisation, cost-center: cc-4711-emea-retail-digital", "3s", 3 * time.Minute, "14s10f", nightRefused},
	{"crm/contact-sync", `cron: "*/2 * * * *"`, "team: crm", "2s", 2 * time.Minute, "8s16f", nightRefused},
	{"crm/slow-http", "every: 45s", "team: crm", "1s", 45 * time.Second, "9s1f6s1f7s", "GET https://crm.example.com/contacts?updated_since=2026-11-27: no answer within 5s"},
	{"data/events-compact", `cron: "*/5 * * * *"`, "team: data", "40s", 5 * time.Minute, "18s6f", nightRefused},
	{"data/long-running-export", "every: 10m", "team: data", "9m", 10 * time.Minute, "20s1r", ""},
	{"data/shard-import", `cron: "*/4 * * * *"`, "team: data", "7s", 4 * time.Minute, "24s", ""},
	{"data/warehouse-load", `cron: "25 7 * * *", timezone: Europe/Berlin`, "team: data, tier: '1'", "48m", 24 * time.Hour, "5s1l", ""},
	{"erp/price-feed", `cron: "*/10 * * * *"`, "team: erp", "4s", 10 * time.Minute, "20s4f", nightEmpty},
	{"erp/score", `cron: "0 2 * * *"`, "team: erp", "2m", 24 * time.Hour, "3s1f", nightEmpty},
	{"erp/contact-dedupe", `cron: "20 * * * *"`, "team: erp", "30s", time.Hour, "7s1f4s", "2 contacts have the same tax number, and neither is newer"},
	{"erp/fx-fixing", `cron: "5 * * * *"`, "team: erp", "2s", time.Hour, "3s1f8s", "the fixing of 22:15 is not published"},
	{"erp/feed-upload", `cron: "*/30 * * * *"`, "team: erp", "11s", 30 * time.Minute, "22s", ""},
	{"erp/order-import", `cron: "*/30 * * * *"`, "team: erp", "14s", 30 * time.Minute, "22s", ""},
	{"erp/order-export", `cron: "15 * * * *"`, "team: erp", "14s", time.Hour, "12s", ""},
	{"erp/tax-report", `cron: "0 22 * * *"`, "team: erp", "3m", 24 * time.Hour, "4s", ""},
	{"erp/archive", `cron: "30 23 * * *"`, "team: erp", "7m", 24 * time.Hour, "4s", ""},
	{"erp/supplier-sync", `cron: "*/15 8-20 * * *"`, "team: erp", "9s", 15 * time.Minute, "12s", ""},
	{"erp/closing", `cron: "0 3 L * *"`, "team: erp, tier: '1'", "9m", 24 * time.Hour, "", ""},
	{"ops/vacuum-and-analyze-of-the-partitioned-order-tables", `cron: "15 1,13 * * *"`, "team: ops", "22m", 12 * time.Hour, "6s1f", "ERROR: canceling statement due to user request (SIGTERM after 45 min, ended 2 s later), while vacuuming index \"orders_2026_11_27_customer_id_created_at_idx\" of relation \"public.orders_2026_11_27\""},
	{"ops/cert-renew", `cron: "42 */12 * * *"`, "team: ops", "1s", 12 * time.Hour, "5s", ""},
	{"ops/pg-basebackup", `cron: "10 2 * * *", spread: 30m`, "team: ops, tier: '1'", "22m", 24 * time.Hour, "4s", ""},
	{"ops/heartbeat", "every: 5s", "team: ops", "20ms", 5 * time.Second, "24s", ""},
	{"ops/queue-heavy", "every: 10s", "team: ops", "9s", 10 * time.Second, "24s", ""},
	{"ops/overlapper", "every: 10s", "team: ops", "8s", 10 * time.Second, "12s4k8s", ""},
	{"ops/fast-logger", `cron: "*/20 * * * *"`, "team: ops", "60s", 20 * time.Minute, "12s", ""},
	{"ops/log-rotate", `cron: "0 0 * * *"`, "team: ops", "2s", 24 * time.Hour, "3s", ""},
	{"ops/snapshot", `cron: "0 */6 * * *"`, "team: ops", "4m", 6 * time.Hour, "6s", ""},
	{"ops/clean-cache", `cron: "40 * * * *"`, "team: ops", "6s", time.Hour, "12s", ""},
	{"ops/dns-export", `cron: "*/20 * * * *"`, "team: ops", "1s", 20 * time.Minute, "20s", ""},
	{"ml/train-nightly", `cron: "0 1 * * 1-5"`, "team: ml, tier: '1'", "30m", 24 * time.Hour, "4s", ""},
	{"mail/digest-daily", `cron: "15 10 * * *"`, "team: mail", "3m", 24 * time.Hour, "4s", ""},
	{"mail/digest-weekly", `cron: "15 10 * * mon"`, "team: mail", "3m", 168 * time.Hour, "2s", ""},
	{"mail/bounce-reader", `cron: "* * * * *"`, "team: mail", "2s", time.Minute, "24s", ""},
	{"mail/newsletter-once", `at: "2028-01-01T00:00:00+01:00"`, "team: mail", "1s", time.Hour, "", ""},
	{"risk/score-nightly", `cron: "0 1 * * 1-5", timezone: America/New_York`, "team: risk, tier: '1'", "54m", 24 * time.Hour, "4s", ""},
	{"risk/limits", `cron: "0 7 * * *"`, "team: risk", "20s", 24 * time.Hour, "4s", ""},
	{"risk/lastday", `cron: "0 23 L * *"`, "team: risk", "20s", 24 * time.Hour, "", ""},
	{"search/reindex-delta", `cron: "*/10 * * * *"`, "team: search", "8s", 10 * time.Minute, "21s3f", nightRefused},
	{"search/reindex-full", `cron: "0 5 * * sun"`, "team: search", "51m", 168 * time.Hour, "2s", ""},
	{"web/link-check", `cron: "*/7 * * * *"`, "team: web", "9s", 7 * time.Minute, "12s1f9s", "https://shop.example.com/a/very/long/address/of/a/page/that/is/not/there/any/more?with=parameters&and=more: status 404"},
	{"web/sitemap-rebuild", `cron: "5 3 * * *"`, "team: web", "6m", 24 * time.Hour, "3s", ""},
	{"web/health", "every: 15s", "team: web", "1s", 15 * time.Second, "4s20f", "GET https://shop.example.com/healthz: status 503, expected 200 to 299"},
	{"finance/fx-rates", `cron: "0 * * * *"`, "team: finance", "800ms", time.Hour, "12s", ""},
	{"finance/exchange-close", `cron: "*/20 * * * *"`, "team: finance", "2s", 20 * time.Minute, "22s", ""},
	{"finance/quarter-report", `cron: "0 0 1 1,4,7,10 *"`, "team: finance", "1s", 24 * time.Hour, "", ""},
	{"hr/payroll-check", `cron: "0 6 * * 1"`, "team: hr", "2s", 168 * time.Hour, "1s1f", "3 contracts end within the month and have no successor"},
	{"hr/vacation-mail", `cron: "30 18 * * 5"`, "team: hr", "2s", 168 * time.Hour, "2s", ""},
	{"iot/telemetry-roll", `cron: "* * * * *"`, "team: iot", "4s", time.Minute, "24s", ""},
	{"iot/sensor-poll-of-the-north-sea-wind-parks-and-their-substations", `cron: "*/2 * * * *"`, "team: iot", "1s", 2 * time.Minute, "24s", ""},
	{"iot/firmware-scan-of-all-gateways-in-the-field", `cron: "*/6 * * * *"`, "team: iot", "7s", 6 * time.Minute, "20s4f", "panic: runtime error: index out of range [17] with length 17 (scan.go:212)"},
	{"iot/device-sync", `cron: "H/15 * * * *"`, "team: iot", "2s", 15 * time.Minute, "12s1f9s", "412 devices did not answer"},
	{"iot/midnight-a", `cron: "0 0 * * *"`, "team: iot", "3s", 24 * time.Hour, "4s", ""},
	{"iot/midnight-b", `cron: "0 0 * * *"`, "team: iot", "3s", 24 * time.Hour, "4s", ""},
	{"iot/midnight-c", `cron: "0 0 * * *"`, "team: iot", "3s", 24 * time.Hour, "4s", ""},
	{"iot/midnight-d", `cron: "0 0 * * *"`, "team: iot", "3s", 24 * time.Hour, "4s", ""},
	{"iot/midnight-e", `cron: "0 0 * * *"`, "team: iot", "3s", 24 * time.Hour, "4s", ""},
	{"legacy/cron-hourly", `cron: "17 * * * *"`, "team: legacy", "1s", time.Hour, "1s11f", "the vendor has switched the old interface off"},
	{"legacy/cron-daily", `cron: "25 6 * * *"`, "team: legacy", "1s", 24 * time.Hour, "4s", ""},
	{"legacy/cron-weekly", `cron: "47 6 * * 7"`, "team: legacy", "1s", 168 * time.Hour, "2s", ""},
	{"legacy/cron-monthly", `cron: "52 6 1 * *"`, "team: legacy", "1s", 168 * time.Hour, "1s", ""},
}

// nightRest are the documents of what Belfry itself runs, and of what goes with it.
//
//go:embed night.yaml
var nightRest string

// nightFlow is a flow of 120 steps, whose step load has 120 items: part-077, part-081 and part-102 fail.
func nightFlow() string {
	var b strings.Builder
	b.WriteString("---\nnamespace: data\nname: partition-load-nightly-of-all-regions\ndescription: Loads each partition of the day into the warehouse\nlabels: {team: data, tier: '1'}\nschedule: {cron: \"7 3 * * *\", timezone: Europe/Berlin}\nrun:\n  flow:\n    steps:\n")
	regions := []string{"eu_central", "eu_west", "eu_north", "us_east", "us_west", "ap_south"}
	tables := []string{"orders", "customers", "prices_with_currency_and_discounts", "stock"}
	step := func(name, rest, command string) {
		fmt.Fprintf(&b, "      - {name: %s, %srun: {shell: %q}}\n", name, rest, command)
	}
	var staged []string
	for _, table := range tables {
		for _, region := range regions {
			name := table + "_" + region
			command := "true"
			if len(staged) == 0 {
				command = `i=1; printf '{"parts":['; while [ $i -le 120 ]; do [ $i = 1 ] || printf ,; printf '"part-%03d"' $i; i=$((i+1)); done; printf ']}'`
				command = "(" + command + ") > $BELFRY_RESULT"
			}
			step("extract_"+name, "", command)
			step("stage_"+name, "needs: [extract_"+name+"], ", "true")
			staged = append(staged, "stage_"+name)
		}
	}
	var validated []string
	for i := range 11 {
		name := fmt.Sprintf("validate_rule_%02d", i+1)
		step(name, "needs: ["+staged[2*i]+", "+staged[2*i+1]+"], ", "true")
		validated = append(validated, name)
	}
	load := `echo "$BELFRY_ITEM: 512,004 rows in 14 files"; case $BELFRY_ITEM in *part-077*|*part-081*) echo 'pq: duplicate key value violates unique constraint "orders_2026_11_27_pkey"' >&2; exit 1;; *part-102*) echo 's3: GetObject part-102.csv.gz: connection reset by peer' >&2; exit 1;; esac`
	step("load", `needs: [`+strings.Join(validated, ", ")+`], for_each: "{{ .Steps.extract_orders_eu_central.Result.parts }}", `, load)
	var indexed []string
	for i := range 24 {
		indexed = append(indexed, strings.Replace(staged[i], "stage", "index", 1))
		step(indexed[i], "needs: [load], ", "true")
	}
	for i := range 18 {
		step(fmt.Sprintf("aggregate_report_%02d", i+1), "needs: ["+indexed[i]+"], ", "true")
	}
	for i := range 17 {
		step(fmt.Sprintf("publish_to_%02d", i+1), fmt.Sprintf("needs: [aggregate_report_%02d], ", i+1), "true")
	}
	step("notify", "needs: [publish_to_01, publish_to_17], ", "true")
	return b.String()
}

// nightDocuments are all documents of the night.
func nightDocuments() string {
	var b strings.Builder
	for i := range night {
		j := &night[i]
		namespace, name, _ := strings.Cut(j.name, "/")
		schedule := j.schedule
		if strings.HasPrefix(schedule, "cron") && !strings.Contains(schedule, "timezone") {
			schedule += ", timezone: Europe/Berlin"
		}
		fmt.Fprintf(&b, "---\nnamespace: %s\nname: %s\nlabels: {%s}\nschedule: {%s}\nrun: {external: {grace: 24h}}\n", namespace, name, j.labels, schedule)
	}
	return b.String() + nightFlow() + nightRest
}

// nightServer are the servers of the night, for the tests that leave its jobs as they are.
var nightServer struct {
	sync.Once
	store *servers.Redis
	nodes []*served
	paths []string
	err   error
}

// nightOf returns the first server of the night and the addresses of its pages.
func nightOf(t *testing.T) (on *served, paths []string) {
	t.Helper()
	n := &nightServer
	n.Do(func() { n.paths, n.err = startNight() })
	if n.err != nil {
		t.Fatalf("the night: %v", n.err)
	}
	return n.nodes[0], n.paths
}

// startNight starts the nodes of the night, and makes their jobs.
func startNight() (paths []string, err error) {
	n := &nightServer
	if n.store, err = servers.NewRedis(); err != nil {
		return nil, err
	}
	me, err := user.Current() // root would be refused: other machines could give it jobs
	if err != nil {
		return nil, err
	}
	key, config := filepath.Join(belfry.dir, "secret.key"), filepath.Join(belfry.dir, "night.yaml")
	for file, text := range map[string]string{
		key:    "k1 " + base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\n",
		config: "secrets: {key_file: " + key + "}\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	for _, name := range nightNodes {
		node, err := serve(filepath.Join(belfry.dir, name), "", "--config", config, "--store", n.store.URL(), "--run-as", me.Username, "--name", name)
		if err != nil {
			return nil, err
		}
		n.nodes = append(n.nodes, node)
	}
	return tellNight(n.nodes[0])
}

// endNight stops what startNight has started.
func endNight() {
	for _, node := range nightServer.nodes {
		node.stop(os.Interrupt)
	}
	if nightServer.store != nil {
		_ = nightServer.store.Close()
	}
}

// nightEnds are the ends of a job's runs, one after the other.
func nightEnds(stretches string) (ends []byte) {
	for rest := stretches; rest != ""; {
		at := strings.IndexAny(rest, "sfklr")
		n, _ := strconv.Atoi(rest[:at])
		ends = append(ends, bytes.Repeat([]byte{rest[at]}, n)...)
		rest = rest[at+1:]
	}
	return ends
}

// tellNight makes the jobs of the night, reports and starts their runs, and returns the pages that show them.
func tellNight(on *served) (paths []string, err error) {
	documents := nightDocuments()
	// The prices were imported until their job was changed to read another feed.
	if err := on.applies(strings.NewReplacer("/v3/", "/v2/", "exit 1\npolicy", "exit 0\npolicy").Replace(documents)); err != nil {
		return nil, err
	}
	if out, err := on.command("job", "run", "shop/price-import-from-the-feeds-of-all-suppliers", "--wait"); err != nil {
		return nil, fmt.Errorf("the prices are not imported: %w\n%s", err, out)
	}
	if err := on.applies(documents); err != nil {
		return nil, err
	}
	token, err := os.ReadFile(filepath.Join(on.data, "token"))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var all sync.WaitGroup
	failed := make([]error, len(night))
	limit := make(chan struct{}, 4)
	for i := range night {
		all.Go(func() {
			limit <- struct{}{}
			failed[i] = on.reports(string(bytes.TrimSpace(token)), &night[i], now)
			<-limit
		})
	}
	all.Wait()
	past := map[string]any{"number": 1, "job": "shop/order-settle", "started": now.Add(-100 * time.Minute), "ended": now.Add(-99 * time.Minute), "outcome": "failed", "reason": nightReason}
	if err := errors.Join(errors.Join(failed...), on.post(string(bytes.TrimSpace(token)), "xxl/runs", map[string]any{"items": []any{past}})); err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, run := range []struct {
		name string
		args []string
		ends bool // in failure
	}{
		{"shop/price-import-from-the-feeds-of-all-suppliers", nil, true},
		{"shop/price-import-from-the-feeds-of-all-suppliers", nil, true},
		{"data/partition-load-nightly-of-all-regions", nil, true},
		{"ci/release-train", nil, true},
		{"ops/hostile-output", nil, true},
		{"ops/flaky-then-paused", nil, true},
		{"ops/by-hand-migrate", nil, false},
		{"shop/jiage-daoru", nil, false},
	} {
		out, err := on.command("job", "run", run.name, "--wait", "-o", "name")
		if (err != nil) != run.ends {
			return nil, fmt.Errorf("the run of %s: %w\n%s", run.name, err, out)
		}
		ids[run.name] = out[strings.LastIndex(out, "/")+1:]
	}
	for _, name := range []string{"ops/deploy", "ml/features-hourly"} { // which do not end
		out, err := on.command("job", "run", name, "-o", "name")
		if err != nil {
			return nil, fmt.Errorf("the run of %s: %w\n%s", name, err, out)
		}
		ids[name] = out[strings.LastIndex(out, "/")+1:]
	}
	for _, args := range [][]string{
		{"job", "pause", "shop/coupon-cleanup", "--reason", nightPause},
		{"attention", "snooze", "legacy/cron-hourly", "--until", "9h", "--note", nightNote},
		{"attention", "snooze", "hr/payroll-check", "--next-version"},
		{"node", "drain", nightNodes[len(nightNodes)-1], "--reason", nightDrained},
	} {
		if out, err := on.command(args...); err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", args, err, out)
		}
	}
	// The channels do not reach their services, which is one of the things that need a person.
	for end := time.Now().Add(patience); ; {
		text, err := on.command("attention", "-o", "jsonl")
		if err == nil && strings.Contains(text, `"kind":"alarms"`) {
			break
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("no channel fails: %w\n%s", err, text)
		}
		<-time.After(250 * time.Millisecond)
	}
	const failing, flow, train = "shop/price-import-from-the-feeds-of-all-suppliers", "data/partition-load-nightly-of-all-regions", "ci/release-train"
	j, r := "/jobs/"+failing, "/runs/"
	return []string{
		"/", "/wall", "/jobs", "/jobs?q=label:team=shop", "/jobs/new", "/jobs/import", j, j + "/schedule", j + "/backfill?from=2026-11-01T08:00&to=2026-11-01T10:00", j + "/definition", j + "/statistics", j + "/edit",
		"/jobs/" + night[8].name, "/jobs/shop/order-settle", "/jobs/billing/payout/schedule", "/jobs/ops/deploy", "/jobs/shop/jiage-daoru",
		"/runs", "/runs?q=nothing", "/runs?job=shop/order-settle", r + ids[failing], r + ids["ops/hostile-output"], r + ids["shop/jiage-daoru"], r + ids["ml/features-hourly"],
		"/flows", "/jobs/" + flow, "/jobs/" + flow + "/graph", "/jobs/" + train + "/edit", r + ids[flow], r + ids[flow] + "?step=load", r + ids[train], r + ids["ops/deploy"],
		"/timeline", "/timeline?by=namespace&span=6h", "/timeline?view=week", "/nodes", "/executors", "/notifications", "/channels/new", "/channels/ops/on-call", "/audit", "/shared", "/settings", "/ui/kit", "/ui/sign-in/command", "/nothing",
	}, nil
}

// reports tells how the last runs of a job went.
func (s *served) reports(token string, j *nightJob, now time.Time) error {
	usual, err := time.ParseDuration(j.took)
	if err != nil {
		return err
	}
	chance := rand.New(rand.NewPCG(1, uint64(len(j.name))))
	ends := nightEnds(j.ends)
	for i, end := range ends {
		took := time.Duration(float64(usual) * (0.75 + chance.Float64()/2))
		ended := now.Add(-time.Duration(len(ends)-1-i) * j.every).Truncate(j.every).Add(-j.every).Add(took)
		body := map[string]any{"state": "succeeded", "started": ended.Add(-took), "at": ended, "output": "read 12,400 rows\nwrote 12,400 rows\n"}
		switch end {
		case 'f':
			body["state"], body["exit_code"], body["output"] = "failed", 1, "reading\n"+j.line+"\n"
		case 'k':
			body["state"], body["reason"] = "skipped", nightSkipped
		case 'l': // much later than usual
			body = map[string]any{"state": "started", "at": now.Add(-136 * time.Minute)}
		case 'r':
			body = map[string]any{"state": "started", "at": now.Add(-2 * time.Minute)}
		}
		if err := s.post(token, "jobs/"+j.name+"/report", body); err != nil {
			return err
		}
	}
	return nil
}

// post makes a request of the API with a token.
func (s *served) post(token, path string, fields map[string]any) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, s.url+"/api/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	_, _ = text.ReadFrom(answer.Body)
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s is answered with %s: %s", path, answer.Status, text.String())
	}
	return nil
}
