package crontab

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/job"
)

// Export writes jobs as a crontab, of a user or of the system. Settings that a crontab
// cannot express become a comment with the reason: defaults are the values for unset fields
// of a job. A job whose text would be read as anything else than this job is left out.
func Export(jobs []*job.Job, format Format, defaults job.Defaults) string {
	var left []string // comments about jobs that are left out
	leave := func(head, reason string) { left = append(left, head+"\n#   left out: "+oneLine(reason)+"\n") }
	groups := map[string]*group{} // by their settings
	for _, j := range jobs {
		filled := j.WithDefaults(defaults)
		head := "# " + oneLine(strings.TrimSuffix(j.FullName()+": "+j.Description, ": "))
		lines, reason := entries(filled, format)
		var g group
		if reason == "" {
			g, reason = groupOf(filled)
		}
		if reason != "" {
			leave(head, reason)
			continue
		}
		key := g.shell + "\n" + g.settings
		if groups[key] == nil {
			groups[key] = &g
		}
		groups[key].add(head, lines)
	}
	// A setting holds for all lines below it and cannot be unset, so that groups with fewer
	// variables come first.
	var printed strings.Builder
	var set []string
	shell := defaultShell
	for _, g := range slices.SortedFunc(maps.Values(groups), func(a, b *group) int {
		return cmp.Or(cmp.Compare(len(a.names), len(b.names)), cmp.Compare(a.shell, b.shell), cmp.Compare(a.settings, b.settings))
	}) {
		if i := slices.IndexFunc(set, func(name string) bool { return !slices.Contains(g.names, name) }); i >= 0 {
			for _, head := range g.heads {
				leave(head, "other jobs set "+set[i]+", which a crontab cannot unset for this one: export it apart, with --label")
			}
			continue
		}
		if printed.Len() > 0 {
			printed.WriteByte('\n')
		}
		if g.shell != shell {
			fmt.Fprintf(&printed, "SHELL=%s\n", g.shell)
		}
		printed.WriteString(g.settings + g.text.String())
		set, shell = g.names, g.shell
	}
	if len(left) > 0 && printed.Len() > 0 {
		left = append(left, "\n")
	}
	return strings.Join(left, "") + printed.String()
}

// oneLine returns a text for a comment, which a line break in it would end.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}

// defaultShell is what crons and jobs without an interpreter run commands with.
const defaultShell = "/bin/sh"

// group is jobs with the same settings.
type group struct {
	shell    string
	names    []string // of the variables, sorted
	settings string   // the lines NAME=value, without SHELL
	heads    []string // comments that name the jobs
	text     strings.Builder
}

func (g *group) add(head string, lines []string) {
	g.heads = append(g.heads, head)
	for _, line := range append([]string{head}, lines...) {
		g.text.WriteString(line + "\n")
	}
}

// groupOf returns the settings that must stand before a job, or why a crontab cannot say them.
func groupOf(j *job.Job) (g group, reason string) {
	s := j.Run.Shell
	g.shell = defaultShell
	if len(s.Interpreter) == 1 {
		g.shell = s.Interpreter[0]
	}
	zone := cmp.Or(j.Schedule.Timezone, "UTC")
	for _, t := range []struct{ field, text string }{{"interpreter", g.shell}, {"time zone", zone}} {
		if words, ok := quoted(t.text); !ok || words != t.text {
			return g, "a crontab cannot say its " + t.field
		}
	}
	values := map[string]string{}
	if s.Dir != "" {
		values["HOME"] = s.Dir
	}
	for name, template := range s.Env {
		value := unliteral(template)
		switch {
		case notPassedOn[name]:
			return g, "its variable " + name + " would be a setting of cron"
		case !isVariable(name):
			return g, "a name in its env is not the name of an environment variable"
		case name == "HOME" && s.Dir != "" && s.Dir != value:
			return g, "its dir is not its HOME, in which cron starts commands"
		}
		values[name] = value
	}
	g.names = slices.Sorted(maps.Keys(values))
	g.settings = "CRON_TZ=" + zone + "\n"
	for _, name := range g.names {
		words, ok := quoted(values[name])
		switch {
		case !ok && name == "HOME" && s.Dir != "":
			return g, "a crontab cannot say its dir: it has control characters or quotes"
		case !ok:
			return g, "a crontab cannot say the value of its variable " + name + ": it has control characters or quotes"
		}
		g.settings += name + "=" + words + "\n"
	}
	return g, ""
}

// quoted returns a value as a setting has it, and whether there is a form that cron reads as
// this value: it ends a quoted value at the next such quote, and any value at a line break.
func quoted(value string) (text string, ok bool) {
	switch {
	case hasControl(value):
		return "", false
	case value != "" && strings.Trim(value, blank) == value && value[0] != '"' && value[0] != '\'':
		return value, true
	case !strings.Contains(value, `"`):
		return `"` + value + `"`, true
	case !strings.Contains(value, "'"):
		return "'" + value + "'", true
	}
	return "", false
}

// hasControl reports whether a text has control characters that are no blank.
func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\t' })
}

// unliteral undoes literal.
func unliteral(template string) string { return strings.ReplaceAll(template, `{{ "{{" }}`, "{{") }

