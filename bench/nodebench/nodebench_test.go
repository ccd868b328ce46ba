package nodebench

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/sqlite"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The scenarios wait far more than they work.
	const atOnce = "8"
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// onServers are the scenarios to run on database servers: others on PostgreSQL share the code of
// their SQLite ones. BELFRY_SCENARIOS overrides the pattern, as in make test-long.
var onServers = regexp.MustCompile(cmp.Or(os.Getenv("BELFRY_SCENARIOS"), "^(postgres-(nodes|river)|mariadb-nodes|leave|kill)$"))

// Everything works, quickly and concurrently: cmd/nodebench makes the documented figures.
func TestEachScenarioRunsAtATinyScale(t *testing.T) {
	b := &bench{Options: Options{Seconds: 1, Hold: time.Second, Idle: 100 * time.Millisecond, Quick: true}, dir: t.TempDir()}
	if _, err := b.built(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.tiny(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range Scenarios() {
		if s.Server && (!withServers || !onServers.MatchString(s.Name)) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			figures, err := s.run(b, t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(figures) == 0 {
				t.Fatal("nothing was measured")
			}
			for _, f := range figures {
				if f.What == "" || f.Measured == "" {
					t.Errorf("a figure says nothing: %+v", f)
				}
				if strings.HasPrefix(f.What, "started") && f.missed {
					t.Errorf("%s: %s", f.What, f.Measured)
				}
			}
		})
	}
}

func TestAnUnknownScenarioIsRefused(t *testing.T) {
	var out strings.Builder
	err := Run(t.Context(), &out, Options{Only: []string{"nonsense"}})
	if err == nil || !strings.Contains(err.Error(), `there is no scenario "nonsense"; there are commands-10, `) {
		t.Errorf("got %v", err)
	}
}

func TestATableSaysWhichGoalsAreMet(t *testing.T) {
	var out strings.Builder
	writeTable(&out, []Figure{
		atMost("late", 4100*time.Microsecond, 4*time.Millisecond).beside("bare: 2 ms"),
		above("runs", 20_000, 20_000),
		fact("memory", "3 MB"),
		atMostTimes("times another", 2.5, 2),
		atMostTimes("times another, with too little to do", 2.5, 0),
	})
	want := `| | measured | goal | met | limit in the same run |
|---|--:|--:|:-:|---|
| late | 4.10 ms | ≤ 4.00 ms | **no** | bare: 2 ms |
| runs | 20,000 | ≥ 20,000 | yes |  |
| memory | 3 MB | - |  |  |
| times another | 2.50 | ≤ 2.00 | **no** |  |
| times another, with too little to do | 2.50 | - |  |  |
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestQuantiles(t *testing.T) {
	var l lateness
	for i := range 100 {
		l = append(l, time.Duration(99-i))
	}
	l.sort()
	for share, want := range map[float64]time.Duration{0: 0, .5: 50, .99: 99, 1: 99} {
		if got := l.quantile(share); got != want {
			t.Errorf("%v: got %d, want %d", share, got, want)
		}
	}
}

func TestCollectionsAreRead(t *testing.T) {
	line := "gc 7 @2.102s 3%: 0.021+1.5+3.25 ms clock, 0.1+0.4/1.2/0+0.1 ms cpu, 11->12->6 MB, 13 MB goal, 0 MB stacks, 0 MB globals, 2 P\n"
	pause, live, ok := collection(line)
	if !ok || pause != 3250*time.Microsecond || live != 6 {
		t.Errorf("got %s, %v, %v", pause, live, ok)
	}
	if _, _, ok := collection(`{"msg":"gc is no collection"}`); ok {
		t.Error("a line of the log counts as a collection")
	}
}

func TestStartsAreCountedOncePerOccurrence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "starts")
	lines := `0 2026-01-01T00:00:01Z 1767225601.002000000
1 2026-01-01T00:00:01Z 1767225601.503000000
1 2026-01-01T00:00:01Z 1767225601.600000000
0 2026-01-01T00:00:02Z 1767225601.999000000
0 2026-01-01T00:00:03Z 1767225603.001000000
`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)
	r := &result{from: from, until: from.Add(2 * time.Second), file: file, due: 4}
	if err := r.read(commandLoad{spread: true}, 2); err != nil {
		t.Fatal(err)
	}
	if r.started != 3 || r.doubled != 1 || r.early != 1 {
		t.Errorf("%d started, %d twice, %d early", r.started, r.doubled, r.early)
	}
	// The second job is due half a second after the first.
	if want := 3 * time.Millisecond; r.late[len(r.late)-1] != want {
		t.Errorf("the latest is %s late, want %s", r.late[len(r.late)-1], want)
	}
}

func TestTheBenchmarkOfTheStoreIsRead(t *testing.T) {
	list, err := readLives(`goos: linux
BenchmarkLife/batch=500-2         	     100	         0 ns/op	        40.1 cpu-us/run	         0.08 ratio	    319255 rawrows/s	     25823 runs/s
BenchmarkLife/batch=500/flushers=2-2 	     100	         0 ns/op	    314060 rawrows/s	     25686 runs/s
PASS
`)
	if err != nil || len(list) != 2 || list[0] != (life{"batch=500", 25823, 319255}) || list[1].name != "batch=500/flushers=2" {
		t.Errorf("got %+v, %v", list, err)
	}
	if _, err := readLives("PASS\n"); err == nil {
		t.Error("no line counts as an answer")
	}
}

// The copies are jobs like any other: the store finds them, plans by them and
// changes them.
func TestCopiedJobsAreJobs(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "belfry.db")
	const jobs, schedules = 300, 7
	if _, _, err := makeJobs(ctx, path, jobs, schedules, farJob); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(ctx, path, asServed)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	changed, _, err := s.JobsChanged(ctx, store.AllPartitions, 0, 2*jobs)
	if err != nil {
		t.Fatal(err)
	}
	partitions := map[uint8]int{}
	timings := map[string]bool{}
	for _, j := range changed {
		partitions[job.Partition(j.UID)]++
		timings[j.Timing] = true
	}
	if len(changed) != jobs || len(timings) != schedules {
		t.Errorf("the planner finds %d jobs with %d timings", len(changed), len(timings))
	}
	summary, err := s.Summary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for part, found := range summary {
		if found.Jobs != partitions[uint8(part)] {
			t.Errorf("partition %d has %d jobs, want %d", part, found.Jobs, partitions[uint8(part)])
		}
	}

	last, err := store.JobNamed(ctx, s, "default", "job-0000299")
	if err != nil {
		t.Fatal(err)
	}
	if last.Definition.Name != "job-0000299" {
		t.Errorf("the definition of job-0000299 names %s", last.Definition.Name)
	}
	next := *last.Definition
	next.Description = "another"
	put, err := store.PutOne(ctx, s, store.PutJob{Definition: &next, IfVersion: last.Definition.Version})
	if err != nil {
		t.Fatal(err)
	}
	if put.Definition.UID != last.Definition.UID || put.Definition.Version != 2 {
		t.Errorf("a change has made %s version %d", put.Definition.UID, put.Definition.Version)
	}
	if _, err := store.PutOne(ctx, s, store.PutJob{Definition: &job.Job{Name: "new", Schedule: next.Schedule, Run: next.Run}}); err != nil {
		t.Errorf("a new job beside them: %v", err)
	}
}
