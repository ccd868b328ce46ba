package robfig

import (
	"bytes"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/belfrytest"
)

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The rules of robfig/cron for days and clocks, each from its documentation.
func TestSchedulesFallDueAsInRobfigCron(t *testing.T) {
	berlin, beirut := location(t, "Europe/Berlin"), location(t, "Asia/Beirut")
	for _, c := range []struct {
		name, spec string
		from       time.Time
		want       []string
	}{
		{"a step in a day field is no star, so either day counts", "0 10 */5 * 1", time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC),
			[]string{"2026-03-09T10:00:00Z", "2026-03-11T10:00:00Z", "2026-03-16T10:00:00Z"}},
		{"with a star both days must match", "0 10 * * 1", time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC), []string{"2026-03-09T10:00:00Z", "2026-03-16T10:00:00Z"}},
		{"a full range is no star", "0 10 1-31 * 1", time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC), []string{"2026-03-09T10:00:00Z", "2026-03-10T10:00:00Z"}},
		{"a date that does not exist is never", "0 0 31 4 *", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), []string{""}},
		{"29 February after 1896", "0 0 29 2 *", time.Date(1896, 3, 1, 0, 0, 0, 0, time.UTC), []string{"1904-02-29T00:00:00Z"}},
		{"a skipped time is left out", "30 2 * * *", time.Date(2026, 3, 28, 12, 0, 0, 0, berlin), []string{"2026-03-30T02:30:00+02:00"}},
		{"a repeated time comes twice", "30 2 * * *", time.Date(2026, 10, 25, 0, 0, 0, 0, berlin), []string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"}},
		{"a skipped midnight is left out", "0 0 * * *", time.Date(2026, 3, 28, 12, 0, 0, 0, beirut), []string{"2026-03-30T00:00:00+03:00"}},
		{"the hour after it is there", "0 1 * * *", time.Date(2026, 3, 28, 12, 0, 0, 0, beirut), []string{"2026-03-29T01:00:00+03:00"}},
		{"names and lists", "0 9-17/4 ? jan,MAR mon-fri", time.Date(2026, 1, 30, 14, 0, 0, 0, time.UTC), []string{"2026-01-30T17:00:00Z", "2026-03-02T09:00:00Z"}},
		{"forms that robfig/cron does not know", "0 0 L * *", time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), []string{"2026-02-28T00:00:00Z"}},
	} {
		s, err := ParseStandard(c.spec)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if e, ok := s.(*otherSchedule); ok {
			if s, err = e.within(c.from.Location()); err != nil {
				t.Fatal(err)
			}
		}
		at := c.from
		for _, want := range c.want {
			at = s.Next(at)
			got := ""
			if !at.IsZero() {
				got = at.Format(time.RFC3339)
			}
			if got != want {
				t.Errorf("%s: %q is next at %s, want %s", c.name, c.spec, got, want)
			}
		}
	}
}

