//go:build servers

package cluster_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy stands between a node and its database, as the network does.
type proxy struct {
	listener net.Listener
	port     int // of the database

	mu      sync.Mutex
	changed sync.Cond
	weather weather
	late    time.Duration // of each answer
	conns   map[net.Conn]bool
	// stranded are connections that nobody ends and nothing passes, as when the other end is gone.
	stranded map[net.Conn]bool
}

// weather is what becomes of what is sent.
type weather int

const (
	fair weather = iota
	// cut ends all connections, and new ones at once.
	cut
	// resets resets all connections, and new ones at once.
	resets
	// silent keeps connections, and what is sent arrives when the weather is fair
	// again: long after its sender has given up.
	silent
	// mute keeps answers alone: the database gets what is sent, and commits it.
	mute
	closed // the test is over
)

func newProxy(t testing.TB, port int) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, port: port, conns: map[net.Conn]bool{}, stranded: map[net.Conn]bool{}}
	p.changed.L = &p.mu
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			group.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.turn(closed)
		group.Wait()
	})
	return p
}

// address is where nodes find the database.
func (p *proxy) address() int { return p.listener.Addr().(*net.TCPAddr).Port }

// turn changes the weather.
func (p *proxy) turn(w weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
	if w == cut || w == resets || w == closed {
		for conn := range p.conns {
			p.end(conn)
		}
	}
	p.changed.Broadcast()
}

// end ends a connection in the present weather.
func (p *proxy) end(conn net.Conn) {
	if p.weather == resets {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	conn.Close()
}

// strand makes the connections of now half-open: what is sent on them is gone, and new ones work.
func (p *proxy) strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		p.stranded[conn] = true
	}
}

func (p *proxy) isStranded(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stranded[conn]
}

// delay lets each answer of the database arrive later.
func (p *proxy) delay(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = by
}

// lateness returns by how much answers are late.
func (p *proxy) lateness() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

// serve carries what is sent on one connection, both ways.
func (p *proxy) serve(near net.Conn) {
	defer near.Close()
	if !p.passes(false) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.end(near)
		return
	}
	far, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.port))
	if err != nil {
		return // the database is down
	}
	defer far.Close()
	defer p.forget(near, far)
	if !p.keep(near, far) {
		return
	}
	var group sync.WaitGroup
	group.Go(func() { p.carry(near, far, true) })
	group.Go(func() { p.carry(far, near, false) })
	group.Wait()
}

// carry copies questions or answers until one of the two has ended, and ends the other.
func (p *proxy) carry(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if answers {
			<-time.After(p.lateness())
		}
		if !p.passes(answers) {
			return
		}
		if err == nil && p.isStranded(from) {
			continue
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// passes waits while nothing arrives, and reports whether it arrives then.
func (p *proxy) passes(answers bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.weather == silent || p.weather == mute && answers {
		p.changed.Wait()
	}
	return p.weather == fair || p.weather == mute
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.conns[conn] = true
	}
	return p.weather != cut && p.weather != resets && p.weather != closed
}

func (p *proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.conns, conn)
		delete(p.stranded, conn)
	}
}
