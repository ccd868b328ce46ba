package job

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestTreesDecodeLikeTheirText(t *testing.T) {
	d := Document{Job: &Job{
		Name: "a", Paused: true, Labels: map[string]string{"x": "true", "y": "1"},
		Schedule: Schedule{At: []time.Time{time.Unix(1e9, 0).UTC()}},
		Run:      RunSpec{Shell: &Shell{Command: "echo", Args: []string{"1", "\"\n"}, Nice: -3}},
		Policy:   Policy{Retry: &Retry{Attempts: new(2), Factor: 1.5}, NeedsPrevious: new(false)},
	}}
	decoder := json.NewDecoder(bytes.NewReader(AppendJSON(nil, d)))
	decoder.UseNumber()
	var read any
	if err := decoder.Decode(&read); err != nil {
		t.Fatal(err)
	}
	if tree := d.node().tree(); !reflect.DeepEqual(tree, read) {
		t.Errorf("the tree is\n%#v\nand read from its text\n%#v", tree, read)
	}
}

func TestKeysGivenTwiceAreFoundInShortMappingsAndLong(t *testing.T) {
	for _, keys := range []int{0, 1, 2, 16, 17, 40} {
		n := object()
		for i := range keys {
			n.add(string(rune('a'+i)), textNode(""))
		}
		for _, twice := range []bool{false, true} {
			if twice {
				if keys == 0 {
					continue
				}
				n.entries[keys-1].key = textNode("a")
			}
			d := &decoder{}
			d.reportRepeated(n, root)
			if found := len(d.problems) == 1; found != (twice && keys > 1) {
				t.Errorf("of %d keys, one twice: %v; %d mistakes", keys, twice, len(d.problems))
			}
		}
	}
}

// sameOnOneLine compares a document on one line with its node.
func sameOnOneLine(t *testing.T, d Document) {
	t.Helper()
	var want bytes.Buffer
	if err := json.Compact(&want, appendJSON(nil, d.node(), 0)); err != nil {
		t.Fatal(err)
	}
	if got := AppendJSON(nil, d); !bytes.Equal(got, want.Bytes()) {
		t.Errorf("on one line it is\n%s\nand not\n%s", got, want.Bytes())
	}
}

func TestOneLineDocumentDecodesLikeItsNode(t *testing.T) {
	files, _ := filepath.Glob("testdata/good/*")
	if len(files) == 0 {
		t.Fatal("there are no samples")
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		docs, _ := Decode(file, data)
		for _, d := range docs {
			sameOnOneLine(t, d)
			if d.Job != nil {
				d.Job = d.Job.WithDefaults(Defaults{})
				sameOnOneLine(t, d)
			}
		}
	}
	for _, d := range []Document{{}, {Kind: KindPool}, {Job: &Job{Paused: true}}, {Calendar: &Calendar{Labels: map[string]string{"b": "\"<", "a": ""}}}} {
		sameOnOneLine(t, d)
	}
}
