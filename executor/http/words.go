package httpexec

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/internal/sys/egress"
)

// described returns the request that an error is about, possibly one after a redirect.
func described(first *http.Request, err error) string {
	var failure *url.Error
	if errors.As(err, &failure) {
		if u, parseErr := url.Parse(failure.URL); parseErr == nil {
			return strings.ToUpper(failure.Op) + " " + place(u)
		}
	}
	return first.Method + " " + place(first.URL)
}

// place returns the part of a URL that is no secret: no user, no query.
func place(u *url.URL) string {
	p := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return p.String()
}

// literal returns the address that the host of a URL is, if it is no name.
func literal(u *url.URL) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(u.Hostname())
	return addr, err == nil
}

// withoutURL removes the URL from an error, since it may include a password.
func withoutURL(err error) error {
	var failure *url.Error
	if errors.As(err, &failure) {
		return failure.Err
	}
	return err
}

// inWords describes the error of a request without its URL.
func inWords(err error) string {
	err = withoutURL(err)
	var (
		refused     *egress.Refusal
		unknownName *net.DNSError
		notTLS      tls.RecordHeaderError
		unknownCA   x509.UnknownAuthorityError
		certificate *tls.CertificateVerificationError
		alert       tls.AlertError
		timeout     net.Error
	)
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case isShortage(err):
		return "the machine has no room for another connection: " + err.Error()
	case errors.As(err, &unknownName) && unknownName.IsNotFound:
		return fmt.Sprintf("there is no host %q", unknownName.Name)
	case errors.As(err, &unknownName):
		return fmt.Sprintf("cannot resolve %q: %s", unknownName.Name, unknownName.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "no route to the host"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the server reset the connection"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the server closed the connection"
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &notTLS):
		return "the server does not speak TLS; is the URL http instead of https?"
	case errors.As(err, &unknownCA):
		return "the certificate of the server is not signed by a trusted authority; run.http.tls.ca can name one"
	case errors.As(err, &certificate):
		return "invalid certificate of the server: " + certificate.Err.Error()
	case errors.As(err, &alert):
		return "the server refused the connection: " + alert.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no connection in time: " + err.Error()
	}
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "net/"), "http: ")
}

// shorten cuts a long reason.
func shorten(reason string) string {
	if len(reason) <= reasonMax {
		return reason
	}
	reason = reason[:reasonMax]
	for !utf8.ValidString(reason) && len(reason) > reasonMax-utf8.UTFMax {
		reason = reason[:len(reason)-1]
	}
	return reason + "…"
}
