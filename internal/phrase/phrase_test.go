package phrase

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func isHan(r rune) bool { return unicode.Is(unicode.Han, r) }

// Each code has words in both languages about the same arguments.
func TestEveryCodeIsSaidInBothLanguages(t *testing.T) {
	if len(byName) != len(catalogue) {
		t.Errorf("%d of %d codes have a name of their own", len(byName), len(catalogue))
	}
	for _, c := range All() {
		if len(c.Args) != len(c.kinds) {
			t.Errorf("%s has the arguments %v, and its constructor takes %d", c.Name, c.Args, len(c.kinds))
		}
		if c == InBothLanguages.Code {
			continue // its maker says it in both
		}
		en, zh := slices.Sorted(slices.Values(Names(c.English))), slices.Sorted(slices.Values(Names(c.Chinese)))
		if !slices.Equal(en, zh) {
			t.Errorf("%s has the arguments %v, and in Chinese %v", c.Name, en, zh)
		}
		if strings.ContainsFunc(withoutArgs(c.English), unicode.IsLower) && !strings.ContainsFunc(c.Chinese, isHan) && !slices.Contains(technical, c.Name) {
			t.Errorf("%s has no Chinese words: %q", c.Name, c.Chinese)
		}
	}
}

// technical are the codes whose English words are names of the field that Chinese pages keep.
var technical = []string{"a_bool", "range_or_names", "one_to_five", "one_kind"}

func withoutArgs(text string) string {
	return Fill(English, text, func(string) any { return "" }, func(any) string { return "" })
}

// sample returns a text of a code, with an argument of its kind for each.
func sample(t *testing.T, c *Code) Text {
	s := Text{code: c}
	for i, kind := range c.kinds {
		var value any
		switch kind {
		case reflect.TypeFor[string](), reflect.TypeFor[fmt.Stringer]():
			value = c.Args[i] + " <&>"
		case reflect.TypeFor[Words]():
			value = Words("said \"{so}\" [x]")
		case reflect.TypeFor[Quoted]():
			value = Quoted(`a "b"`)
		case reflect.TypeFor[Span]():
			value = Span("1 min 30 s")
		case reflect.TypeFor[Moment]():
			value = Moment("2026-11-28T02:12:48Z")
		case reflect.TypeFor[Exact]():
			value = Exact("* * * * *")
		case reflect.TypeFor[int]():
			value = 2
		case reflect.TypeFor[[]string]():
			value = []string{"a", "b", "c"}
		case reflect.TypeFor[Text]():
			value = TooLong.Of("1y")
		default:
			t.Fatalf("%s has an argument of the type %s", c.Name, kind)
		}
		s.args = append(s.args, value)
	}
	return s
}

// What is sent and read again is said the same.
func TestTextsSurviveJSON(t *testing.T) {
	for _, c := range All() {
		made := sample(t, c)
		sent, err := json.Marshal(made.Args())
		if err != nil {
			t.Fatal(err)
		}
		var args map[string]any
		if err := json.Unmarshal(sent, &args); err != nil {
			t.Fatal(err)
		}
		read, ok := Of(c.Name, args)
		if !ok || read.String() != made.String() || read.In(Chinese) != made.In(Chinese) || made.String() == "" {
			t.Errorf("%s with %s is read as %q, made as %q", c.Name, sent, read, made)
		}
	}
	for code, args := range map[string]map[string]any{"no_such_code": nil, "too_long": {"x": 3.0}, "too_deep": {"most": "x"}} {
		if text, ok := Of(code, args); ok {
			t.Errorf("%s with %v is read as %q", code, args, text)
		}
	}
}

