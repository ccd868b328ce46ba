package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Config configures a [Client].
type Config struct {
	// URL is the address of the server, such as http://127.0.0.1:8420.
	URL string
	// Token authenticates the caller. It is sent only to that server: the client follows
	// no redirects.
	Token string
	// HTTP makes the connections. Default: a client with the timeouts below. Its setting
	// for redirects is ignored: none are followed.
	HTTP *http.Client
	// UserAgent names the calling program. Default: belfry-client.
	UserAgent string
}

const (
	// answerWithin is the timeout for the beginning of a response. The server's own limit
	// for a request is 30 s.
	answerWithin = 40 * time.Second
	// answerMax bounds a response: enough for a page of large documents, and safe for
	// memory if the address is not a Belfry server.
	answerMax = 64 << 20
)

// Client calls a server. Its methods may be called from many goroutines.
type Client struct {
	base  *url.URL
	token string
	agent string
	http  http.Client
}

// New returns a client. It connects at the first call.
func New(c Config) (*Client, error) {
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		// localhost:8420 parses as the scheme localhost.
		if with, err := url.Parse("http://" + c.URL); err == nil && with.Host != "" && !strings.Contains(c.URL, "://") {
			if with.Hostname() == "" { // :8420
				return nil, fmt.Errorf("%q is not the address of a server: did you mean http://127.0.0.1%s?", c.URL, c.URL)
			}
			return nil, fmt.Errorf("%q is not the address of a server: did you mean http://%s or https://%s?", c.URL, c.URL, c.URL)
		}
		return nil, fmt.Errorf("%q is not the address of a server, such as http://127.0.0.1:8420", c.URL)
	}
	if base.User != nil || base.RawQuery != "" || base.ForceQuery || strings.Contains(c.URL, "#") {
		return nil, fmt.Errorf("the address of a server has no user, query or fragment: %q", base.Redacted())
	}
	// Files and variables often end with a line break.
	client := &Client{base: base, token: strings.TrimSpace(c.Token), agent: c.UserAgent}
	if !fitsHeader(client.token) {
		return nil, errors.New("the token has an invalid character")
	}
	if client.agent == "" {
		client.agent = "belfry-client"
	}
	if c.HTTP != nil {
		client.http = *c.HTTP
	} else {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.ResponseHeaderTimeout = answerWithin
		client.http.Transport = transport
	}
	// A redirect could send the token to another server.
	client.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, nil
}

// URL returns the address of the server.
func (c *Client) URL() string { return c.base.String() }

// call is a request and its expected answer.
type call struct {
	method, path string
	query        url.Values
	header       map[string]string
	body         any // encoded as JSON unless it is bytes
	answer       any // decoded from JSON unless it is nil
}

// do makes a call.
func (c *Client) do(ctx context.Context, call call) error {
	response, err := c.send(ctx, call, "application/json")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, answerMax+1))
	if err != nil {
		return c.unreachable(err)
	}
	if len(data) > answerMax {
		return strange(c.URL(), response.StatusCode, fmt.Sprintf("it has more than %d MiB", answerMax>>20))
	}
	if call.answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, call.answer); err != nil {
		return strange(c.URL(), response.StatusCode, err.Error())
	}
	return nil
}

