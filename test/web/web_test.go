//go:build servers

package web

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/belfry-cron/belfry/test/servers"
)

// patience bounds each wait for the browser: a busy machine is slow and not wrong.
const patience = 3 * time.Minute

// elementLeft is the code with which Chromium refuses an action on an element that it no longer has.
const elementLeft = -32000

// navigationLeft is how Chromium ends a navigation for another one: the page reloads itself, or a
// form was sent right before.
const navigationLeft = "net::ERR_ABORTED"

// networkChanged is how it ends one when the machine gets another network: tests beside these start containers.
const networkChanged = "net::ERR_NETWORK_CHANGED"

// belfry is the program, the server of most tests, and the browser.
var belfry struct {
	program, dir string
	*served
	browser func() context.Context
	axe     string
}

// served is a server.
type served struct {
	data, listen, url string
	process           *exec.Cmd
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "belfry-web")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	belfry.dir = dir
	defer endNight()
	belfry.program = filepath.Join(dir, "belfry")
	if err := servers.Build(belfry.program, "cmd/belfry"); err != nil {
		panic(err)
	}
	settings := filepath.Join(dir, "belfry.yaml") // a million lines are more than is kept by default
	if err := os.WriteFile(settings, []byte("output_limit: 32MiB\n"), 0o600); err != nil {
		panic(err)
	}
	if belfry.served, err = serve(filepath.Join(dir, "data"), "", "--config", settings, "--name", "ber-1"); err != nil {
		panic(err)
	}
	defer belfry.stop(os.Interrupt)
	if belfry.axe, err = axe(); err != nil {
		panic(fmt.Sprintf("the tests of accessibility need axe-core: %v", err))
	}
	browser, stop, err := chromium()
	if err != nil {
		panic(fmt.Sprintf("start Chromium, which test/servers/install.sh installs: %v", err))
	}
	defer stop()
	belfry.browser = func() context.Context { return browser }
	return m.Run()
}

// headlessShell is Debian's browser without windows, which needs less than Chromium. The command of that name is a
// script that would leave it behind.
const headlessShell = "/usr/lib/chromium/chromium-headless-shell"

// chromium starts a browser.
func chromium() (browser context.Context, stop func(), err error) {
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.Flag("force-color-profile", "srgb"), chromedp.DisableGPU, chromedp.WSURLReadTimeout(patience))
	if _, err := os.Stat(headlessShell); err == nil {
		options = append(options, chromedp.ExecPath(headlessShell))
	}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	browser, cancel := chromedp.NewContext(allocator, chromedp.WithBrowserOption(chromedp.WithDialTimeout(patience)))
	return browser, func() { cancel(); end() }, chromedp.Run(browser)
}

