package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/sys/spelling"
	"github.com/belfry-cron/belfry/job"
)

// failure is an error on its way to a person. Commands return it, and report
// alone prints it.
type failure struct {
	code    ExitCode
	message string
	excerpt string   // the subject of the message, shown below it
	at, len int      // the wrong bytes of excerpt; len 0 is a place
	details []string // further mistakes, a line each
	hint    string   // the remedy
	help    bool     // whether --help has more
	// problem is the server's problem, if it answered with one.
	problem *client.Problem
}

func (f *failure) Error() string { return f.message }

// failed is a failure of a valid request.
func failed(format string, args ...any) *failure {
	return &failure{code: ExitFailed, message: fmt.Sprintf(format, args...)}
}

// misused is a mistake in the command line.
func misused(format string, args ...any) *failure {
	return &failure{code: ExitUsage, message: fmt.Sprintf(format, args...), help: true}
}

// withHint adds a remedy.
func (f *failure) withHint(format string, args ...any) *failure {
	f.hint = fmt.Sprintf(format, args...)
	return f
}

// refusedExpression is the failure for an expression that package cron refuses.
func refusedExpression(err error) *failure {
	var parse *cron.ParseError
	if !errors.As(err, &parse) {
		return &failure{code: ExitUsage, message: err.Error()}
	}
	message, _ := parse.Wording()
	return &failure{
		code: ExitUsage, message: message.String(), hint: parse.Hint,
		excerpt: parse.Expr, at: parse.Pos, len: parse.Len,
	}
}

// asFailure makes a failure of any error.
func asFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return failed("%v", err)
}

// differs is the end of a command that has shown a difference, without a further message.
var differs = &failure{code: ExitFailed}

// report prints the failure of a command, if it has a message:
//
//	belfry next: minute: 61 is out of range, allowed is 0-59
//	  61 * * * *
//	  ^^
//	  a hint
func (f *failure) report(env Env, cmd *cobra.Command) {
	if f.message == "" {
		return
	}
	s := styleFor(env, env.StderrIsTerminal)
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", s.wrong(cmd.CommandPath()), printable(f.message))
	if f.excerpt != "" {
		line, caret := underline(f.excerpt, f.at, f.len)
		fmt.Fprintf(&b, "  %s\n  %s\n", line, strings.Replace(caret, strings.TrimLeft(caret, " "), s.wrong(strings.TrimLeft(caret, " ")), 1))
	}
	for _, detail := range f.details {
		fmt.Fprintf(&b, "  %s\n", printable(detail))
	}
	if f.hint != "" {
		fmt.Fprintf(&b, "  %s\n", printable(f.hint))
	}
	if f.help {
		fmt.Fprintf(&b, "  %s --help says more\n", cmd.CommandPath())
	}
	env.tell("%s", b.String())
}

// underline returns a text in one terminal line, and a second line with carets under n of its bytes
// from at on.
func underline(text string, at, n int) (line, caret string) {
	at = max(0, min(at, len(text)))
	end := max(at, min(at+n, len(text)))
	before, marked := printable(text[:at]), printable(text[at:end])
	return before + marked + printable(text[end:]),
		strings.Repeat(" ", columns(before)) + strings.Repeat("^", max(1, columns(marked)))
}

// printable replaces characters that move the cursor or change the terminal: a text from
// outside can neither hide nor forge its surroundings.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == '\n' || unicode.IsPrint(r):
			return r
		default:
			return utf8.RuneError
		}
	}, text)
}

// columns returns the width of a text on a terminal.
func columns(text string) int {
	n := 0
	for _, r := range text {
		n++
		if unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) ||
			0x3000 <= r && r <= 0x303f || 0xff00 <= r && r <= 0xff60 {
			n++ // wide characters and their punctuation
		}
	}
	return n
}

// synonyms are commands of other programs.
var synonyms = map[string]string{
	"ls": "list", "ps": "list", "show": "get", "describe": "get", "inspect": "get",
	"add": "create", "new": "create", "rm": "delete", "remove": "delete",
	"trigger": "run", "start": "run", "fire": "run", "stop": "cancel", "kill": "cancel",
	"disable": "pause", "suspend": "pause", "enable": "resume", "unpause": "resume", "rerun": "retry", "tail": "logs",
	"info": "get", "status": "get",
}

