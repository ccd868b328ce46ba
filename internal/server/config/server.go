// Package config reads the configuration of a server and a client: from flags, the
// environment and files, in this order of precedence. It checks each value separately;
// combinations are checked in one place, [Server.Check].
//
// It opens no store and no connection.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Server is the configuration of a server, in the form of its file. Unset values are zero. The tags
// of a field are its meaning (doc), its default with the reason (why), its other sources (flag,
// env), and its secret parts (secret): docs/configuration.md and belfry config use them.
type Server struct {
	Data   string  `json:"data,omitzero" max:"4096" doc:"The directory of everything that this server keeps." flag:"data" env:"BELFRY_DATA" default:"belfry in $XDG_STATE_HOME; without that /var/lib/belfry for root, else ~/.local/state/belfry" why:"where systems keep what programs must find again"`
	Listen Address `json:"listen,omitzero" doc:"The address of the API." flag:"listen" default:"127.0.0.1:8420" why:"other machines cannot reach it; port 0 picks a free port, which the log names"`
	Store  Store   `json:"store,omitzero" doc:"Where jobs, runs and history are kept." flag:"store" env:"BELFRY_STORE" default:"sqlite:DATA/belfry.db" why:"nothing else has to be installed"`
	// History is empty if the store keeps it.
	History History `json:"history,omitzero" doc:"Where history and output are kept, for a store in etcd or Redis." flag:"history" env:"BELFRY_HISTORY" default:"in the store" why:"one URL is enough to start; etcd and Redis keep only the latest of it"`

	Name     string            `json:"name,omitzero" max:"128" doc:"The name of this node." flag:"name" default:"the name of the machine" why:"that is what people call it"`
	Roles    []Role            `json:"roles,omitzero" items:"3" doc:"What this node does: planner plans jobs, worker runs them, api answers requests." flag:"roles" default:"all three" why:"a server that is alone has to do everything; the servers of a cluster may share it"`
	Labels   map[string]string `json:"labels,omitzero" items:"66" keys:"labels" doc:"What jobs choose this node by, arch and host among them." flag:"label" default:"arch and host" why:"jobs can ask for a kind of processor or one machine; other labels are for you to choose"`
	Capacity int               `json:"capacity,omitzero" min:"1" max:"100000" doc:"How many attempts run at once." flag:"capacity" default:"512" why:"more than a machine usually runs at once, and few enough not to bring it down"`

	Timezone Zone         `json:"timezone,omitzero" doc:"The time zone of schedules that name none." flag:"timezone" default:"UTC" why:"the same on all nodes, whatever their machines have; the log says when the machine has another one"`
	Defaults Defaults     `json:"defaults,omitzero" doc:"What jobs have that say nothing."`
	Keep     Keep         `json:"keep,omitzero" doc:"How long history is kept where a job says nothing, and how long the audit and old definitions are."`
	Output   job.Size     `json:"output_limit,omitzero" min:"4096" max:"1073741824" doc:"How much of the output of an attempt is kept." default:"1MiB" why:"enough to see what went wrong: the first and the last half are kept"`
	Drain    job.Duration `json:"drain_timeout,omitzero" min:"1ms" max:"1d" doc:"How long a server that stops waits for what it runs." flag:"drain-timeout" default:"30s" why:"most commands end within it, and stopping the server does not take long"`

	Hosts     []Host `json:"hosts,omitzero" items:"64" max:"256" doc:"The names that this server is called by, beside localhost." why:"localhost, the name of the node, that of the machine and all addresses are always allowed; another name may be that of an attacker"`
	TLS       TLS    `json:"tls,omitzero" doc:"The certificate of this server."`
	PlainHTTP *bool  `json:"plain_http,omitzero" doc:"Allow an address that others reach without TLS." flag:"plain-http" default:"false" why:"without TLS others read the token on its way; for servers behind something that has TLS"`

	Shell      Shell      `json:"shell,omitzero" doc:"How commands run on this node."`
	HTTP       HTTP       `json:"http,omitzero" doc:"What requests of jobs, and notifications, may reach from this node."`
	Containers Containers `json:"containers,omitzero" doc:"How containers of jobs run on this node."`
	Kubernetes Kubernetes `json:"kubernetes,omitzero" doc:"The clusters of Kubernetes in which Jobs of jobs run."`
	XXL        XXL        `json:"xxl,omitzero" doc:"How executors of XXL-JOB reach this node, and it them."`

	Worker  Worker  `json:"worker,omitzero" doc:"What belfry worker asks in place of a store."`
	Notify  Notify  `json:"notify,omitzero" doc:"How this node delivers notifications."`
	Secrets Secrets `json:"secrets,omitzero" doc:"How this node reads secrets."`

	OIDC OIDC `json:"oidc,omitzero" doc:"How people sign in beside tokens: in the web UI, and with belfry login."`

	MCP MCP `json:"mcp,omitzero" doc:"What AI assistants may do at /mcp."`

	LogFormat LogFormat `json:"log_format,omitzero" doc:"text or json." flag:"log-format" default:"text on a terminal, else json" why:"people read the first, programs the second"`
	LogLevel  LogLevel  `json:"log_level,omitzero" doc:"debug, info, warn or error." flag:"log-level" default:"info" why:"a line for what operators should know, none for each run" reload:"yes"`
}

