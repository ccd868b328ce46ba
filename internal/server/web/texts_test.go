package web

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/i18n"
)

var (
	inTemplates = regexp.MustCompile(`\bt "([^"]+)"`)
	inCode      = regexp.MustCompile(`\bT\("([^"]+)"`)
	inScripts   = regexp.MustCompile(`\b(?:words\.|say\(")([a-z]+)\b(?:[^.]|$)`)
)

// used are the keys that a kind of files names.
func used(t *testing.T, pattern string, named *regexp.Regexp) map[string]string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	keys := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(data), -1) {
			keys[m[1]] = file
		}
	}
	return keys
}

func TestEveryNamedTextExists(t *testing.T) {
	for _, keys := range []map[string]string{
		used(t, "templates/*.html", inTemplates), used(t, "*.go", inCode), used(t, "../../cli/xxlreport.html", inTemplates), used(t, "../../cli/xxlreport.go", inCode),
	} {
		for key, file := range keys {
			// A key that ends with a dot is completed by a value.
			if !strings.HasSuffix(key, ".") && !i18n.Has(key) {
				t.Errorf("%s names the text %s, which does not exist", file, key)
			}
		}
	}
	for _, key := range scriptTexts {
		if !i18n.Has(key) {
			t.Errorf("scripts name the text %s, which does not exist", key)
		}
	}
	known := strings.Join(scriptTexts, " ") + " "
	for key, file := range used(t, "assets/*.js", inScripts) {
		if key != "js" && !strings.Contains(known, "js."+key+" ") { // js is the file
			t.Errorf("%s names the text %s, which pages do not bring", file, key)
		}
	}
}

// sources returns the text of files, but for tests: what only a test names is not used.
func sources(t *testing.T, patterns ...string) string {
	t.Helper()
	var text strings.Builder
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(data)
		}
	}
	return text.String()
}

// A text that nothing names is translated in vain.
func TestEveryTextIsUsed(t *testing.T) {
	text := sources(t, "templates/*.html", "*.go", "../../cli/xxlreport.*", "../../cli/xxlimport.go")
	for _, key := range i18n.Keys() {
		named := strings.Contains(text, `"`+key+`"`)
		// A key may be completed by a value.
		for at := strings.LastIndex(key, "."); at > 0 && !named; at = strings.LastIndex(key[:at], ".") {
			named = strings.Contains(text, `"`+key[:at+1]+`"`)
		}
		if !named {
			t.Errorf("nothing names the text %s", key)
		}
	}
}

// Texts in templates would be in one language alone.
func TestTemplatesHaveNoTextsOfTheirOwn(t *testing.T) {
	files, err := filepath.Glob("templates/*.html")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "../../cli/xxlreport.html")
	words := regexp.MustCompile(`>[^<>{}]*[a-z]{3,}[^<>{}]*<`)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range words.FindAllString(string(data), -1) {
			switch text {
			case ">Belfry<", ">English<":
			default:
				if !strings.Contains(text, "kbd") && !allowedWords[strings.Trim(text, "<>")] {
					t.Errorf("%s has the text %q", file, text)
				}
			}
		}
	}
}

// allowedWords are shown as examples, in any language.
var allowedWords = map[string]bool{"Ctrl K": true, "label": true, "tier=1": true, "team=shop": true}

// Bytes of scripts and styles are bytes before the first view.
func TestScriptsAndStylesAreSmall(t *testing.T) {
	sizes, packed := map[string]int{}, map[string]int{}
	err := fs.WalkDir(assetFiles, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			data, _ := assetFiles.ReadFile(name)
			sizes[filepath.Ext(name)] += len(data)
			packed[filepath.Base(name)] = len(squeeze(data))
		}
		return err
	})
	if err != nil || sizes[".js"] == 0 || sizes[".css"] == 0 {
		t.Fatalf("the files cannot be read: %v, %v", sizes, err)
	}
	if sizes[".js"] > 64_000 || sizes[".css"] > 44_000 {
		t.Errorf("scripts have %d bytes of 64,000, styles %d of 44,000", sizes[".js"], sizes[".css"])
	}
	if first := packed["belfry.css"] + packed["icons.svg"]; first > 13_500 {
		t.Errorf("styles and icons have %d of 13,500 bytes compressed", first)
	}
}

// madeClasses are those whose names are put together: the colours of a terminal, and the steps of a heat map.
var madeClasses = regexp.MustCompile(`^[abh][0-9]$`)

