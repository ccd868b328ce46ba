package preview_test

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/decide/preview"
)

func TestNotesCoverThePreviewAndTheNextYear(t *testing.T) {
	zone, err := cron.LoadZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name  string
		ask   preview.Ask
		notes int
	}{
		{"a year to come has two changes", preview.Ask{From: from, Count: 1}, 2},
		{"two years are shown", preview.Ask{From: from, Count: 2 * 365}, 4},
		{"no change lies between the last occurrence and now", preview.Ask{From: from, Count: 1, Backwards: true}, 0},
		{"one change lies in the months that are shown", preview.Ask{From: from, Count: 100, Backwards: true}, 1},
	} {
		p, err := preview.Expression("30 2 * * *", zone, []cron.Option{cron.In(zone)}, tt.ask)
		if err != nil || len(p.Next) != tt.ask.Count || len(p.Notes) != tt.notes {
			t.Errorf("%s: %d notes, want %d: %q, %v", tt.name, len(p.Notes), tt.notes, p.Notes, err)
		}
	}
}
