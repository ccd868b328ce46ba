package web_test

import (
	"net/http"
	"strings"
	"testing"
)

// The link of a badge is shown once, to the person who made it; the settings list and revoke badges.
func TestABadgeIsMadeListedAndRevoked(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b, viewer := w.login("ann"), w.login("vera")
	b.shows("/jobs/shop/price-import", `action="/badges"`, `name="shows" value="shop/price-import"`)
	const form = `action="/badges"`
	b.shows("/jobs?q=label%3Ateam%3Dshop&namespace=shop", form, `name="shows" value="team=shop"><input type="hidden" name="namespace" value="shop"`, "belfry badge create --namespace shop --label team=shop")
	for _, path := range []string{"/jobs", "/jobs?q=price", "/jobs?q=label%3Ateam%3Dshop+price", "/jobs?q=label%3Ateam%3Dshop&state=paused", "/jobs?q=label%3Ateam%3Dshop+label%3Atier%3D1"} {
		if strings.Contains(b.page(path), form) {
			t.Errorf("%s offers a badge, which would show other jobs", path)
		}
	}
	if strings.Contains(viewer.page("/jobs?q=label%3Ateam%3Dshop"), form) {
		t.Error("a viewer is offered a badge")
	}
	for shows, links := range map[string][]string{
		"shop/price-import": {"The badge of shop/price-import:", `src="/badge/belfry_`, "[![shop/price-import](http://", "/jobs/shop/price-import)"},
		"team=shop":         {"The badge of team=shop:", "/jobs?namespace=&amp;q=label%3Ateam%3Dshop)"},
	} {
		answer := b.send("/badges", "shows", shows)
		for _, text := range links {
			if answer.Code != http.StatusCreated || !strings.Contains(answer.Body.String(), text) {
				t.Errorf("a badge of %s is answered with %d, without %q", shows, answer.Code, text)
			}
		}
	}
	if body := b.page("/settings"); strings.Contains(body, "/badge/") || strings.Count(body, `action="/badges/revoke"`) != 2 {
		t.Error("the settings do not list 2 badges without their links")
	}
	if body := viewer.page("/settings"); strings.Contains(body, "badges") {
		t.Error("a viewer sees badges")
	}
	if answer := viewer.send("/badges", "shows", "shop/price-import"); answer.Code != http.StatusForbidden {
		t.Errorf("a viewer makes a badge: %d", answer.Code)
	}
	if answer := b.send("/badges/revoke", "shows", "team=shop"); answer.Code != http.StatusSeeOther {
		t.Errorf("revoking is answered with %d: %s", answer.Code, answer.Body)
	}
	if body := b.page("/settings"); strings.Count(body, `action="/badges/revoke"`) != 1 {
		t.Error("a badge that was revoked is listed")
	}
}
