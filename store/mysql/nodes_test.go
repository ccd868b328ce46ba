//go:build servers

package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/test/servers"
)

// connected connects to a database without a store.
func connected(t *testing.T, address string) *database {
	t.Helper()
	d, err := connection(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.pool.Close() })
	return d
}

func TestTenNodesCreateTheSchemaConcurrently(t *testing.T) {
	address := newDatabase(t)
	storetest.OpenAtOnce(t, func() (io.Closer, error) { return Open(t.Context(), address, Options{}) })
}

// Each statement that changes a schema is committed separately: a node that ends between two of
// them leaves a part of the schema, which the next node completes.
func TestHalfCreatedSchemaIsCompleted(t *testing.T) {
	address := newDatabase(t)
	d := connected(t, address)
	list, err := scripts()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.pool.ExecContext(t.Context(), "create table schema_versions (version int primary key, oldest int not null, applied datetime(6) not null)"); err != nil {
		t.Fatal(err)
	}
	statements := strings.SplitAfter(list[0].Script, ";\n")
	for _, statement := range statements[:len(statements)/2] {
		if _, err := d.pool.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	open(t, address, Options{})
}

// A node that ends before it records a script leaves it unknown how much of it was done.
func TestEachScriptMayBeRunAgain(t *testing.T) {
	address := newDatabase(t)
	if err := open(t, address, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	d := connected(t, address)
	if _, err := d.pool.ExecContext(t.Context(), "delete from schema_versions"); err != nil {
		t.Fatal(err)
	}
	open(t, address, Options{})
}

// Settings of a server apply to connections without their own.
func TestServerWithoutAutocommitIsSupported(t *testing.T) {
	address := newDatabase(t)
	set := func(autocommit int) {
		if err := server.Exec(context.Background(), fmt.Sprintf("set global autocommit = %d", autocommit)); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	defer set(1)
	open(t, address, Options{})
	about, err := Check(t.Context(), address)
	if list, _ := scripts(); err != nil || about.Schema != len(list) {
		t.Errorf("the schema has version %d, %v, want %d", about.Schema, err, len(list))
	}
}

// Such a server would refuse results again and again.
func TestServerWithShortStatementsIsRefused(t *testing.T) {
	address := newDatabase(t)
	set := func(packet int) {
		if err := server.Exec(context.Background(), fmt.Sprintf("set global max_allowed_packet = %d", packet)); err != nil {
			t.Fatal(err)
		}
	}
	set(packetMin - 1024)
	defer set(packetMin)
	s, opened := Open(t.Context(), address, Options{})
	if opened == nil {
		t.Error(s.Close(), "it was opened")
	}
	_, looked := Check(t.Context(), address)
	for _, err := range []error{opened, looked} {
		if want := "max_allowed_packet of the server is 16776192, and must be 16777216 or more"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error that says %s", err, want)
		}
	}
}

func TestSchemaOneVersionAheadIsAcceptedAndNewerIsRefused(t *testing.T) {
	address := newDatabase(t)
	if err := open(t, address, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	d := connected(t, address)
	list, err := scripts()
	if err != nil {
		t.Fatal(err)
	}
	// The next Belfry has upgraded it; this one will be stopped soon.
	next := len(list) + 1
	if _, err := d.pool.ExecContext(t.Context(), fmt.Sprintf("insert into schema_versions values (%d, %d, utc_timestamp())", next, len(list))); err != nil {
		t.Fatal(err)
	}
	if err := open(t, address, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if about, err := Check(t.Context(), address); err != nil || about.Unusable != nil {
		t.Errorf("a look says unusable: %v, %v", about.Unusable, err)
	}
	if _, err := d.pool.ExecContext(t.Context(), fmt.Sprintf("update schema_versions set oldest = %[1]d where version = %[1]d", next)); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(t.Context(), address, Options{}); err == nil {
		t.Error(s.Close(), "a schema that this program does not know was opened")
	}
	if about, err := Check(t.Context(), address); err != nil || about.Schema != next || about.Unusable == nil {
		t.Errorf("a look says %v, unusable: %v, %v", about, about.Unusable, err)
	}
}

func TestADatabaseOfAnotherProgramIsRefused(t *testing.T) {
	address := newDatabase(t)
	d := connected(t, address)
	if _, err := d.pool.ExecContext(t.Context(), "create table jobs (id int)"); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), address, Options{})
	if err == nil {
		t.Fatal(s.Close(), "it was opened")
	}
	if !strings.Contains(err.Error(), "another program") {
		t.Error(err)
	}
}

// Nodes poll for notices of others.
func TestOtherNodesAreNotified(t *testing.T) {
	address := emptyDatabase(t)
	a, b := open(t, address, Options{}), open(t, address, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	hints := b.Hints(ctx)
	for n := 1; ; n++ {
		// The first notice may be lost while b is not polling yet.
		if _, err := store.PutOne(ctx, a, store.PutJob{Definition: definition(n), IfVersion: store.AnyVersion, Actor: "ann"}); err != nil {
			t.Fatal(err)
		}
		select {
		case hint := <-hints:
			// A new listener gets a hint at everything.
			if hint&store.HintJobs != 0 && hint&store.HintNodes == 0 {
				return
			}
		case <-time.After(time.Second):
		case <-ctx.Done():
			t.Fatal("no hint has come")
		}
	}
}

func definition(n int) *job.Job {
	return &job.Job{
		Name: "job", Description: fmt.Sprint("change ", n),
		Schedule: job.Schedule{Cron: []string{"* * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
	}
}

// The store uses the clock of the database, whatever the machine's clock says.
func TestTheClockIsThatOfTheDatabase(t *testing.T) {
	address := emptyDatabase(t)
	s := open(t, address, Options{})
	d := connected(t, address)
	ask := func() time.Time {
		var micros int64
		if err := d.pool.QueryRowContext(t.Context(), "select round(unix_timestamp(now(6)) * 1000000)").Scan(&micros); err != nil {
			t.Fatal(err)
		}
		return time.UnixMicro(micros)
	}
	before := ask()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	after := ask()
	// The error of a measurement is at most its duration.
	if now.Before(before.Add(-measured)) || now.After(after.Add(measured)) {
		t.Errorf("the store says %s, the database %s to %s", now, before, after)
	}
}

// measured is longer than a measurement takes on a machine that stalls.
const measured = 30 * time.Second

// changer changes a job again and again, repeats each call until it succeeds, and expects each
// change to be made once.
type changer struct {
	s    *Store
	made int
}

func (c *changer) change(t *testing.T, n int) {
	t.Helper()
	for range n {
		var j *store.Job
		for { // a call gives up after some broken connections, but its caller repeats it
			var err error
			if j, err = store.PutOne(t.Context(), c.s, store.PutJob{Definition: definition(c.made), IfVersion: int64(c.made), Actor: "ann"}); err == nil {
				break
			}
			if said := number(err); said != 0 && said != errServerShutdown && said != errKilledMariaDB || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExists) {
				t.Fatalf("change %d: %v", c.made, err)
			}
		}
		if c.made++; j.Definition.Version != int64(c.made) {
			t.Fatalf("change %d made version %d", c.made, j.Definition.Version)
		}
	}
}

// check compares the changes with the audit.
func (c *changer) check(t *testing.T) {
	t.Helper()
	records, _, err := c.s.Audit(t.Context(), store.AuditQuery{Limit: 1000})
	if err != nil || len(records) != c.made {
		t.Errorf("%d changes are in the audit, %v, want %d", len(records), err, c.made)
	}
}

// A connection that ends during a call is opened again.
func TestEndedConnectionsAreReopened(t *testing.T) {
	c := &changer{s: open(t, emptyDatabase(t), Options{})}
	for range 60 {
		ended := make(chan error)
		go func() {
			ended <- server.Exec(context.Background(), `begin not atomic
				for c in (select id from information_schema.processlist where db is not null and id <> connection_id() and rand() < 0.5) do
					begin
						declare continue handler for sqlexception begin end; -- it has ended by itself
						kill c.id;
					end;
				end for;
			end`)
		}()
		c.change(t, 1)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	c.check(t)
}

// A server that crashes during calls and starts again has all acknowledged changes.
func TestRestartedServerIsUsedAgain(t *testing.T) {
	server := servers.StartMariaDB(t, "--innodb-flush-log-at-trx-commit=1")
	address, err := server.Database()
	if err != nil {
		t.Fatal(err)
	}
	c := &changer{s: open(t, address, Options{})}
	for range 3 {
		c.change(t, 10)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		started := make(chan error)
		go func() { started <- server.Start() }()
		c.change(t, 10)
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	c.check(t)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	_, read := c.s.Sessions(t.Context())
	if write := c.s.Drain(t.Context(), store.DrainNode{Node: "a"}); !errors.Is(read, store.ErrAway) || !errors.Is(write, store.ErrAway) {
		t.Errorf("without its database the store says %v to reads and %v to writes", read, write)
	}
}

// cutter is a proxy that sometimes loses a commit or the answer to one.
type cutter struct {
	net.Listener
	to      string
	commits atomic.Int32
}

func (c *cutter) serve() {
	for {
		client, err := c.Accept()
		if err != nil {
			return
		}
		go c.pass(client)
	}
}

func (c *cutter) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer server.Close()
	var mute atomic.Bool
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil || mute.Load() {
				client.Close()
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if bytes.HasSuffix(buffer[:n], []byte("commit")) {
			switch c.commits.Add(1) % 4 {
			case 1: // committed, unknown to the caller
				mute.Store(true)
			case 3: // not committed
				return
			}
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
		if mute.Load() {
			<-answered
			return
		}
	}
}

// The rows are gone when a removal with a lost answer is repeated: the call still succeeds.
func TestRemovalWithALostAnswerIsDone(t *testing.T) {
	s, proxy := openBehindCutter(t)
	put := func(calendar, day string) error {
		_, err := s.PutDocument(t.Context(), job.Document{Calendar: &job.Calendar{Name: calendar, Days: job.Days{Include: []string{day}}}}, store.AnyVersion, "ann")
		return err
	}
	for n := range 40 {
		// The proxy alternates: with an odd number of calls in each round, it loses the answer of
		// every other removal.
		if err := put("odd", fmt.Sprintf("2026-12-%02d", n%28+1)); err != nil {
			t.Fatal(err)
		}
		for what, do := range map[string][2]func() error{
			"calendar": {
				func() error { return put("off", "2026-12-24") },
				func() error {
					return s.DeleteDocument(t.Context(), job.KindCalendar, job.DefaultNamespace+"/off", store.AnyVersion, "ann")
				},
			},
			"token": {
				func() error {
					_, err := s.PutToken(t.Context(), store.PutToken{Name: "ben", Hash: store.TokenHash{byte(n)}, Role: store.RoleViewer, Actor: "ann"})
					return err
				},
				func() error { return s.DeleteToken(t.Context(), "ben", "ann") },
			},
		} {
			for i, step := range do {
				if err := step(); err != nil {
					t.Fatalf("%s, time %d, step %d: %v", what, n, i, err)
				}
			}
		}
	}
	if proxy.commits.Load() < 100 {
		t.Errorf("the proxy has seen %d commits", proxy.commits.Load())
	}
}

// openBehindCutter opens an empty store behind a proxy that loses commits and answers.
func openBehindCutter(t *testing.T) (*Store, *cutter) {
	t.Helper()
	address := emptyDatabase(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	direct := fmt.Sprintf("127.0.0.1:%d", server.Port)
	proxy := &cutter{Listener: l, to: direct}
	go proxy.serve()
	t.Cleanup(func() { _ = l.Close() })
	return open(t, strings.Replace(address, direct, l.Addr().String(), 1), Options{}), proxy
}

// A commit whose answer is lost is made once: repeating the call finds out what became of it.
func TestCommitWithALostAnswerIsDoneOnce(t *testing.T) {
	s, proxy := openBehindCutter(t)
	c := &changer{s: s}
	c.change(t, 100)
	c.check(t)
	if proxy.commits.Load() < 100 {
		t.Errorf("the proxy has seen %d commits", proxy.commits.Load())
	}
}

// An expiry whose answer is lost removes no more than a call may.
func TestExpiryWithALostAnswerIsBounded(t *testing.T) {
	s, proxy := openBehindCutter(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ended, elsewhere, number := time.Now().Add(-time.Hour), job.ID{1}, 0
	for range store.ExpireMax/store.MaxBatch + 1 {
		records := make([]store.Record, store.MaxBatch)
		for i := range records {
			number++
			run := job.ID{2, byte(number), byte(number >> 8)}
			records[i] = store.Record{
				Run: job.Run{
					ID: run, JobUID: elsewhere, Namespace: "elsewhere", Name: "j", Kind: job.RunScheduled, Key: "k", Epoch: 1, Version: 1,
					State: job.StateDone, Attempt: 1, Scheduled: ended, Due: ended, Outcome: job.OutcomeSucceeded,
				},
				Attempt: job.Attempt{Run: run, Number: 1, Token: run, Node: "n", Started: ended, Ended: ended, Outcome: job.OutcomeSucceeded},
				Final:   true, Count: 1,
			}
		}
		must(s.Append(t.Context(), records))
	}
	for batch := range store.ExpireMax/store.PutMax + 1 {
		puts := make([]store.PutJob, store.PutMax)
		for i := range puts {
			j := *definition(batch)
			j.Name = fmt.Sprintf("j%d-%d", batch, i)
			puts[i] = store.PutJob{Definition: &j, Actor: "ann"}
		}
		_, err := s.PutJobs(t.Context(), puts)
		must(err)
	}
	rows := func() int {
		t.Helper()
		list, _, err := s.Attempts(t.Context(), store.HistoryQuery{Job: elsewhere, Limit: store.LookMax})
		must(err)
		return len(list)
	}
	changes := func() int {
		t.Helper()
		list, _, err := s.Audit(t.Context(), store.AuditQuery{Limit: store.LookMax})
		must(err)
		return len(list)
	}
	for what, c := range map[string]struct {
		expire func(ctx context.Context, keep store.Retention) (bool, error)
		count  func() int
		left   int
	}{"history": {s.Expire, rows, 0}, "audit": {s.ExpireAudit, changes, 1}} {
		before := c.count()
		if before <= store.ExpireMax {
			t.Fatalf("%s: there are only %d rows", what, before)
		}
		first := int32(0) // the answer of the first commit is lost
		for more := true; more; first = 1 {
			proxy.commits.Store(first)
			var err error
			more, err = c.expire(t.Context(), store.Retention{For: time.Minute, Audit: 1})
			must(err)
			now := c.count()
			if before-now > store.ExpireMax {
				t.Errorf("%s: one call has removed %d rows", what, before-now)
			}
			before = now
		}
		if before != c.left {
			t.Errorf("%s: %d rows are left, want %d", what, before, c.left)
		}
	}
}

// While a server is read-only a call fails with that error; afterwards it succeeds on another
// connection.
func TestReadOnlyServerIsNamed(t *testing.T) {
	if err := server.Exec(t.Context(), "create or replace user clerk identified by 'none of yours'; grant all on *.* to clerk; revoke super, read only admin on *.* from clerk"); err != nil {
		t.Fatal(err)
	}
	address := strings.Replace(emptyDatabase(t), "root@", "clerk:none%20of%20yours@", 1)
	c := &changer{s: open(t, address, Options{})}
	c.change(t, 1)
	if err := server.Exec(t.Context(), "set global read_only = 1"); err != nil {
		t.Fatal(err)
	}
	_, refused := store.PutOne(t.Context(), c.s, store.PutJob{Definition: definition(7), IfVersion: 1, Actor: "ann"})
	_, read := store.JobNamed(t.Context(), c.s, "default", "job")
	if err := server.Exec(t.Context(), "set global read_only = 0"); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(refused, store.ErrReadOnly) || read != nil {
		t.Errorf("a change: %v, a read: %v", refused, read)
	}
	c.change(t, 1)
	c.check(t)
}

// When the user may not connect, because the password was changed or all connections are in use,
// the error says that the database is away, not that the call is wrong.
func TestRefusedLoginIsNamed(t *testing.T) {
	do := func(statements string) {
		t.Helper()
		if err := server.Exec(t.Context(), statements); err != nil {
			t.Fatal(err)
		}
	}
	do("create or replace user porter identified by 'none of yours'; grant all on *.* to porter")
	c := &changer{s: open(t, strings.Replace(emptyDatabase(t), "root@", "porter:none%20of%20yours@", 1), Options{})}
	c.change(t, 1)
	do("alter user porter identified by 'another one'; kill user porter")
	_, read := store.JobNamed(t.Context(), c.s, "default", "job")
	write := c.s.Drain(t.Context(), store.DrainNode{Node: "a"})
	do("alter user porter identified by 'none of yours'")
	if !errors.Is(read, store.ErrAway) || !errors.Is(write, store.ErrAway) {
		t.Errorf("a read: %v, a change: %v", read, write)
	}
	c.change(t, 1)
	c.check(t)
	for _, number := range []uint16{errTooManyConns, errTooManyOfUser, errUserLimit} {
		if fault := (&database{}).Fault(&mysql.MySQLError{Number: number}); fault != sqldb.Broken {
			t.Errorf("error %d is a fault %d, want %d", number, fault, sqldb.Broken)
		}
	}
}

// Definitions and output may be longer than a packet of the server.
func TestLongTextsAreKept(t *testing.T) {
	s := open(t, emptyDatabase(t), Options{})
	long := strings.Repeat(`\'"`+"\n\u00e9\U0001f514;--", 200_000)
	d := definition(1)
	d.Run.Shell.Command = long
	j, err := store.PutOne(t.Context(), s, store.PutJob{Definition: d, IfVersion: 0, Actor: `o'brien \`})
	if err != nil {
		t.Fatal(err)
	}
	again, err := store.JobByUID(t.Context(), s, j.Definition.UID)
	if err != nil || again.Definition.Run.Shell.Command != long {
		t.Errorf("the command is another one, %v", err)
	}
	records, _, err := s.Audit(t.Context(), store.AuditQuery{Limit: 1})
	if err != nil || records[0].Actor != `o'brien \` {
		t.Errorf("%v, %v", records, err)
	}
	id := j.Definition.UID
	d.Run.Shell = &job.Shell{Command: strings.Repeat(`\`, 9<<20)} // two packets long in a statement
	if _, err := store.PutOne(t.Context(), s, store.PutJob{Definition: d, IfVersion: 1, Actor: "ann"}); err == nil || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("a job that is too long: %v", err)
	}
	var chunks []store.OutputChunk
	for n := range 20 {
		chunks = append(chunks, store.OutputChunk{Run: id, Attempt: 1, Seq: n, Data: bytes.Repeat([]byte{byte(n), 0, '\'', '\\'}, 64<<10)})
	}
	if err := s.AppendOutput(t.Context(), chunks); err != nil {
		t.Fatal(err)
	}
	got, err := s.Output(t.Context(), id, 1, 0, 100)
	if err != nil || len(got) != len(chunks) {
		t.Fatalf("%d chunks, %v", len(got), err)
	}
	for n := range got {
		if !bytes.Equal(got[n].Data, chunks[n].Data) {
			t.Errorf("chunk %d is another one", n)
		}
	}
}

// withAJob returns a store with a job and a session, and a function that reads its database.
func withAJob(t *testing.T) (*Store, *store.Job, store.Session, *sql.DB) {
	t.Helper()
	address := emptyDatabase(t)
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
	d, err := connection(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.pool.Close() })
	return s, j, session, d.pool
}

// The views show the same state as the program.
func TestViewsShowTheState(t *testing.T) {
	s, j, session, pool := withAJob(t)
	seen := func(query string, want ...string) {
		t.Helper()
		got := make([]string, len(want))
		to := make([]any, len(want))
		for i := range got {
			to[i] = &got[i]
		}
		if err := pool.QueryRowContext(t.Context(), query).Scan(to...); err != nil {
			t.Errorf("%s: %v", query, err)
		} else if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	seen("select namespace, name, uid, state, json_unquote(json_extract(definition, '$.name')), created > utc_timestamp() - interval 1 hour, coalesce(paused_at, 'none') from belfry_jobs",
		"default", "seen", j.Definition.UID.String(), "active", "seen", "1", "none")
	seen("select node, session, leaving, coalesce(drained, 'none') from belfry_nodes", "a", session.ID.String(), "0", "none")
	if err := s.Drain(t.Context(), store.DrainNode{Node: "a", Actor: "ann", Reason: "disk"}); err != nil {
		t.Fatal(err)
	}
	seen("select drained_by, drain_reason, drained > utc_timestamp() - interval 1 hour from belfry_nodes", "ann", "disk", "1")
	// Among them they have all digits, at several places, and zeros in front.
	for _, run := range []job.ID{
		{0xff, 0x01, 0x80, 15: 0x7f},
		{0x00, 0x00, 0x44, 0x32, 0x14, 0xc7, 0x42, 0x54, 0xb6, 0x35, 0xcf, 0x84, 0x65, 0x3a, 0x56, 0xd7},
		{0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10, 0xf7, 0xc6, 0x75, 0xbe, 0x77, 0xdf, 0xff, 0xff},
	} {
		item := store.TriggerItem{ID: run, Job: j.Definition.UID, Kind: job.RunByHand, Key: run.String(), Session: session.ID, Actor: "ann"}
		if out, err := s.Trigger(t.Context(), []store.TriggerItem{item}); err != nil || !out[0].Made {
			t.Fatal(out, err)
		}
		seen("select run, name, state, kind, due > utc_timestamp() - interval 1 hour, coalesce(claimed, 'none') from belfry_runs",
			run.String(), "seen", "ready", "hand", "1", "none")
		if _, err := s.Cancel(t.Context(), run, "ann", "enough"); err != nil {
			t.Fatal(err)
		}
		seen("select run, name, outcome, reason, is_final, coalesce(exit_code, 'none'), coalesce(parent, 'none') from belfry_attempts where run = '"+run.String()+"'",
			run.String(), "seen", "cancelled", "cancelled by ann: enough", "1", "none", "none")
	}
	usage := "select distinct round(coalesce(cpu_seconds, -1), 2), coalesce(memory_bytes, -1), coalesce(read_bytes, -1), coalesce(written_bytes, -1) from belfry_attempts"
	seen(usage, "-1", "-1", "-1", "-1")
	if _, err := pool.ExecContext(t.Context(), "update history set used = '2310000,<64000000,0,'"); err != nil {
		t.Fatal(err)
	}
	seen(usage, "2.31", "64000000", "0", "-1")
	// A moment is written to the microsecond, in UTC.
	seen("select count(*) from belfry_attempts v join history h on timestampdiff(microsecond, '1970-01-01', v.ended) = h.ended div 1000 and v.attempt = h.attempt", "3")
}

// Check reports a database without durability, and a database of another program.
func TestCheckIsReadOnlyAndReports(t *testing.T) {
	address := newDatabase(t)
	list, err := scripts()
	if err != nil {
		t.Fatal(err)
	}
	check := func(durable bool, schema int) {
		t.Helper()
		a, err := Check(t.Context(), address)
		if err != nil || !strings.HasPrefix(a.Server, "M") || a.Durable != durable || a.Schema != schema || a.Offset.Abs() > time.Minute {
			t.Errorf("%+v, %v, want durable: %v and schema %d", a, err, durable, schema)
		}
	}
	check(false, 0)
	open(t, address, Options{})
	check(false, len(list))
	set := func(value int) {
		if err := server.Exec(context.Background(), fmt.Sprintf("set global innodb_flush_log_at_trx_commit = %d", value)); err != nil {
			t.Error(err)
		}
	}
	set(1)
	defer set(0) // restore the setting of the tests
	check(true, len(list))
	other := newDatabase(t)
	d, err := connection(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer d.pool.Close()
	if _, err := d.pool.ExecContext(t.Context(), "create table theirs (n int)"); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), other); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("a database of others: %v", err)
	}
}

func TestCheckFindsMissingRights(t *testing.T) {
	address := newDatabase(t)
	open(t, address, Options{})
	a, err := parseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	do := func(statements string) {
		t.Helper()
		if err := server.Exec(t.Context(), strings.ReplaceAll(statements, "DB", a.config.DBName)); err != nil {
			t.Fatal(err)
		}
	}
	as := strings.Replace(address, "root@", "lent:none%20of%20yours@", 1)
	finds := func(address string, want ...string) {
		t.Helper()
		about, err := Check(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Clone(about.Denied)
		for i := range got {
			got[i], _, _ = strings.Cut(got[i], " and ")
		}
		if !slices.Equal(got, want) {
			t.Errorf("a look finds %q, want %q", about.Denied, want)
		}
	}
	finds(address)
	do("create or replace user lent identified by 'none of yours'; grant select on DB.* to lent")
	finds(as, "alter tables", "create tables", "create views", "delete from active", "drop what is replaced", "insert into active", "make an index", "update active")
	do("grant insert, update, delete, create, alter, index, drop on DB.* to lent")
	finds(as, "create views")
	do("grant all on DB.* to lent")
	finds(as)
	do("set global read_only = 1")
	defer do("set global read_only = 0")
	finds(as, "write anything: the server is read-only, as a replica is")
}

func TestNodesExchangeEvents(t *testing.T) {
	address := emptyDatabase(t)
	storetest.Elsewhere(t, func() store.Store { return open(t, address, Options{}) })
}

// A report of a server's death must be quick, and the server has checked everything.
func TestADatabaseInUseIsNeitherCheckedNorChanged(t *testing.T) {
	address := newDatabase(t)
	if s, err := Open(t.Context(), address, Options{InUse: true}); err == nil {
		t.Error(s.Close(), "a database without tables was opened")
	}
	var tables int
	if err := connected(t, address).pool.QueryRowContext(t.Context(), "select count(*) from information_schema.tables where table_schema = database()").Scan(&tables); err != nil || tables > 0 {
		t.Errorf("%d tables were made, %v", tables, err)
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

// A dead host and a replica precede the primary.
func TestConnectionGoesToTheFirstWritableHost(t *testing.T) {
	replica := servers.StartMariaDB(t, "--read-only=1")
	if err := replica.Exec(t.Context(), "create database belfry"); err != nil {
		t.Fatal(err)
	}
	address := newDatabase(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	several := strings.Replace(address, u.Host, fmt.Sprintf("127.0.0.1:1,127.0.0.1:%d,%s", replica.Port, u.Host), 1)
	s, err := Open(t.Context(), several, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	only := fmt.Sprintf("mysql://root@127.0.0.1:1,127.0.0.1:%d/belfry?connect_timeout=60s", replica.Port)
	if s, err := Open(t.Context(), only, Options{}); err == nil {
		s.Close()
		t.Error("a replica was taken")
	} else if !strings.Contains(err.Error(), errReadOnly.Error()) {
		t.Error(err)
	}
}