// sayings are answers to words that name no single command.
var sayings = map[string]string{
	"restart":   "systemctl restart belfry restarts the server; belfry job run NAME runs a job again, belfry run retry RUN repeats a run",
	"shutdown":  "systemctl stop belfry stops the server",
	"info":      "belfry status shows the server; belfry job get NAME shows a job",
	"ping":      "belfry status shows whether a server answers",
	"metrics":   "a server answers Prometheus at /metrics; belfry status shows the server",
	"reload":    "systemctl reload belfry reads the configuration again",
	"init":      "belfry serve starts a server and makes what it needs; belfry apply -f FILE creates jobs",
	"setup":     "belfry serve starts a server and makes what it needs; belfry service install runs it under systemd",
	"install":   "belfry service install runs the server under systemd",
	"uninstall": "belfry service uninstall removes the unit; the package manager removes the package, and only purge removes the data",
	"import":    "belfry crontab import, kubernetes import, dkron import and xxl import bring jobs from elsewhere; belfry store copy brings a store",
	"migrate":   "belfry crontab import, kubernetes import, dkron import and xxl import bring jobs from elsewhere; belfry store migrate brings the schema of a store up to date",
	"upgrade":   "install the new program, then systemctl restart belfry: the server converts its store when it starts",
	"update":    "install the new program, then systemctl restart belfry; belfry apply -f FILE updates jobs",
	"notify":    "a document of kind: channel says who hears of failures; belfry channel list shows the channels",
	"webhook":   "a document of kind: channel says who hears of failures; belfry channel list shows the channels",
	"mail":      "a document of kind: channel says who hears of failures; belfry channel list shows the channels",
	"failures":  "belfry attention shows what needs a person; belfry run list --outcome failed lists failed runs",
	"failed":    "belfry attention shows what needs a person; belfry run list --outcome failed lists failed runs",
	"errors":    "belfry attention shows what needs a person; belfry run list --outcome failed lists failed runs",
	"alerts":    "belfry attention shows what needs a person; belfry channel list shows where messages go",
	"history":   "belfry run list lists runs; belfry job revisions NAME lists the versions of a job",
	"health":    "belfry doctor examines this machine and the server; belfry status shows the server",
	"users":     "belfry token list lists who may call the server",
	"user":      "belfry token list lists who may call the server",
	"cron":      "belfry next EXPRESSION explains an expression; belfry crontab import brings a crontab",
	"schedule":  "belfry job create NAME --cron EXPRESSION -- COMMAND creates a job; belfry next EXPRESSION explains an expression",
	"server":    "belfry serve starts a server",
	"daemon":    "belfry serve starts a server",
	"up":        "belfry serve starts a server",
	"web":       "belfry ui opens the web UI",
	"dashboard": "belfry ui opens the web UI",
	"queue":     "belfry run list shows what runs and waits",
	"top":       "belfry status shows the server; belfry run list shows what runs and waits",
	"explain":   "belfry why NAME says why a job did or did not run; belfry next EXPRESSION explains an expression",
	"check":     "belfry doctor examines this machine and the server; belfry validate -f FILE checks jobs; belfry store check examines a store",
	"test":      "belfry validate -f FILE checks jobs; belfry job run NAME --logs runs one now",
}

// sayingAbout answers words for which commandMeant would be wrong: stop may mean a server, a job or a
// run.
func sayingAbout(cmd *cobra.Command, words []string) string {
	group := cmd.Name()
	switch words[0] {
	case "get", "show", "read", "cat":
		if group == "secret" {
			return "no command shows a secret, only jobs read it; belfry secret list shows the names"
		}
	case "stop", "kill", "cancel", "terminate", "abort":
		if group == "run" || group == "node" || group == "service" {
			return ""
		}
		name := "NAME"
		if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
			name = quoted(words[1])
		}
		text := fmt.Sprintf("belfry job pause %s stops the schedule of a job; belfry run cancel RUN ends a run, and belfry run list --job %s --state running names them", name, name)
		if group == "belfry" && len(words) == 1 {
			text += "; systemctl stop belfry stops the server"
		}
		return text
	case "start":
		if group == "belfry" && len(words) == 1 {
			return "belfry serve starts a server; belfry job run NAME starts a job"
		}
		return ""
	case "exec":
		if (group == "job" || group == "run") && len(words) > 1 { // belfry exec runs a command
			return fmt.Sprintf("did you mean belfry job run %s?", quoted(words[1]))
		}
	case "restart":
		if group == "job" && len(words) > 1 {
			return fmt.Sprintf("belfry job run %s runs it again; belfry run retry RUN repeats a run", quoted(words[1]))
		}
	}
	if group == "belfry" || words[0] == "restart" {
		return sayings[words[0]]
	}
	return ""
}

// withDash returns the arguments of a command with the -- that was among them.
func withDash(cmd *cobra.Command, args []string) []string {
	if n := cmd.ArgsLenAtDash(); n > 0 {
		return slices.Insert(slices.Clone(args), n, "--")
	}
	return args
}

