package belfry_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// units are the units on the page of limits.
var units = map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "s": int64(time.Second), "min": int64(time.Minute)}

// The page of limits matches the code: a changed or renamed bound must be changed there, too.
func TestThePageOfLimitsSaysWhatTheCodeHas(t *testing.T) {
	page, err := os.ReadFile("docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| [^|]+ \\| ([0-9,]+) ?([A-Za-z]*) \\| [^|]+ \\|[^|]*\\| `([a-z/]+) ([A-Za-z]+)` \\|$")
	rows := row.FindAllStringSubmatch(string(page), -1)
	if all := strings.Count(string(page), "\n| ") - strings.Count(string(page), "\n|---"); len(rows) == 0 || len(rows) != all {
		t.Errorf("the test reads %d rows of %d", len(rows), all)
	}
	found := map[string]map[string]string{}
	for _, r := range rows {
		dir, name := r[3], r[4]
		if found[dir] == nil {
			found[dir] = constantsOf(t, dir)
		}
		var number int64
		if _, err := fmt.Sscan(strings.ReplaceAll(r[1], ",", ""), &number); err != nil || units[r[2]] == 0 {
			t.Errorf("%s %s: not a limit of this page (%v)", r[1], r[2], err)
		}
		if got, want := found[dir][name], fmt.Sprint(number*units[r[2]]); got != want {
			t.Errorf("%s of %s is %s in the code, and %s %s in docs/limits.md", name, dir, got, r[1], r[2])
		}
	}
}

// constantsOf returns the values of the constants of a package that are numbers, or durations in nanoseconds.
func constantsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no code (%v)", dir, err)
	}
	durations := strings.NewReplacer("time.Second", "1000000000", "time.Minute", "60000000000", "time.Hour", "3600000000000")
	values := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				spec := s.(*ast.ValueSpec)
				for i := range spec.Values {
					value, err := types.Eval(set, nil, token.NoPos, durations.Replace(types.ExprString(spec.Values[i])))
					if err == nil && value.Value != nil && value.Value.Kind() == constant.Int {
						values[spec.Names[i].Name] = value.Value.ExactString()
					}
				}
			}
		}
	}
	return values
}
