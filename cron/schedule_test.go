package cron

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// occurrences returns n occurrences after an instant, "" for none.
func occurrences(s Schedule, after time.Time, n int) []string {
	var list []string
	for range n {
		if after = s.Next(after); after.IsZero() {
			return append(list, "")
		}
		list = append(list, after.UTC().Format(time.RFC3339Nano))
	}
	return list
}

func TestIntervalsFallDueOnTheirGrid(t *testing.T) {
	start := instant(t, "2026-11-20T10:00:07Z")
	for _, c := range []struct {
		name     string
		interval Interval
		after    string
		want     []string
	}{
		{"aligned to the epoch", Interval{Every: 90 * time.Second}, "2026-11-20T11:22:33Z", []string{"2026-11-20T11:24:00Z", "2026-11-20T11:25:30Z"}},
		{"strictly after", Interval{Every: time.Hour}, "2026-11-20T11:00:00Z", []string{"2026-11-20T12:00:00Z"}},
		{"a nanosecond before", Interval{Every: time.Hour}, "2026-11-20T10:59:59.999999999Z", []string{"2026-11-20T11:00:00Z"}},
		{"aligned to a start", Interval{Every: time.Minute, Anchor: start}, "2026-11-20T11:22:33Z", []string{"2026-11-20T11:23:07Z", "2026-11-20T11:24:07Z"}},
		{"before its anchor", Interval{Every: time.Minute, Anchor: start}, "2026-11-20T09:00:00Z", []string{"2026-11-20T09:00:07Z"}},
		{"shorter than a second", Interval{Every: 250 * time.Millisecond}, "2026-11-20T11:22:33.1Z", []string{"2026-11-20T11:22:33.25Z", "2026-11-20T11:22:33.5Z"}},
		{"before 1970", Interval{Every: time.Hour}, "1969-12-31T23:30:00Z", []string{"1970-01-01T00:00:00Z"}},
		{"an anchor three centuries away", Interval{Every: 24 * time.Hour, Anchor: instant(t, "1700-01-01T06:00:00Z")}, "2199-01-01T07:00:00Z", []string{"2199-01-02T06:00:00Z"}},
		{"long ago", Interval{Every: 24 * time.Hour}, "0001-01-01T00:00:00Z", []string{"1900-01-01T00:00:00Z"}},
		{"at the horizon", Interval{Every: time.Hour}, "2199-12-31T23:00:00Z", []string{""}},
		{"no interval", Interval{}, "2026-11-20T11:22:33Z", []string{""}},
	} {
		if got := occurrences(c.interval, instant(t, c.after), len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestIntervalPrevIsTheInverseOfNext(t *testing.T) {
	for _, interval := range []Interval{{Every: 90 * time.Second}, {Every: 7 * 24 * time.Hour, Anchor: instant(t, "2026-11-20T10:00:07Z")}, {Every: MaxEvery}} {
		at := instant(t, "2026-11-20T11:22:33Z")
		next := interval.Next(at)
		if got := interval.Prev(next.Add(1)); !got.Equal(next) {
			t.Errorf("%s: Prev just after %s is %s", interval, next, got)
		}
		prev := interval.Prev(next)
		if prev.IsZero() || prev.After(at) || !interval.Next(prev).Equal(next) {
			t.Errorf("%s: Prev(%s) is %s, whose Next is %s", interval, next, prev, interval.Next(prev))
		}
	}
}

func TestParseScheduleReadsIntervals(t *testing.T) {
	for _, c := range []struct{ expr, want string }{
		{"@every 90s", "@every 1m30s"},
		{"@every 1h", "@every 1h"},
		{"@EVERY  1d12h ", "@every 1d12h"},
		{"@every 48h", "@every 2d"},
		{"@every 1.5s", "@every 1.5s"},
		{"0 5 * * *", "0 5 * * *"},
	} {
		s, err := ParseSchedule(c.expr)
		if err != nil {
			t.Errorf("%q: %v", c.expr, err)
			continue
		}
		if got := s.(interface{ String() string }).String(); got != c.want {
			t.Errorf("%q is %q, want %q", c.expr, got, c.want)
		}
	}
}

func TestParseScheduleRefusesBadIntervals(t *testing.T) {
	for _, c := range []struct{ expr, want string }{
		{"@every", "a duration is missing"},
		{"@every 5x", `"5x" is not a duration`},
		{"@every 0s", "too short"},
		{"@every -5s", "too short"},
		{"@every 200000d", "too long"},
		{"@every 9000000h", `is not a duration`},
		{"@everyone", "@everyone is not known"},
		{"61 * * * *", "out of range"},
	} {
		_, err := ParseSchedule(c.expr)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got error %v, want one with %q", c.expr, err, c.want)
		}
	}
	if _, err := Parse("@every 5m"); err == nil || !strings.Contains(err.Error(), "ParseSchedule") {
		t.Errorf("Parse of an interval: got error %v, want one that points to ParseSchedule", err)
	}
}

func TestInstantsInAnyOrder(t *testing.T) {
	s := At(instant(t, "2026-12-24T18:00:00Z"), instant(t, "2026-11-21T00:00:00Z"), instant(t, "2026-11-21T00:00:00Z"))
	got := occurrences(s, instant(t, "2026-11-20T11:22:33Z"), 3)
	want := []string{"2026-11-21T00:00:00Z", "2026-12-24T18:00:00Z", ""}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnionMergesEqualInstants(t *testing.T) {
	hourly, err := Parse("0 * * * *")
	if err != nil {
		t.Fatal(err)
	}
	s := Union(hourly, At(instant(t, "2026-11-20T12:30:00Z")), Interval{Every: 2 * time.Hour}, At())
	got := occurrences(s, instant(t, "2026-11-20T11:22:33Z"), 4)
	want := []string{"2026-11-20T12:00:00Z", "2026-11-20T12:30:00Z", "2026-11-20T13:00:00Z", "2026-11-20T14:00:00Z"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Union().Next(time.Now()); !got.IsZero() {
		t.Errorf("a union of nothing falls due at %s", got)
	}
}

func TestBoundsBelongToTheSchedule(t *testing.T) {
	hourly, err := Parse("0 * * * *")
	if err != nil {
		t.Fatal(err)
	}
	s := Bounded(hourly, instant(t, "2026-11-21T00:00:00Z"), instant(t, "2026-11-21T01:00:00Z"))
	got := occurrences(s, instant(t, "2026-11-20T11:22:33Z"), 3)
	want := []string{"2026-11-21T00:00:00Z", "2026-11-21T01:00:00Z", ""}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Bounded(hourly, time.Time{}, time.Time{}); got != Schedule(hourly) {
		t.Errorf("no bounds: got %v, want the schedule itself", got)
	}
}

func TestBetweenExcludesItsBeginningAndIncludesItsEnd(t *testing.T) {
	hourly, err := Parse("0 * * * *")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for at := range Between(hourly, instant(t, "2026-11-20T11:00:00Z"), instant(t, "2026-11-20T13:00:00Z")) {
		got = append(got, at.Format(time.RFC3339))
	}
	if want := []string{"2026-11-20T12:00:00Z", "2026-11-20T13:00:00Z"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
