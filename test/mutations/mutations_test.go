package main

import (
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// faultsEach is the least number of faults of each invariant.
const faultsEach = 3

func TestEachFaultFitsTheCode(t *testing.T) {
	of := map[string]int{}
	for i := range faults {
		f := &faults[i]
		of[f.invariant]++
		text, err := os.ReadFile(filepath.Join(root, f.file))
		if err != nil {
			t.Error(err)
			continue
		}
		broken, err := f.broken(text)
		if err == nil {
			_, err = format.Source(broken)
		}
		if err != nil {
			t.Errorf("%s: %s: %v", f.invariant, f.what, err)
		}
		if !hasTest(t, f) {
			t.Errorf("%s: %s: %s has no test %s", f.invariant, f.what, f.pkg, f.test)
		}
	}
	for _, invariant := range []string{once, accounted, startedOnce, withdrawn, overlap, noZombies, acknowledged, bounded, handedOver} {
		if of[invariant] < faultsEach {
			t.Errorf("%s has %d faults, want at least %d", invariant, of[invariant], faultsEach)
		}
	}
}

// cases are the names of the cases of the suite of the stores, as go test writes them.
func cases(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "store", "storetest", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^\t(?:\{|t\.Run\()"([^"]+)", func`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, strings.ReplaceAll(found[1], " ", "_"))
		}
	}
	return names
}

// hasTest reports whether the package of a fault has its test, and the suite of the stores its
// case.
func hasTest(t *testing.T, f *fault) bool {
	t.Helper()
	if _, pattern, found := strings.Cut(f.test, "/"); found && f.pkg == suite && !slices.ContainsFunc(cases(t), regexp.MustCompile(pattern).MatchString) {
		return false
	}
	name := regexp.MustCompile(`^\^(Test[A-Za-z0-9]*)`).FindStringSubmatch(f.test)
	dir := f.pkg[strings.LastIndex(f.pkg, " ")+1:]
	if module, found := strings.CutPrefix(f.pkg, "-C "); found {
		dir = filepath.Join(strings.Fields(module)[0], dir)
	}
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil || name == nil {
		t.Fatalf("%s: %v", f.test, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+name[1]+"(t *testing.T)") {
			return true
		}
	}
	return false
}

func TestAFaultThatNoTestSeesIsReported(t *testing.T) {
	t.Chdir(root)
	f := fault{once, "nothing is wrong", "internal/decide/stripes/stripes.go", "package stripes\n", "package stripes // as before\n", "./internal/decide/stripes", "^Test"}
	if err := f.try(t.TempDir()); err == nil || !strings.Contains(err.Error(), "passes") {
		t.Errorf("got %v", err)
	}
	f.new = "package stripes; var broken int = \"\"\n"
	if err := f.try(t.TempDir()); err == nil || !strings.Contains(err.Error(), "cannot be compiled") {
		t.Errorf("got %v", err)
	}
	f.test = "^TestNothing$"
	f.new = "package stripes // as before\n"
	if err := f.try(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is no test") {
		t.Errorf("got %v", err)
	}
}
