package web_test

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The page of what jobs share has the documents of calendars and pools.
func TestWhatJobsShareHasAPage(t *testing.T) {
	w := newWorld(t)
	put := func(text string) {
		list, err := job.Decode("", []byte(text))
		w.must(err)
		_, err = w.store.PutDocument(t.Context(), list[0], store.AnyVersion, "wei")
		w.must(err)
	}
	put("kind: calendar\nnamespace: cal\nname: holidays\ndescription: Days off\ncalendar: {include: [2026-12-25]}\n")
	put("kind: pool\nnamespace: cal\nname: db\npool: {size: 3}\n")
	b := w.login("ann")
	b.shows("/shared", "cal/holidays", "Days off", "2026-12-25", "cal/db", "3 slots", "There is none. belfry secret set NAME makes one.")
	if body := b.ask("GET", "/shared?namespace=other", nil).Body.String(); strings.Contains(body, "cal/db") {
		t.Error("the page of another namespace has the pool")
	}
}
