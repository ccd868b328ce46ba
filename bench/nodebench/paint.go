package nodebench

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

const (
	// paintGoal is when the largest part of a page is painted, slowGoal when it is on a processor
	// that is slower by slowness, and shownGoal when the end of a run is on an open page.
	paintGoal = 300 * time.Millisecond
	slowGoal  = 900 * time.Millisecond
	slowness  = 4
	shownGoal = time.Second
	// paints is how often a page is opened, and ends how many runs end before an open page.
	paints = 30
	ends   = 60
)

// largestPaint evaluates to the time of the largest paint, once the page has loaded.
const largestPaint = `new Promise(done => new PerformanceObserver((list, self) => {
	const last = list.getEntries().at(-1);
	requestAnimationFrame(() => requestAnimationFrame(() => { self.disconnect(); done(last.startTime); }));
}).observe({type: "largest-contentful-paint", buffered: true}))`

// whenShown evaluates to how long after its end a run is shown as ended.
const whenShown = `new Promise(done => {
	const id = %q, look = () => {
		const row = document.getElementById("run-" + id);
		if (!row?.querySelector(".st.ok")) return;
		clearInterval(timer);
		done(Date.now());
	};
	const timer = setInterval(look, 5);
})`

// chromium returns a tab of Chromium that is logged in, nil if there is none.
func (b *bench) chromium(ctx context.Context, s *server) (tab context.Context, leave func(), err error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		if program, err = exec.LookPath("chromium-headless-shell"); err != nil {
			return nil, func() {}, nil //nolint:nilerr // it is not needed
		}
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.WindowSize(1440, 900), chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	browsers, stop := chromedp.NewExecAllocator(ctx, options...)
	tab, end := chromedp.NewContext(browsers)
	leave = func() { end(); stop() }
	if err := chromedp.Run(tab); err != nil { // a login code may expire during a slow start
		return nil, leave, fmt.Errorf("start Chromium: %w", err)
	}
	code, err := s.LoginCode(ctx)
	if err != nil {
		return nil, leave, err
	}
	if err := chromedp.Run(tab, chromedp.Navigate(s.url+"/ui/login?next="+url.QueryEscape("/ui/kit")+"#"+code.Code), chromedp.WaitReady("nav.side", chromedp.ByQuery)); err != nil {
		return nil, leave, fmt.Errorf("log in with Chromium: %w", err)
	}
	return tab, leave, nil
}

// painted measures pages of a server in Chromium.
func (b *bench) painted(ctx, tab context.Context, s *server) ([]Figure, error) {
	wait := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	var figures []Figure
	for _, page := range []struct {
		name, path string
		slower     float64
		goal       time.Duration
	}{
		{"Jobs in Chromium", "/jobs", 1, paintGoal}, {"Overview in Chromium", "/", 1, paintGoal},
		{fmt.Sprintf("Jobs in Chromium, %d times slower", slowness), "/jobs", slowness, slowGoal},
	} {
		if err := chromedp.Run(tab, emulation.SetCPUThrottlingRate(page.slower)); err != nil {
			return nil, err
		}
		var took lateness
		for range b.scaled(paints, 2) {
			var ms float64
			if err := chromedp.Run(tab, chromedp.Navigate(s.url+page.path), chromedp.Evaluate(largestPaint, &ms, wait)); err != nil {
				return nil, fmt.Errorf("open %s: %w", page.name, err)
			}
			took = append(took, time.Duration(ms*1e6))
		}
		took.sort()
		figures = append(figures, atMost("largest paint of "+page.name+", p95", took.quantile(.95), page.goal).beside("p50 "+times(took.quantile(.5))))
	}
	if err := chromedp.Run(tab, emulation.SetCPUThrottlingRate(1)); err != nil {
		return nil, err
	}
	shown, err := b.shown(ctx, tab, s)
	return append(figures, shown), err
}

