//go:build servers && linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/belfry-cron/belfry/test/servers"
)

// TestTheRoadFromAnEmptyMachine walks what operators do with the package: the crontab of a machine
// moves in, one of its jobs fails and mails, the machine is lost, another one restores the backup,
// and both go on with PostgreSQL.
func TestTheRoadFromAnEmptyMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can install packages into a root, so that none is installed")
	}
	mails := takeMails(t)
	one, two := newDebian(t), newDebian(t)
	one.must("dpkg", "--force-confold", "--install", one.put(file(t, ".deb")))
	one.answers(testVersion)

	crontab := "MAILTO=ops@example.org\n30 2 * * * daemon echo 读取 42 orders as $(id -un); exit 3\n"
	one.write("/etc/crontab", crontab, 0o644)
	move := []string{"belfry", "crontab", "import", "/etc/crontab", "--tz", "UTC", "--apply", "--comment-out", "--mail-server", mails.address, "--mail-from", "belfry@example.org"}
	if _, err := one.run(move...); err == nil || !strings.Contains(err.Error(), "--allow-users writes daemon") {
		t.Fatalf("a line of a user whom no node allows: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(one.root, "etc/crontab")); err != nil || string(text) != crontab {
		t.Fatalf("the crontab is now %q, %v", text, err)
	}
	one.must(append(move, "--allow-users")...)
	one.must("systemctl", "reload", "belfry")
	one.wait("the import", func() error { _, err := one.run(move...); return err })
	if text, err := os.ReadFile(filepath.Join(one.root, "etc/crontab")); err != nil || !strings.Contains(string(text), "\n#belfry# 30 2") {
		t.Errorf("the crontab is now %q, %v", text, err)
	}
	name := strings.TrimSpace(one.must("belfry", "job", "list", "-o", "name"))
	if _, err := one.run("belfry", "job", "run", name, "--wait"); err == nil {
		t.Error("the job did not fail")
	}
	one.wait("a mail", func() error {
		got := mails.all()
		for _, part := range []string{"RCPT TO:<ops@example.org>", "exit status 3", "42 orders as daemon", "belfry logs "} {
			if !strings.Contains(got, part) {
				return fmt.Errorf("no mail has %q: %s", part, got)
			}
		}
		return nil
	})

	one.write("/root/report.yaml", `name: report
run:
  shell: test "$PASSWORD" = correct-horse && echo 已发送
  env: {PASSWORD: '{{ .Secret.db_password }}'}
`, 0o600)
	one.must("sh", "-c", "echo correct-horse | belfry secret set db_password")
	one.must("belfry", "apply", "-f", "/root/report.yaml")
	one.must("belfry", "backup", "--with-keys", "--config", "/etc/belfry/belfry.yaml", "/root/belfry.tar")
	kept, err := os.ReadFile(filepath.Join(one.root, "root/belfry.tar"))
	if err != nil {
		t.Fatal(err)
	}
	one.kill()

	two.must("dpkg", "--force-confold", "--install", two.put(file(t, ".deb")))
	two.answers(testVersion)
	two.write("/root/belfry.tar", string(kept), 0o600)
	if _, err := two.run("belfry", "restore", "/root/belfry.tar", "--data", "/var/lib/belfry"); err == nil {
		t.Error("a backup replaced the store of a running server")
	}
	// As docs/restore.md says of packages, which start a server.
	two.must("systemctl", "stop", "belfry")
	two.must("sh", "-c", "rm -r /var/lib/belfry/*")
	two.must("belfry", "restore", "--data", "/var/lib/belfry", "/root/belfry.tar")
	two.must("systemctl", "start", "belfry")
	two.answers(testVersion)
	sent := func(d *debian) {
		t.Helper()
		if out := d.must("belfry", "job", "run", "report", "--wait", "--logs"); !strings.Contains(out, "已发送") {
			t.Errorf("the report says %q", out)
		}
	}
	sent(two)
	if out := two.must("belfry", "logs", name); !strings.Contains(out, "读取 42 orders") {
		t.Errorf("the output from before is %q", out)
	}

	store := servers.StartPostgres(t).Schema()
	two.must("systemctl", "stop", "belfry")
	if out := two.must("belfry", "store", "copy", "sqlite:/var/lib/belfry/belfry.db", store); !strings.Contains(out, "verified") {
		t.Errorf("the copy says %q", out)
	}
	key, err := os.ReadFile(filepath.Join(two.root, "var/lib/belfry/secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range []*debian{one, two} {
		d.write("/etc/belfry/secret.key", string(key), 0o600)
		d.write("/etc/belfry/belfry.yaml", fmt.Sprintf("listen: 127.0.0.1:%d\nname: machine-%d\nstore: %s\nsecrets: {key_file: /etc/belfry/secret.key}\nshell: {allow_users: [daemon]}\n", d.port, i+1, store), 0o600)
		d.must("systemctl", "start", "belfry")
	}
	two.wait("two nodes", func() error {
		out, err := two.run("belfry", "node", "list")
		if err == nil && strings.Count(out, " live ") != 2 {
			err = fmt.Errorf("the nodes are %s", out)
		}
		return err
	})
	sent(two)
	two.write("/root/each.yaml", "name: each\nrun: {shell: echo done, user: daemon}\nplace: {strategy: broadcast}\n", 0o600)
	two.must("belfry", "apply", "-f", "/root/each.yaml")
	two.must("belfry", "job", "run", "each", "--wait")
	if out := two.must("belfry", "run", "list", "--job", "each"); !strings.Contains(out, "machine-1") || !strings.Contains(out, "machine-2") || strings.Count(out, "succeeded") != 2 {
		t.Errorf("a job of each machine ran so:\n%s", out)
	}
}

// mailbox is a mail server that accepts everything.
type mailbox struct {
	address string
	mu      sync.Mutex
	text    strings.Builder
}

func takeMails(t *testing.T) *mailbox {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mailbox{address: listener.Addr().String()}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { m.serve(conn) })
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	return m
}

func (m *mailbox) all() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String()
}

// serve speaks with one client.
func (m *mailbox) serve(conn net.Conn) {
	defer conn.Close()
	say := func(line string) { _, _ = io.WriteString(conn, line+"\r\n") }
	say("220 mail")
	inMessage := false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		line := lines.Text()
		m.mu.Lock()
		m.text.WriteString(line + "\n")
		m.mu.Unlock()
		switch {
		case inMessage && line != ".":
		case line == "DATA":
			inMessage = true
			say("354 go")
		case line == "QUIT":
			say("221 bye")
			return
		default:
			inMessage = false
			say("250 ok")
		}
	}
}
