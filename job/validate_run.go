package job

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// runSpec checks what a job runs, its templates excepted.
func (v *validator) runSpec(r *RunSpec) {
	at := root.field("run")
	kinds := 0
	for _, set := range []bool{r.Shell != nil, r.HTTP != nil, r.Handler != ""} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		v.report(at, "must have exactly one of shell, http and handler", "for example shell: echo hello")
		return
	}
	if r.Handler != "" {
		v.refuse(!handlerPattern.MatchString(r.Handler), at.field("handler"), quote(r.Handler)+" is not the name of a handler",
			"letters, digits, dots, dashes, underscores and slashes")
	}
	if r.HTTP != nil {
		v.http(r.HTTP, at.field("http"))
	}
	if r.Shell != nil {
		v.shell(r.Shell, at.field("shell"))
	}
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"env", len(r.Env) > 0}, {"dir", r.Dir != ""}, {"user", r.User != ""}, {"group", r.Group != ""}, {"umask", r.Umask != nil},
		{"nice", r.Nice != 0}, {"stdin", r.Stdin != ""}, {"limits", r.Limits != nil},
	} {
		v.refuse(field.set && r.Shell == nil, at.field(field.name), "has a meaning only with run.shell", "")
	}
	for _, name := range sortedKeys(reflect.ValueOf(r.Env)) {
		at := at.field("env").field(name)
		v.checkVariable(at, name)
		v.refuse(strings.HasPrefix(name, variablePrefix), at, "begins with "+variablePrefix+", which is kept for what every run is given", "")
	}
	v.refuse(r.Dir != "" && !absolutePattern.MatchString(r.Dir), at.field("dir"), quote(r.Dir)+" is not an absolute path", "nodes differ in where they were started")
	for _, account := range []struct{ field, name string }{{"user", r.User}, {"group", r.Group}} {
		v.refuse(account.name != "" && !accountPattern.MatchString(account.name), at.field(account.field), quote(account.name)+" is not the name or number of a "+account.field, "")
	}
	for _, field := range []struct{ name, text string }{{"dir", r.Dir}, {"user", r.User}, {"group", r.Group}} {
		v.refuse(strings.Contains(field.text, "{{"), at.field(field.name), "is not a template, so that {{ stands for itself", "")
	}
}

func (v *validator) checkVariable(at *path, name string) {
	v.refuse(!variablePattern.MatchString(name), at, quote(name)+" is not the name of an environment variable", "letters, digits and underscores, the first no digit")
}

var (
	handlerPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	absolutePattern = regexp.MustCompile(`^(/|[A-Za-z]:[/\\])`)
	accountPattern  = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.-]*\$?|[0-9]+)$`)
	methodPattern   = regexp.MustCompile(`^[A-Z][A-Z-]*$`)
	headerPattern   = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	statusPattern   = regexp.MustCompile(`^([1-5]xx|[1-5]\d\d|[1-5]\d\d-[1-5]\d\d)$`)
)

// shells are the programs that read a command, by the last part of their path.
// All of them quote alike, which makes templates in commands safe.
var shells = []string{"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"}

func (v *validator) shell(s *Shell, at *path) {
	v.refuse((s.Command != "") == (s.Script != ""), at, "must have exactly one of command and script", "for example shell: echo hello")
	v.refuse(s.Command != "" && strings.TrimSpace(s.Command) == "", at.field("command"), "is blank", "")
	if len(s.Interpreter) == 0 {
		return
	}
	if program := s.Interpreter[0]; strings.ContainsAny(program, " \t") {
		v.report(at.field("interpreter").item(0), quote(program)+" has a blank", "write options as a list: ["+strings.Join(strings.Fields(program), ", ")+"]")
		return
	}
	if s.Command == "" {
		return
	}
	v.refuse(len(s.Args) > 0, at.field("interpreter"), "stands beside a command with args, which is executed without a shell", "leave out args or interpreter, or use script")
	program := s.Interpreter[0]
	program = program[strings.LastIndex(program, "/")+1:]
	v.refuse(!slices.Contains(shells, program), at.field("interpreter"), quote(program)+" is no shell that reads a command", "for a command "+strings.Join(shells, ", ")+"; for other languages use script")
}

// ownHeaders belong to the connection, not to the job.
var ownHeaders = []string{"connection", "content-length", "transfer-encoding", "trailer", "upgrade"}

func (v *validator) http(h *HTTP, at *path) {
	v.refuse(h.URL == "", at.field("url"), "is missing", "for example https://example.com/hook")
	if h.Method != "" {
		v.refuse(!methodPattern.MatchString(h.Method), at.field("method"), quote(h.Method)+" is not a method", "GET, POST, PUT, PATCH, DELETE, HEAD or another one in upper case")
	}
	for _, name := range sortedKeys(reflect.ValueOf(h.Headers)) {
		at := at.field("headers").field(name)
		v.refuse(!headerPattern.MatchString(name), at, quote(name)+" is not the name of a header", "")
		v.refuse(slices.Contains(ownHeaders, strings.ToLower(name)), at, "is set by the request itself", "leave it out")
	}
	for i, status := range h.Expect {
		from, to, isRange := strings.Cut(status, "-")
		v.refuse(!statusPattern.MatchString(status) || isRange && to < from, at.field("expect").item(i), quote(status)+" is not a status", "for example 200, 200-204 or 2xx")
	}
	v.regexp(h.Match, at.field("match"))
	for _, place := range sortedKeys(reflect.ValueOf(h.JSON)) {
		v.refuse(strings.TrimSpace(place) == "", at.field("json").field(place), "names no place in the answer", "for example data.items.0.state")
	}
	if t := h.TLS; t != nil {
		v.refuse((t.Cert != "") != (t.Key != ""), at.field("tls"), "must have both of cert and key, or neither", "")
		v.refuse(t.CA != "" && t.Insecure, at.at("tls.insecure"), "accepts any certificate, so that ca has no meaning", "leave one of them out")
		v.refuse(strings.HasPrefix(strings.ToLower(h.URL), "http://"), at.field("tls"), "has a meaning only with https", "")
	}
}