// send makes a call and returns its successful response. The caller closes the body.
func (c *Client) send(ctx context.Context, call call, accept string) (*http.Response, error) {
	var body io.Reader
	if call.body != nil {
		data, written := call.body.([]byte)
		if !written {
			var err error
			if data, err = json.Marshal(call.body); err != nil {
				return nil, fmt.Errorf("write the request: %w", err)
			}
		}
		body = bytes.NewReader(data)
	}
	target := strings.TrimSuffix(c.base.String(), "/") + "/api/v1" + call.path
	if len(call.query) > 0 {
		target += "?" + call.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, call.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", c.agent)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	for name, value := range call.header {
		if !fitsHeader(value) {
			return nil, fmt.Errorf("%s: %q has a character that no header may have", name, value)
		}
		request.Header.Set(name, value)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, c.problem(response)
}

// fitsHeader reports whether a value can be sent in a header, so that the error blames
// the caller and not the server.
func fitsHeader(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// unreachable returns the error of a call that received no answer.
func (c *Client) unreachable(err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return fmt.Errorf("%w at %s: %w", ErrUnreachable, c.URL(), err)
}

// problem decodes the error in a server's answer.
func (c *Client) problem(response *http.Response) error {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	data, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err != nil {
		return c.unreachable(err)
	}
	var p Problem
	if kind != "application/problem+json" || json.Unmarshal(data, &p) != nil || p.Type == "" {
		const shown = 200
		text := strings.Join(strings.Fields(string(data)), " ")
		return strange(c.URL(), response.StatusCode, fmt.Sprintf("%q", text[:min(len(text), shown)]))
	}
	return &p
}

// ifMatch is the header that restricts a change to a version. 0 is any existing version.
func ifMatch(version int64) map[string]string {
	if version == 0 {
		return map[string]string{"If-Match": "*"}
	}
	return map[string]string{"If-Match": strconv.Quote(strconv.FormatInt(version, 10))}
}

// onceBy returns the idempotency header: requests with the same key create one run; "" is
// no header.
func onceBy(key string) map[string]string {
	if key == "" {
		return nil
	}
	return map[string]string{"Idempotency-Key": key}
}

// jobPath returns the path of a job, or a path below it.
func jobPath(namespace, name string, below ...string) string {
	path := pathOf("jobs", namespace, name)
	for _, b := range below {
		path += "/" + b
	}
	return path
}

// pathOf returns the path of a document of a kind.
func pathOf(kinds, namespace, name string) string {
	return "/" + kinds + "/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// JobQuery selects jobs. All set fields must match.
type JobQuery struct {
	Namespace string
	Labels    map[string]string
	Text      string // in the name, title or description
	State     job.JobState
	Failing   bool      // only active jobs whose last run failed, at most the 50 that failed last
	NeverRan  bool      // only jobs without a finished run in history
	DueBefore time.Time // only jobs due before it; sorted as ByNext, unless Failing is set
	Work      job.Work  // their kind of work, such as job.WorkFlow
	Sort      JobOrder
	PageSize  int // 0 for the server's default
	PageToken string
	Recent    int // how many of the last runs are shown per job, at most 50
}

// JobOrder is the order of a list of jobs.
type JobOrder string

// The orders of a list of jobs.
const (
	ByName JobOrder = "name" // the default
	// ByNext is the order of the next due times, with jobs without one at the end. A page
	// may have fewer jobs than requested and still a token for the next page.
	ByNext JobOrder = "next"
	// ByFailure begins with the jobs that failed last, among the last 2000 failed runs, followed by
	// the other jobs by name.
	ByFailure JobOrder = "failure"
)

// Jobs returns a page of jobs.
func (c *Client) Jobs(ctx context.Context, q JobQuery) (JobPage, error) {
	query := values("namespace", q.Namespace, "text", q.Text, "state", string(q.State), "work", string(q.Work), "sort", string(q.Sort), "page_token", q.PageToken)
	if q.Failing {
		query.Set("failing", "true")
	}
	if q.NeverRan {
		query.Set("never_ran", "true")
	}
	if !q.DueBefore.IsZero() {
		query.Set("due_before", q.DueBefore.Format(time.RFC3339Nano))
	}
	for key, value := range q.Labels {
		query.Add("label", key+"="+value)
	}
	setNumber(query, "page_size", q.PageSize)
	setNumber(query, "recent", q.Recent)
	var page JobPage
	return page, c.do(ctx, call{method: http.MethodGet, path: "/jobs", query: query, answer: &page})
}

// Job returns a job. With filled its defaults are filled in.
func (c *Client) Job(ctx context.Context, namespace, name string, filled bool) (Document, error) {
	var d Document
	query := url.Values{}
	if filled {
		query.Set("filled", "true")
	}
	return d, c.do(ctx, call{method: http.MethodGet, path: jobPath(namespace, name), query: query, answer: &d})
}

// JobStatistics returns statistics of the last runs of a job, also by days of a time zone; ""
// is UTC.
func (c *Client) JobStatistics(ctx context.Context, namespace, name, zone string) (JobStatistics, error) {
	var answer JobStatistics
	return answer, c.do(ctx, call{method: http.MethodGet, path: jobPath(namespace, name) + "/statistics", query: values("timezone", zone), answer: &answer})
}

// Mark snoozes, wakes, takes or releases a problem, or writes a note at it, by the verb: snooze, wake, take,
// release or note. It returns the problems of the job, the node or the channels.
func (c *Client) Mark(ctx context.Context, verb string, r AttentionRequest) (Page[Attention], error) {
	var answer Page[Attention]
	return answer, c.do(ctx, call{method: http.MethodPost, path: "/attention:" + verb, body: r, answer: &answer})
}

// Stats counts finished runs, in buckets of time.
func (c *Client) Stats(ctx context.Context, q StatsQuery) (Stats, error) {
	query := values("namespace", q.Namespace, "job", q.Job)
	setSpan(query, q.From, q.To, q.Step)
	var answer Stats
	return answer, c.do(ctx, call{method: http.MethodGet, path: "/stats", query: query, answer: &answer})
}

// Lanes counts finished runs by job, in buckets of time.
func (c *Client) Lanes(ctx context.Context, q LanesQuery) (Lanes, error) {
	query := values("namespace", q.Namespace, "q", q.Text, "page_token", q.PageToken)
	for key, value := range q.Labels {
		query.Add("label", key+"="+value)
	}
	if q.PageSize > 0 {
		query.Set("page_size", strconv.Itoa(q.PageSize))
	}
	setSpan(query, q.From, q.To, q.Step)
	var answer Lanes
	return answer, c.do(ctx, call{method: http.MethodGet, path: "/lanes", query: query, answer: &answer})
}

// Load counts future starts by schedules, in steps of time.
func (c *Client) Load(ctx context.Context, q LoadQuery) (Load, error) {
	query := values("namespace", q.Namespace)
	for key, value := range q.Labels {
		query.Add("label", key+"="+value)
	}
	setSpan(query, q.From, q.To, q.Step)
	var answer Load
	return answer, c.do(ctx, call{method: http.MethodGet, path: "/load", query: query, answer: &answer})
}

// Openings returns when maintenance windows that concern a namespace, or any, are open within a
// time span.
func (c *Client) Openings(ctx context.Context, namespace string, from, to time.Time) (Page[Opening], error) {
	query := values("namespace", namespace)
	setSpan(query, from, to, 0)
	var page Page[Opening]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/load/windows", query: query, answer: &page})
}

// DueJobs returns the jobs that fall due within a time span, each once, by due time: at
// most count; 0 is the server's default.
func (c *Client) DueJobs(ctx context.Context, namespace string, from, to time.Time, most int) (Page[DueJob], error) {
	query := values("namespace", namespace)
	setSpan(query, from, to, 0)
	setNumber(query, "page_size", most)
	var page Page[DueJob]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/load/jobs", query: query, answer: &page})
}

// SpreadJobs is [Client.DueJobs] with the delay that a spread would give to the starts of each job.
func (c *Client) SpreadJobs(ctx context.Context, namespace string, from, to time.Time, spread job.Duration, most int) (Page[DueJob], error) {
	query := values("namespace", namespace, "spread", spread.String())
	setSpan(query, from, to, 0)
	setNumber(query, "page_size", most)
	var page Page[DueJob]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/load/jobs", query: query, answer: &page})
}

// Check validates and explains a document, and saves nothing.
func (c *Client) Check(ctx context.Context, ask Check) (Checked, error) {
	var answer Checked
	return answer, c.do(ctx, call{method: http.MethodPost, path: "/jobs:check", body: ask, answer: &answer})
}

// Bulk changes all jobs that are selected.
func (c *Client) Bulk(ctx context.Context, ask Bulk) (BulkResult, error) {
	var answer BulkResult
	return answer, c.do(ctx, call{method: http.MethodPost, path: "/jobs:bulk", body: ask, answer: &answer})
}

// OutputLines returns lines of the output of an attempt.
func (c *Client) OutputLines(ctx context.Context, run job.ID, q LinesQuery) (OutputLines, error) {
	return c.lines(ctx, run, "/lines", q)
}

// SearchOutput returns the lines of the output of an attempt that contain a text.
func (c *Client) SearchOutput(ctx context.Context, run job.ID, q LinesQuery) (OutputLines, error) {
	return c.lines(ctx, run, "/lines:search", q)
}

func (c *Client) lines(ctx context.Context, run job.ID, path string, q LinesQuery) (OutputLines, error) {
	query := values("text", q.Text, "stream", q.Stream)
	if q.Errors {
		query.Set("errors", "true")
	}
	setNumber(query, "attempt", q.Attempt)
	setNumber(query, "from", q.From)
	setNumber(query, "count", q.Count)
	var answer OutputLines
	return answer, c.do(ctx, call{method: http.MethodGet, path: "/runs/" + run.String() + path, query: query, answer: &answer})
}

// CompareOutputs compares the output of a run with another one's.
func (c *Client) CompareOutputs(ctx context.Context, run job.ID, q CompareQuery) (ComparedOutputs, error) {
	query := values("stream", q.Stream)
	if !q.With.IsZero() {
		query.Set("with", q.With.String())
	}
	setNumber(query, "attempt", q.Attempt)
	var answer ComparedOutputs
	return answer, c.do(ctx, call{method: http.MethodGet, path: "/runs/" + run.String() + "/lines:compare", query: query, answer: &answer})
}

// CreateJob creates a new job.
func (c *Client) CreateJob(ctx context.Context, d Document) (Change, error) {
	var answer Change
	return answer, c.do(ctx, call{method: http.MethodPost, path: "/jobs", body: d, answer: &answer})
}

// PutJob replaces a version of a job; 0 is any.
func (c *Client) PutJob(ctx context.Context, namespace, name string, d Document, version int64) (Change, error) {
	var answer Change
	return answer, c.do(ctx, call{method: http.MethodPut, path: jobPath(namespace, name), header: ifMatch(version), body: d, answer: &answer})
}

// DeleteJob removes a version of a job, 0 for any, for a reason that the audit keeps, "" for none.
func (c *Client) DeleteJob(ctx context.Context, namespace, name string, version int64, reason string) (Change, error) {
	var answer Change
	return answer, c.do(ctx, call{method: http.MethodDelete, path: jobPath(namespace, name), query: values("reason", reason), header: ifMatch(version), answer: &answer})
}

// RestoreJob brings back a job that was deleted in the last hour.
func (c *Client) RestoreJob(ctx context.Context, namespace, name string) (Change, error) {
	var answer Change
	return answer, c.do(ctx, call{method: http.MethodPost, path: jobPath(namespace, name, "restore"), answer: &answer})
}

// Pause pauses a job.
func (c *Client) Pause(ctx context.Context, namespace, name string, r PauseRequest) (Change, error) {
	var answer Change
	return answer, c.do(ctx, call{method: http.MethodPost, path: jobPath(namespace, name, "pause"), body: r, answer: &answer})
}

// Resume ends the pause of a job.
func (c *Client) Resume(ctx context.Context, namespace, name string, r ResumeRequest) (Change, error) {
	var answer Change
	return answer, c.do(ctx, call{method: http.MethodPost, path: jobPath(namespace, name, "resume"), body: r, answer: &answer})
}

// RunJob runs a job now. Requests with the same idempotency key create one run in 24
// hours.
func (c *Client) RunJob(ctx context.Context, namespace, name string, r RunRequest, idempotencyKey string) (Run, error) {
	var run Run
	return run, c.do(ctx, call{method: http.MethodPost, path: jobPath(namespace, name, "run"), header: onceBy(idempotencyKey), body: r, answer: &run})
}

// Report reports external work, which Belfry does not start. Reports with the same non-empty key
// count as one.
func (c *Client) Report(ctx context.Context, namespace, name string, r Report, idempotencyKey string) (Reported, error) {
	var answer Reported
	return answer, c.do(ctx, call{method: http.MethodPost, path: jobPath(namespace, name, "report"), header: onceBy(idempotencyKey), body: r, answer: &answer})
}

// RotatePingKey replaces the ping key of a job.
func (c *Client) RotatePingKey(ctx context.Context, namespace, name string) (PingKey, error) {
	var answer PingKey
	return answer, c.do(ctx, call{method: http.MethodPost, path: jobPath(namespace, name, "ping-key"), answer: &answer})
}

// Backfill creates runs for past scheduled times. Requests with the same idempotency key,
// even "", create each run once in 24 hours.
func (c *Client) Backfill(ctx context.Context, namespace, name string, r BackfillRequest, idempotencyKey string) (Backfill, error) {
	var answer Backfill
	return answer, c.do(ctx, call{method: http.MethodPost, path: jobPath(namespace, name, "backfill"), header: onceBy(idempotencyKey), body: r, answer: &answer})
}

// CancelBackfill ends all backfill runs of a job.
func (c *Client) CancelBackfill(ctx context.Context, namespace, name string, r CancelRequest) (BackfillCancelled, error) {
	var answer BackfillCancelled
	return answer, c.do(ctx, call{method: http.MethodPost, path: jobPath(namespace, name, "backfill", "cancel"), body: r, answer: &answer})
}

// Followers returns a page of the jobs that runs of a job start.
func (c *Client) Followers(ctx context.Context, namespace, name string, pageSize int, pageToken string) (Page[Follower], error) {
	query := values("page_token", pageToken)
	setNumber(query, "page_size", pageSize)
	var page Page[Follower]
	return page, c.do(ctx, call{method: http.MethodGet, path: jobPath(namespace, name, "followers"), query: query, answer: &page})
}

// Revisions returns a page of the versions of a job, the latest first.
func (c *Client) Revisions(ctx context.Context, namespace, name string, pageSize int, pageToken string) (Page[Revision], error) {
	query := values("page_token", pageToken)
	setNumber(query, "page_size", pageSize)
	var page Page[Revision]
	return page, c.do(ctx, call{method: http.MethodGet, path: jobPath(namespace, name, "revisions"), query: query, answer: &page})
}

// Revision returns a version of a job and, if since is not 0, the differences from that
// version.
func (c *Client) Revision(ctx context.Context, namespace, name string, version, since int64) (Revision, error) {
	query := url.Values{}
	setNumber(query, "since", int(since))
	var r Revision
	return r, c.do(ctx, call{method: http.MethodGet, path: jobPath(namespace, name, "revisions", strconv.FormatInt(version, 10)), query: query, answer: &r})
}

// Rollback restores an earlier version of a job. The current version must match, unless it
// is 0.
func (c *Client) Rollback(ctx context.Context, namespace, name string, r RollbackRequest, version int64) (Change, error) {
	var answer Change
	return answer, c.do(ctx, call{method: http.MethodPost, path: jobPath(namespace, name, "rollback"), header: ifMatch(version), body: r, answer: &answer})
}

// Next returns the next occurrences of a job.
func (c *Client) Next(ctx context.Context, namespace, name string, count int) (Occurrences, error) {
	var next Occurrences
	query := url.Values{}
	setNumber(query, "count", count)
	return next, c.do(ctx, call{method: http.MethodGet, path: jobPath(namespace, name, "next"), query: query, answer: &next})
}

// PreviewQuery describes a schedule: an expression, or the whole schedule of a job.
type PreviewQuery struct {
	Expression  string
	Timezone    string // for the expression; "" for UTC
	Dialect     string // of the expression: default, vixie5, quartz
	ClockChange job.ClockChange
	Schedule    string // as in a document, in JSON
	Job         string // namespace/name: the job for the values of H and ~
	Lang        string // en, zh
	From        time.Time
	Count       int
}

// Preview explains a schedule and lists its next occurrences. Nothing is stored.
func (c *Client) Preview(ctx context.Context, q PreviewQuery) (Preview, error) {
	query := values("expr", q.Expression, "tz", q.Timezone, "dialect", q.Dialect, "dst", string(q.ClockChange), "schedule", q.Schedule, "job", q.Job, "lang", q.Lang)
	setTime(query, "from", q.From)
	setNumber(query, "n", q.Count)
	var p Preview
	return p, c.do(ctx, call{method: http.MethodGet, path: "/schedules:preview", query: query, answer: &p})
}

// Apply creates or updates jobs and other documents to match the given ones.
func (c *Client) Apply(ctx context.Context, a Apply) (Applied, error) {
	var answer Applied
	body, err := a.body()
	if err != nil {
		return answer, fmt.Errorf("write the request: %w", err)
	}
	return answer, c.do(ctx, call{method: http.MethodPost, path: "/jobs:apply", body: body, answer: &answer})
}

// RunQuery selects runs. All set fields must match.
type RunQuery struct {
	Namespace string
	Job       string // namespace/name
	States    []job.RunState
	Outcomes  []job.Outcome
	Reason    string // a code of docs/reasons.md, even within another reason; only finished runs
	// CauseFingerprint selects finished runs with failures of one kind, see [Failure].
	CauseFingerprint string
	Unmet            bool // only finished runs that did not meet the expectations of their job
	Kinds            []job.RunKind
	Node             string
	From, To         time.Time // of the end, or of the due time of unfinished runs
	Text             string    // in the name or reason; only ended runs; see TextWindow
	PageSize         int
	PageToken        string
}

// The time range of a text search, which has no index.
const (
	// TextWindow is the range before To, or before now, if From is not given.
	TextWindow = 7 * 24 * time.Hour
	// TextWindowMax is the longest range from From to To, or to now.
	TextWindowMax = 31 * 24 * time.Hour
)

// Runs returns a page of runs: planned and running ones by due time, then finished ones,
// the latest first. If few of many runs match, a page may have fewer than requested, even
// none, but still a token for the next page.
func (c *Client) Runs(ctx context.Context, q RunQuery) (Page[Run], error) {
	query := values("namespace", q.Namespace, "job", q.Job, "reason", q.Reason, "cause_fingerprint", q.CauseFingerprint, "text", q.Text, "page_token", q.PageToken)
	for _, s := range q.States {
		query.Add("state", string(s))
	}
	for _, o := range q.Outcomes {
		query.Add("outcome", string(o))
	}
	for _, k := range q.Kinds {
		query.Add("kind", string(k))
	}
	if q.Node != "" {
		query.Set("node", q.Node)
	}
	if q.Unmet {
		query.Set("unmet", "true")
	}
	setTime(query, "from", q.From)
	setTime(query, "to", q.To)
	setNumber(query, "page_size", q.PageSize)
	var page Page[Run]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/runs", query: query, answer: &page})
}

// Run returns a run with its attempts.
func (c *Client) Run(ctx context.Context, id job.ID) (Run, error) {
	var run Run
	return run, c.do(ctx, call{method: http.MethodGet, path: "/runs/" + id.String(), answer: &run})
}

// Cancel ends a run. A running run ends some time after the call returns.
func (c *Client) Cancel(ctx context.Context, id job.ID, r CancelRequest) (Run, error) {
	var run Run
	return run, c.do(ctx, call{method: http.MethodPost, path: "/runs/" + id.String() + "/cancel", body: r, answer: &run})
}

// Approve approves a waiting step of a flow: it succeeds.
func (c *Client) Approve(ctx context.Context, flow job.ID, step string, r AnswerRequest) (Run, error) {
	var run Run
	return run, c.do(ctx, call{method: http.MethodPost, path: "/runs/" + flow.String() + "/steps/" + url.PathEscape(step) + "/approve", body: r, answer: &run})
}

// Reject rejects a waiting step of a flow: it fails.
func (c *Client) Reject(ctx context.Context, flow job.ID, step string, r AnswerRequest) (Run, error) {
	var run Run
	return run, c.do(ctx, call{method: http.MethodPost, path: "/runs/" + flow.String() + "/steps/" + url.PathEscape(step) + "/reject", body: r, answer: &run})
}

// Signal sends a signal: the steps of the flow that wait for it succeed.
func (c *Client) Signal(ctx context.Context, flow job.ID, signal string, r SignalRequest) (Run, error) {
	var run Run
	return run, c.do(ctx, call{method: http.MethodPost, path: "/runs/" + flow.String() + "/signals/" + url.PathEscape(signal), body: r, answer: &run})
}

// Retry repeats a finished run: it creates a run with the same scheduled time and
// parameters.
func (c *Client) Retry(ctx context.Context, id job.ID, r RetryRequest, idempotencyKey string) (Run, error) {
	var run Run
	return run, c.do(ctx, call{method: http.MethodPost, path: "/runs/" + id.String() + "/retry", body: r, header: onceBy(idempotencyKey), answer: &run})
}

// RetryAll runs several ended runs again. Calls with the same key make one run of each.
func (c *Client) RetryAll(ctx context.Context, runs []job.ID, idempotencyKey string) (Retries, error) {
	var retries Retries
	return retries, c.do(ctx, call{method: http.MethodPost, path: "/runs:retry", body: RetriesRequest{Runs: runs}, header: onceBy(idempotencyKey), answer: &retries})
}

// Nodes returns all nodes by name.
func (c *Client) Nodes(ctx context.Context) (Page[Node], error) {
	var page Page[Node]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/nodes", answer: &page})
}

// RaiseNumbers makes the numbers of runs at XXL-JOB executors start at a given number or
// above. A repeated call only skips one more number.
func (c *Client) RaiseNumbers(ctx context.Context, from int64) (Number, error) {
	var n Number
	return n, c.do(ctx, call{method: http.MethodPost, path: "/xxl/numbers", body: NumberRequest{From: from}, answer: &n})
}

// AddPastRuns adds runs of an xxl-job-admin to the history. Repeated, it changes nothing.
func (c *Client) AddPastRuns(ctx context.Context, runs PastRuns) (PastRunsTaken, error) {
	var t PastRunsTaken
	return t, c.do(ctx, call{method: http.MethodPost, path: "/xxl/runs", body: runs, answer: &t})
}

// Executors returns the executors of XXL-JOB that are registered or listed, by group and address,
// and the groups that jobs name.
func (c *Client) Executors(ctx context.Context) (ExecutorPage, error) {
	var page ExecutorPage
	return page, c.do(ctx, call{method: http.MethodGet, path: "/xxl/executors", answer: &page})
}

// DrainNode stops a node from accepting runs; its claimed runs continue to their end. The
// drain belongs to the node's name, so it survives restarts, until UndrainNode.
func (c *Client) DrainNode(ctx context.Context, name string, r DrainRequest) (Node, error) {
	var n Node
	return n, c.do(ctx, call{method: http.MethodPost, path: "/nodes/" + url.PathEscape(name) + "/drain", body: r, answer: &n})
}

// UndrainNode lets a node accept runs again.
func (c *Client) UndrainNode(ctx context.Context, name string) (Node, error) {
	var n Node
	return n, c.do(ctx, call{method: http.MethodPost, path: "/nodes/" + url.PathEscape(name) + "/undrain", answer: &n})
}

// Calendars returns the calendars of a namespace, "" for all, by name.
func (c *Client) Calendars(ctx context.Context, namespace string) (Page[Document], error) {
	var page Page[Document]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/calendars", query: values("namespace", namespace), answer: &page})
}

// Pools returns the pools of a namespace, "" for all, by name.
func (c *Client) Pools(ctx context.Context, namespace string) (Page[Document], error) {
	var page Page[Document]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/pools", query: values("namespace", namespace), answer: &page})
}

// Calendar returns a calendar.
func (c *Client) Calendar(ctx context.Context, namespace, name string) (Document, error) {
	var d Document
	return d, c.do(ctx, call{method: http.MethodGet, path: pathOf("calendars", namespace, name), answer: &d})
}

// Pool returns a pool.
func (c *Client) Pool(ctx context.Context, namespace, name string) (Document, error) {
	var d Document
	return d, c.do(ctx, call{method: http.MethodGet, path: pathOf("pools", namespace, name), answer: &d})
}

// DeleteCalendar removes a version of a calendar; 0 is any. A calendar in use by a job
// cannot be removed.
func (c *Client) DeleteCalendar(ctx context.Context, namespace, name string, version int64) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathOf("calendars", namespace, name), header: ifMatch(version)})
}

