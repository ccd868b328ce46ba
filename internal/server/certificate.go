package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateEvery bounds how often the files of a certificate are checked, and so how long
// a renewed one may stay unused.
const certificateEvery = time.Minute

// certificate is the certificate of a server. It is read again when its files change, so
// that a renewal needs no restart.
type certificate struct {
	cert, key   string // files
	authorities string // the authorities of workers' certificates; "" for none
	now         func() time.Time
	log         *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	issued *x509.CertPool // the authorities of clients' certificates
	files  [3]fileState   // state of the files at the last try
	looked time.Time
}

// fileState identifies a version of a file.
type fileState struct {
	size    int64
	changed time.Time
}

func stateOf(name string) fileState {
	info, err := os.Stat(name)
	if err != nil {
		return fileState{}
	}
	return fileState{info.Size(), info.ModTime()}
}

// load reads the certificate.
func (c *certificate) load() error {
	c.looked = c.now()
	c.files = c.states()
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	var issued *x509.CertPool
	if c.authorities != "" {
		if issued, err = certificatesIn(c.authorities); err != nil {
			return err
		}
	}
	c.loaded, c.issued = &loaded, issued
	return nil
}

func (c *certificate) states() [3]fileState {
	return [3]fileState{stateOf(c.cert), stateOf(c.key), stateOf(c.authorities)}
}

// certificatesIn reads the certificates of a file.
func certificatesIn(name string) (*x509.CertPool, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", name)
	}
	return pool, nil
}

// config returns what a server listens with. Clients may present a certificate, which must be
// good then; who needs one is decided by request.
func (c *certificate) config() *tls.Config {
	own := &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}
	own.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if _, err := c.get(nil); err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.issued == nil {
			return nil, nil //nolint:nilnil // the configuration stays as it is
		}
		asks := own.Clone()
		asks.GetConfigForClient = nil
		asks.ClientCAs, asks.ClientAuth = c.issued, tls.VerifyClientCertIfGiven
		return asks, nil
	}
	return own
}

// forServer implements tls.Config.GetClientCertificate.
func (c *certificate) forServer(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return c.get(nil)
}

// reload reads the certificate now, from the files that are named now. After a failure the old one
// stays.
func (c *certificate) reload(cert, key, authorities string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldCert, oldKey, oldAuthorities, oldFiles := c.cert, c.key, c.authorities, c.files
	c.cert, c.key, c.authorities = cert, key, authorities
	if err := c.load(); err != nil {
		c.cert, c.key, c.authorities = oldCert, oldKey, oldAuthorities
		return err
	}
	if c.files != oldFiles {
		c.log.Info("certificate reloaded", "cert", c.cert)
	}
	return nil
}

// get implements tls.Config.GetCertificate. While the new files are invalid, perhaps half written,
// it returns the old one.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := c.now().Sub(c.looked); since >= 0 && since < certificateEvery {
		return c.loaded, nil
	}
	c.looked = c.now()
	if c.files == c.states() {
		return c.loaded, nil
	}
	if err := c.load(); err != nil {
		c.log.Error("cannot read the changed certificate; the old one stays", "cert", c.cert, "key", c.key, "error", err)
		return c.loaded, nil
	}
	c.log.Info("certificate reloaded", "cert", c.cert)
	return c.loaded, nil
}
