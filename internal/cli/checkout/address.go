package checkout

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strings"
)

const (
	// addressMax is the longest address: longer ones are no addresses of people.
	addressMax = 1024
	// branchMax is the longest name of a branch: file systems, where git keeps branches, allow no more.
	branchMax = 255
	// tokenUser is the user beside a token where the address names none: GitHub wants this one, others any.
	tokenUser = "x-access-token"
)

// Address is where a repository is.
type Address struct {
	fetched string   // for git
	shown   string   // without user and password
	scheme  string   // the one protocol that git may use
	web     *url.URL // nil for the short form of ssh
}

// shortSSH is the short form of an address by ssh. Neither the user nor the host can be an option of ssh.
var shortSSH = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_.-]*)@([A-Za-z0-9][A-Za-z0-9.-]*):([^/].*)$`)

// ParseAddress reads an address. Its errors never repeat a password.
func ParseAddress(text string) (Address, error) {
	switch {
	case text == "":
		return Address{}, errors.New("the address of the repository is missing")
	case len(text) > addressMax:
		return Address{}, fmt.Errorf("the address of the repository has %d bytes, at most %d are allowed", len(text), addressMax)
	case strings.HasPrefix(text, "-"):
		return Address{}, fmt.Errorf("%q is an option, not the address of a repository", text)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return Address{}, errors.New("the address of the repository has a space or a control character: write %20 for a space")
	}
	if !strings.Contains(text, "://") {
		if shortSSH.MatchString(text) {
			return Address{fetched: text, shown: text, scheme: "ssh"}, nil
		}
		return Address{}, fmt.Errorf("%q is not the address of a repository: write https://…, ssh://…, git@host:path, or file:// and an absolute path", text)
	}
	u, err := url.Parse(text)
	if err != nil {
		return Address{}, errors.New("the address of the repository cannot be parsed: write https://host/path")
	}
	switch u.Scheme {
	case "https", "http", "ssh":
		if u.Hostname() == "" || strings.HasPrefix(u.Host, "-") || strings.HasPrefix(u.User.Username(), "-") {
			return Address{}, fmt.Errorf("the address of the repository has no valid host: write %s://host/path", u.Scheme)
		}
		if u.Scheme == "http" && !isLoopback(u.Hostname()) {
			return Address{}, errors.New("the address of the repository is without TLS, by which others could send jobs of theirs: write https://")
		}
	case "file":
		if u.Host != "" || !path.IsAbs(u.Path) {
			return Address{}, errors.New("the address of a local repository is file:// and an absolute path: file:///srv/git/jobs.git")
		}
	default:
		return Address{}, fmt.Errorf("repositories are not fetched by %s: use https, ssh or file", u.Scheme)
	}
	if _, has := u.User.Password(); has {
		return Address{}, errors.New("the address of the repository has a password, which other users of this machine can read on the command line: put it into a file, and name that with --git-token-file")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return Address{}, errors.New("the address of the repository has a part after ? or #: leave it out; --branch names a branch, --path a folder")
	}
	shown := *u
	if u.Scheme != "ssh" {
		shown.User = nil // often a token
	}
	return Address{fetched: text, shown: shown.String(), scheme: u.Scheme, web: u}, nil
}

// String returns the address without user and password.
func (a Address) String() string { return a.shown }

// Name returns the address without its scheme, user and suffix, for marks.
func (a Address) Name() string {
	name := a.shown
	if a.web != nil {
		name = a.web.Host + a.web.Path
	} else if m := shortSSH.FindStringSubmatch(a.shown); m != nil {
		name = m[2] + "/" + m[3]
	}
	return strings.Trim(strings.TrimSuffix(strings.Trim(name, "/"), ".git"), "/")
}

// withToken returns the settings of git that send a token to the host of the address alone, and the address
// without its user, which is sent with it.
func (a Address) withToken(token string) (fetched, key, value string, err error) {
	if a.scheme != "https" && a.scheme != "http" {
		return "", "", "", fmt.Errorf("a token is sent over https alone, and the address is %s: leave the token out, or write https://…", a.shown)
	}
	host := url.URL{Scheme: a.web.Scheme, Host: a.web.Host, Path: "/"}
	basic := base64.StdEncoding.EncodeToString([]byte(cmp.Or(a.web.User.Username(), tokenUser) + ":" + token))
	return a.shown, "http." + host.String() + ".extraHeader", "Authorization: Basic " + basic, nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// checkBranch refuses what git allows as no branch, or reads as something else.
func checkBranch(name string) error {
	if len(name) > branchMax || strings.HasPrefix(name, "-") || strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") || strings.HasSuffix(name, ".") ||
		strings.Contains(name, "..") || strings.Contains(name, "//") || strings.Contains(name, "@{") || strings.HasSuffix(name, ".lock") ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }) {
		return fmt.Errorf("%q is not the name of a branch", name)
	}
	return nil
}

// CheckPath returns a path within a repository in its shortest form, "" for all of it.
func CheckPath(name string) (string, error) {
	if strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%q is not a path within the repository: leave out the first /", name)
	}
	clean := path.Clean(name)
	switch {
	case clean == ".":
		return "", nil
	case clean == ".." || strings.HasPrefix(clean, "../") || strings.HasPrefix(clean, "-"):
		return "", fmt.Errorf("%q leaves the repository: a path is within it, without ..", name)
	}
	return clean, nil
}
