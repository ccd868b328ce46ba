package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Client is the configuration of a client, as its file has it.
type Client struct {
	Current  string             `json:"current,omitzero" max:"128" doc:"The context that is used when none is named."`
	Contexts map[string]Context `json:"contexts,omitzero" doc:"Servers, by the names that their user gives them."`
}

// Context is a server with the caller's credentials.
type Context struct {
	Server    string `json:"server" max:"4096" doc:"The address of the server."`
	Token     string `json:"token,omitzero" max:"1024" doc:"The token."`
	Namespace string `json:"namespace,omitzero" max:"128" doc:"The namespace of jobs that are named without one."`
}

// Asked are the connection flags of a command.
type Asked struct {
	Server, Context, Namespace string
	// Data is the data directory of a server on this machine.
	Data string
}

// ErrNoServer is returned when no server of this user runs on the data directory
// that was named.
var ErrNoServer = errors.New("no server is running on it, or this user may not see it")

// Connection is how a server is reached.
type Connection struct {
	Server    string
	Token     string
	Namespace string
	// ServerFrom and TokenFrom are the sources of these: a flag, a variable or a file; "" for none.
	ServerFrom, TokenFrom string
	// Listed is the namespace of lists: "", for all, unless one is named.
	Listed string
	// NoToken names the places searched for a token, if none was found.
	NoToken string
	// Person has signed in with belfry login, and Token is their session; "" for a token.
	Person string
	// Local says that the server runs on a data directory of this machine.
	Local bool
}

// DefaultServer is the address that a client calls when nothing names another.
const DefaultServer = "http://" + DefaultListen

// Connect determines the server to call. Flags take precedence over the environment, that over the
// file of the client, and that over the data directory of a server on this machine. The session of
// belfry login at a server takes precedence over the tokens of files.
//
// A token is only sent to its own server: the token of a context to that context's server, and the
// token in a data directory to the server that runs on it.
func Connect(asked Asked, getenv func(string) string, readToken func(path string) (string, error)) (Connection, error) {
	c, err := chosen(asked, getenv)
	if err != nil {
		return Connection{}, err
	}
	data := cmp.Or(asked.Data, getenv("BELFRY_DATA"), DefaultData(getenv))
	local, err := readAddress(data)
	if err != nil {
		return Connection{}, err
	}
	named := cmp.Or(asked.Server, getenv("BELFRY_SERVER"))
	if asked.Data != "" && asked.Server == "" {
		if named = local.URL; named == "" {
			return Connection{}, fmt.Errorf("%s: %w", data, ErrNoServer)
		}
	}
	listed := cmp.Or(asked.Namespace, getenv("BELFRY_NAMESPACE"), c.Namespace)
	result := Connection{
		Server:    cmp.Or(named, c.Server, local.URL, DefaultServer),
		Namespace: cmp.Or(listed, "default"),
		Listed:    listed,
		Token:     getenv("BELFRY_TOKEN"),
	}
	switch result.Server {
	case asked.Server:
		result.ServerFrom = "--server"
	case getenv("BELFRY_SERVER"):
		result.ServerFrom = "BELFRY_SERVER"
	case c.Server:
		result.ServerFrom = ClientFile(getenv)
	}
	// localhost is this machine: its server is called by the address that it listens on, since another
	// program may listen on the other address of localhost.
	if localhostOf(result.Server) == local.URL && local.URL != "" {
		result.Server = local.URL
	}
	session, err := SessionAt(result.Server, getenv)
	switch {
	case err != nil:
		return Connection{}, err
	case result.Token != "":
		result.TokenFrom = "BELFRY_TOKEN"
	case session.Token != "" && asked.Data == "":
		result.Token, result.TokenFrom, result.Person = session.Token, SessionsFile(getenv), session.Person
	case sameServer(result.Server, c.Server) && c.Token != "":
		result.Token, result.TokenFrom = c.Token, ClientFile(getenv)
	}
	result.Local = sameServer(result.Server, local.URL)
	if result.Token != "" && !(result.Local && asked.Data != "") {
		return result, nil
	}
	if !result.Local {
		result.NoToken = "set BELFRY_TOKEN, sign in with belfry login, or put a context with a token into " + ClientFile(getenv)
		if named == "" && c.Server == "" { // no server is named
			result.NoToken = "name the data directory of your server with --data or BELFRY_DATA, " + result.NoToken
		}
		return result, nil
	}
	token, err := readToken(local.TokenFile)
	if err == nil {
		result.Token, result.TokenFrom = token, local.TokenFile
	}
	switch {
	case err != nil && result.Token != "": // then the environment's
	case errors.Is(err, fs.ErrNotExist):
		result.NoToken = fmt.Sprintf("%s does not exist; set BELFRY_TOKEN to a token that an administrator created with belfry token create. If there is no admin token, stop the server and use belfry token reset", local.TokenFile)
	case errors.Is(err, fs.ErrPermission):
		result.NoToken = fmt.Sprintf("%s may not be read by this user; set BELFRY_TOKEN", local.TokenFile)
	case err != nil:
		return Connection{}, err
	}
	return result, nil
}

