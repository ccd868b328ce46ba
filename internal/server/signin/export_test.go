package signin

import (
	"context"
	"net/netip"
)

// Turns returns a function that waits for a turn to finish a sign-in.
func Turns(p *Provider) func(ctx context.Context, from netip.Prefix) (done func(), ok bool) {
	return p.finishing.take
}
