package cli

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateEvery is how often the files of a certificate are looked at, at most: who
// has renewed it waits no longer, and many connections cost no more.
const certificateEvery = time.Minute

// certificate is that of a server, read again when its files have changed: one that is
// renewed every few weeks must not end a server that runs for months.
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

// get implements tls.Config.GetCertificate. As long as the new files are no
// certificate, perhaps because one of them is still to come, the old one counts.
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
		c.log.Error("the certificate has changed and cannot be read: the one before counts", "cert", c.cert, "key", c.key, "error", err)
		return c.loaded, nil
	}
	c.log.Info("the certificate was read again", "cert", c.cert)
	return c.loaded, nil
}
