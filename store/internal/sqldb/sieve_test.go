package sqldb

import (
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// The sieve skips nothing that a query selects, however it is written.
func TestSieveFindsMatchesOfAQuery(t *testing.T) {
	jobs := []*job.Job{
		{Name: "report"},
		{Name: "x", Description: "Sends the REPORT of the day."},
		{Name: "y", Description: `says "report" <here> & there, 5\6`},
		{Name: "z", Description: "Strasse, stra\u00dfe, \u212aelvin, \u0130stanbul"},
		{Name: "with-labels", Labels: map[string]string{"team": "a", "Zone": "EU-1", "note": `"<q>"`, "\u00fc": "\u00e4"}},
		{Name: "team", Description: "a"},
	}
	queries := []store.JobQuery{
		{}, {Text: "report"}, {Text: "Report"}, {Text: `"report"`}, {Text: "<here>"}, {Text: "& there"}, {Text: `5\6`},
		{Text: "kelvin"}, {Text: "\u212aelvin"}, {Text: "stra\u00dfe"}, {Text: "i\u0307stanbul"}, {Text: "nowhere"},
		{Labels: map[string]string{"team": "a"}}, {Labels: map[string]string{"Zone": "EU-1"}}, {Labels: map[string]string{"zone": "EU-1"}},
		{Labels: map[string]string{"note": `"<q>"`}}, {Labels: map[string]string{"\u00fc": "\u00e4"}}, {Labels: map[string]string{"team": ""}},
		{Labels: map[string]string{"team": "a"}, Text: "LABELS"}, {Labels: map[string]string{"team": "a"}, Text: "report"},
	}
	for i := range queries {
		q := &queries[i]
		wanted := sieveOf(q)
		for _, j := range jobs {
			text, _, err := columns.EncodeJob(j)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := wanted.hasText(text); err != nil || got != q.Matches(j) {
				t.Errorf("%+v of %s: %v, %v; want %v", q, text, got, err, q.Matches(j))
			}
		}
	}
}
