package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-cron/belfry/internal/decide/account"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// sourcesOf are the sources of a server on a store.
func sourcesOf(s Store) Sources {
	return Sources{
		Version: `v1 "quoted"`, Store: s,
		Load: func() Load {
			return Load{Jobs: 2, CatchingUp: 1, Ahead: -time.Second, Capacity: 7, Held: 5, Pending: 3, Results: 1, ClockAhead: -1500 * time.Millisecond, ClockOff: true}
		},
		Approvals: func(context.Context) (int, error) { return 3, nil },
		Windows: func(context.Context) (map[string]job.WindowAction, error) {
			return map[string]job.WindowAction{"ops/open": job.WindowHold}, nil
		},
		Containers: func() Containers { return Containers{Works: true, Running: 6, Collected: 2} },
		Clusters:   func() map[string]bool { return map[string]bool{"prod-eu": true, "default": false} },
		Hooks:      func() map[string]int64 { return map[string]int64{"started": 8, "unproven": 9} },
		Notifications: func() Notifications {
			return Notifications{Delivers: true, Pending: 3, Open: 2, Sent: 41, Failed: 5, GivenUp: 1, Dropped: 6}
		},
		History: func() History {
			return History{Records: 12, Bytes: 3400, Oldest: 90 * time.Second, OutputBytes: 77, Refused: 2, OutputDropped: 4, Away: true}
		},
		Next: func(_ job.ID, at time.Time) (time.Time, bool) { return at.Add(time.Hour), true },
	}
}

// read returns the samples of a page by name and labels. It checks that each sample occurs once,
// below its family, and that the buckets of a histogram grow.
func read(t *testing.T, page string) map[string]float64 {
	t.Helper()
	form := regexp.MustCompile(`^([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (\S+)$`)
	samples := map[string]float64{}
	families := map[string]string{}
	family, last := "", 0.0
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			family, _, _ = strings.Cut(rest, " ")
			if families[family] != "" {
				t.Errorf("%s is there twice", family)
			}
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "+family+" "); ok {
			families[family] = rest
			continue
		}
		parts := form.FindStringSubmatch(line)
		if parts == nil {
			t.Fatalf("the line %q has no form", line)
		}
		name := parts[1]
		if families[family] == "histogram" {
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		}
		if name != family {
			t.Errorf("%q is not of the family %q", line, family)
		}
		value, err := strconv.ParseFloat(parts[3], 64)
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if strings.HasSuffix(parts[1], "_bucket") && !strings.Contains(parts[2], `le="0.00025"`) && value < last {
			t.Errorf("%q is less than the bucket before it", line)
		}
		last = value
		if _, twice := samples[parts[1]+parts[2]]; twice {
			t.Errorf("%q is there twice", line)
		}
		samples[parts[1]+parts[2]] = value
	}
	for name, kind := range families {
		if (kind == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s", name, kind)
		}
	}
	return samples
}

func wants(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if v, ok := got[name]; !ok || math.Abs(v-value) > 1e-9 {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, value)
		}
	}
}

