package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/forecast"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// counting counts how often history is aggregated.
type counting struct {
	Store
	asked int
}

func (c *counting) Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.Aggregate, error) {
	c.asked++
	return c.Store.Aggregate(ctx, q)
}

// text writes stats in a line.
func text(t *testing.T, s *Service, who Caller, q client.StatsQuery) string {
	t.Helper()
	stats, err := s.Stats.Over(t.Context(), who, q)
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprint(stats.Step, "s")
	for _, b := range stats.Items {
		line += fmt.Sprintf(" %s %v", b.Start.Format("15:04"), b.Outcomes)
	}
	return line
}

func TestStatsAgreeWithHistory(t *testing.T) {
	b := newBench(t)
	history := &counting{Store: b.store}
	s := b.serviceOn(Config{Store: history})
	b.put(s, `{"name": "a", "run": {"shell": "true"}}`)
	b.put(s, `{"name": "b", "run": {"shell": "true"}}`)
	begin := b.clock().Truncate(time.Hour)
	at := func(minutes int) time.Time { return begin.Add(time.Duration(minutes) * time.Minute) }
	b.pass(at(60).Sub(b.clock()))
	b.ends(s, "a", job.OutcomeFailed)
	b.ends(s, "b", job.OutcomeSucceeded)
	b.ends(s, "a", job.OutcomeSucceeded)

	hour := at(60).Format("15:04")
	if got, want := text(t, s, admin, client.StatsQuery{From: begin, Step: time.Hour}), "3600s "+hour+" map[failed:1 succeeded:2]"; got != want {
		t.Errorf("the stats are %q, want %q", got, want)
	}
	want := fmt.Sprintf("60s %s map[failed:1] %s map[succeeded:1]", at(60).Format("15:04"), at(62).Format("15:04"))
	if got := text(t, s, admin, client.StatsQuery{Job: "a", From: at(60)}); got != want {
		t.Errorf("the stats of a job are %q, want %q", got, want)
	}
	// A bucket is whole where the span begins in the middle of it.
	if got := text(t, s, admin, client.StatsQuery{Job: "a", From: at(60).Add(30 * time.Second), To: at(61)}); got != fmt.Sprintf("60s %s map[failed:1]", hour) {
		t.Errorf("the stats of a part of a bucket are %q", got)
	}
	if got := text(t, s, Caller{Name: "x", Role: store.RoleViewer, Namespace: "other"}, client.StatsQuery{From: begin, Step: time.Hour}); got != "3600s" {
		t.Errorf("a caller of another namespace sees %q", got)
	}

	// Past periods are read once, and again after keptFor.
	q := client.StatsQuery{From: at(60), To: at(61)}
	b.pass(3 * time.Hour)
	text(t, s, admin, q)
	before := history.asked
	text(t, s, admin, q)
	if history.asked != before {
		t.Error("a stretch of history that is over was read twice")
	}
	b.pass(keptFor)
	text(t, s, admin, q)
	if history.asked != before+1 {
		t.Errorf("after keptFor it was read %d times", history.asked-before)
	}
}