// MCP is what AI assistants may do at /mcp.
type MCP struct {
	AllowChanges bool `json:"allow_changes,omitzero" doc:"Let assistants change what their tokens may change, each change behind a plan." default:"false" why:"an assistant reads text of others, and can be misled by it"`
}

// Worker is how a worker without a store reaches its cluster.
type Worker struct {
	Servers   []string `json:"servers,omitzero" items:"16" max:"1024" doc:"For belfry worker: the addresses of servers, any of which will do." flag:"server" why:"a worker has no store of its own; with several it continues when one is away"`
	TokenFile string   `json:"token_file,omitzero" max:"4096" doc:"For belfry worker: the file of its token, which has the role worker." flag:"token-file" why:"a token on the command line is visible to other users"`

	JoinTokenFile string `json:"join_token_file,omitzero" max:"4096" doc:"For belfry worker, in place of token_file: the file of a joining token, which it exchanges once for a token of its own, in worker-token in its data directory." flag:"join-token-file" why:"many machines can be set up with one file that is soon worth nothing"`
	Cert          string `json:"cert,omitzero" max:"4096" doc:"For belfry worker: the file of its client certificate, with those in between, in PEM. It is read again when it changes." flag:"cert" why:"servers may want one, see tls.client_ca"`
	Key           string `json:"key,omitzero" max:"4096" doc:"For belfry worker: the file of the private key of its client certificate, in PEM." flag:"key" why:"it belongs to the certificate"`
	CA            string `json:"ca,omitzero" max:"4096" doc:"For belfry worker: a file with the authorities of the certificates of servers, in PEM." flag:"ca" default:"the authorities of the system" why:"servers may have certificates of an authority of your own"`

	HealthListen Address `json:"health_listen,omitzero" doc:"For belfry worker: the address of /livez, /readyz and /metrics, over HTTP and without a token, such as 127.0.0.1:8423." flag:"health-listen" default:"none" why:"a worker listens to nothing unless probes or Prometheus need it"`
}

// Defaults are the defaults of jobs.
type Defaults struct {
	Policy     job.Policy                   `json:"policy,omitzero" doc:"Policies, as jobs have them." why:"what is built in: jobs.md has it field by field"`
	Namespaces map[string]NamespaceDefaults `json:"namespaces,omitzero" items:"1000" keys:"names" doc:"What counts before these for the jobs of a namespace." why:"teams that share a server have habits of their own"`
}

// NamespaceDefaults are the defaults of the jobs of a namespace.
type NamespaceDefaults struct {
	Timezone Zone       `json:"timezone,omitzero" doc:"The time zone of schedules that name none."`
	Policy   job.Policy `json:"policy,omitzero" doc:"Policies, as jobs have them."`
}

// Keep is the retention of history.
type Keep struct {
	Runs      int          `json:"runs,omitzero" min:"1" max:"1000000000" doc:"The most finished runs that are kept of a job." default:"as many as there are" why:"no number suits all jobs: one that is due every second has 7.8 million in 90 days" reload:"yes"`
	For       job.Duration `json:"for,omitzero" min:"1s" max:"forever" doc:"Finished runs for this long; forever is allowed." default:"90d" why:"a quarter of a year, to compare with" reload:"yes"`
	OutputFor job.Duration `json:"output_for,omitzero" min:"1s" max:"forever" doc:"Their output for this long; forever is allowed." default:"30d, or keep.for if that is shorter" why:"output is large, and seldom wanted after a month" reload:"yes"`
	Audit     int          `json:"audit,omitzero" min:"1" max:"1000000000" doc:"The most changes that are kept in the audit." default:"1000000" why:"so that a program which changes jobs all the time does not fill the disk; the latest change always stays" reload:"yes"`
	AuditFor  job.Duration `json:"audit_for,omitzero" min:"1s" max:"forever" doc:"Changes in the audit for this long; forever is allowed." default:"400d" why:"longer than a year, for those who look once a year" reload:"yes"`
	Revisions int          `json:"revisions,omitzero" min:"1" max:"1000000" doc:"The most definitions that are kept of a job, with the present one." default:"100" why:"enough to find what was changed when; older ones go when the job is changed"`
}