// put makes a job.
func put(t *testing.T, s store.Store, name string) job.ID {
	t.Helper()
	j, err := store.PutOne(t.Context(), s, store.PutJob{
		Definition: &job.Job{Namespace: "default", Name: name, Run: job.RunSpec{Handler: &job.Handler{Name: "h"}}}, Actor: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	return j.Definition.UID
}

// A thousand namespaces are not a thousand times eight series.
func TestNamespacesOfRunsAreBounded(t *testing.T) {
	m := New()
	for i := range 1000 {
		m.RunsEnded(store.Ends{Records: []*store.Record{{
			Run: job.Run{Namespace: fmt.Sprint("n", i)}, Attempt: job.Attempt{Outcome: job.OutcomeFailed}, Final: true,
		}}})
	}
	got := read(t, string(textOf(m.Families(t.Context(), sourcesOf(memory.New(memory.Options{}))))))
	wants(t, got, map[string]float64{
		`belfry_runs_total{namespace="n7",outcome="failed"}`:       1,
		`belfry_runs_total{namespace="(others)",outcome="failed"}`: 800,
	})
}

func TestPageSaysWhatWasCounted(t *testing.T) {
	m := New()
	s := m.Measure(memory.New(memory.Options{Now: func() time.Time { return noon }}))
	uid := put(t, s, "nightly")
	if _, err := s.Join(t.Context(), store.Session{ID: job.ID{1}, Node: "one"}); err != nil {
		t.Fatal(err)
	}
	m.Started(3 * time.Millisecond)
	m.Started(2 * time.Second)
	m.Started(-time.Second)
	m.Started(time.Hour)
	m.Ended(uid, job.OutcomeFailed, noon)
	end := func(uid job.ID, namespace string, outcome job.Outcome, count int, final bool) *store.Record {
		return &store.Record{Run: job.Run{JobUID: uid, Namespace: namespace}, Attempt: job.Attempt{Outcome: outcome, Reason: job.Text("why")}, Count: count, Final: final}
	}
	failed := end(uid, "web", job.OutcomeFailed, 1, true)
	failed.Attempt.Reason = reason.NotRetried.Of(reason.ExitStatus.Of(3), reason.CancelledBefore.Of("ann"))
	later := end(uid, "web", job.OutcomeFailed, 1, true)
	later.Attempt.Reason = job.ReasonOf("it is new", "new_code", nil)
	step := func(outcome job.Outcome, state job.RunState) *store.Record {
		return &store.Record{Run: job.Run{JobUID: uid, Namespace: "default", Kind: job.RunStep, State: state}, Attempt: job.Attempt{Outcome: outcome}}
	}
	m.RunsEnded(store.Ends{Records: []*store.Record{
		step(job.OutcomeFailed, job.StateReady), step(job.OutcomeSucceeded, job.StateDone), step(job.OutcomeSucceeded, job.StateDone), step(job.OutcomeLost, job.StateDone),
		end(uid, "default", job.OutcomeFailed, 1, false), // it will be retried
		end(uid, "default", job.OutcomeTimedOut, 1, true),
		end(uid, "default", job.OutcomeMissed, 40, true),
		end(uid, "default", job.OutcomeSucceeded, 1, true),
		end(uid, "default", job.OutcomeSkipped, 1, true),
		end(job.ID{9}, "web", job.OutcomeLost, 1, true), failed, failed, later,
	}})
	page := string(textOf(m.Families(t.Context(), sourcesOf(s))))
	wants(t, read(t, page), map[string]float64{
		`belfry_flow_steps_total{outcome="succeeded"}`:                                  2,
		`belfry_flow_steps_total{outcome="lost"}`:                                       1,
		`belfry_approvals_waiting`:                                                      3,
		`belfry_start_lateness_seconds_count`:                                           4,
		`belfry_start_lateness_seconds_sum`:                                             0.003 + 2 + 3600,
		`belfry_start_lateness_seconds_bucket{le="0.00025"}`:                            1,
		`belfry_start_lateness_seconds_bucket{le="0.005"}`:                              2,
		`belfry_start_lateness_seconds_bucket{le="5"}`:                                  3,
		`belfry_start_lateness_seconds_bucket{le="+Inf"}`:                               4,
		`belfry_attempts_running`:                                                       3,
		`belfry_runs_total{namespace="default",outcome="timed_out"}`:                    1,
		`belfry_runs_total{namespace="default",outcome="missed"}`:                       40,
		`belfry_runs_total{namespace="default",outcome="failed"}`:                       0,
		`belfry_runs_total{namespace="web",outcome="lost"}`:                             1,
		`belfry_run_reasons_total{outcome="failed",reason="exit_status"}`:               2,
		`belfry_run_reasons_total{outcome="failed",reason="(others)"}`:                  1,
		`belfry_run_reasons_total{outcome="missed",reason="text"}`:                      40,
		`belfry_job_failures_total{namespace="default",name="nightly"}`:                 44,
		`belfry_container_engine_works`:                                                 1,
		`belfry_containers_running`:                                                     6,
		`belfry_containers_collected_total`:                                             2,
		`belfry_kubernetes_away{cluster="prod-eu"}`:                                     1,
		`belfry_kubernetes_away{cluster="default"}`:                                     0,
		`belfry_capacity_attempts`:                                                      7,
		`belfry_runs_held`:                                                              5,
		`belfry_runs_pending`:                                                           3,
		`belfry_results_waiting`:                                                        1,
		`belfry_catching_up_jobs`:                                                       1,
		`belfry_planned_jobs`:                                                           2,
		`belfry_planned_ahead_seconds`:                                                  -1,
		`belfry_history_away`:                                                           1,
		`belfry_history_spool_records`:                                                  12,
		`belfry_history_spool_bytes`:                                                    3400,
		`belfry_history_spool_oldest_seconds`:                                           90,
		`belfry_history_output_bytes`:                                                   77,
		`belfry_history_output_dropped_total`:                                           4,
		`belfry_history_refused_total`:                                                  2,
		`belfry_clock_ahead_seconds`:                                                    -1.5,
		`belfry_clock_off`:                                                              1,
		`belfry_hook_calls_total{result="started"}`:                                     8,
		`belfry_hook_calls_total{result="unproven"}`:                                    9,
		`belfry_window_open{namespace="ops",name="open",action="hold"}`:                 1,
		`belfry_sessions{state="live"}`:                                                 1,
		`belfry_sessions{state="silent"}`:                                               0,
		`belfry_jobs_beyond_labels`:                                                     0,
		`belfry_occurrences_unaccounted`:                                                0,
		`belfry_occurrences_doubled`:                                                    0,
		`belfry_occurrences_early`:                                                      0,
		`belfry_job_barred{namespace="default",name="nightly"}`:                         1,
		`belfry_job_next_run_timestamp_seconds{namespace="default",name="nightly"}`:     float64(noon.Unix() + 3600),
		`belfry_job_last_success_timestamp_seconds{namespace="default",name="nightly"}`: 0,
		`belfry_store_call_seconds_count{method="put_job"}`:                             1,
		`belfry_build_info{version="v1 \"quoted\"",goversion="` + goVersion() + `"}`:    1,
	})
	m.Ended(uid, job.OutcomeSucceeded, noon.Add(1500*time.Millisecond))
	wants(t, read(t, string(textOf(m.Families(t.Context(), sourcesOf(s))))), map[string]float64{
		`belfry_job_last_success_timestamp_seconds{namespace="default",name="nightly"}`: float64(noon.Unix()) + 1.5,
		`belfry_attempts_running`: 2,
	})
}

func TestPageCountsWhatTheScannerFound(t *testing.T) {
	s := memory.New(memory.Options{Now: func() time.Time { return noon }})
	of := func(kind account.Kind, n byte, found time.Time) account.Finding {
		return account.Finding{Kind: kind, UID: job.ID{n}, Scheduled: noon.Add(-time.Hour), Found: found}
	}
	text, _, err := account.Add(nil, []account.Finding{
		of(account.Unaccounted, 1, noon), of(account.Unaccounted, 2, noon), of(account.Unaccounted, 3, noon), of(account.Doubled, 1, noon), of(account.Early, 1, noon), of(account.Early, 2, noon),
		of(account.Doubled, 4, noon.Add(-account.KeptFor-time.Second)), // expired
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutAudited(t.Context(), store.AuditedNote{Note: store.Note{Name: account.NoteName, Text: text}, Audit: store.AuditRecord{Actor: "test", Action: "occurrence.doubled", Object: "default/a"}}); err != nil {
		t.Fatal(err)
	}
	wants(t, read(t, string(textOf(New().Families(t.Context(), sourcesOf(s))))), map[string]float64{
		`belfry_occurrences_unaccounted`: 3,
		`belfry_occurrences_doubled`:     1,
		`belfry_occurrences_early`:       2,
	})
}

// pastStore has a history in which each job has succeeded.
type pastStore struct {
	store.Store
	asked int
	fails error
}

func (p *pastStore) Attempts(_ context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error) {
	p.asked++
	if p.fails != nil {
		return nil, store.RecordRef{}, p.fails
	}
	if len(q.Outcomes) != 1 || q.Outcomes[0] != job.OutcomeSucceeded || !q.FinalOnly || q.Limit != 1 {
		return nil, store.RecordRef{}, errors.New("something else was asked for")
	}
	return []store.Record{{Attempt: job.Attempt{Ended: noon.Add(-time.Hour)}}}, store.RecordRef{}, nil
}

func TestEarlierSuccessesAreReadFromHistoryInParts(t *testing.T) {
	m := New()
	s := &pastStore{Store: memory.New(memory.Options{Now: func() time.Time { return noon }}), fails: store.ErrNoSpace}
	const jobs = lookBackMax + 10
	for i := range jobs {
		put(t, s.Store, fmt.Sprintf("job-%03d", i))
	}
	name := func(i int) string {
		return fmt.Sprintf(`belfry_job_last_success_timestamp_seconds{namespace="default",name="job-%03d"}`, i)
	}
	if got := read(t, string(textOf(m.Families(t.Context(), sourcesOf(s))))); len(got) == 0 || s.asked != lookBackMax {
		t.Errorf("%d jobs were looked up, want %d", s.asked, lookBackMax)
	} else if _, known := got[name(0)]; known {
		t.Error("what the history does not tell is known")
	}
	s.fails, s.asked = nil, 0
	got := read(t, string(textOf(m.Families(t.Context(), sourcesOf(s)))))
	if _, known := got[name(jobs-1)]; known || s.asked != lookBackMax {
		t.Errorf("%d jobs were looked up, want %d", s.asked, lookBackMax)
	}
	for range 2 {
		got = read(t, string(textOf(m.Families(t.Context(), sourcesOf(s)))))
	}
	if s.asked != jobs {
		t.Errorf("%d jobs were looked up, want each of %d once", s.asked, jobs)
	}
	wants(t, got, map[string]float64{name(0): float64(noon.Unix() - 3600), name(jobs - 1): float64(noon.Unix() - 3600)})
}

func TestJobsWithLabelsAreBounded(t *testing.T) {
	m := New()
	s := memory.New(memory.Options{Now: func() time.Time { return noon }})
	for i := range labelledJobsMax + 1 {
		put(t, s, fmt.Sprintf("job-%04d", i))
	}
	page := string(textOf(m.Families(t.Context(), sourcesOf(s))))
	if n := strings.Count(page, "\nbelfry_job_next_run_timestamp_seconds{"); n != labelledJobsMax {
		t.Errorf("%d jobs have labels, want %d", n, labelledJobsMax)
	}
	wants(t, read(t, page), map[string]float64{"belfry_jobs_beyond_labels": 1})
}

// failingStore fails.
type failingStore struct{ store.Store }

var errAway = errors.New("the store is away")

func (failingStore) Now(context.Context) (time.Time, error)            { return noon, nil }
func (failingStore) Sessions(context.Context) ([]store.Session, error) { return nil, errAway }
func (failingStore) ListJobs(context.Context, store.JobQuery) ([]*store.Job, string, error) {
	return nil, "", errAway
}

func (failingStore) Notes(context.Context, string, string, int) ([]store.Note, error) {
	return nil, errAway
}

func (failingStore) PutJobs(context.Context, []store.PutJob) ([]*store.Job, error) {
	return nil, fmt.Errorf("put: %w", store.ErrConflict)
}

// Tidy is what hangs.
func (failingStore) Tidy(ctx context.Context) (bool, error) {
	<-ctx.Done()
	return false, fmt.Errorf("tidy: %w", ctx.Err())
}

func TestErrorsOfTheStoreAreCountedAndRefusalsAreNot(t *testing.T) {
	m := New()
	s := m.Measure(failingStore{})
	if _, err := store.PutOne(t.Context(), s, store.PutJob{}); !errors.Is(err, store.ErrConflict) {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, ctx := range []context.Context{gone, late} { // the caller caused the first
		if _, err := s.Tidy(ctx); err == nil {
			t.Fatal("it does not hang")
		}
	}
	got := read(t, string(textOf(m.Families(t.Context(), sourcesOf(s)))))
	wants(t, got, map[string]float64{
		`belfry_store_errors_total{method="tidy"}`:          1,
		`belfry_store_errors_total{method="sessions"}`:      1,
		`belfry_store_errors_total{method="list_jobs"}`:     1,
		`belfry_store_errors_total{method="put_job"}`:       0,
		`belfry_store_call_seconds_count{method="put_job"}`: 1,
	})
	if _, there := got[`belfry_sessions{state="live"}`]; there {
		t.Error("what is not known is said")
	}
}

// hangingStore has no answer.
type hangingStore struct{ store.Store }

func (hangingStore) Now(ctx context.Context) (time.Time, error) {
	<-ctx.Done()
	return time.Time{}, ctx.Err()
}

func TestAHangingStoreHidesNoOtherMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		begun := time.Now()
		got := read(t, string(textOf(m.Families(t.Context(), sourcesOf(m.Measure(hangingStore{}))))))
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("it takes %s, and Prometheus waits for 10s, of which 2s may be gone", took)
		}
		if _, there := got["belfry_results_waiting"]; !there {
			t.Error("what needs no store is not there")
		}
	})
}

func TestCountingAllocatesNothing(t *testing.T) {
	m, uid, began := New(), job.ID{1}, time.Now()
	m.succeeded[uid] = 0
	var err error
	if n := testing.AllocsPerRun(100, func() {
		m.Started(time.Millisecond)
		m.Ended(uid, job.OutcomeSucceeded, began)
		m.done("claim", began, &err)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	s := m.Measure(idleStore{})
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = s.Claim(ctx, uid, nil) }); n != 0 {
		t.Errorf("a call that is measured makes %v allocations", n)
	}
}

// idleStore does nothing.
type idleStore struct{ store.Store }

func (idleStore) Claim(context.Context, job.ID, []store.Attempt) ([]store.ClaimOutcome, error) {
	return nil, nil
}

func BenchmarkStartedAndEnded(b *testing.B) {
	m, uid, at := New(), job.ID{1}, time.Now()
	for b.Loop() {
		m.Started(3 * time.Millisecond)
		m.Ended(uid, job.OutcomeSucceeded, at)
	}
}

func BenchmarkMeasuredCall(b *testing.B) {
	s := New().Measure(idleStore{})
	for b.Loop() {
		_, _ = s.Claim(b.Context(), job.ID{}, nil)
	}
}

// published returns the names of metrics that a server has.
func published(t *testing.T) []string {
	t.Helper()
	w := httptest.NewRecorder()
	m, sources := New(), sourcesOf(memory.New(memory.Options{Now: time.Now}))
	Handler(func(ctx context.Context) []Family {
		return m.Families(ctx, sources)
	}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if kind := w.Header().Get("Content-Type"); kind != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("the content type is %q", kind)
	}
	Handler(func(context.Context) []Family { return m.WorkerFamilies("test", Load{}, true) }).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var names []string
	for line := range strings.Lines(w.Body.String()) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			fields := strings.Fields(rest)
			names = append(names, fields[0])
			if fields[1] == "histogram" {
				names = append(names, fields[0]+"_bucket", fields[0]+"_sum", fields[0]+"_count")
			}
		}
	}
	return names
}

