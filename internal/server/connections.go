package server

import (
	queue "container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
)

const (
	// connectionsMax bounds the connections of a server: several times what followers and
	// dashboards need, at about 20 KB each.
	connectionsMax = 10_000
	// ownFiles is the number of descriptors that a server needs beside its connections and
	// attempts: for the store, the watchdog, and commands that are just starting.
	ownFiles = 128
	// filesPerAttempt is how many a running attempt has open: two pipes, its process and its
	// cgroup, or a connection to another server.
	filesPerAttempt = 4
	// refusedEvery is the interval of log lines about refused connections.
	refusedEvery = 10 * time.Second
)

// connectionsFor returns the number of connections within a limit of open files, beside the
// attempts of a node. A quarter of the files is always for connections.
func connectionsFor(files uint64, capacity int) int {
	free := int(min(files, 1<<30)) - ownFiles - filesPerAttempt*capacity
	return max(1, min(connectionsMax, max(free, int(min(files, 1<<30)/4))))
}

// fileLimit returns how many files this process may have open.
func fileLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the minimum of systems
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on FreeBSD
}

// The shares of callers without a token. A quarter of the connections is reserved for others, and no
// address has more than a quarter of all: behind a proxy, all callers have its address.
func strangersMost(most int) int  { return max(1, most-most/4) }
func perAddressMost(most int) int { return max(1, most/4) }

// connections is a listener that keeps its connections below a bound, so that descriptors are left
// for commands. Beyond it, a new connection closes the oldest one without a valid token, whatever
// that does, or the one that has waited longest for a request. If all are answering callers with
// tokens, the new one is refused.
type connections struct {
	net.Listener
	most int
	log  *slog.Logger

	mu        sync.Mutex
	n         int
	strangers queue.List                   // *connection without a valid token, longest unchanged first
	byAddress map[netip.Prefix]*queue.List // the same by address
	idle      queue.List                   // *connection with a token that waits for a request, longest first
	refused   failurelog.Limit
}

// borrowed are connections of an address that stays open when the listener is closed.
type borrowed struct {
	*connections
	socket *net.TCPListener
}

// Close implements [net.Listener]: it ends Accept.
func (b borrowed) Close() error { return b.socket.SetDeadline(time.Now()) }

func limitConnections(l net.Listener, most int, log *slog.Logger) *connections {
	return &connections{Listener: l, most: most, log: log, byAddress: map[netip.Prefix]*queue.List{}, refused: failurelog.Limit{Every: refusedEvery}}
}

// connection is a connection that makes room when it is closed.
type connection struct {
	net.Conn
	of   *connections
	from netip.Prefix

	// Guarded by of.mu.
	gone   bool
	known  bool           // a valid token was shown
	place  *queue.Element // in strangers or idle; nil while a known caller is answered
	beside *queue.Element // in byAddress, for a stranger
}

// Accept implements [net.Listener].
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		own := &connection{Conn: conn, of: c}
		if from, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
			own.from = auth.NetworkOf(from.Addr())
		}
		if c.admit(own) {
			return own, nil
		}
		if left, ok := c.refused.Allow(time.Now()); ok {
			c.log.Warn("refused a connection: no file descriptors left for more", "connections", c.most, "left_out", left)
		}
		_ = conn.Close()
	}
}

// admit makes room for a connection, and reports whether there is room.
func (c *connections) admit(own *connection) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var oldest *queue.Element
	same := c.byAddress[own.from]
	switch {
	case same != nil && same.Len() >= perAddressMost(c.most):
		oldest = same.Front()
	case c.strangers.Len() >= strangersMost(c.most), c.n >= c.most && c.strangers.Len() > 0:
		oldest = c.strangers.Front()
	case c.n >= c.most:
		// Closing a connection that waits for a request loses nothing; clients reconnect.
		if oldest = c.idle.Front(); oldest == nil {
			return false
		}
	}
	if oldest != nil {
		evicted := oldest.Value.(*connection)
		c.remove(evicted)
		_ = evicted.Conn.Close()
	}
	c.n++
	c.enter(own)
	return true
}

// enter appends a stranger to its queues.
func (c *connections) enter(own *connection) {
	same := c.byAddress[own.from]
	if same == nil {
		same = &queue.List{}
		c.byAddress[own.from] = same
	}
	own.place, own.beside = c.strangers.PushBack(own), same.PushBack(own)
}

// leave removes a connection from its queue.
func (c *connections) leave(own *connection) {
	switch {
	case own.beside != nil:
		c.strangers.Remove(own.place)
		same := c.byAddress[own.from]
		if same.Remove(own.beside); same.Len() == 0 {
			delete(c.byAddress, own.from)
		}
	case own.place != nil:
		c.idle.Remove(own.place)
	}
	own.place, own.beside = nil, nil
}

// remove forgets a connection.
func (c *connections) remove(own *connection) {
	if !own.gone {
		own.gone = true
		c.leave(own)
		c.n--
	}
}

// ownOf returns the connection behind a server's, nil for another listener.
func ownOf(conn net.Conn) *connection {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	own, _ := conn.(*connection)
	return own
}

// state receives state changes of connections from the server.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	own := ownOf(conn)
	if own == nil || state != http.StateActive && state != http.StateIdle {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if own.gone {
		return
	}
	c.leave(own)
	switch {
	case !own.known:
		c.enter(own)
	case state == http.StateIdle:
		own.place = c.idle.PushBack(own)
	}
}

// shown records that a connection has shown a valid token.
func (own *connection) shown() {
	own.of.mu.Lock()
	defer own.of.mu.Unlock()
	if !own.gone && !own.known {
		own.known = true
		own.of.leave(own)
	}
}

// Close implements [net.Conn].
func (own *connection) Close() error {
	own.of.mu.Lock()
	own.of.remove(own)
	own.of.mu.Unlock()
	if err := own.Conn.Close(); !errors.Is(err, net.ErrClosed) { // it may have made room already
		return err
	}
	return nil
}

// connectionKey is the key of the connection in the context of a request.
type connectionKey struct{}

// with adds a connection to the context of its requests.
func (c *connections) with(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, ownOf(conn))
}

// guard bounds the body of a request to [auth.StrangerTime] until a valid token is shown.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control, begun := http.NewResponseController(w), time.Now()
		known := func() {} // a request without a body has nothing to read
		if r.ContentLength != 0 {
			_ = control.SetReadDeadline(begun.Add(auth.StrangerTime)) // connections of tests have no deadlines
			known = sync.OnceFunc(func() { _ = control.SetReadDeadline(begun.Add(readTime)) })
			// After the body a deadline would look like a disconnect.
			r.Body = &strangersBody{r.Body, known}
		}
		own, _ := r.Context().Value(connectionKey{}).(*connection)
		next.ServeHTTP(w, r.WithContext(auth.OnShown(r.Context(), func() {
			if own != nil {
				own.shown()
			}
			known()
		})))
	})
}

// strangersBody is a body that calls ended after its last read.
type strangersBody struct {
	io.ReadCloser
	ended func()
}

// Read implements [io.Reader].
func (b *strangersBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended()
	}
	return n, err
}
