//go:build servers

package web

import (
	"strings"
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
	b.do(chromedp.Evaluate(set+`f.value.replace("name: ops", "name: from-the-page").replace("name: slack_url", "file: slack-url").replace("missed", "mised"); }`, nil))
	b.do(chromedp.Evaluate(`document.querySelector("textarea[name=document]").dispatchEvent(new InputEvent("input", {bubbles: true}))`, nil))
	b.until("the line of the mistake while it is typed", `document.querySelector("#checked [data-line]") !== null && document.querySelector(".painted .bad") !== null`)
	b.click(`button[value="save"]`)
	b.until("the mistake", `performance.getEntriesByType("navigation")[0].responseStatus === 422 && document.querySelector(".problems")?.textContent.includes("missed")`)
	b.do(chromedp.Evaluate(set+`f.value.replace("mised", "missed"); }`, nil))
	b.click(`button[value="check"]`)
	b.until("what it means", `document.querySelector(".said")?.textContent === "The channel is valid."`)
	b.click(`button[value="save"]`)
	b.until("the channel in the list", `location.pathname === "/notifications" && document.querySelector('a[href="/channels/default/from-the-page"]') !== null`)
	b.click(`form[action="/channels/default/from-the-page/test"] button`)
	b.until("the answer", `document.querySelector("main > .note.fail[role=status]:not([hidden])")?.textContent.includes("default/from-the-page has not taken the test message")`)
	b.open("/channels/default/from-the-page")
	b.types("confirm", "from-the-page")
	b.click(`#delete button`)
	b.until("the list without it", `location.pathname === "/notifications" && document.querySelector('a[href="/channels/default/from-the-page"]') === null`)
	for _, text := range b.complained() {
		if !strings.Contains(text, "422") { // the status of the refusal, which the browser logs
			t.Errorf("the pages complain: %s", text)
		}
	}
}