// serve starts a server on an address of loopback, "" for any that is free, and waits until it
// answers.
func serve(data, listen string, args ...string) (*served, error) {
	if listen == "" {
		var err error
		if listen, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	s := &served{data: data, listen: listen, url: "http://" + listen}
	s.process = exec.Command(belfry.program, append([]string{"serve", "--data", data, "--listen", listen}, args...)...)
	var output bytes.Buffer
	s.process.Stderr = &output
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if answer, err := http.Get(s.url + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		if time.Now().After(end) {
			s.stop(os.Kill)
			return nil, fmt.Errorf("the server does not answer:\n%s", output.String())
		}
	}
}

// freeAddress returns a free address of loopback.
func freeAddress() (address string, err error) {
	port, err := servers.FreePort()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

// stop ends the server and waits for its end.
func (s *served) stop(by os.Signal) {
	_ = s.process.Process.Signal(by)
	_ = s.process.Wait()
}

// command runs a command of the program against the server.
func (s *served) command(args ...string) (string, error) {
	c := exec.Command(belfry.program, args...)
	c.Env = append(os.Environ(), "BELFRY_DATA="+s.data)
	if args[0] == "apply" {
		c.Stdin = strings.NewReader(jobs)
	}
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

func (s *served) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.command(args...)
	if err != nil {
		t.Fatalf("belfry %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	return belfry.must(t, args...)
}

// The version of axe-core and the hash that the registry of npm gives for it.
const (
	axeVersion = "4.10.3"
	axeHash    = "Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg=="
	axeMax     = 20 << 20
)

// axe returns the source of axe-core, from the cache of the user or the registry of npm.
func axe() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	file := filepath.Join(cache, "belfry-test", "axe-"+axeVersion+".js")
	if source, err := os.ReadFile(file); err == nil {
		return string(source), nil
	}
	answer, err := http.Get("https://registry.npmjs.org/axe-core/-/axe-core-" + axeVersion + ".tgz")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	packed, err := io.ReadAll(io.LimitReader(answer.Body, axeMax))
	if err != nil || answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the registry answers %s: %w", answer.Status, err)
	}
	if sum := sha512.Sum512(packed); base64.StdEncoding.EncodeToString(sum[:]) != axeHash {
		return "", fmt.Errorf("axe-core %s has another hash: %s", axeVersion, base64.StdEncoding.EncodeToString(sum[:]))
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if err != nil {
			return "", errors.Join(errors.New("axe.min.js is not in the package"), err)
		}
		if header.Name != "package/axe.min.js" {
			continue
		}
		source, err := io.ReadAll(io.LimitReader(files, axeMax))
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return "", err
		}
		return string(source), os.WriteFile(file, source, 0o644)
	}
}

// tab has cookies and storage of its own, and what its pages complain about.
type tab struct {
	context.Context
	t       *testing.T
	on      *served
	profile cdp.BrowserContextID
	mu      sync.Mutex
	// complaints are errors of scripts, of the policy, and of requests.
	complaints []string
}

// newTab opens a tab that is logged in.
func newTab(t *testing.T) *tab {
	t.Helper()
	b := newStranger(t, belfry.served)
	b.login()
	return b
}

// seen makes a tab one that a person looks at: a page leaves a part as it is that has the focus, and the
// stream of events when it is hidden for long, as it is behind another tab.
var seen = emulation.SetFocusEmulationEnabled(true)

// newStranger opens a tab on a server.
func newStranger(t *testing.T, on *served) *tab {
	t.Helper()
	browser := cdp.WithExecutor(belfry.browser(), chromedp.FromContext(belfry.browser()).Browser)
	profile, err := target.CreateBrowserContext().Do(browser)
	if err != nil {
		t.Fatalf("make a profile: %v", err)
	}
	t.Cleanup(func() { _ = target.DisposeBrowserContext(profile).Do(browser) })
	// A profile has no window at first, in which chromedp could open a tab.
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).Do(browser)
	if err != nil {
		t.Fatalf("open a window: %v", err)
	}
	ctx, cancel := chromedp.NewContext(belfry.browser(), chromedp.WithTargetID(id))
	t.Cleanup(cancel)
	b := &tab{Context: ctx, t: t, on: on, profile: profile}
	chromedp.ListenTarget(ctx, b.hear)
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	b.do(log.Enable(), runtime.Enable(), network.Enable(), seen)
	return b
}

func (b *tab) login() {
	b.t.Helper()
	b.do(chromedp.Navigate(b.on.must(b.t, "ui")), chromedp.WaitReady("nav.side", chromedp.ByQuery))
}

func (b *tab) hear(event any) {
	var text string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			for _, a := range e.Args {
				text += string(a.Value) + " "
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError {
			text = e.Entry.Text + " " + e.Entry.URL
		}
	}
	if text != "" {
		b.mu.Lock()
		b.complaints = append(b.complaints, text)
		b.mu.Unlock()
	}
}

// complained returns what the pages have complained about since the last call, without requests that
// ended since an engine of another test has changed the networks of the machine.
func (b *tab) complained() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := slices.DeleteFunc(b.complaints, func(text string) bool { return strings.Contains(text, "net::ERR_NETWORK_CHANGED") })
	b.complaints = nil
	return list
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	for _, a := range actions {
		err := chromedp.Run(ctx, a)
		for isLeft(err) {
			time.Sleep(50 * time.Millisecond)
			err = chromedp.Run(ctx, a)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// isLeft reports whether the page has changed under an action, which is then repeated.
func isLeft(err error) bool {
	if left := (*cdproto.Error)(nil); errors.As(err, &left) {
		return left.Code == elementLeft
	}
	return err != nil && (strings.Contains(err.Error(), navigationLeft) || strings.Contains(err.Error(), networkChanged))
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.on.url + path))
}

