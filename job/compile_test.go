package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// holidays is a calendar lookup for tests.
func holidays(namespace, name string) *job.Calendar {
	switch namespace + "/" + name {
	case "default/holidays":
		return &job.Calendar{Name: name, Days: job.Days{Include: []string{"2026-10-01..2026-10-07"}}}
	case "other/workdays":
		return &job.Calendar{Name: name, Days: job.Days{
			Weekdays: []string{"mon-fri"}, Exclude: []string{"2026-10-01..2026-10-07"}, Include: []string{"2026-10-10"},
		}}
	case "default/broken":
		return &job.Calendar{Name: name, Days: job.Days{Include: []string{"soon"}}}
	}
	return nil
}

func TestSchedulesFallDue(t *testing.T) {
	for _, c := range []struct{ what, schedule, after, want string }{
		{"a cron expression in its zone", `{cron: 30 2 * * *, timezone: Asia/Shanghai}`, "2026-10-01T00:00:00Z",
			"2026-10-02T02:30:00+08:00 2026-10-03T02:30:00+08:00"},
		{"a line of a crontab, whose days are either", `{cron: "0 0 13 * 5", dialect: vixie5}`, "2026-10-01T00:00:00Z", "2026-10-02T00:00:00Z 2026-10-09T00:00:00Z 2026-10-13T00:00:00Z"},
		{"an expression of Quartz, whose Sunday is 1", `{cron: "0 0 12 ? * 1", dialect: quartz}`, "2026-10-01T00:00:00Z", "2026-10-04T12:00:00Z 2026-10-11T12:00:00Z"},
		{"several expressions, each instant once", `{cron: [0 * * * *, "0,30 * * * *"]}`, "2026-10-01T00:00:00Z",
			"2026-10-01T00:30:00Z 2026-10-01T01:00:00Z 2026-10-01T01:30:00Z"},
		{"an interval as an expression, in the zone", `{cron: "@every 6h", timezone: Asia/Shanghai}`, "2026-10-01T00:00:00Z",
			"2026-10-01T14:00:00+08:00 2026-10-01T20:00:00+08:00"},
		{"a skipped time by default", `{cron: 30 2 * * *, timezone: Europe/Berlin}`, "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00"},
		{"a skipped time that is left out", `{cron: 30 2 * * *, timezone: Europe/Berlin, clock_change: skip_once}`, "2026-03-28T12:00:00Z", "2026-03-30T02:30:00+02:00"},
		{"a rate from the epoch", `{every: 7h}`, "1970-01-01T00:00:00Z", "1970-01-01T07:00:00Z 1970-01-01T14:00:00Z"},
		{"a rate with an offset", `{every: 1d, offset: 3h}`, "1970-01-01T00:00:00Z", "1970-01-01T03:00:00Z 1970-01-02T03:00:00Z"},
		{"a rate from its start", `{every: 7h, align: start, start: 2026-10-01T01:00:00Z, offset: 10m}`, "2026-01-01T00:00:00Z",
			"2026-10-01T01:10:00Z 2026-10-01T08:10:00Z"},
		{"instants, in order", `{at: [2026-10-02T09:00:00+02:00, 2026-10-01T09:00:00Z]}`, "2026-01-01T00:00:00Z",
			"2026-10-01T09:00:00Z 2026-10-02T07:00:00Z -"},
		{"between start and end, both included", `{cron: "@daily", start: 2026-10-02T00:00:00Z, end: 2026-10-03T00:00:00Z}`, "2026-01-01T00:00:00Z",
			"2026-10-02T00:00:00Z 2026-10-03T00:00:00Z -"},
		{"only on weekdays", `{cron: "@daily", only: mon-tue}`, "2026-10-01T00:00:00Z", "2026-10-05T00:00:00Z 2026-10-06T00:00:00Z 2026-10-12T00:00:00Z"},
		{"only in days united", `{cron: "@daily", only: [sun, 2026-10-06..2026-10-07]}`, "2026-10-01T00:00:00Z",
			"2026-10-04T00:00:00Z 2026-10-06T00:00:00Z 2026-10-07T00:00:00Z 2026-10-11T00:00:00Z"},
		{"only in days and in times", `{cron: 0 */6 * * *, only: [sat, 06:00-12:00, 18:00-24:00]}`, "2026-10-01T00:00:00Z",
			"2026-10-03T06:00:00Z 2026-10-03T18:00:00Z 2026-10-10T06:00:00Z"},
		{"except days and times", `{cron: 0 */6 * * *, except: [sun-fri, 00:00-17:00]}`, "2026-10-01T00:00:00Z", "2026-10-03T18:00:00Z 2026-10-10T18:00:00Z"},
		{"except at night", `{cron: 0 */4 * * *, except: 22:00-08:00}`, "2026-10-01T00:00:00Z", "2026-10-01T08:00:00Z 2026-10-01T12:00:00Z 2026-10-01T16:00:00Z 2026-10-01T20:00:00Z 2026-10-02T08:00:00Z"},
		{"except holidays", `{cron: "@daily", except: holidays}`, "2026-09-29T00:00:00Z", "2026-09-30T00:00:00Z 2026-10-08T00:00:00Z"},
		{"only on the working days of another namespace", `{cron: "@daily", only: other/workdays}`, "2026-09-30T00:00:00Z",
			"2026-10-08T00:00:00Z 2026-10-09T00:00:00Z 2026-10-10T00:00:00Z 2026-10-12T00:00:00Z"},
		{"moved to the next day", `{cron: 0 9 1 * *, except: holidays, off_day: next}`, "2026-09-02T00:00:00Z", "2026-10-08T09:00:00Z 2026-11-01T09:00:00Z"},
		{"moved to the previous day", `{cron: 0 9 1 * *, except: holidays, off_day: previous}`, "2026-09-02T00:00:00Z", "2026-09-30T09:00:00Z 2026-11-01T09:00:00Z"},
		{"moved, but not beyond the end", `{cron: 0 9 1 * *, except: holidays, off_day: next, end: 2026-10-05T00:00:00Z}`, "2026-09-02T00:00:00Z", "-"},
		{"nothing", `{}`, "2026-01-01T00:00:00Z", "-"},
		{"after another job", `{on: other}`, "2026-01-01T00:00:00Z", "-"},
	} {
		j := filled(t, "{name: a, run: {handler: x}, schedule: "+c.schedule+"}", job.Defaults{})
		schedule, err := j.CompileSchedule(holidays)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		at, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range strings.Fields(c.want) {
			if at = schedule.Next(at); at.IsZero() {
				got = append(got, "-")
				break
			}
			got = append(got, at.Format(time.RFC3339))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.what, strings.Join(got, " "), c.want)
		}
	}
}