// TLS is a certificate.
type TLS struct {
	Cert string `json:"cert,omitzero" max:"4096" doc:"The file of the certificate, with those in between, in PEM." flag:"tls-cert" why:"certificates are issued for a name" reload:"yes"`
	Key  string `json:"key,omitzero" max:"4096" doc:"The file of its private key, in PEM." flag:"tls-key" why:"it belongs to the certificate" reload:"yes"`

	ClientCA           string `json:"client_ca,omitzero" max:"4096" doc:"A file with the certificates of authorities, in PEM, that issue the client certificates of workers. A token for workers may be bound to the name of one." why:"without it no client certificate is asked for" reload:"yes"`
	WorkerCertificates bool   `json:"worker_certificates,omitzero" doc:"Refuse workers without a client certificate." default:"false" why:"tokens that are bound to a certificate need one anyway"`
}

// Shell is how commands run on a node.
type Shell struct {
	Dir         string            `json:"dir,omitzero" max:"4096" doc:"The directory of commands that name none." default:"the directory that the server was started in" why:"commands that care name one"`
	DefaultUser string            `json:"default_user,omitzero" max:"64" doc:"The user that runs commands of jobs without run.user. Only a server started by root can switch users." flag:"run-as" default:"the user that started the server; root only if listen is a loopback address and the store is a file" why:"as cron does; where other machines can define jobs, root has to be named"`
	AllowUsers  []string          `json:"allow_users,omitzero" items:"1000" max:"64" doc:"Other users that jobs may name in run.user, where the node runs as root; * is every user but root." why:"else anyone who may define jobs could act as any user of the machine" reload:"yes"`
	AllowGroups []string          `json:"allow_groups,omitzero" items:"1000" max:"64" doc:"Groups that jobs may name in run.group, where the node runs as root, besides the groups of their user." why:"groups such as disk, docker and shadow may do what root may" reload:"yes"`
	Umask       *job.Umask        `json:"umask,omitzero" doc:"The umask of commands that name none; jobs may close more, not less." default:"022" why:"others may read what commands write, as on most systems, and not change it"`
	NiceMin     int               `json:"nice_min,omitzero" min:"-20" max:"19" doc:"The lowest value of run.nice." default:"0" why:"below 0 a job comes before all else on the machine"`
	Path        string            `json:"path,omitzero" doc:"The PATH of commands." default:"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" why:"the same on all nodes, however the server was started"`
	Env         map[string]string `json:"env,omitzero" items:"1000" keys:"variables" doc:"What the environment of all commands has." secret:"values" why:"commands see nothing of the environment of the server, which may hold secrets"`
}

// Containers is how containers of jobs run on a node.
type Containers struct {
	Socket       string   `json:"socket,omitzero" max:"4096" doc:"The socket of the container engine, Docker or Podman; none for no containers." default:"the first of /run/docker.sock, /run/podman/podman.sock, and the sockets of a rootless Docker or Podman of the node's user" why:"a machine with an engine needs no configuration"`
	Images       []string `json:"images,omitzero" items:"256" max:"1024" doc:"The images that jobs may name, as patterns in which * stands for any text: registry.example.com/*." default:"all" why:"a container has no rights on the machine by its image" reload:"yes"`
	Mounts       []Dir    `json:"mounts,omitzero" items:"256" max:"4096" doc:"The directories below which jobs may mount files of the machine, by absolute path." default:"none" why:"who may mount all files of a machine has the rights of root on it" reload:"yes"`
	Namespaces   []string `json:"namespaces,omitzero" items:"1000" max:"128" doc:"The namespaces whose jobs may run containers here." default:"all" why:"teams that share a cluster may have machines of their own" reload:"yes"`
	Capabilities []string `json:"capabilities,omitzero" items:"64" max:"64" doc:"The Linux capabilities of containers, such as CHOWN or NET_BIND_SERVICE." default:"none" why:"few jobs need one; images that change users need CHOWN, SETUID and SETGID" reload:"yes"`
	PIDs         int      `json:"pids,omitzero" min:"1" max:"4194304" doc:"The most processes of a container that sets no limit." default:"4096" why:"a job that forks without end would take the machine with it" reload:"yes"`
}

