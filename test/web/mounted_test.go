//go:build servers

package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	scheduling "github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/dashboard"
	"github.com/belfry-cron/belfry/store/memory"
)

// Pages that a Go program has mounted under a path work in a browser: their scripts, the palette, the
// keys, the stream of events, and what forms do.
func TestMountedPagesWorkInABrowser(t *testing.T) {
	t.Parallel()
	pages(t)
	ctx, stop := context.WithCancel(t.Context())
	s := scheduling.New(memory.Empty())
	report := scheduling.Handle(s, "report", func(context.Context, *scheduling.Run, scheduling.None) (scheduling.None, error) {
		return scheduling.None{}, nil
	})
	s.Job("nightly-settlement-of-all-regions-and-currencies", scheduling.Cron("30 2 * * *"), report.Do(scheduling.None{}))
	mounted, err := dashboard.Handler(ctx, s, dashboard.Config{Path: "/ops/belfry", Who: func(*http.Request) (dashboard.Person, bool) {
		return dashboard.Person{Name: "ada@example.com", Role: dashboard.Admin}, true
	}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/belfry/", mounted)
	server := httptest.NewServer(mux)
	var group sync.WaitGroup
	group.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer func() {
		stop()
		server.CloseClientConnections()
		server.Close()
		group.Wait()
	}()

	b := newStranger(t, &served{url: server.URL})
	b.open("/ops/belfry/")
	const ready = ` && document.documentElement.classList.contains("script") && document.readyState === "complete"`
	b.until("the scripts", "true"+ready)
	b.do(chromedp.KeyEvent("g"), chromedp.KeyEvent("j"))
	b.until("the list, by its keys", `location.pathname === "/ops/belfry/jobs" && document.querySelectorAll("[data-list] tbody tr").length === 1`+ready)
	b.do(chromedp.Evaluate(`document.querySelector("[data-open=palette]").click()`, nil))
	b.until("the palette", `document.getElementById("palette").open`)
	b.do(chromedp.SendKeys("#palette input", "settlement", chromedp.ByQuery))
	b.until("the job in the palette", `document.querySelector("#found-0")?.textContent.includes("settlement")`)
	b.do(chromedp.SendKeys("#palette input", kb.Enter, chromedp.ByQuery))
	b.until("its page", `location.pathname.startsWith("/ops/belfry/jobs/default/nightly-settlement")`+ready)
	if _, err := s.Trigger(ctx, "nightly-settlement-of-all-regions-and-currencies"); err != nil {
		t.Fatal(err)
	}
	b.until("the run, without another request of the person", `document.querySelector('main a[href^="/ops/belfry/runs/"]') !== null`)
	b.do(chromedp.Evaluate(`document.querySelector('form[action^="/ops/belfry/jobs/"][action$="/run"] button').click()`, nil))
	b.until("a run of its own", `location.pathname.startsWith("/ops/belfry/runs/")`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}
