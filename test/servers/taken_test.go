//go:build servers

package servers

import (
	"errors"
	"net"
	"testing"
)

// Another process may take a free port before the server binds it.
func TestAServerDoesNotStartAtATakenPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, p := range map[string]*process{
		"PostgreSQL": StartPostgres(t).process, "MariaDB": StartMariaDB(t).process, "etcd": StartEtcd(t).process,
		"Redis": StartRedis(t).process, "FerretDB": StartFerretDB(t).process,
	} {
		if err := p.Stop(); err != nil {
			t.Fatalf("stop %s: %v", name, err)
		}
		own := p.Port
		p.Port = taken.Addr().(*net.TCPAddr).Port
		if err := p.Start(); !errors.Is(err, errTaken) {
			t.Errorf("%s starts at a taken port with %v", name, err)
		}
		p.Port = own
		if err := p.Start(); err != nil {
			t.Errorf("%s does not start again: %v", name, err)
		}
	}
}