func TestStatsRefuseMeaninglessSpans(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	now := b.clock()
	for name, q := range map[string]client.StatsQuery{
		"from": {From: now, To: now.Add(-time.Hour)},
		"step": {Step: 1500 * time.Millisecond},
		"many": {From: now.Add(-time.Hour), Step: time.Second},
		"job":  {Job: "nothing"},
	} {
		_, err := s.Stats.Over(t.Context(), admin, q)
		var refused *Error
		if !errors.As(err, &refused) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// busyStore has n last runs of each job, and counts how often they are read.
type busyStore struct {
	Store
	runs, read int
	active     []store.Run
}

func (b *busyStore) Recent(_ context.Context, _ []job.ID, n int) ([][]store.Record, error) {
	b.read++
	list := make([]store.Record, min(n, b.runs))
	for i := range list {
		list[i].Run.Namespace, list[i].Run.Name = "default", "a"
		list[i].Attempt.Number, list[i].Attempt.Outcome = 1, job.OutcomeSucceeded
	}
	return [][]store.Record{list}, nil
}

func (b *busyStore) ListActive(_ context.Context, q store.ActiveQuery) ([]store.Run, error) {
	return b.active[:min(len(b.active), q.Limit)], nil
}

func TestStatisticsOfManyRunsAreReadOnceInTenSeconds(t *testing.T) {
	b := newBench(t)
	busy := &busyStore{Store: b.store}
	s := b.serviceOn(Config{Store: busy})
	other := Caller{Name: "x", Role: store.RoleViewer, Namespace: "other"}
	for _, c := range []struct {
		name        string
		uid         job.ID
		runs, reads int
	}{{"a job with few runs", b.id(), 5, 3}, {"a job with many", b.id(), 3000, 1}} {
		busy.runs, busy.read = c.runs, 0
		for range 3 {
			stats, err := s.Stats.Of(t.Context(), admin, c.uid, "")
			if want := min(c.runs, statisticsRuns); err != nil || stats.Runs != want || stats.Outcomes[job.OutcomeSucceeded] != want {
				t.Errorf("%s: the statistics are of %d runs (%v)", c.name, stats.Runs, err)
			}
		}
		if busy.read != c.reads {
			t.Errorf("%s: its runs were read %d times, want %d", c.name, busy.read, c.reads)
		}
		if stats, err := s.Stats.Of(t.Context(), other, c.uid, ""); err != nil || stats.Runs != 0 || len(stats.Outcomes) != 0 {
			t.Errorf("%s: a caller of another namespace sees %+v (%v)", c.name, stats, err)
		}
		busy.read = 0
		b.pass(statisticsFor)
		if _, err := s.Stats.Of(t.Context(), admin, c.uid, ""); err != nil || busy.read != 1 {
			t.Errorf("%s: later its runs were read %d times (%v)", c.name, busy.read, err)
		}
	}
	if _, err := s.Stats.Of(t.Context(), admin, b.id(), "Nowhere/Else"); ErrorOf(err).Type != client.TypeInvalid {
		t.Errorf("a zone that is none is answered with %v", err)
	}
}

func TestThePoolOfAServerWithManyRunsSaysThatItMayHaveMore(t *testing.T) {
	b := newBench(t)
	busy := &busyStore{Store: b.store, active: make([]store.Run, poolLook+1)}
	s := b.serviceOn(Config{Store: busy})
	busy.active[0].Slot, busy.active[0].HoldsSlot = "pool default/db", true
	busy.active[1].Slot, busy.active[1].State = "pool default/db", job.StateReady // planned
	busy.active[2].Slot, busy.active[2].State, busy.active[2].AwaitsPrevious = "pool default/db", job.StateWaiting, true
	busy.active[3].Slot, busy.active[3].State = "pool default/other", job.StateWaiting
	for _, more := range []bool{true, false} {
		use, err := s.Runs.PoolUse(t.Context(), admin, Name{"default", "db"})
		if err != nil || use.Size != 1 || use.Held != 1 || len(use.Holds) != 1 || use.Waiting != 0 || use.More != more {
			t.Errorf("of %d runs the pool has %+v (%v)", len(busy.active), use, err)
		}
		busy.active = busy.active[:poolLook-1]
	}
	if _, err := s.Runs.PoolUse(t.Context(), Caller{Name: "x", Role: store.RoleViewer, Namespace: "other"}, Name{"default", "db"}); ErrorOf(err).Type != client.TypeForbidden {
		t.Errorf("a caller of another namespace is answered with %v", err)
	}
}

func TestStatisticsOfAJob(t *testing.T) {
	at := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	ended := func(o job.Outcome, due, late, took time.Duration, number int) store.Record {
		begun := at.Add(due + late)
		return store.Record{
			Run: job.Run{Due: at.Add(due)}, Final: true, Count: 1,
			Attempt: job.Attempt{Number: number, Started: begun, Ended: begun.Add(took), Outcome: o, Usage: job.Usage{CPUSeconds: took.Seconds() / 2, MemoryBytes: int64(took.Milliseconds())}},
		}
	}
	missed := store.Record{Final: true, Count: 4, Attempt: job.Attempt{Outcome: job.OutcomeMissed, Ended: at}}
	stats := statisticsOf([]store.Record{
		ended(job.OutcomeSucceeded, 3*time.Minute, 2*time.Second, 3*time.Second, 1),
		ended(job.OutcomeFailed, 2*time.Minute, 0, time.Minute, 1),
		ended(job.OutcomeSucceeded, time.Minute, time.Second, time.Second, 2),
		missed,
	}, time.UTC)
	if got, want := fmt.Sprintf("%d %v %d %.2f", stats.Runs, stats.Outcomes, stats.Retried, *stats.SuccessRate), "4 map[failed:1 missed:4 succeeded:2] 1 0.29"; got != want {
		t.Errorf("the statistics are %s, want %s", got, want)
	}
	if got, want := stats.Duration, (client.Quantiles{Count: 2, P50: 1, P95: 3, P99: 3, Max: 3}); got != want {
		t.Errorf("the durations are %+v, want %+v", got, want)
	}
	if got, want := stats.Lateness, (client.Quantiles{Count: 2, P95: 2, P99: 2, Max: 2}); got != want {
		t.Errorf("the lateness is %+v, want %+v", got, want)
	}
	if got, want := stats.CPU, (client.Quantiles{Count: 3, P50: 1.5, P95: 30, P99: 30, Max: 30}); got != want {
		t.Errorf("the processor time is %+v, want %+v", got, want)
	}
	if got, want := stats.Memory, (client.Quantiles{Count: 3, P50: 3000, P95: 60000, P99: 60000, Max: 60000}); got != want {
		t.Errorf("the memory is %+v, want %+v", got, want)
	}
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	on := func(node string, hour int, kind job.RunKind) store.Record {
		r := ended(job.OutcomeSucceeded, time.Duration(hour)*time.Hour, 0, time.Second, 1)
		r.Attempt.Node, r.Run.Kind = node, kind
		return r
	}
	stats = statisticsOf([]store.Record{on("b", 6, job.RunScheduled), on("a", 5, job.RunByHand), on("a", 0, job.RunScheduled)}, tokyo)
	var parts []string
	for _, list := range [][]client.PartStatistics{stats.Days, stats.Nodes, stats.Kinds} {
		for _, p := range list {
			parts = append(parts, fmt.Sprintf("%s%s:%d", p.Name, map[bool]string{true: p.At.Format("02T15")}[!p.At.IsZero()], p.Runs))
		}
	}
	if got, want := strings.Join(parts, " "), "02T00:2 03T00:1 a:2 b:1 hand:1 schedule:2"; got != want {
		t.Errorf("the parts are %q, want %q", got, want)
	}
	if got := statisticsOf(nil, time.UTC); got.SuccessRate != nil || got.Runs != 0 {
		t.Errorf("those of a job without runs are %+v", got)
	}
}

// planned is a planner of given jobs.
type planned struct {
	timings map[job.ID]forecast.Timing
}

// plan makes a job fall due once, in some time.
func (p *planned) plan(t *testing.T, b *bench, name string, in time.Duration) {
	t.Helper()
	namespace, own, ok := strings.Cut(name, "/")
	if !ok {
		namespace, own = "default", name
	}
	j, err := store.JobNamed(t.Context(), b.store, namespace, own)
	if err != nil {
		t.Fatal(err)
	}
	p.timings[j.Definition.UID] = forecast.Timing{Schedule: once(b.clock().Add(in)), Jobs: 1}
}

// once is due at a moment.
type once time.Time

func (o once) Next(t time.Time) time.Time {
	if t.Before(time.Time(o)) {
		return time.Time(o)
	}
	return time.Time{}
}

func (p *planned) NextAfter(uid job.ID, at time.Time) (time.Time, bool) {
	t, ok := p.timings[uid]
	if !ok {
		return time.Time{}, false
	}
	return t.Schedule.Next(at.Add(-1)), true
}

func (p *planned) Upcoming(at time.Time, after engine.Upcoming, n int) (list []engine.Upcoming) {
	for uid := range p.timings {
		next, _ := p.NextAfter(uid, at)
		if u := (engine.Upcoming{Next: next, Job: uid}); u.Compare(after) > 0 {
			list = append(list, u)
		}
	}
	slices.SortFunc(list, engine.Upcoming.Compare)
	return list[:min(n, len(list))]
}

func (p *planned) Timings(of []job.ID) (list []forecast.Timing) {
	if of == nil {
		for _, t := range p.timings {
			list = append(list, t)
		}
	}
	for _, uid := range of {
		list = append(list, p.timings[uid])
	}
	return list
}

func (p *planned) Sync(context.Context) error { return nil }
func (p *planned) Ready() <-chan struct{}     { return nil }

// each is due at multiples of itself.
type each time.Duration

func (e each) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(e)).Add(time.Duration(e))
}

