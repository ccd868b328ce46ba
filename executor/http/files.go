package httpexec

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/job"
)

const (
	// fileMax is the most bytes of a file of certificates: five times a system's list of
	// authorities.
	fileMax = 1 << 20
	// readsMax is the most concurrent reads of files, so that a hanging file system
	// blocks no more threads.
	readsMax = 8
)

// files are the certificates and keys that jobs may name. The node reads them with its own rights,
// which exceed a job's: it can read its own key and the keys of others.
type files struct {
	dirs []string
	busy chan struct{} // limits concurrent readers
}

func newFiles(dirs []string) (*files, error) {
	f := &files{busy: make(chan struct{}, readsMax)}
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("http.tls_dirs: %s is not an absolute path", dir)
		}
		f.dirs = append(f.dirs, filepath.Clean(dir))
	}
	return f, nil
}

// within calls read, and returns early when ctx ends: files of a network file system may
// hang for as long as its server is down.
func (f *files) within(ctx context.Context, read func() (http.RoundTripper, error)) (http.RoundTripper, error) {
	select {
	case f.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	type answer struct {
		t   http.RoundTripper
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		defer func() { <-f.busy }()
		t, err := read()
		answered <- answer{t, err}
	}()
	select {
	case a := <-answered:
		return a.t, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stamp reports whether a file was changed.
type stamp struct {
	modified time.Time
	size     int64
}

func (f *files) stamp(name string) (stamp, error) {
	file, info, err := f.open(name)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.ModTime(), info.Size()}, file.Close()
}

// open opens a regular file in one of the directories. It refuses symbolic links that lead out of
// the directory, and does not block on a pipe without a writer.
func (f *files) open(name string) (*os.File, fs.FileInfo, error) {
	if !filepath.IsAbs(name) {
		return nil, nil, fmt.Errorf("%s is not an absolute path", name)
	}
	for _, dir := range f.dirs {
		inside, err := filepath.Rel(dir, name)
		if err != nil || !filepath.IsLocal(inside) {
			continue
		}
		return openIn(dir, inside)
	}
	if len(f.dirs) == 0 {
		return nil, nil, fmt.Errorf("jobs may not use %s: http.tls_dirs in the configuration of the node names the directories that they may use, and it names none", name)
	}
	return nil, nil, fmt.Errorf("jobs may not use %s: it is in none of the directories of http.tls_dirs in the configuration of the node", name)
}

func openIn(dir, inside string) (*os.File, fs.FileInfo, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	file, err := root.OpenFile(inside, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, nil, fmt.Errorf("open %s: %w", filepath.Join(dir, inside), err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", filepath.Join(dir, inside))
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// read reads a file of certificates, and refuses any other content.
func (f *files) read(name string) ([]byte, error) {
	file, _, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, fileMax+1))
	if err == nil && len(data) > fileMax {
		err = fmt.Errorf("%s is longer than %d bytes", name, fileMax)
	}
	return data, err
}

// tlsConfig reads the files that the options name.
func (f *files) tlsConfig(options job.TLS) (*tls.Config, error) {
	config := &tls.Config{
		ServerName:         options.ServerName,
		InsecureSkipVerify: options.Insecure, //nolint:gosec // the job says so: tls.insecure
		ClientSessionCache: tls.NewLRUClientSessionCache(idleMax),
	}
	if options.CA != "" {
		pem, err := f.read(options.CA)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read certificates: %s has none in PEM form", options.CA)
		}
	}
	if options.Cert != "" {
		cert, err := f.read(options.Cert)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		key, err := f.read(options.Key)
		if err != nil {
			return nil, fmt.Errorf("read client key: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read client certificate %s with key %s: %w", options.Cert, options.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
