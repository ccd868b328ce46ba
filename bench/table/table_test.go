package table

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestATableComparesWithTheRecordedRatios(t *testing.T) {
	rows := []Row{{"quick", "µs", 2, 1, 1.2}, {"slow", "B", 200, 10_000, 8}}
	path := filepath.Join(t.TempDir(), "recorded.json")
	if err := Record(path, rows); err != nil {
		t.Fatal(err)
	}
	recorded, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	rows[0].Belfry = 2
	var out strings.Builder
	Write(&out, append(rows, Row{"another", "ns", 1, 1, 2}), recorded)
	want := `| work | robfig/cron | Belfry | ratio | goal | times the recorded ratio |
|---|--:|--:|--:|--:|--:|
| quick | 2.00 µs | 2.00 µs | 1.00 | ≤ 1.20 | 2.00 |
| slow | 200 B | 10000 B | 50.0 | **≤ 8.00** | 1.00 |
| another | 1.00 ns | 1.00 ns | 1.00 | ≤ 2.00 | new |
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestTheRecordedFileIsRead(t *testing.T) {
	if recorded, err := Read("recorded.json"); err != nil || len(recorded) == 0 {
		t.Errorf("got %v, %v", recorded, err)
	}
}
