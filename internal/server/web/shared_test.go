package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The page of what jobs share has the documents of calendars and pools.
func TestWhatJobsShareHasAPage(t *testing.T) {
	w := newWorld(t)
	put := func(text string) {
		list, err := job.Decode("", []byte(text))
		w.must(err)
		_, err = w.store.PutDocument(t.Context(), list[0], store.AnyVersion, "wei")
		w.must(err)
	}
	put("kind: calendar\nnamespace: cal\nname: holidays\ndescription: Days off\ncalendar: {include: [2026-12-25]}\n")
	put("kind: pool\nnamespace: cal\nname: db\npool: {size: 3}\n")
	b := w.login("ann")
	b.shows("/shared", "cal/holidays", "Days off", "2026-12-25", "cal/db", "3 slots", "There is none. belfry secret set NAME makes one.")
	if body := b.ask("GET", "/shared?namespace=other", nil).Body.String(); strings.Contains(body, "cal/db") {
		t.Error("the page of another namespace has the pool")
	}
}

// A window is opened, closed and opened again with buttons, and says so.
func TestAWindowIsOpenedAndClosed(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	if answer := b.send("/shared/windows", "name", "upgrade", "namespace", "shop", "for", "2x", "reason", "new disks"); answer.Code != http.StatusUnprocessableEntity || !strings.Contains(answer.Body.String(), "for") {
		t.Errorf("a window for 2x is answered with %d", answer.Code)
	}
	const opened = "/shared?about=shop%2Fupgrade&said=window_opened"
	send := func(path, to string, pairs ...string) {
		t.Helper()
		if answer := b.send(path, pairs...); answer.Header().Get("Location") != to {
			t.Fatalf("POST %s is answered with %d and leads to %q", path, answer.Code, answer.Header().Get("Location"))
		}
	}
	fields := []string{"name", "upgrade", "namespace", "shop", "for", "2h", "reason", "new disks", "label", "team=shop", "in", "shop, billing", "action", "skip"}
	send("/shared/windows", opened, fields...)
	b.shows(opened, "Opened the window shop/upgrade.", `action="/shared/windows/shop/upgrade/close"`, "team: shop", "new disks", ">open</span>")
	fields[5] = "3h"
	if answer := b.send("/shared/windows", fields...); answer.Code != http.StatusPreconditionFailed {
		t.Errorf("another window of the name is answered with %d", answer.Code)
	}
	send("/shared/windows/shop/upgrade/close", "/shared?about=shop%2Fupgrade&said=window_closed")
	b.shows("/shared", "closed:", `action="/shared/windows/shop/upgrade/open"`)
	send("/shared/windows/shop/upgrade/open", opened)
	b.shows("/shared", `action="/shared/windows/shop/upgrade/close"`)
	if answer := w.login("vera").send("/shared/windows/shop/upgrade/close"); answer.Code != http.StatusForbidden {
		t.Errorf("a viewer closes a window: %d", answer.Code)
	}
}

// A hook that is made shows its address and its secret once.
func TestAHookIsMade(t *testing.T) {
	w := newWorld(t)
	w.serve(service.Config{Store: w.store, Secrets: &secret.Keeper{
		Store: w.store, Now: w.clock, Getenv: func(string) string { return "" }, Ring: &secret.Ring{Command: []string{"/bin/echo", secret.NewKey(w.now)}, Now: w.clock},
	}})
	w.fill()
	b := w.login("ann")
	answer := b.send("/shared/hooks", "name", "deploy", "job", "shop/price-import", "from", "standard")
	if body := answer.Body.String(); answer.Code != http.StatusCreated || !strings.Contains(body, "/hooks/") || !strings.Contains(body, "whsec_") {
		t.Fatalf("a hook is answered with %d: %s", answer.Code, body)
	}
	if body := b.page("/shared"); strings.Contains(body, "whsec_") || !strings.Contains(body, "hook_deploy") {
		t.Error("the secret of a hook is shown again, or is not there")
	}
	if answer := b.send("/shared/hooks", "name", "deploy", "job", "shop/price-import", "from", "standard"); answer.Code != http.StatusConflict {
		t.Errorf("another hook of the name is answered with %d", answer.Code)
	}
	// What is refused leaves no secret behind.
	if answer := b.send("/shared/hooks", "name", "other", "job", "shop/none", "from", "what"); answer.Code == http.StatusCreated {
		t.Errorf("a wrong hook is answered with %d", answer.Code)
	}
	if body := b.page("/shared"); strings.Contains(body, "hook_other") {
		t.Error("the secret of a refused hook is left")
	}
}
