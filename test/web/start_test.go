//go:build servers

package web

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// logIn logs in with a token, as a person does who has no command line.
func (b *tab) logIn(secret, next string) {
	b.t.Helper()
	b.open("/ui/login?lang=en&next=" + url.QueryEscape(next))
	b.do(chromedp.SetValue("#token", secret, chromedp.ByQuery), chromedp.Submit("#token", chromedp.ByQuery))
	b.until("the page after the log-in", `document.querySelector("nav.side") !== null && document.readyState === "complete"`)
}

// newToken makes a token with a role, and returns its secret.
func (s *served) newToken(t *testing.T, name string, args ...string) string {
	t.Helper()
	text := s.must(t, append([]string{"token", "create", name}, args...)...)
	return strings.Fields(text[strings.Index(text, "belfry_"):])[0]
}

// From a server without jobs to the output of a first one, with nothing but a browser and the
// token that the server has made.
func TestFromTheFirstStartToTheFirstOutput(t *testing.T) {
	t.Parallel()
	s := serveFor(t, filepath.Join(t.TempDir(), "data"), "")
	token, err := os.ReadFile(filepath.Join(s.data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	b := newStranger(t, s)
	b.width(1440)
	b.logIn(string(bytes.TrimSpace(token)), "/")
	b.until("the first page", `document.querySelector("[data-first]") !== null`)
	b.do(chromedp.Evaluate(`{ const f = document.querySelector("[data-first] input[name=line]"); f.value = "15 6 * * 1-5 echo the first output"; f.dispatchEvent(new InputEvent("input", {bubbles: true})); }`, nil))
	b.until("the line in words", `document.querySelector("#explained .said")?.textContent.includes("06:15") && document.querySelector('#explained a.primary')?.href.includes("first")`)
	b.click("#explained a.primary")
	b.until("the editor", `document.querySelector("[data-edit]")?.dataset.ready === "1" && document.querySelector("[data-document]").value.includes("echo the first output")`)
	b.click("[data-save]")
	b.until("the page of the job", `/^\/jobs\/default\/[^/]+$/.test(location.pathname) && document.querySelector('[data-key="r"]') !== null`)
	b.click(`[data-key="r"]`)
	b.until("the output", `location.pathname.startsWith("/runs/") && document.querySelector("[data-log]")?.textContent.includes("the first output")`)
	b.until("the end", `document.querySelector("#head .pill")?.textContent.includes("succeeded")`)
	b.open("/")
	b.until("the overview with a job", `document.querySelector("[data-first]") === null && document.querySelector("#lead") !== null`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}

// A job is created with the form, runs while its page is watched, and is cancelled: its process
// and the process of its child are gone.
func TestACancelledRunHasNoProcessLeft(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/jobs/new")
	b.until("the editor", `document.querySelector("[data-edit]").dataset.ready === "1"`)
	b.types("f-name", "with-a-child")
	b.types("f-run.shell", "sleep 1000 & echo pids $$ $! end; i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.2; done")
	b.until("the form in the text", `document.querySelector("[data-document]").value.includes("name: with-a-child") && document.querySelector("[data-document]").value.includes("sleep 1000")`)
	b.click("[data-save]")
	b.until("the page of the job", `location.pathname === "/jobs/default/with-a-child" && document.readyState === "complete"`)
	b.click(`[data-key="r"]`)
	b.until("the live output", `document.querySelector("[data-log]")?.textContent.includes("tick 3")`)
	text := value[string](b, `/pids (\d+ \d+) end/.exec(document.querySelector("[data-log]").textContent)[1]`)
	var pids []int
	for _, field := range strings.Fields(text) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); err != nil {
			t.Fatalf("the process %d does not run: %v", pid, err)
		}
		pids = append(pids, pid)
	}
	b.click(`summary[data-key="c"]`)
	b.types("cancel-why", "the wrong day")
	b.click(`form[action$="/cancel"] button`)
	b.until("the end of the run", `document.querySelector("#head .pill")?.textContent.includes("cancelled")`)
	b.until("who cancelled it", `document.querySelector("#why")?.textContent.includes("cancelled by")`)
	for _, pid := range pids {
		until(t, fmt.Sprintf("the end of the process %d", pid), func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}

// Eight tabs of a browser follow one stream: HTTP/1.1 has six connections to a server. Each gets
// the events that it wants.
func TestTabsOfABrowserShareOneStream(t *testing.T) {
	t.Parallel()
	s := serveFor(t, filepath.Join(t.TempDir(), "data"), "")
	s.must(t, "job", "create", "before", "--cron", "0 3 * * *", "--", "true")
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	var open atomic.Int32
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
			if r.In.URL.Path == "/api/v1/events" {
				open.Add(1)
				go func() { <-r.In.Context().Done(); open.Add(-1) }()
			}
		},
	})
	t.Cleanup(proxy.Close)
	_, code, _ := strings.Cut(s.must(t, "ui"), "#")
	first := newStranger(t, &served{url: proxy.URL})
	first.open("/ui/login?next=/jobs#" + code)
	const live = `document.querySelector("[data-live-text]")?.textContent === document.querySelector("[data-live-text]")?.dataset.liveText`
	first.until("the live stream", `location.pathname === "/jobs" && `+live)
	tabs := []*tab{first}
	for _, path := range []string{"/jobs", "/runs", "/", "/nodes", "/flows", "/audit", "/jobs?namespace=default"} {
		ctx, cancel := chromedp.NewContext(first.Context, chromedp.WithExistingBrowserContext(first.profile))
		t.Cleanup(cancel)
		if err := chromedp.Run(ctx); err != nil { // the tab must not end with the time of an action
			t.Fatal(err)
		}
		b := &tab{Context: ctx, t: t, on: first.on}
		b.do(seen)
		b.open(path)
		b.until("the live stream of "+path, live)
		// A stream with other events is opened before the one in its place has ended.
		until(t, "one stream", func() bool { return open.Load() == 1 })
		tabs = append(tabs, b)
	}
	s.must(t, "job", "create", "after", "--cron", "0 4 * * *", "--", "true")
	for _, at := range []int{0, 1, 7} {
		tabs[at].until("the new job", `[...document.querySelectorAll("[data-list] .name")].some(a => a.textContent === "default/after")`)
	}
	tabs[6].until("the change", `document.querySelector("main").textContent.includes("default/after")`)
	until(t, "one stream", func() bool { return open.Load() == 1 })
}

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// drags presses at a share of the width of the drawing in a place, and releases at another one and some
// pixels, when the script that follows a drag is there: it shows a mark.
func (b *tab) drags(place string, from, to float64, beyond int) {
	b.t.Helper()
	b.until("the mark of what is dragged over", fmt.Sprintf(`(svg => {
		const box = svg.getBoundingClientRect(), at = (kind, share, beyond) => svg.dispatchEvent(new PointerEvent(kind, {bubbles: true, cancelable: true, clientX: box.left + share * box.width + beyond, clientY: box.top + 5, button: 0, pointerType: "mouse"}));
		at("pointerdown", %[2]g, 0);
		at("pointermove", %[3]g, -20);
		const marked = document.querySelector(".dragged") !== null;
		at("pointerup", %[3]g, %[4]d);
		return marked;
	})(document.querySelector(%[1]q + " svg"))`, place, from, to, beyond))
}

