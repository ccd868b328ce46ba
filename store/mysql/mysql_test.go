package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

func TestNoValueCanEndTheTextThatItIsIn(t *testing.T) {
	for _, c := range []struct {
		name string
		arg  any
		want string
	}{
		{"a number", int64(-12), "-12"},
		{"the least number", int64(math.MinInt64), "(-9223372036854775807-1)"},
		{"nothing", nil, "null"},
		{"a plain text", `say "é"`, `'say "é"'`},
		{"a text with a quote", "o'b", "_utf8mb4 x'6f2762'"},
		{"a text with a backslash", `a\`, "_utf8mb4 x'615c'"},
		{"an empty text", "", "''"},
		{"bytes", []byte{0, 255}, "x'00ff'"},
		{"no bytes", []byte{}, "x''"},
	} {
		var got text
		got.statement("select ? from t", []any{c.arg})
		if want := "select " + c.want + " from t"; got.String() != want {
			t.Errorf("%s is written as %s, want %s", c.name, got.String(), want)
		}
	}
	var got text
	got.statement("a in (?*) and b in (?*) and c in (?*) and d = ?", []any{[]int64{1, 2}, []string{"x", "'"}, [][]byte{}, int64(7)})
	if want := "a in (1,2) and b in ('x',_utf8mb4 x'27') and c in (null) and d = 7"; got.String() != want {
		t.Errorf("got %s, want %s", got.String(), want)
	}
}

func TestLongBytesAreWrittenWhole(t *testing.T) {
	var got text
	got.blob(make([]byte, 1000))
	if want := "x'" + strings.Repeat("00", 1000) + "'"; got.String() != want {
		t.Errorf("%d letters, want %d", got.Len(), len(want))
	}
}

func TestAddressDecidesTheConnection(t *testing.T) {
	a, err := parseAddress("mysql://ann:p%40ss@db.example.com/belfry?pool_max_conns=20&pool_max_conn_lifetime=1h&connect_timeout=2s&statement_timeout=1m&ssl-mode=required")
	if err != nil {
		t.Fatal(err)
	}
	c := a.config
	if c.User != "ann" || c.Passwd != "p@ss" || c.Addr != "db.example.com:3306" || c.DBName != "belfry" || c.Timeout != 2*time.Second {
		t.Errorf("%+v", c)
	}
	if a.connections != 20 || a.lifetime != time.Hour || a.statement != time.Minute {
		t.Errorf("%+v", a)
	}
	if c.TLS == nil || c.AllowFallbackToPlaintext || !c.TLS.InsecureSkipVerify {
		t.Errorf("TLS: %+v", c.TLS)
	}
	if strings.Contains(a.name, "p@ss") || a.name != "mysql://db.example.com:3306/belfry" {
		t.Errorf("it is shown as %s", a.name)
	}
}

func TestTLSFollowsTheAddress(t *testing.T) {
	for mode, want := range map[string]struct{ tls, fallback, blind, own bool }{
		"DISABLED":        {},
		"PREFERRED":       {tls: true, fallback: true, blind: true},
		"REQUIRED":        {tls: true, blind: true},
		"VERIFY_CA":       {tls: true, blind: true, own: true},
		"VERIFY_IDENTITY": {tls: true},
	} {
		a, err := parseAddress("mysql://h/d?ssl-mode=" + mode)
		if err != nil {
			t.Fatal(err)
		}
		c := a.config
		if (c.TLS != nil) != want.tls || c.AllowFallbackToPlaintext != want.fallback {
			t.Errorf("%s: %+v", mode, c)
		}
		if c.TLS != nil && (c.TLS.InsecureSkipVerify != want.blind || (c.TLS.VerifyConnection != nil) != want.own || c.TLS.ServerName != "h") {
			t.Errorf("%s: %+v", mode, c.TLS)
		}
	}
}

// unreachable is a server that closes connections during their handshake.
type unreachable struct{ driver.Connector }

func (unreachable) Connect(context.Context) (driver.Conn, error) { return nil, mysql.ErrInvalidConn }

func TestRejectedClientCertificateIsNamed(t *testing.T) {
	for certified, want := range map[bool]string{false: "invalid connection", true: "invalid connection: the server may not take the certificate of ssl-cert"} {
		_, err := (&connector{[]driver.Connector{unreachable{}}, "", certified, connectTimeout, false}).Connect(t.Context())
		if !errors.Is(err, mysql.ErrInvalidConn) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The server accepts connections and waits for the client, as PostgreSQL does.
func TestSilentServerTimesOutAsTheAddressSays(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	patience, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	const want = "no connection to MySQL or MariaDB was made within 1s"
	if s, err := Open(patience, "mysql://u@"+silent.Addr().String()+"/d?connect_timeout=1s", Options{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, %v, want an error that says %q", s, err, want)
	}
}

func TestSeveralHostsAreTriedInTheirOrder(t *testing.T) {
	a, err := parseAddress("mysql://ann:p%40ss,x@one:1,two,[::1]:3/belfry?ssl-mode=VERIFY_IDENTITY")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"one:1", "two:3306", "[::1]:3"}; !slices.Equal(a.hosts, want) || a.config.Passwd != "p@ss,x" || a.name != "mysql://one:1,two:3306,[::1]:3/belfry" {
		t.Errorf("got %v, %s, %s", a.hosts, a.config.Passwd, a.name)
	}
	if _, err := parseAddress("mysql://" + strings.Repeat("a,", hostsMax) + "a/d"); err == nil || !strings.Contains(err.Error(), "has 17 hosts, allowed is 16") {
		t.Errorf("got %v", err)
	}
}

func TestInvalidAddressIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"mysql://u:secret@h":                        "no host, or no name",
		"mysql:///d":                                "no host, or no name",
		"mysql://u:secret@h,,i/d":                   "no host, or no name",
		"mysql://u:secret@h,i:port/d":               `the host "i:port" cannot be read`,
		"mysql://u:secret@h:port/d":                 "cannot be read",
		"mysql://u:secret@h/d?charset=latin1":       "charset: is not a parameter",
		"mysql://u:secret@h/d?pool_max_conns=1":     "pool_max_conns: must be at least",
		"mysql://u:secret@h/d?statement_timeout=30": `statement_timeout: "30" is not a time`,
		"mysql://u:secret@h/d?ssl-mode=maybe":       "ssl-mode: MAYBE is none of",
		"mysql://u:secret@h/d?ssl-ca=/none":         "/none",
		"mysql://u:secret@h/d?ssl-key=/none":        "ssl-cert and ssl-key go together",
		"mysql://u@h/d?ssl-mode=VERIFY_CA;x=secret": "joined by &",
		"mysql://u@h/d?ssl-ca=/%secret":             "joined by &",
	} {
		_, err := parseAddress(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error that says %q", text, err, want)
		}
	}
}

// Statements are the same for all databases, so that they must have the same tables
// and columns.
func TestSchemaMatchesThatOfPostgreSQL(t *testing.T) {
	ours, theirs := columns(t, "migrations"), columns(t, "../postgres/migrations")
	for name := range theirs {
		if !ours[name] {
			t.Errorf("%s is missing", name)
		}
	}
	for name := range ours {
		if !theirs[name] && !strings.HasPrefix(name, "notices.") {
			t.Errorf("%s is not in PostgreSQL", name)
		}
	}
}

var (
	tablePattern  = regexp.MustCompile(`(?s)create table (?:if not exists )?(\w+) \((.*?)\n\)`)
	columnPattern = regexp.MustCompile(`(?m)^  (\w+) +\w`)
)

// columns returns the columns that the scripts of a directory make.
func columns(t *testing.T, directory string) map[string]bool {
	t.Helper()
	scripts, err := filepath.Glob(filepath.Join(directory, "*.sql"))
	if err != nil || len(scripts) == 0 {
		t.Fatal(err, "no scripts")
	}
	names := map[string]bool{}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tablePattern.FindAllStringSubmatch(string(text), -1) {
			for _, column := range columnPattern.FindAllStringSubmatch(table[2], -1) {
				if column[1] != "primary" && column[1] != "key" {
					names[table[1]+"."+column[1]] = true
				}
			}
		}
	}
	return names
}

func TestOldServersAreRefused(t *testing.T) {
	for version, well := range map[string]bool{
		"5.7.44-log": false, "8.0.18": false, "8.0.19": true, "8.4.3": true, "9.1.0-commercial": true,
		"10.5.27-MariaDB": false, "10.6.20-MariaDB-log": true, "10.11.14-MariaDB-0+deb12u2": true, "11.8.1-MariaDB": true,
	} {
		if server, err := product(version); (err == nil) != well || well && !strings.HasSuffix(server, version) {
			t.Errorf("%s: %q, %v", version, server, err)
		}
	}
}
