//go:build servers

package postgres

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/test/servers"
)

// All connections, including the listening one, use TLS as the address says.
func TestConnectionsHaveTLS(t *testing.T) {
	const host = "127.0.0.1"
	secure := servers.StartPostgres(t)
	authority, err := secure.RequireTLS(host)
	if err != nil {
		t.Fatal(err)
	}
	address := func(parameters string) string {
		return fmt.Sprintf("postgres://belfry@%s:%d/postgres?schema=s&%s", host, secure.Port, parameters)
	}
	s := open(t, address("sslmode=verify-full&sslrootcert="+authority), Options{})
	select { // a new listener gets a hint at everything
	case <-s.Hints(t.Context()):
	case <-time.After(3 * time.Minute):
		t.Error("there is no listener")
	}
	other, err := servers.NewCertificate(t.TempDir(), host)
	if err != nil {
		t.Fatal(err)
	}
	for parameters, want := range map[string]string{
		"sslmode=disable":                                      "no encryption",
		"sslmode=disable;application_name=a":                   "joined by &",
		"sslmode=verify-full&sslrootcert=" + other.Certificate: "certificate",
	} {
		s, err := Open(t.Context(), address(parameters), Options{})
		if err == nil {
			t.Error(s.Close(), "connected with", parameters)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v, want something with %q", parameters, err, want)
		}
	}

	elsewhere := servers.StartPostgres(t)
	if authority, err = elsewhere.RequireTLS("db.example.com"); err != nil {
		t.Fatal(err)
	}
	secure = elsewhere
	open(t, address("sslmode=verify-ca&sslrootcert="+authority), Options{})
	if s, err := Open(t.Context(), address("sslmode=verify-full&sslrootcert="+authority), Options{}); err == nil {
		t.Error(s.Close(), "connected to a server with the certificate of another")
	}
}

// A primary dies during changes, and a synchronous standby takes over: each acknowledged change
// exists once, and the node recovers.
func TestFailoverKeepsAcknowledgedChanges(t *testing.T) {
	primary := servers.StartPostgres(t, servers.SynchronousStandby...)
	standby, err := primary.Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Close(); err != nil {
			t.Error(err)
		}
	})
	s := open(t, fmt.Sprintf("postgres://belfry@127.0.0.1:%d,127.0.0.1:%d/postgres?schema=s&target_session_attrs=read-write", primary.Port, standby.Port), Options{})
	const before, changes = 100, 200
	var made atomic.Int64
	failed := make(chan error, 1)
	go func() {
		failed <- func() error {
			for n := range changes {
				p := store.PutJob{
					Definition: &job.Job{
						Name: "job", Description: fmt.Sprint(n),
						Schedule: job.Schedule{Cron: []string{"* * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
					},
					IfVersion: int64(n), Actor: "ann",
				}
				for { // a call gives up before the failover, but its caller repeats it
					j, err := store.PutOne(t.Context(), s, p)
					if err == nil && j.Definition.Version != int64(n)+1 {
						return fmt.Errorf("change %d made version %d", n, j.Definition.Version)
					}
					if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExists) || t.Context().Err() != nil {
						return fmt.Errorf("change %d: %w", n, err)
					}
					if err == nil {
						break
					}
				}
				made.Add(1)
			}
			return nil
		}()
	}()
	for made.Load() < before {
		select {
		case err := <-failed:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(5 * time.Minute):
		t.Fatalf("%d of %d changes were made", made.Load(), changes)
	}
	records, _, err := s.Audit(t.Context(), store.AuditQuery{Limit: 1000})
	if err != nil || len(records) != changes {
		t.Errorf("%d changes are in the audit, %v, want %d", len(records), err, changes)
	}
}

// A failover to a standby that was behind loses the last acknowledged changes. Another node that
// has seen them does not confuse them with later ones.
func TestChangesLostInAFailoverAreNotConfusedWithLaterOnes(t *testing.T) {
	address := server.Schema()
	writer, reader := open(t, address, Options{}), open(t, address, Options{})
	put := func(description string, version int64) *store.Job {
		t.Helper()
		j, err := store.PutOne(t.Context(), writer, store.PutJob{IfVersion: version, Actor: "ann", Definition: &job.Job{
			Name: "job", Description: description,
			Schedule: job.Schedule{Cron: []string{"* * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	read := func(since int64) (description string, changed int, next int64) {
		t.Helper()
		j, err := store.JobNamed(t.Context(), reader, "default", "job")
		if err != nil {
			t.Fatal(err)
		}
		list, next, err := reader.JobsChanged(t.Context(), store.AllPartitions, since, 10)
		if err != nil {
			t.Fatal(err)
		}
		return j.Definition.Description, len(list), next
	}
	put("first", 0)
	raw := strings.Replace(address, "schema=", "search_path=", 1)
	const tables = "jobs job_state counters revisions audit"
	for table := range strings.FieldsSeq(tables) {
		exec(t, raw, "create table kept_"+table+" as table "+table)
	}
	put("lost", 1)
	_, _, since := read(0)
	for table := range strings.FieldsSeq(tables) {
		exec(t, raw, "delete from "+table+"; insert into "+table+" table kept_"+table)
	}
	put("last", 1)
	if description, changed, _ := read(since); description != "last" || changed != 1 {
		t.Errorf("another node reads %q, and of %d changes, want the last one", description, changed)
	}
}
