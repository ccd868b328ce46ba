// Package egress decides which addresses Belfry calls for others: addresses in jobs, and registered
// ones.
package egress

import (
	"fmt"
	"net/netip"
	"syscall"
)

// closed are the addresses that jobs cannot reach unless the configuration opens them, each with a
// description. Public addresses are open, and so are the private ones (10.0.0.0/8, 172.16.0.0/12,
// 192.168.0.0/16, fc00::/7): most jobs call internal services. Config.Deny closes them.
var closed = []rule{
	// Services that listen only for their own machine often need no password: databases,
	// debuggers, this node.
	{prefix: "127.0.0.0/8", what: "a loopback address"},
	{prefix: "::1/128", what: "a loopback address"},
	// Linux connects it to the machine itself.
	{prefix: "0.0.0.0/8", what: "an unspecified address"},
	{prefix: "::/128", what: "an unspecified address"},

	// Neighbours on the wire, and what clouds put there.
	{prefix: "169.254.0.0/16", what: "a link-local address"},
	{prefix: "fe80::/10", what: "a link-local address"},
	// The clouds' services with a machine's credentials. They stay closed even if a larger range of
	// this list is opened.
	{prefix: "169.254.169.254/32", what: "a link-local address, of the metadata service of most clouds"},
	{prefix: "169.254.170.0/24", what: "a link-local address, of the credentials service of AWS containers"},
	{prefix: "100.100.100.200/32", what: "the metadata service of Alibaba Cloud"},
	{prefix: "168.63.129.16/32", what: "the platform service of Azure"},
	{prefix: "fd00:ec2::/32", what: "the metadata service of AWS"},
	{prefix: "fd20:ce::254/128", what: "the metadata service of Google Cloud"},
	// Oracle Cloud has metadata at 192.0.0.192.
	{prefix: "192.0.0.0/24", what: "an address for protocols"},

	// Networks of providers, and of overlays such as Tailscale: machines that must not be called by
	// address.
	{prefix: "100.64.0.0/10", what: "a carrier-grade NAT address"},

	// Many receivers, or none.
	{prefix: "224.0.0.0/4", what: "a multicast address"},
	{prefix: "ff00::/8", what: "a multicast address"},
	{prefix: "240.0.0.0/4", what: "a reserved address"}, // and broadcast
	{prefix: "fec0::/10", what: "a site-local address"}, // the former private ones

	// IPv6 addresses with an IPv4 address inside, which would bypass the lines above. For
	// 64:ff9b::/96, through which IPv6-only networks reach IPv4, the inner address is checked
	// instead.
	{prefix: "::/96", what: "an IPv4-compatible address"},
	{prefix: "64:ff9b:1::/48", what: "a local NAT64 address"},
	{prefix: "2001::/32", what: "a Teredo address"},
	{prefix: "2002::/16", what: "a 6to4 address"},
}

var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// rule is a range of addresses.
type rule struct {
	prefix string
	what   string

	net  netip.Prefix // the prefix
	open bool
	own  bool // of the configuration
}

// Config opens and closes ranges of addresses. The longest prefix of an address decides; one in
// both lists is closed. Loopback opens loopback addresses that Deny does not close.
type Config struct {
	Allow, Deny []netip.Prefix
	Loopback    bool
}

// Guard decides which addresses may be called. The longest prefix of an address decides, so that a
// range can be opened except for a part, and opening everything (0.0.0.0/0) does not open addresses
// that are closed for a reason. If one prefix is both in Deny and in Allow it is closed.
type Guard struct {
	rules []rule
	// loopback opens loopback addresses that no rule of the configuration closes.
	loopback bool
}

// New returns a guard.
func New(config Config) (*Guard, error) {
	g := Guard{loopback: config.Loopback}
	for _, r := range closed {
		r.net = netip.MustParsePrefix(r.prefix)
		g.rules = append(g.rules, r)
	}
	for _, list := range []struct {
		name     string
		prefixes []netip.Prefix
		open     bool
	}{{"allow", config.Allow, true}, {"deny", config.Deny, false}} {
		for _, p := range list.prefixes {
			if !p.IsValid() {
				return nil, fmt.Errorf("http.%s has an invalid range", list.name)
			}
			if p.Addr().Is4In6() && p.Bits() >= 96 {
				p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
			}
			g.rules = append(g.rules, rule{net: p.Masked(), open: list.open, own: true})
		}
	}
	return &g, nil
}

// Refusal is why an address is not called.
type Refusal struct{ text string }

func (r *Refusal) Error() string { return r.text }

// Check returns a *Refusal if the address may not be called.
func (g *Guard) Check(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	inside := addr
	if nat64.Contains(addr) {
		bytes := addr.As16()
		inside = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	var longest *rule
	builtIn := !g.loopback || !inside.IsLoopback()
	for i := range g.rules {
		r := &g.rules[i]
		if !r.own && !builtIn {
			continue
		}
		// A later rule with the same prefix comes from the configuration, where deny comes last.
		if (r.net.Contains(addr) || r.net.Contains(inside)) && (longest == nil || r.length() >= longest.length()) {
			longest = r
		}
	}
	switch {
	case longest == nil || longest.open:
		return nil
	case longest.own:
		return &Refusal{fmt.Sprintf("address %v is in %v, which http.deny closes", addr, longest.net)}
	default:
		return &Refusal{fmt.Sprintf("address %v is %s: open it with http.allow: [%v]", addr, longest.what, longest.net)}
	}
}

// length makes prefixes of both families comparable: an IPv4 prefix counts as its mapped IPv6
// prefix.
func (r *rule) length() int {
	if r.net.Addr().Is4() {
		return r.net.Bits() + 96
	}
	return r.net.Bits()
}

// Control refuses a connection when its address is known and nothing has been sent: net.Dialer
// calls it for every address of a name, so that a name that changes after a check is no loophole.
func (g *Guard) Control(network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("check address %q: %w", address, err)
	}
	return g.Check(to.Addr())
}
