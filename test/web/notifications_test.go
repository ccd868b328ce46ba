//go:build servers

package web

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// A channel is created, changed with a mistake, tested and deleted.
func TestAChannelFromItsDocumentToItsTest(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/channels/new")
	b.until("the editor", `document.querySelector("[data-edit]").dataset.ready === "1"`)
	const set = `{ const f = document.querySelector("textarea[name=document]"); f.value = `
	b.do(chromedp.Evaluate(set+`f.value.replace("name: ops", "name: from-the-page").replace("missed", "mised"); }`, nil))
	b.do(chromedp.Evaluate(`document.querySelector("textarea[name=document]").dispatchEvent(new InputEvent("input", {bubbles: true}))`, nil))
	b.until("the line of the mistake while it is typed", `document.querySelector("#checked [data-line]") !== null && document.querySelector(".painted .bad") !== null`)
	b.do(chromedp.Click(`button[value="save"]`, chromedp.ByQuery))
	b.until("the mistake", `performance.getEntriesByType("navigation")[0].responseStatus === 422 && document.querySelector(".problems")?.textContent.includes("missed")`)
	b.complained() // of the status of the refusal
	b.do(chromedp.Evaluate(set+`f.value.replace("mised", "missed"); }`, nil), chromedp.Click(`button[value="check"]`, chromedp.ByQuery))
	b.until("what it means", `document.querySelector(".said")?.textContent === "The channel is valid."`)
	b.do(chromedp.Click(`button[value="save"]`, chromedp.ByQuery))
	b.until("the channel in the list", `location.pathname === "/notifications" && document.querySelector('a[href="/channels/default/from-the-page"]') !== null`)
	b.do(chromedp.Click(`form[action="/channels/default/from-the-page/test"] button`, chromedp.ByQuery))
	b.until("the answer", `document.querySelector("main > .note.fail[role=status]:not([hidden])")?.textContent.includes("default/from-the-page has not taken the test message")`)
	b.open("/channels/default/from-the-page")
	b.do(chromedp.SendKeys("#confirm", "from-the-page", chromedp.ByQuery), chromedp.Click(`#delete button`, chromedp.ByQuery))
	b.until("the list without it", `location.pathname === "/notifications" && document.querySelector('a[href="/channels/default/from-the-page"]') === null`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}
