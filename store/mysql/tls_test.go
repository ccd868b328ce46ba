//go:build servers

package mysql

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/test/servers"
)

// Connections have the TLS that the address says.
func TestConnectionsHaveTLS(t *testing.T) {
	start := func(host string) (address, authority string) {
		c, err := servers.NewCertificate(t.TempDir(), host)
		if err != nil {
			t.Fatal(err)
		}
		m := servers.StartMariaDB(t, "--ssl-cert="+c.Certificate, "--ssl-key="+c.Key)
		if address, err = m.Database(); err != nil {
			t.Fatal(err)
		}
		if err := m.Exec(t.Context(), "set global require_secure_transport = on"); err != nil {
			t.Fatal(err)
		}
		address, _, _ = strings.Cut(address, "?")
		return address, c.Certificate
	}
	refused := func(address, want string) {
		t.Helper()
		s, err := Open(t.Context(), address, Options{})
		if err == nil {
			t.Error(s.Close(), "connected to", address)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something with %q", address, err, want)
		}
	}
	here, authority := start("127.0.0.1")
	elsewhere, other := start("db.example.com")
	open(t, here+"?ssl-mode=VERIFY_IDENTITY&ssl-ca="+authority, Options{})
	refused(here+"?ssl-mode=DISABLED", "denied")
	refused(here+"?ssl-mode=VERIFY_IDENTITY&ssl-ca="+other, "certificate")
	refused(here+"?ssl-mode=VERIFY_CA&ssl-ca="+other, "certificate")
	open(t, elsewhere+"?ssl-mode=VERIFY_CA&ssl-ca="+other, Options{})
	refused(elsewhere+"?ssl-mode=VERIFY_IDENTITY&ssl-ca="+other, "certificate")
}
