package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-cron/belfry/internal/cli"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// repository is the root of the repository, from this package.
const repository = "../.."

// documents returns the pages that people read.
func documents(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "README.zh.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			name, err := filepath.Rel(repository, file)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, filepath.ToSlash(name))
		}
	}
	return files
}

func readDocument(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// expect compares a generated file with its expected content, or writes it.
func expect(t *testing.T, name, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Errorf("%s is not what the program makes of it; after UPDATE=1 go test ./internal/cli look at its difference.\n%s", name, firstDifference(got, want))
		return
	}
	if err := os.WriteFile(filepath.Join(repository, name), []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func firstDifference(got, want string) string {
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		var g, w string
		if i < len(gotLines) {
			g = gotLines[i]
		}
		if i < len(wantLines) {
			w = wantLines[i]
		}
		if g != w {
			return fmt.Sprintf("line %d has\n  %s\nand should have\n  %s", i+1, g, w)
		}
	}
	return ""
}

// fence is a code block of a document: its info string and its text.
var fence = regexp.MustCompile("(?ms)^( *)```(\\S[^\n]*)\n(.*?)^ *```$")

// TestDocumentsShowTheOutputOfCommands runs the console blocks of all documents. A yaml block with
// "file=NAME" is a file for these.
func TestDocumentsShowTheOutputOfCommands(t *testing.T) {
	for _, name := range documents(t) {
		t.Run(name, func(t *testing.T) {
			text := readDocument(t, name)
			dir := t.TempDir()
			for _, block := range fence.FindAllStringSubmatch(text, -1) {
				if file, ok := attribute(block[2], "file"); ok {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(block[3]), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			printed := fence.ReplaceAllStringFunc(text, func(whole string) string {
				block := fence.FindStringSubmatch(whole)
				if block[2] != "console" {
					return whole
				}
				return block[1] + "```console\n" + session(t, dir, block[3]) + block[1] + "```"
			})
			expect(t, name, text, printed)
		})
	}
}

func TestConfigurationPageMarksReloadableSettings(t *testing.T) {
	_, text, _ := strings.Cut(readDocument(t, "docs/configuration.md"), "**Reloading.**")
	text, _, _ = strings.Cut(text, "\n\n")
	var documented, reloaded []string
	for _, name := range regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(text, -1) {
		documented = append(documented, name[1])
	}
	for _, f := range config.Fields() {
		if f.Reload {
			reloaded = append(reloaded, f.Name)
		}
	}
	if !slices.Equal(documented, reloaded) {
		t.Errorf("the page names %q, and reloaded are %q", documented, reloaded)
	}
}

// TestReferenceOfCommandsIsComplete searches the reference for the help of each command, which
// TestDocumentsShowTheOutputOfCommands writes.
func TestReferenceOfCommandsIsComplete(t *testing.T) {
	const name = "docs/cli.md"
	text := readDocument(t, name)
	for command := range commands(t) {
		if !strings.Contains(text, "\n$ belfry "+command+" --help\n") {
			t.Errorf("%s does not show belfry %s --help", name, command)
		}
	}
}

// TestJobFilesInDocumentsAreValid validates the yaml blocks of the guide to job files, and named
// blocks, unless they say "mistakes".
func TestJobFilesInDocumentsAreValid(t *testing.T) {
	found := 0
	for _, name := range documents(t) {
		for _, block := range fence.FindAllStringSubmatch(readDocument(t, name), -1) {
			file, isFile := attribute(block[2], "file")
			_, mistakes := attribute(block[2], "mistakes")
			if !strings.HasPrefix(block[2], "yaml") || !isFile && name != "docs/jobs.md" {
				continue
			}
			found++
			dir := t.TempDir()
			if file == "" {
				file = "job.yaml"
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(block[3]), 0o644); err != nil {
				t.Fatal(err)
			}
			out, code := run(t, dir, false, "validate", "-f", file)
			if (code == cli.ExitOK) == mistakes {
				t.Errorf("%s: the job file\n%s\nends with exit code %d:\n%s", name, block[3], code, out)
			}
		}
	}
	if found == 0 {
		t.Error("no job file was found in the documents")
	}
}

// attribute searches an info string for a word: "yaml file=jobs.yaml mistakes".
func attribute(info, name string) (value string, found bool) {
	for _, word := range strings.Fields(info)[1:] {
		if key, value, _ := strings.Cut(word, "="); key == name {
			return value, true
		}
	}
	return "", false
}

// session runs the commands of a console block, the lines with "$ ", and returns them with their
// output.
func session(t *testing.T, dir, block string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(block) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !ok {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "$ %s\n", command)
		command, withCode := strings.CutSuffix(command, "; echo $?")
		words := split(command)
		if len(words) == 0 || words[0] != "belfry" {
			t.Fatalf("only belfry can be run, not %q", command)
		}
		out, code := run(t, dir, true, words[1:]...)
		b.WriteString(out)
		if withCode {
			fmt.Fprintln(&b, code)
		}
	}
	return b.String()
}

// run runs a command in a folder, on a terminal or piped, and returns both streams combined.
func run(t *testing.T, dir string, terminal bool, args ...string) (string, cli.ExitCode) {
	t.Helper()
	environment := map[string]string{"NO_COLOR": "1"}
	var out bytes.Buffer
	code := cli.Run(context.Background(), cli.Env{
		Stdin:            strings.NewReader(""),
		Stdout:           &out,
		Stderr:           &out,
		Getenv:           func(name string) string { return environment[name] },
		Now:              func() time.Time { return clock },
		Dir:              dir,
		StdoutIsTerminal: terminal,
		StderrIsTerminal: terminal,
	}, args)
	return out.String(), code
}

// split splits a command line like a shell that only supports single quotes.
func split(command string) []string {
	var words []string
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// link is a link to another document or a heading.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksBetweenDocumentsLeadSomewhere(t *testing.T) {
	for _, name := range documents(t) {
		for _, match := range link.FindAllStringSubmatch(fence.ReplaceAllString(readDocument(t, name), ""), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			target, heading, _ := strings.Cut(match[1], "#")
			file := filepath.Join(filepath.Dir(name), target)
			if target == "" {
				file = name
			}
			if _, err := os.Stat(filepath.Join(repository, file)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, match[1])
				continue
			}
			if heading != "" && !hasHeading(readDocument(t, file), heading) {
				t.Errorf("%s links to %s, which has no such heading", name, match[1])
			}
		}
	}
}

// hasHeading reports whether a document has a heading with an anchor.
func hasHeading(text, anchor string) bool {
	for line := range strings.Lines(text) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || line[0] != '#' {
			continue
		}
		words := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
		if strings.ReplaceAll(words, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// TestDependenciesHaveTheirReason compares docs/dependencies.md with the module
// files.
func TestDependenciesHaveTheirReason(t *testing.T) {
	page := readDocument(t, "docs/dependencies.md")
	required := regexp.MustCompile(`(?m)^(?:require|\t)\s*(\S+) v\S+( // indirect)?$`)
	own := "github.com/belfry-cron/belfry"
	named := map[string]bool{}
	var files []string
	for _, pattern := range []string{"go.mod", "*/go.mod", "bench/*/go.mod", "test/*/go.mod", "test/servers/*/go.mod"} {
		found, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: found %d module files, error %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		modules := required.FindAllStringSubmatch(string(text), -1)
		for _, match := range modules {
			named[match[1]] = true
			if match[1] != own && match[2] == "" && !strings.Contains(page, "`"+match[1]+"`") {
				t.Errorf("%s requires %s, which has no line in docs/dependencies.md", file, match[1])
			}
		}
	}
	tools := readDocument(t, "tools/go.mod")
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(page, -1) {
		if !named[match[1]] && !strings.Contains(tools, match[1]+" ") {
			t.Errorf("docs/dependencies.md has a line for %s, which no module file requires", match[1])
		}
	}
}

// TestReferenceOfJobFilesIsComplete writes the tables of the fields from
// the schema.
func TestReferenceOfJobFilesIsComplete(t *testing.T) {
	const name, mark = "docs/job-reference.md", "<!-- reference -->\n"
	text := readDocument(t, name)
	before, _, found := strings.Cut(text, mark)
	if !found {
		t.Fatalf("%s has no line %s", name, mark)
	}
	var schema yaml.Node // JSON is YAML, and a Node keeps the order
	if err := yaml.Unmarshal(job.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	r := reference{defs: child(schema.Content[0], "$defs")}
	r.table("A job", "", "Job")
	for len(r.later) > 0 {
		next := r.later[0]
		r.later = r.later[1:]
		r.table("`"+next.path+"`", next.path+".", next.def)
	}
	r.table("A calendar", "", "Calendar")
	r.table("A pool", "", "Pool")
	r.table("A window", "", "Window")
	r.table("A hook", "", "Hook")
	r.table("Executors", "", "Executors")
	expect(t, name, text, before+mark+r.b.String())
}

// reference writes tables of fields.
type reference struct {
	b    strings.Builder
	defs *yaml.Node
	// later are the tables of flows, whose steps have again what a job has: shown are the
	// definitions that have a table by then.
	later []inner
	shown map[string]bool
}

type inner struct{ path, def string }

// table describes the fields of a definition, and of nested definitions.
func (r *reference) table(title, path, def string) {
	var inside []inner
	if r.shown == nil {
		r.shown = map[string]bool{}
	}
	r.shown[def] = true
	definition := child(r.defs, def)
	required := map[string]bool{}
	for _, n := range items(child(definition, "required")) {
		required[n.Value] = true
	}
	fmt.Fprintf(&r.b, "\n## %s\n\n| field | value | meaning |\n|---|---|---|\n", title)
	properties := child(definition, "properties")
	for i := 0; i < len(properties.Content); i += 2 {
		field, schema := properties.Content[i].Value, properties.Content[i+1]
		value, ref := r.value(schema)
		star := ""
		if required[field] {
			star = " *"
		}
		description := strings.ReplaceAll(child(schema, "description").Value, "|", `\|`)
		fmt.Fprintf(&r.b, "| `%s`%s | %s | %s |\n", field, star, value, description)
		if ref != "" {
			inside = append(inside, inner{path + field, ref})
		}
	}
	for _, in := range inside {
		if isFlow := strings.HasPrefix(in.path, "run.flow"); (isFlow || def == "Window") && r.shown[in.def] {
			continue
		} else if isFlow && in.path == "run.flow" {
			r.later = append(r.later, in)
			continue
		}
		r.table("`"+in.path+"`", in.path+".", in.def)
	}
}

// value describes a field's value, and returns its nested definition.
func (r *reference) value(schema *yaml.Node) (words, def string) {
	if ref := child(schema, "$ref"); ref != nil {
		name := strings.TrimPrefix(ref.Value, "#/$defs/")
		if definition := child(r.defs, name); child(definition, "enum") != nil {
			return r.value(definition)
		}
		return "mapping", name
	}
	if enum := child(schema, "enum"); enum != nil {
		var words []string
		for _, n := range items(enum) {
			words = append(words, "`"+n.Value+"`")
		}
		return strings.Join(words, ", "), ""
	}
	if options := child(schema, "anyOf"); options != nil {
		first, def := r.value(options.Content[0])
		second := options.Content[1]
		switch {
		case child(second, "items") != nil:
			return "list of: " + first, def
		case child(second, "$ref") != nil:
			mapping, def := r.value(second)
			return first + " or " + mapping, def
		}
		return first, def // or 0, or a plain number
	}
	if inner := child(schema, "additionalProperties"); inner != nil && inner.Kind == yaml.MappingNode {
		value, def := r.value(inner)
		return "names, each with: " + value, def
	}
	if format := child(schema, "format"); format != nil {
		return "instant", ""
	}
	if pattern := child(schema, "pattern"); pattern != nil {
		switch {
		case strings.Contains(pattern.Value, "forever"):
			return "duration or `forever`", ""
		case strings.Contains(pattern.Value, "w|d|h|m"):
			return "duration", ""
		case strings.Contains(pattern.Value, "iB"):
			return "size", ""
		case strings.Contains(pattern.Value, "0o"):
			return "octal digits", ""
		}
		return "text", ""
	}
	kind := child(schema, "type")
	switch low, high := child(schema, "minimum"), child(schema, "maximum"); {
	case low != nil && high != nil:
		return fmt.Sprintf("%s to %s", low.Value, high.Value), ""
	case low != nil:
		return "from " + low.Value, ""
	case kind.Value == "boolean":
		return "`true`, `false`", ""
	}
	return "text", ""
}

// child returns the value of a key, or nil.
func child(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func items(list *yaml.Node) []*yaml.Node {
	if list == nil {
		return nil
	}
	return list.Content
}
