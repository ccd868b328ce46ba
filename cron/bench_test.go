package cron

import (
	"testing"
	"time"
)

func BenchmarkNext(b *testing.B) {
	benchmarkSearch(b, (*Expression).Next)
}

func BenchmarkPrev(b *testing.B) {
	benchmarkSearch(b, (*Expression).Prev)
}

// benchmarkSearch searches from different instants, so that no branch of the
// search is always the same.
func benchmarkSearch(b *testing.B, search func(*Expression, time.Time) time.Time) {
	for _, c := range speedCases() {
		b.Run(c.name+" in "+c.zone, func(b *testing.B) {
			e, err := Parse(c.expr, In(loadZone(b, c.zone)))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				search(e, speedFrom[i%len(speedFrom)])
				i++
			}
		})
	}
}

// BenchmarkNextOnward steps from occurrence to occurrence, like a planner.
func BenchmarkNextOnward(b *testing.B) {
	for _, shape := range usualShapes {
		b.Run(shape.name, func(b *testing.B) {
			e, err := Parse(shape.expr, In(loadZone(b, "Europe/Berlin")))
			if err != nil {
				b.Fatal(err)
			}
			at := speedFrom[0]
			for b.Loop() {
				if at = e.Next(at); at.IsZero() {
					at = speedFrom[0]
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	zone := loadZone(b, "America/New_York")
	shapes := append(usualShapes[:len(usualShapes):len(usualShapes)],
		struct{ name, expr string }{"lists and names", "0,15,30,45 8-18 * jan-jun,sep-dec mon-fri"},
		struct{ name, expr string }{"special days", "0 9 LW,15W * 5#2"},
		struct{ name, expr string }{"drawn", "H H(0-7) * * *"},
	)
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(shape.expr, In(zone), WithJob("default", "backup")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseMistake(b *testing.B) {
	for b.Loop() {
		if _, err := Parse("* * * * MON-FIR"); err == nil {
			b.Fatal("accepted")
		}
	}
}

func BenchmarkString(b *testing.B) {
	e, err := Parse("0,15,30,45 8-18 * jan-jun,sep-dec mon-fri")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_ = e.String()
	}
}

// BenchmarkLoadZone measures what the first use of each zone costs.
func BenchmarkLoadZone(b *testing.B) {
	names := ZoneNames()
	i := 0
	for b.Loop() {
		name := names[i%len(names)]
		zones.Delete(name)
		if _, err := LoadZone(name); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
