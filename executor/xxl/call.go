package xxlexec

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/xxl"
)

const (
	// dialMax bounds connecting: an executor is near, and another one may be waiting.
	dialMax = 2 * time.Second
	// answerWait bounds the answer of an executor, which only queues the run.
	answerWait = 3 * time.Second
	// idleMax is how long a connection is kept. Executors in Node close theirs after 5 s; a request
	// at that moment may have arrived or not.
	idleMax     = 2 * time.Second
	idlePerHost = 64
	// answerMax is the most bytes of an answer other than a log.
	answerMax = 1 << 20
)

// generationD marks executors of generation D in the registry.
const generationD = "D"

// target is an executor.
type target struct {
	group      string
	address    string // without a trailing slash
	generation string
	token      string // for this executor
	// typed is set for an address that a person has listed and no executor has registered: a
	// loopback address then has no caller on this machine to vouch for it.
	typed bool
}

// caller sends requests to executors.
type caller struct {
	remote, local *http.Client
}

// dial connects to an address.
type dial func(ctx context.Context, network, address string) (net.Conn, error)

func newCaller(remote, local dial) *caller {
	return &caller{remote: clientOf(remote), local: clientOf(local)}
}

func clientOf(connect dial) *http.Client {
	return &http.Client{
		// Without a proxy: the environment of a node should not lead its requests.
		Transport: &http.Transport{
			DialContext: connect, TLSHandshakeTimeout: dialMax, ResponseHeaderTimeout: answerWait,
			IdleConnTimeout: idleMax, MaxIdleConnsPerHost: idlePerHost, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (c *caller) close() {
	c.remote.CloseIdleConnections()
	c.local.CloseIdleConnections()
}

// notSent is why a request certainly did not arrive.
type notSent struct{ cause error }

func (e *notSent) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *notSent) Unwrap() error { return e.cause }

// post sends a request and returns the body of the answer, cut at a bound. After an error other
// than *notSent the executor may have read it.
func (c *caller) post(ctx context.Context, to target, path string, body []byte, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, dialMax+answerWait)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, &notSent{err}
	}
	request.Header["Content-Type"] = []string{xxl.ContentType}
	request.Header[xxl.HeaderToken] = []string{to.token}
	if to.generation == generationD || to.typed && to.generation == "" {
		// D requires it, and an address that was typed in may be of any generation.
		request.Header[xxl.HeaderGroup] = []string{to.group}
	}
	client := c.remote
	if isLoopback(request.URL.Hostname()) && !to.typed {
		client = c.local
	}
	answer, err := client.Do(request)
	if err != nil {
		err = withoutURL(err)
		if !connected.Load() {
			return nil, &notSent{err}
		}
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := uncompressed(answer.Header, answer.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	read, err := io.ReadAll(io.LimitReader(content, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answered with the status %d", answer.StatusCode)
	}
	return read, nil
}

// uncompressed returns the content of a body. Belfry requests no compression, but some frameworks
// compress nevertheless.
func uncompressed(header http.Header, body io.Reader) (io.Reader, error) {
	if !strings.EqualFold(header.Get("Content-Encoding"), "gzip") {
		return body, nil
	}
	return gzip.NewReader(body)
}

// ask sends a request and reads the answer.
func (c *caller) ask(ctx context.Context, to target, path string, body []byte) (xxl.Answer, error) {
	read, err := c.post(ctx, to, path, body, answerMax)
	if err != nil {
		return xxl.Answer{}, err
	}
	return xxl.ReadAnswer(read)
}

// withoutURL removes the URL from an error: messages name the address separately.
func withoutURL(err error) error {
	var failure *url.Error
	if errors.As(err, &failure) {
		return failure.Err
	}
	return err
}

// isLoopback reports whether a host is this machine by its name alone.
func isLoopback(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// checkAddress returns why an address that a caller has registered is not one to call.
func (s *settings) checkAddress(address string, callerIsLocal bool) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return errors.New("it is no URL with a host, such as http://10.0.0.5:9999")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("only http and https are called")
	case u.User != nil:
		return errors.New("it has a user or password in it")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(address, "#"): // a trailing one yields no fragment
		return errors.New("it has a query or fragment")
	case isLoopback(u.Hostname()) && !callerIsLocal:
		return errors.New("it is a loopback address, and the caller is on another machine: set xxl.job.executor.address, or its ip")
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // a name is looked up, and checked, when it is called
	}
	guard := s.remote
	if ip.Unmap().IsLoopback() {
		guard = s.local
	}
	return guard.Check(ip)
}
