//go:build servers

package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/test/servers"
)

// patience bounds each wait for something that must happen: sentinels that notice a stall decide
// nothing for half a minute.
const patience = 3 * time.Minute

// tryPut creates a job that runs every hour.
func tryPut(ctx context.Context, s *Store, name string) error {
	documents, err := job.Decode("job.yaml", []byte("name: "+name+"\nschedule: {every: 1h}\nrun: {shell: 'true'}"))
	if err != nil {
		return err
	}
	_, err = store.PutOne(ctx, s, store.PutJob{Definition: documents[0].Job, IfVersion: store.AnyVersion, Actor: "ann"})
	return err
}

// put creates a job, repeating the call while the server is away.
func put(t *testing.T, s *Store, name string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := tryPut(t.Context(), s, name)
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrAway) || time.Now().After(deadline) {
			t.Errorf("put %s: %v", name, err)
			return
		}
	}
}

// putWhile has several writers create jobs on stores while a fault happens, and returns how
// many were acknowledged.
func putWhile(t *testing.T, stores []*Store, fault func()) int {
	t.Helper()
	var writers sync.WaitGroup
	var over atomic.Bool
	var made atomic.Int64
	for n, s := range stores {
		writers.Go(func() {
			for i := 0; !over.Load() || i < 20; i++ {
				put(t, s, fmt.Sprintf("w%d-%d", n, i))
				made.Add(1)
			}
		})
	}
	eventually(t, "some jobs are made", func() bool { return made.Load() > 10 })
	fault()
	before := made.Load()
	eventually(t, "jobs are made again", func() bool { return made.Load() > before+10 })
	over.Store(true)
	writers.Wait()
	return int(made.Load())
}

