//go:build servers

package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// What a person may not do has no button on any page, and is refused when it is asked for all
// the same.
func TestAViewerSeesAndDoesWhatHisTokenAllows(t *testing.T) {
	t.Parallel()
	list := pages(t)
	ids, _ := fill()
	b := newStranger(t, belfry.served)
	b.width(1440)
	b.logIn(belfry.newToken(t, "onlooker", "--role", "viewer"), "/")
	for _, path := range list {
		b.open(path)
		for _, action := range value[[]string](b, `[...document.querySelectorAll("main form[method=post]:not([action='/ui/look']):not([action='/ui/logout']), main button[formaction]")].map(f => f.getAttribute("formaction") ?? f.getAttribute("action"))`) {
			t.Errorf("%s offers %s to a viewer", path, action)
		}
	}
	b.open("/jobs")
	b.complained()
	for path, form := range map[string]string{
		"/jobs/shop/price-import/run": "", "/jobs/shop/price-import/pause": "", "/jobs/shop/price-import/delete": "confirm=price-import",
		"/jobs/shop/price-import/rollback": "version=1", "/jobs/shop/price-import/edit": "action=save&document=name:+x", "/jobs/new": "action=save&document=name:+x",
		"/jobs/bulk": "action=run&job=shop/price-import&confirm=1&expect=1", "/runs/" + ids["shop/price-import"] + "/retry": "", "/runs/" + ids["data/nightly-load"] + "/cancel": "",
		"/channels/ops/hook/test": "", "/channels/new": "action=save&document=x", "/tokens": "name=mine&role=admin", "/tokens/onlooker/revoke": "", "/examples": "",
	} {
		status := value[int](b, fmt.Sprintf(`fetch(%q, {method: "POST", redirect: "manual", headers: {"Content-Type": "application/x-www-form-urlencoded"}, body: "form=" + document.querySelector("input[name=form]").value + "&" + %q}).then(r => r.status)`, path, form))
		if status != 403 {
			t.Errorf("POST %s is answered with %d to a viewer", path, status)
		}
	}
	for path, want := range map[string]int{"/api/v1/jobs/shop/price-import/run": 403, "/api/v1/jobs:apply": 403} {
		if status := value[int](b, fmt.Sprintf(`fetch(%q, {method: "POST", headers: {"Content-Type": "application/json"}, body: "{\"documents\":[]}"}).then(r => r.status)`, path)); status != want {
			t.Errorf("POST %s is answered with %d, want %d", path, status, want)
		}
	}
	// A form of another session, or of none, is refused.
	if status := value[int](b, `fetch("/jobs/shop/price-import/pause", {method: "POST", redirect: "manual", body: new URLSearchParams({form: "of another"})}).then(r => r.status)`); status != 403 {
		t.Errorf("a form without its token is answered with %d", status)
	}
}

// A token for a namespace shows nothing of the others, on no page and in no event.
func TestAPersonOfANamespaceSeesNothingOfOthers(t *testing.T) {
	t.Parallel()
	pages(t)
	ids, _ := fill()
	b := newStranger(t, belfry.served)
	b.width(1440)
	b.logIn(belfry.newToken(t, "of-the-shop", "--role", "viewer", "--namespace", "shop"), "/")
	for _, path := range []string{"/", "/jobs", "/jobs?sort=next", "/jobs?q=hostile", "/runs", "/runs?outcome=failed", "/timeline", "/timeline?by=namespace", "/flows", "/audit", "/notifications", "/settings"} {
		b.open(path)
		text := value[string](b, `document.body.textContent`)
		for _, other := range []string{"ops/", "data/nightly", "ml/features", "hostile", "nightly-load"} {
			if strings.Contains(text, other) {
				t.Errorf("%s shows %q to a person of another namespace", path, other)
			}
		}
	}
	for _, path := range []string{"/jobs/ops/hostile", "/runs/" + ids["ops/hostile"], "/jobs/data/nightly-load", "/channels/ops/hook", "/api/v1/jobs/ops/hostile", "/api/v1/runs/" + ids["ops/hostile"], "/api/v1/runs/" + ids["ops/hostile"] + "/output", "/api/v1/events?namespace=ops"} {
		if status := value[int](b, fmt.Sprintf(`fetch(%q).then(r => r.status)`, path)); status != 403 && status != 404 {
			t.Errorf("%s is answered with %d to a person of another namespace", path, status)
		}
	}
}

