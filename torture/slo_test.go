package main

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/torture/check"
)

// TestLatenessIsTheOneOfItsHour: a fault is marked in its hour alone, and what it delays does not count as calm.
func TestLatenessIsTheOneOfItsHour(t *testing.T) {
	begin := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	p := part{&evidence{Begin: begin, End: begin.Add(3 * time.Hour), Limits: check.Limits{Grace: 2 * time.Second}}, &check.Result{}}
	for i := range 3 * 3600 {
		at := begin.Add(time.Duration(i) * time.Second)
		p.Times = append(p.Times, check.Time{At: at, Late: time.Duration(i/3600+1) * time.Millisecond})
	}
	fell := begin.Add(90 * time.Minute)
	p.Times[90*60].Late = 7 * time.Second
	p.Findings = []check.Finding{{Kind: check.Late, At: fell}, {Kind: check.Missing, At: begin.Add(150 * time.Minute)}}
	p.Faults = []fault{{Kind: faultKill, From: fell.Add(-time.Second), To: fell.Add(4 * time.Second)}, {Kind: faultFull, From: fell, Left: "left out"}}
	p.Samples = []sample{{At: fell, Memory: 64 << 20, Files: 12, Data: 1 << 20}, {At: fell.Add(time.Minute), Memory: 32 << 20, Files: 9, Data: 2 << 20}}
	want := []string{
		"0s | 3600 | 1ms | 1ms | 1ms | 1ms | 1ms | 1ms | 0 | 0 | 0 | 0 MB | 0 | 0 MB | 0 MB",
		"1h0m0s | 3600 | 2ms | 2ms | 2ms | 7s | 7s | 2ms | 0 | 1 | 1 | 64 MB | 12 | 0 MB | 2 MB",
		"2h0m0s | 3600 | 3ms | 3ms | 3ms | 3ms | 3ms | 3ms | 1 | 0 | 0 | 0 MB | 0 | 0 MB | 0 MB",
		"all | 10800 | 2ms | 3ms | 3ms | 3ms | 7s | 3ms | 1 | 1 | 1 | 64 MB | 12 | 0 MB | 2 MB",
	}
	for i, row := range p.spans() {
		if got := strings.Join(row, " | "); i >= len(want) || got != want[i] {
			t.Errorf("row %d is\n%s", i, got)
		}
	}
	picture := p.timeline()
	if strings.Count(picture, "<title>") != 1 || strings.Count(picture, "<polyline") != 5 {
		t.Errorf("the picture has other bands or curves:\n%s", picture[:500])
	}
}
