//go:build servers

package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/belfry-cron/belfry/test/servers"
)

func serveFor(t *testing.T, data, listen string, args ...string) *served {
	t.Helper()
	s, err := serve(data, listen, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(os.Kill) })
	return s
}

// The page says that it is out of date while its server is away, and is current after, in the
// same session.
func TestAServerRestartsUnderAnOpenPage(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	s := serveFor(t, data, "")
	s.must(t, "job", "create", "before", "--cron", "0 3 * * *", "--", "true")
	b := newStranger(t, s)
	b.login()
	b.open("/jobs")
	b.until("the live stream", `document.querySelector("[data-live-text]").textContent.includes("Live")`)
	s.stop(os.Kill)
	b.until("the banner", `!document.getElementById("stale").hidden`)
	s = serveFor(t, data, s.listen)
	s.must(t, "job", "create", "after", "--cron", "0 4 * * *", "--", "true")
	b.until("the new job", `document.getElementById("stale").hidden && [...document.querySelectorAll("[data-list] .name")].some(a => a.textContent === "default/after")`)
}

func TestAPageOfARevokedTokenEnds(t *testing.T) {
	t.Parallel()
	pages(t)
	secret := must(t, "token", "create", "short-lived", "--role", "viewer")
	secret = secret[strings.Index(secret, "belfry_"):]
	secret = strings.Fields(secret)[0]
	b := newStranger(t, belfry.served)
	b.open("/ui/login?next=/runs")
	b.do(chromedp.SetValue(`input[name="token"]`, secret, chromedp.ByQuery), chromedp.Submit(`input[name="token"]`, chromedp.ByQuery))
	b.until("the page", `location.pathname === "/runs" && document.querySelector("[data-live-text]")?.textContent.includes("Live")`)
	if n := value[int](b, `document.querySelectorAll("main form[method=post]").length`); n != 0 {
		t.Errorf("a viewer sees %d forms", n)
	}
	must(t, "token", "revoke", "short-lived", "--yes")
	b.until("the dialog", `document.getElementById("ended").open`)
	if n := value[int](b, `fetch("/api/v1/jobs").then(r => r.status)`); n != 401 {
		t.Errorf("the API answers the session %d", n)
	}
}

// The run of a job that requires a node with a label says so, and leads to the nodes.
func TestThePageOfARunSaysWhyItWaits(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.looks("light", "en")
	b.open("/jobs/ml/features")
	b.click(`[data-key="r"]`)
	b.until("the page of the run", `location.pathname.startsWith("/runs/") && document.readyState === "complete"`)
	b.until("the reason", `document.querySelector("#why")?.textContent.includes("gpu=a100") && document.querySelector("#head .pill").textContent.includes("waiting")`)
}

