// Package address reads the addresses of stores that run on several hosts.
package address

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Error is a mistake in the address of a store.
type Error struct {
	System string // such as etcd
	Cause  error
}

func (e *Error) Error() string { return "address of " + e.System + ": " + e.Cause.Error() }

// Unwrap returns the mistake.
func (e *Error) Unwrap() error { return e.Cause }

// Form is the form of a system's addresses.
type Form struct {
	System string // for messages
	Scheme string
	Port   string // default port of a host
	// Parameters are the parameters of the system besides the TLS parameters.
	Parameters []string
}

// Address is a parsed address.
type Address struct {
	Hosts          []string // with ports
	User, Password string
	// Prefix is the path after the hosts, "belfry" if there is none.
	Prefix string
	TLS    *tls.Config // nil without TLS
	// Parameters of the form, by name.
	Parameters map[string]string
}

// PrefixDefault begins the keys of a cluster that chooses no other prefix.
const PrefixDefault = "belfry"

// tlsParameters are valid for every system.
var tlsParameters = []string{"tls", "ca", "cert", "key", "server-name"}

// Parse reads an address such as scheme://user:password@host1:port,host2/prefix?tls=true. Its
// error is an *Error.
func (f Form) Parse(text string) (a Address, err error) {
	if a, err = f.parse(text); err != nil {
		return a, &Error{f.System, err}
	}
	return a, nil
}

func (f Form) parse(text string) (a Address, err error) {
	rest, ok := strings.CutPrefix(text, f.Scheme+"://")
	if !ok {
		return a, fmt.Errorf("does not begin with %s://", f.Scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, prefix, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		user, password, _ := strings.Cut(hosts[:at], ":")
		hosts = hosts[at+1:]
		if a.User, err = url.PathUnescape(user); err != nil {
			return a, errors.New("in the user %, /, ?, # and @ are written %25, %2F, %3F, %23 and %40")
		}
		if a.Password, err = url.PathUnescape(password); err != nil {
			return a, errors.New("in the password %, /, ?, # and @ are written %25, %2F, %3F, %23 and %40")
		}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return a, fmt.Errorf("a host is missing, such as %s://127.0.0.1:%s", f.Scheme, f.Port)
		}
		if !strings.Contains(strings.TrimPrefix(host, "["), ":") || strings.HasSuffix(host, "]") {
			host += ":" + f.Port
		}
		a.Hosts = append(a.Hosts, host)
	}
	if a.Prefix, err = url.PathUnescape(prefix); err != nil {
		return a, fmt.Errorf("prefix %q: %w", prefix, err)
	}
	a.Prefix = cmp.Or(strings.Trim(a.Prefix, "/"), PrefixDefault)
	values, err := url.ParseQuery(query)
	if err != nil {
		return a, fmt.Errorf("parameters: %w", err)
	}
	known := slices.Concat(tlsParameters, f.Parameters)
	a.Parameters = map[string]string{}
	for name, list := range values {
		if !slices.Contains(known, name) {
			last := len(known) - 1
			return a, fmt.Errorf("unknown parameter %q, allowed are %s and %s", name, strings.Join(known[:last], ", "), known[last])
		}
		a.Parameters[name] = list[len(list)-1]
	}
	return a, a.encrypt()
}

// Switch returns whether a parameter is on.
func (a *Address) Switch(name string, byDefault bool) (bool, error) {
	switch value := a.Parameters[name]; value {
	case "":
		return byDefault, nil
	case "on", "true":
		return true, nil
	case "off", "false":
		return false, nil
	default:
		return false, fmt.Errorf("%s: %q is neither on nor off", name, value)
	}
}

// encrypt reads the parameters for TLS.
func (a *Address) encrypt() error {
	named := slices.ContainsFunc(tlsParameters[1:], func(name string) bool { return a.Parameters[name] != "" })
	wanted, err := a.Switch("tls", named)
	switch {
	case err != nil:
		return fmt.Errorf("tls: %q is neither true nor false", a.Parameters["tls"])
	case named && !wanted:
		return errors.New("tls=false stands beside ca, cert, key or server-name")
	case !wanted:
		return nil
	}
	a.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.Parameters["server-name"]}
	if file := a.Parameters["ca"]; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("ca: %w", err)
		}
		if a.TLS.RootCAs = x509.NewCertPool(); !a.TLS.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("ca: %s has no certificates", file)
		}
	}
	cert, key := a.Parameters["cert"], a.Parameters["key"]
	if (cert == "") != (key == "") {
		return errors.New("cert and key stand together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("cert and key: %w", err)
		}
		a.TLS.Certificates = []tls.Certificate{pair}
	}
	return nil
}
