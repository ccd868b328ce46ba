//go:build servers

package postgres

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/test/servers"
)

// poolers are PgBouncer in all its modes that have transactions. Few connections to the server make
// nodes share them.
var poolers = map[string]func(testing.TB) *servers.Pgbouncer{
	"transaction mode": func(t testing.TB) *servers.Pgbouncer {
		return server.StartPgbouncer(t, "transaction", "default_pool_size = 8")
	},
	"session mode": func(t testing.TB) *servers.Pgbouncer {
		return server.StartPgbouncer(t, "session", "default_pool_size = 60")
	},
	"transaction mode that ignores settings": func(t testing.TB) *servers.Pgbouncer {
		return server.StartPgbouncer(t, "transaction", "default_pool_size = 8", ignored)
	},
	"session mode that ignores settings": func(t testing.TB) *servers.Pgbouncer {
		return server.StartPgbouncer(t, "session", "default_pool_size = 60", ignored)
	},
}

// ignored names the settings of connections, as people do whose pooler refuses them.
const ignored = "ignore_startup_parameters = extra_float_digits, search_path, default_transaction_isolation, statement_timeout, lock_timeout, idle_in_transaction_session_timeout, max_parallel_workers_per_gather, jit, enable_seqscan, enable_bitmapscan, enable_mergejoin, belfry.caches"

// The store passes the whole suite where each transaction may have another connection to the server.
func TestStoreBehindAPooler(t *testing.T) {
	t.Parallel()
	pooler := poolers["transaction mode"](t)
	storetest.Run(t, func(t *testing.T, o storetest.Options) store.Store {
		return open(t, pooler.Through(emptySchema(t)), Options{Now: o.Now, LookAhead: o.LookAhead, Defaults: o.Defaults, NewID: o.NewID, Revisions: o.Revisions, Guard: true})
	})
}

// Nodes behind a pooler and beside it see what the others have changed, and hear of it.
func TestNodesBehindAndBesideAPooler(t *testing.T) {
	t.Parallel()
	for name, start := range poolers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pooler := start(t)
			storetest.Apart(t, func(t *testing.T, o storetest.Options) (one, other store.Store) {
				opt := Options{Now: o.Now, LookAhead: o.LookAhead, Defaults: o.Defaults, NewID: o.NewID, Revisions: o.Revisions, Guard: true}
				address := emptySchema(t)
				return open(t, pooler.Through(address), opt), open(t, address, opt)
			})
			address, direct := emptySchema(t), 0
			storetest.Elsewhere(t, func() store.Store {
				if direct++; direct == 2 {
					return open(t, address, Options{})
				}
				s := open(t, pooler.Through(address), Options{})
				if !s.Pooled() {
					t.Error("the pooler was not found")
				}
				return s
			})
		})
	}
}

