// Package remote implements package work over HTTP, for workers without a store: see package wire
// for the messages. It has several equivalent servers, and tries the next one if one does not
// answer. It returns the errors of package store, so that a worker sees a store with occasional
// outages.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/store"
)

const (
	// tryTime bounds the answer of one server. A request for hints has WaitMax besides.
	tryTime = 10 * time.Second
	// tryFirst is the same for every server but the last: a worker must reach another one before
	// its session is over.
	tryFirst = 2 * time.Second
	// restMin and restMax bound the backoff of a silent server.
	restMin = 250 * time.Millisecond
	restMax = 10 * time.Second
	// answerMax bounds an answer: a batch of large definitions.
	answerMax = 64 << 20
	// ServersMax bounds the servers of a worker: each is tried before a call fails.
	ServersMax = 16
)

// Config names the servers to use.
type Config struct {
	// Servers are their addresses, such as https://belfry.example.com:8420.
	Servers []string
	// Token returns the token of the worker, and is called before each try to begin a
	// session: it may be replaced in the meantime.
	Token func() (string, error)
	// UserAgent names the program.
	UserAgent string
	// PlainHTTP allows servers on other machines without TLS.
	PlainHTTP bool
	// Transport makes the connections. Default: [http.DefaultTransport] with time-outs.
	Transport http.RoundTripper
	Log       *slog.Logger
}

// Client implements work.Store. Its methods may be called from many goroutines.
type Client struct {
	config  Config
	http    http.Client
	servers []*server

	mu    sync.Mutex // guards the fields below, and fields of a server that name it
	first int        // the server that answered last
	token string
	own   own

	log *failurelog.Log
}

// server is one of the servers.
type server struct {
	base  string
	rest  time.Duration // after the next failure; guarded by the client's mutex
	until time.Time     // end of the backoff, which applies while other servers are left; likewise
}

// New returns a client. It connects when it is used.
func New(c Config) (*Client, error) {
	if len(c.Servers) == 0 {
		return nil, errors.New("the address of a server is missing, such as https://belfry.example.com:8420")
	}
	if len(c.Servers) > ServersMax {
		return nil, fmt.Errorf("there are %d addresses of servers, and at most %d are allowed", len(c.Servers), ServersMax)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	remote := &Client{config: c, log: failurelog.New(c.Log, "no server answers", "a server answers again")}
	for _, address := range c.Servers {
		base, err := addressOf(address, c.PlainHTTP)
		if err != nil {
			return nil, err
		}
		remote.servers = append(remote.servers, &server{base: base, rest: restMin})
	}
	remote.http.Transport = c.Transport
	if c.Transport == nil {
		remote.http.Transport = Transport()
	}
	// A redirect would send the token somewhere else.
	remote.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return remote, nil
}

// Transport makes connections as a client without another one.
func Transport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16 // a worker makes several concurrent calls
	return transport
}

// addressOf returns the address of a server without a slash at its end.
func addressOf(address string, plain bool) (string, error) {
	base, err := url.Parse(address)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https":
		return "", fmt.Errorf("%q is not the address of a server, such as https://belfry.example.com:8420", address)
	case base.User != nil || base.RawQuery != "" || base.ForceQuery || strings.Contains(address, "#"):
		return "", fmt.Errorf("the address of a server has no user, query or fragment: %q", base.Redacted())
	case base.Scheme == "http" && !plain && !isLoopback(base.Hostname()):
		return "", fmt.Errorf("%q has no TLS, and others could read the token on its way: use https, or allow plain HTTP", address)
	}
	return strings.TrimSuffix(base.String(), "/"), nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// RefusedError is a server's refusal: repeating the request is useless.
type RefusedError struct {
	Server  string
	Problem client.Problem
}

func (e *RefusedError) Error() string {
	text := e.Problem.Error()
	if e.Problem.Hint != "" {
		text += ": " + e.Problem.Hint
	}
	return "the server " + e.Server + " has refused it: " + text
}

// Wait returns when a server accepts the token. It retries while none answers, and returns
// an error only if ctx ends or the token or the protocol is refused.
func (c *Client) Wait(ctx context.Context) error {
	for rest := restMin; ; rest = min(2*rest, restMax) {
		var clock wire.Clock
		err := c.do(ctx, call{method: http.MethodGet, path: "/clock", answer: &clock})
		var refused *RefusedError
		if err == nil || errors.Is(err, errToken) || errors.As(err, &refused) && !errors.Is(err, store.ErrAway) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(jittered(rest)):
		}
	}
}

// Exchange exchanges a joining token for a token of the worker's own. It waits for a silent server,
// and returns an error only if ctx ends or the exchange is refused.
func (c *Client) Exchange(ctx context.Context, joins string, request wire.OwnToken) (granted wire.Granted, err error) {
	for rest := restMin; ; rest = min(2*rest, restMax) {
		err := c.do(ctx, call{method: http.MethodPost, path: "/tokens", body: request, answer: &granted, token: joins})
		if err == nil || !errors.Is(err, store.ErrAway) {
			return granted, err
		}
		select {
		case <-ctx.Done():
			return granted, ctx.Err()
		case <-time.After(jittered(rest)):
		}
	}
}

// beginAgain is the wait between two tries to begin the first session.
const beginAgain = time.Second