// presses sends a key to the page.
func (b *tab) presses(keys string, modifiers ...input.Modifier) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys, chromedp.KeyModifiers(modifiers...)))
}

func TestThePaletteAndTheKeysLeadEverywhere(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/jobs")
	ready := `document.documentElement.classList.contains("script") && document.readyState === "complete"`
	b.until("the script", ready)
	b.presses("k", input.ModifierCtrl)
	b.until("the palette", `document.getElementById("palette").open && document.activeElement === document.querySelector("#palette input") && document.querySelectorAll("#found [role=option]").length > 8`)
	// A browser may send the first keys to where the focus was before.
	types := func(field, text string) {
		until(t, text+" in "+field, func() bool {
			b.do(chromedp.Evaluate(fmt.Sprintf(`{ document.querySelector(%q).value = ""; }`, field), nil), chromedp.SendKeys(field, text, chromedp.ByQuery))
			return value[string](b, fmt.Sprintf(`document.querySelector(%q).value`, field)) == text
		})
	}
	// The first page of a search may have found nothing yet.
	b.do(chromedp.Evaluate(`{ const get = window.fetch; window.fetch = (address, ...more) => {
		if (!String(address).startsWith("/api/v1/jobs?") || String(address).includes("page_token=")) return get(address, ...more);
		return get("/api/v1/jobs?page_size=1").then(r => r.json()).then(page => new Response(JSON.stringify({items: [], next_page_token: page.next_page_token})));
	}; }`, nil))
	types("#palette input", "price")
	b.until("the job", `document.querySelector("#found [aria-selected=true]")?.textContent.startsWith("shop/price-import")`)
	b.presses(kb.Enter)
	b.until("its page", `location.pathname === "/jobs/shop/price-import" && `+ready)
	b.presses("k", input.ModifierCtrl)
	types("#palette input", "run now")
	b.until("the action", `document.querySelector("#found [aria-selected=true]")?.textContent.toLowerCase().includes("run now")`)
	b.presses(kb.Escape)
	b.until("no palette", `!document.getElementById("palette").open && document.activeElement === document.body`)
	b.until("the keys", `document.getElementById("keys").open || document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "?", bubbles: true})) && false`)
	b.presses(kb.Escape)
	b.until("no list of keys", `!document.getElementById("keys").open`)
	for keys, path := range map[string]string{"gr": "/runs", "gt": "/timeline", "gf": "/flows", "gn": "/nodes", "ga": "/audit", "gs": "/settings", "go": "/", "gj": "/jobs"} {
		// The second key counts for a moment, which lasts however slow the machine is.
		b.do(chromedp.Evaluate(`{ const now = Date.now(); Date.now = () => now; }`, nil))
		b.presses(keys[:1])
		b.presses(keys[1:])
		b.until("the page of "+keys, fmt.Sprintf(`location.pathname === %q && `, path)+ready)
	}
	b.open("/jobs")
	b.until("the script", ready)
	b.presses("/")
	b.until("the search", `document.activeElement === document.querySelector("[data-search]")`)
	types("[data-search]", "gt") // which leads elsewhere outside a field
	if where := value[string](b, `location.pathname`); where != "/jobs" {
		t.Errorf("letters in a field lead to %s", where)
	}
	// At once: a row that comes to the list meanwhile may be the first. A list with a selected row stays.
	key := func(names ...string) {
		for i, name := range names {
			names[i] = fmt.Sprintf(`document.body.dispatchEvent(new KeyboardEvent("keydown", {key: %q, bubbles: true, cancelable: true}));`, name)
		}
		b.do(chromedp.Evaluate(`document.activeElement.blur(); `+strings.Join(names, " "), nil))
	}
	key("j", "j", "k", "x")
	b.until("the selected row", `document.querySelector("[data-list] tbody tr.cursor input:checked") !== null && document.querySelector("[data-list] tbody tr").classList.contains("cursor")`)
	key("j")
	where := value[string](b, `document.querySelector("[data-list] tr.cursor").dataset.href`)
	key("Enter")
	b.until("the row's page", fmt.Sprintf(`location.pathname === %q && `, where)+ready)

	// Single letters are off where the reader has chosen so.
	if status := value[int](b, `fetch("/ui/look", {method: "POST", redirect: "manual", body: new URLSearchParams({form: document.querySelector("input[name=form]").value, back: "/", zone: "UTC", theme: "", lang: "en", keys: "off"})}).then(r => r.status)`); status != 0 {
		t.Fatalf("the look is answered with %d", status)
	}
	b.open("/jobs")
	b.until("the script", ready)
	b.presses("?")
	b.presses("k", input.ModifierCtrl)
	b.until("the palette, and no keys", `document.getElementById("palette").open && !document.getElementById("keys").open`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}

func TestTheTimelineShowsWhatRanAndWhatWill(t *testing.T) {
	t.Parallel()
	ids, err := fill()
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/timeline?namespace=shop")
	b.until("the failure in its lane", `document.querySelector('#lanes .lane a[href^="/runs?from="][href$="&job=shop%2Fprice-import"]') !== null`)
	b.open("/timeline?by=node")
	b.until("a run in the lane of its node", fmt.Sprintf(`document.querySelector('#lanes a[href="/runs/%s"]') !== null`, ids["shop/price-import"]))
	b.open("/timeline")
	b.until("what is planned", `document.querySelector("#lanes .f-plan, #lanes .f-next") !== null && document.querySelectorAll("#heat .f-next").length > 10`)
	b.press(`[...document.querySelectorAll(".seg a")].find(a => a.textContent.includes("namespace"))`)
	b.until("the lanes of namespaces", `location.search.includes("by=namespace") && [...document.querySelectorAll("#lanes .lane > a")].some(a => a.textContent === "shop")`)
	b.press(`[...document.querySelectorAll(".seg a")].find(a => a.textContent.startsWith("1 "))`)
	b.until("an hour", `location.search.includes("span=1h") && document.querySelector("#heat svg") !== null`)
	b.open("/timeline")
	b.click(`main a[href$="#minute"]`)
	b.until("the jobs of the minute", `document.querySelectorAll("#minute .due").length > 0`)
	b.open("/timeline")
	b.drags("[data-zoom]", .3, .45, 0)
	b.until("the span that was dragged over", `location.search.includes("span=6h") && location.search.includes("at=20")`)
	b.open("/timeline?by=pool")
	b.until("the lanes of pools", `[...document.querySelectorAll("#lanes text")].some(t => t.textContent === "no pool")`)
	b.open("/timeline?view=week")
	b.until("the week", `document.querySelectorAll("main svg.viz").length >= 3 && document.querySelector("main .h1, main .h2, main .h3, main .h4, main .h5, main [class*=h]") !== null`)
	b.click(`.seg a[aria-label="Later"]`)
	b.until("a later week", `location.search.includes("at=") && document.querySelectorAll("main svg.viz").length === 1`)
	b.click(`.seg a[aria-label="Earlier"]`)
	b.until("the week of now", `document.querySelector(".seg a[aria-current=true]") !== null && document.querySelectorAll("main svg.viz").length >= 3`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}

// Without script a person filters, runs a job with parameters, follows it by the page's own
// refresh, pauses and creates one.
func TestAPersonWithoutScriptDoesTheSame(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	apply(t, "namespace: plain\nname: greet\nlabels: {plain: \"yes\"}\nparams: {who: {default: world}}\nrun: {shell: \"echo hello {{ .Param.who }}; sleep 3; echo bye\"}\n")
	b.do(emulation.SetScriptExecutionDisabled(true))
	b.open("/jobs")
	b.do(chromedp.SendKeys("[data-search]", "label:plain=yes"+kb.Enter, chromedp.ByQuery))
	b.until("the search", `location.search.includes("plain") && document.readyState === "complete"`)
	until(t, "the job", func() bool {
		// A busy server has not looked at all jobs when it answers, and offers to search on.
		on := value[string](b, `document.querySelector('a.name[href="/jobs/plain/greet"]') ? "" : document.querySelector('.empty a[href*="page="]').href`)
		if on != "" {
			b.do(chromedp.Navigate(on))
		}
		return on == ""
	})
	b.click(`a.name[href="/jobs/plain/greet"]`)
	b.click(`summary[data-key="r"]`)
	b.types("param-who", "you")
	b.click(`form[action$="/run"] button.primary`)
	reads := func(what, selector, want string) {
		t.Helper()
		b.until(what, fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, selector, want))
	}
	reads("the output with the parameter", "[data-log]", "hello you")
	reads("the end", "[data-log]", "bye")
	reads("the outcome", "#head .pill", "succeeded")

	b.open("/jobs/plain/greet")
	b.click(`summary[data-key="p"]`)
	b.types("why", "moving")
	b.click(`form[action$="/pause"] button`)
	reads("the pause", "main", "moving")

	b.open("/jobs/new")
	b.types("f-name", "by-hand")
	b.types("f-schedule.cron", "0 4 * * *")
	b.click("[data-save]")
	reads("the page of the new job", "h1", "by-hand")
}