// Notices reach nodes behind a pooler from both sides of it, and nodes beside it.
func TestNoticesReachNodesBehindAndBesideAPooler(t *testing.T) {
	t.Parallel()
	pooler, address := poolers["transaction mode"](t), emptySchema(t)
	nodes := map[string]*Store{
		"behind": open(t, pooler.Through(address), Options{}), "also behind": open(t, pooler.Through(address), Options{}),
		"beside": open(t, address, Options{}), "also beside": open(t, address, Options{}),
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for to, receiver := range nodes {
		listening, stop := context.WithCancel(ctx)
		heard, ended := make(chan string, 100), make(chan error, 1)
		go func() {
			ended <- receiver.d.Listen(listening, func() {}, func(payload string) {
				select {
				case heard <- payload:
				default: // enough were heard
				}
			})
		}()
		for from, sender := range nodes {
			for again := true; again; { // a node beside the pooler may not know yet that others poll
				if err := sender.d.Notify(ctx, from+" to "+to); err != nil {
					t.Fatal(err)
				}
				for over := time.After(time.Second); again && over != nil; {
					select {
					case payload := <-heard:
						again = payload != from+" to "+to
					case <-over:
						over = nil
					case <-ctx.Done():
						t.Fatalf("no notice of the node %s has reached the one %s", from, to)
					}
				}
			}
		}
		stop()
		<-ended
	}
}

// raw connects through a pooler as a program does whose statements share connections with Belfry.
func raw(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// Each transaction has its settings, and leaves none to the next client of its connection.
func TestSettingsBehindAPoolerAreThoseOfATransaction(t *testing.T) {
	t.Parallel()
	exec(t, server.URL(), "create database settled; alter database settled set default_transaction_isolation = 'serializable'; alter database settled set lock_timeout = '7s'")
	pooler := server.StartPgbouncer(t, "transaction", "default_pool_size = 1")
	address := strings.Replace(pooler.Through(server.URL()), "/postgres?", "/settled?", 1)
	s := open(t, address+"&schema=own&statement_timeout=11s", Options{})
	const settings = "select concat_ws(' ', current_setting('search_path'), current_setting('transaction_isolation'), current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'), current_setting('enable_seqscan'), coalesce(nullif(current_setting('belfry.caches', true), ''), 'uncached'))"
	for begin, want := range map[string]string{"Begin": `"own" read committed 11s 10s 5s off uncached`, "Snapshot": `"own" repeatable read 11s 10s 5s off uncached`} {
		start := func() (sqldb.Tx, error) { return s.d.Begin(t.Context(), true) }
		if begin == "Snapshot" {
			start = func() (sqldb.Tx, error) { return s.d.Snapshot(t.Context()) }
		}
		tx, err := start()
		if err != nil {
			t.Fatal(err)
		}
		var got string
		rows := tx.Ask(t.Context(), sqldb.Question{Text: settings})
		for rows.Next() {
			got = rows.Text()
		}
		if _, err := tx.Commit(t.Context()); err != nil || rows.Err() != nil {
			t.Fatal(err, rows.Err())
		}
		if got != want {
			t.Errorf("the settings after %s are %s, want %s", begin, got, want)
		}
	}
	program := raw(t, address)
	var got string
	if err := program.QueryRow(t.Context(), settings).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if want := `"$user", public serializable 0 7s 0 on uncached`; got != want {
		t.Errorf("another client of the connection finds %s, want %s", got, want)
	}
}

// The database ends the transaction of a frozen node, and the node notices.
func TestATransactionOfAFrozenNodeBehindAPoolerIsEnded(t *testing.T) {
	t.Parallel()
	address := poolers["transaction mode"](t).Through(server.Schema())
	s := open(t, address, Options{})
	// Longer than the own steps of a busy machine take.
	d, err := connect(t.Context(), address+"&idle_in_transaction_session_timeout=3s")
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	for _, ends := range []string{"a question", "the commit"} {
		tx, err := d.Begin(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		var pid int64
		rows := tx.Ask(t.Context(), sqldb.Question{Text: "select pg_backend_pid() from counters where name = 'told' for update"})
		for rows.Next() {
			pid = rows.Int()
		}
		if rows.Err() != nil || pid == 0 {
			t.Fatal(pid, rows.Err())
		}
		watch := raw(t, server.URL())
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			var alive bool
			if err := watch.QueryRow(t.Context(), "select exists (select from pg_stat_activity where pid = $1)", pid).Scan(&alive); err != nil {
				t.Fatal(err)
			}
			if !alive {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the database has not ended the transaction")
			}
		}
		if ends == "a question" {
			rows := tx.Ask(t.Context(), sqldb.Question{Text: "select 1"})
			rows.Close()
			err = rows.Err()
		} else {
			err = tx.Exec(t.Context(), "update counters set value = value where name = 'told'")
			if err == nil {
				_, err = tx.Commit(t.Context())
			}
		}
		if err == nil || d.Fault(err) != sqldb.Broken {
			t.Errorf("%s of an ended transaction fails as %v, fault %d; want a broken connection", ends, err, d.Fault(err))
		}
	}
	if _, err := s.Sessions(t.Context()); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// A pooler says that the server is gone, and not whether it had committed.
func TestACommitThatAPoolerHasNoAnswerToMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	own := servers.StartPostgres(t)
	psql(t, own.URL(), `create table public.slow (n int);
		create function public.wait() returns trigger language plpgsql as $$ begin perform pg_sleep(300); return null; end $$;
		create constraint trigger late after insert on public.slow deferrable initially deferred for each row execute function public.wait()`)
	s := open(t, own.StartPgbouncer(t, "transaction").Through(own.Schema()), Options{})
	tx, err := s.d.Begin(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := tx.Exec(t.Context(), "insert into public.slow values (1)"); err != nil {
		t.Fatal(err)
	}
	watch := raw(t, own.URL())
	killed := make(chan error, 1)
	go func() {
		killed <- func() error {
			for {
				var pid int
				err := watch.QueryRow(t.Context(), "select coalesce(max(pid), 0) from pg_stat_activity where wait_event = 'PgSleep'").Scan(&pid)
				if err != nil {
					return err
				}
				if pid > 0 {
					return syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}()
	}()
	unknown, err := tx.Commit(t.Context())
	if failed := <-killed; failed != nil {
		t.Fatal(failed)
	}
	if err == nil || !unknown || s.d.Fault(err) != sqldb.Broken {
		t.Errorf("the commit ends with %v, may have been done: %t, fault %d; want a broken connection after which it may", err, unknown, s.d.Fault(err))
	}
	// The server ends the other connections, recovers, and cannot be stopped before.
	over, ended := time.Now().Add(3*time.Minute), false
	for ; ; time.Sleep(10 * time.Millisecond) {
		if !ended {
			_, err = watch.Exec(t.Context(), "select 1")
			ended = err != nil
		} else if conn, err := pgx.Connect(t.Context(), own.URL()); err == nil {
			_ = conn.Close(t.Context())
			return
		}
		if time.Now().After(over) {
			t.Fatal("the server has not recovered from the crash of a process")
		}
	}
}

// A failover behind a pooler leaves the connections of the node as they are, and it must read its
// cursors again.
func TestARestartOfTheServerBehindAPoolerIsNoticed(t *testing.T) {
	t.Parallel()
	own := servers.StartPostgres(t)
	pooler := own.StartPgbouncer(t, "transaction", "server_login_retry = 0.1")
	s := open(t, pooler.Through(own.Schema()), Options{})
	hints := s.Hints(t.Context())
	lost := func() {
		t.Helper()
		for over := time.After(3 * time.Minute); ; {
			select {
			case hint := <-hints:
				if hint&store.HintLost != 0 {
					return
				}
			case <-over:
				t.Fatal("no hint says that the database was away")
			}
		}
	}
	lost() // it begins to listen
	if err := own.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	lost()
}

func TestNoticesOfACrashedServerAreBehind(t *testing.T) {
	known := map[string]int64{"a": 2, "b": 1}
	for _, c := range []struct {
		now  map[string]int64
		want bool
	}{
		{map[string]int64{"a": 2, "b": 1}, false},
		{map[string]int64{"a": 3, "b": 1, "c": 1}, false},
		{map[string]int64{"a": 2}, true},
		{map[string]int64{"a": 1, "b": 1}, true},
	} {
		if got := isBehind(c.now, known); got != c.want {
			t.Errorf("%v after %v: %t, want %t", c.now, known, got, c.want)
		}
	}
}
