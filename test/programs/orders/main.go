// Command orders takes an order each 20 ms, in a transaction that also triggers a job, and rolls every third
// one back. With ORDERS=none it only runs what is requested. The job writes down that it has run. Instances may be
// killed at any moment.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	belfrymysql "github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// orderEvery is the time between two orders.
const orderEvery = 20 * time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("STORE"), os.Getenv("DATABASE")); err != nil {
		log.Fatal(err)
	}
}

// open opens the store, and the database of the program with its tables.
func open(address, database string) (opener store.Opener, db *sql.DB, err error) {
	switch {
	case strings.HasPrefix(address, "postgres:"):
		opener = postgres.URL(address)
		db, err = sql.Open("pgx", database)
	case strings.HasPrefix(address, "mysql:"):
		opener = belfrymysql.URL(address)
		c := mysql.NewConfig()
		user, rest, _ := strings.Cut(strings.TrimPrefix(database, "mysql://"), "@")
		c.User, c.Net = user, "tcp"
		c.Addr, c.DBName, _ = strings.Cut(rest, "/")
		db, err = sql.Open("mysql", c.FormatDSN())
	default:
		opener = sqlite.File(address)
		db, err = sql.Open("sqlite", "file:"+database+"?_txlock=immediate&_pragma=busy_timeout(20000)")
	}
	return opener, db, err
}

func run(ctx context.Context, address, database string) error {
	opener, db, err := open(address, database)
	if err != nil {
		return err
	}
	defer db.Close()
	s := belfry.New(opener, belfry.WithOwner("orders"))
	s.Job("fulfil", belfry.Overlap(job.OverlapAllow), belfry.Retry(20, 100*time.Millisecond), belfry.Edit(soonLost),
		belfry.Func(func(ctx context.Context, run *belfry.Run) error {
			_, err := db.ExecContext(ctx, fmt.Sprintf("insert into fulfilled (run) values ('%s')", run.ID))
			return err
		}))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	// The store is open then: on SQLite it cannot be opened in a transaction that writes.
	for s.Resume(ctx, "fulfil") != nil && ctx.Err() == nil {
		time.Sleep(orderEvery)
	}
	if os.Getenv("ORDERS") == "none" {
		fmt.Println("begun")
		return <-ended
	}
	begun := false
	ticker := time.NewTicker(orderEvery)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
		}
		err := order(ctx, db, s, n%3 != 2)
		switch {
		case err == nil && !begun:
			begun = true
			fmt.Println("begun")
		case err != nil && begun && ctx.Err() == nil:
			log.Print(err)
		}
	}
}

// soonLost shortens the silence after which the attempts of a killed instance are repeated.
func soonLost(j *job.Job) {
	grace := job.Duration(time.Second)
	j.Policy.KillGrace, j.Policy.LostAfter = &grace, grace+job.LostAfterMin
}

// order writes an order and requests its run in one transaction.
func order(ctx context.Context, db *sql.DB, s *belfry.Scheduler, commit bool) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	id, err := s.TriggerTx(ctx, tx, "fulfil")
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("insert into orders (run) values ('%s')", id)); err != nil || !commit {
		return err
	}
	return tx.Commit()
}
