package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MariaDB is a MariaDB server of a test.
type MariaDB struct {
	Port int
	// Dir is where it keeps everything.
	Dir string

	programs mariadbPrograms
	options  []string

	mu        sync.Mutex
	process   *exec.Cmd
	databases int
}

// StartMariaDB starts a server, and stops it at the end of the test. Options are
// those of its command line.
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
	m = &MariaDB{options: options}
	if m.programs, err = findMariaDB(); err != nil {
		return nil, err
	}
	if m.Dir, err = os.MkdirTemp("", "belfry-mariadb-"); err != nil {
		return nil, err
	}
	dir := m.Dir // m is nil after an error
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	init := exec.Command(m.programs.install, "--no-defaults", "--datadir="+m.data(), "--tmpdir="+m.Dir, "--auth-root-authentication-method=normal", "--skip-test-db", "--user="+userName())
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	return m, startAnywhere(&m.Port, m.Start)
}

func (m *MariaDB) data() string { return filepath.Join(m.Dir, "data") }

// userName is whom the server runs as: ourselves, also where that is root.
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
	m.mu.Lock()
	m.databases++
	name := fmt.Sprintf("d%d", m.databases)
	m.mu.Unlock()
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

// answers returns the directory of the server that answers at the port.
func (m *MariaDB) answers(ctx context.Context) (data string, err error) {
	db, err := m.connect()
	if err != nil {
		return "", err
	}
	err = db.QueryRowContext(ctx, "select @@datadir").Scan(&data)
	return data, errors.Join(err, db.Close())
}

// connect makes connections as root.
func (m *MariaDB) connect() (*sql.DB, error) {
	c := mysql.NewConfig()
	c.MultiStatements = true
	c.User, c.Net, c.Addr = "root", "tcp", fmt.Sprintf("127.0.0.1:%d", m.Port)
	c.Logger = &mysql.NopLogger{} // while it starts it refuses
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// Start starts the server, after Stop or Kill, and waits until it answers.
func (m *MariaDB) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(m.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(m.programs.server, append([]string{
		"--no-defaults", "--user=" + userName(), "--datadir=" + m.data(), "--tmpdir=" + m.Dir, "--socket=" + filepath.Join(m.Dir, "socket"),
		"--pid-file=" + filepath.Join(m.Dir, "pid"), "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", m.Port), "--skip-log-bin",
		"--max-connections=200",
	}, m.options...)...)
	cmd.Dir, cmd.SysProcAttr = m.Dir, &syscall.SysProcAttr{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := startTied(cmd); err != nil {
		return err
	}
	m.process = cmd
	ctx, cancel := context.WithTimeout(context.Background(), startMax)
	defer cancel()
	for {
		data, err := m.answers(ctx)
		if err == nil {
			if !samePlace(data, m.data()) {
				return errors.Join(errTaken, stopTaken(cmd, &m.process))
			}
			return nil
		}
		select {
		case <-ctx.Done():
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("it does not answer: %w\n%s", err, said)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the server as an operator does.
func (m *MariaDB) Stop() error { return m.end(syscall.SIGTERM) }

// Kill ends it as a power cut does, but for what the system has in memory.
func (m *MariaDB) Kill() error { return m.end(syscall.SIGKILL) }

func (m *MariaDB) end(signal syscall.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return nil
	}
	if err := m.process.Process.Signal(signal); err != nil {
		return err
	}
	late := time.AfterFunc(stopMax, func() { _ = m.process.Process.Kill() })
	err := m.process.Wait()
	late.Stop()
	m.process = nil
	var exit *exec.ExitError
	if errors.As(err, &exit) && signal == syscall.SIGKILL {
		return nil
	}
	return err
}

// Close ends the server and removes what it kept.
func (m *MariaDB) Close() error {
	return errors.Join(m.end(syscall.SIGKILL), os.RemoveAll(m.Dir))
}

// CPU is the processor time that the server has used since it was started.
func (m *MariaDB) CPU() (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cpuOf(m.process.Process.Pid)
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
