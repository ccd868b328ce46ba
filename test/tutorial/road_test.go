//go:build servers

package tutorial

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/test/servers"
)

// TestTheRoadFromACrontabToASecondNode walks what operators do in their first week, in one piece.
func TestTheRoadFromACrontabToASecondNode(t *testing.T) {
	r := newReader(t)
	r.database = servers.StartPostgres(t).Schema()
	r.read("testdata/road.md", strings.NewReplacer("/tmp/road", r.dir, "127.0.0.1:2525", r.takeMail(filepath.Join(r.dir, "mails"))))
}

// takeMail starts a mail server that writes what it hears to a file, and returns its address.
func (r *reader) takeMail(file string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	heard, err := os.Create(file)
	r.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			takeMail(conn, heard)
		}
	}()
	r.t.Cleanup(func() { listener.Close(); <-done; heard.Close() })
	return listener.Addr().String()
}

// takeMail speaks with one client: it accepts everything.
func takeMail(conn net.Conn, heard *os.File) {
	defer conn.Close()
	fmt.Fprint(conn, "220 mail\r\n")
	inMessage := false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		line := lines.Text()
		fmt.Fprintln(heard, line)
		switch {
		case inMessage && line != ".":
			continue
		case line == "DATA":
			fmt.Fprint(conn, "354 go\r\n")
			inMessage = true
			continue
		case line == "QUIT":
			fmt.Fprint(conn, "221 bye\r\n")
			return
		}
		inMessage = false
		fmt.Fprint(conn, "250 ok\r\n")
	}
}