// A line of 10 MB neither hangs the page nor fills it, and what follows it is there.
func TestALineOfTenMegabytesIsCut(t *testing.T) {
	t.Parallel()
	pages(t)
	apply(t, "namespace: ops\nname: long-line\nrun: {shell: \"echo before; head -c 10000000 /dev/zero | tr '\\\\0' y; echo; echo after\"}\n")
	out := must(t, "job", "run", "ops/long-line", "--wait", "-o", "name")
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/runs/" + out[strings.LastIndex(out, "/")+1:])
	b.until("the lines", `[...document.querySelectorAll("[data-log] .x")].some(x => x.textContent === "after") && [...document.querySelectorAll("[data-log] .x")].some(x => x.textContent === "before")`)
	if n := value[int](b, `document.querySelector("main").textContent.length`); n > 200_000 {
		t.Errorf("the page has %d letters", n)
	}
	b.do(chromedp.Evaluate(`{ const f = document.querySelector("[data-output-search]"); f.value = "after"; f.dispatchEvent(new InputEvent("input")); }`, nil))
	b.until("the hit", `document.querySelector("[data-log] .hit mark")?.textContent === "after"`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

// Names and texts that people give are text in lists, pages, menus, the audit and the palette.
func TestHostileTextsAreTextOnEveryPage(t *testing.T) {
	t.Parallel()
	pages(t)
	const evil = `<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u202Egnp.exe\u001b[31m`
	apply(t, `namespace: evil
name: texts
description: "`+evil+`"
labels: {team: "javascript.alert"}
params: {p: {default: "`+strings.ReplaceAll(evil, `\u001b`, "")+`", description: "`+evil+`"}}
run: {shell: "exit 7"}
policy: {pause_on_failure: 1}
`)
	_, _ = belfry.command("job", "run", "evil/texts", "--wait")
	_, _ = belfry.command("job", "resume", "evil/texts")
	must(t, "job", "pause", "evil/texts", "--reason", "<script>document.title='owned'</script> \u202Ereason")
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	for _, path := range []string{"/", "/jobs?namespace=evil", "/jobs/evil/texts", "/jobs/evil/texts/definition", "/jobs/evil/texts/edit", "/runs?job=evil/texts", "/audit?object=evil/texts", "/timeline?by=namespace", "/jobs?q=%3Cscript%3Edocument.title%3D%27owned%27%3C/script%3E", "/runs?q=%22%3E%3Cimg%20src%3Dx%3E"} {
		b.open(path)
		if title := value[string](b, "document.title"); strings.Contains(title, "owned") {
			t.Errorf("a script of %s has run", path)
		}
		if n := value[int](b, `document.querySelectorAll("main img, main script, main [onerror], main a[href^='javascript']").length`); n != 0 {
			t.Errorf("%s has %d elements of a text", path, n)
		}
		shown := value[string](b, `(() => { const c = document.body.cloneNode(true); c.querySelectorAll("textarea, input, script, template").forEach(e => e.remove()); return c.textContent; })()`)
		for _, mark := range []string{"\u202e", "\u001b"} {
			if strings.Contains(shown, mark) {
				t.Errorf("%s shows %+q", path, mark)
			}
		}
	}
	b.open("/jobs/evil/texts")
	if text := value[string](b, `document.querySelector(".desc").textContent`); !strings.Contains(text, "<img src=x") || !strings.Contains(text, "‹U+202E›") {
		t.Errorf("the description is %q", text)
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}

// The policy of the pages is kept by a browser: a text that reached a page as it is would be no script,
// load nothing from elsewhere and send nothing there, and no other site has a page in a frame.
func TestABrowserKeepsThePolicyOfThePages(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	b.open("/jobs")
	asked := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.Path:
		default:
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<iframe src=%q></iframe>", belfry.url+"/jobs")
	}))
	t.Cleanup(other.Close)
	// What a page did that had a hole: document.write is not there, and innerHTML takes no text.
	for what, script := range map[string]string{
		"a text that becomes elements":  `try { document.body.innerHTML += "<b>x</b>"; "done" } catch (e) { e.name }`,
		"a text that becomes a script":  `try { const s = document.createElement("script"); s.text = "window.ran = 1"; document.body.append(s); "done" } catch (e) { e.name }`,
		"a text that is evaluated":      `try { window.setTimeout("window.ran = 1", 0); "done" } catch (e) { e.name }`,
		"another policy of the browser": `try { trustedTypes.createPolicy("evil", {}); "done" } catch (e) { e.name }`,
	} {
		if got := value[string](b, script); got != "TypeError" && got != "EvalError" {
			t.Errorf("%s: %s", what, got)
		}
	}
	value[bool](b, fmt.Sprintf(`(() => {
		window.violated = [];
		document.addEventListener("securitypolicyviolation", e => window.violated.push(e.effectiveDirective));
		const add = (name, set) => { const e = document.createElement(name); Object.assign(e, set); document.body.append(e); };
		add("img", {src: %[1]q + "img"});
		add("iframe", {src: %[1]q + "frame"});
		add("link", {rel: "stylesheet", href: %[1]q + "style"});
		fetch(%[1]q + "fetch").catch(() => {});
		return true;
	})()`, other.URL+"/"))
	for _, directive := range []string{"img-src", "frame-src", "style-src-elem", "connect-src"} {
		b.until("the refusal by "+directive, fmt.Sprintf(`window.violated.includes(%q)`, directive))
	}
	if value[bool](b, `"ran" in window`) {
		t.Error("a script of another one has run")
	}
	select {
	case path := <-asked:
		t.Errorf("the other site was asked for %s", path)
	default:
	}
	b.complained() // each of them is an error there

	b.do(chromedp.Navigate(other.URL + "/around"))
	var frames *page.FrameTree
	b.do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		frames, err = page.GetFrameTree().Do(ctx)
		return err
	}))
	if len(frames.ChildFrames) != 1 || frames.ChildFrames[0].Frame.URL != "chrome-error://chromewebdata/" {
		t.Errorf("another site has a page in a frame: %+v", frames.ChildFrames)
	}
	b.complained()
}
