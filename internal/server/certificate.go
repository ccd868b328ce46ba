package server

import (
	"crypto/tls"
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
	cert, key string // files
	now       func() time.Time
	log       *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	files  [2]fileState // that it was read from, or last tried
	looked time.Time
}

// fileState tells versions of a file apart.
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
	c.files = [2]fileState{stateOf(c.cert), stateOf(c.key)}
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err == nil {
		c.loaded = &loaded
	}
	return err
}

// reload reads the certificate now, from the files that are named now. If it cannot, the
// old one stays.
func (c *certificate) reload(cert, key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldCert, oldKey := c.cert, c.key
	c.cert, c.key = cert, key
	err := c.load()
	if err != nil {
		c.cert, c.key = oldCert, oldKey
	}
	return err
}

// get implements tls.Config.GetCertificate. While the new files are no
// certificate, perhaps because only one of them is written yet, it returns the old one.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := c.now().Sub(c.looked); since >= 0 && since < certificateEvery {
		return c.loaded, nil
	}
	c.looked = c.now()
	if c.files == [2]fileState{stateOf(c.cert), stateOf(c.key)} {
		return c.loaded, nil
	}
	if err := c.load(); err != nil {
		c.log.Error("cannot read the changed certificate; the server keeps the old one", "cert", c.cert, "key", c.key, "error", err)
		return c.loaded, nil
	}
	c.log.Info("certificate reloaded", "cert", c.cert)
	return c.loaded, nil
}
