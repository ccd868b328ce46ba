// Package httpexec runs attempts that are HTTP requests.
//
// A request identifies its run, so that the server can make the work idempotent: Belfry-Run and
// Idempotency-Key are the id of the run, which is the same for all its attempts, Belfry-Attempt is
// the number of the attempt, Belfry-Scheduled the scheduled time of the run, Belfry-Job the
// namespace and name of the job, Belfry-Shard and Belfry-Shards the shard of a split run.
//
// A guard restricts the addresses that a job may call, and checks every connection, redirects
// included; see [Config]. A redirect to another host carries no header of the job that could be
// secret. Reasons and output contain no request headers, and no user, password or query of a URL.
package httpexec

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/sys/egress"
	"github.com/belfry-cron/belfry/job"
)

const (
	// matchMax is the length of the body that match searches: more than a person reads, and
	// small enough to hold in memory for each run.
	matchMax = 1 << 20

	bodyMaxDefault = 1 << 30

	// reasonMax is the length at which foreign texts are cut.
	reasonMax = 500

	redirectsDefault = 10
)

// Config configures an [Executor].
type Config struct {
	// Version of this program, for the header User-Agent.
	// Default: unknown.
	Version string

	// Allow and Deny open and close ranges of addresses. The longest matching prefix
	// decides; a prefix in both is closed. Other addresses are open, except the targets of
	// attackers: loopback, link-local and multicast addresses, the metadata services of
	// clouds, carrier-grade NAT (100.64.0.0/10), and IPv6 addresses that embed an IPv4
	// address. Private networks are open.
	Allow, Deny []netip.Prefix
	// Loopback permits loopback addresses that Deny does not include, for a node whose jobs all
	// come from its own machine.
	Loopback bool

	// Proxy returns the proxy for a request, or nil for none; [http.ProxyFromEnvironment]
	// uses the proxies of the environment. A proxy is trusted: it resolves names, and
	// only literal addresses in URLs are still checked here. Default: no proxy, since the
	// environment of a node should not redirect the requests of all its jobs.
	Proxy func(*http.Request) (*url.URL, error)

	// TLSDirs are the directories, by absolute path, in which run.http.tls of a job
	// may name files. They are read with the rights of the node. Default: none.
	TLSDirs []string

	// CallbackURL is the address at which services report results to this cluster:
	// run.http.callback needs it. Default: none.
	CallbackURL string

	// BodyMax bounds a response, in bytes, so that an endless one ends. All of it is read, since
	// the work may last as long; the receiver of the output decides how much is stored. Default: 1
	// GiB.
	BodyMax int64
}

// Executor runs requests. It keeps connections open for later runs, for some
// seconds and in bounded numbers.
type Executor struct {
	agent   string
	bodyMax int64
	proxy   func(*http.Request) (*url.URL, error)
	pool    atomic.Pointer[pool]

	shortageRest time.Duration
}

var _ executor.Executor = (*Executor)(nil)

// New returns an executor, which the caller closes.
func New(config Config) (*Executor, error) {
	e := &Executor{
		agent:        "belfry/" + cmp.Or(config.Version, "unknown"),
		bodyMax:      cmp.Or(config.BodyMax, bodyMaxDefault),
		proxy:        config.Proxy,
		shortageRest: shortageRest,
	}
	if err := e.Restrict(config); err != nil {
		return nil, fmt.Errorf("make http executor: %w", err)
	}
	return e, nil
}

// Restrict replaces Allow, Deny, Loopback, TLSDirs and CallbackURL for later attempts. It must not
// be called concurrently with itself or with Close.
func (e *Executor) Restrict(config Config) error {
	g, err := egress.New(egress.Config{Allow: config.Allow, Deny: config.Deny, Loopback: config.Loopback})
	if err != nil {
		return err
	}
	f, err := newFiles(config.TLSDirs)
	if err != nil {
		return err
	}
	// Connections of the old pool may lead to addresses that are closed now.
	if old := e.pool.Swap(&pool{guard: g, files: f, proxy: e.proxy, callback: config.CallbackURL}); old != nil {
		old.close()
	}
	return nil
}

// Control refuses connections to closed addresses, for the net.Dialer.Control of other
// code that calls user-supplied addresses.
func (e *Executor) Control(network, address string, c syscall.RawConn) error {
	return e.pool.Load().guard.Control(network, address, c)
}

