package httpexec_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/executor"
	httpexec "github.com/belfry-cron/belfry/executor/http"
	"github.com/belfry-cron/belfry/job"
)

func TestTLSOptions(t *testing.T) {
	ca := newAuthority(t)
	var proto, client string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proto, client = r.Proto, ""
		if len(r.TLS.PeerCertificates) > 0 {
			client = r.TLS.PeerCertificates[0].Subject.CommonName
		}
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = quiet
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{ca.issue(t, "inside.example")},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    ca.pool,
	}
	s.StartTLS()
	defer s.Close()
	cert, key := ca.files(t, "node-a")
	e := newExecutor(t, httpexec.Config{})
	for _, test := range []struct {
		name    string
		options *job.TLS
		reason  string
		client  string
	}{
		{"none", nil, "invalid certificate of the server", ""},
		{"the authority, and another name than that of the certificate", &job.TLS{CA: ca.file}, "invalid certificate of the server", ""},
		{"authority and name", &job.TLS{CA: ca.file, ServerName: "inside.example"}, "", ""},
		{"a certificate of the node", &job.TLS{CA: ca.file, ServerName: "inside.example", Cert: cert, Key: key}, "", "node-a"},
		{"any certificate", &job.TLS{Insecure: true}, "", ""},
		{"a file that is no certificate", &job.TLS{CA: key}, "has none in PEM form", ""},
		{"a key without its certificate", &job.TLS{Cert: key, Key: key}, "read client certificate", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			proto = ""
			r, _ := run(t, e, attempt(job.HTTP{URL: s.URL, TLS: test.options}))
			if test.reason != "" {
				wantFailure(t, r, test.reason)
				return
			}
			if r.Outcome != job.OutcomeSucceeded || proto != "HTTP/2.0" || client != test.client {
				t.Errorf("got %+v by %s from %q", r, proto, client)
			}
		})
	}
}

func TestCertificateIsNotShownToAnotherHost(t *testing.T) {
	ca := newAuthority(t)
	shown := -1
	other := tlsServer(t, "127.0.0.2", ca, func(_ http.ResponseWriter, r *http.Request) { shown = len(r.TLS.PeerCertificates) })
	home := tlsServer(t, "127.0.0.1", ca, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusFound)
	})
	cert, key := ca.files(t, "node-a")
	r, _ := run(t, newExecutor(t, httpexec.Config{}), attempt(job.HTTP{URL: home.URL, TLS: &job.TLS{CA: ca.file, Cert: cert, Key: key}}))
	if r.Outcome != job.OutcomeSucceeded || shown != 0 {
		t.Errorf("got %+v; %d certificates were shown", r, shown)
	}
}

func TestChangedFilesAreReadAgain(t *testing.T) {
	old, renewed := newAuthority(t), newAuthority(t)
	s := tlsServer(t, "127.0.0.1", renewed, func(http.ResponseWriter, *http.Request) {})
	file := filepath.Join(t.TempDir(), "ca.pem")
	copyFile(t, file, old.file)
	e := newExecutor(t, httpexec.Config{})
	a := attempt(job.HTTP{URL: s.URL, TLS: &job.TLS{CA: file}})
	r, _ := run(t, e, a)
	wantFailure(t, r, "not signed by a trusted authority")
	copyFile(t, file, renewed.file)
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if r, _ := run(t, e, a); r.Outcome != job.OutcomeSucceeded {
		t.Error(r.Reason)
	}
}

