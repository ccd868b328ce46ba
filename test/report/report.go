package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// module is the prefix of all packages of the repository, including nested modules.
const module = "github.com/belfry-cron/belfry"

// event is one line of go test -json; go doc test2json describes it.
type event struct {
	Action     string
	Package    string
	ImportPath string // the package being built
	Test       string
	Output     string
}

// test is the name of a test with its package; the name is empty for the package itself.
type test struct{ pkg, name string }

// failure is a failed or skipped test, with its output.
type failure struct {
	test
	output string
}

// report collects the results of tests.
type report struct {
	mu       sync.Mutex
	out      io.Writer
	output   map[test]*strings.Builder // output of running tests
	failed   []failure
	skipped  []failure // they say why
	packages int
	passed   int // tests except subtests
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[test]*strings.Builder{}}
}

// line handles a line of the output. A line that is no test event is shown as it is.
func (r *report) line(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		fmt.Fprint(r.out, line)
		return
	}
	if e.ImportPath != "" { // of a compiler, which prints only errors
		fmt.Fprint(r.out, e.Output)
		return
	}
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		if r.output[t] == nil {
			r.output[t] = &strings.Builder{}
		}
		r.output[t].WriteString(e.Output)
	case "pass", "skip":
		switch {
		case e.Test == "":
			r.packageEnded(e)
		case e.Action == "skip":
			r.skipped = append(r.skipped, r.ended(t))
		case !strings.Contains(e.Test, "/"):
			r.passed++
		}
		delete(r.output, t)
	case "fail":
		if e.Test == "" {
			r.packageEnded(e)
		} else {
			r.testFailed(t)
		}
		delete(r.output, t)
	}
}

// progress are the lines RUN, PAUSE and CONT of a test.
var progress = regexp.MustCompile(`(?m)^=== .*\n`)

// ended returns a test with its output.
func (r *report) ended(t test) failure {
	f := failure{test: t}
	if b := r.output[t]; b != nil {
		f.output = progress.ReplaceAllString(b.String(), "")
	}
	return f
}

// testFailed shows the output of a test.
func (r *report) testFailed(t test) {
	f := r.ended(t)
	if f.output != "" {
		fmt.Fprintf(r.out, "%s %s\n%s", t.pkg, t.name, f.output)
	}
	r.failed = append(r.failed, f)
}

// packageEnded shows the line of a package, and all of its output if it failed. An unfinished test
// was interrupted by a panic or a timeout.
func (r *report) packageEnded(e event) {
	failures := len(r.failed)
	for _, t := range r.unfinished(e.Package) {
		if e.Action == "fail" {
			r.testFailed(t)
		}
		delete(r.output, t)
	}
	text := ""
	if b := r.output[test{pkg: e.Package}]; b != nil {
		text = b.String()
	}
	if e.Action == "fail" {
		ofPackage := func(f failure) bool { return f.pkg == e.Package }
		if len(r.failed) == failures && !slices.ContainsFunc(r.failed, ofPackage) {
			r.failed = append(r.failed, failure{test: test{pkg: e.Package}, output: text})
		}
		fmt.Fprint(r.out, text)
		return
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "ok ") {
			r.packages++
			fmt.Fprint(r.out, line)
		}
	}
}

// unfinished returns the running tests of a package.
func (r *report) unfinished(pkg string) (tests []test) {
	for t := range r.output {
		if t.pkg == pkg && t.name != "" {
			tests = append(tests, t)
		}
	}
	slices.SortFunc(tests, func(a, b test) int { return cmp.Compare(a.name, b.name) })
	return tests
}