// Close closes idle connections. No attempt may start afterwards.
func (e *Executor) Close() { e.pool.Load().close() }

// Run sends the request of the job and reads the answer, which becomes the output: status, some
// headers and the body. It succeeds if the status is expected and the body matches. When ctx ends,
// it closes the connection at once: HTTP has no graceful end, and the server may continue.
func (e *Executor) Run(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
	spec, err := a.Job.Expand(a.Data)
	if err != nil {
		return failed(job.Text(err.Error()))
	}
	if spec.HTTP == nil {
		return failed(reason.NoRequest.Of())
	}
	h := spec.HTTP
	var sent atomic.Bool
	request, err := e.request(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}), h, a)
	if err != nil {
		return failed(job.Text(err.Error()))
	}
	route, err := e.pool.Load().route(ctx, request.URL, h.TLS)
	switch {
	case err != nil && ctx.Err() != nil:
		return endedBefore(ctx)
	case err != nil && isShortage(err):
		return e.short(ctx, reason.NoRoom.Of(reason.Words(err.Error())))
	case err != nil:
		return failed(job.Text(err.Error()))
	}
	client := http.Client{
		Transport:     route,
		CheckRedirect: redirectPolicy(h, out.Stderr),
	}
	if ctx.Err() != nil {
		return endedBefore(ctx)
	}
	if h.Callback {
		return e.handOver(ctx, &client, request, h, a, out)
	}
	if err := a.Start(); err != nil {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(err.Error()), Unstarted: true}
	}
	response, err := client.Do(request)
	if err != nil {
		what := described(request, err)
		switch {
		case ctx.Err() != nil:
			outcome, why := executor.ByCause(ctx)
			return silent(outcome, reason.NotAnswered.Of(why, what))
		case isShortage(err) && !sent.Load():
			return e.short(ctx, reason.RequestFailed.Of(what, reason.Words(inWords(err))))
		}
		return failed(reason.RequestFailed.Of(what, reason.Words(inWords(err))))
	}
	return e.judge(ctx, response, h, a, out)
}

// judge reads an answer, and decides by it. The cause of a failure is the status with the first
// line of the body.
func (e *Executor) judge(ctx context.Context, response *http.Response, h *job.HTTP, a executor.Attempt, out executor.Output) executor.Result {
	what := response.Request.Method + " " + place(response.Request.URL)
	defer response.Body.Close()
	writeHead(out.Stdout, response)
	body := &body{out: out.Stdout, pattern: cmp.Or(h.Match, successMatch(a.Job)), json: h.JSON, left: e.bodyMax, keep: a.WantsResult}
	var err error
	if response.StatusCode != http.StatusSwitchingProtocols { // its body is the connection
		_, err = io.Copy(body, response.Body)
	}
	var r executor.Result
	switch {
	case ctx.Err() != nil && err != nil:
		outcome, why := executor.ByCause(ctx)
		r = executor.Result{Outcome: outcome, Reason: reason.PartlyAnswered.Of(why, what)}
	case errors.Is(err, errBodyTooLong):
		r = failed(reason.AnswerTooLong.Of(what, int(e.bodyMax)))
	case err != nil:
		r = failed(reason.AnswerBroken.Of(what, int(body.read), reason.Words(inWords(err))))
	default:
		r = judged(response, h, body)
	}
	r.HTTPStatus = response.StatusCode
	if r.Outcome != job.OutcomeSucceeded {
		r.Cause = statusText(r.HTTPStatus)
		if line := reason.FirstLine(withoutTags(string(body.begin))); line != "" {
			r.Cause += ": " + line
		}
	}
	return r
}

// tag is markup of a page for browsers, which does not explain a failure.
var tag = regexp.MustCompile(`(?s)<!--.*?-->|<(style|script)\b.*?</(style|script)>|<[!/?a-zA-Z][^>]*>?`)

// withoutTags returns the text of a page for browsers, and other answers as they are.
func withoutTags(body string) string {
	if !strings.HasPrefix(strings.TrimSpace(body), "<") {
		return body
	}
	return html.UnescapeString(tag.ReplaceAllString(body, ""))
}

