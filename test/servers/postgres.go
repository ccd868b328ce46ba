// Package servers starts database servers for tests: in a temporary directory, on a free port of
// this machine, and gone with the test, even if that is killed.
//
// Plain go test needs no server. Tests that need one have the build tag servers; with it they fail,
// and do not skip, if a server is missing. make servers installs missing servers on Debian and runs
// the tests.
package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// Postgres is a PostgreSQL server of a test.
type Postgres struct {
	*process

	bin string
	as  *syscall.Credential // its user; nil for the user of the test

	schemas atomic.Int64
}

// StartPostgres starts a server, and stops it at the end of the test. Settings
// are lines of postgresql.conf.
func StartPostgres(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	p, err := NewPostgres(settings...)
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("stop PostgreSQL: %v", err)
		}
	})
	return p
}

// NewPostgres starts a server that Close ends, for the TestMain of a package.
func NewPostgres(settings ...string) (p *Postgres, err error) {
	p, err = preparePostgres()
	if err != nil {
		return nil, err
	}
	server := p // p is nil after an error
	defer func() {
		if err != nil {
			err = errors.Join(err, server.Close())
		}
	}()
	init := p.program("initdb", "-D", p.data(), "-U", "belfry", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	lines := append([]string{
		"listen_addresses = '127.0.0.1'", "unix_socket_directories = ''",
		"max_connections = 200", "logging_collector = off",
	}, settings...)
	if err := appendTo(filepath.Join(p.data(), "postgresql.conf"), strings.Join(lines, "\n")+"\n"); err != nil {
		return nil, err
	}
	return p, startAnywhere(&p.Port, p.Start)
}

// preparePostgres creates the directory of an empty server.
func preparePostgres() (p *Postgres, err error) {
	p = &Postgres{}
	if p.bin, err = postgresPrograms(); err != nil {
		return nil, err
	}
	if p.as, err = unprivileged(); err != nil {
		return nil, err
	}
	p.process, err = prepareProcess("postgres", "database system is ready to accept", func(own *process) *exec.Cmd {
		return p.program("postgres", "-D", p.data(), "-p", strconv.Itoa(own.Port))
	})
	if err != nil {
		return nil, err
	}
	// SIGINT does not wait for clients; SIGQUIT also ends the children.
	p.stop, p.kill = syscall.SIGINT, syscall.SIGQUIT
	if p.as != nil {
		err = os.Chown(p.Dir, int(p.as.Uid), int(p.as.Gid))
	}
	return p, err
}

// appendTo adds lines to a file.
func appendTo(path, lines string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + lines)
	return errors.Join(err, f.Close())
}

func (p *Postgres) data() string { return filepath.Join(p.Dir, "data") }

// URL is the address of its database. Connections may take long, as on a machine that stalls.
func (p *Postgres) URL() string {
	return fmt.Sprintf("postgres://belfry@127.0.0.1:%d/postgres?sslmode=disable&connect_timeout=60", p.Port)
}

// Schema returns the address of a new schema: what an empty store is opened with.
func (p *Postgres) Schema() string {
	return fmt.Sprintf("%s&schema=s%d", p.URL(), p.schemas.Add(1))
}

// program is a command line of a program of PostgreSQL.
func (p *Postgres) program(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.as}
	return cmd
}

// postgresPrograms returns the directory of the newest server that is installed, or of another version that BELFRY_POSTGRES names.
func postgresPrograms() (string, error) {
	if dir := os.Getenv("BELFRY_POSTGRES"); dir != "" {
		return dir, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", err
	}
	slices.SortFunc(found, func(a, b string) int { return versionIn(a) - versionIn(b) })
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", errors.New("no server is installed: make servers installs Debian's, where it may; or apt-get install postgresql")
	}
	return filepath.Dir(path), nil
}

func versionIn(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// unprivileged returns whom a server runs as that refuses to run as root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and this machine has no other user for it")
}
