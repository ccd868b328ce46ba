package kube

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ErrSignIn is a user of a kubeconfig that cannot sign in by this package.
var ErrSignIn = errors.New("cannot sign in")

// accountDir has the service account of a pod.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// kubeconfig has the used fields of a kubeconfig.
type kubeconfig struct {
	Current  string        `yaml:"current-context"`
	Contexts []kubeContext `yaml:"contexts"`
	Clusters []struct {
		Name    string `yaml:"name"`
		Cluster struct {
			Server     string `yaml:"server"`
			CA         string `yaml:"certificate-authority"`
			CAData     string `yaml:"certificate-authority-data"`
			Insecure   bool   `yaml:"insecure-skip-tls-verify"`
			ServerName string `yaml:"tls-server-name"`
		} `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string   `yaml:"name"`
		User kubeUser `yaml:"user"`
	} `yaml:"users"`
}

type kubeContext struct {
	Name    string `yaml:"name"`
	Context struct {
		Cluster   string `yaml:"cluster"`
		User      string `yaml:"user"`
		Namespace string `yaml:"namespace"`
	} `yaml:"context"`
}

type kubeUser struct {
	Token     string `yaml:"token"`
	TokenFile string `yaml:"tokenFile"`
	Cert      string `yaml:"client-certificate"`
	CertData  string `yaml:"client-certificate-data"`
	Key       string `yaml:"client-key"`
	KeyData   string `yaml:"client-key-data"`
	Username  string `yaml:"username"`
	Exec      any    `yaml:"exec"`
	Provider  any    `yaml:"auth-provider"`
}

// Open returns a client for a context of a kubeconfig, the current one for "". Errors name the file as
// shown. The client has a Context even if the user of the kubeconfig cannot sign in.
func Open(path, shown, context string) (*Client, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var k kubeconfig
	if err := yaml.Unmarshal(data, &k); err != nil {
		return nil, fmt.Errorf("%s: it is no kubeconfig: %w", shown, err)
	}
	wanted := cmp.Or(context, k.Current)
	at := slices.IndexFunc(k.Contexts, func(n kubeContext) bool { return n.Name == wanted })
	if at < 0 {
		return nil, fmt.Errorf("%s: there is no context %q", shown, wanted)
	}
	beside := func(file string) string {
		if file == "" || filepath.IsAbs(file) {
			return file
		}
		return filepath.Join(filepath.Dir(path), file)
	}
	in := &k.Contexts[at].Context
	c := &Client{Context: wanted, Namespace: cmp.Or(in.Namespace, "default")}
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if err := c.trust(settings, &k, in.Cluster, beside); err != nil {
		return c, fmt.Errorf("%s: certificate-authority: %w", shown, err)
	}
	for _, of := range k.Users {
		if of.Name == in.User {
			if err := c.signIn(settings, &of.User, beside); err != nil {
				return c, fmt.Errorf("%s: user %s: %w", shown, of.Name, err)
			}
		}
	}
	if u, err := url.Parse(c.server); err != nil || u.Host == "" {
		return c, fmt.Errorf("%s: context %s has no cluster with a server", shown, wanted)
	}
	if strings.HasPrefix(c.server, "http://") && (c.token != "" || c.tokenFile != "") {
		return c, fmt.Errorf("%s: a token would be sent to %s without TLS", shown, c.server)
	}
	c.connect(settings)
	return c, nil
}

// InCluster returns a client for the cluster that this process is a pod of, with its service account.
func InCluster(getenv func(string) string) (*Client, error) { return inCluster(accountDir, getenv) }

func inCluster(dir string, getenv func(string) string) (*Client, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("this process is not in a pod: KUBERNETES_SERVICE_HOST is not set")
	}
	pem, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("the pod has no service account: %w", err)
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !settings.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", filepath.Join(dir, "ca.crt"))
	}
	namespace, err := os.ReadFile(filepath.Join(dir, "namespace"))
	if err != nil {
		return nil, fmt.Errorf("the pod has no service account: %w", err)
	}
	c := &Client{Context: "in-cluster", Namespace: strings.TrimSpace(string(namespace)), server: "https://" + net.JoinHostPort(host, port), tokenFile: filepath.Join(dir, "token")}
	c.connect(settings)
	return c, nil
}

// trust sets the address and certificates of a cluster.
func (c *Client) trust(settings *tls.Config, k *kubeconfig, name string, beside func(string) string) error {
	for _, of := range k.Clusters {
		if of.Name != name {
			continue
		}
		c.server, settings.InsecureSkipVerify, settings.ServerName = strings.TrimSuffix(of.Cluster.Server, "/"), of.Cluster.Insecure, of.Cluster.ServerName
		pem, err := dataOr(of.Cluster.CAData, beside(of.Cluster.CA))
		if err != nil {
			return err
		}
		if len(pem) > 0 {
			if settings.RootCAs = x509.NewCertPool(); !settings.RootCAs.AppendCertsFromPEM(pem) {
				return errors.New("it has no certificate")
			}
		}
	}
	return nil
}

// signIn sets the token or certificate of a user.
func (c *Client) signIn(settings *tls.Config, u *kubeUser, beside func(string) string) error {
	switch {
	case u.Exec != nil, u.Provider != nil:
		return fmt.Errorf("%w: it signs in by another program, which is not supported", ErrSignIn)
	case u.Username != "":
		return fmt.Errorf("%w: it signs in by a password, which clusters no longer accept", ErrSignIn)
	}
	if c.token = strings.TrimSpace(u.Token); c.token == "" {
		c.tokenFile = beside(u.TokenFile)
	}
	cert, err := dataOr(u.CertData, beside(u.Cert))
	if err != nil {
		return err
	}
	key, err := dataOr(u.KeyData, beside(u.Key))
	if err != nil || len(cert) == 0 {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	settings.Certificates = []tls.Certificate{pair}
	return err
}

// dataOr returns data that a kubeconfig has in base64 or in a file.
func dataOr(encoded, file string) ([]byte, error) {
	switch {
	case encoded != "":
		return base64.StdEncoding.DecodeString(encoded)
	case file != "":
		return os.ReadFile(file)
	}
	return nil, nil
}

// connect makes the client of HTTP.
func (c *Client) connect(settings *tls.Config) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = settings
	transport.MaxIdleConnsPerHost = idleConnections
	// A redirect would send the token elsewhere.
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