// judged decides by an answer that was read.
func judged(response *http.Response, h *job.HTTP, b *body) executor.Result {
	status := response.StatusCode
	if !expected(status, h.Expect) {
		r := failed(reason.WrongStatus.Of(statusText(status), h.Expect))
		if isRedirect(status) && limitOf(h.Redirects) == 0 {
			r.Reason = reason.NoRedirects.Of(r.Reason)
		}
		return r
	}
	var why job.Reason
	if b.pattern != "" {
		why = unmatched(b.text, b.cut, b.pattern)
	}
	if why.IsZero() && len(b.json) > 0 {
		why = unmatchedJSON(b.text, b.cut, b.json)
	}
	if !why.IsZero() {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: why}
	}
	if b.keep {
		return withValue(response, b)
	}
	return executor.Result{Outcome: job.OutcomeSucceeded}
}

// withValue returns a success with the response as its result, if that is JSON.
func withValue(response *http.Response, b *body) executor.Result {
	r := executor.Result{Outcome: job.OutcomeSucceeded}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
	switch {
	case !isJSON && !json.Valid(b.text), len(bytes.TrimSpace(b.text)) == 0:
	case b.read > job.ResultMax:
		if isJSON {
			r.Outcome, r.Reason = job.OutcomeFailed, reason.ValueTooLong.Of(int(b.read), job.ResultMax)
		}
	case !json.Valid(b.text):
		r.Outcome, r.Reason = job.OutcomeFailed, reason.ValueNotJSON.Of()
	default:
		r.Value = bytes.TrimSpace(b.text)
	}
	return r
}

func failed(why job.Reason) executor.Result {
	return silent(job.OutcomeFailed, why.Map(shorten))
}

// silent is the end of an attempt without an answer of its service: the reason is its cause, and not
// the output, which may have redirects.
func silent(outcome job.Outcome, why job.Reason) executor.Result {
	return executor.Result{Outcome: outcome, Reason: why, Cause: why.String()}
}

// endedBefore is the result of an attempt whose context ended before anything was sent. After a
// cancel or a timeout, no other node may run it.
func endedBefore(ctx context.Context) executor.Result {
	outcome, why := executor.ByCause(ctx)
	cause := context.Cause(ctx)
	final := errors.Is(cause, executor.ErrCancelled) || errors.Is(cause, executor.ErrTimeout)
	return executor.Result{Outcome: outcome, Reason: reason.BeforeSent.Of(why), Unstarted: !final}
}

// successMatch returns the pattern in the job's policy, which validation allows only where the
// request has none.
func successMatch(j *job.Job) string {
	if s := j.Policy.Success; s != nil {
		return s.Match
	}
	return ""
}

func limitOf(redirects *int) int {
	if redirects == nil {
		return redirectsDefault
	}
	return *redirects
}

// idempotencyKey has a spelling that the transport does not recognize: see request.
const idempotencyKey = "idempotency-key"

// request makes the request of an attempt.
func (e *Executor) request(ctx context.Context, h *job.HTTP, a executor.Attempt) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, h.Method, h.URL, strings.NewReader(h.Body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", withoutURL(err))
	}
	r.Header.Set("User-Agent", e.agent)
	if h.Body != "" {
		switch a.Job.Run.HTTP.BodyKind() {
		case job.TemplateJSON:
			r.Header.Set("Content-Type", "application/json")
		case job.TemplateXML:
			r.Header.Set("Content-Type", "application/xml")
		}
	}
	// With the canonical spelling of this header, the transport would repeat any request, even a
	// POST, after a connection broke before the response. Servers may ignore the header, so nothing
	// may be repeated. On the wire all spellings are equal.
	r.Header[idempotencyKey] = []string{a.Run.ID.String()}
	for name, value := range a.Data.Trace.Headers() {
		r.Header.Set(name, value)
	}
	for name, value := range h.Headers {
		switch {
		case strings.EqualFold(name, "Host"):
			r.Host = value
		case strings.EqualFold(name, idempotencyKey):
			r.Header[idempotencyKey] = []string{value}
		default:
			r.Header.Set(name, value)
		}
	}
	r.Header.Set("Belfry-Job", a.Job.FullName())
	r.Header.Set("Belfry-Run", a.Run.ID.String())
	r.Header.Set("Belfry-Attempt", fmt.Sprint(a.Number))
	if !a.Run.Scheduled.IsZero() {
		r.Header.Set("Belfry-Scheduled", a.Run.Scheduled.UTC().Format(time.RFC3339Nano))
	}
	if a.Run.Shards > 0 {
		r.Header.Set("Belfry-Shard", fmt.Sprint(a.Run.Shard))
		r.Header.Set("Belfry-Shards", fmt.Sprint(a.Run.Shards))
	}
	return r, nil
}

