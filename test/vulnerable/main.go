// Command vulnerable looks for known vulnerabilities of Go and of all modules in the program that it
// builds. The database is a module, so that a machine that gets modules needs nothing else.
//
// It fails for a vulnerability of a module whose functions are in the program, and with -std also for one of
// the standard library: that is mended by another Go, not by a change of the code.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// database is the module with the vulnerabilities, one file each, in a directory that govulncheck reads.
const database = "golang.org/x/vulndb"

// explained are vulnerabilities that the program has and that do no harm, with the reason.
var explained = map[string]string{}

func main() {
	version := flag.String("database", "latest", "the version of "+database)
	std := flag.Bool("std", false, "fail for the standard library, too")
	flag.Parse()
	if err := check(*version, *std); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(version string, std bool) error {
	dir, err := os.MkdirTemp("", "belfry-vulnerable")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "belfry")
	if _, err := output("go", "build", "-o", program, "./cmd/belfry"); err != nil {
		return err
	}
	data, err := download(version)
	if err != nil {
		return err
	}
	words, err := output("go", "tool", "-modfile=tools/go.mod", "govulncheck", "-mode=binary", "-format=json", "-db=file://"+filepath.ToSlash(data), program)
	if err != nil {
		return err
	}
	found, err := read(strings.NewReader(words))
	if err != nil {
		return err
	}
	text, failed := judge(found, std)
	fmt.Print(text)
	if failed {
		return errors.New("the program has known vulnerabilities: update what has them, or explain them in test/vulnerable")
	}
	return nil
}

// download returns the directory of the database.
func download(version string) (string, error) {
	text, err := output("go", "mod", "download", "-json", database+"@"+version)
	if err != nil {
		return "", fmt.Errorf("the database of known vulnerabilities: %w", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(text), &module); err != nil {
		return "", err
	}
	return filepath.Join(module.Dir, "data", "osv"), nil
}

func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var said, failed strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &failed
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, failed.String()+said.String())
	}
	return said.String(), nil
}

// vulnerability is one of which functions are in the program.
type vulnerability struct{ id, module, version, fixed string }

// std is what govulncheck calls the standard library.
const std = "stdlib"

// read reads the answer of govulncheck, a list of objects of which findings are some. Findings without a
// function are of modules and packages whose vulnerable functions are not in the program.
func read(r io.Reader) ([]vulnerability, error) {
	found := map[string]vulnerability{}
	for d := json.NewDecoder(r); ; {
		var message struct {
			Finding *struct {
				OSV   string `json:"osv"`
				Fixed string `json:"fixed_version"`
				Trace []struct{ Module, Version, Function string }
			}
		}
		if err := d.Decode(&message); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if f := message.Finding; f != nil && len(f.Trace) > 0 && f.Trace[0].Function != "" {
			found[f.OSV] = vulnerability{f.OSV, f.Trace[0].Module, f.Trace[0].Version, f.Fixed}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b vulnerability) int { return strings.Compare(a.id, b.id) }), nil
}

// judge says what was found, and whether it is a failure.
func judge(found []vulnerability, alsoStd bool) (text string, failed bool) {
	var b strings.Builder
	for _, v := range found {
		why, known := explained[v.id]
		switch {
		case known:
		case v.module == std && !alsoStd:
			why = "a release must be built with that version of Go"
		default:
			why, failed = "https://pkg.go.dev/vuln/"+v.id, true
		}
		fmt.Fprintf(&b, "%s in %s %s, fixed in %s: %s\n", v.id, v.module, v.version, v.fixed, why)
	}
	for id := range explained {
		if !slices.ContainsFunc(found, func(v vulnerability) bool { return v.id == id }) {
			fmt.Fprintf(&b, "%s is explained, and the program does not have it\n", id)
			failed = true
		}
	}
	return b.String(), failed
}
