//go:build servers

package crontab_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/job"
)

// notForCron is what Debian's cron reads differently from the import, with the reason: files of
// test/crontabs, or lines with a text. anacrontabs and timers are not for it either.
var notForCron = []struct{ file, line, reason string }{
	{"cron-tz", "", "CRON_TZ is of cronie"},
	{"random-delay", "", "RANDOM_DELAY is of cronie"},
	{"random-range", "", "~ is of cronie, which draws other values at each start"},
	{"quiet-line", "", "the - before a line is of cronie"},
	{"crlf", "", "cron takes the carriage return for a part of the command"},
	{"long-command", "", "Debian's cron refuses commands of more than 998 characters, cronie takes them"},
	{"settings", "EMPTY=", "a setting without a value is refused by Debian's cron"},
	{"percent-is-input", `\\`, "Debian's cron makes one backslash of two, cronie leaves both"},
}

// daemon is Debian's cron, whose clock jumps: see testdata/cron.c.
type daemon struct{ program, clock string }

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	program, err := exec.LookPath("/usr/sbin/cron")
	if err != nil {
		t.Fatalf("Debian's cron is missing, which test/servers/install.sh installs: %v", err)
	}
	clock := filepath.Join(t.TempDir(), "cron.so")
	if out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", clock, "testdata/cron.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("a C compiler is needed: %v\n%s", err, out)
	}
	return &daemon{program, clock}
}

// start is a command that is started at a time.
type start struct {
	at             int64
	shell, command string
}

// runs returns what cron starts of a crontab in a time, and what it logs.
func (d *daemon) runs(t *testing.T, format crontab.Format, text, zone string, from, until time.Time) (list []start, words string) {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, dir := range []string{"etc/cron.d", "var/run", "run", "var/spool/cron/crontabs"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	system, own := text, ""
	if format == crontab.User {
		system, own = own, system
	}
	log := filepath.Join(root, "log")
	for file, text := range map[string]string{"etc/crontab": system, "var/spool/cron/crontabs/" + me.Username: own, "log": ""} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), d.program, "-f")
	cmd.Env = []string{
		"TZ=" + zone, "LD_PRELOAD=" + d.clock, "CRON_ROOT=" + root, "CRON_LOG=" + log,
		fmt.Sprint("CRON_FROM=", from.Unix()), fmt.Sprint("CRON_UNTIL=", until.Unix()),
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("cron: %v\n%s", err, out)
	}
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var s start
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if _, err := fmt.Sscan(fields[0], &s.at); err != nil || len(fields) != 3 {
			t.Fatalf("cron logs %q: %v", line, err)
		}
		s.at -= s.at % 60 // it wakes a second later
		s.shell, s.command = fields[1], fields[2]
		list = append(list, s)
	}
	return inOrderOfTime(list), string(out)
}

func inOrderOfTime(list []start) []start {
	slices.SortFunc(list, func(a, b start) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.command, b.command), cmp.Compare(a.shell, b.shell))
	})
	return list
}

// expected returns what jobs start in a time: after its beginning, until its end.
func expected(t *testing.T, jobs []*job.Job, from, until time.Time, most int) (list []start) {
	t.Helper()
	for _, j := range jobs {
		shell := "/bin/sh"
		if len(j.Run.Shell.Interpreter) > 0 {
			shell = j.Run.Shell.Interpreter[0]
		}
		command := strings.ReplaceAll(j.Run.Shell.Command, `{{ "{{" }}`, "{{")
		if j.Schedule.Boot { // the machine starts with the clock
			list = append(list, start{from.Unix(), shell, command})
			continue
		}
		zone, err := cron.LoadZone(j.Schedule.Timezone)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range j.Schedule.Cron {
			e, err := cron.Parse(text, cron.WithDialect(cron.Vixie5), cron.In(zone))
			if err != nil {
				t.Fatal(err)
			}
			for at := e.Next(from); !at.IsZero() && at.Before(until) && len(list) <= most; at = e.Next(at) {
				list = append(list, start{at.Unix(), shell, command})
			}
		}
	}
	return inOrderOfTime(list)
}

const day = 24 * time.Hour

