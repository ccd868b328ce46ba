//go:build servers

package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/test/servers"
)

// Another node makes every other call. store/mysql runs the whole suite of two nodes; only the
// dialect differs.
func TestStoreOfTwoNodes(t *testing.T) {
	t.Parallel()
	storetest.Again(storetest.Run)(t, func(t *testing.T, o storetest.Options) store.Store {
		opt := Options{Now: o.Now, LookAhead: o.LookAhead, Defaults: o.Defaults, NewID: o.NewID, Revisions: o.Revisions, Guard: true}
		address := emptySchema(t)
		first, second := open(t, address, opt), open(t, address, opt)
		return storetest.Nodes(first, second)
	})
}

// A node does not decide by its cached copy of a run that another node has changed.
func TestNodeSeesWhatAnotherOneHasChanged(t *testing.T) {
	t.Parallel()
	storetest.Apart(t, func(t *testing.T, o storetest.Options) (one, other store.Store) {
		opt := Options{Now: o.Now, LookAhead: o.LookAhead, Defaults: o.Defaults, NewID: o.NewID, Revisions: o.Revisions, Guard: true}
		address := emptySchema(t)
		return open(t, address, opt), open(t, address, opt)
	})
}

func TestTenNodesCreateTheSchemaConcurrently(t *testing.T) {
	address := server.Schema()
	storetest.OpenAtOnce(t, func() (io.Closer, error) { return Open(t.Context(), address, Options{}) })
	log, err := os.ReadFile(filepath.Join(server.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, `ERROR:  relation "history_`) {
			t.Errorf("the log of the server says %q", line)
		}
	}
}

