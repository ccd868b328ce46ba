package crontab

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

const blank = " \t"

// crontab reads a table of crontab(5), as cronie does, and Debian's cron but for what
// notForCron in cron_test.go names.
func (r *reader) crontab(text string) {
	var s settings
	last := strings.Count(text, "\n") + 1
	for number, line := range numbered(text) {
		trimmed := strings.TrimLeft(line, blank)
		if trimmed == "" || trimmed[0] == '#' {
			continue
		}
		if name, value, ok := setting(trimmed); ok {
			s.set(name, value)
			continue
		}
		l := Line{Number: number, Text: line}
		r.entry(trimmed, &s, &l)
		if number == last && !strings.HasSuffix(text, "\n") && l.Problem.IsZero() {
			l.note(phrase.NoEndOfLine)
		}
		r.lines = append(r.lines, l)
	}
}

// userName is what useradd accepts as a name.
var userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]*$`)

// HasUserColumn reports whether the lines of a crontab have a user before their commands, as in the
// system's crontab: one of them a user of this machine, and the others at least a word that is neither
// a path nor a program. A crontab without a line has none.
func HasUserColumn(text string, isUser, isProgram func(word string) bool) bool {
	users := 0
	for _, line := range numbered(text) {
		trimmed := strings.TrimLeft(line, blank)
		if trimmed == "" || trimmed[0] == '#' {
			continue
		}
		if _, _, ok := setting(trimmed); ok {
			continue
		}
		fields := 5
		if strings.HasPrefix(trimmed, "@") {
			fields = 1
		}
		_, rest := words(trimmed, fields)
		user, command := words(rest, 1)
		switch {
		case command == "":
			return false
		case isUser(user):
			users++
		case !userName.MatchString(user) || isProgram(user):
			return false
		}
	}
	return users > 0
}

// MailTo returns the first address of MAILTO in a crontab, "" without one.
func MailTo(text string) string {
	for _, line := range numbered(text) {
		trimmed := strings.TrimLeft(line, blank)
		if trimmed == "" || trimmed[0] == '#' {
			continue
		}
		if name, value, ok := setting(trimmed); ok && name == "MAILTO" && value != "" {
			return value
		}
	}
	return ""
}

// numbered returns the lines of a text with their numbers, from 1.
func numbered(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		n := 0
		for line := range strings.Lines(text) {
			n++
			if !yield(n, strings.TrimRight(line, "\r\n")) {
				return
			}
		}
	}
}

// setting reads NAME=value: the name and the value may be quoted, and blanks around
// both do not count.
func setting(line string) (name, value string, ok bool) {
	rest := line
	switch line[0] {
	case '"', '\'':
		end := strings.IndexByte(line[1:], line[0])
		if end < 0 {
			return "", "", false
		}
		name, rest = line[1:1+end], line[end+2:]
	default:
		end := strings.IndexAny(line, "="+blank)
		if end < 0 {
			return "", "", false
		}
		name, rest = line[:end], line[end:]
	}
	rest = strings.TrimLeft(rest, blank)
	if name == "" || !strings.HasPrefix(rest, "=") {
		return "", "", false
	}
	value = strings.Trim(rest[1:], blank)
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		value = value[1 : n-1]
	}
	return name, value, true
}

// entry reads a line that says when to run a command.
func (r *reader) entry(text string, s *settings, l *Line) {
	text = strings.TrimPrefix(text, "-") // cronie logs nothing of such a line
	fields := 5
	if strings.HasPrefix(text, "@") {
		fields = 1
	}
	when, rest := words(text, fields)
	if rest == "" {
		l.Problem = phrase.FieldsAndCommand.Of(len(strings.Fields(text)), fields)
		return
	}
	t := task{user: r.Owner}
	if r.Format == System {
		if t.user, rest = words(rest, 1); rest == "" {
			l.Problem = phrase.CommandAfterUser
			return
		}
	}
	t.command, t.stdin = standardInput(rest)
	if strings.TrimLeft(t.command, blank) == "" {
		l.Problem = phrase.CommandMissing
		return
	}
	schedule, ok := r.schedule(when, s, l)
	if !ok {
		return
	}
	if strings.Contains(rest, `\\`) {
		l.note(phrase.TwoBackslashes)
	}
	if r.runParts(t, s, schedule, l) {
		return
	}
	j := r.newJob(t, s, l)
	j.Schedule = schedule
	l.add(j)
}

// words cuts the first n words off a text. The words stay as they are but for the
// blanks between them.
func words(text string, n int) (first, rest string) {
	list := make([]string, 0, n)
	for range n {
		end := strings.IndexAny(text, blank)
		if end < 0 {
			end = len(text)
		}
		list = append(list, text[:end])
		text = strings.TrimLeft(text[end:], blank)
	}
	return strings.Join(list, " "), text
}

// standardInput splits the text after the times, as cron does: the first percent sign
// without a backslash begins the standard input, in which others are line breaks. Before
// another character a backslash stays.
func standardInput(text string) (command, stdin string) {
	var cmd strings.Builder
	i, escaped := 0, false
	for ; i < len(text) && (escaped || text[i] != '%'); i++ {
		if escaped && text[i] != '%' {
			cmd.WriteByte('\\')
		}
		if escaped = !escaped && text[i] == '\\'; !escaped {
			cmd.WriteByte(text[i])
		}
	}
	if escaped {
		cmd.WriteByte('\\')
	}
	if i == len(text) {
		return cmd.String(), ""
	}
	var in strings.Builder
	escaped = false
	for _, c := range []byte(text[i+1:]) {
		switch {
		case escaped && c != '%':
			in.WriteByte('\\')
		case !escaped && c == '%':
			c = '\n'
		}
		if escaped = c == '\\'; !escaped {
			in.WriteByte(c)
		}
	}
	if escaped {
		in.WriteByte('\\')
	}
	if stdin = in.String(); stdin != "" && !strings.HasSuffix(stdin, "\n") {
		stdin += "\n"
	}
	return cmd.String(), stdin
}

// schedule reads the times of a line.
func (r *reader) schedule(when string, s *settings, l *Line) (job.Schedule, bool) {
	zone := r.Zone
	if given := s.values["CRON_TZ"]; given != "" {
		if _, err := cron.LoadZone(given); err != nil {
			l.Problem = phrase.InField.Of("CRON_TZ", phrase.OfError(err))
			return job.Schedule{}, false
		}
		zone = given
	}
	schedule := job.Schedule{Timezone: zone}
	if minutes := s.values["RANDOM_DELAY"]; minutes != "" {
		n, err := strconv.Atoi(minutes)
		if err != nil || n < 0 || n > 24*60 {
			l.Problem = phrase.InField.Of("RANDOM_DELAY", phrase.NotRandomDelay.Of(phrase.Quoted(minutes)))
			return job.Schedule{}, false
		}
		schedule.Jitter = job.Duration(time.Duration(n) * time.Minute)
	}
	if when == "@reboot" {
		l.note(phrase.StartOfNode)
		return job.Schedule{Boot: true}, true
	}
	e, err := cron.Parse(when, cron.WithDialect(cron.Vixie5), cron.WithJob("default", "any"))
	if short := fullNames.ReplaceAllStringFunc(when, func(name string) string { return name[:3] }); err != nil && short != when {
		if e, err = cron.Parse(short, cron.WithDialect(cron.Vixie5), cron.WithJob("default", "any")); err == nil {
			l.note(phrase.ShortNames.Of(phrase.Exact(when), phrase.Exact(short)))
			when = short
		}
	}
	if err != nil {
		l.Problem = phrase.OfError(err)
		return job.Schedule{}, false
	}
	if why := e.Never(never); !why.IsZero() {
		l.Problem = phrase.NeverDue.Of(why)
		return job.Schedule{}, false
	}
	if strings.Contains(when, "~") {
		l.note(phrase.DrawnOnce)
	}
	schedule.Cron, schedule.Dialect = []string{when}, job.DialectVixie5
	return schedule, true
}

// fullNames are the names that supercronic and others take, and cron does not.
var fullNames = regexp.MustCompile(`(?i)\b(january|february|march|april|june|july|august|september|october|november|december|sunday|monday|tuesday|wednesday|thursday|friday|saturday)\b`)

// never is the instant from which a line must fall due at some time: any does.
var never = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// runParts makes a job of each script in the folder of a line whose whole command is
// run-parts. As with run-parts, one runs at a time.
func (r *reader) runParts(t task, s *settings, schedule job.Schedule, l *Line) bool {
	folder, ok := runPartsFolder(t.command)
	if !ok || r.Scripts == nil {
		return false
	}
	scripts := r.Scripts(folder)
	if scripts == nil {
		l.note(phrase.FolderUnread.Of(folder))
		return false
	}
	if len(scripts) == 0 {
		l.Problem = phrase.FolderEmpty.Of(folder)
		return true
	}
	pool := slug(path.Base(folder))
	l.Documents = append(l.Documents, job.Document{Kind: job.KindPool, Pool: &job.Pool{Name: pool, Slots: job.Slots{Size: 1}}})
	for _, script := range scripts {
		j := r.newJob(task{user: t.user, command: path.Join(folder, script)}, s, l)
		j.Run.Shell.Dir = "/"
		j.Schedule = schedule
		j.Policy.Overlap, j.Policy.ConcurrencyKey = job.OverlapQueue, pool
		l.add(j)
	}
	l.Notes = []phrase.Text{phrase.JobOfEachScript.Of(folder)}
	return true
}

// runPartsFolder returns the folder of a command that does nothing but run-parts, as
// distributions have it in /etc/crontab.
func runPartsFolder(command string) (string, bool) {
	command = strings.TrimPrefix(strings.TrimSpace(command), "cd / && ")
	if rest, ok := strings.CutPrefix(command, "test -x /usr/sbin/anacron || "); ok {
		command = strings.TrimSpace(rest)
		if inner, ok := strings.CutPrefix(command, "("); ok {
			command = strings.TrimSpace(strings.TrimSuffix(inner, ")"))
		} else if inner, ok := strings.CutPrefix(command, "{"); ok {
			command = strings.TrimSuffix(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(inner), "}")), ";")
		}
		command = strings.TrimPrefix(strings.TrimSpace(command), "cd / && ")
	}
	fields := strings.Fields(strings.TrimPrefix(command, "nice "))
	if len(fields) < 2 || path.Base(fields[0]) != "run-parts" || strings.ContainsAny(command, ";|&<>$`(){}*?") {
		return "", false
	}
	folder := ""
	for _, word := range fields[1:] {
		switch {
		case word == "--report" || word == "--verbose" || word == "-v":
		case strings.HasPrefix(word, "/") && folder == "":
			folder = word
		default:
			return "", false
		}
	}
	return folder, folder != ""
}

// IsScript reports whether run-parts executes a file by its name: letters, digits,
// underscores and hyphens.
func IsScript(name string) bool {
	return name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}