// Each crontab of test/crontabs is run by Debian's cron: it starts the commands of the jobs when
// they are due, and nothing else.
func TestCronStartsTheCommandsOfItsCrontab(t *testing.T) {
	d := newDaemon(t)
	files, err := filepath.Glob("../../../test/crontabs/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	compared, starts := 0, 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		opt := options(t, string(archive.Comment))
		text := string(part(archive, "in").Data)
		if opt.Format != crontab.User && opt.Format != crontab.System {
			t.Logf("%s is not compared: it is no crontab", name)
			continue
		}
		for _, not := range notForCron {
			if not.file == name {
				t.Logf("%s %s is not compared: %s", name, not.line, not.reason)
				text = without(text, not.line)
			}
		}
		if text == "" {
			continue
		}
		compared++
		t.Run(name, func(t *testing.T) { starts += compare(t, d, text, opt) })
	}
	t.Logf("%s started %d commands of %d files", d.program, starts, compared)
	if compared < 20 {
		t.Errorf("only %d files are compared", compared)
	}
}

// without leaves out the lines that have a text.
func without(text, of string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, of) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// compare returns how many commands cron has started.
func compare(t *testing.T, d *daemon, text string, opt crontab.Options) (starts int) {
	opt.Scripts = nil // cron calls run-parts
	lines := strings.SplitAfter(text, "\n")
	var jobs []*job.Job
	for _, l := range crontab.Import(text, opt) {
		if !l.Problem.IsZero() {
			lines[l.Number-1] = "\n" // cron ignores the whole file
		}
		for _, doc := range l.Documents {
			if doc.Job != nil {
				jobs = append(jobs, doc.Job)
			}
		}
	}
	zone, err := time.LoadLocation(opt.Zone)
	if err != nil {
		t.Fatal(err)
	}
	// As many days as have some hundred starts, and the days on which rare jobs are due. In many
	// the clock changes.
	const most = 150
	from, span := time.Date(2026, 3, 28, 12, 0, 0, 0, zone), 10*day
	for span > day && len(expected(t, jobs, from, from.Add(span), most)) > most {
		span /= 2
	}
	begins := []time.Time{from}
	for _, j := range jobs {
		if len(expected(t, []*job.Job{j}, from, from.Add(span), 1)) == 0 {
			if next := expected(t, []*job.Job{j}, from, from.AddDate(9, 0, 0), 0); len(next) > 0 {
				begins = append(begins, time.Unix(next[0].at, 0).In(zone).Add(-day))
			}
		}
	}
	if strings.Contains(text, "/bin/in-the-gap") { // and when the clock goes back
		begins = append(begins, time.Date(2026, 10, 24, 12, 0, 0, 0, zone))
	}
	for i, begin := range begins {
		if i > 0 {
			span = 2 * day
		}
		until := begin.Add(span)
		got, words := d.runs(t, opt.Format, strings.Join(lines, ""), opt.Zone, begin.Add(time.Second), until)
		want := expected(t, jobs, begin, until, 100*most)
		if !slices.Equal(got, want) {
			t.Errorf("from %s until %s: %s\ncron says\n%s", begin, until, difference(got, want, zone), words)
		}
		starts += len(got)
	}
	return starts
}

// difference says what one of two lists has alone.
func difference(got, want []start, zone *time.Location) string {
	count := map[start]int{}
	for _, s := range got {
		count[s]++
	}
	for _, s := range want {
		count[s]--
	}
	maps.DeleteFunc(count, func(_ start, n int) bool { return n == 0 })
	var b bytes.Buffer
	fmt.Fprintf(&b, "cron starts %d commands, want %d", len(got), len(want))
	for i, s := range inOrderOfTime(slices.Collect(maps.Keys(count))) {
		if i == 10 {
			fmt.Fprintf(&b, "\nand %d more", len(count)-i)
			break
		}
		who := "cron alone"
		if count[s] < 0 {
			who = "the job alone"
		}
		fmt.Fprintf(&b, "\n%s: %s %s %s", who, time.Unix(s.at, 0).In(zone), s.shell, s.command)
	}
	return b.String()
}
