package server

import (
	queue "container/list"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/failurelog"
)

const (
	// connectionsMax is how many connections a server has at most: some times as many as
	// followers and dashboards need, at about 20 KB each.
	connectionsMax = 10_000
	// ownFiles is the number of descriptors that a server needs beside its connections and
	// attempts: for the store, the watchdog, and commands that are just starting.
	ownFiles = 128
	// filesPerAttempt is how many a running attempt has open: two pipes, its process and its
	// cgroup, or a connection to another server.
	filesPerAttempt = 4
	// refusedEvery is how often the log says that connections are refused.
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
		return 1024 // the least that systems have
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on FreeBSD
}

// connections is a listener that keeps its connections below a bound, so that descriptors
// are left for commands. For a new one beyond it, the connection that has waited longest for
// a request is closed; if all of them are answering one, the new one is refused.
type connections struct {
	net.Listener
	most int
	log  *slog.Logger

	mu      sync.Mutex
	all     map[net.Conn]*queue.Element // nil while a request is answered
	idle    queue.List                  // of net.Conn, the longest first
	refused failurelog.Limit
}

func limitConnections(l net.Listener, most int, log *slog.Logger) *connections {
	return &connections{Listener: l, most: most, log: log, all: map[net.Conn]*queue.Element{}, refused: failurelog.Limit{Every: refusedEvery}}
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c.admit(conn) {
			return &connection{Conn: conn, of: c}, nil
		}
		if left, ok := c.refused.Allow(time.Now()); ok {
			c.log.Warn("refused a connection: no file descriptors left for more", "connections", c.most, "left_out", left)
		}
		_ = conn.Close()
	}
}

// admit makes room for a connection, and reports whether there is some.
func (c *connections) admit(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= c.most {
		oldest := c.idle.Front()
		if oldest == nil {
			return false
		}
		// A connection that waits for a request loses nothing; clients reconnect.
		evicted := c.idle.Remove(oldest).(net.Conn)
		delete(c.all, evicted)
		_ = evicted.Close()
	}
	c.all[conn] = c.idle.PushBack(conn)
	return true
}

// state receives state changes of connections from the server.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	own, ok := conn.(*connection)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, there := c.all[own.Conn]
	switch {
	case !there:
	case state == http.StateActive && waiting != nil:
		c.idle.Remove(waiting)
		c.all[own.Conn] = nil
	case state == http.StateIdle && waiting == nil:
		c.all[own.Conn] = c.idle.PushBack(own.Conn)
	}
}

// connection is a connection that makes room when it is closed.
type connection struct {
	net.Conn
	of *connections
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	if waiting := c.of.all[c.Conn]; waiting != nil {
		c.of.idle.Remove(waiting)
	}
	delete(c.of.all, c.Conn)
	c.of.mu.Unlock()
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) { // it may have made room already
		return err
	}
	return nil
}
