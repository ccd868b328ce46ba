//go:build servers

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// programs is the configuration of a program whose sessions are its own, and whose user comes from a
// hook, as rotated passwords do.
func programs(t *testing.T, out *atomic.Bool) (c *mysql.Config, database string) {
	t.Helper()
	u, err := url.Parse(newDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err = mysql.ParseDSN("rotated@tcp(" + u.Host + ")/?parseTime=true&loc=Local&charset=latin1&clientFoundRows=true&sql_mode=ANSI&character_set_results=latin1&time_zone=%27%2B05%3A00%27")
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	err = c.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) error {
		if out.Load() {
			return errors.New("no token")
		}
		c.User, c.Passwd = u.User.Username(), password
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return c, strings.TrimPrefix(u.Path, "/")
}

// The store connects as a program does, with bounded connections: the settings of neither reach the
// other.
func TestAStoreConnectsAsTheConfigurationOfAProgram(t *testing.T) {
	var out atomic.Bool
	c, name := programs(t, &out)
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	const most = 3
	opened, err := Config(c, Database(name), MaxConns(most))(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	const text = "café \U0001f514"
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			_, err := store.PutOne(t.Context(), opened, store.PutJob{IfVersion: store.AnyVersion, Actor: "ann", Definition: &job.Job{
				Name: "j" + string(rune('a'+i)), Description: text, Schedule: job.Schedule{Cron: []string{"* * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
			}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if j, err := store.JobNamed(t.Context(), opened, "default", "ja"); err != nil || j.Definition.Description != text {
		t.Errorf("the store reads %+v, %v, want the description %s", j, err, text)
	}
	if n := opened.(*Store).d.pool.Stats(); n.MaxOpenConnections != most || n.OpenConnections > most {
		t.Errorf("the store has %d connections and may have %d, want %d", n.OpenConnections, n.MaxOpenConnections, most)
	}
	var mode, zone string
	if err := db.QueryRowContext(t.Context(), "select @@sql_mode, @@time_zone").Scan(&mode, &zone); err != nil || !strings.Contains(mode, "ANSI") || zone != "+05:00" {
		t.Errorf("the program's sessions have %s and %s, %v", mode, zone, err)
	}
	out.Store(true)
	opened.(*Store).d.pool.SetMaxIdleConns(0)
	if _, err := opened.Sessions(t.Context()); !errors.Is(err, store.ErrAway) || !strings.Contains(err.Error(), "no token") {
		t.Errorf("without credentials: %v", err)
	}
	out.Store(false)
	if _, err := opened.Sessions(t.Context()); err != nil {
		t.Errorf("with them again: %v", err)
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("the database of the program, after the end of the store: %v", err)
	}
}

func TestAWrongConfigurationIsRefused(t *testing.T) {
	for want, opener := range map[string]store.Opener{
		"the configuration is nil":           Config(nil),
		"MaxConns: is 2, must be at least 3": Config(mysql.NewConfig(), MaxConns(2)),
		"Database: is empty":                 Config(mysql.NewConfig(), Database("")),
	} {
		if s, err := opener(t.Context()); err == nil || !strings.Contains(err.Error(), "mysql.Config: "+want) {
			t.Errorf("%v, %v; want an error that says %q", s, err, want)
		}
	}
}