// shown measures how long after their end runs are shown on an open page.
func (b *bench) shown(ctx context.Context, tab context.Context, s *server) (Figure, error) {
	document, err := client.DocumentOf(job.Document{Job: &job.Job{Namespace: "bench", Name: "ends", Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}})
	if err != nil {
		return Figure{}, err
	}
	if _, err := s.Apply(ctx, client.Apply{Documents: []client.Document{document}}); err != nil {
		return Figure{}, err
	}
	var live bool
	if err := chromedp.Run(tab, chromedp.Navigate(s.url+"/runs"), chromedp.Poll(`document.querySelector("[data-live-text]").textContent === document.querySelector("[data-live-text]").dataset.liveText`, &live, chromedp.WithPollingTimeout(patience))); err != nil {
		return Figure{}, fmt.Errorf("follow runs in Chromium: %w", err)
	}
	var took lateness
	for range b.scaled(ends, 1) {
		made, err := s.RunJob(ctx, "bench", "ends", client.RunRequest{}, "")
		if err != nil {
			return Figure{}, err
		}
		var at float64
		wait := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
		used := chromedp.Evaluate(`dispatchEvent(new Event("pointermove"))`, nil) // an unused page reads more rarely
		if err := chromedp.Run(tab, used, chromedp.Evaluate(fmt.Sprintf(whenShown, made.ID), &at, wait)); err != nil {
			return Figure{}, fmt.Errorf("wait for the end of a run in Chromium: %w", err)
		}
		ended, err := s.Client.Run(ctx, made.ID)
		if err != nil {
			return Figure{}, err
		}
		took = append(took, time.UnixMilli(int64(at)).Sub(ended.Ended))
	}
	took.sort()
	return atMost("the end of a run, until it is on the open page of runs, p95", took.quantile(.95), shownGoal).beside("p50 " + times(took.quantile(.5))), nil
}

// The goals of an open page that no one uses, each minute, and how long it is watched once it counts as unused.
const (
	unusedRequests = 6
	unusedKB       = 60
	unusedAfter    = 65 * time.Second
	unusedFor      = 2 * time.Minute
)

// unused measures what open pages read. The stream of events, which all tabs share, is not among it.
func (b *bench) unused(ctx, tab context.Context, s *server, when string) ([]Figure, error) {
	type counts struct {
		mu              sync.Mutex
		requests, bytes float64
		watched         bool
	}
	after, during := unusedAfter, unusedFor
	if b.Quick {
		after, during = 100*time.Millisecond, time.Second
	}
	pages := []uiPage{{"Overview", "/"}, {"Jobs", "/jobs"}, {"Runs", "/runs"}, {"Timeline", "/timeline"}}
	seen := make([]counts, len(pages))
	for i, page := range pages {
		open, end := chromedp.NewContext(tab)
		defer end()
		chromedp.ListenTarget(open, func(event any) {
			c := &seen[i]
			c.mu.Lock()
			defer c.mu.Unlock()
			switch e := event.(type) {
			case *network.EventRequestWillBeSent:
				if c.watched {
					c.requests++
				}
			case *network.EventLoadingFinished:
				if c.watched {
					c.bytes += e.EncodedDataLength
				}
			}
		})
		// A tab behind another one reads nothing.
		if err := chromedp.Run(open, network.Enable(), emulation.SetFocusEmulationEnabled(true), chromedp.Navigate(s.url+page.path), chromedp.WaitReady("nav.side", chromedp.ByQuery)); err != nil {
			return nil, fmt.Errorf("open %s in Chromium: %w", page.name, err)
		}
	}
	if err := sleep(ctx, after); err != nil {
		return nil, err
	}
	for i := range seen {
		seen[i].mu.Lock()
		seen[i].watched = true
		seen[i].mu.Unlock()
	}
	if err := sleep(ctx, during); err != nil {
		return nil, err
	}
	var figures []Figure
	for i, page := range pages {
		seen[i].mu.Lock()
		requests, kB := seen[i].requests/during.Minutes(), seen[i].bytes/1000/during.Minutes()
		seen[i].mu.Unlock()
		f := below(fmt.Sprintf("%s open and unused %s, a minute", page.name, when), kB, unusedKB, 1, " kB").beside(fmt.Sprintf("%.1f requests", requests))
		if when == "without changes" {
			f = below(fmt.Sprintf("%s open and unused %s, a minute", page.name, when), requests, unusedRequests, 1, " requests").beside(fmt.Sprintf("%.1f kB", kB))
		}
		figures = append(figures, f)
	}
	return figures, nil
}
