package crontab

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/job"
)

// Export writes jobs as a crontab, of a user or of the system. Settings that a crontab
// cannot express become a comment with the reason: defaults are the values for unset fields
// of a job.
func Export(jobs []*job.Job, format Format, defaults job.Defaults) string {
	groups := map[string][]string{} // lines by the settings that they need
	for _, j := range jobs {
		filled := j.WithDefaults(defaults)
		lines, reason := entries(filled, format)
		head := "# " + j.FullName()
		if j.Description != "" {
			head += ": " + oneLine(j.Description)
		}
		key := ""
		if reason != "" {
			lines = []string{"#   left out: " + reason}
		} else {
			key = settingsOf(filled)
		}
		groups[key] = append(groups[key], strings.Join(append([]string{head}, lines...), "\n"))
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(key)
		for _, text := range groups[key] {
			b.WriteString(text + "\n")
		}
	}
	return b.String()
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// settingsOf returns the lines NAME=value that must stand before a job.
func settingsOf(j *job.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CRON_TZ=%s\n", cmp.Or(j.Schedule.Timezone, "UTC"))
	if len(j.Run.Shell.Interpreter) == 1 {
		fmt.Fprintf(&b, "SHELL=%s\n", j.Run.Shell.Interpreter[0])
	}
	if dir := j.Run.Shell.Dir; dir != "" && j.Run.Shell.Env["HOME"] == "" {
		fmt.Fprintf(&b, "HOME=%s\n", dir)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Run.Shell.Env)) {
		fmt.Fprintf(&b, "%s=%s\n", name, quoted(unliteral(j.Run.Shell.Env[name])))
	}
	return b.String()
}

// quoted returns a value whose blanks at the ends count.
func quoted(value string) string {
	if strings.Trim(value, blank) != value || value == "" {
		return `"` + value + `"`
	}
	return value
}

// unliteral undoes literal.
func unliteral(template string) string { return strings.ReplaceAll(template, `{{ "{{" }}`, "{{") }

// entries returns the lines of a job, or why there are none.
func entries(j *job.Job, format Format) (lines []string, reason string) {
	shell := j.Run.Shell
	switch {
	case shell == nil:
		return nil, "it does not run a command"
	case shell.Script != "":
		return nil, "it runs a script that is part of the job"
	case len(shell.Interpreter) > 1:
		return nil, "its interpreter has options"
	case j.Paused:
		return nil, "it is paused"
	case format == System && j.Run.Shell.User == "":
		return nil, "it names no user, which a system crontab requires"
	case len(j.Schedule.Only)+len(j.Schedule.Except) > 0:
		return nil, "its schedule has only or except"
	case j.Schedule.Boot && len(j.Schedule.Cron) > 0:
		return nil, "it is due both by the clock and at the start of nodes"
	case j.Schedule.Spread > 0:
		return nil, "its schedule has spread"
	}
	command := shell.Command
	for _, arg := range shell.Args {
		command += " " + shellWord(arg)
	}
	for _, text := range append([]string{command, j.Run.Shell.Stdin}, slices.Collect(maps.Values(j.Run.Shell.Env))...) {
		switch text = unliteralOnly(text); {
		case strings.Contains(text, "{{"):
			return nil, "it has templates"
		}
	}
	if strings.Contains(command, "\n") {
		return nil, "its command has several lines"
	}
	times, reason := timesOf(j)
	if reason != "" {
		return nil, reason
	}
	text := percent(unliteral(command))
	if in := unliteral(j.Run.Shell.Stdin); in != "" {
		text += "%" + strings.ReplaceAll(percent(strings.TrimSuffix(in, "\n")), "\n", "%")
	}
	user := ""
	if format == System {
		user = j.Run.Shell.User + " "
	}
	for _, when := range times {
		lines = append(lines, when+" "+user+text)
	}
	return lines, ""
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
