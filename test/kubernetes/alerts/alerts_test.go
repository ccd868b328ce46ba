package alerts

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"

	"github.com/belfry-cron/belfry/internal/cli"
)

const docs = "../../../docs/"

var grammar = parser.NewParser(parser.Options{})

// alertRules returns the rules as Prometheus reads them.
func alertRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(docs+"alerts.yaml", false, model.UTF8Validation, grammar, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if len(errs) > 0 || len(groups.Groups) == 0 {
		t.FailNow()
	}
	var list []rulefmt.Rule
	for _, g := range groups.Groups {
		list = append(list, g.Rules...)
	}
	return list
}

func TestEachRuleNamesAnAction(t *testing.T) {
	text, err := os.ReadFile(docs + "alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, r := range alertRules(t) {
		if at := r.Annotations["runbook_url"]; !strings.HasSuffix(at, "docs/alerts.md#"+strings.ToLower(r.Alert)) || !strings.Contains(page, "\n## "+r.Alert+"\n\n"+r.Annotations["summary"]+". "+r.Annotations["runbook"]+"\n") {
			t.Errorf("%s has the runbook_url %q, and docs/alerts.md should have its summary and its runbook below the heading", r.Alert, at)
		}
		for _, name := range []string{"summary", "description", "runbook"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		if s := r.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		for _, m := range regexp.MustCompile(`belfry (?:[a-z-]+)(?: [a-z-]+)?(?: [^.,;]*)?`).FindAllString(r.Annotations["runbook"], -1) {
			words := strings.Fields(m)[1:]
			cmd, rest, err := cli.Commands().Find(words)
			if err != nil || !cmd.Runnable() {
				t.Errorf("%s: %q is not a command: %v", r.Alert, m, err)
				continue
			}
			for _, word := range rest {
				if flag := strings.TrimLeft(word, "-"); flag != word && cmd.Flags().Lookup(flag) == nil && cmd.Flags().ShorthandLookup(flag[:1]) == nil {
					t.Errorf("%s: belfry %s has no flag %s", r.Alert, cmd.Name(), word)
				}
			}
		}
	}
}

// TestEachRuleFires gives each rule series on which it must fire, and others on which it must not.
// A series has a value each minute, in the notation of promtool.
func TestEachRuleFires(t *testing.T) {
	const (
		bad  = true
		fine = false
	)
	type scene struct {
		fires  bool
		series string
		after  time.Duration
		says   string // part of the description
	}
	scenes := map[string][]scene{
		"BelfryDown": {
			{bad, `other 1x10`, 3 * time.Minute, "no server"},
			{fine, `belfry_build_info{instance="a"} 1x10`, 3 * time.Minute, ""},
			{fine, `other 1x10`, time.Minute, ""},
		},
		"BelfryServerDown": {
			{bad, "belfry_build_info{instance=\"a\"} 1x200\nbelfry_build_info{instance=\"b\"} 1x60", 80 * time.Minute, "1 servers answer"},
			{fine, "belfry_build_info{instance=\"a\"} 1x200\nbelfry_build_info{instance=\"b\"} 1x200", 80 * time.Minute, ""},
			{fine, "belfry_build_info{instance=\"a\"} 1x400\nbelfry_build_info{instance=\"b\"} 1x60", 140 * time.Minute, ""},
		},
		"BelfryJobNeverSucceeded": {
			{bad, "belfry_job_last_success_timestamp_seconds{namespace=\"web\",name=\"import\"} 0x4500\nbelfry_job_next_run_timestamp_seconds{namespace=\"web\",name=\"import\"} 3600x4500", 50 * time.Hour, "web/import is due within a day"},
			{fine, "belfry_job_last_success_timestamp_seconds{namespace=\"web\",name=\"import\"} 0x4500\nbelfry_job_next_run_timestamp_seconds{namespace=\"web\",name=\"import\"} 3600x4500", 47 * time.Hour, ""},
			{fine, "belfry_job_last_success_timestamp_seconds{namespace=\"web\",name=\"import\"} 0x4500\nbelfry_job_next_run_timestamp_seconds{namespace=\"web\",name=\"import\"} 900000x4500", 50 * time.Hour, ""},
			{fine, "belfry_job_last_success_timestamp_seconds{namespace=\"web\",name=\"import\"} 60x4500\nbelfry_job_next_run_timestamp_seconds{namespace=\"web\",name=\"import\"} 3600x4500", 50 * time.Hour, ""},
		},
		"BelfryJobCannotRun": {
			{bad, "belfry_job_barred{instance=\"a\",namespace=\"web\",name=\"import\"} 1x40\nbelfry_job_barred{instance=\"b\",namespace=\"web\",name=\"import\"} 1x40", 15 * time.Minute, "run web/import"},
			{fine, `belfry_job_next_run_timestamp_seconds{namespace="web",name="import"} 1x40`, 15 * time.Minute, ""},
		},
		"BelfryOccurrenceWrong": {
			{bad, "belfry_occurrences_unaccounted{instance=\"a\"} 2x10\nbelfry_occurrences_unaccounted{instance=\"b\"} 2x10\nbelfry_occurrences_doubled 0x10\nbelfry_occurrences_early 1x10", time.Minute, "3 occurrences"},
			{fine, "belfry_occurrences_unaccounted 0x10\nbelfry_occurrences_doubled 0x10\nbelfry_occurrences_early 0x10", time.Minute, ""},
		},
		"BelfryPlannerBehind": {
			{bad, "belfry_planned_ahead_seconds{instance=\"a\"} 12x10\nbelfry_planned_ahead_seconds{instance=\"b\"} 1x10", 2 * time.Minute, "due in 1 s"},
			{fine, `belfry_planned_ahead_seconds 10x10`, 5 * time.Minute, ""},
		},
		"BelfryStartsLate": {
			{bad, "belfry_start_lateness_seconds_bucket{le=\"5\"} 0x40\nbelfry_start_lateness_seconds_bucket{le=\"10\"} 0+60x40\nbelfry_start_lateness_seconds_bucket{le=\"+Inf\"} 0+60x40", 20 * time.Minute, "starts 9.95s or more"},
			{fine, "belfry_start_lateness_seconds_bucket{le=\"0.1\"} 0+60x40\nbelfry_start_lateness_seconds_bucket{le=\"+Inf\"} 0+60x40", 20 * time.Minute, ""},
		},
		"BelfryCapacityUsedUp": {
			{bad, "belfry_runs_pending{instance=\"a\"} 7x20\nbelfry_attempts_running{instance=\"a\"} 62x20\nbelfry_capacity_attempts{instance=\"a\"} 64x20", 6 * time.Minute, "7 runs are due on a"},
			{fine, "belfry_runs_pending{instance=\"a\"} 7x20\nbelfry_attempts_running{instance=\"a\"} 6x20\nbelfry_capacity_attempts{instance=\"a\"} 64x20", 6 * time.Minute, ""},
			{fine, "belfry_runs_pending{instance=\"a\"} 0x20\nbelfry_attempts_running{instance=\"a\"} 64x20\nbelfry_capacity_attempts{instance=\"a\"} 64x20", 6 * time.Minute, ""},
		},
		"BelfryStoreFails": {
			{bad, `belfry_store_errors_total{instance="a",method="claim"} 0+3x20`, 8 * time.Minute, "Calls of claim fail on a"},
			{fine, `belfry_store_errors_total{instance="a",method="claim"} 5x20`, 8 * time.Minute, ""},
		},
		"BelfryResultsWait": {
			{bad, `belfry_results_waiting{instance="a"} 4x20`, 12 * time.Minute, "On a 4 results wait"},
			{fine, `belfry_results_waiting{instance="a"} 4 0 3 0 4 0 3 0 4 0 3 0 4`, 12 * time.Minute, ""},
		},
		"BelfryStepsLost": {
			{bad, `belfry_store_steps_lost_total{instance="a"} 0 0 3 3 3 3`, 4 * time.Minute, "of a no longer has"},
			{fine, `belfry_store_steps_lost_total{instance="a"} 3x20`, 4 * time.Minute, ""},
		},
		"BelfryHistoryAway": {
			{bad, `belfry_history_away{instance="a"} 1x20`, 6 * time.Minute, "a cannot write"},
			{fine, `belfry_history_away{instance="a"} 0x20`, 6 * time.Minute, ""},
		},
		"BelfryHistoryBehind": {
			{bad, `belfry_history_spool_bytes{instance="a"} 190000000x20`, time.Minute, "181.2MiB"},
			{fine, `belfry_history_spool_bytes{instance="a"} 9000000x20`, time.Minute, ""},
		},
		"BelfryNotificationsFail": {
			{bad, "belfry_notifications_given_up_total{instance=\"a\"} 0 0 2 2 2\nbelfry_notifications_dropped_total{instance=\"a\"} 0x20", 4 * time.Minute, "notifications were refused"},
			{fine, "belfry_notifications_given_up_total{instance=\"a\"} 2x20\nbelfry_notifications_dropped_total{instance=\"a\"} 0x20", 4 * time.Minute, ""},
		},
		"BelfryClockOff": {
			{bad, `belfry_clock_ahead_seconds{instance="a"} -3x20`, 6 * time.Minute, "clock of a is 3s off"},
			{fine, `belfry_clock_ahead_seconds{instance="a"} 0.5x20`, 6 * time.Minute, ""},
		},
		"BelfryNodeSilent": {
			{bad, `belfry_sessions{instance="a",state="silent"} 1x20`, 3 * time.Minute, "1 nodes"},
			{fine, `belfry_sessions{instance="a",state="live"} 3x20`, 3 * time.Minute, ""},
		},
		"BelfryNodeDrained": {
			{bad, `belfry_sessions{instance="a",state="drained"} 1x2000`, 25 * time.Hour, "1 nodes are drained"},
			{fine, `belfry_sessions{instance="a",state="drained"} 1x2000`, 23 * time.Hour, ""},
		},
		"BelfryRunsFail": {
			{bad, "belfry_runs_total{namespace=\"web\",outcome=\"failed\"} 0+10x60\nbelfry_runs_total{namespace=\"web\",outcome=\"succeeded\"} 0+50x60", 40 * time.Minute, "in web"},
			{fine, "belfry_runs_total{namespace=\"web\",outcome=\"failed\"} 0+1x60\nbelfry_runs_total{namespace=\"web\",outcome=\"succeeded\"} 0+50x60", 40 * time.Minute, ""},
		},
		"BelfryJobFails": {
			{bad, `belfry_job_failures_total{namespace="web",name="import"} 0 0 1 1 1 1`, 5 * time.Minute, "web/import failed"},
			{fine, `belfry_job_failures_total{namespace="web",name="import"} 1x20`, 5 * time.Minute, ""},
		},
		"BelfryRunsMissed": {
			{bad, `belfry_runs_total{namespace="web",outcome="missed"} 0 0 2 2 2 2`, 5 * time.Minute, "runs in web were too late"},
			{fine, `belfry_runs_total{namespace="web",outcome="succeeded"} 0+5x20`, 5 * time.Minute, ""},
		},
		"BelfryJobNotSucceeding": {
			// Time begins in 1970: the job succeeded in its first hour, and is due within a day.
			{bad, "belfry_job_last_success_timestamp_seconds{namespace=\"web\",name=\"import\"} 3600x4500\nbelfry_job_next_run_timestamp_seconds{namespace=\"web\",name=\"import\"} 270000x4500", 70 * time.Hour, "web/import last succeeded"},
			{fine, "belfry_job_last_success_timestamp_seconds{namespace=\"web\",name=\"import\"} 3600x4500\nbelfry_job_next_run_timestamp_seconds{namespace=\"web\",name=\"import\"} 900000x4500", 70 * time.Hour, ""},
			{fine, "belfry_job_last_success_timestamp_seconds{namespace=\"web\",name=\"import\"} 0x4500\nbelfry_job_next_run_timestamp_seconds{namespace=\"web\",name=\"import\"} 270000x4500", 70 * time.Hour, ""},
		},
	}
	for _, r := range alertRules(t) {
		list := scenes[r.Alert]
		delete(scenes, r.Alert)
		if !slices.ContainsFunc(list, func(s scene) bool { return s.fires }) || !slices.ContainsFunc(list, func(s scene) bool { return !s.fires }) {
			t.Errorf("%s needs series on which it fires, and others on which it does not", r.Alert)
		}
		for i, s := range list {
			fired := evaluate(t, r, s.series, s.after)
			if (len(fired) > 0) != s.fires || len(fired) > 1 {
				t.Errorf("%s, scene %d: got %v", r.Alert, i, fired)
			}
			for _, a := range fired {
				if said := a.Annotations.Get("description"); !strings.Contains(said, s.says) {
					t.Errorf("%s, scene %d says %q, want %q", r.Alert, i, said, s.says)
				}
			}
		}
	}
	for name := range scenes {
		t.Errorf("there is no rule %s", name)
	}
}

// evaluate returns the alerts that a rule fires after some time of series, by an evaluation each
// minute.
func evaluate(t *testing.T, r rulefmt.Rule, series string, after time.Duration) []*rules.Alert {
	t.Helper()
	var load strings.Builder
	load.WriteString("load 1m\n")
	for line := range strings.Lines(series) {
		load.WriteString("  " + strings.TrimRight(line, "\n") + "\n")
	}
	storage := promqltest.LoadedStorage(t, load.String())
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1_000_000)
	expression, err := grammar.ParseExpr(r.Expr)
	if err != nil {
		t.Fatal(err)
	}
	rule := rules.NewAlertingRule(r.Alert, expression, time.Duration(r.For), time.Duration(r.KeepFiringFor),
		labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	query := rules.EngineQueryFunc(engine, storage)
	for at := time.Duration(0); at <= after; at += time.Minute {
		if _, err := rule.Eval(t.Context(), 0, time.Unix(0, 0).UTC().Add(at), query, nil, 0); err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
	}
	return slices.DeleteFunc(rule.ActiveAlerts(), func(a *rules.Alert) bool { return a.State != rules.StateFiring })
}

// query is an expression of the dashboard or of a rule, and where it is from.
type query struct{ from, text string }

func queries(t *testing.T) []query {
	t.Helper()
	var list []query
	for _, r := range alertRules(t) {
		list = append(list, query{r.Alert, r.Expr})
	}
	text, err := os.ReadFile(docs + "grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$__interval", "1m", "$__range", "1h")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			list = append(list, query{"panel " + p.Title, variables.Replace(target.Expr)})
		}
	}
	for _, v := range dashboard.Templating.List {
		if inner, ok := strings.CutPrefix(v.Query, "label_values("); ok {
			metric, label, _ := strings.Cut(strings.TrimSuffix(inner, ")"), ",")
			list = append(list, query{"variable " + v.Name, "sum by (" + strings.TrimSpace(label) + ") (" + metric + ")"})
		}
	}
	return list
}

