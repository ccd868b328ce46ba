package archtest

import (
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// drawn is a package in the picture of docs/architecture.md.
type drawn struct {
	layer string
	row   int // of the layer, from the top
}

// readPicture reads the picture: a line for each package, the first of a layer with the name
// of the layer before it. Lines that name no package are arrows.
func readPicture(text string) map[string]drawn {
	_, text, _ = strings.Cut(text, "```text\n")
	text, _, _ = strings.Cut(text, "```")
	packages := map[string]drawn{}
	now := drawn{row: -1}
	for line := range strings.Lines(text) {
		const margin = 16 // columns for the names of layers
		if len(line) <= margin {
			continue
		}
		if name := strings.TrimSpace(line[:margin]); name != "" {
			now = drawn{name, now.row + 1}
		}
		if path, _, _ := strings.Cut(line[margin:], " "); path != "" {
			packages[strings.TrimSpace(path)] = now
		}
	}
	return packages
}

// ownPath returns the path of a package within the module, "." for its root.
func ownPath(path string) (own string, isOwn bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// imported returns the packages of the module and what each imports of it, by go list.
func imported(t *testing.T) map[string][]string {
	t.Helper()
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	list.Dir = "../../.."
	text, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		path, _ := ownPath(words[0])
		imports[path] = nil
		for _, to := range words[1:] {
			if own, isOwn := ownPath(to); isOwn {
				imports[path] = append(imports[path], own)
			}
		}
	}
	return imports
}

// checkPicture returns what is wrong with a picture of packages that import each other.
func checkPicture(picture map[string]drawn, imports map[string][]string, table map[string]line) (wrong []string) {
	for path, list := range imports {
		if strings.HasPrefix(path, "test/") || table[path].layer == aside {
			continue // the picture is of what programs have inside
		}
		at, there := picture[path]
		if !there {
			wrong = append(wrong, "the picture has no line for "+path+": add it to the layer "+table[path].layer.String())
			continue
		}
		if at.layer != table[path].layer.String() {
			wrong = append(wrong, path+" is in the picture as "+at.layer+", and its layer is "+table[path].layer.String())
		}
		for _, to := range list {
			if below, there := picture[to]; there && below.row <= at.row {
				wrong = append(wrong, path+" imports "+to+", which is not below it in the picture")
			}
		}
	}
	for path := range picture {
		if _, there := imports[path]; !there {
			wrong = append(wrong, "the picture has "+path+", and there is no such package")
		}
	}
	slices.Sort(wrong)
	return wrong
}

func TestThePictureOfThePackagesIsTrue(t *testing.T) {
	text, err := fs.ReadFile(root(), "docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, sentence := range checkPicture(readPicture(string(text)), imported(t), table) {
		t.Errorf("docs/architecture.md: %s", sentence)
	}
	for l := expressions; l <= aside; l++ {
		if !strings.Contains(string(text), "\n| "+l.String()+": ") {
			t.Errorf("docs/architecture.md: the table of layers has no row for %s", l)
		}
	}
}

func TestWrongPictureIsDetected(t *testing.T) {
	small := map[string]line{"cmd": {layer: programs}, "shell": {layer: shells}, "noun": {layer: nouns}, "tests": {layer: aside}}
	imports := map[string][]string{"cmd": {"shell"}, "shell": {"noun"}, "noun": nil, "tests": {"cmd"}}
	const picture = "```text\nprograms        cmd      a\n                  │\nshells          shell    b\n                  │\nnouns           noun     c\n```"
	if wrong := checkPicture(readPicture(picture), imports, small); len(wrong) > 0 {
		t.Errorf("a true picture: %q", wrong)
	}
	for from, c := range map[string]struct{ to, says string }{
		"shells          shell    b\n":           {"", "no line for shell"},
		"nouns           noun     c\n":           {"nouns           noun     c\n                gone     d\n", "the picture has gone"},
		"                  │\nshells          s": {"                s", "shell is in the picture as programs"},
	} {
		wrong := strings.Join(checkPicture(readPicture(strings.Replace(picture, from, c.to, 1)), imports, small), "\n")
		if !strings.Contains(wrong, c.says) {
			t.Errorf("with %q it says %q, want %q", c.to, wrong, c.says)
		}
	}
	imports["noun"] = []string{"shell"}
	if wrong := checkPicture(readPicture(picture), imports, small); len(wrong) != 1 || !strings.Contains(wrong[0], "not below it") {
		t.Errorf("with an arrow upwards: %q", wrong)
	}
}
