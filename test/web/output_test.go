//go:build servers

package web

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// One stream of a long output has its lines with their numbers among all, is searched alone, and has a link.
func TestOneStreamOfAnOutputIsShown(t *testing.T) {
	t.Parallel()
	pages(t)
	apply(t, "namespace: streams\nname: both\nrun: {shell: \"for i in $(seq 2500); do echo out $i; echo err $i >&2; done\"}\n")
	out := must(t, "job", "run", "streams/both", "--wait", "-o", "name")
	path := "/runs/" + out[strings.LastIndex(out, "/")+1:]
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open(path)
	b.press(`[...document.querySelectorAll("#output .seg a")].find(a => a.textContent === "stderr")`)
	b.until("the lines of stderr", `location.search === "?stream=stderr" && document.querySelector("[data-output-size]").textContent.includes("2,500") && document.querySelectorAll("[data-log] .view > .e").length > 5`)
	shown := func(script string) string {
		return `(() => { const rows = [...document.querySelectorAll("[data-log] .view > div")].filter(r => !r.querySelector(".skel")); return rows.length > 5 && rows.every(r => r.classList.contains("e")) && ` + script + `; })()`
	}
	b.do(chromedp.Evaluate(`document.querySelector("[data-log]").scrollTop = 0`, nil))
	b.until("its first line", shown(`rows[0].querySelector(".x").textContent === "err 1" && +rows[0].querySelector(".n").textContent <= 5000`))
	b.do(chromedp.Evaluate(`{ const f = document.querySelector("[data-output-search]"); f.value = "err 2222"; f.dispatchEvent(new InputEvent("input")); }`, nil))
	b.until("the hit", `document.querySelector("[data-log] .hit mark")?.textContent === "err 2222" && document.querySelector("[data-output-hits]").textContent === "1 of 1"`)
	b.do(chromedp.Evaluate(`{ const f = document.querySelector("[data-output-search]"); f.value = "out 2222"; f.dispatchEvent(new InputEvent("input")); }`, nil))
	b.until("no hit", `document.querySelector("[data-log] .hit") === null && document.querySelector("[data-output-hits]").textContent === "0 of 0"`)
	raw := value[string](b, `fetch([...document.querySelectorAll("#output a[download]")].map(a => a.href)[0]).then(r => r.text())`)
	if strings.Contains(raw, "out ") || !strings.Contains(raw, "err 2500\n") {
		t.Errorf("the raw output of stderr is %.60q", raw)
	}
	b.do(emulation.SetScriptExecutionDisabled(true))
	b.open(path + "?stream=stdout")
	var text string
	b.do(chromedp.Text("#output", &text, chromedp.ByQuery))
	if !strings.Contains(text, "out 2500") || strings.Contains(text, "err ") || strings.Contains(text, "Times") {
		t.Errorf("the output without script is %.200q", text)
	}
}

