package sqlite

import (
	"os"
	"path/filepath"
	"testing"
)

// What is held back of the log is missed by nobody: not by the connection itself, which
// reads what had no room in memory before its transaction ends, nor by others after it,
// also if it does not wait for the disk, nor after a crash.
func TestWhatIsGatheredOfTheLogIsThere(t *testing.T) {
	const rows = 2000
	path := filepath.Join(t.TempDir(), "log.db")
	c, err := connect(path, true, "create table t (n integer primary key, b blob)")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := c.gatherLog(); err != nil {
		t.Fatal(err)
	}
	other, err := connect(path, false, "")
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	do := func(text string) {
		t.Helper()
		if err := c.exec(text); err != nil {
			t.Fatal(err)
		}
	}
	want := func(of *conn, n int64) {
		t.Helper()
		whole, count := "", int64(0)
		q := of.stmt("pragma integrity_check")
		for q.next() {
			whole = q.text()
		}
		if err := q.err(); err != nil || whole != "ok" {
			t.Fatalf("the file is not whole: %v %s", err, whole)
		}
		q = of.stmt("select count(*) from t where length(b) = 500")
		for q.next() {
			count = q.int()
		}
		if err := q.err(); err != nil || count != n {
			t.Errorf("%v: there are %d rows, want %d", err, count, n)
		}
	}
	insert := func() {
		t.Helper()
		for n := range int64(rows) {
			if err := c.stmt("insert into t (n, b) values ((? * 977) % 2003, zeroblob(500))").bindInt(n).exec(); err != nil {
				t.Fatal(err)
			}
		}
	}

	do("pragma cache_size = 20; pragma synchronous = off; begin immediate")
	insert()
	want(c, rows)
	do("update t set b = zeroblob(400) where n < 100; rollback")
	want(c, 0)
	do("begin immediate")
	insert()
	do("update t set b = zeroblob(500) where n % 3 = 0; commit")
	want(other, rows)
	crashed := filepath.Join(t.TempDir(), "log.db")
	for _, end := range []string{"", "-wal"} {
		text, err := os.ReadFile(path + end)
		if err == nil {
			err = os.WriteFile(crashed+end, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	after, err := connect(crashed, false, "")
	if err != nil {
		t.Fatal(err)
	}
	defer after.close()
	want(after, rows)
	do("delete from t where n = 1")
	want(other, rows-1)
	if _, _, err := c.checkpoint(passive); err != nil {
		t.Fatal(err)
	}
	do("delete from t")
	want(other, 0)
}
