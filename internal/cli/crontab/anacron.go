package crontab

import (
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// anacrontab reads a table of anacrontab(5): a period in days, a delay in minutes, an
// identifier and a command. Anacron runs each job once in its period, as soon as the
// machine is on: so does a job with missed: latest that may be late without a limit.
func (r *reader) anacrontab(text string) {
	var s settings
	for number, line := range numbered(text) {
		trimmed := strings.Trim(line, blank)
		if trimmed == "" || trimmed[0] == '#' {
			continue
		}
		if name, value, ok := setting(trimmed); ok {
			s.set(name, value)
			continue
		}
		l := Line{Number: number, Text: line}
		r.period(trimmed, &s, &l)
		r.lines = append(r.lines, l)
	}
}

// anacronRoot runs anacron, which has no column for a user.
const anacronRoot = "root"

func (r *reader) period(text string, s *settings, l *Line) {
	head, command := words(text, 3)
	fields := strings.Fields(head)
	if command == "" || len(fields) != 3 {
		l.Problem = phrase.AnacronForm
		return
	}
	delay, err := strconv.Atoi(fields[1])
	if err != nil || delay < 0 || delay > 24*60 {
		l.Problem = phrase.NotAnacronDelay.Of(phrase.Quoted(fields[1]))
		return
	}
	schedule, problem := r.often(fields[0], delay, s)
	if !problem.IsZero() {
		l.Problem = problem
		return
	}
	if minutes, err := strconv.Atoi(s.values["RANDOM_DELAY"]); err == nil && minutes > 0 && minutes <= 24*60 {
		schedule.Jitter = job.Duration(time.Duration(minutes) * time.Minute)
	}
	t := task{user: r.Owner, command: command}
	if t.user == "" {
		t.user = anacronRoot
	}
	if r.runParts(t, s, schedule, l) {
		for _, d := range l.Documents {
			if d.Job != nil {
				catchUp(d.Job)
			}
		}
		return
	}
	j := r.newJob(t, s, l)
	j.Name = r.free(slug(fields[2]))
	j.Schedule = schedule
	j.Run.Shell.Dir = "/"
	j.Policy.Overlap = "" // anacron does not start a job again that is running
	catchUp(j)
	l.Notes = nil
	l.add(j)
}

// catchUp has a job run late rather than not at all.
func catchUp(j *job.Job) {
	j.Policy.Missed, j.Policy.LateBy = job.MissedLatest, new(job.Forever)
}

// often returns the schedule of a period: at the first hour in which anacron may run,
// put off by the delay.
func (r *reader) often(period string, delay int, s *settings) (schedule job.Schedule, problem phrase.Text) {
	hour := 0
	if hours := s.values["START_HOURS_RANGE"]; hours != "" {
		first, _, _ := strings.Cut(hours, "-")
		n, err := strconv.Atoi(first)
		if err != nil || n < 0 || n > 23 {
			return schedule, phrase.NotAnacronHour.Of(phrase.Quoted(hours))
		}
		hour = n
	}
	at := strconv.Itoa(delay%60) + " " + strconv.Itoa((hour+delay/60)%24)
	schedule.Timezone = r.Zone
	switch period {
	case "1", "@daily":
		schedule.Cron = []string{at + " * * *"}
	case "7", "@weekly":
		schedule.Cron = []string{at + " * * 0"}
	case "@monthly":
		schedule.Cron = []string{at + " 1 * *"}
	case "@yearly", "@annually":
		schedule.Cron = []string{at + " 1 1 *"}
	default:
		days, err := strconv.Atoi(period)
		if err != nil || days < 1 || days > 3650 {
			return schedule, phrase.NotAnacronPeriod.Of(phrase.Quoted(period))
		}
		schedule.Every = job.Duration(time.Duration(days) * 24 * time.Hour)
		schedule.Offset = job.Duration(time.Duration(hour*60+delay) * time.Minute)
		schedule.Timezone = ""
	}
	return schedule, phrase.Text{}
}
