package job

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestTreesAreReadAsTheirTextIs(t *testing.T) {
	d := Document{Job: &Job{
		Name: "a", Paused: true, Labels: map[string]string{"x": "true", "y": "1"},
		Schedule: Schedule{At: []time.Time{time.Unix(1e9, 0).UTC()}},
		Run:      RunSpec{Shell: &Shell{Command: "echo", Args: []string{"1", "\"\n"}}, Nice: -3},
		Policy:   Policy{Retry: &Retry{Attempts: ptr(2), Factor: 1.5}, NeedsPrevious: ptr(false)},
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
