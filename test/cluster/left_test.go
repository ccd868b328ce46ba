//go:build servers

package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/servers"
)

const (
	// leftShown bounds the runs that are told whole: the first of many stand for the others.
	leftShown = 20
	// leftMax bounds how long the database may take to tell them.
	leftMax = time.Minute
)

// tellLeft logs what has not ended, as the node and the database have it: states, claims and timers, and
// which sessions of the database wait for which.
func (c *cluster) tellLeft() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), leftMax)
	defer cancel()
	left := c.runs(job.StateReady, job.StateWaiting, job.StateRunning)
	c.t.Logf("%d runs are left at %s, at a load of %.0f", len(left), time.Now().Format(time.RFC3339Nano), load())
	for _, r := range left[:min(len(left), leftShown)] {
		whole, err := c.nodes[0].Run(ctx, r.ID)
		c.t.Logf("left: %+v, %v", whole, err)
	}
	nodes, err := c.nodes[0].Nodes(ctx)
	c.t.Logf("nodes: %+v, %v", nodes.Items, err)
	if p, ok := c.database.(*servers.Postgres); ok {
		text, err := tellPostgres(ctx, p)
		c.t.Logf("database: %v\n%s", err, text)
	}
	for _, n := range c.nodes { // the log of each, which follows, then ends with what its goroutines did
		n.signal(syscall.SIGABRT)
	}
}

// tellPostgres returns the unfinished runs with their claims and timers, the sessions, and what each
// connection does.
func tellPostgres(ctx context.Context, p *servers.Postgres) (text string, err error) {
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var b strings.Builder
	for _, query := range []string{
		"select to_json(a)::text from s1.active a order by due limit 100",
		"select to_json(s)::text from s1.sessions s",
		"select to_json(a)::text from (select pid, state, wait_event_type, wait_event, now() - xact_start as open, now() - state_change as since, pg_blocking_pids(pid) as behind, query from pg_stat_activity where backend_type = 'client backend') a",
	} {
		rows, err := conn.Query(ctx, query)
		if err != nil {
			return b.String(), err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return b.String(), err
		}
		fmt.Fprintf(&b, "%s: %d\n%s\n", query, len(lines), strings.Join(lines, "\n"))
	}
	return b.String(), nil
}
