//go:build servers

package web

import (
	"strings"
	"testing"
)

// A row that is ticked does not keep its list from being current: it is still ticked in the next one.
func TestATickedRowDoesNotFreezeTheList(t *testing.T) {
	t.Parallel()
	pages(t)
	const name = "ticked/one"
	apply(t, "namespace: ticked\nname: one\nschedule: {cron: \"0 0 1 1 *\"}\nrun: {shell: \"true\"}\n")
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/jobs?namespace=ticked")
	b.until("the live stream", `document.querySelector("[data-live-text]").textContent.includes("Live")`)
	b.click(`[data-list] input[value="` + name + `"]`)
	b.until("the bar", `!document.getElementById("bulkbar").hidden`)
	apply(t, "namespace: ticked\nname: two\nschedule: {cron: \"0 0 1 1 *\"}\nrun: {shell: \"true\"}\n")
	b.until("the other job beside the ticked one", `document.querySelectorAll("[data-list] tbody tr").length === 2 && document.querySelector('[data-list] input[value="`+name+`"]').checked && !document.querySelector('[data-list] input[value="ticked/two"]').checked`)
	b.until("the bar for one", `!document.getElementById("bulkbar").hidden && document.querySelector("[data-count]").textContent.startsWith("1 ")`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

// The failed item of 120, and what it wrote, is the first thing below the reason of the failed run of a flow.
func TestAFailedItemIsFirst(t *testing.T) {
	t.Parallel()
	on, _ := nightOf(t)
	run := on.must(t, "run", "list", "--job", "data/partition-load-nightly-of-all-regions", "--limit", "1", "-o", "name")
	b := newStranger(t, on)
	b.login()
	b.width(1440)
	b.looks("light", "en")
	b.open("/runs/" + run[strings.LastIndex(run, "/")+1:])
	b.until("the output of the item", `document.querySelector("#step h2")?.textContent === "part-077" && document.querySelector("#step .log .e")?.textContent.includes("duplicate key value violates unique constraint")`)
	if y := value[int](b, `Math.round(document.querySelector("#step .log .e").getBoundingClientRect().bottom + scrollY)`); y > 900 {
		t.Errorf("its last line is %d px below the top of the page", y)
	}
	states := value[[]string](b, `[...document.querySelectorAll("#items-load li")].slice(0, 4).map(li => li.querySelector(".st").textContent)`)
	if len(states) != 4 || states[0] != "failed" || states[2] != "failed" || states[3] != "succeeded" {
		t.Errorf("the items begin with %q", states)
	}
	if names := value[string](b, `[...document.querySelectorAll("#items td.nm")].slice(0, 4).map(td => td.textContent).join(" ")`); names != "part-077 part-081 part-102 part-001" {
		t.Errorf("the items of the step are %q", names)
	}
	// One click repeats the items that failed, and no others.
	if text := value[string](b, `document.querySelector('#head [data-key="r"]').textContent`); text != "Retry 3 failed items" {
		t.Errorf("the button says %q", text)
	}
	if height := value[int](b, `document.documentElement.scrollHeight`); height > 6000 {
		t.Errorf("the page of a flow of 120 steps is %d px high", height)
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}
