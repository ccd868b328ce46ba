package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// filled reads a job and fills in its defaults.
func filled(t testing.TB, text string) *job.Job {
	t.Helper()
	if !strings.Contains(text, "name:") {
		text = "name: a\n" + text
	}
	if !strings.Contains(text, "\nrun:") {
		text += "\nrun: {shell: 'true'}"
	}
	docs, err := job.Decode("test.yaml", []byte(text))
	if err != nil || len(docs) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	return docs[0].Job.WithDefaults(job.Defaults{})
}

func compiled(t testing.TB, text string) *Policy {
	t.Helper()
	return CompilePolicy(filled(t, text))
}

func TestDefaultPoliciesAreSafe(t *testing.T) {
	p := compiled(t, "name: a")
	got := fmt.Sprint(p.Overlap, p.MaxParallel, p.LateBy, p.Retries, p.LostAfter, p.PauseOnFailure, p.Planned, p.DeleteAfter)
	if want := "skip1 1h0m0s 0 1m0s 0 false -1ns"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSlotKeyIsJobShardNodeOrPool(t *testing.T) {
	uid := job.ID{1}
	for _, c := range []struct {
		name, text string
		run        job.Run
		want       string
	}{
		{"the job", "", job.Run{}, uid.String()},
		{"the job, also if its runs may overlap", "policy: {overlap: allow}", job.Run{}, uid.String()},
		{"the shard", "place: {shards: 3}", job.Run{Shard: 2, Shards: 3}, uid.String() + "/2"},
		{"the node", "place: {strategy: broadcast}", job.Run{Shard: 1, Shards: 3}, uid.String() + "@b"},
		{"the pool", "policy: {concurrency_key: db}", job.Run{}, "pool default/db"},
		{"the pool, whatever the shard", "place: {shards: 3}\npolicy: {concurrency_key: db}", job.Run{Shard: 2, Shards: 3}, "pool default/db"},
	} {
		c.run.JobUID = uid
		if got := compiled(t, c.text).SlotKey(&c.run, "b"); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRetryBackoffGrowsUpToItsMax(t *testing.T) {
	for _, c := range []struct {
		retry string
		want  []int
	}{
		{"attempts: 9", []int{10, 20, 40, 80, 160, 320, 600, 600}},
		{"attempts: 9, backoff: 5s, factor: 1", []int{5, 5, 5}},
		{"attempts: 9, backoff: 5s, factor: 3, max: 20s", []int{5, 15, 20, 20}},
		{"attempts: 9, backoff: 0s, max: 1s", []int{0, 0, 0}},
		{"attempts: 9, backoff: 20m", []int{1200, 1200}},
	} {
		p := compiled(t, "policy: {retry: {"+c.retry+"}}")
		for i, seconds := range c.want {
			if got, want := p.RetryDelay(job.ID{1}, i+1), time.Duration(seconds)*time.Second; got != want {
				t.Errorf("%s: retry %d waits %s, want %s", c.retry, i+1, got, want)
			}
		}
	}
	// Neither large numbers nor large factors exceed the bound.
	p := compiled(t, "policy: {retry: {attempts: 1000, factor: 100, max: 7d}}")
	if got := p.RetryDelay(job.ID{1}, 1000); got != 7*24*time.Hour {
		t.Errorf("retry 1000 waits %s", got)
	}
}

func TestRetryJitterIsDeterministic(t *testing.T) {
	p := compiled(t, "policy: {retry: {attempts: 3, backoff: 1s, factor: 1, jitter: 10s}}")
	different := map[time.Duration]bool{}
	for i := range byte(20) {
		for n := 1; n <= 3; n++ {
			delay := p.RetryDelay(job.ID{i}, n)
			if delay != p.RetryDelay(job.ID{i}, n) {
				t.Fatal("asked again it is another")
			}
			if delay < time.Second || delay > 11*time.Second {
				t.Fatalf("waits %s", delay)
			}
			different[delay] = true
		}
	}
	if len(different) < 50 {
		t.Errorf("only %d different delays of 60", len(different))
	}
}

func TestCalendarsNamedByAJob(t *testing.T) {
	for text, want := range map[string]string{
		"schedule: {cron: '@daily'}": "",
		"schedule: {cron: '@daily', only: [mon-fri, '09:00-17:00'], except: [2026-12-24..2026-12-26]}": "",
		"schedule: {cron: '@daily', only: [work], except: [sat, n/off, work]}":                         "default/work n/off",
	} {
		if got := strings.Join(Calendars(filled(t, text)), " "); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// Withdrawn means withdrawn: what each kind of run is withdrawn by.
func TestWithdrawalDependsOnTheKindOfRun(t *testing.T) {
	planned := []job.RunKind{job.RunScheduled, job.RunAfterEnd, job.RunBoot}
	lasting := []job.RunKind{job.RunOn, job.RunBackfill}
	hand := []job.RunKind{job.RunByHand}
	for _, c := range []struct {
		name      string
		job       Job
		withdrawn []job.RunKind
	}{
		{"nothing", Job{Epoch: 1, State: job.JobActive}, nil},
		{"its completion", Job{Epoch: 1, State: job.JobCompleted}, nil},
		{"a new epoch", Job{Epoch: 2, State: job.JobActive}, planned},
		{"a pause", Job{Epoch: 2, State: job.JobPaused}, slices.Concat(planned, lasting)},
		{"a delete", Job{Epoch: 2, State: job.JobActive, Deleted: true}, slices.Concat(planned, lasting, hand)},
	} {
		for _, kind := range slices.Concat(planned, lasting, hand) {
			reason, got := withdrawn(&c.job, &store.Run{Run: job.Run{Kind: kind, Epoch: 1}})
			if want := slices.Contains(c.withdrawn, kind); got != want || got != (!reason.IsZero()) {
				t.Errorf("a run of kind %s is withdrawn by %s: got %v (%q), want %v", kind, c.name, got, reason, want)
			}
		}
	}
}

func TestVersionsAreCompared(t *testing.T) {
	for _, c := range []struct {
		name               string
		version, ifVersion int64
		same               bool
		want               error
	}{
		{"created", 0, 0, false, nil},
		{"created or changed", 0, store.AnyVersion, false, nil},
		{"changed, whatever it is", 7, store.AnyVersion, false, nil},
		{"changed", 7, 7, false, nil},
		{"changed before, the answer was lost", 8, 7, true, nil},
		{"changed before by another user", 8, 7, false, store.ErrConflict},
		{"as it is, but far from what was meant", 9, 7, true, store.ErrConflict},
		{"there already", 1, 0, false, store.ErrExists},
		{"created before, the answer was lost", 1, 0, true, nil},
		{"not there", 0, 3, false, store.ErrNotFound},
	} {
		if got := checkVersion(c.version, c.ifVersion, c.same); !errors.Is(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestLabelsAndHandlersDecideFit(t *testing.T) {
	p := &Policy{Labels: map[string]string{"zone": "a", "gpu": ""}, Handler: "h"}
	good := store.Session{Labels: map[string]string{"zone": "a", "gpu": "", "more": "x"}, Handlers: []string{"h"}}
	if reason, ok := p.fits(&good); !ok {
		t.Errorf("a node that has all does not fit: %s", reason)
	}
	for name, s := range map[string]store.Session{
		"another value":   {Labels: map[string]string{"zone": "b", "gpu": ""}, Handlers: []string{"h"}},
		"an absent label": {Labels: map[string]string{"zone": "a"}, Handlers: []string{"h"}}, // also where its value would be empty
		"no handler":      {Labels: map[string]string{"zone": "a", "gpu": ""}},
	} {
		s.Node = "n"
		const want = "node n has not the labels gpu=, zone=a and the handler h"
		if reason, ok := p.fits(&s); ok || reason.String() != want {
			t.Errorf("a node with %s: %q, %t", name, reason, ok)
		}
	}
}
