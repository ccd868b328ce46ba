package main

import (
	"net"
	"sync"
	"time"
)

// A proxy stands between one node and its store, and makes the network between them slow or dead.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	changed *sync.Cond
	cut     bool
	delay   time.Duration
	closed  bool
	conns   map[net.Conn]struct{}
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// set changes the network. What was sent while it was cut is lost with its connections when it comes back.
func (p *proxy) set(cut bool, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut && !cut {
		p.drop()
	}
	p.cut, p.delay = cut, delay
	p.changed.Broadcast()
}

func (p *proxy) drop() {
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.drop()
	p.changed.Broadcast()
}

func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

// wait returns when bytes may go on. Bytes on a dead network wait for its end, and find their connection closed.
func (p *proxy) wait() {
	p.mu.Lock()
	for p.cut && !p.closed {
		p.changed.Wait()
	}
	delay := p.delay
	p.mu.Unlock()
	time.Sleep(delay)
}

func (p *proxy) serve(client net.Conn) {
	if !p.keep(client) {
		return
	}
	p.wait()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	if !p.keep(server) {
		return
	}
	go p.pass(server, client)
	p.pass(client, server)
}

func (p *proxy) pass(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.wait()
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				err = failed
			}
		}
		if err == nil {
			continue
		}
		p.mu.Lock()
		delete(p.conns, to)
		delete(p.conns, from)
		p.mu.Unlock()
		_, _ = to.Close(), from.Close()
		return
	}
}
