//go:build servers

package web

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// A flow is started, looked at while it waits, approved, signalled and followed to its end.
func TestAFlowFromItsStartToItsEnd(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/jobs/data/nightly-load")
	b.click(`[data-key="r"]`)
	b.until("the page of the run", `location.pathname.startsWith("/runs/") && document.readyState === "complete"`)
	b.until("the graph of its steps", `document.querySelectorAll("#graph .g-node").length === 10`)
	b.until("the failed step", `[...document.querySelectorAll("#graph .g-node.fail text")].some(t => t.textContent === "check")`)
	b.until("the question", `document.querySelector("#step .said")?.textContent === "1200 rows: publish?"`)
	b.until("what others wait for", `document.querySelector("#step-open .fill").textContent === "waits for approve"`)
	b.until("the items", `document.querySelectorAll("#steps .items li").length === 4`)

	// A step leads to its output.
	run := value[string](b, "location.pathname")
	b.click(`#graph a[href*="step=extract_orders"]`)
	b.until("the output of the step", `document.querySelector("#step .log")?.textContent.includes("read 1200 rows") && document.querySelector("#step .result").textContent.includes('"rows"')`)
	b.click(`#step header a`)
	b.until("the run of the step", `document.querySelector("[data-log]")?.textContent.includes("read 1200 rows") && document.querySelector("#facts").textContent.includes("extract_orders")`)

	b.open("/")
	b.until("the approval among what needs a person", `[...document.querySelectorAll("#needs .nd")].some(n => n.textContent.includes("1200 rows: publish?") && n.querySelector('a[href="`+run+`"]'))`)
	b.open(run)
	b.types("note", "looks right")
	b.click(`button[value="approve"]`)
	b.until("the approval", `document.querySelector("#step-approve")?.textContent.includes("looks right")`)
	b.open(run)
	b.until("the signal that is waited for", `document.querySelector("#step form[action$='/signal'] input[name=signal]")?.value === "doors"`)
	b.types("signal-data", `{"by": "key"}`)
	b.click(`#step form[action$="/signal"] button`)
	b.until("the end", `document.querySelector("#head .pill")?.textContent.includes("succeeded")`)
	b.until("the step that was not needed", `document.querySelector("#step-compensate")?.textContent.includes("not needed")`)

	// Again from the last step, which takes over the others.
	b.open(run + "?step=tell")
	b.choose(`#step summary`, `#step button[name="from"]`)
	b.until("the new run", `location.pathname.startsWith("/runs/") && location.pathname !== "`+run+`" && document.querySelector("#facts a[href='`+run+`']") !== null`)
	b.until("its end", `document.querySelector("#head .pill")?.textContent.includes("succeeded") && document.querySelector("#step-extract_orders").textContent.includes("succeeded")`)
	b.open("/flows")
	b.until("the list", `document.querySelector("table.flows .sketch circle.f-ok") !== null`)
	if text := value[string](b, `document.querySelector("table.flows").textContent`); !strings.Contains(text, "of 10 steps") {
		t.Errorf("the list of flows shows %q", text)
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}

// The list of a failed step's items opens by itself, and the steps above and below it stay current.
func TestStepsStayCurrentBesideAnOpenList(t *testing.T) {
	t.Parallel()
	pages(t)
	gate := filepath.Join(t.TempDir(), "gate")
	apply(t, fmt.Sprintf(`namespace: ops
name: gate
run:
  flow:
    steps:
      - {name: load, for_each: [a, b], run: {shell: 'test {{ .Item }} = a'}}
    finally:
      - {name: last, run: {shell: "while [ ! -e %s ]; do sleep 0.1; done"}}
`, gate))
	out := must(t, "job", "run", "ops/gate", "-o", "name")
	b := newTab(t)
	b.looks("light", "en")
	b.open("/runs/" + out[strings.LastIndex(out, "/")+1:])
	b.until("the list", `document.querySelector("#items-load")?.open && document.querySelector("#step-last").textContent.includes("running") && document.querySelector("#graph").dataset.ready === "1"`)
	wide := `document.querySelector("#graph svg").getBoundingClientRect().width`
	before := value[float64](b, wide)
	b.click(`[data-by="+"]`)
	if got := value[float64](b, wide); got < before*1.2 {
		t.Errorf("the graph is %.0f px wide, and %.0f after a click on larger", before, got)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.until("the end of the last step", `document.querySelector("#step-last").textContent.includes("succeeded") && document.querySelector("#graph .g-node.run") === null`)
	if got := value[float64](b, wide); got < before*1.2 {
		t.Errorf("the graph is %.0f px wide when it is read again, before it was larger than %.0f", got, before)
	}
}

// A graph that is wider than its panel is zoomed with its buttons, and with keys while it has the
// focus.
func TestAGraphIsZoomed(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/jobs/data/nightly-load/graph")
	wide := `document.querySelector("#graph svg").getBoundingClientRect().width`
	over := `(p => p.scrollWidth - p.clientWidth)(document.querySelector("#graph"))`
	b.until("the zoom", `document.documentElement.classList.contains("script") && document.querySelector("#graph").dataset.ready === "1"`)
	if value[float64](b, over) <= 0 {
		t.Fatal("the graph has room, so there is nothing to fit")
	}
	own := value[float64](b, wide)
	b.do(chromedp.Click(`[data-by="0"]`, chromedp.ByQuery))
	fit := value[float64](b, wide)
	if rest := value[float64](b, over); fit >= own || rest > 1 {
		t.Errorf("a graph of %.0f px has %.0f px when it fits, and %.0f px out of sight", own, fit, rest)
	}
	b.do(chromedp.Click(`[data-by="+"]`, chromedp.ByQuery))
	if got := value[float64](b, wide); got <= fit {
		t.Errorf("the larger graph has %.0f px after %.0f px", got, fit)
	}
	b.do(chromedp.Focus("#graph", chromedp.ByQuery), chromedp.KeyEvent("-"), chromedp.KeyEvent("-"))
	if got := value[float64](b, wide); got >= fit {
		t.Errorf("the graph has %.0f px after two keys to make it smaller, before it fitted with %.0f px", got, fit)
	}
	b.do(chromedp.KeyEvent("0"))
	if got := value[float64](b, wide); got < fit-1 || got > fit+1 {
		t.Errorf("the graph has %.0f px after the key to fit, want %.0f", got, fit)
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

// The editor draws a flow while its document is typed.
func TestAFlowIsDrawnWhileItIsTyped(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.looks("light", "en")
	b.open("/jobs/new?flow=1")
	b.until("the editor", `document.querySelector("[data-edit]").dataset.ready === "1"`)
	b.until("the graph", `document.querySelectorAll("#checked .g-node").length === 4`)
	b.do(chromedp.Evaluate(`{ const f = document.querySelector("[data-document]"); f.value = f.value.replace("needs: load", "needs: lod"); f.dispatchEvent(new InputEvent("input", {bubbles: true})); }`, nil))
	b.until("the mistake", `document.querySelector("#checked .problems")?.textContent.includes("lod")`)
	b.do(chromedp.Evaluate(`{ const f = document.querySelector("[data-document]"); f.value = f.value.replace("needs: lod", "needs: load"); f.dispatchEvent(new InputEvent("input", {bubbles: true})); }`, nil))
	b.until("the graph again", `document.querySelectorAll("#checked .g-node").length === 4`)
	b.click("[data-save]")
	b.until("the page of the flow", `location.pathname === "/jobs/default/my-flow" && document.querySelectorAll("#graph .g-node").length === 4`)
}

// The document beside the graph is coloured as in the editor, and a step of the graph marks its lines.
func TestAStepOfTheGraphMarksItsLinesInTheDocument(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/jobs/data/nightly-load/graph")
	b.until("the colours", `document.querySelector(".numbered .k")?.textContent === "kind"`)
	if got := value[string](b, `document.querySelector("#doc-load").innerText.trim().split("\n")[0].trim() + "|" + document.querySelector("#doc-load .s").textContent`); !strings.HasPrefix(got, "- name: load|'{{ .Steps.extract_orders") {
		t.Errorf("the lines of the step are %q", got)
	}
	b.press(`[...document.querySelectorAll("#graph a")].find(a => a.getAttribute("aria-label")?.startsWith("load"))`)
	b.until("the marked lines", `location.hash === "#doc-load" && getComputedStyle(document.querySelector("#doc-load .same")).backgroundColor !== getComputedStyle(document.querySelector("#doc-stage .same")).backgroundColor`)
	b.width(390)
	b.open("/jobs/data/nightly-load/graph")
	b.do(chromedp.Evaluate(`location.hash = "doc-load"`, nil))
	b.until("the lines below the bar of a phone", `document.querySelector("#doc-load .same").getBoundingClientRect().top >= document.elementFromPoint(195, 5).getBoundingClientRect().bottom`)
	b.open("/jobs/data/nightly-load/definition?as=whole")
	b.until("the colours of a definition", `[...document.querySelectorAll(".numbered .k")].some(k => k.textContent === "namespace")`)
	if numbers := value[string](b, `getComputedStyle(document.querySelector(".numbered .k"), "::before").content`); numbers != "none" {
		t.Errorf("a piece of a line has a number: %s", numbers)
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}