// TestDocumentsNameMetricsThatExist checks the dashboard, the alerts and the guide. Users would not
// find a metric that none of them names.
func TestDocumentsNameMetricsThatExist(t *testing.T) {
	exist := published(t)
	named := regexp.MustCompile(`\b(?:belfry|go|process)_[a-z_]*[a-z]\b`)
	guide := ""
	for _, file := range []string{"grafana-dashboard.json", "alerts.yaml", "operations.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		if file == "operations.md" {
			guide = string(text)
		}
		found := named.FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("docs/%s names no metric", file)
		}
		for _, name := range found {
			if !slices.Contains(exist, name) {
				t.Errorf("docs/%s names %s, which does not exist", file, name)
			}
		}
	}
	for _, name := range exist {
		if part := regexp.MustCompile(`_(bucket|sum|count)$`); strings.HasPrefix(name, "belfry_") && !part.MatchString(name) && !strings.Contains(guide, "`"+name) {
			t.Errorf("docs/operations.md does not say what %s is", name)
		}
	}
}

func TestDashboardAndAlertsAreValid(t *testing.T) {
	var dashboard struct {
		Title  string `yaml:"title"`
		UID    string `yaml:"uid"`
		Panels []struct {
			ID      int    `yaml:"id"`
			Title   string `yaml:"title"`
			Targets []struct {
				Expr string `yaml:"expr"`
			} `yaml:"targets"`
		} `yaml:"panels"`
	}
	decode(t, "grafana-dashboard.json", &dashboard)
	seen := map[int]bool{}
	for _, panel := range dashboard.Panels {
		if panel.Title == "" || len(panel.Targets) == 0 || seen[panel.ID] {
			t.Errorf("the panel %+v has no title, no query, or the number of another", panel)
		}
		seen[panel.ID] = true
		for _, target := range panel.Targets {
			if !balanced(target.Expr) {
				t.Errorf("the query %q is not whole", target.Expr)
			}
		}
	}
	if dashboard.Title == "" || dashboard.UID == "" || len(seen) < 8 {
		t.Errorf("the dashboard has %d panels", len(seen))
	}

	var alerts struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	decode(t, "alerts.yaml", &alerts)
	rules := 0
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			rules++
			if rule.Alert == "" || !balanced(rule.Expr) || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("the rule %+v is not whole", rule)
			}
			if _, err := time.ParseDuration(rule.For); err != nil {
				t.Errorf("the rule %s: %v", rule.Alert, err)
			}
		}
	}
	if rules < 6 {
		t.Errorf("there are %d alerts", rules)
	}
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil { // JSON is YAML
		t.Fatalf("docs/%s: %v", file, err)
	}
}