// A class that nothing has, or a colour that no rule uses, is only bytes.
func TestEveryStyleIsUsed(t *testing.T) {
	data, err := assetFiles.ReadFile("assets/belfry.css")
	if err != nil {
		t.Fatal(err)
	}
	css := regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(string(data), "")
	words := map[string]bool{}
	for line := range strings.Lines(sources(t, "templates/*.html", "assets/*.js", "*.go", "../draw/*.go")) {
		code, _, _ := strings.Cut(line, "// ")
		for _, word := range regexp.MustCompile(`[A-Za-z_][\w-]*`).FindAllString(code, -1) {
			words[word] = true
		}
	}
	selectors := regexp.MustCompile(`\{[^{}]*\}`).ReplaceAllString(css, " ")
	for _, m := range regexp.MustCompile(`\.([A-Za-z_][\w-]*)`).FindAllStringSubmatch(selectors, -1) {
		if !words[m[1]] && !madeClasses.MatchString(m[1]) {
			t.Errorf("nothing has the class %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(--[\w-]+):`).FindAllStringSubmatch(css, -1) {
		if !strings.Contains(css, "var("+m[1]+")") {
			t.Errorf("no rule uses %s", m[1])
		}
	}
}

func TestDurationsReadNaturally(t *testing.T) {
	for _, c := range []struct {
		d            time.Duration
		coarse, took string
	}{
		{3 * time.Millisecond, "0 s", "3 ms"},
		{410 * time.Millisecond, "0 s", "0.41 s"},
		{2100 * time.Millisecond, "2 s", "2.1 s"},
		{38 * time.Second, "38 s", "38 s"},
		{6*time.Minute + 2*time.Second, "6 min", "6 min 2 s"},
		{2*time.Hour + 16*time.Minute, "2 h 16 min", "2 h 16 min"},
		{29 * time.Hour, "1 d 5 h", "1 d 5 h"},
	} {
		if got := coarse(i18n.English, c.d); got != c.coarse {
			t.Errorf("%s is %q, want %q", c.d, got, c.coarse)
		}
		if got := took(i18n.English, c.d); got != c.took {
			t.Errorf("%s took %q, want %q", c.d, got, c.took)
		}
	}
}

func TestQuieterMinutesAreNearACrowdedOne(t *testing.T) {
	starts := make([]int, 60)
	for i := range starts {
		starts[i] = 4
	}
	starts[30], starts[14], starts[33], starts[27], starts[44], starts[29] = 10, 0, 1, 2, 3, 6
	if got := quieter(starts, 30, nil); !slices.Equal(got, []int{27, 33, 44}) {
		t.Errorf("the quieter minutes are %v", got)
	}
	if got := quieter([]int{3, 3, 2, 3}, 1, nil); len(got) != 0 {
		t.Errorf("minutes that are nearly as crowded are named: %v", got)
	}
}

func TestHiddenCharactersAreShown(t *testing.T) {
	for text, want := range map[string]string{
		"plain 任务\ttab":        "plain 任务\ttab",
		"a\u202eb":             "a‹U+202E›b",
		"nul\x00 bell\x07":     "nul‹U+0000› bell‹U+0007›",
		"\x00\x00\x00aa\x00":   "‹U+0000›×3aa‹U+0000›",
		"\u2066isolated\u2069": "‹U+2066›isolated‹U+2069›",
	} {
		if got := clean(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestOfTerminalSequencesOnlyColoursCount(t *testing.T) {
	for _, c := range []struct {
		line string
		want []ansiPart
	}{
		{"plain", []ansiPart{{"", "plain"}}},
		{"\x1b[31mred\x1b[0m rest", []ansiPart{{"a1", "red"}, {"", " rest"}}},
		{"\x1b[1;32mbold\x1b[22m green", []ansiPart{{"a2 ab", "bold"}, {"a2", " green"}}},
		{"\x1b[38;5;196mred\x1b[39m\x1b[38;2;0;200;0mgreen", []ansiPart{{"a1", "red"}, {"a2", "green"}}},
		{"\x1b[36mcyan\x1b[38;5;208morange\x1b[38;5;202mtoo\x1b[38;2;255;0;255mpink", []ansiPart{{"a6", "cyan"}, {"a7", "orange"}, {"a7", "too"}, {"a5", "pink"}}},
		{"\x1b[41;97m error \x1b[49m\x1b[48;5;27mblue\x1b[0m\x1b[103mnote", []ansiPart{{"b1", " error "}, {"b4", "blue"}, {"b3", "note"}}},
		{"\x1b[7minverse\x1b[32mgreen\x1b[27m\x1b[4munder\x1b[24mnot", []ansiPart{{"ai", "inverse"}, {"b2", "green"}, {"a2 au", "under"}, {"a2", "not"}}},
		{"  1%\r 50%\r100%", []ansiPart{{"", "100%"}}},
		{"fetching\rdone", []ansiPart{{"", "donehing"}}},
		{"\x1b[33m 50%\r\x1b[32mdone\r", []ansiPart{{"a2", "done"}}},
		{"\x1b]8;;https://evil.example\x07link\x1b]8;;\x07", []ansiPart{{"", "link"}}},
		{"\x1b]0;title\x1b\\after", []ansiPart{{"", "after"}}},
		{"\x1b[2J\x1b[1;1Hmoved", []ansiPart{{"", "moved"}}},
		{"cut \x1b[", []ansiPart{{"", "cut "}}},
		{"<script>", []ansiPart{{"", "<script>"}}},
	} {
		var a ansi
		got := a.parts(c.line)
		if len(got) != len(c.want) {
			t.Errorf("%q gives %q", c.line, got)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%q gives %q, want %q", c.line, got, c.want)
			}
		}
	}
}

// What the server itself writes into the audit has words.
func TestActionsOfTheServerAreSaid(t *testing.T) {
	for _, action := range []string{"occurrence.unaccounted", "occurrence.doubled", "occurrence.early", "secret.rotate", "store.lost"} {
		if !i18n.Has("action." + action) {
			t.Errorf("pages show the audit's %s as it is written", action)
		}
	}
}
