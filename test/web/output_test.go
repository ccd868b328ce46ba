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
		b.until("the note", `document.querySelector("[data-output-missing]").checkVisibility() && /^Lines [\d,]+ to [\d,]+ are missing \(6\.\d MB\)\. .*A search finds only what is kept/.test(document.querySelector("[data-output-missing]").textContent)`)
		if n := value[int64](b, `document.documentElement.scrollWidth`); n > width {
			t.Errorf("the page is %d px wide at %d", n, width)
		}
	}
	b.press(`document.querySelector("[data-output-missing] a")`)
	b.until("the place", `document.querySelector("[data-log] .lnk .x")?.textContent.includes("are missing (")`)
}

// The output of a failure stands beside the last success's, with what both have folded; its errors are found one by one.
func TestAFailureIsComparedWithTheLastSuccess(t *testing.T) {
	t.Parallel()
	pages(t)
	apply(t, `namespace: streams
name: compared
params: {rows: "12000"}
run: {shell: "for i in $(seq 30); do echo part $i; done; echo read {{.Param.rows}} rows; [ {{.Param.rows}} != none ] || { echo 'feed.csv: refused'; echo 'error: no rows'; exit 1; }"}
`)
	must(t, "job", "run", "streams/compared", "--wait", "-o", "name")
	out := must(t, "job", "run", "streams/compared", "--param", "rows=none", "-o", "name")
	path := "/runs/" + strings.TrimSpace(out[strings.LastIndex(out, "/")+1:])
	b := newTab(t)
	b.looks("light", "en")
	b.width(1440)
	b.open(path)
	b.until("the end of the run", `document.querySelector("#head .pill.fail") !== null`)
	b.open(path) // so that the output is there as a whole
	b.until("the script of the output", `document.querySelector("[data-log]").matches(".timed, .bare")`)
	b.press(`document.querySelector("[data-output-errors]")`)
	b.until("the first error", `document.querySelector("[data-log] .hit .x")?.textContent === "feed.csv: refused" && document.querySelector("[data-output-hits]").textContent === "1 of 2"`)
	b.press(`document.querySelector("[data-output-to='1']")`)
	b.until("the next error", `document.querySelector("[data-log] .hit .x")?.textContent === "error: no rows"`)
	b.press(`document.querySelector("[data-output-errors]")`)
	b.until("no error", `document.querySelector("[data-log] .hit") === null && document.querySelector("[data-output-hits]").textContent === ""`)
	b.press(`document.querySelector("[data-output-full]")`)
	b.until("the full screen", `document.fullscreenElement?.id === "output" && document.querySelector("[data-output-full]").ariaPressed === "true" && document.querySelector("[data-log]").clientHeight > innerHeight / 2`)
	b.press(`document.querySelector("[data-output-full]")`)
	b.until("the page again", `document.fullscreenElement === null && document.querySelector("[data-output-full]").ariaPressed === "false"`)
	b.press(`[...document.querySelectorAll("#output a.btn")].find(a => a.search.includes("compare="))`)
	const seen = `[...document.querySelectorAll("#output .log > div")].map(d => d.querySelector(".n").textContent + d.querySelector(".x").textContent).join("|")`
	const want = "28  part 28|29  part 29|30  part 30|31− read 12000 rows|31+ read none rows|32+ feed.csv: refused|33+ error: no rows"
	b.until("the comparison", `location.search === "?compare=success" && document.querySelector("#output details summary").textContent.trim() === "27 lines that both have" && `+seen+` === "`+want+`"`)
	for _, theme := range []string{"light", "dark"} {
		b.open(path + "?compare=success")
		b.obeys(allRules, theme, "comparison")
	}
	for _, width := range []int64{390, 820, 1920} {
		b.width(width)
		b.open(path + "?compare=success")
		if n := value[int64](b, `document.documentElement.scrollWidth`); n > width {
			t.Errorf("the comparison is %d px wide at %d", n, width)
		}
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}