func TestNodesMayRemoveAPartOfHistoryAtOnce(t *testing.T) {
	address := server.Schema()
	open(t, address, Options{})
	d, err := connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	if err := d.Partition(t.Context(), time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC).UnixNano(), 0); err != nil {
		t.Fatal(err)
	}
	const name = "history_20200102"
	for _, there := range []bool{true, false} { // the second node has seen it before the first removed it
		if parts, err := d.parts(t.Context()); err != nil || parts[name] != there {
			t.Fatalf("it is there: %t, %v; want %t", parts[name], err, there)
		}
		if err := d.dropPart(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
}

// Settings of a database apply to connections without their own.
func TestADatabaseWithOtherDefaultsIsUsed(t *testing.T) {
	address := newDatabase(t, "others", "UTF8")
	exec(t, server.URL(), "alter database others set default_transaction_isolation = 'serializable'; alter database others set client_encoding = 'LATIN1'")
	storetest.OpenAtOnce(t, func() (io.Closer, error) { return Open(t.Context(), address, Options{}) })
	s := open(t, address, Options{})
	const text = "café \U0001f514"
	_, err := store.PutOne(t.Context(), s, store.PutJob{Actor: "ann", Definition: &job.Job{
		Name: "seen", Description: text, Schedule: job.Schedule{Cron: []string{"* * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	var seen []byte
	if err := d.pool.QueryRow(t.Context(), "select convert_to(definition->>'description', 'UTF8') from belfry_jobs").Scan(&seen); err != nil || string(seen) != text {
		t.Errorf("the view has %q, %v, want %q", seen, err, text)
	}
}

func TestADatabaseWithoutAllLettersIsRefused(t *testing.T) {
	address := newDatabase(t, "letters", "LATIN1")
	if s, err := Open(t.Context(), address, Options{}); err == nil {
		t.Error(s.Close(), "it was opened")
	} else if !strings.Contains(err.Error(), "LATIN1") {
		t.Error(err)
	}
}

// newDatabase makes a database with an encoding, and returns its address.
func newDatabase(t *testing.T, name, encoding string) string {
	t.Helper()
	exec(t, server.URL(), "create database "+name+" template template0 encoding '"+encoding+"' locale 'C'")
	return strings.Replace(server.URL(), "/postgres?", "/"+name+"?", 1)
}

// exec runs statements, each in a separate transaction.
func exec(t *testing.T, address, statements string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for statement := range strings.SplitSeq(statements, ";") {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// Nodes of the previous version continue during the migration, and take locks in another order than
// its scripts.
func TestMigrationMeetsActiveNodes(t *testing.T) {
	address := server.Schema() + patient
	list, err := scripts()
	if err != nil {
		t.Fatal(err)
	}
	d, err := connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	// The next two change active and job_state.
	err = pgx.BeginFunc(t.Context(), d.pool, func(x pgx.Tx) error {
		if err := d.makeSchema(t.Context(), x); err != nil {
			return err
		}
		return upTo(t.Context(), x, list[:5])
	})
	if err != nil {
		t.Fatal(err)
	}
	// After a second PostgreSQL detects the deadlock and ends one of the transactions.
	err = pgx.BeginFunc(t.Context(), d.pool, func(x pgx.Tx) error {
		if _, err := x.Exec(t.Context(), "set local deadlock_timeout = '120s'; lock table job_state in row share mode", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		made := make(chan error, 1)
		go func() {
			s, err := Open(context.Background(), address, Options{})
			if err == nil {
				err = s.Close()
			}
			made <- err
		}()
		t.Cleanup(func() {
			if err := <-made; err != nil {
				t.Error(err)
			}
		})
		const waits = "select count(*) from pg_locks where relation = 'job_state'::regclass and not granted"
		for n := 0; n == 0; {
			if err := d.pool.QueryRow(t.Context(), waits).Scan(&n); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		_, err := x.Exec(t.Context(), "select from active")
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// When the user may not connect, because the password was changed or other users have all
// connections, the database is away: the call itself is not wrong.
func TestRefusedLoginIsNamed(t *testing.T) {
	exec(t, server.URL(), "create user porter superuser")
	address := emptySchema(t)
	for name, refuse := range map[string]struct{ by, back string }{
		"who may not log in":   {"alter user porter nologin", "alter user porter login"},
		"too many connections": {"alter user porter nosuperuser connection limit 0", "alter user porter superuser connection limit -1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, strings.Replace(address, "belfry@", "porter@", 1), Options{})
			exec(t, server.URL(), refuse.by+"; select pg_terminate_backend(pid) from pg_stat_activity where usename = 'porter'")
			_, read := store.JobNamed(t.Context(), s, "default", "job")
			write := s.Drain(t.Context(), store.DrainNode{Node: "a"})
			exec(t, server.URL(), refuse.back)
			if !errors.Is(read, store.ErrAway) || !errors.Is(write, store.ErrAway) {
				t.Errorf("a read: %v, a change: %v", read, write)
			}
			if _, err := store.JobNamed(t.Context(), s, "default", "job"); !errors.Is(err, store.ErrNotFound) {
				t.Error(err)
			}
		})
	}
	// Servers that are older or newer have none of these limits.
	for _, code := range []string{"57P05", "25P04"} {
		if fault := (&database{}).Fault(&pgconn.PgError{Code: code}); fault != sqldb.Broken {
			t.Errorf("error %s is a fault %d, want %d", code, fault, sqldb.Broken)
		}
	}
}

func TestASchemaWithALongNameIsRefused(t *testing.T) {
	s := open(t, server.URL()+"&schema="+strings.Repeat("a", 63), Options{})
	if _, err := s.Sessions(t.Context()); err != nil {
		t.Error(err)
	}
	s, err := Open(t.Context(), server.URL()+"&schema="+strings.Repeat("a", 64), Options{})
	if want := "schema: has 64 bytes, at most 63 are allowed"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, %v; want an error that says %q", s, err, want)
	}
}

// An administrator may create the schema, and give the user rights on that schema only.
func TestASchemaOfItsOwnIsEnough(t *testing.T) {
	d, err := connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	if _, err := d.pool.Exec(t.Context(), "create user modest; create schema modest authorization modest", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	as := strings.Replace(server.URL(), "belfry@", "modest@", 1) + "&schema="
	open(t, as+"modest", Options{})
	if s, err := Open(t.Context(), as+"another", Options{}); err == nil {
		t.Error(s.Close(), "a schema was made without the right to")
	} else if want := "make the schema another: "; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want something with %q", err, want)
	}
}

func TestCheckFindsMissingRights(t *testing.T) {
	d, err := connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	do := func(script string) {
		t.Helper()
		if _, err := d.pool.Exec(t.Context(), script, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	do("create user reader; create user writer; create schema lent")
	as := func(user, rest string) string {
		return strings.Replace(server.URL(), "belfry@", user+"@", 1) + "&schema=" + rest
	}
	open(t, server.URL()+"&schema=lent", Options{})
	finds := func(address string, want ...string) {
		t.Helper()
		about, err := Check(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		if len(about.Denied) != len(want) {
			t.Errorf("a look finds %q, want %q", about.Denied, want)
			return
		}
		for i := range want {
			if !strings.HasPrefix(about.Denied[i], want[i]) {
				t.Errorf("a look finds %q, want %q", about.Denied[i], want[i])
			}
		}
	}
	finds(server.URL() + "&schema=lent")
	finds(server.URL() + "&schema=to_come")
	finds(as("reader", "to_come"), "make the schema to_come")
	finds(as("reader", "lent"), "use the schema lent", "make tables in the schema lent", "select from active and ", "insert into active and ", "update active and ", "delete from active and ", "alter, as an owner may, active and ")
	do("grant usage on schema lent to reader")
	finds(as("reader", "lent"), "make tables in the schema lent", "select from active and ", "insert into active and ", "update active and ", "delete from active and ", "alter, as an owner may, active and ")
	do("grant usage on schema lent to reader, writer; grant select on all tables in schema lent to reader, writer")
	finds(as("reader", "lent"), "make tables in the schema lent", "insert into active and ", "update active and ", "delete from active and ", "alter, as an owner may, active and ")
	do("grant create on schema lent to writer; grant insert, update, delete on all tables in schema lent to writer; revoke delete on lent.tokens from writer")
	finds(as("writer", "lent"), "delete from tokens", "alter, as an owner may, active and ")
	finds(server.URL()+"&schema=lent&default_transaction_read_only=on", "write anything: ")
}

// A pooler may drop the settings of a connection, such as the schema, or refuse them.
func TestAPoolerIsFoundByWhatItDoesWithSettings(t *testing.T) {
	address := server.Schema()
	open(t, address, Options{})
	for _, c := range []struct {
		name   string
		meets  func(client net.Conn, m *pgproto3.StartupMessage) // returns to let the client continue
		pooled bool
	}{
		{
			name: "one that leaves the schema out", pooled: true,
			meets: func(_ net.Conn, m *pgproto3.StartupMessage) { delete(m.Parameters, "search_path") },
		},
		{
			name: "one that refuses settings", pooled: true,
			meets: func(client net.Conn, m *pgproto3.StartupMessage) {
				if m.Parameters["lock_timeout"] == "" {
					return
				}
				refusal := pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: lock_timeout"}
				said, _ := refusal.Encode(nil)
				_, _ = client.Write(said)
				client.Close()
			},
		},
		{name: "none, but a proxy", meets: func(net.Conn, *pgproto3.StartupMessage) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					client, err := l.Accept()
					if err != nil {
						return
					}
					go pool(client, c.meets)
				}
			}()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			about, err := Check(t.Context(), strings.Replace(address, fmt.Sprint(server.Port), port, 1))
			if err != nil || len(about.Denied) > 0 || about.Schema == 0 || strings.Contains(about.Server, "pooler") != c.pooled {
				t.Errorf("a check finds %+v, %v; want the schema, and a pooler: %t", about, err, c.pooled)
			}
		})
	}
}

// pool connects a client with the server like a pooler.
func pool(client net.Conn, meets func(net.Conn, *pgproto3.StartupMessage)) {
	defer client.Close()
	first, err := pgproto3.NewBackend(client, client).ReceiveStartupMessage()
	if err != nil {
		return
	}
	startup, ok := first.(*pgproto3.StartupMessage)
	if !ok {
		return // a cancellation
	}
	meets(client, startup)
	begin, err := startup.Encode(nil)
	if err != nil {
		return
	}
	behind, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", server.Port))
	if err != nil {
		return
	}
	defer behind.Close()
	if _, err := behind.Write(begin); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(behind, client)
		behind.Close()
	}()
	_, _ = io.Copy(client, behind)
}

func TestSchemaOneVersionAheadIsAcceptedAndNewerIsRefused(t *testing.T) {
	address := server.Schema()
	if err := open(t, address, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	d, err := connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	list, err := scripts()
	if err != nil {
		t.Fatal(err)
	}
	// The next Belfry has upgraded it; this one will be stopped soon.
	next := len(list) + 1
	if _, err := d.pool.Exec(t.Context(), "insert into schema_versions (version, oldest) values ($1, $2)", next, len(list)); err != nil {
		t.Fatal(err)
	}
	if err := open(t, address, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if about, err := Check(t.Context(), address); err != nil || about.Unusable != nil {
		t.Errorf("a look says unusable: %v, %v", about.Unusable, err)
	}
	if _, err := d.pool.Exec(t.Context(), "update schema_versions set oldest = $1 where version = $1", next); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(t.Context(), address, Options{}); err == nil {
		t.Error(s.Close(), "a schema that this program does not know was opened")
	}
	if about, err := Check(t.Context(), address); err != nil || about.Schema != next || about.Unusable == nil {
		t.Errorf("a look says %v, unusable: %v, %v", about, about.Unusable, err)
	}
}

// Hints of another node arrive by NOTIFY.
func TestOtherNodesAreNotified(t *testing.T) {
	address := emptySchema(t)
	a, b := open(t, address, Options{}), open(t, address, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	hints := b.Hints(ctx)
	definition := &job.Job{Name: "told", Schedule: job.Schedule{Cron: []string{"* * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}
	for n := 1; ; n++ {
		// The first hint may be lost while b is not listening yet.
		definition.Description = time.Duration(n).String()
		j, err := store.PutOne(ctx, a, store.PutJob{Definition: definition, IfVersion: store.AnyVersion, Actor: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case hint := <-hints:
			// A new listener gets a hint at everything.
			if hint&store.HintJobs != 0 && hint&store.HintNodes == 0 {
				if !hint.MayConcern(j.Definition.UID) || hint.MayConcern(job.ID{1, 2, 3}) {
					t.Errorf("the hint %b is about something else than the job", hint)
				}
				return
			}
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("no hint has come")
		}
	}
}

// While the database is away no hints are sent, which would make all nodes call it; when it is back
// all are sent, for missed changes.
func TestHintsWaitForTheDatabase(t *testing.T) {
	away := servers.StartPostgres(t)
	s := open(t, away.Schema(), Options{})
	hints := s.Hints(t.Context())
	if err := away.Stop(); err != nil {
		t.Fatal(err)
	}
	_, read := s.Sessions(t.Context())
	if write := s.Drain(t.Context(), store.DrainNode{Node: "a"}); !errors.Is(read, store.ErrAway) || !errors.Is(write, store.ErrAway) {
		t.Errorf("without its database the store says %v to reads and %v to writes", read, write)
	}
	came := 0
	for over := time.After(2 * time.Second); over != nil; { // long enough for some attempts to listen again
		select {
		case <-hints:
			came++
		case <-over:
			over = nil
		}
	}
	if came > 1 { // one came when it began to listen
		t.Errorf("%d hints came while the database was away", came)
	}
	if err := away.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case hint := <-hints:
		if all := store.HintNodes | store.HintLost; hint&all != all {
			t.Errorf("the hint was %b, want all that may have been missed", hint)
		}
	case <-time.After(3 * time.Minute):
		t.Error("no hint has come when the database was back")
	}
}

// The store uses the clock of the database, whatever the machine's clock says.
func TestTheClockIsThatOfTheDatabase(t *testing.T) {
	s := open(t, emptySchema(t), Options{})
	d, err := connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	var before, after time.Time
	ask := func(at *time.Time) {
		if err := d.pool.QueryRow(t.Context(), "select clock_timestamp()").Scan(at); err != nil {
			t.Fatal(err)
		}
	}
	ask(&before)
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask(&after)
	// The error of a measurement is at most its duration.
	if now.Before(before.Add(-measured)) || now.After(after.Add(measured)) {
		t.Errorf("the store says %s, the database %s to %s", now, before, after)
	}
}

// measured is longer than a measurement takes on a machine that stalls.
const measured = 30 * time.Second

// Calls whose connections are ended, or that meet a starting server, are repeated.
func TestEndedConnectionsAreReopened(t *testing.T) {
	t.Run("directly", func(t *testing.T) { endConnections(t, emptySchema(t)) })
	t.Run("behind a pooler", func(t *testing.T) { endConnections(t, poolers["transaction mode"](t).Through(emptySchema(t))) })
}

func endConnections(t *testing.T, address string) {
	t.Helper()
	s := open(t, address, Options{})
	admin, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			_, err := admin.Exec(context.Background(), "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and application_name = 'belfry' and random() < 0.3")
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	want := 0
	for n := range 300 {
		p := store.PutJob{
			Definition: &job.Job{
				Name: "job", Description: time.Duration(n).String(),
				Schedule: job.Schedule{Cron: []string{"* * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
			},
			IfVersion: int64(n), Actor: "ann",
		}
		var j *store.Job
		for { // a call gives up after some broken connections, but its caller repeats it
			var err error
			if j, err = store.PutOne(t.Context(), s, p); err == nil {
				break
			}
			if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExists) {
				t.Fatalf("change %d: %v", n, err)
			}
		}
		if want++; j.Definition.Version != int64(want) {
			t.Fatalf("change %d made version %d", n, j.Definition.Version)
		}
	}
	close(stop)
	wait.Wait()
	records, _, err := s.Audit(t.Context(), store.AuditQuery{Limit: 1000})
	if err != nil || len(records) != want {
		t.Errorf("%d changes are in the audit, %v, want %d", len(records), err, want)
	}
}

// The views show the same state as the program.
func TestViewsShowTheState(t *testing.T) {
	address := emptySchema(t)
	s := open(t, address, Options{})
	j, err := store.PutOne(t.Context(), s, store.PutJob{Actor: "ann", Definition: &job.Job{
		Name: "seen", Schedule: job.Schedule{Cron: []string{"* * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	session, err := s.Join(t.Context(), store.Session{ID: job.ID{1}, Node: "a", Machine: "m", DataDir: "d"})
	if err != nil {
		t.Fatal(err)
	}
	run := job.ID{0xff, 0x01, 0x80, 15: 0x7f}
	item := store.TriggerItem{ID: run, Job: j.Definition.UID, Kind: job.RunByHand, Key: "k", Session: session.ID, Actor: "ann"}
	if out, err := s.Trigger(t.Context(), []store.TriggerItem{item}); err != nil || !out[0].Made {
		t.Fatal(out, err)
	}
	d, err := connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	seen := func(query string, want ...string) {
		t.Helper()
		got := make([]string, len(want))
		to := make([]any, len(want))
		for i := range got {
			to[i] = &got[i]
		}
		if err := d.pool.QueryRow(t.Context(), query).Scan(to...); err != nil {
			t.Errorf("%s: %v", query, err)
		} else if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	seen("select namespace, name, uid, state, (definition->>'name')::text, (created > now() - interval '1 hour')::text from belfry_jobs",
		"default", "seen", j.Definition.UID.String(), "active", "seen", "true")
	seen("select run, name, state, kind, node, (due > now() - interval '1 hour')::text from belfry_runs", run.String(), "seen", "ready", "hand", "a", "true")
	seen("select node, session from belfry_nodes", "a", session.ID.String())
	if _, err := s.Cancel(t.Context(), run, "ann", "enough"); err != nil {
		t.Fatal(err)
	}
	seen("select run, name, outcome, reason, is_final::text, coalesce(exit_code::text, 'none') from belfry_attempts",
		run.String(), "seen", "cancelled", "cancelled by ann: enough", "true", "none")
	usage := "select round(coalesce(cpu_seconds, -1), 2)::text, coalesce(memory_bytes, -1)::text, coalesce(read_bytes, -1)::text, coalesce(written_bytes, -1)::text from belfry_attempts"
	seen(usage, "-1.00", "-1", "-1", "-1")
	if _, err := d.pool.Exec(t.Context(), "update history set used = '2310000,<64000000,0,'"); err != nil {
		t.Fatal(err)
	}
	seen(usage, "2.31", "64000000", "0", "-1")
}

func TestNodesExchangeEvents(t *testing.T) {
	address := emptySchema(t)
	storetest.Elsewhere(t, func() store.Store { return open(t, address, Options{}) })
}

func TestLostNotificationsAreNoticed(t *testing.T) {
	address := emptySchema(t)
	a, b := open(t, address, Options{}), open(t, address, Options{})
	d, err := connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	n := 0
	change := func() {
		t.Helper()
		n++
		if _, err := b.PutDocument(ctx, job.Document{Pool: &job.Pool{Name: "p", Description: time.Duration(n).String()}}, store.AnyVersion, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	// Without followers nothing is written.
	change()
	var count int
	if err := d.pool.QueryRow(ctx, "select value from counters where name = 'told'").Scan(&count); err != nil || count != 0 {
		t.Errorf("%d batches were published without a listener, %v", count, err)
	}
	elsewhere := a.EventsElsewhere(ctx)
	// heard reads until the last change has arrived, and reports whether a loss was reported before
	// it.
	heard := func(patience time.Duration) (told, lost bool) {
		t.Helper()
		for over := time.After(patience); ; {
			select {
			case list := <-elsewhere:
				for _, e := range list {
					lost = lost || e.Kind == store.EventLost
					if e.Audit != nil && e.Audit.Version == int64(n) {
						return true, lost
					}
				}
			case <-over:
				return false, lost
			case <-ctx.Done():
				t.Fatal("no change has come")
			}
		}
	}
	// until makes changes until one has arrived, and reports whether a loss was reported before it.
	until := func() (lost bool) {
		t.Helper()
		for told := false; !told; {
			change()
			var now bool
			told, now = heard(time.Second)
			lost = lost || now
		}
		return lost
	}
	until()
	if _, err := d.pool.Exec(ctx, "update counters set value = value + 1 where name = 'told'"); err != nil {
		t.Fatal(err)
	}
	if !until() {
		t.Error("the next change has come, and no gap is reported")
	}
	// A failover to a standby that was behind: numbers continue from an earlier one, so that new
	// events do not come after the last received number.
	for _, sql := range []string{"update counters set value = -1000 where name = 'told'", "truncate told"} {
		if _, err := d.pool.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.pool.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and application_name = 'belfry'"); err != nil {
		t.Fatal(err)
	}
	if !until() {
		t.Error("no gap is reported")
	}
}

// A report of a server's death must be quick, and the server has checked everything.
func TestADatabaseInUseIsNeitherCheckedNorChanged(t *testing.T) {
	t.Parallel()
	address := server.Schema()
	if s, err := Open(t.Context(), address, Options{InUse: true}); err == nil {
		t.Error(s.Close(), "a database without tables was opened")
	}
	d, err := connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	var isNew bool
	if err := d.pool.QueryRow(t.Context(), "select exists (select from pg_namespace where nspname = $1)", d.schema).Scan(&isNew); err != nil || isNew {
		t.Errorf("the schema was made: %t, %v", isNew, err)
	}
	first, beside := open(t, address, Options{}), open(t, address, Options{InUse: true})
	session, err := first.Join(t.Context(), store.Session{ID: job.ID{1}, Node: "a", Machine: "m", DataDir: "/a", Roles: []string{store.RoleWorker}})
	if err != nil {
		t.Fatal(err)
	}
	if err := beside.Leave(t.Context(), session.ID); err != nil {
		t.Fatal(err)
	}
	if all, err := first.Sessions(t.Context()); err != nil || len(all) != 1 || !all[0].Leaving {
		t.Errorf("the sessions are %+v, %v", all, err)
	}
}
