//go:build servers

package web

import (
	"strings"
	"testing"
)

// journey counts the clicks of a person.
type journey struct {
	*tab
	clicks int
}

// press clicks on the element that a script gives, when it is there.
func (j *journey) press(element string) {
	j.t.Helper()
	j.clicks++
	j.tab.press(element)
}

// took ends a journey that may take a number of clicks, and begins another one.
func (j *journey) took(what string, most int) {
	j.t.Helper()
	if j.clicks > most {
		j.t.Errorf("to %s takes %d clicks, want at most %d", what, j.clicks, most)
	}
	j.clicks = 0
}

// rowOf is the row of a job among what needs a person on the overview.
func rowOf(job string) string {
	return `[...document.querySelectorAll("#needs .nd")].find(n => n.querySelector('a.name[title="` + job + `"]'))`
}

// onOverview opens the overview, and waits for the row of a job.
func (j *journey) onOverview(job string) (row string) {
	j.t.Helper()
	row = rowOf(job)
	j.open("/")
	j.until("the row of "+job, `document.readyState === "complete" && `+row+` !== undefined`)
	return row
}

// What a person does on the night, from the overview, and with how many clicks.
func TestJourneysOfTheNight(t *testing.T) {
	t.Parallel()
	on, _ := nightOf(t)
	b := newStranger(t, on)
	b.login()
	b.width(1440)
	b.looks("light", "en")
	j := &journey{tab: b}
	const paused, flow, changed = "web/health", "data/partition-load-nightly-of-all-regions", "shop/price-import-from-the-feeds-of-all-suppliers"

	row := j.onOverview(paused)
	j.until("the cause", row+`.querySelector(".cause").checkVisibility() && `+row+`.querySelector(".cause").textContent.includes("status 503, expected 200 to 299")`)
	j.took("see the cause of a failure", 0)
	j.press(row + `.querySelector(".acts > a")`)
	j.until("the failed run", `location.pathname.startsWith("/runs/") && document.querySelector("#why")?.textContent.includes("status 503, expected 200 to 299")`)
	j.took("open the failed run", 1)

	change := `a[href="/jobs/` + changed + `/definition?version=2&since=1"]`
	row = j.onOverview(changed)
	j.press(row + `.closest("details").querySelector("summary")`) // another job fails with the same error
	j.press(row + ".querySelector('" + change + "')")
	j.until("the change", `location.pathname.endsWith("/definition") && [...document.querySelectorAll(".diff .add, .diff2 .add")].some(line => line.textContent.includes("/v3/prices.csv"))`)
	j.took("see from the overview what changed", 2)

	run := on.must(t, "run", "list", "--job", changed, "--outcome", "failed", "--limit", "1", "-o", "name")
	j.open("/runs/" + run[strings.LastIndex(run, "/")+1:])
	j.until("what changed since it worked", `document.querySelector("#why").textContent.includes("Failing since version 2. It changed: run.shell.")`)
	if host := value[string](b, `[...document.querySelectorAll("main svg text")].map(text => text.textContent).find(text => text.includes("compute.internal")) ?? ""`); host != "" {
		t.Errorf("the attempts are drawn with a whole host name: %q", host)
	}
	j.press(`document.querySelector('#why ` + change + `')`)
	j.until("the change", `location.pathname.endsWith("/definition") && [...document.querySelectorAll(".diff .add, .diff2 .add")].some(line => line.textContent.includes("/v3/prices.csv"))`)
	j.took("see the change since it worked", 1)
	j.open("/audit?object=" + changed)
	j.until("the links to the runs that a person started", `document.querySelectorAll('#list a[href^="/runs/"]').length >= 3`)
	j.open("/jobs/" + changed + "/statistics")
	j.until("the description below the name", `document.querySelector(".head .desc")?.textContent.startsWith("Imports the prices")`)
	j.open("/notifications")
	j.until("the cause of what was not delivered", `[...document.querySelectorAll("#notices .why")].some(why => why.textContent.includes("canceling statement due to user request"))`)
	j.open("/jobs/" + changed)
	j.until("the cause on the page of the job", `document.querySelector("#since")?.textContent.includes("exit status 1: error: feed.csv: 0 rows")`)

	// Five jobs fail since their database refuses connections: one row names them all.
	j.onOverview(paused)
	j.until("the groups", `document.querySelectorAll("#needs .same").length >= 2`)
	row = `[...document.querySelectorAll("#needs > .nd")].find(n => n.querySelector('a.name[title="crm/contact-sync"], a.name[title^="billing/ledger-check"]'))`
	if n := value[int](b, row+`.nextElementSibling.querySelectorAll(".nd").length`); n != 4 {
		t.Errorf("%d other jobs have the error", n)
	}
	j.press(row + `.querySelector(".acts > a")`)
	j.until("the other jobs", `location.pathname.startsWith("/runs/") && ["data/events-compact", "search/reindex-delta"].every(name => [...document.querySelectorAll("#same .name")].some(a => a.title === name))`)
	j.took("see which other jobs have the error", 1)
	j.press(`document.querySelector("#same footer a")`)
	j.until("their runs", `location.pathname === "/runs" && new Set([...document.querySelectorAll("[data-list] td.jb a")].map(a => a.title)).size >= 3`)
	j.took("see the runs with the error", 1)

	// The failed item of 120, and what it wrote, is the first thing below the reason of the failed run of a flow.
	row = j.onOverview(flow)
	j.press(row + `.querySelector(".acts > a")`)
	j.until("the output of the item", `document.querySelector("#step h2")?.textContent === "part-077" && document.querySelector("#step .log .e")?.textContent.includes("duplicate key value violates unique constraint")`)
	if y := value[int](b, `Math.round(document.querySelector("#step .log .e").getBoundingClientRect().bottom + scrollY)`); y > 900 {
		t.Errorf("its last line is %d px below the top of the page", y)
	}
	if names := value[string](b, `[...document.querySelectorAll("#items td.nm")].slice(0, 4).map(td => td.textContent).join(" ")`); names != "part-077 part-081 part-102 part-001" {
		t.Errorf("the items of the step are %q", names)
	}
	if why := value[string](b, `[...document.querySelectorAll("#items td.fill")].slice(1, 3).map(td => td.textContent).join("; ")`); why != `exit status 1: pq: duplicate key value violates unique constraint "orders_2026_11_27_pkey"; exit status 1: s3: GetObject part-102.csv.gz: connection reset by peer` {
		t.Errorf("the items of the step failed by %s", why)
	}
	if height := value[int](b, `document.documentElement.scrollHeight`); height > 6000 {
		t.Errorf("the page of a flow of 120 steps is %d px high", height)
	}
	if j.clicks > 1 {
		t.Errorf("the failed item is %d clicks away", j.clicks)
	}
	failed := value[string](b, `location.pathname`)
	if text := value[string](b, `document.querySelector('#head [data-key="r"]').textContent`); text != "Retry 3 failed items" {
		t.Errorf("the button says %q", text)
	}
	j.press(`document.querySelector('#head [data-key="r"]')`)
	j.until("the run that repeats them", `location.pathname.startsWith("/runs/") && location.pathname !== "`+failed+`" && document.querySelector("#head .pill") !== null`)
	j.took("retry the failed items", 2)

	const snoozed = "iot/firmware-scan-of-all-gateways-in-the-field"
	row = j.onOverview(snoozed)
	j.press(row + `.querySelector("summary")`)
	if field := value[string](b, `document.activeElement.name ?? ""`); field != "" {
		t.Errorf("what is typed in the menu of a problem goes to the field %s", field)
	}
	j.press(row + `.querySelector('button[name="until"][value="version"]')`)
	j.until("the snooze", `document.querySelector("main > [role=status]:not([hidden])")?.textContent.includes("Snoozed `+snoozed+`.") && `+row+`.closest(".snoozed") && `+row+`.textContent.includes("until the next version")`)
	j.took("snooze it until the next version", 2)
	j.press(`document.querySelector('main > [role=status] form[action^="/attention/wake"] button')`)
	j.until("that it is awake", row+` !== undefined && !`+row+`.closest(".snoozed") && document.readyState === "complete"`)
	j.took("take the snooze back", 1)

	// What a person has taken is theirs, and leaves the list of what is not taken.
	j.press(row + `.querySelector("summary")`)
	j.press(row + `.querySelector('form[action="/attention/take"] button')`)
	j.until("that it is taken", row+`?.textContent.includes("admin has it")`)
	for text, has := range map[string]string{"Mine 1": "!==", "Not taken": "==="} {
		j.press(`[...document.querySelectorAll("#needs .seg a")].find(a => a.textContent.startsWith("` + text + `"))`)
		j.until("the list "+text, `document.querySelector("#needs .seg [aria-current]").textContent.startsWith("`+text+`") && `+row+has+`undefined`)
	}
	j.onOverview(snoozed)
	j.press(row + `.querySelector("summary")`)
	j.press(row + `.querySelector('form[action="/attention/release"] button')`)
	j.until("that it is released", `document.readyState === "complete" && !document.querySelector("#needs").textContent.includes("admin has it")`)
	j.clicks = 0

	const stopped = "ops/flaky-then-paused"
	row = j.onOverview(stopped)
	j.until("why the job was paused", row+`.querySelector(".cause").textContent.includes("Operation timed out after 30001 milliseconds")`)
	j.press(row + `.querySelector(".acts > a")`)
	j.until("the run after which it was paused", `location.pathname.startsWith("/runs/") && document.querySelector("#why")?.textContent.includes("Operation timed out")`)
	j.took("see why Belfry has paused a job", 1)

	row = j.onOverview(paused)
	if names := value[string](b, `[...`+row+`.querySelectorAll(".acts > a, .acts > form > button, .acts summary")].map(e => e.getAttribute("aria-label")).join("; ")`); !strings.HasPrefix(names, "Open "+paused+"; ") || !strings.HasSuffix(names, "; Snooze "+paused+"; More for "+paused) {
		t.Errorf("the actions are %q", names)
	}
	j.press(row + `.querySelector("summary.dots")`)
	j.types("why-web-health", nightPause)
	j.press(row + `.querySelector('form[action$="/pause"] button')`)
	j.until("what was done", `document.querySelector("main > [role=status]:not([hidden])")?.textContent.includes("Paused `+paused+`.")`)
	if words := on.must(t, "job", "get", paused, "-o", "json"); !strings.Contains(words, nightPause) {
		t.Errorf("the job does not say why it is paused: %s", words)
	}
	j.press(`document.querySelector('main > [role=status] form[action$="/resume"] button')`)
	j.until("that it is undone", `document.querySelector("main > [role=status]:not([hidden])")?.textContent.includes("Resumed `+paused+`.")`)
	j.took("pause with a reason and undo it", 3)
	if words := on.must(t, "job", "get", paused, "-o", "json"); strings.Contains(words, nightPause) {
		t.Errorf("the job is still paused: %s", words)
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}
