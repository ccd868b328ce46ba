//go:build servers

package mysql

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/test/servers"
)

// Connections use TLS and certificates as the address says.
func TestConnectionsHaveTLS(t *testing.T) {
	start := func(host string) (address string, c servers.Certificate) {
		c, err := servers.NewCertificate(t.TempDir(), host)
		if err != nil {
			t.Fatal(err)
		}
		m := servers.StartMariaDB(t, "--ssl-cert="+c.Certificate, "--ssl-key="+c.Key, "--ssl-ca="+c.Certificate)
		if address, err = m.Database(); err != nil {
			t.Fatal(err)
		}
		if err := m.Exec(t.Context(), "create user clerk require x509; grant all on *.* to clerk; set global require_secure_transport = on"); err != nil {
			t.Fatal(err)
		}
		address, _, _ = strings.Cut(address, "?")
		return address, c
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
	here, own := start("127.0.0.1")
	elsewhere, others := start("db.example.com")
	authority, other := own.Certificate, others.Certificate
	open(t, here+"?ssl-mode=VERIFY_IDENTITY&ssl-ca="+authority, Options{})
	refused(here+"?ssl-mode=DISABLED", "denied")
	refused(here+"?ssl-mode=VERIFY_IDENTITY&ssl-ca="+other, "certificate")
	refused(here+"?ssl-mode=VERIFY_CA&ssl-ca="+other, "certificate")
	open(t, elsewhere+"?ssl-mode=VERIFY_CA&ssl-ca="+other, Options{})
	refused(elsewhere+"?ssl-mode=VERIFY_IDENTITY&ssl-ca="+other, "certificate")

	here = strings.Replace(here, "root@", "clerk@", 1) + "?ssl-mode=VERIFY_CA&ssl-ca=" + authority
	refused(here, "denied")
	open(t, here+"&ssl-cert="+own.Certificate+"&ssl-key="+own.Key, Options{})
	refused(here+"&ssl-cert="+others.Certificate+"&ssl-key="+others.Key, "") // the sides fail at different steps
}
