//go:build servers

package web

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// A job that fails is paused on the overview, with a reason, and resumes with one click: four clicks there and back.
func TestAPauseOnTheOverviewHasAReasonAndIsUndone(t *testing.T) {
	t.Parallel()
	pages(t)
	const name = "undone/feed"
	apply(t, "namespace: undone\nname: feed\nschedule: {cron: \"0 0 1 1 *\"}\nrun: {shell: \"exit 3\"}\n")
	if _, err := belfry.command("job", "run", name, "--wait"); err == nil {
		t.Fatal("the job succeeds")
	}
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/?namespace=undone")
	row := `[...document.querySelectorAll("#needs .nd")].find(n => n.querySelector('a.name[title="` + name + `"]'))`
	b.until("the row", row+` !== undefined && document.readyState === "complete"`)
	if names := value[[]string](b, row+` && [...`+row+`.querySelectorAll(".acts > a, .acts > form > button, .acts summary")].map(e => e.getAttribute("aria-label"))`); strings.Join(names, "; ") != "Open "+name+"; Retry "+name+"; More for "+name {
		t.Errorf("the actions are %q", names)
	}
	// Two clicks snooze it, besides the choice, and one takes that back.
	b.press(row + `.querySelector("summary")`)
	b.do(chromedp.Evaluate(row+`.querySelector('form[action="/attention/snooze"] select').value = "version"`, nil))
	b.press(row + `.querySelector('form[action="/attention/snooze"] button')`)
	b.until("the snooze", `document.querySelector("main > [role=status]:not([hidden])")?.textContent.includes("Snoozed `+name+`.") && document.querySelector(".snoozed .nd")?.textContent.includes("until the next version")`)
	b.press(`document.querySelector('main > [role=status] form[action^="/attention/wake"] button')`)
	b.until("that it is awake", row+` !== undefined && document.querySelector(".snoozed") === null && document.readyState === "complete"`)
	b.press(row + `.querySelector("summary")`)
	b.types("why-undone-feed", "the disk is full")
	b.press(row + `.querySelector('form[action$="/pause"] button')`)
	b.until("what was done", `document.querySelector("main > [role=status]:not([hidden])")?.textContent.includes("Paused `+name+`.")`)
	if said := must(t, "job", "get", name, "-o", "json"); !strings.Contains(said, "the disk is full") {
		t.Errorf("the job does not say why it is paused: %s", said)
	}
	b.press(`document.querySelector('main > [role=status] form[action$="/resume"] button')`)
	b.until("that it is undone", `document.querySelector("main > [role=status]:not([hidden])")?.textContent.includes("Resumed `+name+`.")`)
	if said := must(t, "job", "get", name, "-o", "json"); strings.Contains(said, "the disk is full") {
		t.Errorf("the job is still paused: %s", said)
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}