// shown are the response headers that help to understand it and never have a secret.
var shown = []string{"Content-Type", "Content-Length", "Retry-After", "Server", "X-Request-Id"}

// writeHead writes the status line and some headers of an answer.
func writeHead(w io.Writer, r *http.Response) {
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s\n", r.Proto, statusText(r.StatusCode))
	for _, name := range shown {
		if value := r.Header.Get(name); value != "" {
			fmt.Fprintf(&head, "%s: %s\n", name, value)
		}
	}
	if to, err := r.Location(); err == nil {
		fmt.Fprintf(&head, "Location: %s\n", place(to))
	}
	head.WriteString("\n")
	io.WriteString(w, head.String())
}

// body copies the body of a response to the output, and keeps its beginning if something is
// expected of it.
type body struct {
	out     io.Writer
	pattern string
	json    map[string]string // expected values by path
	left    int64             // bytes that it may still have
	keep    bool              // its JSON is the result

	read int64
	text []byte
	cut  bool // text is incomplete
	// begin has the first line of the body, for the cause of a failure.
	begin []byte
}

var errBodyTooLong = errors.New("the answer is too long")

func (b *body) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, errBodyTooLong
	}
	b.left -= int64(len(p))
	b.read += int64(len(p))
	b.out.Write(p) // it never fails
	b.begin = append(b.begin, p[:min(len(p), reason.CauseLook-len(b.begin))]...)
	if b.pattern != "" || len(b.json) > 0 || b.keep {
		n := min(len(p), matchMax-len(b.text))
		b.text = append(b.text, p[:n]...)
		b.cut = b.cut || n < len(p)
	}
	return len(p), nil
}

func isRedirect(status int) bool {
	return slices.Contains([]int{301, 302, 303, 307, 308}, status)
}

// harmless are the headers that follow a redirect to another host. All other headers of a job may
// be secret, whatever their name, and so may the query in Referer. An Idempotency-Key follows if
// it is the run's.
var harmless = []string{"Accept", "Accept-Language", "User-Agent",
	"Belfry-Job", "Belfry-Run", "Belfry-Attempt", "Belfry-Scheduled", "Belfry-Shard", "Belfry-Shards"}

// errRedirects reports too many redirects.
type errRedirects int

func (n errRedirects) Error() string {
	return fmt.Sprintf("there are more than %d redirects", int(n))
}

// redirectPolicy follows redirects up to the limit of the request, and logs them. 0 treats
// the first answer as final.
func redirectPolicy(h *job.HTTP, log io.Writer) func(*http.Request, []*http.Request) error {
	limit := limitOf(h.Redirects)
	headers := harmless
	if !slices.ContainsFunc(slices.Collect(maps.Keys(h.Headers)), func(name string) bool { return strings.EqualFold(name, idempotencyKey) }) {
		headers = append(slices.Clone(harmless), idempotencyKey)
	}
	elsewhere := false
	return func(next *http.Request, via []*http.Request) error {
		if limit == 0 {
			return http.ErrUseLastResponse
		}
		if len(via) > limit {
			return errRedirects(limit)
		}
		elsewhere = elsewhere || !sameParty(via[len(via)-1].URL, next.URL)
		without := ""
		if elsewhere {
			for name := range next.Header {
				if !slices.Contains(headers, name) {
					delete(next.Header, name)
				}
			}
			// 307 and 308 would send the body to the other host.
			if next.Body != nil {
				next.Body.Close()
				next.Body, next.GetBody, next.ContentLength = nil, nil, 0
				without = ", another host, without the body"
			}
		}
		fmt.Fprintf(log, "%s: redirected to %s%s\n", statusText(next.Response.StatusCode), place(next.URL), without)
		return nil
	}
}

// sameParty reports whether a redirect may receive the job's secrets: it has the same host,
// scheme and port, or upgrades to TLS.
func sameParty(from, to *url.URL) bool {
	if !strings.EqualFold(from.Hostname(), to.Hostname()) {
		return false
	}
	return from.Scheme == to.Scheme && port(from) == port(to) ||
		from.Scheme == "http" && port(from) == "80" && to.Scheme == "https" && port(to) == "443"
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}
