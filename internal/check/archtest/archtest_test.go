package archtest

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

// root is the root of the module, from this package.
func root() fs.FS { return os.DirFS("../../..") }

func TestPackagesKeepTheRules(t *testing.T) {
	packages, err := load(root())
	if err != nil {
		t.Fatal(err)
	}
	for _, sentence := range check(packages, table, wings) {
		t.Error(sentence)
	}
}

// Each row breaks a rule and names a part of the expected complaint.
func TestEachRuleFires(t *testing.T) {
	// A small module that obeys all rules.
	good := map[string]string{
		"cron/cron.go":            "// Package cron is.\npackage cron\nimport \"time\"\n// Next is.\nfunc Next(t time.Time) time.Time { return t }\n",
		"job/job.go":              "// Package job is.\npackage job\nimport _ \"" + module + "/cron\"\n// RunSpec is.\ntype RunSpec struct{ Shell *int }\n",
		"internal/a/a.go":         "// Package a is.\npackage a\nimport (\n_ \"os\"\n_ \"" + module + "/job\"\n)\n",
		"internal/b/b.go":         "// Package b is.\npackage b\nimport _ \"example.org/allowed/sub\"\n",
		"internal/b/b_test.go":    "package b_test\nimport (\n_ \"" + module + "/internal/b\"\n_ \"example.org/testing\"\n)\n",
		"cmd/prog/main.go":        "// Command prog is.\npackage main\nfunc main() {}\n",
		"apart/go.mod":            "module apart\n",
		"apart/apart.go":          "package apart\nfunc init() {}\n",
		"cron/testdata/sample.go": "package broken\n",
	}
	lines := map[string]line{
		"cron":       {pure: true},
		"job":        {pure: true, imports: []string{"cron"}},
		"internal/a": {imports: []string{"job"}},
		"internal/b": {modules: []string{"example.org/allowed"}, testModules: []string{"example.org/testing"}},
		"cmd/prog":   {},
	}
	halls := []wing{{"below", []string{"cron"}}, {"words", []string{"job"}}, {"effects", []string{"internal/"}}, {"programs", []string{"cmd/"}}}
	tests := []struct {
		name  string
		files map[string]string // in addition to the good ones
		lines map[string]line
		want  string // "" for none
	}{
		{name: "nothing is said about a module that keeps them"},

		// The table.
		{
			name:  "a package without a line",
			files: map[string]string{"internal/fresh/f.go": "// Package fresh is.\npackage fresh\n"},
			want:  "package internal/fresh has no line in the table of internal/check/archtest/table.go: give it one",
		},
		{
			name:  "an arrow that goes up",
			lines: map[string]line{"cron": {pure: true, imports: []string{"job"}}},
			want:  "the table lets cron import job, whose wing words is above below",
		},
		{
			name:  "an arrow between effects",
			lines: map[string]line{"internal/a": {imports: []string{"job", "internal/b"}}},
			want:  "the table lets internal/a import internal/b: let it declare an interface",
		},
		{
			name:  "an arrow to a shared effect",
			lines: map[string]line{"internal/a": {imports: []string{"job", "internal/b"}}, "internal/b": {shared: true, modules: []string{"example.org/allowed"}, testModules: []string{"example.org/testing"}}},
		},
		{
			name:  "a package in no wing",
			files: map[string]string{"fresh/f.go": "// Package fresh is.\npackage fresh\n"},
			lines: map[string]line{"fresh": {}},
			want:  "package fresh is in no wing",
		},
		{
			name:  "an arrow to nowhere",
			lines: map[string]line{"internal/a": {imports: []string{"job", "internal/none"}}},
			want:  "internal/none, which has no line",
		},
		{
			name:  "a pure package on an effectful one",
			lines: map[string]line{"cron": {}},
			want:  "the pure package job import cron, which is not pure",
		},

		// Imports.
		{
			name:  "an import inside the module that the line does not name",
			files: map[string]string{"internal/b/more.go": "package b\nimport _ \"" + module + "/cron\"\n"},
			want:  "internal/b/more.go:2: internal/b may not import cron",
		},
		{
			name:  "an import of the root package that the line does not name",
			files: map[string]string{"internal/b/more.go": "package b\nimport _ \"" + module + "\"\n"},
			want:  "internal/b may not import .",
		},
		{
			name:  "an import inside the module by a test",
			files: map[string]string{"internal/b/more_test.go": "package b\nimport _ \"" + module + "/internal/a\"\n"},
			want:  "internal/b may not import internal/a",
		},
		{
			name:  "a package for tests in the package itself",
			files: map[string]string{"internal/a/more.go": "package a\nimport _ \"" + module + "/internal/b\"\n"},
			lines: map[string]line{"internal/a": {imports: []string{"job"}, testImports: []string{"internal/b"}}},
			want:  "internal/a may not import internal/b",
		},
		{
			name:  "a package for tests in a test",
			files: map[string]string{"internal/a/more_test.go": "package a\nimport _ \"" + module + "/internal/b\"\n"},
			lines: map[string]line{"internal/a": {imports: []string{"job"}, testImports: []string{"internal/b"}}},
		},
		{
			name:  "a module that the line does not name",
			files: map[string]string{"internal/a/more.go": "package a\nimport _ \"example.org/allowed\"\n"},
			want:  "internal/a may not import example.org/allowed",
		},
		{
			name:  "a module whose name only begins like an allowed one",
			files: map[string]string{"internal/b/more.go": "package b\nimport _ \"example.org/allowedtoo\"\n"},
			want:  "may not import example.org/allowedtoo",
		},
		{
			name:  "a module for tests in the package itself",
			files: map[string]string{"internal/b/more.go": "package b\nimport _ \"example.org/testing\"\n"},
			want:  "may not import example.org/testing",
		},

		// Purity.
		{
			name:  "a pure package that imports effects",
			files: map[string]string{"cron/more.go": "package cron\nimport _ \"os\"\n"},
			want:  "the pure package cron may not import os",
		},
		{
			name:  "a pure package that imports context",
			files: map[string]string{"cron/more.go": "package cron\nimport _ \"context\"\n"},
			want:  "the pure package cron may not import context",
		},
		{
			name:  "a pure package that imports chance without a seed",
			files: map[string]string{"cron/more.go": "package cron\nimport _ \"math/rand\"\n"},
			want:  "the pure package cron may not import math/rand",
		},
		{
			name:  "a pure package that reads the clock",
			files: map[string]string{"cron/more.go": "package cron\nimport \"time\"\nvar t = time.Now()\n"},
			want:  "cron/more.go:3: the pure package cron uses time.Now",
		},
		{
			name:  "a pure package that reads the clock under another name",
			files: map[string]string{"cron/more.go": "package cron\nimport clock \"time\"\nvar now = clock.Now\n"},
			want:  "uses clock.Now",
		},
		{
			name:  "a pure package that hides what it uses",
			files: map[string]string{"cron/more.go": "package cron\nimport . \"time\"\nvar t = Now()\n"},
			want:  "imports time without a name",
		},
		{
			name:  "a pure package that asks the machine for a zone",
			files: map[string]string{"cron/more.go": "package cron\nimport \"time\"\nvar z, _ = time.LoadLocation(\"Europe/Berlin\")\n"},
			want:  "uses time.LoadLocation",
		},
		{
			name:  "a pure package that prints",
			files: map[string]string{"cron/more.go": "package cron\nimport \"fmt\"\nfunc f() { fmt.Println() }\n"},
			want:  "uses fmt.Println",
		},
		{
			name:  "a pure package that reads folders",
			files: map[string]string{"cron/more.go": "package cron\nimport \"path/filepath\"\nvar f, _ = filepath.Glob(\"*\")\n"},
			want:  "uses filepath.Glob",
		},
		{
			name:  "a pure package that draws without a seed",
			files: map[string]string{"cron/more.go": "package cron\nimport \"math/rand/v2\"\nvar n = rand.IntN(3)\n"},
			want:  "uses rand.IntN",
		},
		{
			name:  "a pure package with a goroutine",
			files: map[string]string{"cron/more.go": "package cron\nfunc f() { go f() }\n"},
			want:  "the pure package cron starts a goroutine",
		},
		{
			name:  "the tests of a pure package may read the clock",
			files: map[string]string{"cron/more_test.go": "package cron\nimport (\n\"os\"\n\"time\"\n)\nvar t, a = time.Now(), os.Args\n"},
		},
		{
			name:  "a pure package may draw from a seed",
			files: map[string]string{"cron/more.go": "package cron\nimport \"math/rand/v2\"\nvar n = rand.New(rand.NewPCG(1, 2)).IntN(3)\n"},
		},

		// Names and comments.
		{
			name:  "a package whose name says nothing",
			files: map[string]string{"internal/util/u.go": "// Package util is.\npackage util\n"},
			lines: map[string]line{"internal/util": {}},
			want:  `"util" says nothing`,
		},
		{
			name:  "a package inside one whose name says nothing",
			files: map[string]string{"internal/common/x/x.go": "// Package x is.\npackage x\n"},
			lines: map[string]line{"internal/common/x": {}},
			want:  `"common" says nothing`,
		},
		{
			name:  "a package without a comment",
			files: map[string]string{"cron/cron.go": "package cron\n"},
			want:  "package cron has no comment",
		},
		{
			name:  "a package comment that does not name the package",
			files: map[string]string{"cron/cron.go": "// This is cron.\npackage cron\n"},
			want:  `cron/cron.go:2: the comment of package cron begins with "Package cron "`,
		},
		{
			name:  "a program whose comment does not name it",
			files: map[string]string{"cmd/prog/main.go": "// Package main is.\npackage main\n"},
			want:  `begins with "Command prog "`,
		},
		{
			name:  "two package comments",
			files: map[string]string{"cron/more.go": "// Package cron is twice.\npackage cron\n"},
			want:  "package cron has several comments, at cron/cron.go:2 and cron/more.go:2",
		},
		{
			name:  "a function without a comment",
			files: map[string]string{"job/more.go": "package job\nfunc New() {}\n"},
			want:  "job/more.go:2: job.New is exported and has no comment",
		},
		{
			name:  "a method without a comment",
			files: map[string]string{"job/more.go": "package job\n// Set is.\ntype Set[T any] struct{}\nfunc (s *Set[T]) Add() {}\n"},
			want:  "job.Set.Add is exported",
		},
		{
			name:  "a type whose comment is about something else",
			files: map[string]string{"job/more.go": "package job\n// Sets are.\ntype Set struct{}\n"},
			want:  "job.Set is exported",
		},
		{
			name:  "a type in a group with a comment on the group only",
			files: map[string]string{"job/more.go": "package job\n// Set is.\ntype (\nSet struct{}\n)\n"},
			want:  "job.Set is exported",
		},
		{
			name:  "a constant without a comment",
			files: map[string]string{"job/more.go": "package job\nconst Max = 3\n"},
			want:  "job.Max is exported",
		},
		{
			name:  "what needs no comment",
			files: map[string]string{"job/more.go": "package job\n// Limits.\nconst (\nMax = 3\nMin = 1\n)\n// A Set is.\ntype Set int\nfunc (Set) Error() string { return \"\" }\ntype own int\nfunc (own) Add() {}\n"},
		},
		{
			name:  "something that happens by import",
			files: map[string]string{"internal/a/more.go": "package a\nfunc init() {}\n"},
			want:  "internal/a/more.go:2: package internal/a has an init function",
		},
		{
			name:  "a branch by the fields of a kind of work",
			files: map[string]string{"internal/a/more.go": "package a\nvar has = j.Run.Shell != nil\n"},
			want:  "internal/a/more.go:2: package internal/a branches by the kind of work",
		},
		{
			name:  "a switch over the kinds of work",
			files: map[string]string{"internal/a/more.go": "package a\nfunc f() { switch j.Run.Work() {} }\n"},
			want:  "internal/a/more.go:2: package internal/a branches by the kind of work",
		},
		{
			name:  "a branch by the kind of work in package job",
			files: map[string]string{"job/more.go": "package job\nvar has = j.Run.Shell != nil\n"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for _, files := range []map[string]string{good, tt.files} {
				for name, text := range files {
					fsys[name] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			allowed := maps.Clone(lines)
			maps.Copy(allowed, tt.lines)

			packages, err := load(fsys)
			if err != nil {
				t.Fatal(err)
			}
			wrong := check(packages, allowed, halls)

			switch {
			case tt.want == "" && len(wrong) > 0:
				t.Errorf("said %q about a good module", wrong)
			case tt.want != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], tt.want)):
				t.Errorf("said %q\nwant one sentence with %q", wrong, tt.want)
			}
		})
	}
}

func TestInvalidGoFileStopsTheCheck(t *testing.T) {
	_, err := load(fstest.MapFS{path.Join("cron", "cron.go"): {Data: []byte("no Go")}})
	if err == nil || !strings.Contains(err.Error(), "cron/cron.go:1") {
		t.Errorf("load returned %v, want an error that names the place", err)
	}
}
