package shell

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

// plainWords returns the words of a command that a shell would only split at blanks and
// execute, and whether the command is such. It is if
//
//   - it consists of letters, digits and _ . / : , + @ % = - and of blanks
//     between words: no quotes, variables, patterns, redirections or lists;
//   - its first word is not an assignment, an option or a job (%1),
//   - and is nothing that shells know themselves: what they do then may differ
//     from the program of that name, such as echo.
//
// When in doubt, a command is for the shell.
func plainWords(command string) ([]string, bool) {
	command = strings.Trim(command, " \t\n")
	for i := range len(command) {
		if !plain[command[i]] {
			return nil, false
		}
	}
	words := strings.FieldsFunc(command, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) == 0 || strings.ContainsAny(words[0], "=%") || words[0][0] == '-' || shellWords[words[0]] {
		return nil, false
	}
	return words, true
}

// plain are the characters without a special meaning to a shell anywhere in a word.
var plain = func() (set [256]bool) {
	const characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,+@%=- \t"
	for i := range len(characters) {
		set[characters[i]] = true
	}
	return set
}()

// shellWords are the builtins and reserved words of dash, bash, ksh, zsh and
// busybox, any of which may be sh.
var shellWords = func() map[string]bool {
	set := map[string]bool{}
	for _, word := range strings.Fields(`
		. : alias autoload bg bind bindkey break builtin bye caller case cd chdir command compgen
		complete compopt continue coproc declare dirs disable disown do done echo echotc
		elif else emulate enable esac eval exec exit export false fc fg fi float for foreach
		function functions getln getopts hash help hist history if in integer jobs kill let
		limit local log logout mapfile nameref newgrp nocorrect noglob popd print printf
		private pushd pushln pwd r read readarray readonly rehash repeat return sched
		select set setopt shift shopt source stat suspend test then time times trap true
		ttyctl type typeset ulimit umask unalias unfunction unhash unlimit unset unsetopt
		until vared wait whence where which while zmodload`) {
		set[word] = true
	}
	return set
}()

const defaultShell = "sh"

// inlineOptions are those of interpreters that take a program as an argument
// and not, like most, with -c.
var inlineOptions = map[string]string{
	"perl": "-e", "ruby": "-e", "node": "-e", "nodejs": "-e", "lua": "-e", "Rscript": "-e", "php": "-r",
}

// commandLine returns the words to execute, the program first. File is where a
// script was written to.
func commandLine(s *job.Shell, file string) ([]string, error) {
	interpreter := s.Interpreter
	if len(interpreter) == 0 {
		interpreter = named(s.Script)
	}
	if len(interpreter) == 0 {
		interpreter = []string{defaultShell}
	}
	var argv []string
	switch {
	case s.Script != "":
		argv = append(slices.Clone(interpreter), file)
		argv = append(argv, s.Args...)
	case len(s.Args) > 0:
		argv = append([]string{s.Command}, s.Args...)
	default:
		if words, ok := plainWords(s.Command); ok && len(s.Interpreter) == 0 {
			return words, nil
		}
		option := inlineOptions[filepath.Base(interpreter[0])]
		if option == "" {
			option = "-c"
		}
		argv = append(slices.Clone(interpreter), option, s.Command)
	}
	for _, word := range argv {
		if strings.Contains(word, "\x00") {
			return nil, fmt.Errorf("the command has a NUL byte")
		}
	}
	if argv[0] == "" {
		return nil, fmt.Errorf("the command is empty")
	}
	return argv, nil
}

// named returns the interpreter in the first line of a script and, as Linux passes it,
// the rest of the line as one argument; none without such a line. The kernel cannot do
// that if the directory of scripts is mounted noexec.
func named(script string) []string {
	line, isNamed := strings.CutPrefix(script, "#!")
	if !isNamed {
		return nil
	}
	line, _, _ = strings.Cut(line, "\n")
	line = strings.TrimSpace(line)
	blank := strings.IndexAny(line, " \t")
	switch {
	case line == "":
		return nil
	case blank < 0:
		return []string{line}
	}
	return []string{line[:blank], strings.TrimSpace(line[blank:])}
}

// trampoline are the settings that a shell makes before the command replaces it.
type trampoline []string

func (t *trampoline) add(format string, args ...any) {
	*t = append(*t, fmt.Sprintf(format, args...))
}

// wrap returns the command line behind the settings. Argv[0] is a path.
func (t trampoline) wrap(argv []string, prefix ...string) []string {
	script := strings.Join(t, " && ") + ` && exec "$@"; exit 126`
	return slices.Concat([]string{"/bin/sh", "-c", script, "belfry"}, prefix, argv)
}

// environment returns the variables of a command in the form NAME=value. The
// two that name the attempt come first, where the watchdog looks for them.
func environment(base, config, own, belfry map[string]string) []string {
	all := make(map[string]string, len(base)+len(config)+len(own)+len(belfry))
	for _, vars := range []map[string]string{base, config, own, belfry} {
		for name, value := range vars {
			all[name] = value
		}
	}
	env := make([]string, 0, len(all))
	for name, value := range all {
		if name != runVariable && name != attemptVariable {
			env = append(env, name+"="+value)
		}
	}
	slices.Sort(env)
	return slices.Concat([]string{runVariable + "=" + all[runVariable], attemptVariable + "=" + all[attemptVariable]}, env)
}

const (
	runVariable     = "BELFRY_RUN"
	attemptVariable = "BELFRY_ATTEMPT"
)
