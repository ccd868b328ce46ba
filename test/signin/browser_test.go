//go:build servers

package signin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/chromedp"
)

// elementLeft is Chromium's error code for an action on a removed element.
const elementLeft = -32000

// navigationLeft is how Chromium ends a navigation when the page starts another one, as at the end of
// a session.
const navigationLeft = "net::ERR_ABORTED"

// isLeft reports whether the page has changed under an action, which is then repeated.
func isLeft(err error) bool {
	if left := (*cdproto.Error)(nil); errors.As(err, &left) {
		return left.Code == elementLeft
	}
	return err != nil && strings.Contains(err.Error(), navigationLeft)
}

// headlessShell is Debian's browser without windows, which needs less than Chromium. The command of that name is a
// script that would leave it behind.
const headlessShell = "/usr/lib/chromium/chromium-headless-shell"

// browser is Chromium with one tab.
type browser struct {
	context.Context
	*site
}

func (s *site) browser() *browser {
	s.t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.WSURLReadTimeout(patience))
	if _, err := os.Stat(headlessShell); err == nil {
		options = append(options, chromedp.ExecPath(headlessShell))
	}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	s.t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithBrowserOption(chromedp.WithDialTimeout(patience)))
	s.t.Cleanup(cancel)
	if err := chromedp.Run(ctx); err != nil {
		s.t.Fatalf("start Chromium, which test/servers/install.sh installs: %v", err)
	}
	return &browser{ctx, s}
}

func (b *browser) do(actions ...chromedp.Action) {
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

// until waits until a script returns true.
func (b *browser) until(what, script string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	for {
		var ok bool
		err := chromedp.Run(ctx, chromedp.Evaluate(script, &ok)) // it fails during navigation
		if err == nil && ok {
			return
		}
		select {
		case <-ctx.Done():
			var shown string
			_ = chromedp.Run(b.Context, chromedp.Evaluate(`location.href + "\n" + document.body.innerText.slice(0, 1500)`, &shown))
			b.t.Fatalf("%s does not come: %v\n%s", what, err, shown)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// allowsACommandLine presses the button that hands a code to a port of the machine.
func (b *browser) allowsACommandLine() {
	b.t.Helper()
	brought := make(chan string, 16)
	command := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			brought <- r.URL.Query().Get("state") + " " + r.URL.Query().Get("code")
		}
		_, _ = io.WriteString(w, "back at the command line")
	}))
	defer command.Close()
	query := url.Values{"challenge": {strings.Repeat("A", 43)}, "state": {"mine"}, "port": {command.URL[strings.LastIndex(command.URL, ":")+1:]}}
	b.do(chromedp.Navigate(b.url + "/ui/sign-in/command?" + query.Encode()))
	b.until("the question", `document.body.innerText.includes("asks to act as sso:ann@example.com")`)
	b.do(chromedp.Click("#approve", chromedp.ByQuery))
	select {
	case got := <-brought:
		if !regexp.MustCompile(`^mine [A-Za-z0-9_-]{43}$`).MatchString(got) {
			b.t.Errorf("the browser brings %q", got)
		}
	case <-time.After(patience):
		b.t.Fatal("the browser does not come to the command")
	}
	// A navigation before this one has ended would be aborted.
	b.until("the answer of the command", `document.readyState === "complete" && document.body.innerText.includes("back at the command line")`)
}

// A person opens a page, signs in at the provider, returns to that page, runs a job, and is in the
// audit. When an administrator ends the session, the open page reports it.
func TestASignInJourney(t *testing.T) {
	s := newSite(t)
	b := s.browser()
	b.do(chromedp.Navigate(s.url + "/jobs/shop/report"))
	b.until("the sign-in page", `location.pathname === "/ui/login" && document.getElementById("sign-in").innerText.includes("Example ID")`)
	b.do(chromedp.Click("#sign-in", chromedp.ByQuery))
	b.until("the form of the provider", `location.hostname === "localhost" && document.getElementById("username") !== null`)
	b.do(
		chromedp.SendKeys("#username", "ann", chromedp.ByQuery),
		chromedp.SendKeys("#password", password, chromedp.ByQuery),
		chromedp.Click(`button[type="submit"]`, chromedp.ByQuery),
	)
	b.until("the page from before", `location.hostname === "127.0.0.1" && location.pathname === "/jobs/shop/report" && document.body.textContent.includes("sso:ann@example.com")`)
	b.do(chromedp.Click(`[data-key="r"]`, chromedp.ByQuery))
	b.until("the page of the run", `location.pathname.startsWith("/runs/") && document.readyState === "complete"`)
	b.do(chromedp.Navigate(s.url + "/audit"))
	b.until("the audit", `document.querySelector("main").innerText.includes("sso:ann@example.com")`)
	if records := s.belfry("audit", "--actor", "sso:ann@example.com", "-o", "wide"); !strings.Contains(records, "run.hand") || !strings.Contains(records, "session.begin") {
		t.Errorf("the audit is\n%s", records)
	}
	b.allowsACommandLine()
	b.do(chromedp.Navigate(s.url + "/audit"))
	s.belfry("session", "end", "sso:ann@example.com", "--yes")
	b.until("the end of the session on the open page", `location.pathname === "/ui/login" || document.getElementById("ended")?.open`)
	b.do(chromedp.Navigate(s.url + "/jobs"))
	b.until("the sign-in page again", `location.pathname === "/ui/login"`)
}