// entries returns the lines of a job, or why there are none.
func entries(j *job.Job, format Format) (lines []string, reason string) {
	shell, schedule := j.Run.Shell, &j.Schedule
	switch {
	case shell == nil:
		return nil, "it does not run a command"
	case shell.Script != "":
		return nil, "it runs a script that is part of the job"
	case strings.TrimSpace(shell.Command) == "":
		return nil, "its command is blank"
	case len(shell.Interpreter) > 1:
		return nil, "its interpreter has options"
	case len(shell.Files) > 0:
		return nil, "it has files"
	case j.Paused:
		return nil, "it is paused"
	case format == System && shell.User == "":
		return nil, "it names no user, which a system crontab requires"
	case format == System && strings.ContainsFunc(shell.User, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return nil, "its user has a blank"
	case len(schedule.Only)+len(schedule.Except) > 0:
		return nil, "its schedule has only or except"
	case schedule.Boot && len(schedule.Cron) > 0:
		return nil, "it is due both by the clock and at the start of nodes"
	case schedule.Every > 0 && len(schedule.Cron) > 0, len(schedule.On) > 0 && (schedule.Boot || len(schedule.Cron) > 0):
		return nil, "its schedule has more than cron"
	case !schedule.Start.IsZero(), !schedule.End.IsZero(), schedule.MaxRuns > 0:
		return nil, "its schedule is bounded by start, end or max_runs"
	case schedule.Spread > 0:
		return nil, "its schedule has spread"
	}
	command := strings.TrimLeft(shell.Command, blank)
	if len(shell.Args) > 0 { // it is executed without a shell
		command = shellWord(shell.Command)
		for _, arg := range shell.Args {
			command += " " + shellWord(arg)
		}
	}
	for _, text := range append([]string{command, shell.Stdin}, slices.Collect(maps.Values(shell.Env))...) {
		if strings.Contains(unliteralOnly(text), "{{") {
			return nil, "it has templates"
		}
	}
	times, reason := timesOf(j)
	if reason != "" {
		return nil, reason
	}
	text, reason := percents(unliteral(command), unliteral(shell.Stdin))
	if reason != "" {
		return nil, reason
	}
	if format == System {
		text = shell.User + " " + text
	}
	if strings.HasPrefix(text, "=") {
		return nil, "its command begins with =, so that the line would be a setting"
	}
	for _, when := range times {
		lines = append(lines, when+" "+text)
	}
	return lines, ""
}

// percents returns a command and its standard input as a line has them: a percent sign
// without a backslash begins the input, and is a line break in it.
func percents(command, stdin string) (text, reason string) {
	switch {
	case strings.Contains(command, "\n"):
		return "", "its command has several lines"
	case hasControl(command):
		return "", "its command has control characters"
	case hasControl(strings.ReplaceAll(stdin, "\n", "")):
		return "", "its stdin has control characters"
	}
	const reads = "a crontab would read a backslash of its "
	text = percent(command)
	if back, in := standardInput(text); back != command || in != "" {
		return "", reads + "command differently"
	}
	if stdin == "" {
		return text, ""
	}
	in := stdin
	if short := strings.TrimSuffix(in, "\n"); short != "" && !strings.HasSuffix(short, "\n") {
		in = short // cron adds it
	}
	text += "%" + strings.ReplaceAll(percent(in), "\n", "%")
	if back, in := standardInput(text); back != command || strings.TrimSuffix(in, "\n") != strings.TrimSuffix(stdin, "\n") {
		return "", reads + "stdin differently"
	}
	return text, ""
}

// unliteralOnly removes what literal made, so that what is left of braces is a template.
func unliteralOnly(text string) string { return strings.ReplaceAll(text, `{{ "{{" }}`, "") }

// percent escapes percent signs.
func percent(text string) string { return strings.ReplaceAll(text, "%", `\%`) }

// shellWord quotes a word for a shell, where that is needed.
func shellWord(word string) string {
	if word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:=@,+") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// timesOf returns when a job is due, an expression a line.
func timesOf(j *job.Job) (times []string, reason string) {
	s := &j.Schedule
	if s.Boot {
		return []string{"@reboot"}, ""
	}
	if len(s.Cron) == 0 {
		return nil, "it has no cron expression"
	}
	for _, text := range s.Cron {
		e, err := cron.Parse(text, cron.WithDialect(s.Dialect.Grammar()), cron.WithJob(j.Namespace, j.Name))
		if err != nil {
			return nil, fmt.Sprintf("%q has no fields: %v", text, err)
		}
		canonical := e.String()
		back, err := cron.Parse(canonical, cron.WithDialect(cron.Vixie5))
		if err != nil || !sameTimes(back, e) {
			return nil, fmt.Sprintf("a crontab cannot say %q", text)
		}
		times = append(times, canonical)
	}
	return times, ""
}

// sameTimes reports whether two expressions fall due at the same times, as far as the next
// ones show: the grammars differ where days are bounded twice.
func sameTimes(a, b *cron.Expression) bool {
	const compared = 100
	at, bt := never, never
	for range compared {
		at, bt = a.Next(at), b.Next(bt)
		if !at.Equal(bt) {
			return false
		}
		if at.IsZero() {
			return true
		}
	}
	return true
}
