package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// The kinds of faults, all of which one machine can make without changing anything else on it.
const (
	faultKill    = "kill"       // kill -9 of one node
	faultFreeze  = "freeze"     // SIGSTOP of one node, SIGCONT
	faultRestart = "restart"    // SIGTERM of one node, and its start
	faultRolling = "rolling"    // the same for all nodes, one by one
	faultAll     = "kill all"   // kill -9 of all nodes at once
	faultStore   = "store"      // SIGSTOP of the store, SIGCONT
	faultCut     = "cut"        // no byte between one node and its store
	faultSlow    = "slow"       // 200 ms more each way between all nodes and their store
	faultGone    = "store gone" // kill -9 of the store, and its start
	faultClock   = "clock"      // the clock of one node goes ahead or back by the length of the fault, and then right again
	faultFull    = "full disk"  // no byte is free where nodes and store have their data
)

// latency of a slow network: as between continents.
const latency = 200 * time.Millisecond

// A fault is one entry of the plan, which is the same for all systems.
type fault struct {
	Kind   string
	Node   int           // of as many as there are: modulo
	At     time.Duration // after the begin
	Length time.Duration

	From, To time.Time     // when it really was
	Step     time.Duration `json:",omitempty"` // of a clock
	Left     string        // why it was left out, or what went wrong
}

// quiet is what a plan leaves alone at its end, so that a system can come back from the last fault; of a short plan, the half.
const quiet = 8 * time.Second

// plan draws faults for so long a time: all kinds in turn, in an order and with lengths that depend on the seed and that time alone.
// Calm is added to the time between two faults.
func plan(seed uint64, length, calm time.Duration) []fault {
	r := rand.New(rand.NewPCG(seed, 0))
	kinds := []string{faultKill, faultFreeze, faultRestart, faultRolling, faultAll, faultStore, faultGone, faultCut, faultSlow, faultClock, faultFull}
	r.Shuffle(len(kinds), func(i, k int) { kinds[i], kinds[k] = kinds[k], kinds[i] })
	between := func(low, high time.Duration) time.Duration {
		return low + time.Duration(r.Int64N(int64(high-low)))
	}
	var faults []fault
	at := min(length/4, calm+between(3*time.Second, 6*time.Second))
	for i := 0; ; i++ {
		f := fault{Kind: kinds[i%len(kinds)], Node: r.IntN(1 << 16), At: at, Length: min(length/6, between(2*time.Second, 6*time.Second))}
		if f.At+f.Length+min(quiet, length/2) > length {
			return faults
		}
		faults = append(faults, f)
		at += f.Length + calm + between(4*time.Second, 7*time.Second)
	}
}

// needsStore reports whether a fault is one of a store that a system may not have.
func needsStore(kind string) bool {
	return kind == faultStore || kind == faultGone || kind == faultCut || kind == faultSlow
}

// run makes a fault and mends it.
func (s *site) run(ctx context.Context, f *fault) {
	f.From = time.Now()
	defer func() { f.To = time.Now() }()
	node := f.Node % len(s.nodes)
	var err error
	switch {
	case needsStore(f.Kind) && s.store == nil:
		f.Left = "left out: no store on a server"
	case (f.Kind == faultStore || f.Kind == faultGone) && s.store.process == nil:
		f.Left = "left out: the store was named by an address"
	case f.Kind == faultKill:
		err = s.nodes[node].kill()
		pause(ctx, f.Length)
		err = errors.Join(err, s.nodes[node].start())
	case f.Kind == faultFreeze:
		err = s.nodes[node].signal(syscall.SIGSTOP)
		pause(ctx, f.Length)
		err = errors.Join(err, s.nodes[node].signal(syscall.SIGCONT))
	case f.Kind == faultRestart:
		err = errors.Join(s.nodes[node].stop(), s.nodes[node].start())
	case f.Kind == faultRolling:
		for _, n := range s.nodes {
			err = errors.Join(err, n.stop(), n.start())
			pause(ctx, f.Length/time.Duration(len(s.nodes)))
		}
	case f.Kind == faultAll:
		for _, n := range s.nodes {
			err = errors.Join(err, n.kill())
		}
		pause(ctx, f.Length)
		for _, n := range s.nodes {
			err = errors.Join(err, n.start())
		}
	case f.Kind == faultStore:
		err = s.store.process.signalAll(syscall.SIGSTOP)
		pause(ctx, f.Length)
		err = errors.Join(err, s.store.process.signalAll(syscall.SIGCONT))
	case f.Kind == faultGone:
		err = s.store.process.kill()
		pause(ctx, f.Length)
		err = errors.Join(err, s.store.process.start(), s.store.wait(ctx))
	case f.Kind == faultCut:
		s.proxies[node].set(true, 0)
		pause(ctx, f.Length)
		s.proxies[node].set(false, 0)
	case f.Kind == faultSlow:
		for _, p := range s.proxies {
			p.set(false, latency)
		}
		pause(ctx, f.Length)
		for _, p := range s.proxies {
			p.set(false, 0)
		}
	case f.Kind == faultClock:
		f.Step = max(time.Second, f.Length.Truncate(time.Second))
		if f.Node&0x100 != 0 {
			f.Step = -f.Step
		}
		err = s.step(node, f.Step)
		pause(ctx, f.Length)
		err = errors.Join(err, s.step(node, 0))
	case f.Kind == faultFull && !s.disk.mounted:
		f.Left = "left out: root mounts a file system for it"
	case f.Kind == faultFull:
		err = s.disk.fill()
		pause(ctx, f.Length)
		err = errors.Join(err, s.disk.free())
		if s.store != nil && s.store.process != nil {
			err = errors.Join(err, s.store.wait(ctx)) // which starts it again if it has ended
		}
	default:
		err = fmt.Errorf("no such fault: %s", f.Kind)
	}
	if err != nil {
		f.Left = "failed: " + err.Error()
	}
}

// step sets how far the clock of a node differs from that of the machine.
func (s *site) step(node int, by time.Duration) error {
	pid := s.nodes[node].pid()
	if pid == 0 {
		return nil // it has ended by itself, and gets a new clock with its next start
	}
	return s.clocks[node].step(pid, by)
}

// pause waits, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