// Work runs a node until ctx ends. If no server answers when it begins its first session, it starts
// over; a refusal is an error.
func (c *Client) Work(ctx context.Context, run func(ctx context.Context) error) error {
	for {
		err := run(ctx)
		var refused *RefusedError
		switch {
		case ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, store.ErrAway)):
			if errors.Is(err, store.ErrAway) {
				c.config.Log.Warn("stopped; no server answered", "error", err)
			}
			return nil
		case err == nil || errors.Is(err, errVersion) || errors.As(err, &refused) && !errors.Is(err, store.ErrAway):
			return err
		}
		c.config.Log.Warn("cannot begin a session; trying again", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(beginAgain):
		}
	}
}

// errVersion is the error of a server that chooses a version of the protocol which this worker does not speak.
var errVersion = errors.New("no common version of the protocol of workers")

// errToken is the error of a token that cannot be read.
var errToken = errors.New("cannot read the token")

// readToken returns the token; again reads it afresh.
func (c *Client) readToken(again bool) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" && !again {
		return c.token, nil
	}
	token, err := c.config.Token()
	if err != nil {
		return "", fmt.Errorf("%w: %w", errToken, err)
	}
	if token = strings.TrimSpace(token); token == "" {
		return "", fmt.Errorf("%w: it is empty", errToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%w: it has an invalid character", errToken)
	}
	c.token = token
	return token, nil
}

// call is a request and its expected answer.
type call struct {
	method, path string // behind /api/v1/worker
	query        url.Values
	body         any           // encoded as JSON unless nil
	answer       any           // decoded from JSON unless nil
	wait         time.Duration // how long the server waits before its answer
	token        string        // replaces the worker's
}

// do makes a call, trying one server after the other.
func (c *Client) do(ctx context.Context, call call) error {
	var body []byte
	if call.body != nil {
		var err error
		if body, err = json.Marshal(call.body); err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
	}
	var last error
	order := c.order(time.Now())
	for i, s := range order {
		limit := tryTime
		if i < len(order)-1 {
			limit = tryFirst
		}
		answered, err := c.try(ctx, s, call, body, limit+call.wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.saw(s, answered)
		if answered {
			c.log.Saw(nil)
			return err
		}
		last = err
	}
	c.log.Saw(last)
	return fmt.Errorf("%w: %w", store.ErrAway, last)
}

// order returns the servers to try, beginning with the last one that answered. Servers in backoff
// come last.
func (c *Client) order(now time.Time) []*server {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list, resting []*server
	for i := range c.servers {
		s := c.servers[(c.first+i)%len(c.servers)]
		if now.Before(s.until) {
			resting = append(resting, s)
		} else {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return resting // a caller repeats it after its own pause
	}
	return list
}

// saw records whether a server has answered.
func (c *Client) saw(s *server, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !answered {
		s.until = time.Now().Add(jittered(s.rest))
		s.rest = min(2*s.rest, restMax)
		return
	}
	s.rest, s.until = restMin, time.Time{}
	for i := range c.servers {
		if c.servers[i] == s {
			c.first = i
		}
	}
}

// jittered returns between half of a time and all of it, so that the workers of a returning server
// do not call at once.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// try makes a call to one server. It reports an answer unless the next server must be
// tried.
func (c *Client) try(ctx context.Context, s *server, call call, body []byte, limit time.Duration) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	again := false
	for {
		token, err := call.token, error(nil)
		if token == "" {
			token, err = c.readToken(again)
		}
		if err != nil {
			return true, err
		}
		answered, err = c.send(ctx, s, call, body, token)
		var refused *RefusedError
		if again || !errors.As(err, &refused) || refused.Problem.Type != client.TypeUnauthenticated {
			return answered, err
		}
		again = true // it may have been replaced
	}
}

// send makes a request.
func (c *Client) send(ctx context.Context, s *server, call call, body []byte, token string) (answered bool, err error) {
	target := s.base + "/api/v1/worker" + call.path
	if len(call.query) > 0 {
		target += "?" + call.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, call.method, target, bytes.NewReader(body))
	if err != nil {
		return true, fmt.Errorf("make the request: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	if c.config.UserAgent != "" {
		request.Header.Set("User-Agent", c.config.UserAgent)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, answerMax+1))
	if err != nil {
		return false, fmt.Errorf("read the answer of %s: %w", s.base, err)
	}
	if len(data) > answerMax {
		return true, fmt.Errorf("the answer of %s has more than %d MiB", s.base, answerMax>>20)
	}
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		if call.answer == nil {
			return true, nil
		}
		if err := json.Unmarshal(data, call.answer); err != nil {
			return true, fmt.Errorf("read the answer of %s: %w", s.base, err)
		}
		return true, nil
	}
	return s.refusal(response.StatusCode, data)
}

// refusal is the error in an answer without success.
func (s *server) refusal(status int, data []byte) (answered bool, err error) {
	var p client.Problem
	if json.Unmarshal(data, &p) != nil || p.Type == "" {
		// A proxy, or another program.
		return false, fmt.Errorf("%s answers with the status %s, which no server of Belfry does", s.base, strconv.Itoa(status))
	}
	refused := &RefusedError{s.base, p}
	switch p.Type {
	case client.TypeSessionOver:
		return true, store.ErrSessionOver
	case client.TypeNoSpace:
		return true, store.ErrNoSpace
	case client.TypeUnavailable, client.TypeTimeout, client.TypeInternal, client.TypeElsewhere, client.TypeTooMany, client.TypeTooManyFailures, client.TypeTooSlow:
		return false, refused // another server may accept it
	}
	return true, refused
}

// IsRefused reports whether servers will refuse a result however often it is sent.
func IsRefused(err error) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Problem.Type {
	case client.TypeNotFound, client.TypeConflict, client.TypeInvalid, client.TypeMalformed, client.TypeTooLarge:
		return true
	}
	return false
}
