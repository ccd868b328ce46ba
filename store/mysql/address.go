package mysql

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

const (
	// connectTimeout is the default of connect_timeout.
	connectTimeout = 5 * time.Second
	// statementTimeout is the default of statement_timeout. Statements are normally short, and a
	// long one blocks others.
	statementTimeout = 30 * time.Second
	// openMax bounds the steps of opening a database that change no schema, so that a connection whose
	// other end is gone is given up.
	openMax = 30 * time.Second
	// lockTimeout bounds the wait for the lock of a row.
	lockTimeout = 10 * time.Second
	// idleTimeout is how long a server keeps a silent connection: a node frozen within a
	// transaction must not hold its locks. Idle connections in the pool are closed earlier.
	idleTimeout = 10 * time.Second
	// connections is the default of pool_max_conns: beyond some, commits wait for each other.
	connections = 10
	// answerSlack is how much longer than the server itself a node waits for it.
	answerSlack = 5 * time.Second
	defaultPort = "3306"
)

// address is the parsed address of a database.
type address struct {
	config      *mysql.Config
	hosts       []string // with ports, in the order of trying
	security    security
	name        string // without a password
	connections int
	lifetime    time.Duration
	hooked      bool // a connection may fail in a hook of the program
	limits
}

// limits bound statements, waits for locks and idle time.
type limits struct{ statement, lock, idle time.Duration }

// unbounded are the limits of who changes the schema.
var unbounded = limits{lock: time.Hour, idle: time.Hour}

// hostsMax bounds the hosts of an address: more than a group of replicas has.
const hostsMax = 16

// firstHost returns an address with only its first host, and the other hosts.
func firstHost(text string) (string, []string) {
	scheme, rest, _ := strings.Cut(text, "://")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	from := strings.LastIndex(rest[:end], "@") + 1
	hosts := strings.Split(rest[from:end], ",")
	return scheme + "://" + rest[:from] + hosts[0] + rest[end:], hosts[1:]
}

// withPort returns host:port for what an address has as a host.
func withPort(u *url.URL) (string, error) {
	if u.Hostname() == "" {
		return "", errors.New("has no host, or no name of a database: mysql://user@host/name")
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), defaultPort)), nil
}

// parseAddress reads mysql://user:password@host1:port,host2:port/name?parameters.
func parseAddress(text string) (*address, error) {
	first, others := firstHost(text)
	u, err := url.Parse(first)
	if err != nil {
		return nil, errors.New("cannot be read") // the cause contains the password
	}
	host, err := withPort(u)
	if err != nil {
		return nil, err
	}
	hosts := []string{host}
	if len(others) >= hostsMax {
		return nil, fmt.Errorf("has %d hosts, allowed is %d", len(others)+1, hostsMax)
	}
	for _, other := range others {
		at, err := url.Parse("mysql://" + other)
		if err != nil {
			return nil, fmt.Errorf("the host %q cannot be read", other)
		}
		if host, err = withPort(at); err != nil {
			return nil, err
		}
		hosts = append(hosts, host)
	}
	name := strings.TrimPrefix(u.Path, "/")
	if name == "" {
		return nil, errors.New("has no host, or no name of a database: mysql://user@host/name")
	}
	c := mysql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr, c.DBName = "tcp", hosts[0], name
	c.Collation, c.Loc = "utf8mb4_bin", time.UTC
	c.MultiStatements = true
	c.Logger = &mysql.NopLogger{} // its errors are returned
	c.MaxAllowedPacket = 0        // the server's limit
	a := &address{
		config: c, hosts: hosts, name: fmt.Sprintf("mysql://%s/%s", strings.Join(hosts, ","), name),
		connections: connections, limits: limits{statementTimeout, lockTimeout, idleTimeout},
	}
	c.Timeout = connectTimeout
	parameters, err := sqldb.Parameters(u)
	if err != nil {
		return nil, err
	}
	secure := security{host: u.Hostname(), mode: "PREFERRED"}
	for key, values := range parameters {
		if err := a.parameter(&secure, key, values[len(values)-1]); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	a.security = secure
	return a, secure.apply(c)
}

func (a *address) parameter(s *security, key, value string) (err error) {
	switch key {
	case "pool_max_conns":
		a.connections, err = strconv.Atoi(value)
		if err == nil && a.connections < connectionsMin {
			return fmt.Errorf("must be at least %d: calls, notices and those of the API wait for each other otherwise", connectionsMin)
		}
	case "pool_max_conn_lifetime":
		a.lifetime, err = duration(value)
	case "connect_timeout":
		a.config.Timeout, err = duration(value)
	case "statement_timeout":
		a.statement, err = duration(value)
	case "ssl-mode":
		s.mode = strings.ToUpper(value)
	case "ssl-ca":
		s.ca = value
	case "ssl-cert":
		s.cert = value
	case "ssl-key":
		s.key = value
	default:
		return errors.New("is not a parameter of this store")
	}
	return err
}

// duration reads a time that is at least a second.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, fmt.Errorf("%q is not a time such as 30s", text)
	}
	return d, nil
}

