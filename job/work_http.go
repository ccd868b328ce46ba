package job

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// WorkHTTP is the kind of work of a request.
const WorkHTTP Work = "http"

// HTTP is a request. The rules of the node restrict its targets.
type HTTP struct {
	Method    string            `json:"method,omitzero" max:"32" doc:"The method. Default: GET, or POST with a body."`
	URL       string            `json:"url" secret:"address" max:"8192" doc:"The address, with http or https. A template after the host; values are escaped."`
	Headers   map[string]string `json:"headers,omitzero" secret:"value" items:"100" max:"8192" doc:"The headers. Values are templates."`
	Body      string            `json:"body,omitzero" secret:"value" max:"1048576" doc:"The body. A template; values are escaped as the Content-Type requires. Without one, a body that begins with { or [ is JSON, and one that begins with < is XML."`
	Expect    []string          `json:"expect,omitzero" max:"16" doc:"The status codes of success: 200, 200-204 or 2xx. Default: 2xx."`
	Match     string            `json:"match,omitzero" max:"4096" doc:"A regular expression (RE2) that the response body must match."`
	JSON      map[string]string `json:"json,omitzero" items:"20" max:"4096" doc:"Required values in the JSON response, by their path, for example {status: ok, data.items.0.state: ready}."`
	Redirects *int              `json:"redirects,omitzero" min:"0" max:"20" doc:"The maximum number of redirects. Default: 10."`
	Callback  bool              `json:"callback,omitzero" doc:"The service answers 202 and reports the result later to the address in the header Belfry-Callback, with the secret in Belfry-Callback-Secret."`
	TLS       *TLS              `json:"tls,omitzero" doc:"Certificates for TLS."`
}

// TLS has the settings for the authentication of server and node. Files are on the node.
type TLS struct {
	CA         string `json:"ca,omitzero" max:"4096" doc:"A file on the node, by absolute path in a directory of its http.tls_dirs, with the trusted certificates instead of the system's."`
	Cert       string `json:"cert,omitzero" max:"4096" doc:"A file on the node, in a directory of its http.tls_dirs, with the client certificate, together with key."`
	Key        string `json:"key,omitzero" max:"4096" doc:"A file on the node, in a directory of its http.tls_dirs, with the key of cert."`
	ServerName string `json:"server_name,omitzero" max:"256" doc:"The expected name in the certificate of the server. Default: the host of the URL."`
	Insecure   bool   `json:"insecure,omitzero" doc:"Accept any certificate."`
}

func (h *HTTP) kind() Work { return WorkHTTP }

func (h *HTTP) spec() RunSpec { return RunSpec{HTTP: h} }

func (h *HTTP) traits() traits { return traits{hasOutput: true, subject: h.URL} }

func (h *HTTP) filled() work {
	filled := *h
	method, redirects := "GET", 10
	if h.Body != "" || h.Callback {
		method = "POST"
	}
	if h.Callback {
		redirects = 0 // a redirect repeats the request
	}
	fill(reflect.ValueOf(&filled).Elem(), reflect.ValueOf(HTTP{
		Method:    method,
		Expect:    []string{"2xx"},
		Redirects: new(redirects),
	}))
	return &filled
}

func (h *HTTP) expand(visit visitor, run *path) work {
	at := run.field("http")
	expanded := *h
	expanded.URL = visit(TemplateURL, h.URL, at.field("url"))
	expanded.Headers = visit.all(TemplateHeader, h.Headers, at.field("headers"))
	expanded.Body = visit(h.BodyKind(), h.Body, at.field("body"))
	return &expanded
}

// BodyKind returns the format of the request's body, which decides the escaping of its
// values: by the Content-Type or, without one, JSON if it begins like an object or array,
// and XML if it begins with <.
func (h *HTTP) BodyKind() TemplateKind {
	for name, value := range h.Headers {
		if strings.EqualFold(name, "Content-Type") {
			value = strings.ToLower(value)
			switch {
			case strings.Contains(value, "json"):
				return TemplateJSON
			case strings.Contains(value, "x-www-form-urlencoded"):
				return TemplateForm
			case strings.Contains(value, "xml"), strings.Contains(value, "html"):
				return TemplateXML
			}
			return TemplatePrivate
		}
	}
	body := strings.TrimSpace(h.Body)
	if strings.HasPrefix(body, "[") || strings.HasPrefix(body, "{") && !strings.HasPrefix(body, "{{") {
		return TemplateJSON
	}
	if strings.HasPrefix(body, "<") {
		return TemplateXML
	}
	return TemplatePrivate
}

