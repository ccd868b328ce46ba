package job_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
)

func ExampleDecode() {
	docs, err := job.Decode("jobs.yaml", []byte(`
name: nightly-report
schedule:
  cron: 30 2 * * 1-5
  timezone: Asia/Shanghai
run:
  shell: python report.py --day {{ .Scheduled.Format "2006-01-02" }}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, doc := range docs {
		fmt.Println(doc.Kind, doc.FullName(), doc.Job.Schedule.Cron)
	}
	// Output: job default/nightly-report [30 2 * * 1-5]
}

func ExampleDocument_Validate() {
	docs, err := job.Decode("jobs.yaml", []byte(`
name: nightly-report
schedule: {cron: 0 0 30 2 *}
run: {shell: "report {{ .Schedled }}"}
policy: {queue_limit: 3}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(docs[0].Validate())
	// Output:
	// jobs.yaml:3:18: schedule.cron: "0 0 30 2 *" never falls due: February has no day 30
	// jobs.yaml:4:14: run.shell: unknown field .Schedled (did you mean "Scheduled"?)
	// jobs.yaml:5:23: policy.queue_limit: is only valid with overlap: queue
}

func ExampleJob_WithDefaults() {
	j := &job.Job{Name: "hello", Run: job.RunSpec{Handler: &job.Handler{Name: "hello"}}}
	j = j.WithDefaults(job.Defaults{Timezone: "Europe/Berlin"})
	fmt.Println(j.FullName(), j.Schedule.Timezone, j.Policy.Overlap, j.Policy.LateBy)
	// Output: default/hello Europe/Berlin skip 1h
}

func ExampleJob_CompileSchedule() {
	j := (&job.Job{
		Name:     "month-end",
		Schedule: job.Schedule{Cron: []string{"0 18 L * *"}, Except: []string{"sat-sun"}, OffDay: job.OffDayPrevious},
		Run:      job.RunSpec{Handler: &job.Handler{Name: "close-books"}},
	}).WithDefaults(job.Defaults{})
	schedule, err := j.CompileSchedule(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 3 {
		at = schedule.Next(at)
		fmt.Println(at.Format("Mon 2006-01-02 15:04"))
	}
	// Output:
	// Fri 2026-01-30 18:00
	// Fri 2026-02-27 18:00
	// Tue 2026-03-31 18:00
}

func ExampleEncode() {
	pool := job.Document{Pool: &job.Pool{Name: "database", Slots: job.Slots{Size: 3}}}
	if err := job.Encode(os.Stdout, []job.Document{pool}, job.YAML); err != nil {
		fmt.Println(err)
	}
	// Output:
	// kind: pool
	// name: database
	// pool:
	//   size: 3
}

func ExampleCompileTemplate() {
	t, err := job.CompileTemplate(job.TemplateShell, `report --for {{ .Param.team }} "{{ .Scheduled.Format "2006-01-02" }}"`, []string{"team"})
	if err != nil {
		fmt.Println(err)
		return
	}
	command, err := t.Execute(job.TemplateData{
		Scheduled: time.Date(2026, 10, 1, 2, 30, 0, 0, time.UTC),
		Params:    map[string]string{"team": "it's; rm -rf /"},
	})
	fmt.Println(command, err)
	// Output: report --for 'it'\''s; rm -rf /' "2026-10-01" <nil>
}

func ExampleInlineCalendars() {
	docs, err := job.Decode("calendars.yaml", []byte("{kind: calendar, name: cn-workdays, calendar: {weekdays: mon-fri, ics: cn.ics}}"))
	if err != nil {
		fmt.Println(err)
		return
	}
	open := func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(holidayFile)), nil }
	if err := job.InlineCalendars(docs, open); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(docs[0].Calendar.Days.Exclude, docs[0].Calendar.Days.Include)
	// Output: [2026-10-01..2026-10-07] [2026-10-10]
}
