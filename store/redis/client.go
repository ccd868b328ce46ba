package redis

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	// inFlightMax is how many commands may wait for their answers on one connection: more than a node
	// sends at once.
	inFlightMax = 1024
	// idleMax and idleFor bound the idle connections of commits that wait for replicas.
	idleMax = 16
	idleFor = time.Minute
	// aliveEach is how often an unused connection is checked.
	aliveEach = time.Second
)

var errClosed = errors.New("the connection is closed")

// doer sends a command and waits for its answer.
type doer interface {
	do(ctx context.Context, command string, args ...any) (any, error)
}

// client reaches one server. Its callers share a connection, which is made again after it broke.
// Nothing is sent twice: a step that may have been done is decided again.
type client struct {
	a    location
	host string
	// others are more servers that may know the master: Sentinels, or nodes of a cluster.
	others []string
	idle   redis.Pool // connections for callers that need the state of one

	turn   chan struct{} // holds a value while a caller reads or changes the two below
	line   *shared
	closed bool
}

func newClient(a location, host string) *client {
	c := &client{a: a, host: host, turn: make(chan struct{}, 1)}
	c.idle = redis.Pool{MaxIdle: idleMax, IdleTimeout: idleFor, DialContext: c.connect}
	return c
}

// connect makes a connection to the server.
func (c *client) connect(ctx context.Context) (redis.Conn, error) {
	a := c.a
	return connect(ctx, a, c.host, redis.DialUsername(a.User), redis.DialPassword(a.Password), redis.DialDatabase(a.db))
}

func connect(ctx context.Context, a location, host string, options ...redis.DialOption) (redis.Conn, error) {
	within, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	dialer := net.Dialer{Timeout: dialMax, KeepAlive: aliveEach}
	conn, err := redis.DialContext(within, "tcp", host, append(options, redis.DialContextFunc(dialer.DialContext),
		redis.DialTLSHandshakeTimeout(dialMax), redis.DialUseTLS(a.TLS != nil), redis.DialTLSConfig(a.TLS), redis.DialWriteTimeout(callMax))...)
	if err != nil {
		return nil, err
	}
	_, _ = redis.DoContext(conn, within, "CLIENT", "SETNAME", "belfry") // may be forbidden
	return conn, nil
}

// dedicated returns a connection that the caller uses alone, and closes.
func (c *client) dedicated(ctx context.Context) (dedicated, error) {
	conn, err := c.connect(ctx)
	return dedicated{conn}, err
}

// do sends a command on the shared connection.
func (c *client) do(ctx context.Context, command string, args ...any) (any, error) {
	s, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	return s.do(ctx, command, args...)
}

// current returns the shared connection, and makes it if there is none or the last one broke.
func (c *client) current(ctx context.Context) (*shared, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.turn }()
	if c.closed {
		return nil, errClosed
	}
	if c.line != nil && c.line.conn.Err() == nil {
		return c.line, nil
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.line = share(conn)
	return c.line, nil
}

// Close ends all calls.
func (c *client) Close() {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.closed = true
	if c.line != nil {
		c.line.conn.Close()
	}
	c.idle.Close()
}

// shared is a connection on which the commands of several callers follow each other, before the first
// ones have their answers.
type shared struct {
	conn         redis.Conn
	toSend, sent chan *call
	over         chan struct{} // closed when the connection broke
}

// call is a command and its answer.
type call struct {
	command string
	args    []any
	answer  any
	err     error
	done    chan struct{}
}

func share(conn redis.Conn) *shared {
	s := &shared{conn, make(chan *call, inFlightMax), make(chan *call, inFlightMax), make(chan struct{})}
	go s.send()
	go s.receive()
	return s
}

func (s *shared) do(ctx context.Context, command string, args ...any) (any, error) {
	c := &call{command: command, args: args, done: make(chan struct{})}
	select {
	case s.toSend <- c:
	case <-s.over:
		return nil, s.conn.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-c.done:
		return c.answer, c.err
	case <-s.over:
		return nil, s.conn.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// send sends commands until the connection breaks: all that wait go into one packet.
func (s *shared) send() {
	for {
		select {
		case c := <-s.toSend:
			for c != nil {
				_ = s.conn.Send(c.command, c.args...) // receive gets the error
				select {
				case s.sent <- c:
				default:
					_ = s.conn.Flush()
					select {
					case s.sent <- c:
					case <-s.over:
						return
					}
				}
				select {
				case c = <-s.toSend:
				default:
					c = nil
				}
			}
			_ = s.conn.Flush()
		case <-s.over:
			return
		}
	}
}

// receive passes the answers to their callers.
func (s *shared) receive() {
	defer close(s.over)
	for s.conn.Err() == nil {
		answer, err := redis.ReceiveWithTimeout(s.conn, 0) // callers bound their calls
		if s.conn.Err() != nil {
			return
		}
		c := <-s.sent
		c.answer, c.err = answer, err
		close(c.done)
	}
}

// dedicated is a connection with one caller.
type dedicated struct{ redis.Conn }

func (d dedicated) do(ctx context.Context, command string, args ...any) (any, error) {
	return redis.DoContext(d.Conn, ctx, command, args...)
}

// script is a script, which the server may know already.
type script struct{ text, hash string }

func newScript(text string) script { return script{text, redis.NewScript(-1, text).Hash()} }

// run runs a script that answers with numbers.
func (s script) run(ctx context.Context, c doer, keys []string, args ...any) ([]int64, error) {
	given := make([]any, 0, 2+len(keys)+len(args))
	given = append(given, s.hash, len(keys))
	for _, key := range keys {
		given = append(given, key)
	}
	given = append(given, args...)
	answer, err := c.do(ctx, "EVALSHA", given...)
	if refusal(err) == "NOSCRIPT" {
		given[0] = s.text
		answer, err = c.do(ctx, "EVAL", given...)
	}
	return redis.Int64s(answer, err)
}

// refusal returns the word that the error of a server begins with, "" for another error. For a failed
// script Redis 6 puts other words before it.
func refusal(err error) string {
	var refused redis.Error
	if !errors.As(err, &refused) {
		return ""
	}
	message := refused.Error()
	if at := strings.LastIndex(message, ": -"); at >= 0 {
		message = message[at+len(": -"):]
	}
	word, _, _ := strings.Cut(message, " ")
	return word
}