// awaited waits for the promise of a script.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// value evaluates a script, and waits for its promise. A script that fails is evaluated again: the page
// may be about to be another one.
func value[T any](b *tab, script string) (v T) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	for {
		err := chromedp.Run(ctx, chromedp.Evaluate(script, &v, awaited))
		if err == nil {
			return v
		}
		select {
		case <-ctx.Done():
			b.t.Fatalf("%.200s: %v", script, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// types puts a text into a field as a person does, when the field is there.
func (b *tab) types(id, text string) {
	b.t.Helper()
	b.until("the field "+id, fmt.Sprintf(`document.readyState === "complete" && (f => { f.focus(); f.value = %q; f.dispatchEvent(new InputEvent("input", {bubbles: true})); return true; })(document.getElementById(%q))`, text, id))
}

// hit clicks on an element that a person could: one that is in sight, and under no other, of a page that
// has arrived whole. It does so in one step, since a part of a page that is read again may take the
// element of a mouse away between two.
const hit = `(e => {
	if (document.readyState !== "complete" || !e?.checkVisibility() || e.disabled) return false;
	e.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
	const box = e.getClientRects()[0], top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
	if (!top || !e.contains(top)) return false;
	e.dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true, composed: true, view: window}));
	return true;
})`

// press clicks on the element that a script gives, when it is there.
func (b *tab) press(element string) {
	b.t.Helper()
	b.until("the place to click at, "+element, hit+`(`+element+`)`)
}

// click clicks on the first element of a selector, when it is there.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.press(fmt.Sprintf(`document.querySelector(%q)`, selector))
}

// choose opens the menu with a summary, and clicks on a button in it.
func (b *tab) choose(summary, button string) {
	b.t.Helper()
	b.until("the menu "+summary, fmt.Sprintf(`(menu => (menu?.parentElement.open || %s(menu)) && %s(document.querySelector(%q)))(document.querySelector(%q))`, hit, hit, button, summary))
}

// byAPerson makes what a script does count as done by a person: pages ask before they lose what was typed.
func byAPerson(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithUserGesture(true) }

// until waits until a script gives true.
func (b *tab) until(what, script string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	for {
		var ok bool
		err := chromedp.Run(ctx, chromedp.Evaluate(script, &ok, byAPerson)) // it fails while a page is left
		if err == nil && ok {
			return
		}
		select {
		case <-ctx.Done():
			var shown string
			_ = chromedp.Run(b.Context, chromedp.Evaluate(`location.href + "\n" + document.querySelector("main").innerText.slice(0, 1500)`, &shown))
			b.t.Fatalf("%s does not come: %v\n%s", what, err, shown)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// looks chooses the theme and the language.
func (b *tab) looks(theme, lang string) {
	b.t.Helper()
	status := value[int](b, `fetch("/ui/look", {method: "POST", redirect: "manual", body: new URLSearchParams({form: document.querySelector("input[name=form]").value, back: "/", zone: "Europe/Berlin", theme: "`+theme+`", lang: "`+lang+`"})}).then(r => r.status)`)
	if status != 0 { // of a redirect that is not followed
		b.t.Fatalf("the look is answered with %d", status)
	}
}

func (b *tab) width(width int64) {
	b.t.Helper()
	b.do(emulation.SetDeviceMetricsOverride(width, 900, 1, width < 640))
}

// jobs are the jobs of the tests.
const jobs = `
namespace: shop
name: price-import
description: Imports the prices of the day
labels: {team: shop, tier: "1"}
params: {feed: {default: v1, description: which feed}}
schedule: {cron: "*/10 * * * *", timezone: Europe/Berlin}
run: {shell: "echo start; echo 'error: feed.csv has 0 rows' >&2; exit 1"}
policy: {overlap: allow, timeout: 30s, retry: {attempts: 1, backoff: 100ms}} # one that is due does not keep back others
---
namespace: data
name: warehouse-load-with-a-name-that-is-as-long-as-names-of-people-who-like-long-names
labels: {a-label-with-a-name-of-a-department: and-a-value-that-is-long-as-well}
schedule: {cron: "25 7 * * *"}
run: {shell: "for i in 1 2 3; do echo line $i; done"}
---
namespace: ops
name: slow
run: {shell: "echo begun; for i in $(seq 36000); do echo tick $i; sleep 0.1; done"}
policy: {kill_grace: 1s, overlap: allow}
---
namespace: ops
name: million
description: Writes a million lines
run: {shell: "seq 1000000; echo the last line"}
---
namespace: ops
name: hostile
description: "<script>document.title='owned'</script> \u202Egnp.exe"
run: {shell: "printf '<script>document.title=1</script><img src=x onerror=alert(1)>\\033]8;;https://evil.example\\007link\\033]8;;\\007\\033]0;title\\007 \\342\\200\\256rtl\\000nul \\033[31mred\\033[0m\\n'; head -c 200000 /dev/zero | tr '\\\\0' x; exit 3"}
policy: {concurrency_key: a-pool-with-a-long-name-of-which-there-is-one-slot}
---
namespace: data
name: nightly-load
description: Loads the warehouse of the day
schedule: {cron: "0 2 * * *", timezone: Europe/Berlin}
policy: {overlap: allow}
run:
  flow:
    steps:
      - {name: extract_orders, run: {shell: 'echo ''{"rows":1200,"files":["a","b","c","d"]}'' > $BELFRY_RESULT; echo read 1200 rows'}}
      - {name: extract_stock, run: {shell: "sleep 0.5; echo stock"}}
      - {name: stage, needs: [extract_orders, extract_stock], run: {shell: "echo staged"}}
      - {name: load, needs: [stage], for_each: "{{ .Steps.extract_orders.Result.files }}", run: {shell: "echo load $BELFRY_ITEM"}}
      - {name: check, needs: [extract_orders], allow_failure: true, run: {shell: "echo 'the figures differ' >&2; exit 3"}}
      - {name: approve, needs: [load, check], wait: {approval: "1200 rows: publish?", for: 12h}}
      - {name: open, needs: [approve], wait: {signal: doors}}
      - {name: publish, needs: [open], run: {shell: "echo published"}}
      - {name: compensate, needs: [publish], when: failed, run: {shell: "echo undone"}}
    finally: [{name: tell, run: {shell: "echo told"}}]
---
kind: channel
namespace: ops
name: hook
to: {webhook: {url: "https://127.0.0.1:9/a-service-with-an-address-that-is-as-long-as-addresses-of-services-are", secret: {file: there-is-none}}}
rules: [{events: [failed, recovered, missed]}]
---
namespace: ml
name: features
schedule: {cron: "0 * * * *"}
place: {labels: {gpu: a100}}
run: {shell: "true"}
policy: {overlap: allow}
`

var fill = sync.OnceValues(func() (ids map[string]string, err error) {
	ids = map[string]string{}
	if _, err := belfry.command("apply", "-f", "-"); err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	for _, name := range []string{"shop/price-import", "ops/hostile"} {
		out, err := belfry.command("job", "run", name, "--wait", "-o", "name")
		if err == nil {
			return nil, fmt.Errorf("%s succeeds", name)
		}
		ids[name] = out[strings.LastIndex(out, "/")+1:]
	}
	out, err := belfry.command("job", "run", "data/nightly-load", "-o", "name")
	if err != nil {
		return nil, err
	}
	ids["data/nightly-load"] = out[strings.LastIndex(out, "/")+1:]
	_, err = belfry.command("job", "run", "data/warehouse-load-with-a-name-that-is-as-long-as-names-of-people-who-like-long-names", "--wait")
	return ids, err
})

// pages are all pages with what the tests have made.
func pages(t *testing.T) []string {
	t.Helper()
	ids, err := fill()
	if err != nil {
		t.Fatal(err)
	}
	const j = "/jobs/shop/price-import"
	return []string{
		"/", "/jobs", "/jobs?q=label:team=shop", "/jobs/new", "/jobs/import", j, j + "/schedule", j + "/backfill?from=2026-11-01T08:00&to=2026-11-01T12:00", j + "/definition", j + "/statistics", j + "/edit", "/jobs/ops/hostile",
		"/runs", "/runs?q=nothing", "/runs/" + ids["shop/price-import"], "/runs/" + ids["ops/hostile"], "/executors", "/notifications", "/channels/new", "/channels/ops/hook", "/flows", "/jobs/data/nightly-load", "/jobs/data/nightly-load/graph", "/jobs/data/nightly-load/edit", "/runs/" + ids["data/nightly-load"], "/timeline", "/timeline?view=week", "/nodes", "/audit", "/shared", "/settings", "/ui/kit", "/nothing",
	}
}

// allRules are the rules of WCAG 2 that axe knows, and sightRules are those that another theme or width can break.
const (
	allRules   = `["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]`
	sightRules = `["color-contrast", "target-size", "link-in-text-block"]`
)

// obeys reports each violation of rules on the page, in a theme. Of rows that are alike it looks at the first of each
// table, list and drawing: axe takes some ten milliseconds for each.
func (b *tab) obeys(rules, theme, page string) {
	b.t.Helper()
	rows := 8
	if whole {
		rules, rows = allRules, 24
	}
	// No transition blends the colours.
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}))
	// No part of the page is read again meanwhile.
	for _, violation := range value[[]string](b, `(async () => { window.fetch = () => new Promise(() => {}); document.documentElement.dataset.theme = "`+theme+`"; if (typeof axe !== "object") { `+belfry.axe+`
		} const result = await axe.run({exclude: [["main :is(tr, li, .lane, .g-node):nth-of-type(n+`+fmt.Sprint(rows+1)+`)"]]}, {runOnly: `+rules+`, resultTypes: ["violations"]}); return result.violations.map(v => v.id + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(" ; ")); })()`) {
		b.t.Errorf("%s in %s violates %s", page, theme, violation)
	}
}

// zoomed is how wide a page of 1440 px is at 200 %.
const zoomed = 720

// Each page of the night, each answer to a form, and what strangers and a first start see, obeys the rules, and fits into
// each width: with long names, long hosts, long lines, and much that is wrong.
func TestEachPageInEveryThemeLanguageAndSize(t *testing.T) {
	t.Parallel()
	on, list := nightOf(t)
	isWhole(t, list)
	empty := serveFor(t, filepath.Join(t.TempDir(), "data"), "")
	// Colours are alike in both languages, and all else is in both themes: of the other combinations
	// nothing else would be seen. What the night itself says is English in Chinese, too.
	for lang, theme := range map[string]string{"en": "light", "zh": "dark"} {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			b := newStranger(t, on)
			b.login()
			b.looks(theme, lang)
			for i, path := range list {
				b.width(1440)
				b.open(path)
				b.fits(path, theme, lang, whole || i%3 == 0 || path == "/ui/kit") // which shows the parts of all pages
			}
			for _, pattern := range slices.Sorted(maps.Keys(answers)) {
				b.width(1440)
				answers[pattern](b)
				b.fits(pattern, theme, lang, false)
			}
			b.do(network.ClearBrowserCookies())
			for _, path := range strangers {
				b.width(1440)
				b.open(path + "?lang=" + lang)
				b.fits(path, theme, lang, true)
			}
			b.width(1440)
			b.do(chromedp.SetValue("#token", "belfry_no-such-token", chromedp.ByQuery), chromedp.Submit("#token", chromedp.ByQuery))
			b.until("the refusal", `document.readyState === "complete" && location.pathname === "/ui/login" && document.querySelector("[role=alert]") !== null`)
			b.fits("a wrong token", theme, lang, true)
			first := newStranger(t, empty)
			first.login()
			first.looks(theme, lang)
			first.open("/")
			first.fits("the first start", theme, lang, true)
		})
	}
}

