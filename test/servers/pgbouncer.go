package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Pgbouncer is a connection pooler before a PostgreSQL server of a test.
type Pgbouncer struct {
	*process
	before *Postgres
}

// StartPgbouncer starts a pooler in a mode, session or transaction, and stops it at the end of the
// test. Settings are lines of its section pgbouncer.
func (p *Postgres) StartPgbouncer(t testing.TB, mode string, settings ...string) *Pgbouncer {
	t.Helper()
	b, err := p.NewPgbouncer(mode, settings...)
	if err != nil {
		t.Fatalf("start PgBouncer: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("stop PgBouncer: %v", err)
		}
	})
	return b
}

// NewPgbouncer starts a pooler that Close ends, for the TestMain of a package.
func (p *Postgres) NewPgbouncer(mode string, settings ...string) (b *Pgbouncer, err error) {
	b = &Pgbouncer{before: p}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	b.process, err = prepareProcess("pgbouncer", "process up", func(own *process) *exec.Cmd {
		cmd := exec.Command(pgbouncerProgram(), "pgbouncer.ini")
		// The port is known only when it starts.
		err := os.WriteFile(filepath.Join(own.Dir, "pgbouncer.ini"), []byte(b.config(own.Port, mode, settings)), 0o644)
		if err != nil {
			cmd.Err = err
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		return cmd
	})
	if err != nil {
		return nil, err
	}
	b.stop, b.kill = syscall.SIGINT, syscall.SIGKILL
	if err = os.WriteFile(filepath.Join(b.Dir, "users"), []byte("\"belfry\" \"\"\n"), 0o644); err == nil && as != nil {
		err = os.Chown(b.Dir, int(as.Uid), int(as.Gid))
	}
	if err == nil {
		err = startAnywhere(&b.Port, b.Start)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// config is its configuration. Debian's version refuses all settings of connections that it does not
// know, as do its successors.
func (b *Pgbouncer) config(port int, mode string, settings []string) string {
	return strings.Join(append([]string{
		"[databases]", fmt.Sprintf("* = host=127.0.0.1 port=%d", b.before.Port),
		"[pgbouncer]", "listen_addr = 127.0.0.1", "listen_port = " + strconv.Itoa(port), "unix_socket_dir =",
		"auth_type = trust", "auth_file = users", "pool_mode = " + mode, "max_client_conn = 400",
	}, settings...), "\n") + "\n"
}

// Through returns the address of a database with the pooler in its place.
func (b *Pgbouncer) Through(address string) string {
	return strings.Replace(address, b.before.address(), b.address(), 1)
}

// pgbouncerProgram is where Debian installs it, which is in the path of root alone.
func pgbouncerProgram() string {
	const program = "/usr/sbin/pgbouncer"
	if _, err := os.Stat(program); err == nil {
		return program
	}
	return "pgbouncer"
}
