//go:build servers

package etcd

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
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
	"github.com/belfry-cron/belfry/test/servers"
)

// tryPut creates or changes a job, once.
func tryPut(ctx context.Context, s *Store, name, every string) error {
	documents, err := job.Decode("job.yaml", []byte("name: "+name+"\nschedule: {every: "+every+"}\nrun: {shell: 'true'}"))
	if err != nil {
		return err
	}
	_, err = store.PutOne(ctx, s, store.PutJob{Definition: documents[0].Job, IfVersion: store.AnyVersion, Actor: "ann"})
	return err
}

func closing(t *testing.T, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func clientOf(t *testing.T, e *servers.Etcd) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	closing(t, client)
	return client
}

func lone(t *testing.T, options ...string) *servers.Etcd {
	t.Helper()
	e, err := servers.NewEtcd(options...)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, e)
	return e
}

// gate is a proxy that can delay what a client sends and cut its connections.
type gate struct {
	net.Listener
	to string

	mu      sync.Mutex
	holding bool
	held    []func() // what sends it
	cut     bool
	near    []net.Conn
}

func newGate(t *testing.T, e *servers.Etcd) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: l, to: strings.TrimPrefix(e.URL(), "http://")}
	ctx, stop := context.WithCancel(context.Background())
	var carrying sync.WaitGroup
	carrying.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", g.to)
			g.mu.Lock()
			if err != nil || g.cut {
				near.Close()
				if err == nil {
					far.Close()
				}
				g.mu.Unlock()
				continue
			}
			g.near = append(g.near, near)
			g.mu.Unlock()
			context.AfterFunc(ctx, func() { near.Close(); far.Close() })
			carrying.Go(func() { g.carry(far, near) })
			carrying.Go(func() { _, _ = io.Copy(near, far); near.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); stop(); carrying.Wait() })
	return g
}

func (g *gate) carry(far, near net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := near.Read(buffer)
		if err != nil {
			if g.isOpen() {
				far.Close()
			}
			return
		}
		text := append([]byte(nil), buffer[:n]...)
		g.mu.Lock()
		if g.holding {
			g.held = append(g.held, func() { _, _ = far.Write(text) })
		} else {
			_, _ = far.Write(text)
		}
		g.mu.Unlock()
	}
}

func (g *gate) isOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.holding
}

func (g *gate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding = true
}

// holds returns the number of delayed messages.
func (g *gate) holds() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.held)
}

// letGo forwards the first n delayed messages.
func (g *gate) letGo(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, send := range g.held[:n] {
		send()
	}
}

// setCut cuts all connections and refuses new ones, or accepts them again.
func (g *gate) setCut(cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = cut
	for _, near := range g.near {
		near.Close()
	}
	g.near = nil
}

func (g *gate) address() string { return "etcd://" + g.Addr().String() }

// driverAt returns a driver with a store of its own.
func driverAt(t *testing.T, address string) *driver {
	t.Helper()
	a, err := parse(address)
	if err != nil {
		t.Fatal(err)
	}
	client, err := connect(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	d := newDriver(client, a)
	closing(t, d)
	return d
}

// A commit that arrives after its call has failed is done or its repetition is, and never both.
func TestACommitThatComesLateIsRefusedByItsCompares(t *testing.T) {
	t.Parallel()
	for _, repeated := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind its repetition: %t", repeated), func(t *testing.T) {
			g := newGate(t, server)
			prefix := fmt.Sprintf("/late%d", prefixes.Add(1))
			slow, direct := driverAt(t, g.address()+prefix), driverAt(t, addressOf(server)+prefix)
			key := replica.Copied + "c/job"
			first, done, err := direct.Commit(t.Context(), &replica.Txn{Compares: map[string]int64{key: 0}, Puts: []replica.Pair{{Key: key, Value: []byte("first")}}})
			if err != nil || !done {
				t.Fatal(done, err)
			}
			change := func(d *driver, ctx context.Context, value string) (bool, error) {
				_, done, err := d.Commit(ctx, &replica.Txn{Compares: map[string]int64{key: first}, Puts: []replica.Pair{{Key: key, Value: []byte(value)}}})
				return done, err
			}
			value := func() string {
				values, err := direct.Get(t.Context(), []string{key})
				if err != nil {
					t.Fatal(err)
				}
				return string(values[0])
			}
			if _, err := slow.Tail(t.Context()); err != nil { // it is connected
				t.Fatal(err)
			}
			g.hold()
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := change(slow, ctx, "late")
				failed <- err
			}()
			n := 0
			eventually(t, "the commit is held back", func() bool { n = g.holds(); return n > 0 })
			cancel()
			if err := <-failed; err == nil {
				t.Fatal("the commit was answered")
			}
			if repeated {
				if done, err := change(direct, t.Context(), "repeated"); !done || err != nil {
					t.Fatal(done, err)
				}
				g.letGo(n)
				for range 50 { // while it comes
					if got := value(); got != "repeated" {
						t.Fatalf("the value is %q", got)
					}
				}
				return
			}
			g.letGo(n)
			eventually(t, "the late commit is done", func() bool { return value() == "late" })
			if done, err := change(direct, t.Context(), "repeated"); done || err != nil {
				t.Errorf("done: %t, %v", done, err)
			}
		})
	}
}

