package config

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// XXL configures the connections between a server and XXL-JOB executors.
type XXL struct {
	Listen   Address `json:"listen,omitzero" doc:"The address that executors of XXL-JOB call, apart from that of the API." flag:"xxl-listen" env:"BELFRY_XXL_LISTEN" why:"only those who have executors need it, and executors know neither TLS nor the tokens of the API"`
	Tokens   []Path  `json:"tokens,omitzero" items:"16" max:"4096" doc:"Files with the access token that executors show, one in each; the first is shown to them." flag:"xxl-token" env:"BELFRY_XXL_TOKENS" why:"several count while the token changes; choose none of the API, since it travels in plain text" reload:"yes"`
	Insecure bool    `json:"insecure_default_token,omitzero" doc:"Accept default_token as an access token, while listen is a loopback address." why:"everyone knows it: it is that of XXL-JOB's own configuration" reload:"yes"`
	Short    bool    `json:"short_tokens,omitzero" doc:"Accept access tokens of less than 16 characters, until executors have longer ones; attention says so." why:"they can be guessed, and executors that have one can be taken over before it is changed" reload:"yes"`
	Glue     bool    `json:"glue,omitzero" doc:"Send code of jobs to executors, for run.xxl.glue." why:"anyone who may define jobs could then run any program where executors are" reload:"yes"`
	Forward  Web     `json:"forward,omitzero" max:"4096" doc:"The address of an admin of XXL-JOB that gets registrations, and the results of runs that it has sent." why:"for the time in which both are used" reload:"yes"`
}

// Path is the name of a file.
type Path string

// Web is the address of a web server.
type Web string

// UnmarshalText checks the address of a web server.
func (w *Web) UnmarshalText(text []byte) error {
	u, err := url.Parse(string(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(string(text), "#") {
		return fmt.Errorf("%q is not the address of an admin, such as http://xxl-job-admin.example.com:8080/xxl-job-admin", text)
	}
	*w = Web(text)
	return nil
}

// ParsePaths reads names of files with commas between them.
func ParsePaths(text string) (list []Path, err error) {
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return nil, fmt.Errorf("%q has an empty name of a file", text)
		}
		list = append(list, Path(name))
	}
	return list, nil
}

// beside resolves the section's files relative to a directory.
func (x XXL) beside(dir string) XXL {
	x.Tokens = slices.Clone(x.Tokens)
	for i, name := range x.Tokens {
		if !filepath.IsAbs(string(name)) {
			x.Tokens[i] = Path(filepath.Join(dir, string(name)))
		}
	}
	return x
}

// IsOn reports whether executors may call the server.
func (x XXL) IsOn() bool { return x.Listen != "" }

func (x XXL) check() error {
	switch {
	case x.IsOn() && len(x.Tokens) == 0:
		return errors.New("xxl.tokens: executors need an access token: name a file that has one, such as [/etc/belfry/xxl.token]")
	case !x.IsOn() && (len(x.Tokens) > 0 || x.Glue || x.Forward != "" || x.Insecure || x.Short):
		return errors.New("xxl.listen: is missing, and the other settings of xxl have no meaning without it: set it to an address for executors, such as :8080")
	}
	return nil
}

const (
	// defaultToken is the token of XXL-JOB's own configuration.
	defaultToken = "default_token"
	// tokenMin is how long an access token must be: 16 letters cannot be guessed by
	// requests.
	tokenMin = 16
	// tokenMax bounds a file with a token.
	tokenMax = 4096
)

// ReadTokens reads the access tokens of executors.
func (x XXL) ReadTokens() ([]string, error) {
	var list []string
	for i, name := range x.Tokens {
		token, err := readToken(string(name))
		if err == nil {
			err = x.checkToken(token)
		}
		if err != nil {
			return nil, fmt.Errorf("xxl.tokens[%d]: the file %s %w", i, name, err)
		}
		list = append(list, token)
	}
	return list, nil
}

func readToken(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, tokenMax+1))
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	if len(text) > tokenMax {
		return "", fmt.Errorf("has more than %d bytes, which is no token", tokenMax)
	}
	return strings.TrimSpace(string(text)), nil
}

func (x XXL) checkToken(token string) error {
	printable := func(r rune) bool { return r > ' ' && r < 0x7f }
	switch {
	case token == "":
		return errors.New("is empty: write a token into it, such as that of openssl rand -hex 24")
	case strings.ContainsFunc(token, func(r rune) bool { return !printable(r) }):
		return errors.New("has more than a token: one word of printable characters is allowed")
	case token == defaultToken && x.Insecure && x.Listen.Loopback():
		return nil
	case token == defaultToken && x.Insecure:
		return fmt.Errorf("has default_token, which everyone knows, and other machines reach %s: choose another one, here and in xxl.job.accessToken; for a test set xxl.listen to a loopback address, such as 127.0.0.1:9080", x.Listen)
	case token == defaultToken:
		return errors.New("has default_token, which everyone knows: choose another one, here and in xxl.job.accessToken, or set xxl.insecure_default_token to true for a test on one machine")
	case isShort(token) && !x.Short:
		return fmt.Errorf("has a token of %d characters, which can be guessed: at least %d are needed; xxl.short_tokens: true accepts it until the executors have a longer one", len(token), tokenMin)
	}
	return nil
}

func isShort(token string) bool { return len(token) < tokenMin }

// HasShortToken reports whether a token can be guessed.
func HasShortToken(tokens []string) bool { return slices.ContainsFunc(tokens, isShort) }

// HasDefaultToken reports whether a token is publicly known.
func HasDefaultToken(tokens []string) bool { return slices.Contains(tokens, defaultToken) }
