//go:build servers

package postgres

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// traced counts statements.
type traced struct{ n atomic.Int64 }

func (c *traced) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (c *traced) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *traced) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.n.Add(1)
	return ctx
}
func (c *traced) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *traced) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// program is the pool of a program whose settings and hooks are its own. Its user comes from a hook,
// as rotated passwords do.
func program(t *testing.T, address string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(strings.Replace(address, "belfry@", "rotated@", 1))
	if err != nil {
		t.Fatal(err)
	}
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.User = "belfry"
		return nil
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set search_path to pg_catalog; set enable_indexscan to off")
		return err
	}
	c := config.ConnConfig
	c.RuntimeParams["application_name"] = "shop"
	c.RuntimeParams["statement_timeout"] = "1ms"
	c.RuntimeParams["default_transaction_isolation"] = "serializable"
	c.RuntimeParams["default_transaction_read_only"] = "on"
	c.DefaultQueryExecMode, c.StatementCacheCapacity = pgx.QueryExecModeExec, 0
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// openPool opens the store of an opener until the end of the test.
func openPool(t *testing.T, opener store.Opener) *Store {
	t.Helper()
	opened, err := opener(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := opened.(*Store)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(ctx context.Context, s store.Store, name string) error {
	_, err := store.PutOne(ctx, s, store.PutJob{IfVersion: store.AnyVersion, Actor: "ann", Definition: &job.Job{
		Name: name, Schedule: job.Schedule{Cron: []string{"* * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
	}})
	return err
}

// The store connects as the pool of a program does, with bounded connections of its own: the settings
// of neither reach the other.
func TestAStoreConnectsAsThePoolOfAProgram(t *testing.T) {
	for name, address := range map[string]string{"directly": server.URL(), "through a pooler": poolers["transaction mode"](t).Through(server.URL())} {
		t.Run(name, func(t *testing.T) {
			schema := "pool_" + strings.ReplaceAll(name, " ", "_")
			app, tracer := "shop "+name, &traced{}
			pool := program(t, address, func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["application_name"] = app
				if name != "directly" { // the program must do without them itself
					c.AfterConnect = nil
					c.ConnConfig.RuntimeParams = map[string]string{"application_name": app}
				}
				c.ConnConfig.Tracer = tracer
			})
			const most = 4
			s := openPool(t, Pool(pool, Schema(schema), MaxConns(most)))
			select { // a new listener gets a hint at everything: it has the credentials, too
			case <-s.Hints(t.Context()):
			case <-time.After(3 * time.Minute):
				t.Error("there is no listener")
			}
			watch := raw(t, server.URL())
			for i := range 20 {
				if err := put(t.Context(), s, "j"+string(rune('a'+i))); err != nil {
					t.Error(err)
				}
			}
			var held []sqldb.Tx // with that of the listener they hold all connections
			for range most - 1 {
				tx, err := s.d.Begin(t.Context(), true)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, tx)
			}
			soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			if tx, err := s.d.Begin(soon, true); err == nil {
				held = append(held, tx)
				t.Errorf("the store has more than %d connections", most)
			}
			cancel()
			for _, tx := range held {
				tx.Rollback()
			}
			if name == "directly" && tracer.n.Load() == 0 {
				t.Error("the tracer of the program has seen nothing")
			}
			var tables int
			if err := watch.QueryRow(t.Context(), "select count(*) from "+schema+".belfry_jobs").Scan(&tables); err != nil || tables != 20 {
				t.Errorf("the schema has %d jobs, %v", tables, err)
			}
			if name == "directly" {
				var path, isolation string
				if err := pool.QueryRow(t.Context(), "select current_setting('search_path'), current_setting('default_transaction_isolation')").Scan(&path, &isolation); err != nil || path != "pg_catalog" || isolation != "serializable" {
					t.Errorf("the program's connections have %s and %s, %v", path, isolation, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := pool.Ping(t.Context()); err != nil {
				t.Errorf("the pool of the program, after the end of the store: %v", err)
			}
		})
	}
}

// While credentials are not to be had, the database counts as away.
func TestMissingCredentialsAreAnOutage(t *testing.T) {
	var out atomic.Bool
	pool := program(t, server.URL(), func(c *pgxpool.Config) {
		c.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
			if out.Load() {
				return errors.New("no token")
			}
			conn.User = "belfry"
			return nil
		}
	})
	s := openPool(t, Pool(pool, Schema("pool_tokens")))
	out.Store(true)
	s.d.pool.Reset()
	_, err := s.Sessions(t.Context())
	if !errors.Is(err, store.ErrAway) || !strings.Contains(err.Error(), "BeforeConnect of the pool: no token") {
		t.Errorf("without credentials: %v", err)
	}
	if other, err := Pool(pool)(t.Context()); !errors.Is(err, store.ErrAway) {
		t.Errorf("opened without credentials: %v, %v", other, err)
	}
	out.Store(false)
	if _, err := s.Sessions(t.Context()); err != nil {
		t.Errorf("with them again: %v", err)
	}
}

func TestWrongOptionsOfAPoolAreRefused(t *testing.T) {
	pool := program(t, server.URL(), nil)
	for want, opener := range map[string]store.Opener{
		"the pool is nil":                  Pool(nil),
		"MaxConns: is 3, must be at least": Pool(pool, MaxConns(3)),
		"Schema: has 0 bytes":              Pool(pool, Schema("")),
		"Schema: has 64 bytes":             Pool(pool, Schema(strings.Repeat("a", 64))),
	} {
		if s, err := opener(t.Context()); err == nil || !strings.Contains(err.Error(), "postgres.Pool: "+want) {
			t.Errorf("%v, %v; want an error that says %q", s, err, want)
		}
	}
}