func TestTextsAreSaidInTheLanguageOfTheReader(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		text   Text
		en, zh string
	}{
		{Text{}, "", ""},
		{Missing, "is missing", "缺失"},
		{NotName.Of("a b"), `"a b" is not a name`, `"a b" 不是有效名称`},
		{NotName.Of(Quoted(long)), `"` + long[:80] + `"… is not a name`, `"` + long[:80] + `"… 不是有效名称`},
		{UnknownValue.Of("skp", []string{"skip", "queue"}), `"skp" is not known; allowed: skip, queue`, `未知的值 "skp"；可选值：skip、queue`},
		{ExactlyOne.Of([]string{"a", "b", "c"}), "must have exactly one of a, b and c", "必须且只能有 a、b 和 c 之一"},
		{Expected.Of(ADuration, AList), "expected a duration such as 90s, found a list", "应为时长，例如 90s，实际为列表"},
		{FoundFields.Of(1), "found 1 field", "有 1 个字段"},
		{FoundFields.Of(2), "found 2 fields", "有 2 个字段"},
		{NoUpstream.Of("a\nb"), `job a\nb does not exist; it starts no runs of this job until it does`, `任务 a\nb 不存在；在它存在之前不会触发本任务`},
		{SizeUnits.Of(Text{}), "KiB, MiB, GiB, TiB, kB, MB, GB or TB", "KiB、MiB、GiB、TiB、kB、MB、GB 或 TB"},
	} {
		if en, zh := c.text.String(), c.text.In(Chinese); en != c.en || zh != c.zh {
			t.Errorf("%s is said as %q and %q, want %q and %q", c.text.Code(), en, zh, c.en, c.zh)
		}
	}
}

// A code that no package makes is dead.
func TestEveryCodeIsUsed(t *testing.T) {
	declared := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR && !strings.HasSuffix(path, "_test.go") {
				for _, s := range g.Specs {
					if name := s.(*ast.ValueSpec).Names[0]; name.IsExported() {
						declared[name.Name] = true
					}
				}
			}
		}
	}
	if len(declared) != len(catalogue) {
		t.Fatalf("found %d of %d codes", len(declared), len(catalogue))
	}
	err = filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if of, ok := n.(*ast.Ident); ok && slices.Contains([]string{"../../internal/phrase/phrase.go", "../../internal/phrase/errors.go"}, path) {
				delete(declared, of.Name)
			}
			if s, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := s.X.(*ast.Ident); ok && of.Name == "phrase" {
					delete(declared, s.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range declared {
		t.Errorf("no package uses phrase.%s", name)
	}
}

const page = "../../docs/problems.md"

// The page of the codes is written from the catalogue.
func TestThePageOfProblemsIsUpToDate(t *testing.T) {
	want := pageOf(All())
	got, err := os.ReadFile(page)
	if os.Getenv("UPDATE") != "" {
		err, got = os.WriteFile(page, []byte(want), 0o644), []byte(want)
	}
	if err != nil || string(got) != want {
		t.Fatalf("docs/problems.md is not what the catalogue says, %v; after UPDATE=1 go test ./internal/phrase look at its difference", err)
	}
}

func pageOf(codes []*Code) string {
	var b strings.Builder
	b.WriteString(`# Codes of problems

What is wrong with a document, an expression or a configuration, what would be right, and what an import notes of a line or a
job, is a code with arguments. The API has a mistake as ` + "`detail` (in English), `code` and `args`" + `, and its correction as
` + "`hint`, `hint_code` and `hint_args`" + `: programs go by the code, which stays the same when the sentence is reworded.
` + "`belfry validate -o json`" + ` prints the same; imports print a note as ` + "`text`, `code` and `args`" + ` with ` + "`-o json`" + `. Pages say it in the
language of the reader.

A text within a text is an object with ` + "`code` and `args`" + `. What stands in brackets is there only if its argument is. The code
` + "`text`" + ` is what others have said, such as a library or the operating system; it is never translated. The reasons of runs have a
page of their own, [reasons.md](reasons.md).

| Code | English | 中文 |
|---|---|---|
`)
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;")
	for _, c := range codes {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Name, cell.Replace(c.English), cell.Replace(c.Chinese))
	}
	return b.String()
}