// The node may read its own key and the keys of others, which a job may not use.
func TestTLSFilesAreThoseOfTheAllowedDirectories(t *testing.T) {
	ca := newAuthority(t)
	s := tlsServer(t, "127.0.0.1", ca, func(http.ResponseWriter, *http.Request) {})
	allowed, other := t.TempDir(), t.TempDir()
	copyFile(t, filepath.Join(allowed, "ca.pem"), ca.file)
	copyFile(t, filepath.Join(other, "ca.pem"), ca.file)
	if err := os.Symlink(filepath.Join(other, "ca.pem"), filepath.Join(allowed, "link.pem")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("ca.pem", filepath.Join(allowed, "inside.pem")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		dirs         []string
		file, reason string
	}{
		{[]string{other, allowed}, filepath.Join(allowed, "ca.pem"), ""},
		{[]string{allowed}, filepath.Join(allowed, "inside.pem"), ""},
		{[]string{allowed}, filepath.Join(other, "ca.pem"), "it is in none of the directories of http.tls_dirs"},
		{[]string{allowed}, allowed + "/../" + filepath.Base(other) + "/ca.pem", "it is in none of the directories of http.tls_dirs"},
		{[]string{allowed}, filepath.Join(allowed, "link.pem"), "escapes"},
		{[]string{allowed}, allowed, "is not a regular file"},
		{[]string{allowed}, "ca.pem", "is not an absolute path"},
		{[]string{}, filepath.Join(allowed, "ca.pem"), "http.tls_dirs in the configuration of the node names the directories that they may use, and it names none"},
	} {
		r, _ := run(t, newExecutor(t, httpexec.Config{TLSDirs: test.dirs}), attempt(job.HTTP{URL: s.URL, TLS: &job.TLS{CA: test.file}}))
		switch {
		case test.reason != "":
			wantFailure(t, r, test.reason)
		case r.Outcome != job.OutcomeSucceeded:
			t.Errorf("%s: %s", test.file, r.Reason)
		}
	}
	if _, err := httpexec.New(httpexec.Config{TLSDirs: []string{"certificates"}}); err == nil {
		t.Error("a relative directory is allowed")
	}
}

// A pipe that no process writes to would hold a run without end.
func TestPipeAsTLSFileBlocksNothing(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "ca.pem")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	r, _ := run(t, newExecutor(t, httpexec.Config{}), attempt(job.HTTP{URL: "https://example.com", TLS: &job.TLS{CA: pipe}}))
	wantFailure(t, r, "is not a regular file")
}

func TestHangingFileSystemBlocksNothing(t *testing.T) {
	e := newExecutor(t, httpexec.Config{})
	release := e.HoldReads()
	defer release()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(executor.ErrCancelled)
	r := e.Run(ctx, attempt(job.HTTP{URL: "https://example.com", TLS: &job.TLS{CA: filepath.Join(t.TempDir(), "ca.pem")}}), executor.Output{Stdout: io.Discard, Stderr: io.Discard})
	if r.Outcome != job.OutcomeCancelled {
		t.Errorf("got %+v", r)
	}
}

func TestManyTLSOptionsKeepABoundedNumberOfTransports(t *testing.T) {
	ca := newAuthority(t)
	s := tlsServer(t, "127.0.0.1", ca, func(http.ResponseWriter, *http.Request) {})
	e := newExecutor(t, httpexec.Config{})
	for i := range 50 {
		h := job.HTTP{URL: s.URL, TLS: &job.TLS{Insecure: true, ServerName: fmt.Sprintf("host-%d.example", i)}}
		if r, _ := run(t, e, attempt(h)); r.Outcome != job.OutcomeSucceeded {
			t.Fatal(r.Reason)
		}
	}
	if n := e.Transports(); n > 32 {
		t.Errorf("%d transports are kept", n)
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, pool: x509.NewCertPool(), file: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// issue returns a certificate for a name or address.
func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// files writes a certificate and its key.
func (a *authority) files(t *testing.T, name string) (cert, key string) {
	t.Helper()
	pair := a.issue(t, name)
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, cert, "CERTIFICATE", pair.Certificate[0])
	writePEM(t, key, "PRIVATE KEY", der)
	return cert, key
}

// tlsServer requests a client certificate and accepts any or none.
func tlsServer(t *testing.T, host string, ca *authority, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.Listener.Close()
	s.Listener = l
	s.Config.ErrorLog = quiet
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, host)}, ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