var (
	methodPattern = regexp.MustCompile(`^[A-Z][A-Z-]*$`)
	headerPattern = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	statusPattern = regexp.MustCompile(`^([1-5]xx|[1-5]\d\d|[1-5]\d\d-[1-5]\d\d)$`)
)

// The headers of a request with callback.
const (
	HeaderCallback       = "Belfry-Callback"        // the URL for the report
	HeaderCallbackSecret = "Belfry-Callback-Secret" // the bearer token of the report
)

// repeatable are the methods that a client may send again when a connection breaks.
var repeatable = []string{"GET", "HEAD", "OPTIONS", "TRACE"}

// ownHeaders belong to the connection, not to the job.
var ownHeaders = []string{"connection", "content-length", "transfer-encoding", "trailer", "upgrade"}

func (h *HTTP) check(v *validator, j *Job, run *path) {
	at := run.field("http")
	v.refuse(h.URL == "", at.field("url"), phrase.Missing, phrase.Example.Of("https://example.com/hook"))
	if h.Method != "" {
		v.refuse(!methodPattern.MatchString(h.Method), at.field("method"), phrase.NotMethod.Of(quote(h.Method)), phrase.MethodForm)
	}
	for _, name := range sortedKeys(reflect.ValueOf(h.Headers)) {
		at := at.field("headers").field(name)
		v.refuse(!headerPattern.MatchString(name), at, phrase.NotHeader.Of(quote(name)))
		v.refuse(slices.Contains(ownHeaders, strings.ToLower(name)), at, phrase.SetByRequest, phrase.LeaveOut)
	}
	for i, status := range h.Expect {
		from, to, isRange := strings.Cut(status, "-")
		v.refuse(!statusPattern.MatchString(status) || isRange && to < from, at.field("expect").item(i), phrase.NotStatus.Of(quote(status)), phrase.Example.Of("200, 200-204 or 2xx"))
	}
	if h.Callback {
		v.refuse(h.Redirects != nil && *h.Redirects > 0, at.field("redirects"), phrase.CallbackTwice, phrase.LeaveOut)
		v.refuse(slices.Contains(repeatable, h.Method), at.field("method"), phrase.SentTwice.Of(quote(h.Method)), phrase.Example.Of("POST"))
		for name := range h.Headers {
			v.refuse(strings.EqualFold(name, "X-Idempotency-Key"), at.field("headers").field(name), phrase.SentAgain, phrase.UseIdempotency)
			v.refuse(strings.EqualFold(name, HeaderCallback) || strings.EqualFold(name, HeaderCallbackSecret), at.field("headers").field(name), phrase.SetByCallback, phrase.LeaveOut)
		}
	}
	v.regexp(h.Match, at.field("match"))
	for _, place := range sortedKeys(reflect.ValueOf(h.JSON)) {
		v.refuse(strings.TrimSpace(place) == "", at.field("json").field(place), phrase.NoPlaceInAnswer, phrase.Example.Of("data.items.0.state"))
	}
	if t := h.TLS; t != nil {
		v.refuse((t.Cert != "") != (t.Key != ""), at.field("tls"), phrase.BothOrNeither.Of("cert", "key"))
		v.refuse(t.CA != "" && t.Insecure, at.at("tls.insecure"), phrase.InsecureCA, phrase.LeaveOneOut)
		v.refuse(strings.HasPrefix(strings.ToLower(h.URL), "http://"), at.field("tls"), phrase.OnlyWith.Of("https"))
	}
	v.refuse(h.Match != "" && j.Policy.Success != nil && j.Policy.Success.Match != "", root.at("policy.success.match"), phrase.MatchTwice, phrase.LeaveOneOut)
}
