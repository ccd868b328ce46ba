package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
)

// Old protocols are refused. Over HTTP/2, where a connection has many requests at once, bodies without a token
// have their five seconds too, and hold up neither those with one nor new connections.
func TestTLSAndHTTP2AtTheirEdges(t *testing.T) {
	ca := newAuthority(t)
	ca.write("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)})
	own := &certificate{cert: ca.file("server.crt"), key: ca.file("server.key"), now: time.Now, log: slog.New(slog.DiscardHandler)}
	if err := own.load(); err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConnections(inner, 100, slog.New(slog.DiscardHandler))
	s := &http.Server{Handler: withTokens(nil), ConnState: l.state, ConnContext: l.with, TLSConfig: own.config(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.ServeTLS(l, "", "") }()
	defer func() { _ = s.Close(); <-served }()
	address := inner.Addr().String()

	pool := x509.NewCertPool()
	text, err := os.ReadFile(ca.file("ca.crt"))
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	if c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		c.Close()
		t.Error("TLS 1.1 was accepted")
	}

	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	ask := func(token bool, path string, body io.Reader) (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+path, body)
		if err != nil {
			return nil, err
		}
		if token {
			request.Header.Set("Authorization", "Bearer x")
		}
		return transport.RoundTrip(request)
	}
	first, err := ask(true, "/", bytes.NewReader(nil))
	if err != nil || first.ProtoMajor != 2 {
		t.Fatalf("%+v, %v", first, err)
	}
	first.Body.Close()
	const streams = 200 // fewer than a connection may have
	var slow sync.WaitGroup
	took := make([]time.Duration, streams)
	for i := range streams {
		slow.Go(func() {
			body, end := io.Pipe()
			defer end.Close()
			began := time.Now()
			if answer, err := ask(false, "/login", body); err == nil {
				answer.Body.Close()
			}
			took[i] = time.Since(began)
		})
	}
	for range 10 {
		answer, err := ask(true, "/", bytes.NewReader(nil))
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("beside slow bodies: %+v, %v", answer, err)
		}
		answer.Body.Close()
	}
	slow.Wait()
	for _, took := range took {
		if took > auth.StrangerTime+20*time.Second { // on a busy machine
			t.Errorf("a slow body was waited for %s, want %s", took, auth.StrangerTime)
		}
	}
}
