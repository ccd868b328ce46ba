package job

import (
	"regexp"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// A quoted value is one word, but that word may be a program, or code for a program. Such
// positions, and uncertain ones, refuse values with arbitrary text, unless the job sets
// run.unsafe_params.

// commandPosition follows the words of a command.
type commandPosition struct {
	// arguments is set after the name of the program.
	arguments bool
	// file is set if the next word is the file of a redirection.
	file bool
	// wrapped is set after a program that executes another one. operands counts its own leading
	// words, and option is set after its options, which may have values.
	wrapped  bool
	operands int
	option   bool
	// reader is a program that reads code in its next words, in all of them if always is set.
	reader string
	always bool
	// perhaps is an argument with the name of an interpreter: followed by an option such as -c, as
	// in docker exec box sh -c, it is one.
	perhaps string
}

// interpreters read code from the first word that is no option, or after an option such as -c.
// Their names lack trailing numbers.
var interpreters = []string{
	"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "python", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun", "lua", "luajit",
	"php", "Rscript", "tclsh", "expect", "pwsh", "powershell", "osascript", "awk", "gawk", "mawk", "nawk",
}

// readers read all of their words as code.
var readers = []string{"ssh", "su", "watch", "parallel", "eval"}

// evaluators read their first word as code, or as a file of code.
var evaluators = []string{".", "source", "trap"}

// executing are options, of find for example, before a command.
var executing = []string{"-exec", "-execdir", "-ok", "-okdir", "--exec"}

// wrappers execute the program in their words, after this many own operands.
var wrappers = map[string]int{
	"env": 0, "sudo": 0, "doas": 0, "runuser": 0, "nohup": 0, "nice": 0, "ionice": 0, "chrt": 1, "taskset": 1, "setsid": 0, "stdbuf": 0, "time": 0,
	"exec": 0, "command": 0, "builtin": 0, "xargs": 0, "busybox": 0, "strace": 0, "chronic": 0, "unshare": 0, "nsenter": 0, "systemd-run": 0,
	"systemd-inhibit": 0, "setpriv": 0, "timeout": 1, "flock": 1, "chroot": 1,
}

// beforeCommands are shell words that precede a command.
var beforeCommands = []string{"if", "then", "else", "elif", "while", "until", "do", "!", "{", "coproc"}

// codeVariables are variables whose value decides what programs execute.
var codeVariables = []string{
	"PATH", "ENV", "BASH_ENV", "SHELL", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "IFS", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",
	"DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PERL5LIB", "PERL5OPT", "RUBYLIB", "RUBYOPT",
	"NODE_PATH", "NODE_OPTIONS", "CLASSPATH", "JAVA_TOOL_OPTIONS", "GIT_SSH", "GIT_SSH_COMMAND", "EDITOR", "VISUAL", "PAGER",
}

var (
	assignmentPattern = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)\+?=`)
	codeOptionPattern = regexp.MustCompile(`^(-[A-Za-z]*[ceEr]|--(eval|command|print))$`)
	numberPattern     = regexp.MustCompile(`^[0-9]+[smhd]?$`)
)

// refusal explains how a value would decide what runs, as part of the next word, which
// begins so; none if it would not.
func (p *commandPosition) refusal(word string) phrase.Text {
	assigned := assignmentPattern.FindStringSubmatch(word)
	switch {
	case p.file:
	case assigned != nil && slices.Contains(codeVariables, assigned[1]):
		return phrase.InVariable.Of(assigned[1])
	case p.reader != "":
		return phrase.WhereReads.Of(p.reader)
	case !p.arguments && assigned == nil:
		return phrase.AsProgram
	}
	return phrase.Text{}
}

// end handles the end of a word.
func (p *commandPosition) end(word string) {
	isOption := strings.HasPrefix(word, "-")
	switch {
	case p.file:
		p.file = false
		return
	case p.always:
		return
	case p.reader != "" && !isOption:
		p.reader = ""
		return
	}
	name := word[strings.LastIndex(word, "/")+1:]
	interprets := slices.Contains(interpreters, strings.TrimRight(name, "0123456789."))
	if p.arguments {
		switch {
		case slices.Contains(executing, word):
			*p = commandPosition{wrapped: true}
		case p.perhaps != "" && codeOptionPattern.MatchString(word):
			p.reader, p.perhaps = p.perhaps, ""
		case interprets:
			p.perhaps = name
		case !isOption:
			p.perhaps = ""
		}
		return
	}
	afterOption := p.option
	p.option = p.wrapped && isOption && len(word) == 2
	switch {
	case assignmentPattern.MatchString(word), slices.Contains(beforeCommands, word):
	case p.operands > 0 && !isOption:
		p.operands--
	case p.wrapped && (isOption || afterOption || numberPattern.MatchString(word)):
	case interprets, slices.Contains(evaluators, name):
		*p = commandPosition{arguments: true, reader: name}
	case slices.Contains(readers, name):
		*p = commandPosition{arguments: true, reader: name, always: true}
	default:
		if operands, ok := wrappers[name]; ok {
			*p = commandPosition{wrapped: true, operands: operands}
			return
		}
		*p = commandPosition{arguments: true}
	}
}

// join returns the position after an if, from the positions at the ends of its branches.
func (p commandPosition) join(other commandPosition) commandPosition {
	switch {
	case p == other, p.always:
		return p
	case other.always:
		return other
	case p.reader != "":
		return p
	case other.reader != "":
		return other
	}
	return commandPosition{}
}

// wordAt is a word of a command with its place.
type wordAt struct {
	at   *path
	text string
}

// checkPositions checks words that no shell reads, and the variables of the environment.
func (v *validator) checkPositions(params []string, words []wordAt, env map[string]string, envAt *path) {
	refuse := func(at *path, text string, where func(free string) phrase.Text) {
		t, err := CompileTemplate(TemplatePrivate, text, params)
		if err != nil || t.free == "" {
			return // templates report the error
		}
		if place := where(t.free); !place.IsZero() {
			v.report(at, phrase.FreeNotThere.Of(t.free, place), phrase.UnsafeForm)
		}
	}
	var position commandPosition
	for _, word := range words {
		before, _, _ := strings.Cut(word.text, "{{")
		refuse(word.at, word.text, func(string) phrase.Text { return position.refusal(before) })
		position.end(word.text)
	}
	for _, name := range codeVariables {
		if text, ok := env[name]; ok {
			refuse(envAt.field(name), text, func(string) phrase.Text {
				return phrase.InVariable.Of(name)
			})
		}
	}
}

// positions returns the words of a command that no shell reads.
func (s *Shell) positions(at *path) (words []wordAt) {
	if len(s.Args) == 0 || s.Command == "" {
		return nil
	}
	words = append(words, wordAt{at.field("command"), s.Command})
	for i, arg := range s.Args {
		words = append(words, wordAt{at.field("args").item(i), arg})
	}
	return words
}
