package client

import (
	"bytes"
	"encoding/json"
	"testing"
)

// The body of an apply is put together by hand.
func TestApplyBodyEqualsEncodingJSON(t *testing.T) {
	one, two := Document{json.RawMessage(`{"name":"a"}`)}, Document{json.RawMessage(`{"name":"],<b"}`)}
	for _, a := range []Apply{
		{}, {Owner: "a", Prune: true}, {Documents: []Document{}}, {Documents: []Document{one}},
		{Documents: []Document{one, two, one}, Owner: "\"documents\":[]", DryRun: true, Diff: true},
	} {
		var want bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(a); err != nil {
			t.Fatal(err)
		}
		got, err := a.body()
		if err != nil || !bytes.Equal(got, bytes.TrimSpace(want.Bytes())) {
			t.Errorf("got %s, %v; want %s", got, err, want.Bytes())
		}
	}
}
