// Command mutations breaks the invariants on purpose, one fault at a time, and requires that the
// test named for each fault fails. The code itself is not changed: the compiler gets another text
// for one file (go build -overlay).
//
//	go run ./test/mutations [PATTERN]
//
// runs the faults whose invariant or description the pattern matches, or all.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// faultTime bounds the test of one fault: some tests wait for an event that a fault prevents.
const faultTime = 5 * time.Minute

func main() {
	pattern := ""
	if len(os.Args) > 1 {
		pattern = os.Args[1]
	}
	want, err := regexp.Compile(pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := run(want); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(want *regexp.Regexp) error {
	dir, err := os.MkdirTemp("", "belfry-mutations-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began, tried := time.Now(), 0
	var wrong []error
	for i := range faults {
		f := &faults[i]
		if !want.MatchString(f.invariant + ": " + f.what) {
			continue
		}
		tried++
		err := f.try(dir)
		if err != nil {
			wrong = append(wrong, err)
			fmt.Printf("NOT SEEN %s: %s: %v\n", f.invariant, f.what, err)
			continue
		}
		fmt.Printf("seen     %s: %s: %s %s\n", f.invariant, f.what, f.pkg, f.test)
	}
	switch {
	case tried == 0:
		return fmt.Errorf("no fault matches %s", want)
	case len(wrong) > 0:
		return fmt.Errorf("FAILED: %d of %d faults were not seen", len(wrong), tried)
	}
	fmt.Printf("PASSED: %d faults were seen in %s\n", tried, time.Since(began).Round(time.Second))
	return nil
}

// broken returns the text of the file with the fault in it.
func (f *fault) broken(text []byte) ([]byte, error) {
	if n := bytes.Count(text, []byte(f.old)); n != 1 || f.old == "" {
		return nil, fmt.Errorf("%s has %d times what the fault replaces: %q", f.file, n, f.old)
	}
	return bytes.Replace(text, []byte(f.old), []byte(f.new), 1), nil
}

// try returns nil if the test fails because of the fault.
func (f *fault) try(dir string) error {
	text, err := os.ReadFile(f.file)
	if err != nil {
		return err
	}
	if text, err = f.broken(text); err != nil {
		return err
	}
	other, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
	file, err := filepath.Abs(f.file)
	if err != nil {
		return err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: other}})
	if err == nil {
		err = errors.Join(os.WriteFile(other, text, 0o600), os.WriteFile(overlay, replace, 0o600))
	}
	if err != nil {
		return err
	}
	args := append([]string{"test"}, strings.Fields(f.pkg)...) // -C comes first
	cmd := exec.Command("go", append(args, "-vet=off", "-count=1", "-timeout", faultTime.String(), "-run", f.test)...)
	// Longer than the simulations take in make test: they end with the first world that shows it.
	// The programs that tests build have the fault as well.
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay, "BELFRY_SIM_CORE=12", "BELFRY_SIM_NODES=3")
	out, err := cmd.CombinedOutput()
	words := string(out)
	var exit *exec.ExitError
	switch {
	case err == nil && strings.Contains(words, "no tests to run"):
		return fmt.Errorf("%s %s is no test", f.pkg, f.test)
	case err == nil:
		return fmt.Errorf("%s %s passes", f.pkg, f.test)
	case !errors.As(err, &exit):
		return err
	case !strings.Contains(words, "--- FAIL: ") && !strings.Contains(words, "panic: "):
		return fmt.Errorf("the fault cannot be compiled:\n%s", words)
	}
	return nil
}
