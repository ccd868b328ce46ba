package web_test

import (
	"html"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestSettingsChooseHowRowsLook(t *testing.T) {
	b := newWorld(t).login("ann")
	answer := b.send("/ui/look", "rows", "roomy", "back", "/settings")
	cookies := answer.Result().Cookies()
	if answer.Code != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("the choice is answered with %d and %v", answer.Code, cookies)
	}
	body := b.ask("GET", "/settings", nil, "Cookie", "belfry-8420="+b.secret+"; "+cookies[0].Name+"="+cookies[0].Value).Body.String()
	for _, want := range []string{`<body class="roomy"`, `value="roomy" checked`, "Log out everywhere"} {
		if !strings.Contains(body, want) {
			t.Errorf("the settings do not show %q", want)
		}
	}
}

// The audit can be cut to a time, and offers the same changes from the API.
func TestTheAuditIsCutToATime(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	body := html.UnescapeString(b.ask("GET", "/audit?range=7d&actor=wei&action=job", nil).Body.String())
	for _, want := range []string{
		`<option value="7d" selected>`, `href="/api/v1/audit?action=job&actor=wei&from=2026-11-16T08%3A41%3A00Z"`, "belfry audit --actor wei --action job --since 7d",
		`<h2>Today</h2><span class="grow">Mon 23 Nov</span>`, "shop/price-import",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the audit of a week shows no %q", want)
		}
	}
	w.now = w.now.Add(48 * time.Hour)
	b = w.login("ann")
	if body := b.ask("GET", "/audit?range=24h", nil).Body.String(); strings.Contains(body, "shop/price-import") || !strings.Contains(body, `<option value="24h" selected>`) {
		t.Error("the audit of a day shows what was changed two days ago")
	}
	if body := b.ask("GET", "/audit?range=7d", nil).Body.String(); !strings.Contains(body, "shop/price-import") {
		t.Error("the audit of a week does not show what was changed two days ago")
	}
}
