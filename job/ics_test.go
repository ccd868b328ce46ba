package job_test

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

const holidayFile = `BEGIN:VCALENDAR
BEGIN:VEVENT
DTSTART;VALUE=DATE:20261001
DTEND;VALUE=DATE:20261008
SUMMARY:国庆节
END:VEVENT
BEGIN:VEVENT
DTSTART;VALUE=DATE:20261010
SUMMARY:国庆节补班
END:VEVENT
BEGIN:VEVENT
DTSTART;VALUE=DATE:20261010
SUMMARY:国庆节（班）
END:VEVENT
END:VCALENDAR
`

func openHolidays(name string) (io.ReadCloser, error) {
	switch filepath.ToSlash(name) {
	case "conf/cn/2026.ics":
		return io.NopCloser(strings.NewReader(holidayFile)), nil
	case "conf/broken.ics":
		return io.NopCloser(strings.NewReader("hello")), nil
	case "/endless.ics":
		return io.NopCloser(io.MultiReader(strings.NewReader("BEGIN:VCALENDAR\n"), endless{})), nil
	}
	return nil, fs.ErrNotExist
}

// endless is a file of empty lines without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

func TestCalendarFilesBecomeDates(t *testing.T) {
	for _, c := range []struct {
		what, calendar   string
		include, exclude []string
	}{
		{"holidays of working days", "{weekdays: mon-fri, exclude: 2026-05-01, ics: cn/2026.ics}",
			[]string{"2026-10-10"}, []string{"2026-05-01", "2026-10-01..2026-10-07"}},
		{"a list of days", "{ics: [cn/2026.ics], include: 2026-05-01}",
			[]string{"2026-05-01", "2026-10-01..2026-10-07", "2026-10-10"}, nil},
	} {
		docs := decode(t, "conf/calendars.yaml", "{kind: calendar, name: a, calendar: "+c.calendar+"}")
		before := docs[0].Calendar
		if err := job.InlineCalendars(docs, openHolidays); err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		days := docs[0].Calendar.Days
		if days.ICS != nil || !reflect.DeepEqual(days.Include, c.include) || !reflect.DeepEqual(days.Exclude, c.exclude) {
			t.Errorf("%s: got %+v", c.what, days)
		}
		if before.Days.ICS == nil {
			t.Errorf("%s: the calendar itself was changed", c.what)
		}
		if err := docs[0].Validate(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestCalendarFilesThatCannotBeReadAreProblems(t *testing.T) {
	docs := decode(t, "conf/calendars.yaml", "kind: calendar\nname: a\ncalendar:\n  ics: [none.ics, broken.ics, /endless.ics, cn/2026.ics]\n")
	err := job.InlineCalendars(docs, openHolidays)
	var problems job.Problems
	if !errors.As(err, &problems) || len(problems) != 3 {
		t.Fatalf("got %v", err)
	}
	for i, want := range []string{
		"conf/calendars.yaml:4:9: calendar.ics[0]: file does not exist",
		"conf/calendars.yaml:4:19: calendar.ics[1]: " + filepath.FromSlash("conf/broken.ics") + ": no iCalendar file",
		"conf/calendars.yaml:4:31: calendar.ics[2]: /endless.ics: has more than 4194304 bytes",
	} {
		if !strings.HasPrefix(problems[i].Error(), want) {
			t.Errorf("got %s\nwant %s", problems[i], want)
		}
	}
}

func TestDaysCompile(t *testing.T) {
	days := job.Days{Weekdays: []string{"fri-sun", "tuesday"}, Exclude: []string{"2026-10-02"}, Include: []string{"2026-10-07..2026-10-08"}}
	if _, err := days.Compile(); err != nil {
		t.Fatal(err)
	}
	days.Weekdays = []string{"someday"}
	if _, err := days.Compile(); err == nil || !strings.Contains(err.Error(), `calendar.weekdays[0]: "someday" is not a weekday`) {
		t.Errorf("got %v", err)
	}
}
