//go:build servers

package programs_test

import (
	"database/sql"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/belfry-cron/belfry/test/servers"
)

// ordersLeast is how many orders there must be, on a busy machine.
const ordersLeast = 50

// killOrders kills and restarts instances at random, and then compares the committed orders with the runs: each
// has one, and there is no other.
func killOrders(t *testing.T, db *sql.DB, instances int, env ...string) {
	t.Helper()
	for _, table := range []string{"orders", "fulfilled"} {
		if _, err := db.Exec("create table " + table + " (run char(26))"); err != nil {
			t.Fatal(err)
		}
	}
	file := build(t, "test/programs/orders")
	begin := func() *program {
		p := start(t, file, env...)
		p.wait("begun")
		return p
	}
	var all []*program
	for range instances {
		all = append(all, begin())
	}
	kills := 0
	few := func() bool { // on a busy machine
		var n int
		_ = db.QueryRow("select count(*) from orders").Scan(&n) // it may be locked
		return n < ordersLeast
	}
	for began := time.Now(); time.Since(began) < rollingFor(t)/2 || time.Since(began) < within && few(); kills++ {
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
		i := rand.IntN(len(all))
		all[i].kill()
		all[i] = begin()
	}
	for _, p := range all {
		p.stop()
	}
	count := func(what string) (n int) {
		t.Helper()
		if err := db.QueryRow("select count(*) from " + what).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const missing, extra = "orders where run not in (select run from fulfilled)", "fulfilled where run not in (select run from orders)"
	last := start(t, file, append(env, "ORDERS=none")...)
	for deadline := time.Now().Add(within); count(missing) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d orders have no run", count(missing), count("orders"))
		}
	}
	last.stop()
	if n := count(extra); n > 0 {
		t.Errorf("%d runs have no order", n)
	}
	orders, runs := count("orders"), count("(select distinct run from fulfilled) as f")
	if orders != runs || orders < ordersLeast {
		t.Errorf("%d orders and %d runs", orders, runs)
	}
	t.Logf("%d orders, %d kills, %d attempts", orders, kills, count("fulfilled"))
}

func TestAnOrderHasARunIfItsTransactionIsCommitted(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := servers.StartPostgres(t)
		db, err := sql.Open("pgx", server.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		killOrders(t, db, 2, "STORE="+server.Schema(), "DATABASE="+server.URL())
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		server := servers.StartMariaDB(t)
		var urls [2]string
		for i := range urls {
			var err error
			if urls[i], err = server.Database(); err != nil {
				t.Fatal(err)
			}
		}
		c := mysql.NewConfig()
		user, rest, _ := strings.Cut(strings.TrimPrefix(urls[1], "mysql://"), "@")
		c.User, c.Net = user, "tcp"
		c.Addr, c.DBName, _ = strings.Cut(rest, "/")
		db, err := sql.Open("mysql", c.FormatDSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		killOrders(t, db, 2, "STORE="+urls[0], "DATABASE="+urls[1])
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "belfry.db")
		// Belfry makes the file.
		first := start(t, build(t, "test/programs/orders"), "STORE="+path, "DATABASE="+path, "ORDERS=none")
		first.wait("begun")
		first.stop()
		db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(20000)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		killOrders(t, db, 1, "STORE="+path, "DATABASE="+path)
	})
}
