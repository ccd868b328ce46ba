package dashboard

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"
)

// moved writes answers for the root of a host as answers below a path. Pages name their addresses in
// attributes alone, since templates escape quotes everywhere else; scripts take theirs from their own address.
type moved struct {
	http.ResponseWriter
	path    string
	begun   bool
	isPage  bool
	page    bytes.Buffer
	toLogin bool // the session is over
}

// address is the beginning of an attribute with an address on this host.
var address = regexp.MustCompile(`((?:href|src|action|formaction|data-[a-z-]+)=")/`)

// Unwrap lets [http.ResponseController] flush.
func (m *moved) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// Flush implements [http.Flusher].
func (m *moved) Flush() {
	if !m.isPage {
		_ = http.NewResponseController(m.ResponseWriter).Flush()
	}
}

// WriteHeader implements [http.ResponseWriter].
func (m *moved) WriteHeader(status int) {
	if m.begun {
		return
	}
	m.begun = true
	h := m.Header()
	if to := h.Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.HasPrefix(to, m.path+"/") {
		m.toLogin = strings.HasPrefix(to, "/ui/login")
		h.Set("Location", m.path+to)
	}
	for i, cookie := range h["Set-Cookie"] {
		h["Set-Cookie"][i] = strings.Replace(cookie, "; Path=/", "; Path="+m.path+"/", 1)
	}
	if m.isPage = strings.HasPrefix(h.Get("Content-Type"), "text/html"); m.isPage {
		h.Del("Content-Length")
	}
	m.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (m *moved) Write(p []byte) (int, error) {
	m.WriteHeader(http.StatusOK)
	if m.isPage {
		return m.page.Write(p)
	}
	return m.ResponseWriter.Write(p)
}

// end writes the page.
func (m *moved) end() {
	if m.isPage {
		_, _ = m.ResponseWriter.Write(address.ReplaceAll(m.page.Bytes(), []byte("${1}"+m.path+"/")))
	}
}
