// Package servers starts database servers for tests: in a temporary directory, on
// a free port of this machine, and gone with the test, even if that is killed.
//
// Plain go test needs no server. The tests that do are in files with the build tag
// servers; with it they fail, and do not skip, where a server is missing. make
// servers installs what is missing on Debian and runs them.
package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Postgres is a PostgreSQL server of a test.
type Postgres struct {
	Port int
	// Dir is where it keeps everything.
	Dir string

	bin string
	as  *syscall.Credential // whom it runs as; nil for ourselves

	mu      sync.Mutex
	process *exec.Cmd
	schemas int
}

const (
	// startMax bounds a start: initdb takes some seconds on a busy machine.
	startMax = 2 * time.Minute
	// stopMax is what a server gets to end by itself.
	stopMax = 20 * time.Second
)

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
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	p = &Postgres{bin: bin}
	if p.Dir, err = os.MkdirTemp("", "belfry-postgres-"); err != nil {
		return nil, err
	}
	dir := p.Dir // p is nil after an error
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if p.as, err = unprivileged(); err != nil {
		return nil, err
	}
	if p.as != nil {
		if err := os.Chown(p.Dir, int(p.as.Uid), int(p.as.Gid)); err != nil {
			return nil, err
		}
	}
	init := p.command("initdb", "-D", p.data(), "-U", "belfry", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
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

// URL is the address of its database.
func (p *Postgres) URL() string {
	return fmt.Sprintf("postgres://belfry@127.0.0.1:%d/postgres?sslmode=disable", p.Port)
}

// Schema returns the address of a new schema: what an empty store is opened with.
func (p *Postgres) Schema() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schemas++
	return fmt.Sprintf("%s&schema=s%d", p.URL(), p.schemas)
}

// Start starts the server, after Stop or Kill, and waits until it answers.
func (p *Postgres) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(p.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.command("postgres", "-D", p.data(), "-p", strconv.Itoa(p.Port))
	cmd.Stdout, cmd.Stderr = log, log
	if err := startTied(cmd); err != nil {
		return err
	}
	p.process = cmd
	ctx, cancel := context.WithTimeout(context.Background(), startMax)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, p.URL())
		if err == nil {
			var data string
			err = errors.Join(conn.QueryRow(ctx, "show data_directory").Scan(&data), conn.Close(ctx))
			if err == nil && !samePlace(data, p.data()) {
				return errors.Join(errTaken, stopTaken(cmd, &p.process))
			}
			return err
		}
		select {
		case <-ctx.Done():
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("it does not answer: %w\n%s", err, said)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the server as an operator does who does not wait for clients.
func (p *Postgres) Stop() error { return p.end(syscall.SIGINT) }

// Kill ends it as a power cut does, but for what the system has in memory.
func (p *Postgres) Kill() error { return p.end(killed) }

// killed ends it at once.
const killed = syscall.SIGQUIT

func (p *Postgres) end(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return nil
	}
	if err := p.process.Process.Signal(signal); err != nil {
		return err
	}
	late := time.AfterFunc(stopMax, func() { _ = p.process.Process.Kill() })
	err := p.process.Wait()
	late.Stop()
	p.process = nil
	var exit *exec.ExitError
	if errors.As(err, &exit) && signal == killed {
		return nil
	}
	return err
}

// Close ends the server and removes what it kept.
func (p *Postgres) Close() error {
	return errors.Join(p.end(killed), os.RemoveAll(p.Dir))
}

// CPU is the processor time that the server has used since it was started.
func (p *Postgres) CPU() (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cpuOf(p.process.Process.Pid)
}

func (p *Postgres) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, program), args...)
	cmd.Dir = p.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.as}
	return cmd
}

// postgresPrograms returns the directory of the newest server that is installed.
func postgresPrograms() (string, error) {
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
	return nil, errors.New("there is no user postgres or nobody, and no server runs as root")
}

// errTaken is what a server is told to have run into that has lost the race for its port.
var errTaken = errors.New("another server has the port")

// startAnywhere starts a server at a free port, and at another one if somebody else takes
// that first.
func startAnywhere(port *int, start func() error) (err error) {
	const tries = 5
	for range tries {
		if *port, err = freePort(); err != nil {
			return err
		}
		if err = start(); !errors.Is(err, errTaken) {
			return err
		}
	}
	return err
}

// stopTaken ends a server that cannot have its port, if it has not ended by itself.
func stopTaken(cmd *exec.Cmd, process **exec.Cmd) error {
	*process = nil
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = cmd.Wait() // says that it was killed
	return nil
}

// samePlace tells whether two paths name one directory.
func samePlace(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// freePort returns a port that nobody has, and that no connection gets by chance
// while the server that has it is started again: systems take those from 32768 on,
// or from 49152.
func freePort() (port int, err error) {
	const from, below, tries = 10_000, 32_768, 100
	for range tries {
		port = from + rand.IntN(below-from)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}
