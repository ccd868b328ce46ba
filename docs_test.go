package belfry_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goBlocks returns the programs and tests in a page.
func goBlocks(t *testing.T, page string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\n```go")[1:] {
		_, code, _ := strings.Cut(part, "\n")
		code, _, closed := strings.Cut(code, "\n```")
		if !closed {
			t.Fatalf("%s: a block of code has no end", page)
		}
		list = append(list, code+"\n")
	}
	return list
}

// Every program in the Go pages of the documentation compiles.
func TestTheProgramsInThePagesCompile(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("docs/from-*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "README.md", "docs/go.md")
	pages = slices.DeleteFunc(pages, func(page string) bool { // pages about commands
		return page == "docs/from-dkron.md" || page == "docs/from-kubernetes-cronjob.md"
	})
	dir := t.TempDir()
	replace := map[string]string{}
	packages := []string{"build", "-overlay", filepath.Join(dir, "overlay.json")}
	for _, page := range pages {
		blocks := goBlocks(t, page)
		if len(blocks) == 0 {
			t.Errorf("%s has no program", page)
		}
		for i, code := range blocks {
			name := fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(page), ".md"), i+1)
			// A test is also compiled as part of a package, not linked to a program.
			source := filepath.Join(dir, name+".txt")
			if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			replace[filepath.Join(root, "docs", "compiled", name, "code.go")] = source
			packages = append(packages, "./docs/compiled/"+name)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", packages...).CombinedOutput(); err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}
