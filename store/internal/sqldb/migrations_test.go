package sqldb

import (
	"os"
	"strings"
	"testing"
)

func TestAProgramWithoutFlowsDoesNotOpenAStoreThatHasThem(t *testing.T) {
	for _, name := range []string{"sqlite", "postgres", "mysql"} {
		list, err := ReadMigrations(os.DirFS("../../" + name))
		if err != nil {
			t.Fatal(err)
		}
		first := 0 // the first version with flows
		oldest := 0
		for _, m := range list {
			if first == 0 && strings.Contains(m.Script, "column flow ") {
				first = m.Version
			}
			oldest = max(oldest, m.Oldest)
		}
		if first == 0 {
			t.Fatalf("%s: no script adds flows", name)
		}
		if _, err := list[:first-1].Behind(len(list), oldest); err == nil {
			t.Errorf("%s: a program that knows versions up to %d can open a store with flows, and would claim and fail their runs", name, first-1)
		}
	}
}
