package nodebench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	// killedMost is how many occurrences a job each second may miss when a process is killed at any
	// instant, and lostMost when its machine is lost: the default lost_after of such a job, plus
	// two seconds.
	killedMost = 3
	lostMost   = 22
	// nearTick is how close to the full second half of the kills are: then most is claimed.
	nearTick = 50 * time.Millisecond
)

// death is a way in which a node ends.
type death struct {
	what  string
	times int
	dead  time.Duration // downtime
	most  float64       // occurrences that a job may miss
	end   func(*server) error
}

// kill measures how many occurrences do not start, by job, when nodes die at random
// instants and close to the full second.
func (b *bench) kill(ctx context.Context, on backend) ([]Figure, error) {
	p, err := on.make("")
	if err != nil {
		return nil, err
	}
	defer p.close()
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	nodes := make([]*server, 3)
	defer killAll(nodes)
	start := func(i int) (err error) {
		var token string
		if i > 0 {
			token = nodes[0].token
		}
		s, err := b.join(ctx, filepath.Join(dir, strconv.Itoa(i)), token, "--store", p.address, "--name", fmt.Sprint("bench-", i))
		if err == nil {
			nodes[i] = s
		}
		return err
	}
	for i := range nodes {
		if err := start(i); err != nil {
			return nil, err
		}
	}
	tiny, err := b.tiny(ctx)
	if err != nil {
		return nil, err
	}
	load := commandLoad{jobs: b.scaled(100, 20)}
	file := filepath.Join(dir, "starts")
	if _, err := nodes[0].measure(ctx, tiny, load, load.jobs, 1, b.settling(), file); err != nil {
		return nil, err
	}
	deaths := []death{
		{"process killed", b.scaled(12, 2), 8 * time.Second, killedMost, func(s *server) error { s.kill(); return nil }},
		{"machine lost", b.scaled(4, 0), 30 * time.Second, lostMost, (*server).lose},
	}
	random := rand.New(rand.NewPCG(1, 2))
	var figures []Figure
	for _, d := range deaths {
		worst, all := 0, 0
		for n := range d.times {
			i := 1 + n%2
			at := deathAt(random, n)
			if err := sleep(ctx, time.Until(at)); err != nil {
				return nil, err
			}
			if err := d.end(nodes[i]); err != nil {
				return nil, err
			}
			if err := sleep(ctx, d.dead); err != nil {
				return nil, err
			}
			if err := start(i); err != nil {
				return nil, err
			}
			// Later starts count as missing.
			until := time.Now().Add(-time.Second)
			most, sum, err := unstarted(file, load.jobs, at.Add(-time.Second), until)
			if err != nil {
				return nil, err
			}
			worst, all = max(worst, most), all+sum
		}
		if d.times == 0 {
			continue // too slow for Quick
		}
		figures = append(figures,
			below(fmt.Sprintf("%s, %d times: not started, of the job that missed most", d.what, d.times), float64(worst), d.most, 0, ""),
			fact(fmt.Sprintf("%s: not started, of all %d jobs, each time", d.what, load.jobs), number(float64(all)/float64(d.times), 1)),
		)
	}
	return figures, nil
}

func killAll(nodes []*server) {
	for _, s := range nodes {
		if s != nil {
			s.kill()
		}
	}
}

// deathAt is the instant of the nth kill: close to a full second, or at random, in turns.
func deathAt(random *rand.Rand, n int) time.Time {
	at := time.Now().Add(4 * time.Second).Truncate(time.Second)
	if n%2 == 0 {
		return at.Add(time.Duration(random.Int64N(int64(2*nearTick))) - nearTick)
	}
	return at.Add(time.Duration(random.Int64N(int64(time.Second))))
}

// lose ends a server and its watchdog, like the loss of its machine.
func (s *server) lose() error {
	// First it is stopped, so that it starts no other watchdog.
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if pid := s.watchdog(); pid != 0 {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	s.kill()
	return nil
}

// unstarted counts the seconds of a span in which a job did not start: for the worst job, and for
// all jobs.
func unstarted(file string, jobs int, from, until time.Time) (most, all int, err error) {
	starts, err := readStarts(file)
	if err != nil {
		return 0, 0, err
	}
	type occurrence struct {
		job       int
		scheduled int64
	}
	seen := map[occurrence]bool{}
	for _, s := range starts {
		seen[occurrence{s.job, s.scheduled.Unix()}] = true
	}
	for i := range jobs {
		n := 0
		for at := from.Truncate(time.Second); at.Before(until); at = at.Add(time.Second) {
			if !seen[occurrence{i, at.Unix()}] {
				n++
			}
		}
		most, all = max(most, n), all+n
	}
	return most, all, nil
}
