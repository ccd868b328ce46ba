//go:build servers

package web

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// j moves the cursor, which is the focus, to a row: what r, p, e and the space do is done to its job, and the list below
// it stays current.
func TestKeysActOnTheRowUnderTheCursor(t *testing.T) {
	t.Parallel()
	pages(t)
	for _, name := range []string{"one", "two"} {
		apply(t, "namespace: cursor\nname: "+name+"\nschedule: {cron: \"0 0 1 1 *\"}\nrun: {shell: \"true\"}\n")
	}
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	list := func(keys string) {
		b.open("/jobs?namespace=cursor")
		b.until("the list", `document.documentElement.classList.contains("script") && document.readyState === "complete"`)
		b.do(chromedp.KeyEvent(keys))
		b.until("the focus", `document.activeElement.getAttribute("href") === "/jobs/cursor/two"`)
	}
	list("jj")
	apply(t, "namespace: cursor\nname: three\nschedule: {cron: \"0 0 1 1 *\"}\nrun: {shell: \"true\"}\n")
	b.until("the new row, with the focus where it was", `document.querySelectorAll("[data-list] tbody tr").length === 3 && document.activeElement.getAttribute("href") === "/jobs/cursor/two"`)
	b.do(chromedp.KeyEvent(" "))
	if ticked := value[string](b, `[...document.querySelectorAll("[data-list] tbody input:checked")].map(i => i.value).join(" ")`); ticked != "cursor/two" {
		t.Errorf("the space ticks %q", ticked)
	}
	b.do(chromedp.KeyEvent(" "), chromedp.KeyEvent("p"))
	b.until("the question why", `document.activeElement.matches('form[action="/jobs/cursor/two/pause"] input[name=reason]')`)
	b.do(chromedp.KeyEvent("the disk is full"), chromedp.KeyEvent(kb.Enter))
	b.until("the pause", `document.querySelector("main > [role=status]:not([hidden])")?.textContent.includes("Paused cursor/two")`)
	list("jjj")
	b.do(chromedp.KeyEvent("e"))
	b.until("the editor", `location.pathname === "/jobs/cursor/two/edit"`)
	list("k")
	b.do(chromedp.KeyEvent("r"))
	b.until("its run", `location.pathname.startsWith("/runs/") && document.title.includes("cursor/two")`)

	// The palette knows the id of a run, a label, the title of a job, and what can be done with one.
	apply(t, "namespace: cursor\nname: titled\ntitle: 午夜结算\nparams: {day: {required: true}}\nrun: {shell: \"true\"}\n")
	id := value[string](b, `location.pathname.slice(6)`)
	chooses := func(text string) {
		b.open("/audit")
		b.until("the script", `document.documentElement.classList.contains("script") && document.readyState === "complete"`)
		b.do(chromedp.Evaluate(`document.querySelector("[data-open=palette]").click()`, nil))
		b.until("the palette", `document.getElementById("palette").open`)
		b.do(chromedp.SendKeys("#palette input", text, chromedp.ByQuery))
		b.until("what it found", `document.querySelector("#found-0")?.textContent.toLowerCase().includes(`+"`"+text[strings.Index(text, " ")+1:]+"`"+`)`)
		b.do(chromedp.SendKeys("#palette input", kb.Enter, chromedp.ByQuery))
	}
	for text, address := range map[string]string{
		strings.ToLower(id): "/runs/" + id, "team=iot": "/jobs?q=label%3Ateam%3Diot", "夜结": "/jobs/cursor/titled",
		"run titled": "/jobs/cursor/titled?open=r", "pause cursor/two": "/jobs/cursor/two?open=p", "edit cursor/two": "/jobs/cursor/two/edit", "backfill cursor/two": "/jobs/cursor/two/backfill",
	} {
		chooses(text)
		b.until("the page", `location.pathname + location.search === "`+address+`"`)
	}
	chooses("theme: dark")
	b.until("the theme", `document.documentElement.dataset.theme === "dark"`)
	list("jjjj")
	// The row of a job whose run needs a value leads to its dialog.
	b.do(chromedp.KeyEvent("k"), chromedp.KeyEvent("r"))
	b.until("the dialog", `document.activeElement.id === "param-day" && location.search === "?open=r"`)

	// It cancels, repeats and snoozes what is not on the page, and a key repeats the run of a row.
	apply(t, "namespace: cursor\nname: fails\nrun: {shell: \"exit 1\"}\n---\nnamespace: cursor\nname: long\nrun: {shell: \"sleep 600\"}\npolicy: {kill_grace: 1s}\n")
	_, _ = belfry.command("job", "run", "cursor/fails", "--wait")
	must(t, "job", "run", "cursor/long")
	runs := `fetch("/api/v1/runs?job=cursor/fails").then(r => r.json()).then(list => list.items.length)`
	chooses("retry cursor/fails")
	b.until("the run that repeats it", `location.pathname.startsWith("/runs/") && document.title.includes("cursor/fails")`)
	b.open("/runs?job=cursor/fails&outcome=failed")
	b.until("the list", `document.documentElement.classList.contains("script") && document.readyState === "complete"`)
	b.do(chromedp.KeyEvent("jr"))
	b.until("the run that repeats the row", `location.pathname.startsWith("/runs/") && document.title.includes("cursor/fails")`)
	if n := value[int](b, runs); n != 3 {
		t.Errorf("the job has %d runs, want 3", n)
	}
	b.open("/runs?job=cursor/fails&outcome=failed")
	b.until("the list", `document.documentElement.classList.contains("script") && document.readyState === "complete"`)
	b.do(chromedp.KeyEvent("jp"))
	b.until("the question why", `location.pathname === "/jobs/cursor/fails" && document.activeElement.id === "why"`)
	chooses("snooze cursor/fails")
	b.until("the snooze", `document.querySelector("main > [role=status]:not([hidden])")?.textContent.includes("Snoozed cursor/fails.")`)
	chooses("cancel cursor/long")
	b.until("the question why", `location.search === "?open=c" && document.activeElement.id === "cancel-why"`)
}