// A watch whose events were compacted while it was cut off reads the whole state again.
func TestWatchBehindACompactionReloads(t *testing.T) {
	t.Parallel()
	own := lone(t, calm...)
	g := newGate(t, own)
	s, other := open(t, g.address(), Options{}), open(t, addressOf(own), Options{})
	put(t, s, "a", "1h")
	g.setCut(true)
	put(t, other, "a", "2h")
	put(t, other, "b", "2h")
	client := clientOf(t, own)
	r, err := client.Put(t.Context(), "elsewhere", "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), r.Header.Revision); err != nil {
		t.Fatal(err)
	}
	hints := s.Hints(t.Context())
	g.setCut(false)
	eventually(t, "the changes are seen", func() bool {
		a, err := store.JobNamed(t.Context(), s, "default", "a")
		return err == nil && a.Definition.Version == 2
	})
	if b, err := store.JobNamed(t.Context(), s, "default", "b"); err != nil || b.Definition.Version != 1 {
		t.Errorf("b is %v, %v", b, err)
	}
	eventually(t, "planners read again", func() bool {
		select {
		case hint := <-hints:
			return hint&store.HintLost != 0
		default:
			return false
		}
	})
}

// Without two of three members nothing is acknowledged; after their return nothing is missing.
func TestWithoutAQuorumNothingIsAcknowledged(t *testing.T) {
	t.Parallel()
	members, err := servers.NewEtcdCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		closing(t, m)
	}
	s := open(t, addressOf(members...), Options{})
	put(t, s, "a", "1h")
	for _, m := range members[1:] {
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if err := tryPut(t.Context(), s, "b", "1h"); !errors.Is(err, store.ErrAway) {
		t.Errorf("a job is put: %v, want %v", err, store.ErrAway)
	}
	// Reads fail too: their answers might be stale.
	if _, err := store.JobNamed(t.Context(), s, "default", "a"); !errors.Is(err, store.ErrAway) {
		t.Errorf("a job is read: %v, want %v", err, store.ErrAway)
	}
	if took := time.Since(began); took > 10*callMax {
		t.Errorf("the calls took %v", took)
	}
	for _, m := range members[1:] {
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "b", "1h")
	for _, name := range []string{"a", "b"} {
		if j, err := store.JobNamed(t.Context(), s, "default", name); err != nil || j.Definition.Version != 1 {
			t.Errorf("%s is %v, %v", name, j, err)
		}
	}
}

