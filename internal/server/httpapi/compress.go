package httpapi

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// compressFrom is the size of an answer from which compression is worth its header and its time.
const compressFrom = 1 << 10

// compressors are used again: a new one clears a megabyte. Speed counts more than size, as
// many clients are near.
var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return z
}}

// compressing compresses pages, and the JSON of reads, for clients that take it. Answers to
// changes are short, except to workers that claim runs, for which time counts.
func (a *api) compressing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		c := &compressor{ResponseWriter: w, read: r.Method == http.MethodGet}
		next.ServeHTTP(c, r)
		c.end() // not after a panic, which ends the connection
	})
}

// compressor compresses an answer if it is text of a certain size. It holds the beginning back
// until it knows.
type compressor struct {
	http.ResponseWriter
	read    bool // of a read
	status  int
	buffer  []byte
	decided bool
	z       *gzip.Writer
}

// Unwrap is for [http.ResponseController].
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *compressor) WriteHeader(status int) {
	if c.status != 0 || c.decided {
		return
	}
	c.status = status
	header := c.Header()
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	ours := kind == "text/html" || c.read && (kind == "application/json" || kind == "application/problem+json")
	if ours {
		header.Add("Vary", "Accept-Encoding")
	}
	if !ours || header.Get("Content-Encoding") != "" || status < http.StatusOK || status == http.StatusNoContent || status == http.StatusNotModified {
		c.decide(false)
	}
}

func (c *compressor) Write(data []byte) (int, error) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	if !c.decided {
		if len(c.buffer)+len(data) < compressFrom {
			c.buffer = append(c.buffer, data...)
			return len(data), nil
		}
		c.decide(true)
	}
	if c.z != nil {
		return c.z.Write(data)
	}
	return c.ResponseWriter.Write(data)
}

// decide sends what was held back.
func (c *compressor) decide(compress bool) {
	c.decided = true
	if compress {
		c.Header().Set("Content-Encoding", "gzip")
		c.Header().Del("Content-Length")
		c.z, _ = compressors.Get().(*gzip.Writer)
		c.z.Reset(c.ResponseWriter)
	}
	c.ResponseWriter.WriteHeader(c.status)
	if len(c.buffer) == 0 {
		return
	}
	data := c.buffer
	c.buffer = nil
	if c.z != nil {
		_, _ = c.z.Write(data)
		return
	}
	_, _ = c.ResponseWriter.Write(data)
}

// FlushError sends what there is so far.
func (c *compressor) FlushError() error {
	if !c.decided && c.status != 0 {
		c.decide(false)
	}
	if c.z != nil {
		if err := c.z.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// end sends the rest.
func (c *compressor) end() {
	if !c.decided && c.status != 0 {
		c.decide(false)
	}
	if c.z != nil {
		_ = c.z.Close() // its client may have left
		compressors.Put(c.z)
	}
}
