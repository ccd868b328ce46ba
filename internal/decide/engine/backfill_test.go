package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
)

// timingOf compiles the schedule of a job.
func timingOf(t *testing.T, text string) engine.Timing {
	t.Helper()
	docs, err := job.Decode("test.yaml", []byte("name: a\nrun: {shell: 'true'}\nschedule: "+text))
	if err != nil {
		t.Fatal(err)
	}
	written, err := engine.TimingText(docs[0].Job.WithDefaults(job.Defaults{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	timing, _, err := engine.CompileTiming(written, nil)
	if err != nil {
		t.Fatal(err)
	}
	return timing
}

func TestPastListsTheScheduledTimesOfARange(t *testing.T) {
	at := func(text string) time.Time {
		moment, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return moment
	}
	for _, c := range []struct {
		name, schedule, from, to string
		want                     string
	}{
		{"from is in it and to is not", "{cron: '0 * * * *'}", "2026-11-20T01:00:00Z", "2026-11-20T03:00:00Z", "[01:00 02:00]"},
		{"nothing falls into it", "{cron: '0 * * * *'}", "2026-11-20T01:00:01Z", "2026-11-20T02:00:00Z", "[]"},
		{"the clock goes forward", "{cron: '30 2 * * *', timezone: Europe/Berlin}", "2026-03-28T00:00:00Z", "2026-03-30T23:00:00Z", "[01:30 01:00 00:30]"},
		{"bounds and rules hold in the past too", "{cron: '0 12 * * *', start: 2026-11-17T00:00:00Z, except: [2026-11-18]}", "2026-11-15T00:00:00Z", "2026-11-20T00:00:00Z", "[12:00 12:00]"},
	} {
		timing := timingOf(t, c.schedule)
		list, count := timing.Past(at(c.from), at(c.to), 100, 100)
		var got []string
		for _, scheduled := range list {
			got = append(got, scheduled.UTC().Format("15:04"))
		}
		if fmt.Sprint(got) != c.want || count != len(list) {
			t.Errorf("%s: got %v of %d, want %s", c.name, got, count, c.want)
		}
	}
	timing := timingOf(t, "{every: 1s}")
	list, count := timing.Past(at("2026-01-01T00:00:00Z"), at("2026-11-01T00:00:00Z"), 10, 1000)
	if len(list) != 10 || count != 1000 {
		t.Errorf("lists %d and counts %d, want 10 and 1000", len(list), count)
	}
}