// expectJobs reports jobs that are missing or were made twice, also by the audit.
func expectJobs(t *testing.T, s *Store, want int) {
	t.Helper()
	n := 0
	for after := ""; ; {
		list, next, err := s.ListJobs(t.Context(), store.JobQuery{After: after, Limit: 500})
		if err != nil {
			t.Fatal(err)
		}
		n += len(list)
		for _, j := range list {
			if j.Definition.Version != 1 {
				t.Errorf("job %s has version %d: it was put twice", j.Definition.Name, j.Definition.Version)
			}
		}
		if after = next; next == "" {
			break
		}
	}
	if n != want {
		t.Errorf("%d jobs, want %d", n, want)
	}
	records, _, err := s.Audit(t.Context(), store.AuditQuery{Limit: 1})
	if err != nil || len(records) != 1 || records[0].Seq != int64(want) {
		t.Errorf("the last record of the audit is %+v, want number %d; %v", records, want, err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func do(t *testing.T, r *servers.Redis, command ...string) string {
	t.Helper()
	answer, err := r.Do(command...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// counted returns options that count the steps that a store reports as lost.
func counted() (Options, *atomic.Int64) {
	lost := &atomic.Int64{}
	return Options{Lost: func(steps int64) { lost.Add(steps) }}, lost
}

func expectLost(t *testing.T, lost *atomic.Int64, want int64) {
	t.Helper()
	if got := lost.Load(); got != want {
		t.Errorf("%d steps are reported as lost, want %d", got, want)
	}
}

// pair starts a master and its replica, and returns the address of both.
func pair(t *testing.T) (master, replica *servers.Redis, address string) {
	t.Helper()
	master = servers.StartRedis(t)
	replica = servers.StartRedis(t, "--replicaof", "127.0.0.1", strconv.Itoa(master.Port))
	eventually(t, "the replica follows", func() bool { return strings.Contains(do(t, replica, "info", "replication"), "master_link_status:up") })
	return master, replica, fmt.Sprintf("redis://127.0.0.1:%d,127.0.0.1:%d", master.Port, replica.Port)
}

// replicated waits until a replica has what its master has.
func replicated(t *testing.T, master, replica *servers.Redis) {
	t.Helper()
	tail := do(t, master, "hget", "{belfry}:meta", "tail")
	eventually(t, "the replica has all steps", func() bool { return do(t, replica, "hget", "{belfry}:meta", "tail") == tail })
}

func TestStepsThatAFailoverLosesAreReported(t *testing.T) {
	t.Parallel()
	master, replica, address := pair(t)
	o, lost := counted()
	s := open(t, address, o)
	hints := s.Hints(t.Context())
	put(t, s, "kept")
	replicated(t, master, replica)
	do(t, replica, "replicaof", "127.0.0.1", "1") // nothing listens there
	const gone = 20
	for i := range gone {
		put(t, s, fmt.Sprint("gone", i))
	}
	if err := master.Kill(); err != nil {
		t.Fatal(err)
	}
	do(t, replica, "replicaof", "no", "one")
	put(t, s, "later")
	eventually(t, "the loss is reported", func() bool { return lost.Load() > 0 })
	expectLost(t, lost, gone)
	expectJobs(t, s, 2)
	eventually(t, "HintLost is sent", func() bool {
		select {
		case hint := <-hints:
			return hint&store.HintLost != 0
		default:
			return false
		}
	})
}

// A master that was cut off acknowledges steps until it follows the new master.
func TestStepsLostWithADemotedMasterAreReported(t *testing.T) {
	t.Parallel()
	master, replica, address := pair(t)
	o, lost := counted()
	s := open(t, address, o)
	put(t, s, "kept")
	replicated(t, master, replica)
	do(t, replica, "replicaof", "no", "one")
	const gone = 7
	for i := range gone {
		put(t, s, fmt.Sprint("gone", i))
	}
	do(t, master, "replicaof", "127.0.0.1", strconv.Itoa(replica.Port))
	put(t, s, "later")
	eventually(t, "the loss is reported", func() bool { return lost.Load() > 0 })
	expectLost(t, lost, gone)
	expectJobs(t, s, 2)
}

func TestAGentleFailoverLosesNothing(t *testing.T) {
	t.Parallel()
	master, replica, address := pair(t)
	o, lost := counted()
	s := open(t, address, o)
	claims := putWhile(t, []*Store{s, open(t, address, o)}, func() {
		do(t, master, "failover")
		eventually(t, "the replica is the master", func() bool { return strings.Contains(do(t, replica, "info", "replication"), "role:master") })
	})
	expectJobs(t, s, claims)
	expectLost(t, lost, 0)
}

func TestCrashWithAppendfsyncAlwaysLosesNothing(t *testing.T) {
	t.Parallel()
	lone := servers.StartRedis(t)
	o, lost := counted()
	s := open(t, lone.URL(), o)
	claims := putWhile(t, []*Store{s, open(t, lone.URL(), o)}, func() {
		for range 2 {
			if err := errors.Join(lone.Kill(), lone.Start()); err != nil {
				t.Fatal(err)
			}
			do(t, lone, "script", "flush")
		}
	})
	expectJobs(t, s, claims)
	expectLost(t, lost, 0)
}

// deaf is a proxy that forwards requests to a server and sometimes loses its answers.
type deaf struct {
	net.Listener
	to     string
	silent atomic.Bool
}

func newDeaf(t *testing.T, to string) *deaf {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &deaf{Listener: l, to: to}
	var carrying sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	carrying.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", d.to)
			if err != nil {
				near.Close()
				continue
			}
			context.AfterFunc(ctx, func() { near.Close(); far.Close() })
			carrying.Go(func() { _, _ = io.Copy(far, near); far.Close() })
			carrying.Go(func() { d.answer(near, far); near.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); stop(); carrying.Wait() })
	return d
}

// answer forwards answers until one is held back: then the connection breaks.
func (d *deaf) answer(near, far net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := far.Read(buffer)
		if err != nil || d.silent.Load() {
			return
		}
		if _, err := near.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func TestStepWithALostAnswerIsDoneOnce(t *testing.T) {
	t.Parallel()
	proxy := newDeaf(t, strings.TrimPrefix(server.URL(), "redis://"))
	prefix := fmt.Sprintf("/test%d", prefixes.Add(1))
	o, lost := counted()
	s := open(t, "redis://"+proxy.Addr().String()+prefix, o)
	claims := putWhile(t, []*Store{s, s}, func() {
		for range 10 {
			proxy.silent.Store(true)
			if err := tryPut(t.Context(), s, "w0-0"); err == nil { // it exists, and reading shows it
				t.Error("an answer came through")
			}
			proxy.silent.Store(false)
			eventually(t, "the server answers", func() bool { _, err := s.Now(t.Context()); return err == nil })
		}
	})
	expectJobs(t, open(t, server.URL()+prefix, Options{}), claims)
	expectLost(t, lost, 0)
}

func TestPausingServerGetsNothingTwice(t *testing.T) {
	t.Parallel()
	lone := servers.StartRedis(t)
	o, lost := counted()
	s := open(t, lone.URL(), o)
	claims := putWhile(t, []*Store{s}, func() { do(t, lone, "client", "pause", "1500") })
	expectJobs(t, s, claims)
	expectLost(t, lost, 0)
}

func TestAFullServerTakesNoMoreJobs(t *testing.T) {
	t.Parallel()
	lone := servers.StartRedis(t, "--save", "")
	put(t, open(t, lone.URL(), Options{}), "a")
	do(t, lone, "setrange", "filler", "30000000", "x") // makes buffers small in comparison
	used := func() int {
		for line := range strings.Lines(do(t, lone, "info", "memory")) {
			if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
				n, err := strconv.Atoi(strings.TrimSpace(text))
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		t.Fatal("no used_memory")
		return 0
	}
	do(t, lone, "config", "set", "maxmemory", strconv.Itoa(used()*21/20))
	s := open(t, lone.URL(), Options{})
	eventually(t, "jobs are refused", func() bool { return errors.Is(tryPut(t.Context(), s, "b"), store.ErrNoSpace) })
	a, err := store.JobNamed(t.Context(), s, "default", "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteJob(t.Context(), store.DeleteJob{UID: a.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}); err != nil {
		t.Errorf("a job is not deleted although there is some room: %v", err)
	}
	do(t, lone, "config", "set", "maxmemory", strconv.Itoa(used()/2))
	if err := tryPut(t.Context(), s, "b"); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("got %v, want %v", err, store.ErrNoSpace)
	}
	do(t, lone, "config", "set", "maxmemory", "0")
	eventually(t, "jobs are taken again", func() bool { return tryPut(t.Context(), s, "b") == nil })
}

func TestRefusalsOfTheServerAreReported(t *testing.T) {
	t.Parallel()
	lone := servers.StartRedis(t)
	s := open(t, lone.URL(), Options{})
	do(t, lone, "config", "set", "min-replicas-to-write", "1")
	if err := tryPut(t.Context(), s, "a"); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("without its replica: got %v, want %v", err, store.ErrReadOnly)
	}
	about, err := Check(t.Context(), lone.URL())
	if err != nil || about.Least != 1 || !about.Durable() || !strings.Contains(about.String(), "a crash loses nothing") {
		t.Errorf("got %s, %v", about, err)
	}
	do(t, lone, "config", "set", "min-replicas-to-write", "0")
	do(t, lone, "acl", "setuser", "few", "on", ">few", "~{belfry}:*", "+@read", "+@write", "+@connection", "+eval", "+evalsha", "+info", "+time", "+wait")
	few := strings.Replace(lone.URL(), "//", "//few:few@", 1)
	put(t, open(t, few, Options{}), "b")
	if about, err := Check(t.Context(), few); err != nil || !strings.Contains(about.String(), "CONFIG is forbidden") {
		t.Errorf("got %s, %v", about, err)
	}
	do(t, lone, "config", "set", "appendfsync", "everysec")
	if about, err := Check(t.Context(), lone.URL()); err != nil || about.Durable() || !strings.Contains(about.String(), "may lose the last 2 s") {
		t.Errorf("got %s, %v", about, err)
	}
	do(t, lone, "config", "set", "maxmemory-policy", "allkeys-lru")
	if _, err := Open(t.Context(), lone.URL(), Options{}); err == nil || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("a server that evicts: got %v", err)
	}
	if _, err := Open(t.Context(), "redis://127.0.0.1:1", Options{}); !errors.Is(err, store.ErrAway) {
		t.Errorf("no server: got %v", err)
	}
}

func TestAwaitedReplicasHaveEachStep(t *testing.T) {
	t.Parallel()
	_, replica, address := pair(t)
	s := open(t, address+"/belfry?wait=1", Options{KeepDefaults: true}) // the defaults would be written once
	for i := range 10 {
		put(t, s, fmt.Sprint("a", i))
		if tail := do(t, replica, "hget", "{belfry}:meta", "tail"); tail == "" {
			t.Fatal("the replica has nothing")
		}
	}
	do(t, replica, "replicaof", "127.0.0.1", "1")
	if err := tryPut(t.Context(), s, "b"); !errors.Is(err, store.ErrAway) {
		t.Errorf("got %v, want %v", err, store.ErrAway)
	}
}

func TestTheMasterIsFoundBySentinels(t *testing.T) {
	t.Parallel()
	all, err := servers.NewRedisSentinel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := all.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, replica := range all.Servers[1:] {
		eventually(t, "the replicas follow", func() bool { return strings.Contains(do(t, replica, "info", "replication"), "master_link_status:up") })
	}
	o, lost := counted()
	o.KeepDefaults = true
	s := open(t, "redis://"+strings.Join(all.Addresses(), ",")+"/belfry?sentinel="+servers.RedisMaster+"&wait=1", o)
	claims := putWhile(t, []*Store{s}, func() {
		first, err := all.Master()
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another server is the master", func() bool { master, err := all.Master(); return err == nil && master != first })
	})
	expectJobs(t, s, claims)
	expectLost(t, lost, 0)
}

func TestAClusterKeepsAStoreThroughAFailover(t *testing.T) {
	t.Parallel()
	cluster, err := servers.NewRedisCluster(1, "--cluster-node-timeout", "15000") // a stall is no death
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	o, lost := counted()
	address := "redis://" + strings.Join(cluster.Addresses(), ",")
	s := open(t, address, o)
	if about, err := Check(t.Context(), address); err != nil || about.mode != "cluster" || about.Sync != "always" {
		t.Errorf("got %+v, %v", about, err)
	}
	claims := putWhile(t, []*Store{s, open(t, address, o)}, func() {
		// A master hands over once its replica has everything, and gives up after 5 s.
		for _, r := range cluster.Nodes[3:] {
			eventually(t, "a replica is the master", func() bool {
				_, _ = r.Do("cluster", "failover")
				return strings.Contains(do(t, r, "info", "replication"), "role:master")
			})
		}
	})
	expectJobs(t, s, claims)
	expectLost(t, lost, 0)
}

func TestConnectionsWithTLSAndAPassword(t *testing.T) {
	t.Parallel()
	r, authority, err := servers.NewRedisTLS("p@ss")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	host := fmt.Sprintf("127.0.0.1:%d", r.Port)
	put(t, open(t, "rediss://default:p%40ss@"+host+"/belfry?ca="+authority, Options{}), "a")
	for address, want := range map[string]string{
		"rediss://default:p%40ss@" + host:                       "unknown authority",
		"rediss://default:wrong@" + host + "/x?ca=" + authority: "WRONGPASS",
		"rediss://" + host + "/belfry?ca=" + authority:          "NOAUTH",
		"redis://default:p%40ss@" + host + "/belfry?tls=false":  store.ErrAway.Error(),
	} {
		if _, err := Open(t.Context(), address, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
}
