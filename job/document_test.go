package job

import "testing"

func TestABareDocumentHasNothingOfTheServer(t *testing.T) {
	uid := ID{1}
	tests := []struct{ kept, bare Document }{
		{Document{Job: &Job{Name: "a", UID: uid, Version: 3, Status: &Status{}}}, Document{Job: &Job{Name: "a"}}},
		{Document{Calendar: &Calendar{Name: "b", UID: uid, Version: 3, Source: &Source{URL: "x"}}}, Document{Calendar: &Calendar{Name: "b"}}},
		{Document{Pool: &Pool{Name: "c", UID: uid, Version: 3}}, Document{Pool: &Pool{Name: "c"}}},
	}
	for _, tt := range tests {
		got := tt.kept.Bare()
		if text := string(AppendJSON(nil, got)); text != string(AppendJSON(nil, tt.bare)) {
			t.Errorf("bare it is %s", text)
		}
		if got.Version() != 0 || tt.kept.Version() != 3 {
			t.Errorf("%s: the version is %d, and %d of the one that was given", got.FullName(), got.Version(), tt.kept.Version())
		}
		got.PutIn("web")
		got.PutIn("other")
		if got.FullName() != "web/"+tt.bare.FullName()[len(DefaultNamespace)+1:] {
			t.Errorf("it is %s", got.FullName())
		}
	}
	if d := (Document{}).Bare(); d.Version() != 0 {
		t.Errorf("what is no document has version %d", d.Version())
	}
}
