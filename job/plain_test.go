package job

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// samePlain compares what is read of a document that is plain with what the library reads.
func samePlain(t *testing.T, text string) (plain bool) {
	t.Helper()
	if partsOf("a.yaml", []byte(text), len(text)+1) == nil {
		return false // package job would not read the text in parts, and so not as a plain one
	}
	got := (&plainReader{}).document(text, 1)
	if got == nil {
		return false
	}
	want, bad := parseYAML([]byte(text))
	if bad != nil || len(want) != 1 {
		t.Fatalf("%q was read, and is %d documents, %v", text, len(want), bad)
	}
	if !reflect.DeepEqual(got, want[0]) {
		t.Fatalf("%q is\n%s\nand was read as\n%s", text, shown(want[0]), shown(got))
	}
	return true
}

func TestPlainDocuments(t *testing.T) {
	for name, text := range map[string]string{
		"a mapping":           "name: one\nlabels:\n  team: a\n  b/c: d.e\nrun:\n    shell:\n     command: /bin/true -x:y=\"1\"#2\n",
		"a separator":         "---\n\nname: one\n\nlabels:\n\n  a: b",
		"quotes":              "a: \"x: y # z, 'q'\"\nb: '{} \"\"'\nc: '\"'\n",
		"words":               "a: null\nb: ~\nc: true\nd: 12\ne: .5\nnull: NULL\nf: \"null\"\ng: y\n",
		"lists":               "a:\n  - x\n  - \"y\"\nb:\n- 1\n- 2\nc: d\n",
		"lists of mappings":   "a:\n  - x: 1\n    y:\n      - z\n    v:\n    - w\n  - x: 2\nb:\n- x: 1\n  y: 2\n",
		"a list":              "- name: one\n- name: two\n",
		"a key that is twice": "a: 1\na: 2\n",
	} {
		t.Run(name, func(t *testing.T) {
			if !samePlain(t, text) {
				t.Errorf("%q is left to the library", text)
			}
		})
	}
}

func TestDocumentsBeyondThePlainFormUseYAML(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                   "---\n",
		"a text":                    "name\n",
		"a value on two lines":      "a: x\n  y\n",
		"a value in two quotes":     "a: \"x\n  y\"\n",
		"a value on the next line":  "a:\n  x\n",
		"a key without a value":     "a:\nb: c\n",
		"a line less indented":      "a:\n    b: c\n  d: e\n",
		"a document that is not":    " a: b\n",
		"a comment":                 "a: b # c\n",
		"a comment on its own line": "a: b\n# c\n",
		"a comment with no space":   "a: \"b\"#c\n",
		"two colons":                "a: b: c\n",
		"a colon at the end":        "a: b:\n",
		"a space at the end":        "a: b \n",
		"two spaces":                "a:  b\n",
		"an alias":                  "a: &x b\nc: *x\n",
		"a tag":                     "a: !!str b\n",
		"a block":                   "a: |\n  b\n",
		"brackets":                  "a: [b]\nc: {}\n",
		"a dash":                    "a: - b\n",
		"two dashes":                "- - a\n",
		"a dash alone":              "-\n  a: b\n",
		"a dash among keys":         "a: b\n- c\n",
		"a key among dashes":        "- a\nb: c\n",
		"an escape":                 "a: \"b\\n\"\n",
		"a quote in quotes":         "a: 'b''c'\n",
		"other letters":             "a: b\u00e4\n",
		"no letter":                 "a: b\u0080\n",
		"a tab":                     "a:\tb\n",
		"an end":                    "a: b\n...\n",
		"a merge":                   "<<: b\n",
		"text behind the separator": "--- a\n",
	} {
		t.Run(name, func(t *testing.T) {
			if samePlain(t, text) {
				t.Errorf("%q is read", text)
			}
		})
	}
}

// FuzzPlain searches for documents whose plain reading differs from the library's.
func FuzzPlain(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add("---\na:\n- b: \"c: d\"\n  e:\n    - 'f'\n    - ~\n\ng:\n  h/i: j #k\n")
	f.Fuzz(func(t *testing.T, text string) { samePlain(t, text) })
}
