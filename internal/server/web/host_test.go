package web

import "testing"

// A host is shown by its first label, and by more where two nodes have the same.
func TestHostsAreShortened(t *testing.T) {
	s := &site{}
	s.hosts.Store(&[]string{"fra-1.eu-central-1.compute.internal", "web.eu.example.com", "web.us.example.com", "10.20.4.17", "build-01"})
	for name, want := range map[string]string{
		"fra-1.eu-central-1.compute.internal": "fra-1", "web.eu.example.com": "web.eu", "web.us.example.com": "web.us",
		"10.20.4.17": "10.20.4.17", "build-01": "build-01", "db.local": "db.local", "gone.eu.example.com": "gone", "": "",
	} {
		if got := s.host(name); got != want {
			t.Errorf("the host %q is shown as %q, want %q", name, got, want)
		}
	}
}
