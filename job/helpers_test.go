package job

import (
	"os"
	"testing"
)

func readSample(t testing.TB, name string) []Document {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := Decode(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return docs
}
