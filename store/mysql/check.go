package mysql

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// About is what a look at a database has found.
type About = sqldb.About

// Check looks at a database, and changes nothing.
func Check(ctx context.Context, text string) (About, error) {
	a, err := parseAddress(text)
	if err != nil {
		return About{}, fmt.Errorf("the address of the store: %w", err)
	}
	about, err := look(ctx, a)
	if err != nil {
		return About{}, fmt.Errorf("look at %s: %w", a.name, err)
	}
	return about, nil
}

func look(ctx context.Context, address *address) (a About, err error) {
	list, err := scripts()
	if err != nil {
		return About{}, err
	}
	d, err := connect(ctx, address)
	if err != nil {
		return About{}, err
	}
	defer d.pool.Close()
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return About{}, err
	}
	defer conn.Close()
	var exists bool
	if a.Server, exists, err = known(ctx, conn); err != nil {
		return About{}, err
	}
	begun := time.Now()
	var clock int64
	if err := conn.QueryRowContext(ctx, "select "+d.Clock()).Scan(&clock); err != nil {
		return About{}, err
	}
	took := time.Since(begun)
	a.Offset = time.Unix(0, clock).Sub(begun.Add(took / 2))
	// After a crash the server keeps of its last transactions those that are in its
	// binary log, if it has one.
	err = conn.QueryRowContext(ctx, "select @@global.innodb_flush_log_at_trx_commit = 1 and (not @@global.log_bin or @@global.sync_binlog = 1)").Scan(&a.Durable)
	if err == nil && exists {
		var oldest int
		err = conn.QueryRowContext(ctx, "select coalesce(max(version), 0), coalesce(max(oldest), 0) from schema_versions").Scan(&a.Schema, &oldest)
		_, a.Unusable = list.Behind(a.Schema, oldest)
	}
	return a, err
}
