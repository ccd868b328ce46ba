package job

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// WorkShell is the kind of work of a command or script.
const WorkShell Work = "shell"

// Shell is a command or a script. Exactly one of Command and Script is given.
//
// A Command without Args is a text for a shell, sh unless Interpreter names another. A
// Command with Args is a program that is executed directly, without a shell. A Script is
// written to a file and executed by Interpreter with that file and Args as its arguments;
// it is not a template, since its language is unknown, and reads the environment instead.
type Shell struct {
	Command     string   `json:"command,omitzero" short:"true" max:"65536" doc:"A command line for the shell; with args, the program to execute without a shell. A template."`
	Script      string   `json:"script,omitzero" max:"262144" doc:"A script for the interpreter. Not a template: it reads BELFRY_ variables."`
	Interpreter []string `json:"interpreter,omitzero" max:"4096" doc:"What executes the script or command, with its options: bash, or [python3, -u]. Default: the program after #! in the first line of a script, else sh; a command of plain words without shell syntax is executed directly."`
	Args        []string `json:"args,omitzero" items:"1000" max:"65536" doc:"Arguments of the program or script, passed verbatim. Templates."`

	// The environment and limits of the process.
	Env    map[string]string `json:"env,omitzero" beside:"true" secret:"value" items:"1000" doc:"Environment variables. Values are templates."`
	Dir    string            `json:"dir,omitzero" beside:"true" max:"4096" doc:"The working directory, an absolute path on the node. Default: the node's work directory."`
	User   string            `json:"user,omitzero" beside:"true" max:"64" doc:"The user to run as on the machine of the node, by name or number."`
	Group  string            `json:"group,omitzero" beside:"true" max:"64" doc:"The group to run as. Default: the user's."`
	Umask  *Umask            `json:"umask,omitzero" beside:"true" doc:"The file mode creation mask in octal digits, for example 027. It may be stricter than shell.umask of the node, not more open. Default: shell.umask, 022."`
	Nice   int               `json:"nice,omitzero" beside:"true" min:"-20" max:"19" doc:"The scheduling priority, from -20 (first) to 19 (last), but not below shell.nice_min of the node, which is 0 by default. Default: 0."`
	Files  map[string]string `json:"files,omitzero" beside:"true" secret:"value" items:"50" max:"262144" doc:"Files that exist while the command runs, readable only by its user. Keys are environment variables for their paths, values their contents, as templates."`
	Stdin  string            `json:"stdin,omitzero" beside:"true" secret:"value" max:"1048576" doc:"What the command reads from its standard input. A template. Default: nothing."`
	Limits *Limits           `json:"limits,omitzero" beside:"true" doc:"Resource limits of the command."`

	UnsafeParams bool `json:"unsafe_params,omitzero" beside:"true" doc:"Allow parameters as the program of a command, as code that it reads, or in PATH: anyone who may run the job may then run any program as its user."`
}

// Limits are the resource limits of a command.
type Limits struct {
	Memory Size    `json:"memory,omitzero" min:"1MiB" max:"1024TiB" doc:"The memory limit of all processes of the run, for example 512MiB; of each process on a node without cgroup controllers."`
	CPU    float64 `json:"cpu,omitzero" min:"0.01" max:"1024" doc:"The maximum number of processors; 0.5 is half of one. On a node without cgroup controllers each process is limited to this many times the timeout of processor time, or not at all without a timeout."`
}

func (s *Shell) kind() Work { return WorkShell }

func (s *Shell) spec() RunSpec { return RunSpec{Shell: s} }

func (s *Shell) traits() traits {
	return traits{hasExitCode: true, hasOutput: true, hasUsage: true, unsafeParams: s.UnsafeParams, subject: s.Command}
}

func (s *Shell) filled() work { return s }

func (s *Shell) expand(visit visitor, run *path) work {
	expanded := *s
	kind := TemplateShell
	if len(s.Args) > 0 {
		kind = TemplateText // no shell reads it
	}
	at := run.field("shell")
	expanded.Command = visit(kind, s.Command, at.field("command"))
	expanded.Args = slices.Clone(s.Args)
	for i, arg := range s.Args {
		expanded.Args[i] = visit(TemplateText, arg, at.field("args").item(i))
	}
	expanded.Env = visit.all(TemplatePrivate, s.Env, run.field("env"))
	expanded.Files = visit.all(TemplatePrivate, s.Files, run.field("files"))
	expanded.Stdin = visit(TemplatePrivate, s.Stdin, run.field("stdin"))
	return &expanded
}