func TestLoadCountsOnlyVisibleJobs(t *testing.T) {
	b := newBench(t)
	p := &planned{timings: map[job.ID]forecast.Timing{}}
	s := b.serviceOn(Config{Planner: p})
	for document, every := range map[string]time.Duration{
		`{"name": "a", "run": {"shell": "true"}}`:                                                time.Minute,
		`{"name": "b", "run": {"shell": "true"}, "labels": {"team": "x"}}`:                       2 * time.Minute,
		`{"name": "c", "namespace": "other", "run": {"shell": "true"}, "labels": {"team": "x"}}`: 3 * time.Minute,
	} {
		name := b.put(s, document)
		j, err := store.JobNamed(t.Context(), b.store, name.Namespace, name.Name)
		if err != nil {
			t.Fatal(err)
		}
		p.timings[j.Definition.UID] = forecast.Timing{Schedule: each(every), Jobs: 1}
	}
	from := b.clock().Truncate(time.Hour).Add(2 * time.Hour)
	for _, c := range []struct {
		name string
		who  Caller
		q    client.LoadQuery
		want string
	}{
		{"all", admin, client.LoadQuery{}, "[3 1 2 2 2 1]"},
		{"a namespace", admin, client.LoadQuery{Namespace: "other"}, "[1 0 0 1 0 0]"},
		{"a label", admin, client.LoadQuery{Labels: map[string]string{"team": "x"}}, "[2 0 1 1 1 0]"},
		{"what a caller may see", Caller{Name: "x", Role: store.RoleViewer, Namespace: "other"}, client.LoadQuery{}, "[1 0 0 1 0 0]"},
		{"longer steps", admin, client.LoadQuery{Step: 2 * time.Minute}, "[4 4 3]"},
	} {
		c.q.From, c.q.To = from, from.Add(6*time.Minute)
		load, err := s.Load.Ahead(t.Context(), c.who, c.q)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if got := fmt.Sprint(load.Starts); got != c.want || !load.From.Equal(from) {
			t.Errorf("%s: the load is %s from %s, want %s", c.name, got, load.From, c.want)
		}
	}
	if _, err := s.Load.Ahead(t.Context(), admin, client.LoadQuery{From: from, To: from.Add(2 * aheadMax), Step: time.Hour}); err == nil {
		t.Error("a load of two months was counted")
	}
	due, err := s.Load.Due(t.Context(), Caller{Name: "x", Role: store.RoleViewer, Namespace: "other"}, "", from, from.Add(time.Minute), 0)
	if err != nil || len(due) != 1 || due[0].Job != "other/c" || !due[0].Due.Equal(from) {
		t.Errorf("due are %+v (%v)", due, err)
	}
	if due, err = s.Load.Due(t.Context(), admin, "", from.Add(time.Second), from.Add(2*time.Minute), 0); err != nil || len(due) != 1 || due[0].Job != "default/a" {
		t.Errorf("due in the minute after are %+v (%v)", due, err)
	}
}

