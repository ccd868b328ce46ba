package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// About is what a look at a database has found.
type About = sqldb.About

// Check looks at a database, and changes nothing.
func Check(ctx context.Context, address string) (a About, err error) {
	list, err := scripts()
	if err != nil {
		return About{}, err
	}
	d, err := connect(ctx, address)
	if err != nil {
		return About{}, err
	}
	defer d.pool.Close()
	var exists bool
	begun := time.Now()
	var clock time.Time
	if err := d.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&clock); err != nil {
		return About{}, fmt.Errorf("look at %s: %w", d.name, err)
	}
	took := time.Since(begun)
	a.Offset = clock.Sub(begun.Add(took / 2))
	err = d.pool.QueryRow(ctx, `select 'PostgreSQL ' || current_setting('server_version'), current_setting('synchronous_commit') <> 'off' and current_setting('fsync') = 'on',
		to_regclass('schema_versions') is not null`).Scan(&a.Server, &a.Durable, &exists)
	if err == nil && exists {
		var oldest int
		err = d.pool.QueryRow(ctx, "select coalesce(max(version), 0), coalesce(max(oldest), 0) from schema_versions").Scan(&a.Schema, &oldest)
		_, a.Unusable = list.Behind(a.Schema, oldest)
	}
	if err != nil {
		return About{}, fmt.Errorf("look at %s: %w", d.name, err)
	}
	return a, nil
}