// fits reports what is wrong with the page that is open.
func (b *tab) fits(name, theme, lang string, onPhone bool) {
	b.t.Helper()
	b.until("the page in its language", `document.readyState === "complete" && document.documentElement.lang.startsWith("`+lang+`")`)
	for _, text := range b.complained() {
		if !strings.Contains(text, "the server responded with a status of 4") || strings.Contains(text, "/ui/assets/") { // as pages of problems are
			b.t.Errorf("%s in %s, %s complains: %s", name, theme, lang, text)
		}
	}
	if shift := value[float64](b, shifted); shift >= shiftMost {
		b.t.Errorf("%s in %s shifts its layout by %g", name, lang, shift)
	}
	if rows := value[int](b, widest[lang]); rows == 0 && (name == "/jobs" || name == "/runs") {
		b.t.Errorf("%s has no row", name)
	}
	b.laidOut(name, lang)
	switch {
	case lang == "en":
		b.width(1440)
		b.obeys(allRules, theme, name)
	case onPhone:
		b.width(390)
		b.obeys(sightRules, theme, name+" at 390 px")
	}
	if lang == "zh" {
		b.saysNoEnglish(name)
	}
}

func TestHostileNamesAndOutputAreText(t *testing.T) {
	t.Parallel()
	pages(t)
	ids, _ := fill()
	b := newTab(t)
	b.open("/runs/" + ids["ops/hostile"])
	// The page reads itself again when its stream has begun, and shows the output anew.
	b.until("the output", `document.querySelector("[data-log] .a1")?.textContent === "red"`)
	for _, want := range []string{"<script>document.title=1</script>", "‹U+202E›rtl", "‹U+0000›nul"} {
		b.until(want, fmt.Sprintf(`document.querySelector("[data-log]")?.textContent.includes(%q)`, want))
	}
	if n := value[int](b, `document.querySelectorAll("[data-log] script, [data-log] img, [data-log] a[href^=http]").length`); n != 0 {
		t.Errorf("the output has become %d elements", n)
	}
	if n := value[int](b, `Math.max(0, ...[...document.querySelectorAll("[data-log] .x")].map(x => x.textContent.length))`); n > 66_000 {
		t.Errorf("a line is shown with %d letters", n)
	}
	b.open("/jobs/ops/hostile")
	if title := value[string](b, "document.title"); !strings.Contains(title, "ops/hostile") {
		t.Errorf("the title is %q", title)
	}
	if text := value[string](b, `document.querySelector(".desc").textContent`); !strings.Contains(text, "<script>") || !strings.Contains(text, "‹U+202E›") {
		t.Errorf("the description is %q", text)
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}

// A job that is made with the form is run, watched and cancelled.
func TestAJobFromTheFormToTheEndOfItsProcess(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.looks("light", "en")
	b.open("/jobs/new")
	b.until("the editor", `document.querySelector("[data-edit]").dataset.ready === "1"`)
	b.types("f-name", "from-the-form")
	b.types("f-schedule.cron", "30 2 * * MON-FIR")
	b.until("the mistake", `document.querySelector("#checked .problems")?.textContent.includes("FRI")`)
	b.types("f-schedule.cron", "30 2 * * MON-FRI")
	b.until("the schedule in words", `document.querySelector("#checked .said")?.textContent.includes("02:30")`)
	b.until("the form in the text", `document.querySelector("[data-document]").value.includes("name: from-the-form")`)
	b.click("[data-save]")
	b.until("the page of the job", `location.pathname === "/jobs/default/from-the-form" && document.readyState === "complete"`)

	b.open("/jobs/ops/slow")
	b.click(`[data-key="r"]`)
	b.until("the page of the run", `location.pathname.startsWith("/runs/") && document.readyState === "complete"`)
	b.until("the live output", `document.querySelector("[data-log]")?.textContent.includes("tick 5")`)
	b.click(`summary[data-key="c"]`)
	b.types("cancel-why", "the wrong day")
	b.click(`form[action$="/cancel"] button`)
	b.until("the end of the run", `document.querySelector("#head .pill")?.textContent.includes("cancelled")`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}

func TestARunThatEndsIsOnThePageOfRuns(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.open("/runs?job=ops/slow")
	b.until("the live stream", `document.querySelector("[data-live-text]").textContent.includes("Live") || document.querySelector("[data-live-text]").textContent.includes("实时")`)
	out := must(t, "job", "run", "ops/slow", "-o", "name")
	id := out[strings.LastIndex(out, "/")+1:]
	b.until("the run", `document.getElementById("run-`+id+`") !== null`)
	must(t, "run", "cancel", id)
	b.until("its end", `document.querySelector("[id='run-`+id+`'] .st .i use").getAttribute("href").endsWith("#cancel")`)
}

func TestSessionEndedElsewhereIsShown(t *testing.T) {
	t.Parallel()
	pages(t)
	b := newTab(t)
	b.open("/jobs")
	b.do(chromedp.Evaluate(`fetch("/ui/logout", {method: "POST", redirect: "manual", body: new URLSearchParams({form: document.querySelector("input[name=form]").value})}).then(() => new BroadcastChannel("belfry").postMessage("ended"))`, nil))
	must(t, "job", "run", "ops/hostile")
	b.until("the dialog", `document.getElementById("ended").open`)
}

func TestPagesWorkWithoutScript(t *testing.T) {
	t.Parallel()
	ids, err := fill()
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t)
	b.do(emulation.SetScriptExecutionDisabled(true))
	b.open("/runs/" + ids["shop/price-import"])
	var text string
	b.do(chromedp.Text("[data-log] .e", &text, chromedp.ByQuery))
	if !strings.Contains(text, "feed.csv has 0 rows") {
		t.Errorf("the output without script is %q", text)
	}
}

// A million lines are not in the page: they are read where they are seen.
func TestAMillionLinesOpenAtTheirEnd(t *testing.T) {
	t.Parallel()
	pages(t)
	out := must(t, "job", "run", "ops/million", "--wait", "-o", "name")
	id := out[strings.LastIndex(out, "/")+1:]
	b := newTab(t)
	b.width(1440)
	b.open("/runs/" + id)
	shows := func(line string) string {
		return `[...document.querySelectorAll("[data-log] .view .x")].some(x => x.textContent === "` + line + `")`
	}
	b.until("the last line", shows("the last line")+` && document.querySelector("[data-log] .view > :last-child .n").textContent === "1000001"`)
	if n := value[int](b, `document.querySelectorAll("[data-log] div").length`); n > 200 {
		t.Errorf("%d lines are in the page", n)
	}
	b.do(chromedp.Evaluate(`document.querySelector("[data-log]").scrollTop = 0`, nil))
	b.until("the first line", shows("1"))
	b.do(chromedp.Evaluate(`{ const f = document.querySelector("[data-output-search]"); f.value = "777777"; f.dispatchEvent(new InputEvent("input")); }`, nil))
	b.until("the hit", `document.querySelector("[data-log] .hit mark")?.textContent === "777777" && document.querySelector("[data-output-hits]").textContent === "1 of 1"`)
	b.do(chromedp.Evaluate(`location.hash = "L500000-500002"`, nil))
	b.until("the lines of the link", `[...document.querySelectorAll("[data-log] .lnk .x")].map(x => x.textContent).join() === "500000,500001,500002"`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the page complains: %q", list)
	}
}

func TestAThousandJobsArePausedByAFilter(t *testing.T) {
	t.Parallel()
	pages(t)
	var documents strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&documents, "---\nnamespace: crowd\nname: job-%04d\nlabels: {crowd: \"yes\"}\nschedule: {cron: \"0 0 1 1 *\"}\nrun: {shell: \"true\"}\n", i)
	}
	apply(t, documents.String())
	b := newTab(t)
	b.width(1440)
	b.looks("light", "en")
	b.open("/jobs?q=label:crowd=yes")
	until(t, "the selection of a full page", func() bool { // a busy server may select fewer jobs
		if value[int](b, `document.querySelectorAll("[data-list] tbody tr").length`) != 100 {
			b.open("/jobs?q=label:crowd=yes")
			return false
		}
		return value[bool](b, `!document.querySelector("[data-match-all]").closest("[hidden]") || (document.querySelector("[data-all]").click(), false)`)
	})
	b.click("[data-match-all]")
	b.click(`#bulkbar button[value="pause"]`)
	b.until("the count", `document.querySelector("[data-confirm]")?.textContent === "Pause 1000 jobs"`)
	b.types("why", "the warehouse moves")
	b.click("[data-confirm]")
	b.until("what was done", `document.querySelector("main > [role=status]:not([hidden])")?.textContent.includes("Paused 1000 jobs.")`)
	b.until("the reason in the list", `[...document.querySelectorAll("[data-list] td.why")].every(td => td.textContent === "the warehouse moves")`)
	b.press(`document.querySelector('main > [role=status] form[action^="/jobs/bulk/undo"] button')`)
	b.until("that it is undone", `document.querySelector("main > [role=status]:not([hidden])")?.textContent.includes("Resumed 1000 jobs.")`)
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}

