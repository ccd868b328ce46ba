package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestAProxyCutsAndSlows: nothing passes while the network is cut, what was open then breaks, and a slow network is slow.
func TestAProxyCutsAndSlows(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	p, err := newProxy(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn, patience time.Duration) error {
		if _, err := c.Write([]byte{7}); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	c := dial()
	if err := ask(c, time.Minute); err != nil {
		t.Fatal(err)
	}
	p.set(true, 0)
	if err := ask(c, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while the network is cut: %v", err)
	}
	p.set(false, 0)
	if err := ask(c, time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection lived through the cut: %v", err)
	}
	p.set(false, 100*time.Millisecond)
	begun := time.Now()
	if err := ask(dial(), time.Minute); err != nil || time.Since(begun) < 200*time.Millisecond {
		t.Errorf("there and back in %s, error %v", time.Since(begun), err)
	}
}