// HTTP are the addresses that jobs' requests may reach.
type HTTP struct {
	Allow []Prefix `json:"allow,omitzero" items:"256" doc:"Addresses that jobs may call although they are closed by default." why:"link-local addresses, the metadata services of clouds and carrier-grade NAT are closed, and so is loopback unless listen is a loopback address and the store is a file; the longest prefix counts" reload:"yes"`
	Deny  []Prefix `json:"deny,omitzero" items:"256" doc:"Addresses that jobs may not call although they are open by default." why:"private networks are open, since most calls go there" reload:"yes"`

	CallbackURL URL `json:"callback_url,omitzero" max:"1024" doc:"Where services report the results of jobs with run.http.callback, for example https://belfry.example.com." default:"the address of this server, if listen names one" why:"services on other machines need a name that leads to a server of the cluster"`

	TLSDirs []Dir `json:"tls_dirs,omitzero" items:"64" max:"4096" doc:"The directories in which jobs may name files for run.http.tls, by absolute path." why:"the server can read keys that are none of the job's, its own among them" reload:"yes"`
}

// Notify is how notifications are delivered.
type Notify struct {
	Secrets Dir `json:"secrets,omitzero" max:"4096" doc:"The directory of the secrets in files, with a directory for each namespace." default:"secrets in the data directory" why:"each namespace reaches its own secrets alone, and only users of the server read the directory"`
}

// SecretsDir returns the directory of the secrets in files.
func (s *Server) SecretsDir() string {
	return cmp.Or(string(s.Notify.Secrets), filepath.Join(s.Data, "secrets"))
}

// The defaults of a [Server]. Other packages have the rest.
const (
	DefaultListen = "127.0.0.1:8420"
	defaultOutput = 1 << 20
	DefaultDrain  = 30 * time.Second
	// That of executor/shell.
	shellUmask job.Umask = 0o022
	// The next two are defaults of a node and of a store, repeated so that the whole
	// configuration can be shown.
	DefaultCapacity  = 512
	DefaultRevisions = 100

	defaultKeepFor    = job.Duration(90 * 24 * time.Hour)
	defaultKeepOutput = job.Duration(30 * 24 * time.Hour)
	// Longer than a year, so that a yearly review finds everything. The number bounds a program
	// that keeps changing jobs.
	defaultKeepAuditFor = job.Duration(400 * 24 * time.Hour)
	defaultKeepAudit    = 1_000_000
)

// Address is host:port.
type Address string

// UnmarshalText checks an address.
func (a *Address) UnmarshalText(text []byte) error {
	host, port, err := net.SplitHostPort(string(text))
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.ContainsAny(host, " /") {
		port := "8420"
		if n, err := strconv.ParseUint(string(text), 10, 16); err == nil && n > 0 {
			port = string(text)
		}
		return fmt.Errorf("%q is not an address to listen on, such as 127.0.0.1:%s; one that other machines reach, such as :%s, needs TLS", text, port, port)
	}
	*a = Address(text)
	return nil
}

// Loopback reports whether only this machine reaches the address.
func (a Address) Loopback() bool {
	host, _, _ := net.SplitHostPort(string(a))
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// portOf returns the port of a checked address.
func portOf(a Address) string {
	_, port, _ := net.SplitHostPort(string(a))
	return port
}

// Host is the name of a host.
type Host string

// UnmarshalText checks the name of a host: a value with more than the name would never
// match a request.
func (h *Host) UnmarshalText(text []byte) error {
	if len(text) == 0 || bytes.ContainsAny(text, "/:@[] \t") {
		return fmt.Errorf("%q is not the name of a host alone, such as belfry.example.org", text)
	}
	*h = Host(text)
	return nil
}

// Store is the URL of a store.
type Store string

// The kinds of stores.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
	MySQL    = "mysql"
	Etcd     = "etcd"
	Redis    = "redis"
)