// finish shows the end of the report, and reports whether all is well. The result of the
// command is err; files is the root of the repository.
func (r *report) finish(files fs.FS, took time.Duration, err error) bool {
	took = took.Round(time.Second)
	skipped := ""
	if len(r.skipped) > 0 {
		skipped = fmt.Sprintf(", %d skipped", len(r.skipped))
		fmt.Fprint(r.out, "\nSkipped on this machine:\n")
		slices.SortFunc(r.skipped, func(a, b failure) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name)) })
		for _, f := range r.skipped {
			fmt.Fprintf(r.out, "  %s in ./%s\n%s", f.name, folder(f.pkg), reasons(files, f))
		}
	}
	if len(r.failed) == 0 {
		switch {
		case err != nil:
			fmt.Fprintf(r.out, "\nFAILED after %s, and not in a test: %v\n", took, err)
		case r.passed == 0:
			fmt.Fprintf(r.out, "\nFAILED: no test was run\n")
		default:
			fmt.Fprintf(r.out, "\nPASSED: %d tests of %d packages in %s%s\n", r.passed, r.packages, took, skipped)
			return true
		}
		return false
	}
	var again []string
	for _, f := range r.failed {
		// A test that failed because of a subtest is not listed beside it.
		within := func(other failure) bool { return other.pkg == f.pkg && strings.HasPrefix(other.name, f.name+"/") }
		if f.name == "" || !slices.ContainsFunc(r.failed, within) {
			again = append(again, "  "+rerun(files, f.test)+"\n"+reasons(files, f))
		}
	}
	slices.Sort(again)
	again = slices.Compact(again)
	fmt.Fprintf(r.out, "\nFAILED: %d, beside %d tests that passed, in %s%s. To run each again:\n%s", len(again), r.passed, took, skipped, strings.Join(again, ""))
	return false
}

const (
	// reasonsMax bounds the messages of a failed test at the end of the report: one is usual, and a
	// crash test may log a thousand lines.
	reasonsMax = 5
	// reasonLines is how many lines of each.
	reasonLines = 4
)

var (
	message = regexp.MustCompile(`^ +([^ :]+\.go):([0-9]+): `)
	logs    = regexp.MustCompile(`\.Logf?\(`)
)

// reasons returns the failure messages of a test: a panic, and messages from lines without a call
// of Log. A line that calls a helper may have logged; its messages are included.
func reasons(files fs.FS, f failure) string {
	var b strings.Builder
	shown, left := 0, 0 // left is how many more lines of a message may follow
	for line := range strings.Lines(f.output) {
		m := message.FindStringSubmatch(line)
		switch {
		case m != nil && logs.MatchString(sourceLine(files, f.pkg, m[1], m[2])):
			left = 0
		case m != nil || strings.HasPrefix(line, "panic: "):
			if shown == reasonsMax {
				return b.String() + "      ...\n"
			}
			shown, left = shown+1, reasonLines
		case !strings.HasPrefix(line, "        "):
			left = 0
		}
		if left > 0 {
			left--
			b.WriteString("      " + strings.TrimPrefix(line, "    "))
		}
	}
	return b.String()
}

// sourceLine returns a line of a file of a package, empty where it cannot be read.
func sourceLine(files fs.FS, pkg, name, number string) string {
	text, err := fs.ReadFile(files, path.Join(folder(pkg), name))
	n, _ := strconv.Atoi(number)
	lines := strings.Split(string(text), "\n")
	if err != nil || n < 1 || n > len(lines) {
		return ""
	}
	return lines[n-1]
}

// folder returns the folder of a package in the repository.
func folder(pkg string) string {
	return cmp.Or(strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/"), ".")
}

// rerun returns the command line that runs a test again.
func rerun(files fs.FS, t test) string {
	dir := folder(t.pkg)
	words := []string{"go"}
	inside := "./" + dir
	for parent := dir; parent != "."; parent = path.Dir(parent) {
		if _, err := fs.Stat(files, path.Join(parent, "go.mod")); err == nil {
			words = append(words, "-C", parent)
			inside = "." + strings.TrimPrefix(dir, parent)
			break
		}
	}
	words = append(words, "test", "-count=1")
	if needsServers(files, dir) {
		words = append(words, "-tags", "servers")
	}
	if t.name != "" {
		var pattern []string
		for name := range strings.SplitSeq(t.name, "/") {
			pattern = append(pattern, "^"+regexp.QuoteMeta(name)+"$")
		}
		quoted := "'" + strings.ReplaceAll(strings.Join(pattern, "/"), "'", `'\''`) + "'"
		words = append(words, "-run", quoted)
	}
	return strings.Join(append(words, inside), " ")
}

// needsServers reports whether a folder has tests that are built only with the tag servers.
func needsServers(files fs.FS, dir string) bool {
	names, err := fs.Glob(files, path.Join(dir, "*_test.go"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(names, func(name string) bool {
		text, err := fs.ReadFile(files, name)
		return err == nil && strings.HasPrefix(string(text), "//go:build servers\n")
	})
}
