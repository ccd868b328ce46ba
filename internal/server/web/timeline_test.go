package web_test

import (
	"testing"
	"time"
)

func TestLanesOfTheTimelineAreByLabel(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.now = w.now.Add(time.Minute)
	w.login("ann").shows("/timeline?by=label:team", "By team", "team=shop", "no team", "/jobs?q=label%3Ateam%3Dshop")
}

func TestLanesOfJobsShowWhatFailedAndWhatIsIdle(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.now = w.now.Add(time.Minute)
	b := w.login("ann")
	b.shows("/timeline", "with trouble, the worst first", "1 of ", `class="lane"><a class="link cut" href="/jobs/shop/price-import" title="shop/price-import">`,
		"&amp;job=shop%2Fprice-import", "1 has no start in this time:", "ops/by-hand", "one column is 10 min")
	b.shows("/timeline?q=label:team=shop", "1 job<", "shop/price-import", `value="label:team=shop"`)
	b.shows("/timeline?by=namespace", `title="shop"`)
}
