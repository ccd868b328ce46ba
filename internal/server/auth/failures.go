package auth

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// failuresMax is the number of wrong tokens that an address may send within
	// failuresWithin: more than a person who tries their files, far fewer than an attack
	// needs.
	failuresMax    = 20
	failuresWithin = time.Minute
	// addressesMax bounds how many addresses are counted. All addresses beyond
	// share one count.
	addressesMax = 4096
	// networkBits is the prefix of one holder of IPv6 addresses, who has too many to count single
	// ones.
	networkBits = 64
)

// Failures counts the wrong tokens that addresses have sent. The zero value is ready. It never
// blocks valid tokens: other callers at the same address lock no user out.
type Failures struct {
	mu     sync.Mutex
	counts map[netip.Prefix]failures
}

type failures struct {
	n     int
	since time.Time
}

// Add counts a failure at a moment. It returns how long the address has to wait, 0 until it has
// failed too often, and whether this failure is the one that was too many.
func (f *Failures) Add(address netip.Addr, now time.Time) (wait time.Duration, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := NetworkOf(address)
	if _, ok := f.counts[key]; !ok && len(f.counts) >= addressesMax {
		for k, c := range f.counts {
			if over(c, now) {
				delete(f.counts, k)
			}
		}
		if len(f.counts) >= addressesMax {
			key = netip.Prefix{} // all further addresses share one count
		}
	}
	if f.counts == nil {
		f.counts = map[netip.Prefix]failures{}
	}
	c := f.counts[key]
	if over(c, now) {
		c = failures{since: now}
	}
	c.n++
	f.counts[key] = c
	if c.n <= failuresMax {
		return 0, false
	}
	return c.since.Add(failuresWithin).Sub(now), c.n == failuresMax+1
}

// Wait returns how long an address has to wait, without counting a failure.
func (f *Failures) Wait(address netip.Addr, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := NetworkOf(address)
	c, ok := f.counts[key]
	if !ok {
		c = f.counts[netip.Prefix{}] // count of the addresses beyond the limit
	}
	if c.n <= failuresMax || over(c, now) {
		return 0
	}
	return c.since.Add(failuresWithin).Sub(now)
}

// over reports whether a count has expired. A count from the future comes from a clock that was set
// back.
func over(c failures, now time.Time) bool {
	return now.Before(c.since) || now.Sub(c.since) >= failuresWithin
}

// NetworkOf returns the addresses that count as one.
func NetworkOf(address netip.Addr) netip.Prefix {
	address = address.Unmap().WithZone("")
	bits := address.BitLen()
	if address.Is6() {
		bits = networkBits
	}
	network, err := address.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // of the zero address
	}
	return network
}