// UnmarshalText checks the URL of a store. A message never shows it, since it may
// hold a password.
func (s *Store) UnmarshalText(text []byte) error {
	u, err := parseStore(string(text))
	if kind, _, found := strings.Cut(string(text), "://"); err != nil && found && databaseURL[strings.ToLower(kind)] {
		return errors.New("is not a URL, which is of the form " + kind + "://user:password@host:port/database: in the password %, /, ?, # and @ are written %25, %2F, %3F, %23 and %40, and the port is a number")
	}
	if err != nil || u.Scheme == "" {
		return errors.New("is not the URL of a store, such as sqlite:/var/lib/belfry/belfry.db or postgres://belfry@db.example.com/belfry")
	}
	rest := string(text[len(u.Scheme):])
	address := Store(u.Scheme + rest) // in lower case, as Kind and the stores expect it
	written := strings.HasPrefix(rest, "://")
	switch u.Scheme {
	case SQLite:
		if u.Host != "" || u.RawQuery != "" || u.Fragment != "" || address.File() == "" {
			return errors.New("the URL of an SQLite store has a path and nothing else, such as sqlite:/var/lib/belfry/belfry.db")
		}
	case Postgres, "postgresql":
		if !written || u.Fragment != "" || u.Host == "" && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" {
			return errors.New("the URL of a PostgreSQL store has a host, a database and parameters, such as postgres://belfry@db.example.com/belfry?sslmode=verify-full")
		}
	case MySQL:
		if !written || u.Fragment != "" || u.Hostname() == "" || strings.Trim(u.Path, "/") == "" {
			return errors.New("the URL of a MySQL store has a host, a database and parameters, such as mysql://belfry@db.example.com/belfry?ssl-mode=VERIFY_IDENTITY")
		}
	case Etcd:
		if !written || u.Hostname() == "" || u.Fragment != "" {
			return errors.New("the URL of a store in etcd has hosts, a prefix and parameters, such as etcd://etcd1.example.com:2379,etcd2.example.com:2379/belfry?tls=true")
		}
	case Redis, "rediss":
		if !written || u.Hostname() == "" || u.Fragment != "" {
			return errors.New("the URL of a store in Redis has hosts, a prefix and parameters, such as redis://redis.example.com:6379/belfry, or rediss:// for TLS")
		}
	default:
		return fmt.Errorf("a store of the kind %q is not known, allowed are sqlite, postgres, mysql, which is for MariaDB as well, etcd and redis", u.Scheme)
	}
	if _, err := url.ParseQuery(u.RawQuery); err != nil { // the cause may show a part of a password
		return errors.New("the parameters of the URL of a store are joined by &, and %, & and ; in them are written as %25, %26 and %3B")
	}
	*s = address
	return nil
}

// databaseURL has the prefixes of database URLs.
var databaseURL = map[string]bool{Postgres: true, "postgresql": true, MySQL: true, Etcd: true, Redis: true, "rediss": true}

// severalHosts has the prefixes of store URLs that may have several hosts.
var severalHosts = map[string]bool{Etcd: true, Redis: true, "rediss": true, MongoDB: true}

// parseStore reads the URL of a store. Of several hosts it returns the first: a URL has one.
func parseStore(text string) (*url.URL, error) {
	before, after := otherHosts(text)
	return url.Parse(before + after)
}

// otherHosts returns the text before and after the hosts of a URL after the first.
func otherHosts(text string) (before, after string) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || !severalHosts[strings.ToLower(scheme)] {
		return text, ""
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority, after = rest[:end], rest[end:]
	}
	user := ""
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, authority = authority[:at+1], authority[at+1:]
	}
	first, _, _ := strings.Cut(authority, ",")
	return scheme + "://" + user + first, after
}

// Kind returns the kind of a store whose URL was checked.
func (s Store) Kind() string {
	kind, _, _ := strings.Cut(string(s), ":")
	switch kind {
	case "postgresql":
		return Postgres
	case "rediss":
		return Redis
	}
	return kind
}

// File returns the file of an SQLite store, "" for another one.
func (s Store) File() string {
	u, err := parseStore(string(s))
	if err != nil || s.Kind() != SQLite {
		return ""
	}
	relative, err := url.PathUnescape(u.Opaque)
	if err != nil {
		return ""
	}
	return u.Path + relative
}

// inURL escapes characters of file names that have a meaning in URLs.
var inURL = strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23")

// StoreIn returns the URL of the SQLite store in a file.
func StoreIn(file string) Store { return Store(SQLite + ":" + inURL.Replace(file)) }

// Password reports whether the URL has a password.
func (s Store) Password() bool {
	u, err := parseStore(string(s))
	if err != nil {
		return false
	}
	_, has := u.User.Password()
	for _, secret := range secrets {
		has = has || u.Query().Has(secret)
	}
	return has
}

// secrets are the parameters that hold a password: of the user, and of a key.
var secrets = []string{"password", "sslpassword"}

// Shown returns the URL without its password.
func (s Store) Shown() string {
	u, err := parseStore(string(s))
	if err != nil {
		return Hidden
	}
	for _, secret := range secrets {
		if query := u.Query(); query.Has(secret) {
			query.Set(secret, Hidden)
			u.RawQuery = query.Encode()
		}
	}
	shown := u.Redacted()
	if before, after := otherHosts(string(s)); len(before)+len(after) < len(s) {
		others := string(s)[len(before) : len(string(s))-len(after)]
		shown = strings.Replace(shown, "@"+u.Host, "@"+u.Host+others, 1)
		if u.User == nil {
			shown = strings.Replace(shown, "//"+u.Host, "//"+u.Host+others, 1)
		}
	}
	return shown
}

// Role is a part of the work of a cluster, by its name in the store.
type Role string

// AllRoles returns all roles.
func AllRoles() []Role { return []Role{store.RolePlanner, store.RoleWorker, store.RoleAPI} }

// Values returns the names of all roles.
func (Role) Values() []string { return []string{store.RolePlanner, store.RoleWorker, store.RoleAPI} }