// As the database fills up, first runs and jobs are refused, and what makes room is taken; at
// the quota etcd refuses everything until it was defragmented and its alarm disarmed.
func TestAFullDatabaseTakesNoMoreJobs(t *testing.T) {
	t.Parallel()
	own := lone(t, append(slices.Clone(calm), "--quota-backend-bytes=268435456", "--unsafe-no-fsync")...)
	s := open(t, addressOf(own)+"/belfry?compact=off", Options{})
	put(t, s, "a", "1h")
	put(t, s, "c", "1h")
	client := clientOf(t, own)
	// fill puts blocks up to n megabytes.
	const blocks = 16 // of a megabyte
	block, n := strings.Repeat("x", 1<<20/blocks), 0
	fill := func(to int) error {
		for ; n < blocks*to; n++ {
			if _, err := client.Put(t.Context(), fmt.Sprint("filler", n), block); err != nil {
				return err
			}
		}
		return nil
	}
	about, err := Check(t.Context(), addressOf(own))
	if err != nil {
		t.Fatal(err)
	}
	if about.Quota > 0 { // servers before 3.6 do not report it
		for to := 180; !isFull(about.Used, about.Size, about.Quota); to += 2 {
			if err := fill(to); err != nil {
				t.Fatal(err)
			}
			if about, err = Check(t.Context(), addressOf(own)); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "jobs are refused", func() bool { return errors.Is(tryPut(t.Context(), s, "b", "1h"), store.ErrNoSpace) })
		about, err := Check(t.Context(), addressOf(own))
		if err != nil || !about.NearlyFull() || about.Full {
			t.Errorf("got %+v, %v", about, err)
		}
		a, err := store.JobNamed(t.Context(), s, "default", "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteJob(t.Context(), store.DeleteJob{UID: a.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}); err != nil {
			t.Errorf("a job is not deleted although there is some room: %v", err)
		}
	}
	if err := fill(400); err == nil {
		t.Fatal("the quota is not reached")
	}
	c, err := store.JobNamed(t.Context(), s, "default", "c")
	if err != nil {
		t.Fatalf("a full database is not read: %v", err)
	}
	if err := s.DeleteJob(t.Context(), store.DeleteJob{UID: c.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("got %v, want %v", err, store.ErrNoSpace)
	}
	if about, err = Check(t.Context(), addressOf(own)); err != nil || !about.Full {
		t.Errorf("got %+v, %v", about, err)
	}
	r, err := client.Delete(t.Context(), "filler", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Defragment(t.Context(), own.URL()); err != nil {
		t.Fatal(err)
	}
	if err := tryPut(t.Context(), s, "b", "1h"); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("the alarm went by itself: got %v, want %v", err, store.ErrNoSpace)
	}
	if _, err := client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "jobs are taken again", func() bool { return tryPut(t.Context(), s, "b", "1h") == nil })
}

// A cluster that was restored from an older snapshot has forgotten what it acknowledged since: that
// is reported, not awaited as a future state.
func TestARestoredSnapshotIsReported(t *testing.T) {
	t.Parallel()
	own := lone(t)
	var lost atomic.Int64
	opened := Options{Lost: func(steps int64) { lost.Add(steps) }}
	s := open(t, addressOf(own), opened)
	put(t, s, "kept", "1h")
	data, copied := filepath.Join(own.Dir, "data"), filepath.Join(own.Dir, "copied")
	if err := errors.Join(own.Stop(), os.CopyFS(copied, os.DirFS(data)), own.Start()); err != nil {
		t.Fatal(err)
	}
	const gone = 5
	for i := range gone {
		put(t, s, fmt.Sprint("gone", i), "1h")
	}
	hints := s.Hints(t.Context())
	if err := errors.Join(own.Kill(), os.RemoveAll(data), os.Rename(copied, data), own.Start()); err != nil {
		t.Fatal(err)
	}
	put(t, s, "later", "1h")
	list, _, err := s.ListJobs(t.Context(), store.JobQuery{Limit: 100})
	if err != nil || len(list) != 2 {
		t.Errorf("there are %d jobs, want 2; %v", len(list), err)
	}
	eventually(t, "the loss is reported", func() bool { return lost.Load() > 0 })
	if got := lost.Load(); got < gone {
		t.Errorf("%d steps are reported as lost, want %d or more", got, gone)
	}
	eventually(t, "HintLost is sent", func() bool {
		select {
		case hint := <-hints:
			return hint&store.HintLost != 0
		default:
			return false
		}
	})
}