func TestAStoreKeepsTheSameSchedule(t *testing.T) {
	for spec, want := range map[string]string{
		"0 10 */5 * 1": "0 0 10 1,6,11,16,21,26,31 * 1", "*/15 1-3,5 * * ?": "0 0,15,30,45 1-3,5 * * *", "@weekly": "0 0 0 * * 0",
	} {
		s, err := ParseStandard(spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.(*SpecSchedule).expression(); got != want {
			t.Errorf("%q is kept as %q, want %q", spec, got, want)
		}
	}
}

// A zone goes by its offsets: its name may be missing, or mean something else.
func TestTheZoneOfALocationHasItsOffsets(t *testing.T) {
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	shanghai, err := os.ReadFile("/usr/share/zoneinfo/Asia/Shanghai")
	var mounted *time.Location
	if err == nil {
		if mounted, err = time.LoadLocationFromTZData("Local", shanghai); err != nil {
			t.Fatal(err)
		}
	} else {
		mounted = time.FixedZone("Local", 8*3600)
	}
	for name, l := range map[string]*time.Location{
		"utc": time.UTC, "named": location(t, "Europe/Berlin"), "without a name": time.FixedZone("", 8*3600), "GMT": time.FixedZone("GMT", 8*3600),
		"EST": time.FixedZone("EST", 10*3600), "CST": time.FixedZone("CST", 8*3600), "real EST": time.FixedZone("EST", -5*3600), "half an hour": time.FixedZone("IST", 19800), "mounted": mounted,
	} {
		got := zoneName(l, now)
		if got == "" {
			t.Errorf("%s: there is no name", name)
			continue
		}
		if again := location(t, got); !sameOffsets(l, again, now) {
			t.Errorf("%s: %s has other offsets", name, got)
		}
	}
	if got := zoneName(time.FixedZone("UTC", 12345), now); got != "" {
		t.Errorf("an offset of no zone is called %s", got)
	}
}

// ranTimes are the moments at which an entry of a Cron ran within a time.
func ranTimes(t *testing.T, within time.Duration, spec string, options ...Option) (list []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		c := New(append([]Option{On(nil, belfrytest.Options(t)...), WithLogger(DiscardLogger)}, options...)...)
		if _, err := c.AddFunc(spec, func() {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, time.Now().UTC().Format("15:04"))
		}); err != nil {
			t.Fatal(err)
		}
		c.Start()
		belfrytest.Advance(within)
		<-c.Stop().Done()
	})
	return list
}

func TestACronRunsInItsLocationWhateverItsName(t *testing.T) {
	for name, l := range map[string]*time.Location{"none": time.FixedZone("", 8*3600), "CST": time.FixedZone("CST", 8*3600), "UTC": time.FixedZone("UTC", 8*3600)} {
		if got := ranTimes(t, 2*time.Hour, "0 9 * * *", WithLocation(l)); len(got) != 1 || got[0] != "01:00" {
			t.Errorf("%s: 09:00 at +08:00 ran at %v UTC", name, got)
		}
	}
}

// A Cron on a store runs in its location too, where that has a name and where it has none.
func TestACronOnAStoreRunsInItsLocation(t *testing.T) {
	for _, l := range []*time.Location{time.FixedZone("CST", 8*3600), time.FixedZone("", 8*3600+60)} {
		open := On(belfrytest.Shared())
		got := ranTimes(t, 2*time.Hour, "0 9 * * *", open, WithLocation(l))
		want := map[int]string{8 * 3600: "01:00", 8*3600 + 60: "00:59"}
		_, offset := time.Time{}.In(l).Zone()
		if len(got) != 1 || got[0] != want[offset] {
			t.Errorf("%s: 09:00 ran at %v UTC", l, got)
		}
	}
}

func TestAnEntryThatNeverFallsDueStopsNoOther(t *testing.T) {
	for _, open := range []Option{func(*Cron) {}, On(belfrytest.Shared())} {
		synctest.Test(t, func(t *testing.T) {
			var ran atomic.Int32
			c := New(On(nil, belfrytest.Options(t)...), WithLogger(DiscardLogger), open)
			never, err := c.AddFunc("0 0 31 4 *", func() { t.Error("30 days hath April") })
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.AddFunc("* * * * *", func() { ran.Add(1) }); err != nil {
				t.Fatal(err)
			}
			c.Start()
			belfrytest.Advance(3*time.Minute + time.Second)
			if e := c.Entry(never); !e.Valid() || !e.Next.IsZero() {
				t.Errorf("the entry is %+v", e)
			}
			<-c.Stop().Done()
			if ran.Load() != 3 {
				t.Errorf("the other entry ran %d times", ran.Load())
			}
		})
	}
}

