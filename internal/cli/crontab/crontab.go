// Package crontab turns the schedules of other programs into jobs: crontabs of users and of
// the system, anacrontabs, folders for run-parts, and systemd timers. It also writes jobs
// as lines of a crontab, as far as crontabs can express them.
//
// Each line becomes an equivalent job: cron does not catch up and lets a command overlap
// itself, so the job does the same. A note reports the parts of a line that a job cannot
// keep. The package reads no file, no clock and no list of users; [Options] describe the
// machine.
package crontab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// Format is the grammar of a file.
type Format string

// The formats.
const (
	User    Format = "user"    // crontab(5), as crontab -e shows it
	System  Format = "system"  // crontab(5) with a user before each command: /etc/crontab, /etc/cron.d
	Anacron Format = "anacron" // anacrontab(5)
	Timer   Format = "timer"   // systemd.timer(5)
)

// Formats returns all formats.
func Formats() []string {
	return []string{string(User), string(System), string(Anacron), string(Timer)}
}

// FormatOf returns the format of a file by its path alone. A guess by content would
// take a command for a user.
func FormatOf(file string) Format {
	switch dir, base := path.Dir(file), path.Base(file); {
	case strings.HasSuffix(base, ".timer"):
		return Timer
	case base == "anacrontab":
		return Anacron
	case file == "/etc/crontab", path.Base(dir) == "cron.d":
		return System
	}
	return User
}

// Options are what the text of a file does not say.
type Options struct {
	Format Format
	// Owner runs the commands of formats without a column for the user. Empty leaves
	// the user of each job to the node.
	Owner string
	// Zone is the time zone of the machine, which crontabs mean.
	Zone string
	// Unit is the service of a timer that names none: the service of the same name.
	Unit string
	// Host binds the jobs to a node by its label host. Empty binds them to none.
	Host string
	// Home returns the home directory of a user, in which cron starts commands, or ""
	// if it is not known. Nil knows none.
	Home func(user string) string
	// Unknown reports that this machine has no such user. Nil knows all.
	Unknown func(user string) bool
	// MailServer sends the failures of the jobs to the addresses of MAILTO: host:port, "" to send
	// none. MailFrom is the sender.
	MailServer, MailFrom string
	// Protected says that the unit of a server on this machine protects it from its commands.
	Protected bool
	// Scripts returns the scripts that run-parts executes in a folder, in their order,
	// or nil if the folder cannot be read. Nil leaves lines with run-parts as they are.
	Scripts func(folder string) []string
}

// Line is a line of a file that says when to run something.
type Line struct {
	Number int    // from 1
	Text   string // as it stands there, without the end of the line
	// Documents are the jobs that the line makes, and the pool that they share.
	// There are none where Problem says why.
	Documents []job.Document
	Notes     []phrase.Text // what is different from the original
	Problem   phrase.Text
}

// Import reads a file. Comments, empty lines and settings make no [Line].
func Import(text string, opt Options) []Line {
	r := &reader{Options: opt, taken: map[string]bool{}}
	switch opt.Format {
	case Anacron:
		r.anacrontab(text)
	case Timer:
		r.timer(text)
	default:
		r.crontab(text)
	}
	return r.lines
}

// reader turns the lines of one file into jobs.
type reader struct {
	Options
	lines []Line
	taken map[string]bool // names of jobs
	// mailed is the address of the latest note about mail, and channels are for the addresses.
	mailed   string
	channels map[string]*job.Channel
}

// settings are the lines NAME=value that hold for the lines below them.
type settings struct {
	names  []string // in the order of the file
	values map[string]string
}

func (s *settings) set(name, value string) {
	if s.values == nil {
		s.values = map[string]string{}
	}
	if _, known := s.values[name]; !known {
		s.names = append(s.names, name)
	}
	s.values[name] = value
}

// notPassedOn are settings that no command needs to see: cron replaces them, or they
// became a field of the job.
var notPassedOn = map[string]bool{
	"SHELL": true, "LOGNAME": true, "USER": true, "CRON_TZ": true, "RANDOM_DELAY": true, "START_HOURS_RANGE": true,
}

// task is what a line runs, before it becomes a job.
type task struct {
	user    string
	command string // as the shell gets it
	stdin   string
}

