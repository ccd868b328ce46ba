package job_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/job"
)

// hostile are values that a shell must not read as code.
var hostile = []string{
	"", " ", "plain", "two words", "-n", "*", "~", "#", "it's", `"`, `\`, `\\`, `'\''`, "''", `a\`, `$HOME`, `${HOME}`,
	"$(touch PWNED)", "`touch PWNED`", "; touch PWNED #", "| touch PWNED", "& touch PWNED &", "\ntouch PWNED\n",
	"'; touch PWNED; '", `"; touch PWNED; "`, `'"; touch PWNED; "'`, ")\ntouch PWNED #", "}; touch PWNED", "EOF\ntouch PWNED\n",
	"$'\\'; touch PWNED #", "a[$(touch PWNED)]", "a[`touch PWNED`]", "=touch", "!!", "\t", "\r\n", "ä$(touch PWNED)", "\x81\x5c", "{a,b}", "$((1+1))",
	">PWNED", "<(touch PWNED)",
}

// shells returns the shells of this machine, at least sh.
func shells(t testing.TB) []string {
	t.Helper()
	found := []string{}
	for _, name := range []string{"sh", "bash", "dash", "zsh", "ksh", "mksh", "busybox"} {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}
	if len(found) == 0 {
		t.Fatal("there is no sh")
	}
	return found
}

// runShell executes a command in an empty directory and returns what it prints.
func runShell(t testing.TB, shell, dir, command string) string {
	t.Helper()
	args := []string{"-c", command}
	if strings.HasSuffix(shell, "busybox") {
		args = append([]string{"sh"}, args...)
	}
	cmd := exec.Command(shell, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, _ := cmd.Output()
	return string(out)
}

func wasRun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "PWNED"))
	return err == nil
}

func TestShellsPrintValuesVerbatim(t *testing.T) {
	dir := t.TempDir()
	for _, template := range []string{
		`printf %s {{ .Param.v }}`,
		`printf %s a{{ .Param.v }}b`,
		`printf %s "a"{{ .Param.v }}'b'`,
		`printf %s {{ .Param.v }}{{ .Param.v }}`,
		`x={{ .Param.v }}; printf %s "$x"`,
		`printf %s "$(printf %s {{ .Param.v }}; printf x)"`,
		"# it's a comment\nprintf %s {{ .Param.v }} # isn't it",
		`if [ {{ .Param.v }} = x ]; then :; fi; (printf %s {{ .Param.v }})`,
		`case {{ .Param.v }} in a) ;; *) printf %s {{ .Param.v }};; esac`,
		`cat /dev/null > /dev/null 2>&1; printf %s {{ if .Param.v }}{{ .Param.v }}{{ else }}""{{ end }}`,
		"printf %s \\\n {{ .Param.v }}",
		`printf %s "$$ $# $? it's" > /dev/null; printf %s {{ .Param.v }}`,
		`x="${HOME:-none} $((1 + 2)) ${#HOME}"; printf %s {{ .Param.v }}`,
		"x=`echo \"it's\"`; printf %s {{ .Param.v }}",
	} {
		compiled, err := job.CompileTemplate(job.TemplateShell, template, []string{"v"})
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		for _, value := range hostile {
			command, err := compiled.Execute(job.TemplateData{Params: map[string]string{"v": value}})
			if err != nil {
				t.Fatal(err)
			}
			want := value
			switch {
			case strings.Contains(template, "a{{"), strings.Contains(template, `"a"{{`):
				want = "a" + value + "b"
			case strings.Contains(template, "}}{{ .Param.v }}\x00"), strings.HasSuffix(template, "}}{{ .Param.v }}"):
				want = value + value
			case strings.Contains(template, "printf x"):
				want = value + "x"
			}
			for _, shell := range shells(t) {
				if got := runShell(t, shell, dir, command); got != want {
					t.Errorf("%s: %s with %q\nprinted %q by %q", shell, template, value, got, command)
				}
				if wasRun(dir) {
					t.Fatalf("%s: %s with %q ran it: %q", shell, template, value, command)
				}
			}
		}
	}
}