// What is said of a spread is what a schedule that has it does, and one that has its own keeps that.
func TestASpreadSaysWhichJobsItDelays(t *testing.T) {
	b := newBench(t)
	p := &planned{timings: map[job.ID]forecast.Timing{}}
	s := b.serviceOn(Config{Planner: p})
	put := func(document string) Name {
		t.Helper()
		name := b.put(s, document)
		j, err := store.JobNamed(t.Context(), b.store, name.Namespace, name.Name)
		if err != nil {
			t.Fatal(err)
		}
		p.timings[j.Definition.UID] = forecast.Timing{Schedule: each(time.Hour), Jobs: 1}
		return name
	}
	plain := put(`{"name": "plain", "schedule": {"cron": "0 * * * *", "timezone": "UTC"}, "run": {"shell": "true"}}`)
	put(`{"name": "spread", "schedule": {"cron": "0 * * * *", "timezone": "UTC", "spread": "5m"}, "run": {"shell": "true"}}`)
	hour := b.clock().Truncate(time.Hour).Add(2 * time.Hour)
	list, err := s.Load.Spread(t.Context(), admin, "", hour, hour.Add(time.Minute), 10*time.Minute, 0)
	if err != nil || len(list) != 2 {
		t.Fatalf("the jobs are %+v (%v)", list, err)
	}
	slices.SortFunc(list, func(a, b client.DueJob) int { return strings.Compare(a.Job, b.Job) })
	delay := list[0].Delay
	if delay == nil || *delay < 0 || *delay > 600 || list[0].Spread != 0 {
		t.Fatalf("a job without a spread is %+v", list[0])
	}
	if list[1].Delay != nil || list[1].Spread != job.Duration(5*time.Minute) {
		t.Errorf("a job with a spread is %+v", list[1])
	}
	if _, err := s.Load.Spread(t.Context(), admin, "", hour, hour.Add(time.Minute), 0, 0); err == nil {
		t.Error("a spread of nothing is accepted")
	}
	documents, err := job.Decode("", []byte(`{"name": "plain", "schedule": {"cron": "0 * * * *", "timezone": "UTC", "spread": "10m"}, "run": {"shell": "true"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.PutOne(t.Context(), b.store, store.PutJob{Definition: documents[0].Job, IfVersion: store.AnyVersion, Actor: "ann"}); err != nil {
		t.Fatal(err)
	}
	next, err := s.Jobs.Next(t.Context(), admin, plain, hour.Add(-time.Second), 1)
	if err != nil || len(next.Items) != 1 {
		t.Fatalf("the next occurrences are %+v (%v)", next, err)
	}
	if late := next.Items[0].Due.Sub(next.Items[0].Scheduled).Seconds(); late != *delay {
		t.Errorf("with the spread it is due %v s later, and %v s were said", late, *delay)
	}
}

func TestPlannedTimesOfJobs(t *testing.T) {
	b := newBench(t)
	p := &planned{timings: map[job.ID]forecast.Timing{}}
	s := b.serviceOn(Config{Planner: p})
	b.put(s, `{"name": "often", "labels": {"team": "a"}, "run": {"shell": "true"}, "schedule": {"cron": "*/10 * * * *"}}`)
	b.put(s, `{"name": "some", "run": {"shell": "true"}, "schedule": {"cron": "15,45 * * * *", "max_runs": 1}}`)
	b.put(s, `{"name": "spread", "run": {"shell": "true"}, "schedule": {"cron": "20 14 * * *", "spread": "5m"}}`)
	b.put(s, `{"name": "later", "run": {"shell": "true"}, "schedule": {"cron": "0 18 * * *"}}`)
	for name, in := range map[string]time.Duration{"often": 10 * time.Minute, "some": 15 * time.Minute, "spread": 20 * time.Minute, "later": 4 * time.Hour} {
		p.plan(t, b, name, in)
	}
	list, err := s.Load.Planned(t.Context(), admin, "", b.clock(), b.clock().Add(time.Hour), 10, 3)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range list {
		text := j.Job
		for _, at := range j.Times {
			text += " " + at.Truncate(5*time.Minute).Format("15:04")
		}
		got = append(got, fmt.Sprint(text, " ", j.More, " ", j.Labels["team"]))
	}
	want := []string{"default/often 14:10 14:20 14:30 true a", "default/some 14:15 false ", "default/spread 14:20 false "}
	if !slices.Equal(got, want) {
		t.Errorf("planned are %q, want %q", got, want)
	}
	if list, err := s.Load.Planned(t.Context(), Caller{Name: "vera", Role: store.RoleViewer, Namespace: "other"}, "", b.clock(), b.clock().Add(time.Hour), 10, 3); err != nil || len(list) > 0 {
		t.Errorf("a caller of another namespace sees %+v (%v)", list, err)
	}
	labels, err := s.Jobs.Labels(t.Context(), admin, []string{"default/often", "default/later", "default/gone"})
	if err != nil || len(labels) != 2 || labels["default/often"]["team"] != "a" {
		t.Errorf("the labels are %v (%v)", labels, err)
	}
	if labels, err := s.Jobs.Labels(t.Context(), Caller{Name: "vera", Role: store.RoleViewer, Namespace: "other"}, []string{"default/often"}); err != nil || len(labels) > 0 {
		t.Errorf("a caller of another namespace sees the labels %v (%v)", labels, err)
	}
}