// apply makes jobs of documents.
func apply(t *testing.T, documents string) {
	t.Helper()
	belfry.apply(t, documents)
}

func (s *served) apply(t *testing.T, documents string) {
	t.Helper()
	if err := s.applies(documents); err != nil {
		t.Fatal(err)
	}
}

func (s *served) applies(documents string) error {
	c := exec.Command(belfry.program, "apply", "-f", "-", "--data", s.data)
	c.Stdin = strings.NewReader(documents)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("apply: %w\n%s", err, out)
	}
	return nil
}

// TestScreenshots writes a picture of every page of the night into the directory SCREENSHOTS.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	on, paths := nightOf(t)
	photograph(t, on, dir, "", paths)
}

// photographedCrontab has lines that become jobs, that say what changes, and that are refused.
const photographedCrontab = `SHELL=/bin/bash
MAILTO=ops@example.com
# m h dom mon dow command
30 2 * * 1-5 /usr/local/bin/report.sh --month --with-a-flag-that-is-as-long-as-flags-of-people-who-like-long-flags > /var/log/report.log 2>&1
*/5 * * * * cd /srv/shop && php bin/console shop:stock:sync --quiet
@reboot /usr/local/bin/warm-cache
61 * * * * /usr/local/bin/never
`

// photograph writes pictures of pages in each look: of those at the paths, of the report of an
// import, and of the page for strangers.
func photograph(t *testing.T, on *served, dir, prefix string, paths []string) {
	t.Helper()
	b := newStranger(t, on)
	for _, theme := range []string{"light", "dark"} {
		// The page for logging in has no cookie yet, and looks as the system does.
		b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}))
		for _, lang := range []string{"en", "zh"} {
			b.login()
			b.looks(theme, lang)
			take := func(name string, width int64) {
				t.Helper()
				var picture []byte
				b.do(page.SetWebLifecycleState(page.SetWebLifecycleStateStateActive), chromedp.FullScreenshot(&picture, 100))
				if got := value[int64](b, "document.documentElement.scrollWidth"); got > width {
					t.Errorf("%s%s in %s, %s is %d px wide at %d px", prefix, name, theme, lang, got, width)
				}
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s%s.%s.%s.%d.png", prefix, name, theme, lang, width)), picture, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			widths := []int64{1440, 390}
			for _, width := range widths {
				b.width(width)
				for _, path := range paths {
					b.open(path)
					b.until("the colours of documents", `(document.querySelector("[data-document]") ?? document.querySelector(".numbered")) === null || document.querySelector("pre .k") !== null`)
					name := strings.Trim(strings.NewReplacer("/", "-", "?", "-", "=", "-", ":", "-", "&", "-").Replace(path), "-")
					take(cmp.Or(name, "overview"), width)
				}
				b.imports(photographedCrontab)
				take("import-report", width)
			}
			b.do(network.ClearBrowserCookies())
			b.open("/ui/login?lang=" + lang)
			for _, width := range widths {
				b.width(width)
				take("login", width)
			}
		}
	}
}

// imports shows what the lines of a crontab would become.
func (b *tab) imports(lines string) {
	b.t.Helper()
	b.open("/jobs/import")
	b.do(chromedp.SetValue(`textarea[name="crontab"]`, lines, chromedp.ByQuery))
	b.click(`button[value="check"]`)
	b.until("the report", `document.querySelector("main table.cards") !== null && document.readyState === "complete"`)
}