func TestShellRefusesFreeTextWhereItIsNotSafe(t *testing.T) {
	for _, c := range []struct{ template, where string }{
		{`echo "{{ .Param.v }}"`, "in double quotes"},
		{`echo '{{ .Param.v }}'`, "in single quotes"},
		{`echo "{{ .Node }}"`, "in double quotes"},
		{`echo "{{ .Param.v | lower }}"`, "in double quotes"},
		{`echo "{{ .Scheduled.Format "'$(id)'" }}"`, "in double quotes"},
		{"echo `echo {{ .Param.v }}`", "in backquotes"},
		{`echo ${x:-{{ .Param.v }}}`, "in ${ }"},
		{"# {{ .Param.v }}\necho", "in a comment"},
		{"cat <<EOF\n{{ .Param.v }}\nEOF", "after a here-document"},
		{"cat <<{{ .Param.v }}", "after a here-document"},
		{`echo \{{ .Param.v }}`, "after a backslash"},
		{`echo ${{ .Param.v }}`, "after a dollar sign"},
		{`echo $'a' {{ .Param.v }}`, "after $'"},
		{`echo $[1] {{ .Param.v }}`, "after $["},
		{`echo $(( {{ .Param.v }} + 1 ))`, "where a shell may evaluate it"},
		{`(( x = {{ .Param.v }} ))`, "where a shell may evaluate it"},
		{`[[ {{ .Param.v }} -eq 1 ]]`, "where a shell may evaluate it"},
		{`a[{{ .Param.v }}]=1`, "where a shell may evaluate it"},
		{`a[b[1]{{ .Param.v }}]=1`, "where a shell may evaluate it"},
		{`a=([{{ .Param.v }}]=1)`, "where a shell may evaluate it"},
		{`echo >&{{ .Param.v }}`, "where a shell may evaluate it"},
		{`echo 2>& {{ .Param.v }}`, "where a shell may evaluate it"},
		{`eval {{ .Param.v }}`, "after eval"},
		{`let {{ .Param.v }}`, "after let"},
		{`echo "$(case x in x) echo;; esac)" {{ .Param.v }}`, "after a case inside of $( )"},
		{`[[ x =~ [)] ]] && echo {{ .Param.v }}`, "after a parenthesis in [[ ]]"},
		{`echo "$$(echo {{ .Param.v }})"`, "in double quotes"},
		{`echo "${x:-"a"}" {{ .Param.v }}`, "after quotes inside of ${ }"},
		{`echo {{ if .Shard }}"{{ end }}a" {{ .Param.v }}`, "branches end in different quotes"},
		{`echo @(a|b)# {{ .Param.v }}`, "after a # that may begin a comment"},
	} {
		_, err := job.CompileTemplate(job.TemplateShell, c.template, []string{"v"})
		if err == nil || !strings.Contains(err.Error(), c.where) {
			t.Errorf("%s:\n got %v\nwant %s", c.template, err, c.where)
		}
	}
	_, err := job.CompileTemplate(job.TemplateShell, `echo "{{ .Param.day }}"`, []string{"day"})
	if want := `.Param.day may hold any text and cannot stand in double quotes (write it outside of quotes: it is quoted automatically; or use the variable "$BELFRY_PARAM_DAY")`; err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestShellAcceptsTameValuesAnywhere(t *testing.T) {
	dir := t.TempDir()
	for template, want := range map[string]string{
		`printf %s "at {{ .Scheduled.Format "2006-01-02 15:04" }}"`: "at 2026-03-01 02:30",
		`printf %s 'shard {{ .Shard }} of {{ .Shards }}'`:           "shard 0 of 12",
		`printf %s $(( {{ .Shard }} + 1 ))`:                         "1",
		"cat <<EOF\n{{ .Name }}\nEOF":                               "report\n",
		"printf %s `echo {{ .Run }}`":                               "01JA2B3C4D5E6F7G8H9JKMNPQR",
		`printf %s {{ .Scheduled.Format "Jan 2" }}`:                 "Mar 1",
	} {
		compiled, err := job.CompileTemplate(job.TemplateShell, template, nil)
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		command, err := compiled.Execute(data(t))
		if err != nil {
			t.Errorf("%s: %v", template, err)
		}
		if got := runShell(t, "sh", dir, command); got != want {
			t.Errorf("%s made %q and printed %q, want %q", template, command, got, want)
		}
	}
}

// Whether a value is tame depends on the value rather than its origin.
func TestShellRefusesNamesThatAreNotTame(t *testing.T) {
	d := data(t)
	d.Name = "$(id)"
	for _, template := range []string{`echo "{{ .Name }}"`, `echo $(( {{ .Name }} ))`} {
		compiled, err := job.CompileTemplate(job.TemplateShell, template, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := compiled.Execute(d); err == nil {
			t.Errorf("%s made %s", template, got)
		}
	}
}

func TestShellRefusesNUL(t *testing.T) {
	compiled, err := job.CompileTemplate(job.TemplateShell, `echo {{ .Param.v }}`, []string{"v"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := compiled.Execute(job.TemplateData{Params: map[string]string{"v": "a\x00b"}}); err == nil {
		t.Errorf("got %q", got)
	}
}

// fragments are the parts of random commands: harmless texts that change the state of a shell.
var fragments = []string{
	"'", `"`, "`", `\`, "$", "$(", "$((", "((", "(", ")", "))", "${", "}", "{", "[[", "]]", "[", "]", "#", "<", "<<", "<<<", "<(", "|", "&", ";", ";;",
	"\n", "\\\n", " ", " ", " ", "\t", "\r", "!", "=", "a", "x=", "echo ", " : ", "EOF", "case ", " in ", " esac", "if ", " then ", " fi ", "eval ", "é",
	"$'", `$"`, "$$", "$#", "$x", "*", "?", "~", ">&", ">&2", "<&", "&>", "1", "+", "-", "@(", "for ", "do ", "done ", "function f", "()", "let ",
	"{{ .Param.v }}", "{{ .Param.v }}", "{{ .Param.v }}", " {{ .Param.v }} ", "{{ .Shard }}", "{{ .Previous }}",
}

// TestNoCommandLetsAValueRun makes random commands and checks that no value in them is executed.
// The seed is fixed, so that failures repeat.
func TestNoCommandLetsAValueRun(t *testing.T) {
	commands := 8_000
	if testing.Short() {
		commands = 1_000
	}
	random := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	found := shells(t)
	refused, ran := 0, 0
	for range commands {
		var b strings.Builder
		for range 2 + random.IntN(14) {
			b.WriteString(fragments[random.IntN(len(fragments))])
		}
		value := hostile[random.IntN(len(hostile))]
		if !strings.Contains(value, "PWNED") || !strings.Contains(b.String(), ".Param.v") {
			continue
		}
		compiled, err := job.CompileTemplate(job.TemplateShell, b.String(), []string{"v"})
		if err != nil {
			refused++ // an invalid template, or a value where none is safe
			continue
		}
		ran++
		command, err := compiled.Execute(job.TemplateData{Params: map[string]string{"v": value}})
		if err != nil {
			t.Fatalf("%q with %q: %v", b.String(), value, err)
		}
		shell := found[random.IntN(len(found))]
		runShell(t, shell, dir, command)
		if wasRun(dir) {
			t.Fatalf("%s: %q with %q ran it: %q", shell, b.String(), value, command)
		}
		empty(t, dir)
	}
	t.Logf("%d commands were run, %d were refused", ran, refused)
	if ran < commands/20 || refused > 2*ran {
		t.Errorf("of %d commands only %d were run, and %d were refused: the test tests little", commands, ran, refused)
	}
}

// empty removes files of a command, whose names another could run.
func empty(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.RemoveAll(filepath.Join(dir, file.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzShellValue(f *testing.F) {
	for _, value := range hostile {
		f.Add(value)
	}
	compiled, err := job.CompileTemplate(job.TemplateShell, `printf %s {{ .Param.v }}`, []string{"v"})
	if err != nil {
		f.Fatal(err)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, value string) {
		value = value[:min(len(value), 100_000)] // the limit of a command's argument
		command, err := compiled.Execute(job.TemplateData{Params: map[string]string{"v": value}})
		if strings.Contains(value, "\x00") {
			if err == nil {
				t.Errorf("%q, which no command can be given, made %q", value, command)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := runShell(t, "sh", dir, command); got != value {
			t.Errorf("%q was printed as %q", value, got)
		}
	})
}

func TestQuoteShellMakesOneWord(t *testing.T) {
	for _, value := range hostile {
		if !utf8.ValidString(value) {
			continue
		}
		if got := runShell(t, "sh", t.TempDir(), "printf %s "+job.QuoteShell(value)); got != value {
			t.Errorf("%q was printed as %q", value, got)
		}
	}
}
