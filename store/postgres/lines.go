package postgres

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// closeMax is how long a server has to answer the end of its connections. The pool itself
// waits 15 s for each connection whose call was given up.
const closeMax = time.Second

// lines are the open connections of a database, to end those whose server does not answer.
type lines struct {
	mu    sync.Mutex
	open  map[*line]bool
	ended bool
}

type line struct {
	net.Conn
	of *lines
}

// Close implements [net.Conn].
func (l *line) Close() error {
	l.of.mu.Lock()
	delete(l.of.open, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

// watch returns a function that dials as another one does.
func (l *lines) watch(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		ln := &line{conn, l}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.ended {
			conn.Close()
			return nil, net.ErrClosed
		}
		l.open[ln] = true
		return ln, nil
	}
}

// end ends all connections, present and future.
func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for ln := range l.open {
		_ = ln.Conn.Close()
	}
}
