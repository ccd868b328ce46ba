//go:build servers

package web

import "testing"

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
