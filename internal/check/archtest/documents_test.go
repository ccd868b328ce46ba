package archtest

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

// Tables of guarded rules must not name missing tests.
func TestTestsThatDocumentsNameAreThere(t *testing.T) {
	defined := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)[`/]")
	known := map[string]bool{}
	documents := map[string]string{}
	err := fs.WalkDir(root(), ".", func(file string, d fs.DirEntry, err error) error {
		if base := path.Base(file); err == nil && d.IsDir() && file != "." && (base == "testdata" || base[0] == '.') {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || path.Ext(file) != ".md" && !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(root(), file)
		for _, match := range defined.FindAllStringSubmatch(string(text), -1) {
			known[match[1]] = true
		}
		if path.Ext(file) == ".md" {
			documents[file] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range documents {
		for _, match := range named.FindAllStringSubmatch(text, -1) {
			if !known[match[1]] {
				t.Errorf("%s names %s, which is not there", file, match[1])
			}
		}
	}
}
