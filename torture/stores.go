package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// A store is a server that the nodes of a system share: started here, or named by its address.
type store struct {
	url     *url.URL
	process *process // nil if it was named by its address
	ready   func() error
	version string
}

// at is the address of the store by way of a proxy.
func (s *store) at(address string) string {
	u := *s.url
	u.Host = address
	return u.String()
}

// readyTimeout is how long a server or a node has to become ready, on a machine that does much else.
const readyTimeout = 90 * time.Second

// openStore starts a server of a kind in a folder, or takes the address that the user has named for it.
func openStore(ctx context.Context, kind, dir, log, address string) (*store, error) {
	if address != "" {
		u, err := url.Parse(address)
		if err != nil {
			return nil, fmt.Errorf("the address of %s: %w", kind, err)
		}
		return &store{url: u, version: "as named"}, nil
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &store{url: &url.URL{Host: "127.0.0.1:" + strconv.Itoa(port)}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	switch kind {
	case "redis":
		s.url.Scheme = "redis"
		err = s.redis(dir, log, port)
	case "postgres":
		s.url.Scheme, s.url.Path, s.url.User = "postgres", "/postgres", url.User("torture")
		s.url.RawQuery = "sslmode=disable"
		err = s.postgres(dir, log, port)
	case "mariadb":
		s.url.Scheme, s.url.Path, s.url.User = "mysql", "/torture", url.User("root")
		err = s.mariadb(dir, log, port)
	case "etcd":
		s.url.Scheme, s.url.Path = "etcd", "/torture"
		err = s.etcd(dir, log)
	default:
		err = fmt.Errorf("%s is not started here: name its address", kind)
	}
	if err != nil {
		return nil, err
	}
	if err := s.process.start(); err != nil {
		return nil, err
	}
	if err := s.wait(ctx); err != nil {
		s.process.end()
		return nil, err
	}
	return s, nil
}

// wait returns when the server answers.
func (s *store) wait(ctx context.Context) error {
	return eventually(ctx, func() error {
		if s.process.ended() {
			return errors.Join(fmt.Errorf("%s ended: see %s", s.process.name, s.process.log), s.process.start())
		}
		if s.ready != nil {
			return s.ready()
		}
		c, err := net.DialTimeout("tcp", s.url.Host, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// redis keeps each write: what it has acknowledged is on the disk.
func (s *store) redis(dir, log string, port int) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	s.version = versionOf(path, "--version")
	s.process = &process{name: "redis", log: log, command: func() *exec.Cmd {
		return exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
	}}
	return nil
}

func (s *store) postgres(dir, log string, port int) error {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return err
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		return errors.New("no PostgreSQL is installed")
	}
	bin, data := filepath.Dir(found[0]), filepath.Join(dir, "data")
	s.version = versionOf(found[0], "--version")
	as, err := owned(dir, "postgres")
	if err != nil {
		return err
	}
	init := as(exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "torture", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"))
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	// Its port answers before the server does.
	s.ready = func() error {
		return exec.Command(filepath.Join(bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(port)).Run()
	}
	s.process = &process{name: "postgres", log: log, command: func() *exec.Cmd {
		// A crash leaves this file, with the number of a process that may be another one by now.
		_ = os.Remove(filepath.Join(data, "postmaster.pid"))
		return as(exec.Command(found[0], "-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="))
	}}
	return nil
}

// owned returns how to run a program as a user that owns a folder, for programs that refuse to be run by root.
func owned(dir, name string) (func(*exec.Cmd) *exec.Cmd, error) {
	if os.Getuid() != 0 {
		return func(cmd *exec.Cmd) *exec.Cmd { return cmd }, nil
	}
	owner, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	return func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return cmd
	}, os.Chown(dir, uid, gid)
}

func (s *store) mariadb(dir, log string, port int) error {
	server, err := exec.LookPath("mariadbd")
	if err != nil {
		if server, err = exec.LookPath("/usr/sbin/mariadbd"); err != nil {
			return err
		}
	}
	s.version = versionOf(server, "--version")
	// Root only is its own user if that is said.
	me, err := user.Current()
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	init := exec.Command("mariadb-install-db", "--no-defaults", "--user="+me.Username, "--datadir="+data, "--tmpdir="+dir, "--auth-root-authentication-method=normal")
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	sql := filepath.Join(dir, "init.sql")
	if err := os.WriteFile(sql, []byte("CREATE DATABASE IF NOT EXISTS torture;\n"), 0o644); err != nil {
		return err
	}
	s.process = &process{name: "mariadb", log: log, command: func() *exec.Cmd {
		return exec.Command(server, "--no-defaults", "--user="+me.Username, "--datadir="+data, "--tmpdir="+dir, "--socket="+filepath.Join(dir, "socket"), "--pid-file="+filepath.Join(dir, "pid"),
			"--bind-address=127.0.0.1", "--port="+strconv.Itoa(port), "--skip-log-bin", "--max-connections=200", "--init-file="+sql)
	}}
	return nil
}

func (s *store) etcd(dir, log string) error {
	server, err := exec.LookPath("etcd")
	if err != nil {
		return err
	}
	peers, err := freePort()
	if err != nil {
		return err
	}
	s.version = versionOf(server, "--version")
	client, peer := "http://"+s.url.Host, fmt.Sprintf("http://127.0.0.1:%d", peers)
	s.process = &process{name: "etcd", log: log, command: func() *exec.Cmd {
		return exec.Command(server, "--name=torture", "--data-dir="+filepath.Join(dir, "data"), "--listen-client-urls="+client, "--advertise-client-urls="+client,
			"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=torture="+peer)
	}}
	return nil
}

func versionOf(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "?"
	}
	return firstLine(string(out))
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// eventually tries again until there is no error, or the time for it is up.
func eventually(ctx context.Context, try func() error) error {
	for end := time.Now().Add(readyTimeout); ; pause(ctx, 100*time.Millisecond) {
		err := try()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return errors.Join(err, ctx.Err())
		}
	}
}
