package servers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// Certificate names the files of a certificate of a server, which is its own authority.
type Certificate struct{ Certificate, Key string }

// NewCertificate makes a certificate for a name or an address, in a folder.
func NewCertificate(dir, host string) (c Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return c, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, err
	}
	c = Certificate{filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")}
	return c, errors.Join(
		os.WriteFile(c.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o644),
		os.WriteFile(c.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600),
	)
}

// RequireTLS makes the server refuse connections without TLS, and returns the file of its
// certificate authority for the host.
func (p *Postgres) RequireTLS(host string) (authority string, err error) {
	c, err := NewCertificate(p.Dir, host)
	if err != nil {
		return "", err
	}
	if p.as != nil {
		if err := os.Chown(c.Key, int(p.as.Uid), int(p.as.Gid)); err != nil {
			return "", err
		}
	}
	conn, err := pgx.Connect(context.Background(), p.URL())
	if err != nil {
		return "", err
	}
	defer conn.Close(context.Background())
	settings := "ssl = on\nssl_cert_file = '" + c.Certificate + "'\nssl_key_file = '" + c.Key + "'\n"
	err = errors.Join(
		appendTo(filepath.Join(p.data(), "postgresql.conf"), settings),
		os.WriteFile(filepath.Join(p.data(), "pg_hba.conf"), []byte("hostssl all all 127.0.0.1/32 trust\n"), 0),
	)
	if err != nil {
		return "", err
	}
	_, err = conn.Exec(context.Background(), "select pg_reload_conf()")
	return c.Certificate, err
}
