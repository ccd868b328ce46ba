package shell

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

func TestPlainCommands(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"backup":                             "backup",
		"/usr/bin/backup --all  -v x=1 a\tb": "/usr/bin/backup|--all|-v|x=1|a|b",
		" backup\n":                          "backup",
		"date +%Y":                           "date|+%Y",
		"":                                   "", " ": "", "a;b": "", "a|b": "", "a&": "", "a > b": "", "a <b": "", "(a)": "",
		"a $b": "", "a `b`": "", "a 'b'": "", `a "b"`: "", `a \b`: "", "a *": "", "a b?": "", "a [b]": "", "a {b,c}": "",
		"a ~": "", "a # b": "", "a !b": "", "a ^b": "", "a\nb": "", "a ü": "", "a\x00b": "", "a\rb": "",
		"A=1": "", "A=1 b": "", "-a": "", "%1": "", "cd /": "", "exit 3": "", "exec a": "", "export A": "", "ulimit -v": "",
		":": "", ". a": "", "echo a": "", "true": "", "time a": "", "if a": "", "umask": "", "test a": "", "kill 1": "",
	} {
		words, ok := job.PlainWords(text)
		if got := strings.Join(words, "|"); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, ok, want)
		}
	}
}

// FuzzPlainCommands compares the words of plain commands with the words of sh.
func FuzzPlainCommands(f *testing.F) {
	for _, text := range []string{"a b", "a x=1 %b", "a :b .. -c", "case x", "a\tb c"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words, ok := job.PlainWords(text)
		if !ok || len(text) > 1000 {
			return
		}
		out, err := exec.Command("sh", "-c", "printf '%s\\n' "+strings.Trim(text, " \t\n")).Output()
		if want := strings.Join(words, "\n") + "\n"; err != nil || string(out) != want {
			t.Errorf("%q: %q, %v; want %q", text, words, err, out)
		}
	})
}