// DeletePool removes a version of a pool; 0 is any. Jobs that name the pool then share one
// slot.
func (c *Client) DeletePool(ctx context.Context, namespace, name string, version int64) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathOf("pools", namespace, name), header: ifMatch(version)})
}

// Windows returns the maintenance windows of a namespace, "" for all, by name.
func (c *Client) Windows(ctx context.Context, namespace string) (Page[Document], error) {
	var page Page[Document]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/windows", query: values("namespace", namespace), answer: &page})
}

// Window returns a maintenance window.
func (c *Client) Window(ctx context.Context, namespace, name string) (Document, error) {
	var d Document
	return d, c.do(ctx, call{method: http.MethodGet, path: pathOf("windows", namespace, name), answer: &d})
}

// DeleteWindow removes a version of a maintenance window; 0 is any. The runs that it holds are due
// at once.
func (c *Client) DeleteWindow(ctx context.Context, namespace, name string, version int64) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathOf("windows", namespace, name), header: ifMatch(version)})
}

// Hooks returns the hooks of a namespace, "" for all, by name.
func (c *Client) Hooks(ctx context.Context, namespace string) (Page[Document], error) {
	var page Page[Document]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/hooks", query: values("namespace", namespace), answer: &page})
}

// Hook returns a hook.
func (c *Client) Hook(ctx context.Context, namespace, name string) (Document, error) {
	var d Document
	return d, c.do(ctx, call{method: http.MethodGet, path: pathOf("hooks", namespace, name), answer: &d})
}