// unknownCommand is the failure for an unknown command. It repeats the arguments with the
// command that was probably meant.
func unknownCommand(cmd *cobra.Command, words []string) error {
	f := misused("unknown command %q", words[0])
	if saying := sayingAbout(cmd, words); saying != "" {
		return f.withHint("%s", saying)
	}
	meant, rest := commandMeant(cmd, words[0]), words[1:]
	if about := verbBeforeGroup(cmd, words); about != nil {
		meant, rest = about, words[2:]
	}
	if meant != nil {
		line := meant.CommandPath()
		if meant.ValidateArgs(rest) != nil && !strings.Contains(meant.Use, "-- COMMAND") { // what it would refuse is not proposed
			if meant.Flags().Lookup("file") == nil || len(rest) != 1 {
				return f.withHint("did you mean %s?", line)
			}
			line += " -f"
		}
		for _, word := range rest {
			line += " " + quoted(word)
		}
		return f.withHint("did you mean %s?", line)
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if f.hint = didYouMean(words[0], cmd.CommandPath()+" ", names); f.hint == "" && cmd.CommandPath() == "belfry run" {
		f.hint = fmt.Sprintf("belfry job run %s runs a job", words[0])
		if _, err := job.ParseID(words[0]); err == nil {
			f.hint = fmt.Sprintf("belfry run get %s shows a run", words[0])
		}
	}
	return f
}

// verbBeforeGroup returns the command that words mean as kubectl has them: get job NAME, get jobs.
func verbBeforeGroup(cmd *cobra.Command, words []string) *cobra.Command {
	if len(words) < 2 {
		return nil
	}
	group, _, err := cmd.Root().Find(words[1:2])
	if err != nil || !group.HasParent() {
		return nil
	}
	verb := cmp.Or(synonyms[words[0]], words[0])
	if verb == "get" && len(words) == 2 {
		verb = "list"
	}
	for _, c := range group.Commands() {
		if c.Name() == verb {
			return c
		}
	}
	return nil
}

// commandMeant returns the command that has a word as its name or synonym: below cmd,
// else elsewhere; nil if none has. Most words are about jobs, but for those below another noun.
func commandMeant(cmd *cobra.Command, word string) *cobra.Command {
	verb := cmp.Or(synonyms[word], word)
	groups := []*cobra.Command{cmd}
	if name := cmd.Name(); name == "belfry" || name == "job" || name == "run" {
		groups = append(groups, cmd.Root())
		for _, name := range []string{"job", "run", "crontab", "node", "token"} {
			group, _, _ := cmd.Root().Find([]string{name})
			groups = append(groups, group)
		}
	}
	for _, group := range groups {
		for _, c := range group.Commands() {
			if c.Name() == verb && !c.HasSubCommands() {
				return c
			}
		}
	}
	return nil
}

// flagFailure rewords an error of the flag library.
func flagFailure(cmd *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
	)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &unknown):
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			f := misused("unknown flag -%s", unknown.GetSpecifiedName())
			if len(short) > 1 {
				f.message += fmt.Sprintf(" in -%s", short)
				if cmd.Flags().Lookup(short) != nil {
					return f.withHint("did you mean --%s?", short)
				}
			}
			f.hint = flagMeant(cmd, unknown.GetSpecifiedName())
			return f
		}
		name := unknown.GetSpecifiedName()
		f := misused("unknown flag --%s", name)
		var names []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
		f.hint = cmp.Or(flagMeant(cmd, name), didYouMean(name, "--", names))
		if inner, _, err := cmd.Find([]string{name}); err == nil && inner != cmd {
			f = f.withHint("did you mean %s?", inner.CommandPath())
		}
		return f
	case errors.As(err, &missing):
		return misused("%s needs a value: %s", flagName(missing.GetFlag()), strings.ReplaceAll(missing.GetFlag().Value.Type(), "|", " or "))
	case errors.As(err, &invalid):
		f := invalidValue(invalid)
		if !strings.Contains(f.message, "did you mean") {
			f.hint = valueMeant(cmd, invalid.GetValue())
		}
		return f
	}
	return misused("%v", err)
}

