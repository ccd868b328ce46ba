package shell

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

const defaultShell = "sh"

// inlineOptions are the interpreters' options that take a program as an argument, if not -c.
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
		if words, ok := job.PlainWords(s.Command); ok && len(s.Interpreter) == 0 {
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

// named returns the interpreter in the first line of a script and, as on Linux, the rest of the
// line as one argument; nil without such a line. The kernel cannot do that for scripts in a
// directory mounted noexec.
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

// wrap returns the command line that applies the settings. argv[0] is a path.
func (t trampoline) wrap(argv []string, prefix ...string) []string {
	script := strings.Join(t, " && ") + ` && exec "$@"; exit 126`
	return slices.Concat([]string{"/bin/sh", "-c", script, "belfry"}, prefix, argv)
}

// environment returns the variables of a command in the form NAME=value. The two variables of the
// attempt come first, where the watchdog expects them.
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
