package auth

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/store"
)

// WorkerTokenFile is the file in the data directory of a worker with the token from the exchange of
// a joining token.
const WorkerTokenFile = "worker-token"

// OwnToken returns the worker's token in its data directory, and whether a server has
// accepted it already. If necessary it makes one: the worker writes it before the request,
// so that an exchange with a lost answer is repeated with the same token.
func OwnToken(dir string) (secret string, joined bool, err error) {
	if secret, err = readOwn(filepath.Join(dir, WorkerTokenFile)); !errors.Is(err, fs.ErrNotExist) {
		return secret, true, err
	}
	if secret, err = readOwn(filepath.Join(dir, newWorkerToken)); !errors.Is(err, fs.ErrNotExist) && isSecret(secret) {
		return secret, false, err
	}
	if secret, err = NewSecret(); err != nil {
		return "", false, err
	}
	return secret, false, write(dir, newWorkerToken, secret)
}

const newWorkerToken = WorkerTokenFile + ".new"

// KeepOwnToken records that a server has accepted the token of [OwnToken].
func KeepOwnToken(dir string) error {
	return os.Rename(filepath.Join(dir, newWorkerToken), filepath.Join(dir, WorkerTokenFile))
}

// HashText writes the hash of a token for a request.
func HashText(hash store.TokenHash) string { return base64.RawURLEncoding.EncodeToString(hash[:]) }

// ParseHash reads what [HashText] has written.
func ParseHash(text string) (hash store.TokenHash, ok bool) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) != len(hash) {
		return hash, false
	}
	return store.TokenHash(data), true
}

// CertificateNames returns the names in a certificate, most specific first: host names, URIs, mail
// addresses, and the common name of its subject.
func CertificateNames(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, uri := range c.URIs {
		names = append(names, uri.String())
	}
	names = append(names, c.EmailAddresses...)
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return names
}

// NameOfCertificate returns the name of a certificate that a token requires, "" if the certificate
// lacks it.
func NameOfCertificate(c *x509.Certificate, wanted string) string {
	if c == nil {
		return ""
	}
	for _, name := range CertificateNames(c) {
		if strings.EqualFold(name, wanted) {
			return name
		}
		host, isPattern := strings.CutPrefix(wanted, "*.")
		if _, domain, found := strings.Cut(name, "."); isPattern && found && !strings.ContainsAny(name, ":/@") && strings.EqualFold(domain, host) {
			return name
		}
	}
	return ""
}
