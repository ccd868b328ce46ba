package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// clusterFlags select the cluster to read.
type clusterFlags struct {
	use                      bool
	file, context, namespace string
}

// kubeconfig has the fields of a kubeconfig that reading CronJobs needs.
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

// cluster is how a cluster is reached.
type cluster struct {
	server, context, namespace string
	token                      string
	tls                        *tls.Config
}

// cronJobs reads the CronJobs of a namespace of a cluster. An undo takes only its name.
func (f *clusterFlags) cronJobs(ctx context.Context, env Env, undo bool) ([]cronTable, error) {
	c, err := f.connect(env)
	name := fmt.Sprintf("namespace %s of %s", c.namespace, c.context)
	if undo && c.context != "" { // also by someone who can no longer sign in
		return []cronTable{{name: name}}, nil
	}
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = c.tls
	defer transport.CloseIdleConnections()
	header := http.Header{"Accept": {"application/json"}}
	if c.token != "" {
		header.Set("Authorization", "Bearer "+c.token)
	}
	// A redirect would send the token elsewhere.
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	text, err := getForeign(ctx, client, strings.TrimSuffix(c.server, "/")+"/apis/batch/v1/namespaces/"+url.PathEscape(c.namespace)+"/cronjobs", header)
	if err != nil {
		return nil, err
	}
	return []cronTable{{name: name, text: text}}, nil
}

// connect reads the kubeconfig.
func (f *clusterFlags) connect(env Env) (c cluster, err error) {
	name := f.file
	if name == "" {
		// Of several files the first one is used.
		name, _, _ = strings.Cut(env.Getenv("KUBECONFIG"), string(os.PathListSeparator))
	}
	if name == "" {
		name = filepath.Join(homeOf(env), ".kube", "config")
	}
	path := env.path(name)
	data, err := os.ReadFile(path)
	if err != nil {
		return c, unreadable(name, err).withHint("--kubeconfig names another one; kubectl get cronjobs -o yaml | belfry kubernetes import - needs none")
	}
	var k kubeconfig
	if err := yaml.Unmarshal(data, &k); err != nil {
		return c, failed("%s: it is no kubeconfig: %v", name, err)
	}
	wanted := f.context
	if wanted == "" {
		wanted = k.Current
	}
	at := slices.IndexFunc(k.Contexts, func(n kubeContext) bool { return n.Name == wanted })
	if at < 0 {
		return c, failed("%s: there is no context %q", name, wanted)
	}
	beside := func(file string) string {
		if file == "" || filepath.IsAbs(file) {
			return file
		}
		return filepath.Join(filepath.Dir(path), file)
	}
	in := &k.Contexts[at].Context
	c.context, c.namespace = wanted, cmp.Or(f.namespace, in.Namespace, "default")
	if err := c.trust(&k, in.Cluster, beside); err != nil {
		return c, failed("%s: certificate-authority: %v", name, err)
	}
	for _, of := range k.Users {
		if of.Name == in.User {
			if err := c.signIn(&of.User, beside); err != nil {
				return c, failed("%s: user %s: %v", name, of.Name, err).withHint("kubectl get cronjobs -o yaml | belfry kubernetes import - needs no sign-in")
			}
		}
	}
	if u, err := url.Parse(c.server); err != nil || u.Host == "" {
		return c, failed("%s: context %s has no cluster with a server", name, wanted)
	}
	if strings.HasPrefix(c.server, "http://") && c.token != "" {
		return c, failed("%s: a token would be sent to %s without TLS", name, c.server)
	}
	return c, nil
}

// trust sets the address and certificates of a cluster.
func (c *cluster) trust(k *kubeconfig, name string, beside func(string) string) error {
	c.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	for _, of := range k.Clusters {
		if of.Name != name {
			continue
		}
		c.server, c.tls.InsecureSkipVerify, c.tls.ServerName = of.Cluster.Server, of.Cluster.Insecure, of.Cluster.ServerName
		pem, err := dataOr(of.Cluster.CAData, beside(of.Cluster.CA))
		if err != nil {
			return err
		}
		if len(pem) > 0 {
			if c.tls.RootCAs = x509.NewCertPool(); !c.tls.RootCAs.AppendCertsFromPEM(pem) {
				return errors.New("it has no certificate")
			}
		}
	}
	return nil
}

// signIn sets the token or certificate of a user.
func (c *cluster) signIn(u *kubeUser, beside func(string) string) error {
	switch {
	case u.Exec != nil, u.Provider != nil:
		return fmt.Errorf("it signs in by another program, which is not supported")
	case u.Username != "":
		return fmt.Errorf("it signs in by a password, which clusters no longer accept")
	}
	c.token = strings.TrimSpace(u.Token)
	if c.token == "" && u.TokenFile != "" {
		data, err := os.ReadFile(beside(u.TokenFile))
		if err != nil {
			return err
		}
		c.token = strings.TrimSpace(string(data))
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
	c.tls.Certificates = []tls.Certificate{pair}
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