func TestRemoveRightAfterStartRemoves(t *testing.T) {
	for _, open := range []Option{func(*Cron) {}, On(belfrytest.Shared())} {
		synctest.Test(t, func(t *testing.T) {
			c := New(On(nil, belfrytest.Options(t)...), WithLogger(DiscardLogger), WithSeconds(), open)
			id, err := c.AddFunc("* * * * * *", func() { t.Error("it ran") })
			if err != nil {
				t.Fatal(err)
			}
			c.Start()
			c.Remove(id)
			belfrytest.Advance(5 * time.Second)
			<-c.Stop().Done()
		})
	}
}

func TestASecondStopWaitsForJobsThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done atomic.Bool
		c := New(On(nil, belfrytest.Options(t)...), WithLogger(DiscardLogger))
		if _, err := c.AddFunc("@every 1s", func() { time.Sleep(time.Minute); done.Store(true) }); err != nil {
			t.Fatal(err)
		}
		c.Start()
		belfrytest.Advance(1500 * time.Millisecond)
		c.Stop()
		c.Start() // and the jobs of the first time run still
		<-c.Stop().Done()
		if !done.Load() {
			t.Error("Stop did not wait for the job")
		}
	})
}

type nothing struct{}

func (*nothing) Next(time.Time) time.Time { return time.Time{} }

func TestMistakesAreErrorsAndNotPanics(t *testing.T) {
	c := New()
	if _, err := c.AddJob("this will not parse", nil); err == nil {
		t.Error("a bad expression without a job was accepted")
	}
	if id := c.Schedule(&nothing{}, nil); id == 0 {
		t.Error("a schedule without a job was refused, which robfig/cron accepts")
	}
	defer func() {
		if recover() == nil {
			t.Error("two optional fields were accepted")
		}
	}()
	NewParser(SecondOptional | DowOptional)
}

func TestALiteralScheduleRunsInItsLocation(t *testing.T) {
	s := &SpecSchedule{Second: 1, Minute: 1, Hour: 1 << 9, Dom: 1<<63 | 0xfffffffe, Month: 0x1ffe, Dow: 1<<63 | 0x7f, Location: time.FixedZone("CST", 8*3600)}
	if got := s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).Format(time.RFC3339); got != "2026-01-01T01:00:00Z" {
		t.Errorf("it is next at %s", got)
	}
}

func TestEntriesAreInTheLocationOfTheCron(t *testing.T) {
	l := time.FixedZone("", 8*3600)
	c := New(WithLocation(l))
	id, err := c.AddFunc("0 9 * * *", func() {})
	if err != nil {
		t.Fatal(err)
	}
	if e := c.Entry(id); e.Next.Location() != l || e.Next.Hour() != 9 {
		t.Errorf("the entry is next at %s", e.Next)
	}
}

func TestTheVerboseLoggerPrintsWhatRobfigCronPrints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said lockedBuffer
		c := New(On(nil, belfrytest.Options(t)...), WithLocation(time.UTC), WithLogger(VerbosePrintfLogger(log.New(&said, "", 0))))
		first, err := c.AddFunc("@every 2s", func() {})
		if err != nil {
			t.Fatal(err)
		}
		c.Start()
		belfrytest.Advance(2*time.Second + time.Millisecond)
		if _, err := c.AddFunc("@hourly", func() {}); err != nil {
			t.Fatal(err)
		}
		c.Remove(first)
		<-c.Stop().Done()
		want := "start\n" +
			"schedule, now=2000-01-01T00:00:00Z, entry=1, next=2000-01-01T00:00:02Z\n" +
			"wake, now=2000-01-01T00:00:02Z\n" +
			"run, now=2000-01-01T00:00:02Z, entry=1, next=2000-01-01T00:00:04Z\n" +
			"added, now=2000-01-01T00:00:02Z, entry=2, next=2000-01-01T01:00:00Z\n" +
			"removed, entry=1\nstop\n"
		if said.String() != want {
			t.Errorf("it printed\n%s\nwant\n%s", said.String(), want)
		}
	})
}

// lockedBuffer takes what goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
