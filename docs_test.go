package belfry_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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

// The commands with which a reader repeats the proofs are there: targets of the Makefile with their variables, and tests in packages.
func TestTheCommandsOfTheProofsExist(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, page := range []string{"how-we-know.md", "torture.md", "testing.md", "stores.md"} {
		text, err := os.ReadFile("docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		shell := false
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "```") {
				shell = line == "```sh"
				continue
			}
			line, _, _ = strings.Cut(line, " #")
			words := strings.Fields(line)
			if !shell || len(words) < 2 {
				continue
			}
			switch words[0] {
			case "make":
				commands++
				if out, err := exec.Command("make", append([]string{"-n", "DEPS=no", "GO=:"}, words[1:]...)...).CombinedOutput(); err != nil || len(out) == 0 {
					t.Errorf("%s: %s: %v\n%s", page, line, err, out)
				}
				for _, w := range words[2:] {
					if name, _, ok := strings.Cut(w, "="); ok && !strings.Contains(string(makefile), "$("+name+")") {
						t.Errorf("%s: %s: no target reads %s", page, line, name)
					}
				}
			case "go":
				for _, w := range words[1:] {
					if dir, ok := strings.CutPrefix(w, "./"); ok && dir != "..." && !strings.HasSuffix(dir, "/...") {
						commands++
						if _, err := os.Stat(dir); err != nil {
							t.Errorf("%s: %s: %v", page, line, err)
						}
					}
				}
			}
		}
	}
	if commands < 10 {
		t.Errorf("only %d commands were found", commands)
	}
}

// The figures for larger machines are those of Amdahl's law, from the two that were measured.
func TestTheFiguresOfScaleFollowFromTheirFormula(t *testing.T) {
	text, err := os.ReadFile("docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][][]float64{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		name, _, _ := strings.Cut(strings.TrimSpace(cells[0]), ", ")
		var row []float64
		for _, c := range cells[1:] {
			if n, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(c), ",", ""), 64); err == nil {
				row = append(row, n)
			}
		}
		if len(row) == 4 {
			rows[name] = append(rows[name], row)
		}
	}
	for _, name := range []string{"default policy", "`overlap: allow`"} {
		if len(rows[name]) != 2 {
			t.Fatalf("%s has %d rows of four figures, want the measured and the predicted one", name, len(rows[name]))
		}
		measured, predicted := rows[name][0], rows[name][1]
		one, two := measured[0], measured[1]
		serial := 2*one/two - 1
		want := []float64{0, 0, 0, one / serial}
		for i, n := range []float64{8, 32, 96} {
			want[i] = one * n / (1 + serial*(n-1))
		}
		if math.Abs(measured[2]-two/one) > 0.01 || math.Abs(measured[3]-serial) > 0.01 {
			t.Errorf("%s: gain and serial part are %.2f and %.2f, the page says %v", name, two/one, serial, measured[2:])
		}
		for i := range want {
			if math.Abs(predicted[i]-want[i]) > 0.03*want[i] { // the page rounds the serial part and the result
				t.Errorf("%s: %d is %.0f by the formula, the page says %.0f", name, i, want[i], predicted[i])
			}
		}
	}
}
