package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestGuardByDefault(t *testing.T) {
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, open := range []string{
		"1.1.1.1", "8.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "198.18.0.1", "100.63.255.255", "100.128.0.0",
		"2606:4700::1111", "fd12:3456::1", "fc00::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "64:ff9b::10.0.0.1",
	} {
		if err := g.Check(netip.MustParseAddr(open)); err != nil {
			t.Errorf("%s: %v", open, err)
		}
	}
	for address, what := range map[string]string{
		"127.0.0.1":              "a loopback address: open it with http.allow: [127.0.0.0/8]",
		"127.255.255.254":        "loopback",
		"::1":                    "a loopback address: open it with http.allow: [::1/128]",
		"0.0.0.0":                "unspecified",
		"0.1.2.3":                "unspecified",
		"::":                     "unspecified",
		"169.254.0.1":            "a link-local address: open it with http.allow: [169.254.0.0/16]",
		"169.254.169.254":        "metadata service of most clouds: open it with http.allow: [169.254.169.254/32]",
		"169.254.170.2":          "credentials service of AWS",
		"fe80::1":                "link-local",
		"fe80::1%eth0":           "link-local",
		"fd00:ec2::254":          "metadata service of AWS",
		"fd20:ce::254":           "metadata service of Google",
		"168.63.129.16":          "platform service of Azure",
		"192.0.0.192":            "for protocols",
		"100.64.0.1":             "carrier-grade NAT",
		"100.127.255.255":        "carrier-grade NAT",
		"100.100.100.200":        "metadata service of Alibaba",
		"224.0.0.1":              "multicast",
		"ff02::1":                "multicast",
		"255.255.255.255":        "reserved",
		"240.0.0.1":              "reserved",
		"fec0::1":                "site-local",
		"::ffff:127.0.0.1":       "address 127.0.0.1 is a loopback",
		"::ffff:169.254.169.254": "metadata",
		"::7f00:1":               "IPv4-compatible",
		"64:ff9b::127.0.0.1":     "loopback",
		"64:ff9b::a9fe:a9fe":     "metadata",
		"64:ff9b:1::7f00:1":      "local NAT64",
		"2002:7f00:1::":          "6to4",
		"2001:0:1::1":            "Teredo",
	} {
		if err := g.Check(netip.MustParseAddr(address)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v, not %q", address, err, what)
		}
	}
}

func TestLongestPrefixDecides(t *testing.T) {
	prefixes := func(texts ...string) (list []netip.Prefix) {
		for _, text := range texts {
			list = append(list, netip.MustParsePrefix(text))
		}
		return list
	}
	for _, test := range []struct {
		name         string
		allow, deny  []netip.Prefix
		open, closed string // addresses, separated by blanks
		loopback     bool
	}{
		{"a range is opened", prefixes("127.0.0.0/8"), nil, "127.0.0.1 ::ffff:127.0.0.1 64:ff9b::7f00:1", "::1 169.254.0.1", false},
		{"a part of one", prefixes("127.0.0.5/32"), nil, "127.0.0.5", "127.0.0.6", false},
		{"all but what is closed for a reason", prefixes("0.0.0.0/0", "::/0"), nil, "1.1.1.1", "127.0.0.1 ::1 169.254.169.254 fd00:ec2::254", false},
		{"link-local but the metadata", prefixes("169.254.0.0/16"), nil, "169.254.1.1", "169.254.169.254", false},
		{"the metadata", prefixes("169.254.169.254/32"), nil, "169.254.169.254", "169.254.1.1", false},
		{"private ranges are closed", nil, prefixes("10.0.0.0/8", "fc00::/7"), "192.168.1.1", "10.1.2.3 ::ffff:10.1.2.3 fd01::1", false},
		{"all but a list", prefixes("10.1.0.0/16"), prefixes("0.0.0.0/0", "::/0"), "10.1.2.3", "10.2.0.1 1.1.1.1 2606::1 127.0.0.1", false},
		{"what is in both", prefixes("10.0.0.0/8"), prefixes("10.0.0.0/8"), "", "10.0.0.1", false},
		{"a mapped range", prefixes("::ffff:127.0.0.0/104"), nil, "127.0.0.1", "::1", false},
		{"loopback", nil, nil, "127.0.0.1 ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1", "0.0.0.0 169.254.0.1 ::7f00:1", true},
		{"loopback, but all is closed", nil, prefixes("0.0.0.0/0", "::/0"), "", "127.0.0.1 ::1", true},
		{"loopback, but a part of it is closed", nil, prefixes("127.0.0.1/32"), "127.0.0.2 ::1", "127.0.0.1", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, err := New(Config{Allow: test.allow, Deny: test.deny, Loopback: test.loopback})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range strings.Fields(test.open) {
				if err := g.Check(netip.MustParseAddr(a)); err != nil {
					t.Errorf("%s is closed: %v", a, err)
				}
			}
			for _, a := range strings.Fields(test.closed) {
				if g.Check(netip.MustParseAddr(a)) == nil {
					t.Errorf("%s is open", a)
				}
			}
		})
	}
}