// DeleteHook removes a version of a hook; 0 is any. Its address then starts nothing.
func (c *Client) DeleteHook(ctx context.Context, namespace, name string, version int64) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathOf("hooks", namespace, name), header: ifMatch(version)})
}

// Channels returns the channels of a namespace, "" for all, by name.
func (c *Client) Channels(ctx context.Context, namespace string) (Page[Document], error) {
	var page Page[Document]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/channels", query: values("namespace", namespace), answer: &page})
}

// Channel returns a channel.
func (c *Client) Channel(ctx context.Context, namespace, name string) (Document, error) {
	var d Document
	return d, c.do(ctx, call{method: http.MethodGet, path: pathOf("channels", namespace, name), answer: &d})
}

// DeleteChannel removes a version of a channel; 0 is any. Its pending messages are dropped.
func (c *Client) DeleteChannel(ctx context.Context, namespace, name string, version int64) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathOf("channels", namespace, name), header: ifMatch(version)})
}

// ListedExecutors returns the documents of manually listed executors, in a namespace or,
// for "", in all.
func (c *Client) ListedExecutors(ctx context.Context, namespace string) (Page[Document], error) {
	var page Page[Document]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/executors", query: values("namespace", namespace), answer: &page})
}

// ExecutorsDocument returns an executors document by name.
func (c *Client) ExecutorsDocument(ctx context.Context, namespace, name string) (Document, error) {
	var d Document
	return d, c.do(ctx, call{method: http.MethodGet, path: pathOf("executors", namespace, name), answer: &d})
}