func (s *Shell) check(v *validator, j *Job, run *path) {
	s.checkCommand(v, run.field("shell"))
	s.checkProcess(v, run)
	if !s.UnsafeParams {
		v.checkPositions(j.paramNames(), s.positions(run.field("shell")), s.Env, run.field("env"))
	}
}

func (s *Shell) envNames() []string { return slices.Sorted(maps.Keys(s.Env)) }

// checkProcess checks the settings of the command's process.
func (s *Shell) checkProcess(v *validator, run *path) {
	variable := func(at *path, name string) {
		v.checkVariable(at, name)
		v.refuse(strings.HasPrefix(name, variablePrefix), at, phrase.ReservedPrefix.Of(variablePrefix))
	}
	for _, name := range s.envNames() {
		variable(run.field("env").field(name), name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		at := run.field("files").field(name)
		variable(at, name)
		_, twice := s.Env[name]
		v.refuse(twice, at, phrase.InEnvToo, phrase.LeaveOutOfEnv)
		v.refuse(slices.Contains(codeVariables, name), at, phrase.DecidesPrograms)
	}
	v.refuse(s.Dir != "" && !absolutePattern.MatchString(s.Dir), run.field("dir"), phrase.NotPath.Of(quote(s.Dir)), phrase.DirsDiffer)
	v.refuse(strings.ContainsFunc(s.Dir, unicode.IsControl), run.field("dir"), phrase.HasControl)
	for _, account := range []struct {
		field, name string
		what        phrase.Text
	}{{"user", s.User, phrase.AUser}, {"group", s.Group, phrase.AGroup}} {
		v.refuse(account.name != "" && !accountPattern.MatchString(account.name), run.field(account.field), phrase.NotAccount.Of(quote(account.name), account.what))
	}
	for _, field := range []struct{ name, text string }{{"dir", s.Dir}, {"user", s.User}, {"group", s.Group}} {
		v.refuse(strings.Contains(field.text, "{{"), run.field(field.name), phrase.NotATemplate.Of("{{"))
	}
}

var (
	absolutePattern = regexp.MustCompile(`^(/|[A-Za-z]:[/\\])`)
	accountPattern  = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.-]*\$?|[0-9]+)$`)
)

// shells are the programs that read a command, by the last part of their path. They share quoting
// rules, which makes templates in commands safe.
var shells = []string{"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"}

func (s *Shell) checkCommand(v *validator, at *path) {
	v.refuse((s.Command != "") == (s.Script != ""), at, phrase.OneOfCommands, phrase.Example.Of("shell: echo hello"))
	v.refuse(s.Command != "" && strings.TrimSpace(s.Command) == "", at.field("command"), phrase.Blank)
	for i, text := range s.Interpreter {
		v.refuse(strings.ContainsFunc(text, unicode.IsControl), at.field("interpreter").item(i), phrase.HasControl)
	}
	if len(s.Interpreter) == 0 {
		return
	}
	if program := s.Interpreter[0]; strings.ContainsAny(program, " \t") {
		v.report(at.field("interpreter").item(0), phrase.HasBlank.Of(quote(program)), phrase.WriteOptions.Of("["+strings.Join(strings.Fields(program), ", ")+"]"))
		return
	}
	if s.Command == "" {
		return
	}
	v.refuse(len(s.Args) > 0, at.field("interpreter"), phrase.NotWithArgs, phrase.ArgsOrInterpreter)
	program := s.Interpreter[0]
	program = program[strings.LastIndex(program, "/")+1:]
	v.refuse(!slices.Contains(shells, program), at.field("interpreter"), phrase.NotShell.Of(quote(program)), phrase.ShellForm.Of(shells))
}

// AsCommand returns the user that a command names, "" for none, and whether sh reads the command.
// isCommand is false for other work.
func (r *RunSpec) AsCommand() (user string, needsShell, isCommand bool) {
	s := r.Shell
	if s == nil {
		return "", false, false
	}
	if len(s.Interpreter) > 0 || strings.HasPrefix(s.Script, "#!") || s.Script == "" && len(s.Args) > 0 {
		return s.User, false, true
	}
	_, plain := PlainWords(s.Command)
	return s.User, !plain, true
}

// NodePaths returns the working directory and the interpreter that a command names on its node, "" for none.
func (r *RunSpec) NodePaths() (dir, interpreter string) {
	if r.Shell == nil {
		return "", ""
	}
	if len(r.Shell.Interpreter) > 0 {
		interpreter = r.Shell.Interpreter[0]
	}
	return r.Shell.Dir, interpreter
}
