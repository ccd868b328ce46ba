package httpexec

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/egress"
	"github.com/belfry-cron/belfry/job"
)

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second

	// idleTimeout is how long a connection is kept for the next run. Servers close theirs after 5 s
	// or more, and a request at that moment fails, read or unread.
	idleTimeout = 4 * time.Second
	idleMax     = 128
	idlePerHost = 32

	// headMax is the most bytes in the headers of a response.
	headMax = 64 << 10

	// An idle HTTP/2 connection is pinged, so that an attempt does not wait forever for a dead
	// server. TCP does the same for HTTP/1.1.
	pingAfter, pingTimeout = 30 * time.Second, 15 * time.Second

	// transportsMax bounds the sets of TLS options with open connections.
	transportsMax = 32
)

// pool has one transport for all jobs without TLS options, and one for each set
// of options.
type pool struct {
	files *files
	guard *egress.Guard
	proxy func(*http.Request) (*url.URL, error)
	// callback is Config.CallbackURL.
	callback string

	mu     sync.Mutex
	byTLS  map[tlsKey]*roundTripper
	oldest []tlsKey // least recently used first
}

// tlsKey distinguishes transports: by the options, and the content of the files.
type tlsKey struct {
	options       job.TLS
	ca, cert, key stamp
}

// route sends the requests of one run. The node's certificate and the expected name apply only to
// the host of the job's URL.
type route struct {
	home            *url.URL
	here, elsewhere http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (r route) RoundTrip(request *http.Request) (*http.Response, error) {
	if sameParty(r.home, request.URL) {
		return r.here.RoundTrip(request)
	}
	return r.elsewhere.RoundTrip(request)
}

// route returns the transport for the requests of a run, which begins at home.
func (p *pool) route(ctx context.Context, home *url.URL, options *job.TLS) (http.RoundTripper, error) {
	if options == nil {
		return p.transport(nil)
	}
	return p.files.within(ctx, func() (http.RoundTripper, error) {
		here, err := p.transport(options)
		if err != nil {
			return nil, err
		}
		elsewhere, err := p.transport(&job.TLS{CA: options.CA, Insecure: options.Insecure})
		if err != nil {
			return nil, err
		}
		return route{home, here, elsewhere}, nil
	})
}

// transport returns the transport for some options, nil for none.
func (p *pool) transport(options *job.TLS) (http.RoundTripper, error) {
	var key tlsKey
	if options != nil {
		key.options = *options
		for _, file := range []struct {
			name string
			at   *stamp
		}{{options.CA, &key.ca}, {options.Cert, &key.cert}, {options.Key, &key.key}} {
			if file.name == "" {
				continue
			}
			var err error
			if *file.at, err = p.files.stamp(file.name); err != nil {
				return nil, fmt.Errorf("read certificates: %w", err)
			}
		}
	}
	p.mu.Lock()
	t := p.byTLS[key]
	if t != nil {
		p.use(key)
	}
	p.mu.Unlock()
	if t != nil {
		return t, nil
	}
	config, err := p.files.tlsConfig(key.options)
	if err != nil {
		return nil, err
	}
	return p.add(key, p.newRoundTripper(config)), nil
}

// add puts a transport in the pool, unless another goroutine was first.
func (p *pool) add(key tlsKey, t *roundTripper) *roundTripper {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.byTLS[key]; first != nil {
		return first
	}
	if p.byTLS == nil {
		p.byTLS = map[tlsKey]*roundTripper{}
	}
	p.byTLS[key] = t
	p.oldest = append(p.oldest, key)
	if len(p.oldest) > transportsMax {
		p.byTLS[p.oldest[0]].close()
		delete(p.byTLS, p.oldest[0])
		p.oldest = p.oldest[1:]
	}
	return t
}

// use marks a key as recently used.
func (p *pool) use(key tlsKey) {
	for i := range p.oldest {
		if p.oldest[i] == key {
			copy(p.oldest[i:], p.oldest[i+1:])
			p.oldest[len(p.oldest)-1] = key
			return
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.byTLS {
		t.close()
	}
}

// roundTripper sends each request directly, with every address checked, or to a proxy.
type roundTripper struct {
	guard   *egress.Guard
	proxy   func(*http.Request) (*url.URL, error)
	direct  *http.Transport
	proxied *http.Transport // nil without proxies
}

func (p *pool) newRoundTripper(config *tls.Config) *roundTripper {
	t := &roundTripper{
		guard:  p.guard,
		proxy:  p.proxy,
		direct: newTransport(config, &net.Dialer{Timeout: dialTimeout, Control: p.guard.Control}),
	}
	if p.proxy != nil {
		t.proxied = newTransport(config.Clone(), &net.Dialer{Timeout: dialTimeout})
		t.proxied.Proxy = p.proxy
	}
	return t
}

func newTransport(config *tls.Config, dialer *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    handshakeTimeout,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           idleMax,
		MaxIdleConnsPerHost:    idlePerHost,
		MaxResponseHeaderBytes: headMax,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// RoundTrip implements [http.RoundTripper].
func (t *roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.proxy == nil {
		return t.direct.RoundTrip(r)
	}
	proxy, err := t.proxy(r)
	if err != nil {
		return nil, errors.New("the proxy setting is not a URL")
	}
	if proxy == nil {
		return t.direct.RoundTrip(r)
	}
	if addr, ok := literal(r.URL); ok {
		if err := t.guard.Check(addr); err != nil {
			return nil, err
		}
	}
	return t.proxied.RoundTrip(r)
}

func (t *roundTripper) close() {
	t.direct.CloseIdleConnections()
	if t.proxied != nil {
		t.proxied.CloseIdleConnections()
	}
}
