package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// inTurn calls do one after another.
func inTurn(n int, do func(i int)) {
	for i := range n {
		do(i)
	}
}

// samePartsAsWhole compares a file that is cut wherever it can be with the whole.
func samePartsAsWhole(t *testing.T, data []byte) {
	t.Helper()
	whole, wrong := Decode("a.yaml", data)
	parts, wrongInParts := decodeInParts("a.yaml", data, 1, inTurn)
	if !reflect.DeepEqual(wrong, wrongInParts) {
		t.Fatalf("in parts the mistakes are\n%v\nand of the whole file\n%v", wrongInParts, wrong)
	}
	if len(whole) != len(parts) {
		t.Fatalf("%d documents were read in parts, and %d of the whole file", len(parts), len(whole))
	}
	for i := range whole {
		// Whether none are nil is all the same.
		whole[i].broken, parts[i].broken = append([]string{}, whole[i].broken...), append([]string{}, parts[i].broken...)
		if !reflect.DeepEqual(whole[i], parts[i]) {
			t.Fatalf("in parts document %d is\n%s\nand of the whole file\n%s", i, shown(parts[i].source), shown(whole[i].source))
		}
		sameOnOneLine(t, whole[i])
	}
}

// shown writes a node with all places in it.
func shown(n *node) string {
	text := fmt.Sprintf("%d:%d %q", n.line, n.column, n.text)
	for _, e := range n.entries {
		if e.key == nil {
			text += " [" + shown(e.value) + "]"
		} else {
			text += " {" + shown(e.key) + ": " + shown(e.value) + "}"
		}
	}
	return text
}

func TestFileReadInPartsEqualsTheWhole(t *testing.T) {
	const one, two = "name: one\nrun: {shell: a}\n", "name: two\nrun: {shell: b}\n"
	aliases := "labels: {a: &x [" + strings.Repeat("1,", 600) + "1]}\nparams: [" + strings.Repeat("*x, ", 100) + "*x]\n"
	for name, text := range map[string]string{
		"two documents":           one + "---\n" + two,
		"a separator in front":    "---\n" + one + "---\n" + two + "---\n",
		"empty documents":         "---\n---\n" + one + "---\n\n---",
		"nothing":                 "",
		"comments":                "# a\n--- # b\n" + one + "# c\n---\n# d\n" + two,
		"text behind a separator": "--- {name: one}\n---\t{name: two}\n---x: y\n",
		"a script":                "name: one\nrun:\n  shell:\n    script: |\n      a\n      ---\n      b\n---\n" + two,
		"a script that is ended":  "--- |\n a\n---\n" + two,
		"an end":                  one + "...\n---\n" + two + "...\n",
		"quotes across documents": "name: \"one\n---\n" + two + "\"\n",
		"brackets across":         "{name: one,\n---\nname: two}\n",
		"a directive":             one + "---\n" + two + "...\n%YAML 1.1\n---\n" + one,
		"a directive at first":    "%TAG !e! tag:e,2000:\n---\nname: !e!x one\n---\nname: !e!x two\n",
		"an anchor of another":    "name: &x one\n---\nname: *x\n",
		"ends of lines":           "name: \"a\rb\u2028c\"\n---\n" + two + "x: y\r\n---\r\n" + one,
		"mistakes in each":        "name: 1\nx: y\n---\nname: [2]\n---\nz: 3\n",
		"a broken one":            one + "x: y\n---\n" + two + "---\na: b: c\n---\nz: 3\n",
		"many aliases":            strings.Repeat(aliases+"---\n", 3),
	} {
		t.Run(name, func(t *testing.T) { samePartsAsWhole(t, []byte(text)) })
	}
}

func TestMistakesInPartsHaveTheirLines(t *testing.T) {
	text := strings.Repeat("name: x\n---\n", 10) + "name: x\nbad: 1\n"
	_, err := decodeInParts("a.yaml", []byte(text), 1, inTurn)
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Line != 22 {
		t.Errorf("got %v, want one mistake, on line 22", err)
	}
}

func TestALongFileHasParts(t *testing.T) {
	text := strings.Repeat("name: x\n---\n", 3*partMin/12)
	calls := 0
	docs, err := DecodeInParts("a.yaml", []byte(text), func(n int, do func(i int)) { calls = n; inTurn(n, do) })
	if err != nil || len(docs) != 3*partMin/12 || calls != 3 {
		t.Errorf("%d documents were read in %d parts, %v; want %d in 3", len(docs), calls, err, 3*partMin/12)
	}
}

// FuzzDecodeInParts searches for files whose parts are read in another way than the whole.
func FuzzDecodeInParts(f *testing.F) {
	var all []byte
	files, _ := filepath.Glob("testdata/*/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		all = append(append(all, data...), "\n---\n"...)
	}
	f.Add(all)
	f.Fuzz(samePartsAsWhole)
}
