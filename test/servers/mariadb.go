package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// MariaDB is a MariaDB server of a test.
type MariaDB struct {
	*process

	databases atomic.Int64
}

// StartMariaDB starts a server, and stops it at the end of the test. The options are for its
// command line.
func StartMariaDB(t testing.TB, options ...string) *MariaDB {
	t.Helper()
	m, err := NewMariaDB(options...)
	if err != nil {
		t.Fatalf("start MariaDB: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("stop MariaDB: %v", err)
		}
	})
	return m
}

// NewMariaDB starts a server that Close ends, for the TestMain of a package.
func NewMariaDB(options ...string) (m *MariaDB, err error) {
	programs, err := findMariaDB()
	if err != nil {
		return nil, err
	}
	m = &MariaDB{}
	m.process, err = prepareProcess("mariadb", "ready for connections", func(p *process) *exec.Cmd {
		return exec.Command(programs.server, append([]string{
			"--no-defaults", "--user=" + userName(), "--datadir=" + m.data(), "--tmpdir=" + p.Dir, "--socket=" + filepath.Join(p.Dir, "socket"),
			"--pid-file=" + filepath.Join(p.Dir, "pid"), "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", p.Port), "--skip-log-bin",
			"--max-connections=200",
		}, options...)...)
	})
	if err != nil {
		return nil, err
	}
	self := m // m is nil after an error
	defer func() {
		if err != nil {
			err = errors.Join(err, self.Close())
		}
	}()
	init := exec.Command(programs.install, "--no-defaults", "--datadir="+m.data(), "--tmpdir="+m.Dir, "--auth-root-authentication-method=normal", "--skip-test-db", "--user="+userName())
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	return m, startAnywhere(&m.Port, m.Start)
}

func (m *MariaDB) data() string { return filepath.Join(m.Dir, "data") }

// userName is the user of the test, whom the server runs as even if that is root.
func userName() string {
	if os.Getuid() == 0 {
		return "root"
	}
	return os.Getenv("USER")
}

// URL is the address of a database.
func (m *MariaDB) URL(database string) string {
	return fmt.Sprintf("mysql://root@127.0.0.1:%d/%s", m.Port, database)
}

// Database makes an empty database and returns its address.
func (m *MariaDB) Database() (string, error) {
	name := fmt.Sprintf("d%d", m.databases.Add(1))
	return m.URL(name), m.Exec(context.Background(), "create database "+name)
}

// Exec runs statements as root.
func (m *MariaDB) Exec(ctx context.Context, statement string) error {
	db, err := m.connect()
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

// connect makes connections as root.
func (m *MariaDB) connect() (*sql.DB, error) {
	c := mysql.NewConfig()
	c.MultiStatements = true
	c.User, c.Net, c.Addr = "root", "tcp", fmt.Sprintf("127.0.0.1:%d", m.Port)
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

type mariadbPrograms struct{ server, install string }

// findMariaDB returns the programs of the server that is installed.
func findMariaDB() (p mariadbPrograms, err error) {
	if p.server, err = exec.LookPath("mariadbd"); err != nil {
		p.server, err = exec.LookPath("/usr/sbin/mariadbd")
	}
	if err == nil {
		p.install, err = exec.LookPath("mariadb-install-db")
	}
	if err != nil {
		return p, errors.New("no server is installed: make servers installs Debian's, where it may; or apt-get install mariadb-server")
	}
	return p, nil
}
