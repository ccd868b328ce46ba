package storetest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// Begun is a transaction of a program.
type Begun struct {
	Tx               any
	Commit, Rollback func() error
}

// notedWithin is how soon a commit of a program is known where the database notifies, on a busy machine, if there
// is one each notedAgain.
const notedWithin, notedAgain = time.Minute, 500 * time.Millisecond

// Transactions tests notes in transactions of a program: begin begins one. notifies is set if the database
// tells the store of the commit.
func Transactions(t *testing.T, s store.Store, notifies bool, begin func() Begun) {
	in, ok := s.(store.Transactional)
	if !ok {
		t.Fatalf("%T is not transactional", s)
	}
	names := func() (list []string) {
		t.Helper()
		notes, err := s.Notes(t.Context(), "request/", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range notes {
			list = append(list, n.Name+" "+string(n.Text))
		}
		return list
	}
	put := func(b Begun, name string) {
		t.Helper()
		if err := in.NoteIn(t.Context(), b.Tx, store.Note{Name: "request/" + name, Text: []byte(`{"客户":"1"}`)}); err != nil {
			t.Fatal(err)
		}
	}

	dropped := begin()
	put(dropped, "a")
	if err := dropped.Rollback(); err != nil {
		t.Fatal(err)
	}
	kept := begin()
	put(kept, "b")
	put(kept, "c")
	if list := names(); len(list) > 0 {
		t.Errorf("before the commit there are %q", list)
	}
	select {
	case <-in.Noted():
		t.Error("noted before the commit")
	default:
	}
	if err := kept.Commit(); err != nil {
		t.Fatal(err)
	}
	if list := names(); len(list) != 2 || list[0] != `request/b {"客户":"1"}` {
		t.Errorf("after the commit there are %q", list)
	}
	// The store may not listen yet: then a later commit is noted.
	for deadline := time.Now().Add(notedWithin); notifies; {
		select {
		case <-in.Noted():
			notifies = false
		case <-time.After(notedAgain):
			if time.Now().After(deadline) {
				t.Fatal("no commit is noted")
			}
			again := begin()
			put(again, "again"+strconv.Itoa(int(time.Until(deadline))))
			if err := again.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v, err := s.PutNote(t.Context(), store.Note{Name: "request/b", Version: 1}); err != nil {
		t.Errorf("a note of a transaction cannot be removed by its first version: %d, %v", v, err)
	}

	for name, c := range map[string]struct {
		tx any
		n  store.Note
	}{
		"no transaction": {nil, store.Note{Name: "request/d"}},
		"something else": {context.Background(), store.Note{Name: "request/d"}},
		"a bad name":     {nil, store.Note{Name: "request/d e"}},
	} {
		if err := in.NoteIn(t.Context(), c.tx, c.n); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