// otherFlags are flags of other programs, with ours of the same meaning, suggested if the command
// has them. A flag's value follows after a space.
var otherFlags = map[string][]string{
	"port": {"listen 127.0.0.1:PORT", "server http://127.0.0.1:PORT"}, "p": {"listen 127.0.0.1:PORT", "server http://127.0.0.1:PORT"},
	"bind": {"listen"}, "address": {"listen", "server"}, "addr": {"listen", "server"}, "host": {"listen", "server"}, "url": {"server", "store"}, "endpoint": {"server"},
	"db": {"store"}, "database": {"store"}, "dsn": {"store"}, "database-url": {"store"}, "data-dir": {"data"}, "dir": {"data"}, "d": {"data"},
	"all": {"all-namespaces"}, "a": {"all-namespaces"}, "n": {"namespace", "limit"},
	"timezone": {"tz"}, "zone": {"tz", "timezone"}, "time-zone": {"tz", "timezone"}, "t": {"tz"}, "tz": {"timezone"},
	"schedule": {"cron"}, "interval": {"every"}, "expression": {"cron"}, "c": {"config", "cron"}, "command": {"-"}, "cmd": {"-"}, "shell": {"-", "shell"}, "V": {"version"},
	"retry": {"retries"}, "max-retries": {"retries"}, "attempts": {"retries"},
	"cwd": {"dir"}, "workdir": {"dir"}, "working-dir": {"dir"}, "environment": {"env"}, "e": {"env"}, "run-as": {"user"}, "u": {"user"},
	"follow": {"follow", "logs"}, "tail": {"follow", "logs"}, "f": {"follow", "file", "logs"}, "watch": {"follow", "logs"}, "w": {"wait", "follow", "output wide"}, "output-logs": {"logs"},
	"status": {"outcome", "state", "failing"}, "result": {"outcome"}, "failed": {"outcome failed", "failing"}, "failures": {"outcome failed", "failing"}, "errors": {"outcome failed", "failing"}, "succeeded": {"outcome succeeded"},
	"running": {"state running"}, "waiting": {"state waiting"}, "pending": {"state waiting"}, "active": {"state running"},
	"from": {"since"}, "to": {"until"}, "after": {"since"}, "before": {"until"}, "last": {"limit", "since"}, "lines": {"limit"}, "max": {"limit"}, "count": {"limit"},
	"json": {"output json"}, "yaml": {"output yaml"}, "wide": {"output wide"}, "format": {"output"}, "quiet": {"output name"}, "q": {"output name"}, "verbose": {"output wide", "log-level debug"},
	"debug": {"log-level debug"}, "level": {"log-level"}, "filename": {"file"}, "input": {"file"}, "selector": {"label"}, "tag": {"label"}, "tags": {"label"}, "labels": {"label"},
	"force": {"yes"}, "confirm": {"yes"}, "y": {"yes"}, "dry": {"dry-run"}, "check": {"dry-run"}, "write": {"apply"}, "commit": {"apply"}, "insecure": {"plain-http"},
	"tls": {"tls-cert"}, "cert": {"tls-cert"}, "key": {"tls-key"}, "node-name": {"name"}, "param": {"param"}, "params": {"param"}, "arg": {"param"}, "args": {"param"}, "reason": {"reason"}, "message": {"reason"}, "m": {"reason"},
	"for": {"until"}, "in": {"at"}, "delay": {"at"}, "once": {"at"}, "wait": {"wait"}, "sync": {"wait", "logs"},
}

// valueMeant returns the flag that a refused value means, as failed does in job list --state failed, or "".
func valueMeant(cmd *cobra.Command, value string) string {
	if len(value) < 2 || cmd.Flags().Lookup(value) != nil {
		return ""
	}
	return flagMeant(cmd, value)
}

// flagMeant returns a replacement for a flag of other programs, or "".
func flagMeant(cmd *cobra.Command, name string) string {
	if name == "token" {
		return "a token on the command line is seen by other users: set BELFRY_TOKEN, or sign in with belfry login"
	}
	switch cmd.Name() + " -" + name { // as crontab(1) has them
	case "crontab -l":
		return "belfry job list shows the jobs; belfry crontab export writes them as lines"
	case "crontab -e":
		return "belfry job edit NAME edits a job"
	}
	var meant []string
	for _, candidate := range otherFlags[name] {
		flag, _, _ := strings.Cut(candidate, " ")
		if flag == "-" && strings.Contains(cmd.Use, "-- COMMAND") {
			return "write the command behind --: " + cmd.CommandPath() + " NAME -- COMMAND"
		}
		if cmd.Flags().Lookup(flag) != nil {
			meant = append(meant, candidate)
		}
	}
	if len(meant) == 0 {
		return ""
	}
	return "did you mean --" + strings.Join(meant, " or --") + "?"
}

// invalidValue is the failure for a flag whose value was refused.
func invalidValue(invalid *pflag.InvalidValueError) *failure {
	name := flagName(invalid.GetFlag())
	switch invalid.GetFlag().Value.Type() {
	case "bool":
		return misused("%s is a switch and does not take the value %q", name, invalid.GetValue())
	case "int":
		return misused("%s: %q is not a whole number", name, invalid.GetValue())
	}
	return misused("%s: %v", name, invalid.Unwrap())
}

// flagName formats a flag.
func flagName(flag *pflag.Flag) string {
	if flag.Shorthand != "" {
		return "-" + flag.Shorthand
	}
	return "--" + flag.Name
}

// didYouMean returns a question for the names that a mistyped word is near to, or "".
func didYouMean(word, dashes string, names []string) string {
	near := spelling.Near(word, names)
	if len(near) == 0 {
		return ""
	}
	return "did you mean " + dashes + strings.Join(near, " or "+dashes) + "?"
}
