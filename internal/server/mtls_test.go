package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/remote"
	"github.com/belfry-cron/belfry/internal/remote/host"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// authority issues certificates into files of a directory.
type authority struct {
	*testing.T
	dir    string
	own    *x509.Certificate
	secret *ecdsa.PrivateKey
	number int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{T: t, dir: t.TempDir()}
	a.own, a.secret = a.write("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)})
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// write issues a certificate into NAME.crt and NAME.key.
func (a *authority) write(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	a.number++
	c.SerialNumber, c.NotBefore = big.NewInt(a.number), time.Now().Add(-time.Hour)
	parent, by := a.own, a.secret
	if parent == nil {
		parent, by = c, secret
	}
	signed, err := x509.CreateCertificate(rand.Reader, c, parent, secret.Public(), by)
	if err != nil {
		a.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		a.Fatal(err)
	}
	for end, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: signed}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(a.file(name+end), pem.EncodeToMemory(block), 0o600); err != nil {
			a.Fatal(err)
		}
		if err := os.Chtimes(a.file(name+end), time.Time{}, time.Unix(1_800_000_000+a.number, 0)); err != nil {
			a.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(signed)
	if err != nil {
		a.Fatal(err)
	}
	return parsed, secret
}

func (a *authority) worker(file, host, subject string, life time.Duration) {
	a.write(file, &x509.Certificate{DNSNames: []string{host}, Subject: pkix.Name{CommonName: subject}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: time.Now().Add(life)})
}

func TestTokensOfWorkersAreBoundToCertificates(t *testing.T) {
	ca, foreign := newAuthority(t), newAuthority(t)
	ca.write("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)})
	ca.worker("one", "one.example.org", "worker one", time.Hour)
	ca.worker("two", "two.example.org", "worker two", time.Hour)
	foreign.worker("one", "one.example.org", "worker one", time.Hour)

	kept := memory.New(memory.Options{})
	tokens := auth.New(kept, nil)
	secrets := map[string]string{}
	for name, terms := range map[string]store.Terms{
		"by-host": {Certificate: "one.example.org"}, "by-subject": {Certificate: "worker one"}, "by-domain": {Certificate: "*.example.org"}, "free": {},
		"rack": {Certificate: "*.example.org", Uses: 3},
	} {
		role := store.RoleRemote
		if terms.Uses > 0 {
			role = store.RoleJoin
		}
		secret, err := auth.NewSecret()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kept.PutToken(t.Context(), store.PutToken{Name: name, Hash: auth.HashOf(secret), Role: role, Actor: "test", Terms: terms}); err != nil {
			t.Fatal(err)
		}
		secrets[name] = secret
	}
	now := time.Now
	serve := func(required bool) string {
		own := &certificate{cert: ca.file("server.crt"), key: ca.file("server.key"), authorities: ca.file("ca.crt"), now: time.Now, log: slog.New(slog.DiscardHandler)}
		if err := own.load(); err != nil {
			t.Fatal(err)
		}
		answers, err := service.New(service.Config{Store: kept, Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		handler, err := httpapi.Handler(httpapi.Config{Service: answers, Workers: host.New(host.Config{Store: kept, Tokens: tokens, Now: now}), Tokens: tokens, WorkerCertificates: required, Now: func() time.Time { return now() }})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: handler, TLSConfig: own.config(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), ReadHeaderTimeout: time.Minute}
		go func() { _ = s.ServeTLS(l, "", "") }()
		t.Cleanup(func() { _ = s.Close() })
		return "https://" + l.Addr().String()
	}
	may, must := serve(false), serve(true)

	// with returns a transport with a certificate, "" for none.
	with := func(a *authority, cert string) http.RoundTripper {
		t.Helper()
		c := config.Worker{CA: ca.file("ca.crt")}
		if cert != "" {
			c.Cert, c.Key = a.file(cert+".crt"), a.file(cert+".key")
		}
		w := &Worker{parts: &Server{Config: Config{Settings: config.Server{Worker: c}, Now: func() time.Time { return now() }, Log: slog.New(slog.DiscardHandler)}}}
		transport, err := w.transport()
		if err != nil {
			t.Fatal(err)
		}
		return transport
	}
	reach := func(server, token string, by http.RoundTripper) *remote.Client {
		t.Helper()
		c, err := remote.New(remote.Config{Servers: []string{server}, Token: func() (string, error) { return secrets[token], nil }, Transport: by})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, c := range []struct {
		server, token, cert string
		by                  *authority
		want                string // "" if it is admitted
	}{
		{may, "free", "", ca, ""},
		{may, "free", "two", ca, ""},
		{may, "by-host", "one", ca, ""},
		{may, "by-subject", "one", ca, ""},
		{may, "by-domain", "two", ca, ""},
		{may, "by-host", "", ca, "the token by-host is for a worker with the client certificate one.example.org, and there is none"},
		{may, "by-host", "two", ca, "the token by-host is for a worker with the client certificate one.example.org, and this one is for two.example.org, worker two"},
		{may, "by-subject", "two", ca, "the token by-subject is for a worker with the client certificate worker one"},
		{must, "free", "", ca, "workers need a client certificate, and there is none"},
		{must, "free", "one", ca, ""},
	} {
		err := reach(c.server, c.token, with(c.by, c.cert)).Wait(t.Context())
		var refused *remote.RefusedError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s with the certificate %q: %v", c.token, c.cert, err)
		case c.want != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) || refused.Problem.Type != client.TypeForbidden):
			t.Errorf("%s with the certificate %q: %v, want %q", c.token, c.cert, err, c.want)
		}
	}
	// A certificate of another authority does not even get a connection.
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	if err := reach(may, "by-host", with(foreign, "one")).Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a certificate of another authority: %v", err)
	}

	// A joining token hands on the name of the certificate that is presented.
	two := reach(may, "rack", with(ca, "two"))
	granted, err := two.Exchange(t.Context(), secrets["rack"], wire.OwnToken{Node: "two", Hash: auth.HashText(auth.HashOf("x"))})
	if err != nil || granted.Certificate != "two.example.org" {
		t.Errorf("granted is %+v, %v", granted, err)
	}

	// The certificate of a connection runs out: the next one has the renewed certificate.
	ca.worker("short", "one.example.org", "short", time.Minute)
	short := reach(may, "by-host", with(ca, "short"))
	if err := short.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	ca.worker("short", "one.example.org", "short", time.Hour)
	now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	if err := short.Wait(t.Context()); err != nil {
		t.Errorf("the renewed certificate is not used: %v", err)
	}
}