// Times are shown on a wide page and hidden on a phone until they are asked for.
func TestTimesOfAnOutputAreSwitched(t *testing.T) {
	t.Parallel()
	pages(t)
	ids, err := fill()
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t)
	b.looks("light", "en")
	for width, first := range map[int64]bool{1440: true, 390: false} {
		b.width(width)
		b.open("/runs/" + ids["shop/price-import"])
		state := func(on bool) string {
			want := map[bool]string{true: "true", false: "false"}[on]
			return `document.querySelector("[data-output-times]").ariaPressed === "` + want + `" && document.querySelector("[data-log] .t")?.checkVisibility() === ` + want
		}
		// The script takes the page over when its modules are loaded.
		b.until("the script of the output", `document.querySelector("[data-log]").matches(".timed, .bare")`)
		b.until("the times as they are at first", state(first))
		b.do(chromedp.Evaluate(`document.querySelector("[data-output-times]").click()`, nil))
		b.until("the times switched", state(!first))
		if n := value[int64](b, `document.documentElement.scrollWidth`); n > width {
			t.Errorf("at %d px the page is %d px wide", width, n)
		}
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

// Lines that have not come yet have a skeleton, which is hidden for a moment.
func TestLinesThatAreReadHaveASkeleton(t *testing.T) {
	t.Parallel()
	pages(t)
	apply(t, "namespace: streams\nname: long\nrun: {shell: \"seq 20000\"}\n")
	out := must(t, "job", "run", "streams/long", "--wait", "-o", "name")
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/runs/" + out[strings.LastIndex(out, "/")+1:])
	b.until("the last line", `[...document.querySelectorAll("[data-log] .view .x")].some(x => x.textContent === "20000")`)
	b.do(chromedp.Evaluate(`{ const get = window.fetch; globalThis.held = []; window.fetch = (...all) => new Promise(go => held.push(() => go(get(...all)))); { const log = document.querySelector("[data-log]"); log.scrollTop = log.scrollHeight / 2; } }`, nil))
	b.until("a skeleton", `(() => { const s = document.querySelector("[data-log] .view .skel"); return s !== null && getComputedStyle(s).animationDuration === "0.15s" && getComputedStyle(s).opacity === "1"; })()`)
	b.do(chromedp.Evaluate(`{ const f = document.querySelector("[data-output-search]"); f.value = "777"; f.dispatchEvent(new InputEvent("input")); }`, nil))
	b.until("the skeleton of the search", `document.querySelector("[data-output-hits].skel") !== null`)
	b.until("the lines and the hits", `(() => { for (const go of held.splice(0)) go(); return document.querySelector(".skel") === null && document.querySelector("[data-output-hits]").textContent.startsWith("1 of"); })()`)
	b.until("how much it is", `document.querySelector("[data-output-size]").textContent.endsWith("20,000 lines, 106.3 KiB")`)
	step := func(to, says string) {
		b.do(chromedp.Evaluate(`{ document.querySelector("[data-output-to='`+to+`']").click(); for (const go of held.splice(0)) go(); }`, nil))
		b.until(says, `(() => { for (const go of held.splice(0)) go(); return document.querySelector("[data-output-hits]").textContent.startsWith("`+says+` of"); })()`)
	}
	step("1", "2")
	step("1", "3")
	step("-1", "2")
}

// The looks of terminals are the same with script and without it.
func TestOutputLooksAsInATerminalWithAndWithoutScript(t *testing.T) {
	t.Parallel()
	pages(t)
	apply(t, `namespace: streams
name: looks
run: {shell: "printf '\\033[41;97m error \\033[0m\\033[4munder\\033[24m\\n\\033[7minverse\\033[27m\\033[38;5;208morange\\033[48;5;27mblue\\033[0m\\n 10%%\\r 50%%\\r100%%\\n\\033[38;2;255;0;255mpink\\033[36mcyan\\n'"}
`)
	out := must(t, "job", "run", "streams/looks", "--wait", "-o", "name")
	path := "/runs/" + out[strings.LastIndex(out, "/")+1:]
	b := newTab(t)
	const seen = `[...document.querySelectorAll("[data-log] .x")].map(x => [...x.childNodes].map(n => (n.className ?? "") + ":" + n.textContent).join(",")).join("|")`
	const want = "b1: error ,au:under|ai:inverse,a7:orange,a7 b4:blue|:100%|a5:pink,a6:cyan"
	b.open(path)
	b.until("the looks by script", `document.querySelector("[data-log]").matches(".timed, .bare") && `+seen+` === "`+want+`"`)
	b.do(emulation.SetScriptExecutionDisabled(true))
	b.open(path)
	if got := value[string](b, seen); got != want {
		t.Errorf("without script the output looks like %q, want %q", got, want)
	}
}

// What is not kept of an output is said above it, and leads to the place.
func TestTheEndOfACutOutputSaysWhatIsNotKept(t *testing.T) {
	t.Parallel()
	pages(t)
	apply(t, "namespace: streams\nname: cut\nrun: {shell: \"head -c 40000000 /dev/zero | tr '\\\\0' x | fold -w 1000\"}\n")
	out := must(t, "job", "run", "streams/cut", "--wait", "-o", "name")
	b := newTab(t)
	b.looks("light", "en")
	for _, width := range []int64{1440, 390} {
		b.width(width)
		b.open("/runs/" + out[strings.LastIndex(out, "/")+1:])
		b.until("the note", `document.querySelector("[data-output-missing]").checkVisibility() && /^6\.\d MB of this output are not kept, at line [\d,]+\. .*A search finds only what is kept/.test(document.querySelector("[data-output-missing]").textContent)`)
		if n := value[int64](b, `document.documentElement.scrollWidth`); n > width {
			t.Errorf("the page is %d px wide at %d", n, width)
		}
	}
	b.press(`document.querySelector("[data-output-missing] a")`)
	b.until("the place", `document.querySelector("[data-log] .lnk .x")?.textContent.includes("left out")`)
}