// TestQueriesAskForMetricsAndLabelsThatExist compares with what a server shows, and with the
// guide for series that only a fault makes.
func TestQueriesAskForMetricsAndLabelsThatExist(t *testing.T) {
	shown := scrape(t)
	guide := inGuide(t)
	for name, labels := range guide {
		for of := range shown {
			if of == name && len(shown[of]) > 0 && !sameSet(shown[of], labels) {
				t.Errorf("%s has the labels %v, and the guide says %v", name, shown[of], labels)
			}
		}
	}
	for _, q := range queries(t) {
		expression, err := grammar.ParseExpr(q.text)
		if err != nil {
			t.Errorf("%s: %v", q.from, err)
			continue
		}
		var known []string // labels of all metrics in the query
		var asked []string
		parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
			switch n := node.(type) {
			case *parser.VectorSelector:
				labels, ok := labelsOf(n.Name, shown, guide)
				// Metrics of --history only exist with it; a test of package metrics compares the
				// guide.
				if !ok && (guide[n.Name] == nil || !strings.HasPrefix(n.Name, "belfry_history_")) {
					t.Errorf("%s: the metric %s does not exist", q.from, n.Name)
				}
				labels = append(labels, "instance", "job")
				known = append(known, labels...)
				for _, m := range n.LabelMatchers {
					if m.Name != model.MetricNameLabel && !slices.Contains(labels, m.Name) {
						t.Errorf("%s: %s has no label %s, but %v", q.from, n.Name, m.Name, labels)
					}
				}
			case *parser.AggregateExpr:
				asked = append(asked, n.Grouping...)
			case *parser.BinaryExpr:
				if n.VectorMatching != nil {
					asked = append(asked, n.VectorMatching.MatchingLabels...)
				}
			}
			return nil
		})
		for _, label := range asked {
			if !slices.Contains(known, label) {
				t.Errorf("%s: no metric has the label %s, but %v", q.from, label, known)
			}
		}
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// labelsOf returns the labels of a metric, or of a part of a histogram.
func labelsOf(name string, shown, guide map[string][]string) ([]string, bool) {
	base := name
	var more []string
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if of, ok := strings.CutSuffix(name, part); ok && guide[of] != nil {
			base = of
			if part == "_bucket" {
				more = []string{"le"}
			}
		}
	}
	labels, ok := shown[base]
	if len(labels) == 0 {
		labels = guide[base]
	}
	return append(slices.Clone(labels), more...), ok
}

// inGuide returns the labels that docs/operations.md gives to metrics.
func inGuide(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(docs + "operations.md")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string][]string{}
	for _, m := range regexp.MustCompile("`(belfry_[a-z_]+)(?:\\{([a-z,]+)\\})?`").FindAllStringSubmatch(string(text), -1) {
		list[m[1]] = []string{}
		if m[2] != "" {
			list[m[1]] = strings.Split(m[2], ",")
		}
	}
	return list
}
