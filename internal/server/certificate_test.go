package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// issue writes a certificate with a number, and its key.
func issue(t *testing.T, cert, key string, number int64) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(number), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		// Files written one after the other may have the same time.
		if err := os.Chtimes(name, time.Time{}, time.Unix(1_800_000_000+number, 0)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRenewedCertificateIsReloaded(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	var log bytes.Buffer
	now := time.Now()
	c := &certificate{cert: cert, key: key, now: func() time.Time { return now }, log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := c.load(); err == nil {
		t.Fatal("a certificate that does not exist was read")
	}
	shows := func(when string, want int64) {
		t.Helper()
		if got := serialOf(t, c); got != want {
			t.Errorf("%s it shows the certificate %d, want %d", when, got, want)
		}
	}
	issue(t, cert, key, 1)
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	issue(t, cert, key, 2)
	shows("within a minute", 1)
	now = now.Add(certificateEvery)
	shows("a minute later", 2)

	// One of the two files is written first.
	other := filepath.Join(t.TempDir(), "key")
	issue(t, cert, other, 3)
	for range 3 {
		now = now.Add(certificateEvery)
		shows("with a key that does not fit", 2)
	}
	if n := strings.Count(log.String(), "cannot read the changed"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, log.String())
	}
	text, err := os.ReadFile(other)
	if err == nil {
		err = os.WriteFile(key, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(certificateEvery)
	shows("with both", 3)
	if n := strings.Count(log.String(), "certificate reloaded"); n != 2 {
		t.Errorf("the log has:\n%s", log.String())
	}
}

// serialOf returns the number of the certificate that is shown.
func serialOf(t *testing.T, c *certificate) int64 {
	t.Helper()
	shown, err := c.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(shown.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf.SerialNumber.Int64()
}

func TestReloadReadsTheCertificateAtOnce(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	issue(t, cert, key, 1)
	var log bytes.Buffer
	now := time.Now()
	c := &certificate{cert: cert, key: key, now: func() time.Time { return now }, log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	shows := func(when string, want int64, lines int) {
		t.Helper()
		if got := serialOf(t, c); got != want {
			t.Errorf("%s it shows the certificate %d, want %d", when, got, want)
		}
		if n := strings.Count(log.String(), "certificate reloaded"); n != lines {
			t.Errorf("%s the log has %d reloads, want %d:\n%s", when, n, lines, log.String())
		}
	}
	if err := c.reload(cert, key, ""); err != nil {
		t.Fatal(err)
	}
	shows("without a change", 1, 0)
	issue(t, cert, key, 2)
	if err := c.reload(cert, key, ""); err != nil {
		t.Fatal(err)
	}
	shows("after the renewal", 2, 1)
	if err := c.reload(filepath.Join(dir, "absent"), key, ""); err == nil {
		t.Error("an absent file is no error")
	}
	shows("after an absent file", 2, 1)
	other, otherKey := filepath.Join(dir, "other"), filepath.Join(dir, "other-key")
	issue(t, other, otherKey, 3)
	if err := c.reload(other, otherKey, ""); err != nil {
		t.Fatal(err)
	}
	shows("with other files", 3, 2)
}