// ParseRoles reads roles with commas between them.
func ParseRoles(text string) ([]Role, error) {
	var list []Role
	for name := range strings.SplitSeq(text, ",") {
		role := Role(strings.TrimSpace(name))
		if !slices.Contains(AllRoles(), role) {
			return nil, fmt.Errorf("%q is not a role, allowed are %s, with commas between them", role, strings.Join(role.Values(), ", "))
		}
		list = append(list, role)
	}
	return list, nil
}

// Has reports whether the node has a role.
func (s Server) Has(role Role) bool { return slices.Contains(s.Roles, role) }

// Zone is the name of a time zone.
type Zone string

// UnmarshalText checks the name of a time zone.
func (z *Zone) UnmarshalText(text []byte) error {
	if _, err := cron.LoadZone(string(text)); err != nil {
		return err
	}
	*z = Zone(text)
	return nil
}

// Dir is the absolute path of a directory.
type Dir string

// UnmarshalText checks the path.
func (d *Dir) UnmarshalText(text []byte) error {
	if !filepath.IsAbs(string(text)) {
		return fmt.Errorf("%q is not an absolute path, such as /etc/belfry/tls", text)
	}
	*d = Dir(filepath.Clean(string(text)))
	return nil
}

// Dirs returns paths that were checked.
func Dirs(list []Dir) []string {
	var dirs []string
	for _, dir := range list {
		dirs = append(dirs, string(dir))
	}
	return dirs
}

// URL is an address of HTTP without a query.
type URL string

// UnmarshalText checks the address.
func (u *URL) UnmarshalText(text []byte) error {
	parsed, err := url.Parse(string(text))
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.ForceQuery || strings.Contains(string(text), "#") {
		return errors.New("is not an address with http or https, without user, password and query; for example https://belfry.example.com")
	}
	*u = URL(text)
	return nil
}

// Host returns the name or address in it.
func (u URL) Host() string {
	parsed, err := url.Parse(string(u))
	if err != nil {
		return ""
	}
	return parsed.Hostname()
}

// Prefix is an address or a range of addresses.
type Prefix string

// UnmarshalText checks a range of addresses.
func (p *Prefix) UnmarshalText(text []byte) error {
	if _, err := job.ParsePrefix(string(text)); err != nil {
		return fmt.Errorf("%q is not an address or a range of addresses, such as 127.0.0.1 or 10.0.0.0/8", text)
	}
	*p = Prefix(text)
	return nil
}

// Prefixes returns ranges of addresses that were checked.
func Prefixes(list []Prefix) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, text := range list {
		if p, err := job.ParsePrefix(string(text)); err == nil {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes
}

// LogFormat is how the log is written.
type LogFormat string

// The forms of the log.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Values returns all forms of the log.
func (LogFormat) Values() []string { return []string{string(LogText), string(LogJSON)} }

// LogLevel is the lowest logged level.
type LogLevel string

// Values returns all levels, the least first.
func (LogLevel) Values() []string { return []string{"debug", "info", "warn", "error"} }

// fileMax bounds a file: no configuration is longer.
const fileMax = 1 << 20

// ReadServer reads the file of a server. File names in it are relative to its directory.
// The error is of type [job.Problems] if the file can be read.
func ReadServer(path, shown string) (Server, error) {
	var s Server
	if err := readSettings(path, shown, &s); err != nil {
		return Server{}, err
	}
	beside := func(name *string) {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(filepath.Dir(path), *name)
		}
	}
	beside(&s.Data)
	beside(&s.TLS.Cert)
	beside(&s.TLS.Key)
	beside(&s.TLS.ClientCA)
	for _, name := range []*string{&s.Worker.TokenFile, &s.Worker.JoinTokenFile, &s.Worker.Cert, &s.Worker.Key, &s.Worker.CA} {
		beside(name)
	}
	beside(&s.Shell.Dir)
	if file := s.Store.File(); file != "" && !filepath.IsAbs(file) {
		s.Store = StoreIn(filepath.Join(filepath.Dir(path), file))
	}
	s.History = s.History.beside(filepath.Dir(path))
	s.XXL = s.XXL.beside(filepath.Dir(path))
	s.Kubernetes = s.Kubernetes.beside(filepath.Dir(path))
	s.Secrets = s.Secrets.beside(filepath.Dir(path))
	s.OIDC = s.OIDC.beside(filepath.Dir(path))
	return s, nil
}

func readSettings(path, shown string, settings any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err != nil {
		return err
	}
	if len(data) > fileMax {
		return fmt.Errorf("%s: more than %d KiB are no configuration", shown, fileMax>>10)
	}
	return job.DecodeSettings(shown, data, settings)
}