func balanced(expression string) bool {
	for _, pair := range []string{"()", "[]", "{}"} {
		if strings.Count(expression, pair[:1]) != strings.Count(expression, pair[1:]) {
			return false
		}
	}
	return strings.TrimSpace(expression) != ""
}

func TestStoreAnswersAreOfTheLastCallsThatWereAnswered(t *testing.T) {
	m := New()
	if p50, p99 := m.StoreAnswers(); p50 != 0 || p99 != 0 {
		t.Errorf("before the first call the store takes %s and %s", p50, p99)
	}
	for range recentCalls {
		m.recent.observe(time.Hour)
	}
	for i := range recentCalls {
		m.recent.observe(time.Duration(i+1) * time.Microsecond)
	}
	if p50, p99 := m.StoreAnswers(); p50 != 500*time.Microsecond || p99 != 990*time.Microsecond {
		t.Errorf("the store takes %s and %s", p50, p99)
	}
	m = New()
	_, err := m.Measure(failingStore{}).Sessions(t.Context())
	if p50, _ := m.StoreAnswers(); err == nil || p50 != 0 {
		t.Errorf("a call that fails with %v counts as an answer of %s", err, p50)
	}
}

// Each measured call has its label in the list, and each label a call.
func TestEachMeasuredCallHasALabel(t *testing.T) {
	source, err := os.ReadFile("store.go")
	if err != nil {
		t.Fatal(err)
	}
	_, calls, _ := strings.Cut(string(source), "type measuredStore")
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:done\(|call :?= )"(\w+)"`).FindAllStringSubmatch(calls, -1) {
		found[m[1]] = true
	}
	if got, want := slices.Sorted(maps.Keys(found)), slices.Sorted(slices.Values(methods)); !slices.Equal(got, want) {
		t.Errorf("measured are %v, and listed %v", got, want)
	}
}