func TestHashedFieldsDependOnTheNameOfTheJob(t *testing.T) {
	next := func(namespace, name string) time.Time {
		j := filled(t, "{namespace: "+namespace+", name: "+name+", schedule: {cron: H H * * *}, run: {shell: x}}", job.Defaults{})
		s, err := j.CompileSchedule(nil)
		if err != nil {
			t.Fatal(err)
		}
		return s.Next(now)
	}
	if next("default", "a").Equal(next("default", "b")) || next("default", "a").Equal(next("other", "a")) {
		t.Error("two jobs have the same hash")
	}
	if !next("default", "a").Equal(next("default", "a")) {
		t.Error("the hash of a job changes")
	}
}

func TestCompileScheduleExplains(t *testing.T) {
	for schedule, want := range map[string]string{
		`{cron: "61 * * * *"}`:                 "schedule.cron[0]: minute: 61 is out of range",
		`{cron: "@daily", except: holiday}`:    "schedule.except[0]: there is no calendar default/holiday",
		`{cron: "@daily", except: [mon, b/c]}`: "schedule.except[1]: there is no calendar b/c",
		`{cron: "@daily", only: broken}`:       "calendar default/broken: calendar.include[0]: \"soon\" is not a date",
		`{cron: "@daily", timezone: Mars}`:     `schedule.timezone: unknown time zone "Mars"`,
	} {
		j := filled(t, "{name: a, run: {shell: x}, schedule: "+schedule+"}", job.Defaults{})
		if _, err := j.CompileSchedule(holidays); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", schedule, err, want)
		}
	}
	if _, err := filled(t, `{name: a, run: {shell: x}, schedule: {cron: "@daily", only: holidays}}`, job.Defaults{}).CompileSchedule(nil); err == nil {
		t.Error("a calendar was found where there are none")
	}
}

func TestValidateResolvesCalendarsInTheGivenFiles(t *testing.T) {
	doc := decode(t, "a.yaml", "name: a\nrun: {shell: x}\nschedule:\n  cron: 0 0 1-7 10 *\n  except: [holidays, unknown]\n")[0]
	if err := doc.Validate(); err != nil {
		t.Errorf("without calendars: %v", err)
	}
	err := doc.Validate(job.Among(holidays))
	if want := "a.yaml:5:22: schedule.except[1]: there is no calendar default/unknown"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
