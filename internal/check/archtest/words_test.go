package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// unidiomatic matches phrases that texts of the product once used in place of a noun: anyone, a
// user, is configured, continues.
var unidiomatic = regexp.MustCompile(`(?i)\b(whoever|nobody|somebody|is told|goes on|(those|all|ones|what) that there (is|are)|wants (an?|the|at)|otherwise than)\b`)

// Texts for users are in plain English: messages, help, log lines and guides.
func TestTextsForUsersAreInPlainEnglish(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		name, _ := filepath.Rel(root, page)
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			if name == "CONTRIBUTING.md" && strings.HasPrefix(line, "|") {
				continue // the list of phrases to avoid
			}
			if found := unidiomatic.FindString(line); found != "" {
				t.Errorf("%s:%d: %q: say it with a noun", name, number, found)
			}
		}
	}
	err = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		switch {
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		wrong, err := unidiomaticIn(path, name)
		for _, text := range wrong {
			t.Error(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unidiomaticIn returns the string literals of a file with such phrases. A single word is a
// name, such as the user nobody.
func unidiomaticIn(path, name string) (wrong []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if found := unidiomatic.FindString(text); err == nil && found != "" && strings.ContainsAny(text, " \n") {
			wrong = append(wrong, fmt.Sprintf("%s:%d: %q: say it with a noun", name, files.Position(literal.Pos()).Line, found))
		}
		return true
	})
	return wrong, nil
}

func TestUnidiomaticTextsAreFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.go")
	source := "package a\n\n// nobody reads this.\nvar a, b, c = \"nobody\", \"nobody can be asked\", `the run\ngoes on`\n"
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong, err := unidiomaticIn(path, "a.go")
	if err != nil || len(wrong) != 2 {
		t.Errorf("found %q, %v", wrong, err)
	}
}