// DeleteExecutors removes a version of an executors document; 0 is any.
func (c *Client) DeleteExecutors(ctx context.Context, namespace, name string, version int64) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathOf("executors", namespace, name), header: ifMatch(version)})
}

// TestChannel sends a test message to a channel and waits for the answer of its service.
func (c *Client) TestChannel(ctx context.Context, namespace, name string) (ChannelTest, error) {
	var t ChannelTest
	return t, c.do(ctx, call{method: http.MethodPost, path: pathOf("channels", namespace, name) + "/test", answer: &t})
}

// Deliveries returns the deliveries of the channels of a namespace, "" for all.
func (c *Client) Deliveries(ctx context.Context, namespace string) (Page[Delivery], error) {
	var page Page[Delivery]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/deliveries", query: values("namespace", namespace), answer: &page})
}

// Notifications returns the pending and the open notifications of the channels of a
// namespace, "" for all.
func (c *Client) Notifications(ctx context.Context, namespace string) (Page[Notification], error) {
	var page Page[Notification]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/notifications", query: values("namespace", namespace), answer: &page})
}

// AckNotification acknowledges a notification, so that it is not repeated.
func (c *Client) AckNotification(ctx context.Context, id string) (Notification, error) {
	var n Notification
	return n, c.do(ctx, call{method: http.MethodPost, path: "/notifications/" + url.PathEscape(id) + "/ack", answer: &n})
}

