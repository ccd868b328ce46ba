package secret

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/cache"
	"github.com/belfry-cron/belfry/job"
)

// plain returns the cause of an error about a file, without its name.
func plain(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// readBounded reads a text of at most n bytes.
func readBounded(from io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return data, err
}

// Files is the directory of secrets in files, with a directory for each namespace. "" is none.
type Files string

// Read reads a file below the directory of a namespace. Links may not lead out of that
// directory: an administrator of one namespace must not read another file.
func (f Files) Read(namespace, name string) (string, error) {
	if f == "" {
		return "", errors.New("this server has no directory of secrets (notify.secrets)")
	}
	root, err := os.OpenRoot(filepath.Join(string(f), namespace))
	if err != nil {
		return "", plain(err)
	}
	defer root.Close()
	file, err := root.Open(name)
	if err != nil {
		return "", plain(err)
	}
	defer file.Close()
	data, err := readBounded(file, job.SecretMax)
	return string(data), err
}

// variable returns the name of the variable with a secret of a namespace. The name has no double
// underscore, so that two namespaces never share a variable.
func variable(namespace, name string) string {
	return "BELFRY_SECRET_" + strings.ToUpper(strings.ReplaceAll(namespace, "-", "_")) + "__" + name
}

const (
	// VaultCache is the default of secrets.vault.cache: how long a value may be out of date.
	VaultCache = time.Minute
	// VaultTimeout bounds a request to Vault.
	VaultTimeout = 10 * time.Second
	// vaultValuesMax bounds the values that are cached.
	vaultValuesMax = 1000
	vaultAnswerMax = 1 << 20
)

// Vault reads values from the KV API, version 2, of HashiCorp Vault or OpenBao.
type Vault struct {
	Address   string
	TokenFile string
	Namespace string // namespace of Vault itself; "" for none
	CA        string // a file with the certificates to trust; "" for the system's
	// Paths are the readable paths, as mount/path; {namespace} is the secret's namespace, and a
	// final * matches anything.
	Paths          []string
	Cache, Timeout time.Duration
	Now            func() time.Time

	mu     sync.Mutex
	values cache.Map[string, cacheEntry]
	client *http.Client
}

type cacheEntry struct {
	value string
	at    time.Time
}

// ParseVault reads mount/path#field.
func ParseVault(ref string) (at, field string, err error) {
	at, field, ok := strings.Cut(ref, "#")
	mount, rest, deep := strings.Cut(at, "/")
	if !ok || !deep || field == "" || mount == "" || mount == ".." || rest == "" || path.Clean(at) != at || strings.HasPrefix(at, "/") || strings.ContainsAny(ref, "?%\\*{}") {
		return "", "", fmt.Errorf("%q is not a place in Vault: write mount/path#field, for example secret/web/db#password", ref)
	}
	return at, field, nil
}

// allows reports whether a namespace may read a path.
func (v *Vault) allows(namespace, at string) bool {
	for _, pattern := range v.Paths {
		pattern = strings.ReplaceAll(pattern, "{namespace}", namespace)
		if prefix, any := strings.CutSuffix(pattern, "*"); pattern == at || any && strings.HasPrefix(at, prefix) {
			return true
		}
	}
	return false
}

// Check returns the mistake in a reference to a place in Vault.
func (v *Vault) Check(namespace, ref string) error {
	at, _, err := ParseVault(ref)
	switch {
	case err != nil:
		return err
	case v == nil || v.Address == "":
		return errors.New("this server reads nothing from Vault: set secrets.vault")
	case !v.allows(namespace, at):
		return fmt.Errorf("secrets.vault.paths of the server does not allow %s in the namespace %s", at, namespace)
	}
	return nil
}

// Read returns a value, from the cache if possible.
func (v *Vault) Read(ctx context.Context, namespace, ref string) (string, error) {
	if err := v.Check(namespace, ref); err != nil {
		return "", err
	}
	known, ok := v.values.Get(ref)
	if ok && v.Now().Sub(known.at) < v.Cache {
		return known.value, nil
	}
	at := v.Now()
	value, err := v.get(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("vault %s: %w", ref, err)
	}
	v.values.Put(ref, cacheEntry{value, at}, vaultValuesMax)
	return value, nil
}

// connect makes the client at its first use.
func (v *Vault) connect() (*http.Client, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.client != nil {
		return v.client, nil
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if v.CA != "" {
		text, err := os.ReadFile(v.CA)
		if err != nil {
			return nil, fmt.Errorf("secrets.vault.ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("secrets.vault.ca: %s has no certificate", v.CA)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	// A redirect would send the token somewhere else.
	v.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return v.client, nil
}

func (v *Vault) get(ctx context.Context, ref string) (string, error) {
	at, field, err := ParseVault(ref)
	if err != nil {
		return "", err
	}
	mount, rest, _ := strings.Cut(at, "/")
	token, err := readPrivate(v.TokenFile)
	if err != nil {
		return "", fmt.Errorf("secrets.vault.token_file %s: %w", v.TokenFile, err)
	}
	client, err := v.connect()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	address, err := url.JoinPath(v.Address, "v1", mount, "data", rest)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Vault-Token", strings.TrimSpace(string(token)))
	req.Header.Set("X-Vault-Request", "true")
	if v.Namespace != "" {
		req.Header.Set("X-Vault-Namespace", v.Namespace)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := readBounded(resp.Body, vaultAnswerMax)
	switch {
	case err != nil:
		return "", err
	case resp.StatusCode == http.StatusNotFound:
		return "", errors.New("there is nothing (404)")
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("it answers %s", resp.Status)
	}
	var answer struct {
		Data struct {
			Data map[string]any `json:"data"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", errors.New("its answer is not that of the KV API, version 2")
	}
	value, ok := answer.Data.Data[field].(string)
	if !ok {
		return "", fmt.Errorf("there is no text in the field %s", field)
	}
	if len(value) > job.SecretMax {
		return "", fmt.Errorf("the value has more than %d bytes", job.SecretMax)
	}
	return value, nil
}
