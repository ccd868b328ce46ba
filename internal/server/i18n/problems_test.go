package i18n

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// place is what stands in front of a problem: its file, line and column, and mostly its field.
var place = regexp.MustCompile(`^\S+:\d+(?::\d+)?: (?:[a-z_]+(?:[.\[]\S*)?: )?`)

// said returns the texts of what package job says of its bad samples: problems and hints. What is in brackets may
// be a hint or a part of a problem, so that both are there.
func said(t *testing.T) (texts []string) {
	t.Helper()
	files, err := filepath.Glob("../../../job/testdata/bad/*.problems")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of problems, error %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSuffix(line, "\n")
			text := place.ReplaceAllString(line, "")
			if texts = append(texts, text); !strings.HasSuffix(text, ")") {
				continue
			}
			for i := range text {
				if strings.HasPrefix(text[i:], " (") {
					texts = append(texts, text[:i], text[i+2:len(text)-1])
				}
			}
		}
	}
	return texts
}

func TestEachPatternFitsAProblemThatIsFound(t *testing.T) {
	texts := said(t)
	used := make([]bool, len(problems))
	var note func(text string, depth int)
	note = func(text string, depth int) {
		for i, c := range compiledProblems {
			found := c.pattern.FindStringSubmatch(text)
			if found == nil {
				continue
			}
			used[i] = true
			for n, name := range c.names {
				if depth > 1 && strings.HasSuffix(name, "*") {
					note(found[n+1], depth-1)
				}
			}
			return
		}
	}
	for _, text := range texts {
		note(text, patternDepth)
	}
	for i, p := range problems {
		if !used[i] {
			t.Errorf("no problem of job/testdata/bad is said by %q", p.en)
		}
	}
}

func TestProblemsAreTranslated(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"is missing", "缺失"},
		{`unknown field "corn"`, `未知字段 "corn"`},
		{`did you mean "cron"?`, `您是不是想写 "cron"？`},
		{`"skp" is not known; allowed: skip, queue, replace, allow`, `未知的值 "skp"；可选值：skip, queue, replace, allow`},
		{`day of week: "FIR" is not a number or a name, allowed is 0-7 or SUN-SAT (at position 13 of "0 3 * * MON-FIR"); did you mean "FRI"?`, `星期："FIR" 不是数字或名称，允许 0-7 或 SUN-SAT（"0 3 * * MON-FIR" 的第 13 个字符）；您是不是想写 "FRI"？`},
		{"expected a duration such as 90s, found a list", "应为时长，例如 90s，实际为列表"},
		{"a problem that has no translation", "a problem that has no translation"},
		{strings.Repeat("x", patternMax) + " is not a name", strings.Repeat("x", patternMax) + " is not a name"},
	} {
		if got := Chinese.Problem(c.text); got != c.want {
			t.Errorf("%q is %q, want %q", c.text, got, c.want)
		}
		if got := English.Problem(c.text); got != c.text {
			t.Errorf("in English %q is %q", c.text, got)
		}
	}
}
