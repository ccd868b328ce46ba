//go:build servers

package web

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// freshly reads the live parts of the page again, as an event makes it do.
const freshly = `const {refresh} = await import(document.querySelector("script[type=module]").src.replace("belfry.js", "live.js"));`

// A part that the page has no place for loads the page again, but not while a person uses a dialog.
func TestAnOpenDialogKeepsThePage(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.looks("light", "en")
	b.open("/jobs/shop/price-import")
	b.until("the page", `document.documentElement.classList.contains("script") && document.querySelector("[data-live-text]").textContent.includes("Live")`)
	b.do(chromedp.Evaluate(`window.kept = true; document.querySelector("[data-live]").remove(); document.querySelector("[data-open=palette]").click(); document.querySelector("#palette input").value = "half a wo"`, nil))
	b.until("the dialog", `document.getElementById("palette").open`)
	// Further answers of the server leave the time in which the page would go.
	isKept := value[bool](b, `(async () => { `+freshly+` await refresh(); for (let i = 0; i < 3; i++) await fetch(location.href); return window.kept === true && document.querySelector("#palette[open] input").value === "half a wo"; })()`)
	if !isKept {
		t.Error("the page is another one, or the dialog has lost what was typed")
	}
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until("no dialog", `!document.getElementById("palette").open`)
	b.do(chromedp.Evaluate(`(async () => { `+freshly+` document.activeElement?.blur(); refresh(); })()`, nil))
	b.until("the page as it is now", `window.kept === undefined && document.readyState === "complete"`)
}

// A tab that stays open reads its page many thousand times: nothing of an earlier reading stays.
func TestAPageThatIsLongOpenKeepsItsMemory(t *testing.T) {
	t.Parallel()
	pages(t)
	// Of a namespace of its own: the runs of other tests would be more nodes.
	apply(t, "namespace: memory\nname: once\nschedule: {cron: \"0 0 1 1 *\"}\nrun: {shell: \"true\"}\n")
	must(t, "job", "run", "memory/once", "--wait")
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/runs?namespace=memory")
	b.until("the page", `document.documentElement.classList.contains("script") && document.querySelectorAll("#list tr[id]").length > 0`)
	nodes := func(times string) int64 {
		t.Helper()
		// A reading is left out while another one, of an event, is on its way.
		value[int](b, `(async () => { `+freshly+` for (let n = 0; n < `+times+`;) { document.querySelectorAll("[data-live]").forEach(p => p.append("changed")); await refresh(); if (document.querySelector("#list").textContent.endsWith("changed")) await new Promise(r => setTimeout(r, 20)); else n++; } return 0; })()`)
		var count int64
		b.do(heapprofiler.CollectGarbage(), chromedp.ActionFunc(func(ctx context.Context) (err error) {
			_, count, _, err = memory.GetDOMCounters().Do(ctx)
			return err
		}))
		return count
	}
	before, after := nodes("5"), int64(0)
	// What a page has lost may be there until a later collection; nodes that stay become more each time.
	for range 5 {
		if after = nodes("40"); after <= before+before/2 {
			return
		}
	}
	t.Errorf("40 readings take the page from %d nodes to %d", before, after)
}

// A page that nobody uses reads itself with at most 60 kB a minute, however much happens, and at once after a quiet while.
// One that a person uses shows within a second what happened.
func TestAPageThatIsNotUsedReadsLittle(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.open("/runs")
	b.until("the page", `document.documentElement.classList.contains("script")`)
	type pace struct {
		Reads, Bytes, First, Slowest float64
	}
	// Ten runs a second end for ten minutes, and a compressed page has 9 kB.
	walk := func(idle string) pace {
		t.Helper()
		return value[pace](b, `(async () => {
			const {pacer} = await import(document.querySelector("script[type=module]").src.replace("belfry.js", "live.js"));
			const cost = 9000, minutes = 10, begun = 600000, delay = pacer(0), seen = {Reads: 0, Bytes: 0, First: 0, Slowest: 0};
			for (let now = begun, busy = 0; now < begun + minutes * 60000; now += 100) {
				if (now < busy) continue;
				const wait = delay(now, `+idle+`, cost);
				busy = now + wait;
				if (!seen.Reads++) seen.First = wait;
				seen.Slowest = Math.max(seen.Slowest, wait);
				seen.Bytes += cost / minutes;
			}
			return seen;
		})()`)
	}
	const kept = 4 * 9000 / 10 // the burst after a quiet while, and the read that begins the last minute
	if p := walk("true"); p.Bytes > 60_000+kept || p.Reads < 60 || p.First > 250 {
		t.Errorf("a page that is not used reads %.0f bytes a minute, %.0f times in all, the first after %.0f ms", p.Bytes, p.Reads, p.First)
	}
	if p := walk("false"); p.Slowest > 1000 {
		t.Errorf("a page that is used waits %.0f ms", p.Slowest)
	}
}

