package cronbench

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/cron"
)

// Everything works, quickly: cmd/cronbench makes the documented table.
func TestReport(t *testing.T) {
	vectors, err := ReadVectors("../../cron/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Report(&b, vectors, Quick); err != nil {
		t.Fatal(err)
	}
	for _, library := range Libraries() {
		if n := strings.Count(b.String(), "| "+library.Name+" "); n < 5 {
			t.Errorf("%s stands in %d places of the report, want its columns and rows:\n%s", library.Name, n, &b)
		}
	}
	for _, c := range Cases() {
		if !strings.Contains(b.String(), c.Name) {
			t.Errorf("%s is not in the report", c.Name)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for _, c := range Cases() {
		zone, err := cron.LoadZone(c.Zone)
		if err != nil {
			b.Fatal(err)
		}
		from := instants(zone)
		for _, library := range Libraries() {
			search, err := library.Compile(c.Expr, zone)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(c.Name+" in "+c.Zone+"/"+library.Name, func(b *testing.B) {
				i := 0
				for b.Loop() {
					search(from[i%len(from)])
					i++
				}
			})
		}
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for n, want := range map[int]string{0: "0", 42: "42", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := nanoseconds(time.Duration(n)); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}