// ServerFromEnv returns the settings of the environment.
func ServerFromEnv(getenv func(string) string) (Server, error) {
	s := Server{Data: getenv("BELFRY_DATA"), OIDC: OIDC{ClientSecret: Password(getenv("BELFRY_OIDC_CLIENT_SECRET"))}}
	if text := getenv("BELFRY_STORE"); text != "" {
		if err := s.Store.UnmarshalText([]byte(text)); err != nil {
			return s, fmt.Errorf("BELFRY_STORE: %w", err)
		}
	}
	if text := getenv("BELFRY_HISTORY"); text != "" {
		if err := s.History.UnmarshalText([]byte(text)); err != nil {
			return s, fmt.Errorf("BELFRY_HISTORY: %w", err)
		}
	}
	if text := getenv("BELFRY_XXL_LISTEN"); text != "" {
		if err := s.XXL.Listen.UnmarshalText([]byte(text)); err != nil {
			return s, fmt.Errorf("BELFRY_XXL_LISTEN: %w", err)
		}
	}
	if text := getenv("BELFRY_XXL_TOKENS"); text != "" {
		var err error
		if s.XXL.Tokens, err = ParsePaths(text); err != nil {
			return s, fmt.Errorf("BELFRY_XXL_TOKENS: %w", err)
		}
	}
	return s, nil
}

// Over returns s with its unset values taken from base. Only the settings of flags and the
// environment are read from s.
func (s Server) Over(base Server) Server {
	base.Data = cmp.Or(s.Data, base.Data)
	base.Listen = cmp.Or(s.Listen, base.Listen)
	base.OIDC.ClientSecret = cmp.Or(s.OIDC.ClientSecret, base.OIDC.ClientSecret)
	base.Store = cmp.Or(s.Store, base.Store)
	base.History = cmp.Or(s.History, base.History)
	base.Name = cmp.Or(s.Name, base.Name)
	if len(s.Roles) > 0 {
		base.Roles = s.Roles
	}
	if len(s.Labels) > 0 {
		base.Labels = s.Labels
	}
	base.Capacity = cmp.Or(s.Capacity, base.Capacity)
	base.Timezone = cmp.Or(s.Timezone, base.Timezone)
	base.Drain = cmp.Or(s.Drain, base.Drain)
	if s.TLS.Cert != "" || s.TLS.Key != "" {
		base.TLS.Cert, base.TLS.Key = s.TLS.Cert, s.TLS.Key
	}
	base.PlainHTTP = cmp.Or(s.PlainHTTP, base.PlainHTTP)
	base.Shell.DefaultUser = cmp.Or(s.Shell.DefaultUser, base.Shell.DefaultUser)
	base.XXL.Listen = cmp.Or(s.XXL.Listen, base.XXL.Listen)
	if len(s.XXL.Tokens) > 0 {
		base.XXL.Tokens = s.XXL.Tokens
	}
	if len(s.Worker.Servers) > 0 {
		base.Worker.Servers = s.Worker.Servers
	}
	base.Worker.TokenFile = cmp.Or(s.Worker.TokenFile, base.Worker.TokenFile)
	base.Worker.JoinTokenFile = cmp.Or(s.Worker.JoinTokenFile, base.Worker.JoinTokenFile)
	if s.Worker.Cert != "" || s.Worker.Key != "" {
		base.Worker.Cert, base.Worker.Key = s.Worker.Cert, s.Worker.Key
	}
	base.Worker.CA = cmp.Or(s.Worker.CA, base.Worker.CA)
	base.Worker.HealthListen = cmp.Or(s.Worker.HealthListen, base.Worker.HealthListen)
	base.LogFormat = cmp.Or(s.LogFormat, base.LogFormat)
	base.LogLevel = cmp.Or(s.LogLevel, base.LogLevel)
	return base
}

