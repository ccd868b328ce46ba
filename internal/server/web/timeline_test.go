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