// open makes a pool of connections that have these limits.
func (a *address) open(l limits) (*sql.DB, error) {
	c := a.config.Clone()
	if l.statement > 0 {
		c.ReadTimeout, c.WriteTimeout = l.statement+answerSlack, l.statement+answerSlack
	}
	all := &connector{session: l.session(), within: c.Timeout, hooked: a.hooked}
	for _, host := range a.hosts {
		of := c.Clone()
		of.Addr = host
		if len(a.hosts) > 1 { // each host has its own certificate
			secure := a.security
			secure.host, _, _ = net.SplitHostPort(host)
			if err := secure.apply(of); err != nil {
				return nil, err
			}
		}
		conn, err := mysql.NewConnector(of)
		if err != nil {
			return nil, err
		}
		all.hosts = append(all.hosts, conn)
		all.certified = of.TLS != nil && len(of.TLS.Certificates) > 0
	}
	return sql.OpenDB(all), nil
}

// session returns the first statements of a connection. Each of the two servers reads one of the
// comments: MariaDB bounds all statements, MySQL only reads.
func (l limits) session() string {
	return fmt.Sprintf("set session transaction isolation level read committed;"+
		"set session autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00',"+
		" innodb_lock_wait_timeout = %d, wait_timeout = %d /*M! , max_statement_time = %d */ /*!80000 , max_execution_time = %d */",
		int(l.lock.Seconds()), int(l.idle.Seconds()), int(l.statement.Seconds()), l.statement.Milliseconds())
}

// security is the TLS settings of an address, as MySQL's own programs name them.
type security struct {
	host          string
	mode          string
	ca, cert, key string // files
}

// apply sets the configuration of TLS.
func (s *security) apply(c *mysql.Config) error {
	config := &tls.Config{ServerName: s.host, MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("ssl-ca: %s has no certificate", s.ca)
		}
	}
	if (s.cert == "") != (s.key == "") {
		return errors.New("ssl-cert and ssl-key go together: set both, or neither")
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return fmt.Errorf("ssl-cert and ssl-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	switch s.mode {
	case "DISABLED":
		return nil
	case "PREFERRED":
		config.InsecureSkipVerify, c.AllowFallbackToPlaintext = true, true
	case "REQUIRED":
		config.InsecureSkipVerify = true
	case "VERIFY_CA":
		// The certificate is checked without the name of the server.
		config.InsecureSkipVerify, config.VerifyConnection = true, func(state tls.ConnectionState) error {
			options := x509.VerifyOptions{Roots: config.RootCAs, Intermediates: x509.NewCertPool()}
			for _, cert := range state.PeerCertificates[1:] {
				options.Intermediates.AddCert(cert)
			}
			_, err := state.PeerCertificates[0].Verify(options)
			return err
		}
	case "VERIFY_IDENTITY":
	default:
		return fmt.Errorf("ssl-mode: %s is none of DISABLED, PREFERRED, REQUIRED, VERIFY_CA and VERIFY_IDENTITY", s.mode)
	}
	c.TLS = config
	return nil
}
