package postgres

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// refusing is a server without TLS that ends each connection with an answer.
func refusing(t *testing.T, answer pgproto3.BackendMessage) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			refuse(conn, answer)
		}
	}()
	return l.Addr().String()
}

func refuse(conn net.Conn, answer pgproto3.BackendMessage) {
	defer conn.Close()
	server := pgproto3.NewBackend(conn, conn)
	for {
		message, err := server.ReceiveStartupMessage()
		if err != nil {
			return
		}
		if _, ok := message.(*pgproto3.SSLRequest); ok {
			if _, err := conn.Write([]byte("N")); err != nil {
				return
			}
			continue
		}
		server.Send(answer)
		if server.Flush() == nil {
			_, _ = io.Copy(io.Discard, conn)
		}
		return
	}
}

func TestConnectionErrorIsOneLine(t *testing.T) {
	missing := refusing(t, &pgproto3.ErrorResponse{Severity: "FATAL", Code: "3D000", Message: `database "d" does not exist`})
	strange := refusing(t, &pgproto3.NoData{})
	l, err := net.Listen("tcp", "127.0.0.1:0") // finds a free port
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	l.Close()
	for address, want := range map[string]string{
		"postgres://u:secret@" + missing + "/d":                 "connect as u: " + missing + ` (127.0.0.1): server error: FATAL: database "d" does not exist (SQLSTATE 3D000)`,
		"postgres://u:secret@" + missing + "/d?sslmode=require": "connect as u: " + missing + " (127.0.0.1): tls error: server refused TLS connection",
		"postgres://u:secret@" + strange + "/d":                 "connect as u: " + strange + " (127.0.0.1): what answers is not PostgreSQL",
		"postgres://u:secret@" + gone + "/d":                    "connect as u: " + gone + " (127.0.0.1): dial error: dial tcp " + gone + ": connect: connection refused",
	} {
		s, err := Open(t.Context(), address, Options{})
		if err == nil {
			t.Errorf("%s: connected, %v", address, s.Close())
			continue
		}
		host, _, _ := strings.Cut(strings.TrimPrefix(address, "postgres://u:secret@"), "/")
		if got := strings.TrimPrefix(err.Error(), "open postgres://"+host+"/d: "); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", address, err, want)
		}
	}
}