// Where a person has chosen the colours, states keep their icon and their word.
func TestStatesAreReadableInForcedColors(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}}))
	for _, path := range []string{"/", "/jobs", "/runs", "/jobs/shop/price-import", "/nodes", "/ui/kit"} {
		b.open(path)
		if !value[bool](b, `matchMedia("(forced-colors: active)").matches`) {
			t.Fatal("colours are not forced")
		}
		// An icon is drawn in the colour of texts, and a bar of a chart in another than what is behind it.
		for _, lost := range value[[]string](b, `(() => {
			const seen = e => e.checkVisibility() && e.getBoundingClientRect().width > 0;
			const canvas = getComputedStyle(document.body).backgroundColor;
			const icons = [...document.querySelectorAll("main .st .i, main .pill .i")].filter(seen).filter(i => [canvas, "none"].includes(getComputedStyle(i).stroke));
			const bars = [...document.querySelectorAll("main svg .f-fail, main svg .f-ok, main svg .f-run")].filter(seen).filter(r => [canvas, "none"].includes(getComputedStyle(r).fill) && [canvas, "none"].includes(getComputedStyle(r).stroke));
			const words = [...document.querySelectorAll("main .pill")].filter(seen).filter(p => p.textContent.trim() === "" && !p.querySelector(".i"));
			return [...icons, ...bars, ...words].slice(0, 3).map(e => e.outerHTML.slice(0, 160));
		})()`) {
			t.Errorf("%s loses %s in forced colours", path, lost)
		}
	}
}

// Output that is written fast is followed at its end, and stays where a person reads in it.
func TestOutputThatIsWrittenFastIsFollowed(t *testing.T) {
	t.Parallel()
	pages(t)
	apply(t, "namespace: ops\nname: flood\nrun: {shell: \"seq 100000; for i in $(seq 600000); do echo late $i; sleep 0.01; done\"}\n")
	out := must(t, "job", "run", "ops/flood", "-o", "name")
	id := out[strings.LastIndex(out, "/")+1:]
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/runs/" + id)
	const last = `(document.querySelector("[data-log] .view > :last-child .x")?.textContent ?? "")`
	b.until("the end", last+`.startsWith("late ")`)
	at := value[string](b, last)
	b.until("what comes after it", last+`.startsWith("late ") && `+last+` !== "`+at+`"`)
	if n := value[int](b, `document.querySelectorAll("[data-log] div").length`); n > 200 {
		t.Errorf("%d lines are in the page", n)
	}
	b.do(chromedp.Evaluate(`{ const log = document.querySelector("[data-log]"); log.dispatchEvent(new WheelEvent("wheel", {deltaY: -100, bubbles: true})); log.scrollTop = 0; }`, nil))
	b.until("the beginning, without following", `document.querySelector("[data-log] .view .x")?.textContent === "1" && document.querySelector("[data-output-follow]").getAttribute("aria-pressed") === "false"`)
	total := `Number(document.querySelector("[data-output-size]").textContent.replace(/\D/g, ""))`
	was := value[int](b, total)
	b.until("more lines", total+` > `+strconv.Itoa(was))
	if top := value[float64](b, `document.querySelector("[data-log]").scrollTop`); top != 0 {
		t.Errorf("the page has scrolled to %g", top)
	}
	b.do(chromedp.Evaluate(`document.querySelector("[data-output-follow]").click()`, nil))
	b.until("the end again", last+`.startsWith("late ")`)
	must(t, "run", "cancel", id)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

// A job with a bit of everything is changed with the form, and keeps the rest.
func TestTheFormKeepsWhatItDoesNotChange(t *testing.T) {
	t.Parallel()
	pages(t)
	const document = "namespace: forms\nname: whole\nlabels: {team: shop, tier: \"1\"}\nschedule:\n  cron: [\"30 2 * * MON-FRI\", \"0 12 * * SAT\"]\n  on: [{job: forms/before, outcome: finished}]\n  only: [mon-sat]\n  max_runs: 9\nrun: {shell: {command: make, args: [all]}, env: {A: b}}\nplace: {labels: {zone: de}}\npolicy: {keep: {runs: 7}}\n"
	apply(t, "namespace: forms\nname: before\nrun: {shell: \"true\"}\n---\n"+document)
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/jobs/forms/whole/edit")
	b.until("the editor", `document.querySelector("[data-edit]").dataset.ready === "1"`)
	for id, want := range map[string]string{"labels": "team=shop\ntier=1", "schedule.cron": "30 2 * * MON-FRI\n0 12 * * SAT", "schedule.on": "forms/before finished", "place.labels": "zone=de", "schedule.max_runs": "9"} {
		if got := value[string](b, `document.getElementById("f-`+id+`").value`); got != want {
			t.Errorf("the field %s has %q, want %q", id, got, want)
		}
	}
	if !value[bool](b, `document.getElementById("g-when_more").open`) {
		t.Error("the fields that have values are folded")
	}
	b.types("f-description", "changed by form")
	b.types("f-place.labels", "zone=de\ngpu=a100")
	b.until("both in the text", `document.querySelector("[data-document]").value.includes("description: changed by form") && document.querySelector("[data-document]").value.includes("gpu: a100")`)
	b.click("[data-save]")
	b.until("the page of the job", `location.pathname === "/jobs/forms/whole" && document.readyState === "complete"`)
	got := must(t, "job", "get", "forms/whole", "-o", "yaml")
	for _, part := range []string{"changed by form", "zone: de", "gpu: a100", "team: shop", "30 2 * * MON-FRI", "0 12 * * SAT", "outcome: finished", "mon-sat", "max_runs: 9", "args: all", "A: b", "runs: 7"} {
		if !strings.Contains(got, part) {
			t.Errorf("the job has lost %q:\n%s", part, got)
		}
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}