// localhostOf returns an address with 127.0.0.1 in place of localhost.
func localhostOf(server string) string {
	u, err := url.Parse(strings.TrimSuffix(server, "/"))
	if err != nil || u.Hostname() != "localhost" {
		return ""
	}
	u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	return u.String()
}

// sameServer reports whether two addresses mean one server.
func sameServer(a, b string) bool {
	return b != "" && strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/")
}

// ClientFile returns where the file of a client is.
func ClientFile(getenv func(string) string) string {
	dir := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(getenv("HOME"), ".config")
	}
	return filepath.Join(dir, "belfry", "config.yaml")
}

// Session is the session of a person at a server.
type Session struct {
	Token  string `json:"token"`
	Person string `json:"person"` // as in the audit
}

// SessionsFile returns the file of belfry login's sessions.
func SessionsFile(getenv func(string) string) string {
	return filepath.Join(filepath.Dir(ClientFile(getenv)), "sessions.json")
}

// sessionsOf reads the sessions of a file by server. It refuses a file that other users can read.
func sessionsOf(path string) (map[string]Session, error) {
	list := map[string]Session{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has sessions and is readable by other users: its mode is %04o and should be 0600 (chmod 600)", path, info.Mode().Perm())
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// SessionAt returns the session at a server, or zero.
func SessionAt(server string, getenv func(string) string) (Session, error) {
	list, err := sessionsOf(SessionsFile(getenv))
	return list[strings.TrimSuffix(server, "/")], err
}

// KeepSession stores the session at a server for later commands of this user, replacing an older
// one. A zero session removes it.
func KeepSession(server string, s Session, getenv func(string) string) (err error) {
	path := SessionsFile(getenv)
	list, err := sessionsOf(path)
	if err != nil {
		return err
	}
	server = strings.TrimSuffix(server, "/")
	list[server] = s
	if s == (Session{}) {
		delete(list, server)
	}
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// CreateTemp makes a file that only this user can read.
	f, err := os.CreateTemp(filepath.Dir(path), "sessions-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// chosen returns the selected context, or an empty one.
func chosen(asked Asked, getenv func(string) string) (Context, error) {
	path := ClientFile(getenv)
	var c Client
	err := readSettings(path, path, &c)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return Context{}, err
	}
	for _, context := range c.Contexts {
		if info, err := os.Stat(path); err == nil && context.Token != "" && info.Mode().Perm()&0o077 != 0 {
			return Context{}, fmt.Errorf("%s has a token and is readable by other users: its mode is %04o and should be 0600 (chmod 600)", path, info.Mode().Perm())
		}
	}
	name := cmp.Or(asked.Context, c.Current)
	if name == "" {
		return Context{}, nil
	}
	context, ok := c.Contexts[name]
	if !ok {
		return Context{}, fmt.Errorf("there is no context %q in %s, which has: %s", name, path, cmp.Or(strings.Join(slices.Sorted(maps.Keys(c.Contexts)), ", "), "none"))
	}
	return context, nil
}

// addressFile is in the data directory of a server that runs.
const addressFile = "server.json"

// Local is what a server tells clients on its machine.
type Local struct {
	URL       string `json:"url"`
	TokenFile string `json:"token_file"`
	PID       int    `json:"pid"` // set by WriteAddress
	// SharedUser is the user shared with commands, if any: see [Server.SharedUser].
	SharedUser string `json:"shared_user,omitempty"`
	// File is the configuration file, "" without one, and Reload the command that makes the
	// server read it again.
	File   string `json:"file,omitempty"`
	Reload string `json:"reload,omitempty"`
}

// WriteAddress publishes the address of the server of this process in its data directory.
// [RemoveAddress] removes it.
func WriteAddress(dir string, a Local) error {
	a.PID = os.Getpid()
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, addressFile)
	if err := os.WriteFile(path+"-new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+"-new", path)
}

// RemoveAddress records that no server runs on a data directory, so that its token is not sent to
// another program on its port.
func RemoveAddress(dir string) error { return os.Remove(filepath.Join(dir, addressFile)) }

// readAddress returns the address left by a server on this machine, if the server still runs and
// this user may see it. After a server's death, any program may use its port and wait for its
// token.
func readAddress(dir string) (Local, error) {
	var a Local
	data, err := os.ReadFile(filepath.Join(dir, addressFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("%s: %w", filepath.Join(dir, addressFile), err)
	}
	// Signal 0 is only a question. Another user's process may not be signalled.
	if err := syscall.Kill(a.PID, 0); a.PID <= 0 || err != nil && !errors.Is(err, syscall.EPERM) {
		return Local{}, nil
	}
	return a, nil
}

// LocalURL returns the address of a listening server for clients on this machine.
func LocalURL(listening net.Addr, tls bool) string {
	scheme := "http"
	if tls {
		scheme = "https"
	}
	host := listening.String()
	if at, err := netip.ParseAddrPort(host); err == nil && at.Addr().IsUnspecified() {
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		host = netip.AddrPortFrom(loopback, at.Port()).String()
	}
	return (&url.URL{Scheme: scheme, Host: host}).String()
}