// newJob returns the job of a task: one that behaves as cron does.
func (r *reader) newJob(t task, s *settings, line *Line) *job.Job {
	j := &job.Job{
		Name: r.name(t),
		Run: job.RunSpec{
			Shell: &job.Shell{Command: literal(t.command), Stdin: literal(t.stdin), User: t.user},
		},
		Policy: job.Policy{Overlap: job.OverlapAllow, Missed: job.MissedNone},
	}
	if shell := s.values["SHELL"]; shell != "" && shell != "/bin/sh" {
		j.Run.Shell.Interpreter = []string{shell}
	}
	for _, name := range s.names {
		switch {
		case notPassedOn[name]:
		case !isVariable(name):
			line.note(phrase.NotVariableName.Of(phrase.Quoted(name)))
		default:
			if j.Run.Shell.Env == nil {
				j.Run.Shell.Env = map[string]string{}
			}
			j.Run.Shell.Env[name] = literal(s.values[name])
		}
	}
	switch home := s.values["HOME"]; {
	case home != "":
		j.Run.Shell.Dir = home
	case r.Home != nil && t.user != "":
		j.Run.Shell.Dir = r.Home(t.user)
	}
	if j.Run.Shell.Dir == "" {
		line.note(phrase.HomeDirectory)
	}
	r.mail(s.values["MAILTO"], j, line)
	if r.Unknown != nil && t.user != "" && r.Unknown(t.user) {
		line.note(phrase.NoUserHere.Of(t.user))
	}
	line.noteOfProtections(t.command, r.Protected)
	if r.Host != "" {
		j.Place.Labels = map[string]string{"host": r.Host}
	}
	return j
}

// isVariable reports whether a job can have an environment variable of this name.
func isVariable(name string) bool {
	return name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == "" && strings.Trim(name[:1], "0123456789") != ""
}

// add keeps the job of a line.
func (l *Line) add(j *job.Job) {
	l.Documents = append(l.Documents, job.Document{Kind: job.KindJob, Job: j})
}

func (l *Line) note(text phrase.Text) { l.Notes = append(l.Notes, text) }

// literal returns a template that makes a text as it is.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }

const (
	nameMax = 60 // of the readable part of a name
	hashLen = 3  // bytes: enough to tell the lines of one machine apart
)

// name returns a name that a second import of the same file gives again, and that
// lines above and below do not change: the program, and a hash of user and command.
// Lines with the same command are numbered.
func (r *reader) name(t task) string {
	sum := sha256.Sum256([]byte(t.user + "\x00" + t.command + "\x00" + t.stdin))
	return r.free(slug(program(t.command)) + "-" + hex.EncodeToString(sum[:hashLen]))
}

// NameOf returns the name that a command of a user has as a job.
func NameOf(user, command string) string {
	r := &reader{taken: map[string]bool{}}
	return r.name(task{user: user, command: command})
}

// free returns a name that no other line has.
func (r *reader) free(base string) string {
	name := base
	for n := 2; r.taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	r.taken[name] = true
	return name
}

// wrappers are words before the command that a person would name.
var wrappers = map[string]bool{
	"cd": true, "test": true, "[": true, "if": true, "then": true, "nice": true, "ionice": true, "nohup": true, "sudo": true,
	"time": true, "exec": true, "flock": true, "timeout": true, "env": true, "sleep": true, "command": true, "chronic": true,
	"root": true, "sh": true, "bash": true, "php": true, "python": true, "python3": true, "perl": true, "ruby": true, "node": true,
	".": true, "source": true, "true": true, "umask": true, "export": true, "set": true, "&&": true, "||": true,
}

// program returns the word of a command that tells most about it.
func program(command string) string {
	best := ""
	for part := range strings.FieldsFuncSeq(command, func(c rune) bool { return strings.ContainsRune(";|&()", c) }) {
		inCD := false
		for _, word := range strings.Fields(part) {
			word = strings.Trim(word, `"'`)
			base := path.Base(word)
			switch {
			case word == "cd":
				inCD = true
				continue
			case inCD, word == "", strings.HasPrefix(word, "-"), strings.ContainsAny(word, "=<>$"), isNumber(word):
				continue
			case wrappers[base]:
				if best == "" {
					best = base
				}
				continue
			}
			return base
		}
	}
	return best
}

func isNumber(word string) bool {
	return strings.Trim(word, "0123456789.smhd") == "" && word != "." && strings.ContainsAny(word, "0123456789")
}

// slug returns a text as a name of a job may have it.
func slug(text string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(text) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_' && b.Len() > 0:
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == nameMax {
			break
		}
	}
	if name := strings.TrimRight(b.String(), "-_"); name != "" {
		return name
	}
	return "job"
}