// A part that comes to a page loads it again, and the page to which a click leads comes all the same.
func TestAReloadDoesNotKeepAPersonOnThePage(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.looks("light", "en")
	apply(t, "namespace: ops\nname: steady\nrun: {shell: \"true\"}\n")
	b.do(network.EmulateNetworkConditions(false, 300, -1, -1)) // so that the part comes while the click is answered
	b.open("/jobs/ops/steady")
	b.until("the page", `document.querySelector("form[action$='/run'] button.primary") !== null && document.documentElement.classList.contains("script")`)
	b.do(chromedp.Evaluate(`(async () => {
		const {refresh} = await import(document.querySelector("script[type=module]").src.replace("belfry.js", "live.js"));
		document.querySelector("[data-live]").remove();
		document.querySelector("form[action$='/run'] button.primary").click();
		refresh();
	})()`, nil, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	b.until("the page of the run", `location.pathname.startsWith("/runs/") && document.readyState === "complete"`)
}

// A page that is open before its run begins shows the output of the run and of its next attempt.
func TestOutputThatBeginsIsOnThePage(t *testing.T) {
	t.Parallel()
	pages(t)
	apply(t, "namespace: ops\nname: gated\nrun: {shell: \"echo attempt {{ .Attempt }}; exit 1\"}\nschedule: {at: [2100-01-01T00:00:00Z]}\nplace: {labels: {gate: open}}\npolicy: {retry: {attempts: 1, backoff: 1s}}\n")
	out := must(t, "job", "run", "ops/gated", "-o", "name")
	b := newTab(t)
	b.open("/runs/" + out[strings.LastIndex(out, "/")+1:])
	b.until("no output", `document.querySelector("#output [data-log] .nothing") !== null`)
	apply(t, "namespace: ops\nname: gated\nrun: {shell: \"echo attempt {{ .Attempt }}; exit 1\"}\nschedule: {at: [2100-01-01T00:00:00Z]}\npolicy: {retry: {attempts: 1, backoff: 1s}}\n")
	b.until("the output of the second attempt", `document.querySelector("#output [data-log]")?.textContent.includes("attempt 2")`)
}

// Two people edit a job. The second sees what the first has changed, keeps his own text, and
// then rolls back.
func TestAConflictAndARollBack(t *testing.T) {
	t.Parallel()
	pages(t)
	must(t, "job", "create", "both", "--cron", "0 5 * * *", "--", "true")
	b := newTab(t)
	b.looks("light", "en")
	const address = "/jobs/default/both"
	b.open(address + "/edit")
	b.until("the editor", `document.querySelector("[data-edit]").dataset.ready === "1"`)
	apply(t, "name: both\ndescription: of the other\nschedule: {cron: \"0 5 * * *\"}\nrun: {shell: \"true\"}\n")
	b.types("f-description", "mine")
	b.until("the text", `document.querySelector("[data-document]").value.includes("description: mine")`)
	b.click("[data-save]")
	b.until("the conflict", `document.querySelector("[role=alert]")?.textContent.includes("of the other")`)
	b.click(`[role=alert] button[name="over"]`)
	b.until("the page of the job", fmt.Sprintf(`location.pathname === %q && document.readyState === "complete" && document.querySelector(".desc")?.textContent === "mine"`, address))
	b.open(address + "/definition?version=2")
	b.choose(`main details.menu:has(form[action$="/rollback"]) > summary`, `form[action$="/rollback"] button`)
	b.until("the version after", `document.querySelector("main > [role=status]:not([hidden])")?.textContent.includes("Rolled back") && document.querySelector(".desc")?.textContent === "of the other"`)
	if list := b.complained(); len(list) > 0 {
		// The answer to the conflict is a 412, which the browser logs.
		for _, text := range list {
			if !strings.Contains(text, "412") {
				t.Errorf("the pages complain: %s", text)
			}
		}
	}
}

// Three nodes share a store, and a browser comes to any of them by way of a proxy. One is
// killed: the page says so, and the session continues.
func TestANodeIsKilledUnderAnOpenPage(t *testing.T) {
	t.Parallel()
	store := servers.StartRedis(t).URL()
	me, err := user.Current() // root would be refused: other machines could give it jobs
	if err != nil {
		t.Fatal(err)
	}
	var nodes [3]*served
	for i := range nodes {
		nodes[i] = serveFor(t, filepath.Join(t.TempDir(), "data"), "", "--store", store, "--run-as", me.Username, "--name", fmt.Sprintf("ber-%d", i+1))
	}
	var dead, turn atomic.Int32
	dead.Store(-1)
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		at := turn.Add(1) % 3
		if at == dead.Load() {
			at = (at + 1) % 3
		}
		to, _ := url.Parse(nodes[at].url)
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }})
	t.Cleanup(proxy.Close)
	code := nodes[0].must(t, "ui")
	_, code, _ = strings.Cut(code, "#")

	b := newStranger(t, &served{url: proxy.URL})
	b.open("/ui/login?next=/nodes#" + code)
	b.until("the nodes", `location.pathname === "/nodes" && document.querySelectorAll("#list .st.ok").length === 3`)
	dead.Store(1)
	nodes[1].stop(os.Kill)
	b.until("the node that is gone", `document.querySelectorAll("#list .st.ok").length === 2 && document.querySelector("main").textContent.includes("silent")`)
	b.open("/jobs")
	b.until("another page", `document.querySelector("nav.side") !== null && location.pathname === "/jobs"`)
}