// Server returns the version and the state of the server.
func (c *Client) Server(ctx context.Context) (Server, error) {
	var s Server
	return s, c.do(ctx, call{method: http.MethodGet, path: "/server", answer: &s})
}

// GoneNodes returns all nodes, including those that left within the last 7 days.
func (c *Client) GoneNodes(ctx context.Context) (Page[Node], error) {
	var page Page[Node]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/nodes", query: values("gone", "true"), answer: &page})
}

// Attention returns the problems that need a person, the worst first: at most 100, in a
// namespace or, for "", everywhere.
func (c *Client) Attention(ctx context.Context, namespace string) (Page[Attention], error) {
	var page Page[Attention]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/attention", query: values("namespace", namespace), answer: &page})
}

// AuditQuery selects changes. All set fields must match.
type AuditQuery struct {
	Namespace string // namespace of the changed object
	Object    string // namespace/name, or the name of a token
	Actor     string // name of a token
	Action    string // such as job.change, or job for all changes of jobs
	Group     string // changes of one request
	From, To  time.Time
	PageSize  int
	PageToken string
}

// Audit returns a page of changes, the latest first. If few of many changes match, a page
// may have fewer than requested, even none, but still a token for the next page.
func (c *Client) Audit(ctx context.Context, q AuditQuery) (Page[AuditRecord], error) {
	query := values("namespace", q.Namespace, "object", q.Object, "actor", q.Actor, "action", q.Action, "group", q.Group, "page_token", q.PageToken)
	setTime(query, "from", q.From)
	setTime(query, "to", q.To)
	setNumber(query, "page_size", q.PageSize)
	var page Page[AuditRecord]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/audit", query: query, answer: &page})
}

// values returns a query of the pairs that are not empty.
func values(pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return query
}

func setNumber(query url.Values, name string, n int) {
	if n > 0 {
		query.Set(name, strconv.Itoa(n))
	}
}

func setSpan(query url.Values, from, to time.Time, step time.Duration) {
	setTime(query, "from", from)
	setTime(query, "to", to)
	if step > 0 {
		query.Set("step", strconv.Itoa(int(step/time.Second))+"s")
	}
}

func setTime(query url.Values, name string, t time.Time) {
	if !t.IsZero() {
		query.Set(name, t.Format(time.RFC3339Nano))
	}
}
