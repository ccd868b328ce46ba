package nodebench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// The goals of three nodes with ten times as many jobs: the ratio of the times to be ready and of a page, the
// bytes that a job takes in each node, and the part of a processor, in hundredths, that all take while nothing is
// due.
const (
	millionsReady = 12
	millionsPage  = 2
	millionsBytes = 200
	millionsIdle  = 5
)

// ofMillions is what three nodes with some jobs have taken.
type ofMillions struct {
	token  string
	ready  time.Duration
	memory float64       // MB in use after a garbage collection, in the largest node
	page   time.Duration // a page of 100 jobs by name, p50
	idle   float64       // hundredths of a processor, of the nodes and of the database server
	server float64       // of which the database server has
}

// millions measures three nodes on PostgreSQL with 1,000,000 and with 10,000,000 jobs that do not fall due.
func (b *bench) millions(ctx context.Context) ([]Figure, error) {
	p, err := onPostgres.make("")
	if err != nil {
		return nil, err
	}
	defer p.close()
	few := b.scaled(1_000_000, 1000)
	many := 10 * few
	var figures []Figure
	var before ofMillions
	for from, jobs := 0, few; ; from, jobs = jobs, many {
		took, err := putFar(ctx, p, from, jobs)
		if err != nil {
			return nil, err
		}
		if err := p.vacuum(ctx); err != nil {
			return nil, err
		}
		m, err := b.threeNodes(ctx, p, jobs, before.token)
		if err != nil {
			return nil, err
		}
		with := number(float64(jobs), 0) + " jobs: "
		figures = append(figures,
			fact(with+"put into the store, a second", number(float64(jobs-from)/took.Seconds(), 0)),
			fact(with+"from the start of three nodes until all are planned", times(m.ready)),
			fact(with+"in use in a node after a garbage collection", number(m.memory, 0)+" MB"),
			fact(with+"a page of 100 by name, p50", times(m.page)),
			fact(with+"idle, hundredths of a processor", fmt.Sprintf("%.1f, of which the database server %.1f", m.idle, m.server)),
		)
		if jobs == few {
			before = m
			continue
		}
		return append(figures,
			below("ready, times ten", m.ready.Seconds()/before.ready.Seconds(), millionsReady, 2, ""),
			below("a page, times ten", m.page.Seconds()/before.page.Seconds(), millionsPage, 2, ""),
			below("bytes of a job in a node", (m.memory-before.memory)*1e6/float64(many-few), millionsBytes, 0, ""),
			below("idle, of a processor", m.idle, millionsIdle, 1, " %"),
		), nil
	}
}

// vacuum does what PostgreSQL does in the minutes after a load, so that it is not measured as idling.
func (p place) vacuum(ctx context.Context) error {
	pool, err := p.connect(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, "vacuum (analyze)")
	return err
}

// threeNodes starts three nodes on a store with some jobs, measures and stops them.
func (b *bench) threeNodes(ctx context.Context, p place, jobs int, token string) (m ofMillions, err error) {
	dir, err := b.folder()
	if err != nil {
		return m, err
	}
	defer os.RemoveAll(dir)
	var nodes []*server
	defer func() {
		for _, s := range nodes {
			s.kill()
		}
	}()
	began := time.Now()
	for i := range 3 {
		s, err := b.join(ctx, filepath.Join(dir, strconv.Itoa(i)), token, "--store", p.address, "--name", fmt.Sprint("bench-", i))
		if err != nil {
			return m, err
		}
		nodes, token = append(nodes, s), s.token
	}
	m.token = token
	if _, err := plannedBy(ctx, nodes, jobs); err != nil {
		return m, err
	}
	m.ready = time.Since(began)
	if err := sleep(ctx, b.settling()); err != nil {
		return m, err
	}
	took := lateness{}
	list := nodes[0].jobLists()[0]
	for token := ""; len(took) < b.scaled(pagesRead, 3); {
		at := time.Now()
		_, next, err := list.read(ctx, token)
		if err != nil {
			return m, err
		}
		took, token = append(took, time.Since(at)), next
	}
	m.page = took.sort().quantile(.5)
	spent := func() (all, server time.Duration, err error) {
		if server, err = p.processor(); err != nil {
			return 0, 0, err
		}
		all = server
		for _, s := range nodes {
			own, _, err := processorTime(s.cmd.Process.Pid)
			if err != nil {
				return 0, 0, err
			}
			all += own
		}
		return all, server, nil
	}
	all, server, err := spent()
	if err != nil {
		return m, err
	}
	idle := time.Now()
	if err := sleep(ctx, b.Hold); err != nil {
		return m, err
	}
	allAfter, serverAfter, err := spent()
	if err != nil {
		return m, err
	}
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / time.Since(idle).Seconds() }
	m.idle, m.server = share(allAfter-all), share(serverAfter-server)
	for _, s := range nodes {
		_, _, live, _ := s.said.collections(0)
		m.memory = max(m.memory, live)
		if err := s.stop(); err != nil {
			return m, err
		}
	}
	return m, nil
}
