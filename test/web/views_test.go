//go:build servers

package web

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// The note comes while the editor is open, and the text of its author stays as it is.
func TestTheEditorSaysThatAnotherPersonHasSaved(t *testing.T) {
	t.Parallel()
	pages(t)
	document := func(description string) string {
		return "name: shared\ndescription: " + description + "\nschedule: {cron: \"0 5 * * *\"}\nrun: {shell: \"true\"}\n"
	}
	apply(t, document("as it was"))
	b := newTab(t)
	b.looks("light", "en")
	b.open("/jobs/default/shared/edit")
	b.until("the editor", `document.querySelector("[data-edit]").dataset.ready === "1" && document.querySelector("[data-live-text]").textContent.includes("Live")`)
	if value[bool](b, `!document.querySelector("[data-meanwhile]").hidden`) {
		t.Error("the note is there before another person has saved")
	}
	b.types("f-description", "mine")
	b.until("the text", `document.querySelector("[data-document]").value.includes("description: mine")`)
	apply(t, document("of the other"))
	b.until("the note", `!document.querySelector("[data-meanwhile]").hidden && document.querySelector("[data-meanwhile]").textContent.includes("Another person has saved")`)
	if !value[bool](b, `document.querySelector("[data-document]").value.includes("description: mine") && document.getElementById("f-description").value === "mine"`) {
		t.Errorf("what was typed has become %q", value[string](b, `document.querySelector("[data-document]").value`))
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

// A choice of the form goes into the document, and back out of it.
func TestTheFormHasChoices(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.looks("light", "en")
	b.open("/jobs/new")
	b.until("the editor", `document.querySelector("[data-edit]").dataset.ready === "1"`)
	choose := func(value string) {
		t.Helper()
		b.do(chromedp.Evaluate(fmt.Sprintf(`{ const f = document.getElementById("f-policy.overlap"); f.value = %q; f.dispatchEvent(new Event("input", {bubbles: true})); }`, value), nil))
	}
	choose("queue")
	b.until("the choice in the text", `document.querySelector("[data-document]").value.includes("overlap: queue")`)
	b.types("f-policy.retry.attempts", "2")
	b.until("the number in the text", `document.querySelector("[data-document]").value.includes("attempts: 2") && document.querySelector("#checked .problems") === null`)
	choose("")
	b.until("the text without the choice", `!document.querySelector("[data-document]").value.includes("overlap") && document.querySelector("[data-document]").value.includes("attempts: 2")`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

// Another kind of schedule or work takes the fields of the former one out of the document, and gives them back.
func TestTheFormHasKindsOfScheduleAndWork(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/jobs/new")
	b.until("the editor", `document.querySelector("[data-edit]").dataset.ready === "1"`)
	shown := func(id string) bool {
		return value[bool](b, `document.getElementById("f-`+id+`").closest(".field").checkVisibility()`)
	}
	if !shown("schedule.cron") || shown("schedule.every") || !shown("run.shell") || shown("run.handler") {
		t.Error("the form does not show the kinds of the document alone")
	}
	b.do(chromedp.Click("#k-every", chromedp.ByQuery))
	b.until("the text without the expression", `!document.querySelector("[data-document]").value.includes("cron:")`)
	if shown("schedule.cron") || !shown("schedule.every") {
		t.Error("the form does not show the chosen kind alone")
	}
	b.types("f-schedule.every", "15m")
	b.until("the interval", `document.querySelector("[data-document]").value.includes("every: 15m") && document.querySelector("#checked .said")?.textContent === "every 15 minutes"`)
	b.do(chromedp.Click("#k-cron", chromedp.ByQuery))
	b.until("the former expression", `/cron: ['"]?0 3 \* \* \*/.test(document.querySelector("[data-document]").value) && !document.querySelector("[data-document]").value.includes("every:")`)
	b.do(chromedp.Click("#k-handler", chromedp.ByQuery))
	b.types("f-run.handler", "bake")
	b.until("the handler", `document.querySelector("[data-document]").value.includes("handler: bake") && !document.querySelector("[data-document]").value.includes("shell") && document.querySelector("#checked .problems") === null`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

// What is saved to a file is what the editor shows, and a folded group opens when it has a mistake.
func TestTheEditorDownloadsItsDocumentAndUnfoldsMistakes(t *testing.T) {
	t.Parallel()
	pages(t)
	dir := t.TempDir()
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.do(browser.SetDownloadBehavior(browser.SetDownloadBehaviorBehaviorAllow).WithBrowserContextID(b.profile).WithDownloadPath(dir))
	b.open("/jobs/shop/price-import/edit")
	b.until("the editor", `document.querySelector("[data-edit]").dataset.ready === "1"`)
	b.types("f-description", "from a file")
	b.until("the text", `document.querySelector("[data-document]").value.includes("description: from a file")`)
	b.click("[data-download]")
	want := value[string](b, `document.querySelector("[data-document]").value`)
	until(t, "the file", func() bool {
		got, err := os.ReadFile(filepath.Join(dir, "price-import.yaml"))
		return err == nil && string(got) == want
	})
	summary := `document.querySelector("#g-wrong [data-summary]").textContent`
	if got := value[string](b, summary); !strings.HasPrefix(got, "both run · 1 more attempt after 0.10 s · ended after 30 s") {
		t.Errorf("the folded policy says %q", got)
	}
	b.types("f-policy.timeout", "45s")
	b.until("the new summary", summary+`.includes("ended after 45 s")`)
	b.types("f-policy.timeout", "soon")
	b.until("the mistake", `document.getElementById("g-wrong").open && document.getElementById("f-policy.timeout").closest(".field").querySelector(".err") !== null && document.querySelector("#checked h2").textContent === "1 mistake"`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

func TestTheWeekShowsTheMinutesOfTheHour(t *testing.T) {
	t.Parallel()
	pages(t)
	apply(t, "namespace: minutes\nname: a\nlabels: {team: minutes}\nschedule: {cron: \"7 * * * *\"}\nrun: {shell: \"true\"}\n---\nnamespace: minutes\nname: b\nschedule: {cron: \"7 * * * *\"}\nrun: {shell: \"true\"}\n---\nnamespace: minutes\nname: c\nschedule: {cron: \"7 * * * *\"}\nrun: {shell: \"true\"}\n")
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	// The planner takes a new job a moment later, and the page is read again until it has.
	until(t, "the chart", func() bool {
		b.open("/timeline?view=week&namespace=minutes")
		return value[bool](b, `[...document.querySelectorAll("svg[aria-label='Starts by the minute of the hour'] title")].some(t => t.textContent === ":07: 72 starts")`)
	})
	if n := value[int](b, `document.querySelectorAll("svg[aria-label='Starts by the minute of the hour'] rect").length`); n != 1 {
		t.Errorf("%d minutes have starts, want 1", n)
	}
	starts := value[[]string](b, `[...document.querySelectorAll("#gains tbody tr")].map(tr => tr.cells[2].textContent)`)
	if fmt.Sprint(starts) != "[3 1 1 1]" {
		t.Errorf("spread over 1, 5, 15 and 60 minutes the fullest minute has %v starts", starts)
	}
	b.open("/timeline?namespace=minutes")
	b.press(`[...document.querySelectorAll(".seg a")].find(a => a.textContent === "By team")`)
	b.until("the lanes of the label", `location.search.includes("by=label") && [...document.querySelectorAll("#lanes .lane > :first-child")].map(t => t.textContent.trim()).join() === "no team,team=minutes"`)
	if n := value[int](b, `document.querySelectorAll("#lanes .lane .f-next").length`); n < 22 {
		t.Errorf("two lanes that start each hour have %d starts in the 12 hours to come", n)
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}

// A job whose last run failed is in the view, and leaves it when it succeeds.
func TestTheFailingViewFollowsTheJobs(t *testing.T) {
	t.Parallel()
	pages(t)
	const name = "failing/feed"
	document := func(command string) string {
		return "namespace: failing\nname: feed\nschedule: {cron: \"0 0 1 1 *\"}\nrun: {shell: \"" + command + "\"}\n"
	}
	apply(t, document("exit 3"))
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/jobs?state=failing&namespace=failing")
	b.until("no job yet", `document.querySelector("[data-live-text]").textContent.includes("Live") && document.querySelector("[data-list]") === null`)
	if _, err := belfry.command("job", "run", name, "--wait"); err == nil {
		t.Fatal("the job succeeds")
	}
	row := `document.querySelector("[data-list] tr[data-href='/jobs/` + name + `']")`
	b.until("the job that fails", row+`?.querySelector(".lst .st.fail") !== undefined && `+row+`.querySelector(".strip .f-fail") !== null`)
	apply(t, document("true"))
	must(t, "job", "run", name, "--wait")
	b.until("that it is gone", row+` === null`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

// A list of runs does not jump while a person reads further down.
func TestNewRunsWaitWhileTheListIsScrolled(t *testing.T) {
	t.Parallel()
	pages(t)
	const name = "behind/tick"
	apply(t, "namespace: behind\nname: tick\nschedule: {cron: \"0 0 1 1 *\"}\nrun: {shell: \"true\"}\n")
	for range 25 {
		must(t, "job", "run", name, "--wait")
	}
	b := newTab(t)
	b.width(390)
	b.looks("light", "en")
	b.open("/runs?namespace=behind")
	b.until("the runs", `document.querySelectorAll("#list tr[id]").length >= 25 && document.querySelector("[data-live-text]").textContent.includes("Live")`)
	b.do(chromedp.Evaluate(`document.querySelector("#list tr:nth-child(20)").scrollIntoView()`, nil))
	b.until("the place further down", `document.getElementById("list").getBoundingClientRect().top < 0`)
	first := value[string](b, `document.querySelector("#list tr[id]").id`)
	must(t, "job", "run", name, "--wait")
	b.until("that there is more", `document.querySelector(".behind")?.textContent === "1 new: back to the top"`)
	if got := value[string](b, `document.querySelector("#list tr[id]").id`); got != first {
		t.Errorf("the list begins with %s, and with %s before", got, first)
	}
	b.do(chromedp.Evaluate(`document.querySelector(".behind").click()`, nil))
	b.until("the new run", `document.querySelector("#list tr[id]").id !== "`+first+`" && document.querySelector(".behind") === null`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

func TestAChartIsThereAsATable(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/timeline?view=week")
	button := `[...document.querySelector("[aria-label='Starts by the minute of the hour']").closest(".panel").querySelectorAll("button")].find(b => b.textContent === "As table")`
	b.until("the button", button+` !== undefined`)
	b.do(chromedp.Evaluate(button+`.click()`, nil))
	b.until("the table", `[...document.querySelectorAll(".marks tr")].some(tr => tr.cells[0].textContent === ":10" && /starts/.test(tr.cells[1].textContent))`)
	b.obeys(allRules, "light", "the table")
	b.do(chromedp.Evaluate(button+`.click()`, nil))
	b.until("no table", `document.querySelector(".marks") === null`)
}

// A menu that is wider than its button stays on the screen of a phone.
func TestMenusFitOnAPhone(t *testing.T) {
	t.Parallel()
	pages(t)
	ids, err := fill()
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t)
	b.width(390)
	for _, path := range []string{"/", "/jobs?namespace=fit", "/runs", "/jobs/shop/price-import", "/jobs/shop/price-import/schedule", "/runs/" + ids["shop/price-import"], "/timeline"} {
		b.open(path)
		b.until("the page", `document.readyState === "complete" && document.documentElement.classList.contains("script")`)
		for _, outside := range value[[]string](b, `[...document.querySelectorAll("details.menu")].filter(m => m.offsetParent).flatMap(m => {
			m.open = true;
			const box = m.querySelector(".pop").getBoundingClientRect(), wide = document.documentElement.scrollWidth;
			m.open = false;
			return box.left < 0 || box.right > 390 || wide > 390 ? [m.innerText + ": " + [box.left, box.right, wide]] : [];
		})`) {
			t.Errorf("%s: the menu %s is outside of the screen", path, outside)
		}
	}
}

// A drag over the histogram selects whole columns; a click selects one, also without script.
func TestTheHistogramOfRunsSelectsWhatIsDraggedOver(t *testing.T) {
	t.Parallel()
	pages(t)
	must(t, "job", "run", "ops/hostile")
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/runs")
	b.until("the histogram", `document.querySelector("#histogram svg a") !== null && document.readyState === "complete"`)
	// A person begins in the middle of the drawing, and ends beyond its right edge.
	b.drags("#histogram", .5, 1, 40)
	b.until("the selection", `new URLSearchParams(location.search).has("from")`)
	from, to := value[string](b, `new URLSearchParams(location.search).get("from")`), value[string](b, `new URLSearchParams(location.search).get("to")`)
	first, err := time.Parse(time.RFC3339, from)
	if err != nil {
		t.Fatal(err)
	}
	last, err := time.Parse(time.RFC3339, to)
	if err != nil {
		t.Fatal(err)
	}
	if span := last.Sub(first); span < 235*time.Minute || span > 245*time.Minute || !first.Truncate(5*time.Minute).Equal(first) || !last.Truncate(5*time.Minute).Equal(last) {
		t.Errorf("half of 8 hours is from %s to %s", from, to)
	}
	b.until("the runs of the selection", `document.querySelector("#list tr[id]") !== null && document.getElementById("histogram").dataset.from !== undefined`)
	one := value[string](b, `document.querySelector("#histogram svg a").getAttribute("href")`)
	plain := newTab(t) // scripts that are running when they are disabled complain
	plain.do(emulation.SetScriptExecutionDisabled(true))
	plain.open(one)
	var text string
	plain.do(chromedp.Text("#list", &text, chromedp.ByQuery))
	if text == "" {
		t.Error("the link of a column leads to no list")
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}

// The page of a schedule lists what else starts in the minute of the next run, and not the job itself.
func TestAScheduleShowsWhoElseStartsThen(t *testing.T) {
	t.Parallel()
	pages(t)
	for _, document := range []string{"name: one\nschedule: {cron: \"11 4 * * *\"}", "name: two\nschedule: {cron: \"11 4 * * *\"}", "name: three\nschedule: {cron: \"12 4 * * *\"}"} {
		apply(t, "namespace: beside\n"+document+"\nrun: {shell: \"true\"}\n")
	}
	b := newTab(t)
	b.looks("light", "en")
	// The planner takes a new job a moment later, and the page is read again until it has.
	until(t, "the other job", func() bool {
		b.open("/jobs/beside/one/schedule")
		return value[bool](b, `document.querySelector("#beside") !== null`)
	})
	if names := value[[]string](b, `[...document.querySelectorAll("#beside .name")].map(a => a.textContent)`); fmt.Sprint(names) != "[beside/two]" {
		t.Errorf("beside/one starts with %v", names)
	}
}

// widest puts the longest texts of its columns into a row of each list of jobs or runs that a page has, whatever the time
// of the day: of another year, of runs that took nearly an hour, and of a long word for a state.
var widest = map[string]string{
	"en": widestRow("in 21 h 47 min", "Sat 26 Dec 2026 02:00", "cancelled", "59 min ago", "59 min 59 s"),
	"zh": widestRow("21 小时 47 分钟后", "2026年12月26日 周六 02:00", "已取消", "59 分钟前", "59 分 59 秒"),
}

func widestRow(next, at, state, ago, took string) string {
	return fmt.Sprintf(`(() => {
		const [next, at, state, ago, took] = [%q, %q, %q, %q, %q];
		let rows = 0;
		const job = [...document.querySelectorAll("table.jobs tbody tr")].find(r => r.querySelector(".nx time") && r.querySelector("a.st .i"));
		if (job) {
			job.querySelector(".nx").textContent = next;
			job.querySelector(".nx + td").textContent = at;
			job.querySelector("a.st").replaceChildren(job.querySelector("a.st .i"), state + " " + ago);
			job.querySelector("td.num").textContent = took;
			rows++;
		}
		for (const row of document.querySelectorAll("table.runs tbody tr:first-child")) {
			row.querySelector(".nm .st").replaceChildren(row.querySelector(".nm .i"), state);
			row.querySelector(".nx").textContent = at;
			for (const td of row.querySelectorAll("td.lst, td.faint.num")) td.textContent = took;
			rows++;
		}
		return rows;
	})()`, next, at, state, ago, took)
}

// Readers hear when the state of the run in view changes, and not each second how long it runs.
func TestTheEndOfARunIsAnnounced(t *testing.T) {
	t.Parallel()
	pages(t)
	apply(t, "namespace: heard\nname: wait\nrun: {shell: \"sleep 600\"}\npolicy: {kill_grace: 1s}\n")
	out := must(t, "job", "run", "heard/wait", "-o", "name")
	id := out[strings.LastIndex(out, "/")+1:]
	until(t, "the start", func() bool { return strings.Contains(must(t, "run", "get", id, "-o", "json"), `"running"`) })
	b := newTab(t)
	b.looks("light", "en")
	b.open("/runs/" + id)
	b.until("the running run", `document.querySelector("#head .pill.run") !== null && document.querySelector("[data-live-text]").textContent.includes("Live")`)
	words := `document.querySelector("#announced[role=status]").textContent`
	b.until("a later second", `!document.querySelector("#head .pill").textContent.includes("for 0 s")`)
	if text := value[string](b, words); text != "" {
		t.Errorf("while the run runs %q is said", text)
	}
	must(t, "run", "cancel", id)
	b.until("what is said of the end", words+` === "cancelled" || `+words+`.startsWith("cancelled, ")`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}
