//go:build servers

package web

import (
	"strings"
	"testing"
)

// On the night five jobs fail since their database refuses connections, and three since a feed is empty. The overview
// shows each group as one row with its cause; from a failed run the others are one click away.
func TestWhoElseHasTheErrorIsOneClickAway(t *testing.T) {
	t.Parallel()
	on, _ := nightOf(t)
	b := newStranger(t, on)
	b.login()
	b.width(1440)
	b.looks("light", "en")
	b.open("/")
	b.until("the groups", `document.querySelectorAll("#needs .same").length >= 2`)
	row := `[...document.querySelectorAll("#needs > .nd")].find(n => n.querySelector('a.name[title="crm/contact-sync"], a.name[title^="billing/ledger-check"]'))`
	if cause := value[string](b, row+`.querySelector(".cause").textContent`); !strings.Contains(cause, "Connection refused") && !strings.Contains(cause, "connection to server") {
		t.Errorf("the cause is %q", cause)
	}
	if n := value[int](b, row+`.nextElementSibling.querySelectorAll(".nd").length`); n != 4 {
		t.Errorf("%d other jobs have the error", n)
	}
	b.press(row + `.querySelector(".acts > a")`) // the failed run
	b.until("the run", `location.pathname.startsWith("/runs/") && document.readyState === "complete"`)
	if names := value[string](b, `[...document.querySelectorAll("#same .name")].map(a => a.title).sort().join(" ")`); !strings.Contains(names, "data/events-compact") || !strings.Contains(names, "search/reindex-delta") {
		t.Errorf("the run names %q", names)
	}
	b.press(`document.querySelector('#why a[href="#same"]')`)
	b.until("the jobs", `location.hash === "#same" && document.getElementById("same").getBoundingClientRect().top < innerHeight`)
	b.press(`document.querySelector("#same footer a")`)
	b.until("their runs", `location.pathname === "/runs" && new Set([...document.querySelectorAll("[data-list] td.jb a")].map(a => a.title)).size >= 3`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}
