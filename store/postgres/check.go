package postgres

import (
	"context"
	"fmt"
	"time"
)

// About is what a look at a database has found.
type About struct {
	Server string // its version
	Schema int    // the version of its schema; 0 while there is none
	// Offset is how far its clock is ahead of that of this machine.
	Offset time.Duration
	// Durable tells whether what is acknowledged survives a crash of it.
	Durable bool
}

// String says it in a line.
func (a About) String() string {
	schema := fmt.Sprintf("schema version %d", a.Schema)
	if a.Schema == 0 {
		schema = "no schema yet, which belfry serve makes"
	}
	return fmt.Sprintf("PostgreSQL %s, %s, its clock is %s ahead of this one", a.Server, schema, a.Offset.Round(time.Millisecond))
}

// Check looks at a database, and changes nothing.
func Check(ctx context.Context, address string) (a About, err error) {
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
	err = d.pool.QueryRow(ctx, `select current_setting('server_version'), current_setting('synchronous_commit') <> 'off' and current_setting('fsync') = 'on',
		to_regclass('schema_versions') is not null`).Scan(&a.Server, &a.Durable, &exists)
	if err == nil && exists {
		err = d.pool.QueryRow(ctx, "select coalesce(max(version), 0) from schema_versions").Scan(&a.Schema)
	}
	if err != nil {
		return About{}, fmt.Errorf("look at %s: %w", d.name, err)
	}
	return a, nil
}