// Filled returns the configuration with the defaults of this machine.
func (s Server) Filled(getenv func(string) string, hostname string, terminal bool) Server {
	s.Data = cmp.Or(s.Data, DefaultData(getenv))
	s.Listen = cmp.Or(s.Listen, DefaultListen)
	s.Store = cmp.Or(s.Store, StoreIn(filepath.Join(s.Data, "belfry.db")))
	s.Name = cmp.Or(s.Name, hostname, "belfry")
	if len(s.Roles) == 0 {
		s.Roles = AllRoles()
	}
	s.Labels = withLabels(s.Labels, hostname)
	s.Capacity = cmp.Or(s.Capacity, DefaultCapacity)
	s.Timezone = cmp.Or(s.Timezone, "UTC")
	s.Output = cmp.Or(s.Output, defaultOutput)
	s.Shell.Umask = cmp.Or(s.Shell.Umask, new(shellUmask))
	s.Drain = cmp.Or(s.Drain, job.Duration(DefaultDrain))
	s.Keep.For = cmp.Or(s.Keep.For, defaultKeepFor)
	s.Keep.OutputFor = cmp.Or(s.Keep.OutputFor, min(s.Keep.For, defaultKeepOutput))
	s.Keep.AuditFor = cmp.Or(s.Keep.AuditFor, defaultKeepAuditFor)
	s.Keep.Audit = cmp.Or(s.Keep.Audit, defaultKeepAudit)
	s.Keep.Revisions = cmp.Or(s.Keep.Revisions, DefaultRevisions)
	s.PlainHTTP = cmp.Or(s.PlainHTTP, new(false))
	s.OIDC = s.OIDC.filled()
	format := LogJSON
	if terminal {
		format = LogText
	}
	s.LogFormat = cmp.Or(s.LogFormat, format)
	s.LogLevel = cmp.Or(s.LogLevel, "info")
	return s
}

// withLabels adds the labels of the machine to the configured labels of a server, which
// take precedence.
func withLabels(values map[string]string, hostname string) map[string]string {
	labels := map[string]string{"arch": runtime.GOARCH}
	if hostname != "" {
		labels["host"] = hostname
	}
	maps.Copy(labels, values)
	return labels
}

// Check reports conflicting settings.
func (s Server) Check() error {
	for i, role := range s.Roles {
		if slices.Contains(s.Roles[:i], role) {
			return fmt.Errorf("roles: %s is named twice", role)
		}
	}
	if err := job.CheckSettings(&s); err != nil { // the flags were not checked yet
		return err
	}
	if err := s.checkHistory(); err != nil {
		return err
	}
	if err := s.XXL.check(); err != nil {
		return err
	}
	if err := s.Kubernetes.check(); err != nil {
		return err
	}
	if err := s.Secrets.check(); err != nil {
		return err
	}
	if err := s.OIDC.check(); err != nil {
		return err
	}
	switch {
	case strings.ContainsFunc(s.Name, unicode.IsControl):
		return fmt.Errorf("name: %q has a character that cannot be shown", s.Name)
	case s.Data != "" && !filepath.IsAbs(s.Data): // it would depend on the current folder
		return errors.New("HOME is not set, so that there is no directory for data: --data or BELFRY_DATA names one")
	case (s.TLS.Cert == "") != (s.TLS.Key == ""):
		return errors.New("a certificate and its key go together: set both of tls.cert and tls.key, or neither")
	case s.TLS.ClientCA != "" && s.TLS.Cert == "":
		return errors.New("tls.client_ca needs TLS: set tls.cert and tls.key")
	case s.TLS.WorkerCertificates && s.TLS.ClientCA == "":
		return errors.New("tls.worker_certificates needs tls.client_ca, the authorities that issue them")
	case (s.Worker.Cert == "") != (s.Worker.Key == ""):
		return errors.New("a certificate and its key go together: set both of worker.cert and worker.key, or neither")
	case !s.Listen.Loopback() && s.TLS.Cert == "" && !s.AllowsPlainHTTP():
		return fmt.Errorf("%s can be reached by others, and without TLS they can read the token on its way: set tls.cert and tls.key (--tls-cert, --tls-key), or plain_http (--plain-http) if something in front of this server has TLS; 127.0.0.1:%s is reached from this machine only", s.Listen, portOf(s.Listen))
	}
	return nil
}

// AllowsPlainHTTP reports whether other machines may use this server without TLS.
func (s Server) AllowsPlainHTTP() bool { return s.PlainHTTP != nil && *s.PlainHTTP }

// Level returns the level of the log.
func (s Server) Level() slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(s.LogLevel)) // it was checked
	return level
}

// LocalOnly reports whether only this machine can reach the API and the store, so that only its
// users can define jobs.
func (s Server) LocalOnly() bool { return s.Listen.Loopback() && s.Store.File() != "" }

// JobDefaults returns the defaults of jobs.
func (s Server) JobDefaults() job.Defaults {
	d := job.Defaults{Timezone: string(s.Timezone), Policy: s.Defaults.Policy}
	for name, defaults := range s.Defaults.Namespaces {
		if d.Namespaces == nil {
			d.Namespaces = map[string]job.Defaults{}
		}
		d.Namespaces[name] = job.Defaults{Timezone: string(defaults.Timezone), Policy: defaults.Policy}
	}
	return d
}

// DefaultData returns the default data directory of a server: where its user keeps the state of
// programs.
func DefaultData(getenv func(string) string) string {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "belfry")
	}
	if os.Geteuid() == 0 {
		return "/var/lib/belfry"
	}
	return filepath.Join(getenv("HOME"), ".local", "state", "belfry")
}
