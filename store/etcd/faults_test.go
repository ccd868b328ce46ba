//go:build servers

package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/test/servers"
)

// patience bounds each wait for something that must happen.
const patience = 3 * time.Minute

// put creates or changes a job, and repeats the call until its outcome is known.
func put(t *testing.T, s *Store, name, every string) *store.Job {
	t.Helper()
	documents, err := job.Decode("job.yaml", []byte("name: "+name+"\nschedule: {every: "+every+"}\nrun: {shell: 'true'}"))
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		j, err := store.PutOne(t.Context(), s, store.PutJob{Definition: documents[0].Job, IfVersion: store.AnyVersion, Actor: "ann"})
		if err == nil {
			return j
		}
		if !errors.Is(err, store.ErrAway) || time.Now().After(deadline) {
			t.Fatalf("put %s: %v", name, err)
		}
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

// Writes while members die one after another are neither lost nor done twice.
func TestMembersThatDieLoseNothing(t *testing.T) {
	members, err := servers.NewEtcdCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, m := range members {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	address := addressOf(members...)
	one, other := open(t, address, Options{}), open(t, address, Options{})
	put(t, one, "a", "1h")

	const each = 60
	var writers sync.WaitGroup
	for n, s := range []*Store{one, other} {
		writers.Go(func() {
			for i := range each {
				put(t, s, fmt.Sprintf("w%d-%d", n, i), "1h")
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for _, m := range members {
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
	}
	<-done
	for _, s := range []*Store{one, other} {
		list, _, err := s.ListJobs(t.Context(), store.JobQuery{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 2*each+1 {
			t.Errorf("%d jobs, want %d", len(list), 2*each+1)
		}
		for _, j := range list {
			if j.Definition.Version != 1 {
				t.Errorf("job %s has version %d: it was put twice", j.Definition.Name, j.Definition.Version)
			}
		}
		// The numbers of the audit have no gaps, whichever node assigned them.
		records, _, err := s.Audit(t.Context(), store.AuditQuery{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range records {
			if want := int64(len(records) - i); r.Seq != want {
				t.Fatalf("record %d of the audit has number %d, want %d", i, r.Seq, want)
			}
		}
		if len(records) != 2*each+1 {
			t.Errorf("%d records of the audit, want %d", len(records), 2*each+1)
		}
	}
}

// A copy reads the whole state again when its place in the feed was compacted.
func TestACompactedFeedIsReadAgain(t *testing.T) {
	lone, err := servers.NewEtcd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lone.Close(); err != nil {
			t.Error(err)
		}
	})
	address := addressOf(lone)
	s := open(t, address, Options{})
	put(t, s, "a", "1h")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{lone.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 3 {
		if err := lone.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := lone.Start(); err != nil {
			t.Fatal(err)
		}
		var r *clientv3.PutResponse
		eventually(t, "a key is put", func() bool { r, err = client.Put(t.Context(), "elsewhere", "x"); return err == nil })
		eventually(t, "the feed is compacted", func() bool {
			_, err := client.Compact(t.Context(), r.Header.Revision)
			return err == nil || errors.Is(err, rpctypes.ErrCompacted) // by a call whose answer was lost
		})
		before, err := s.Summary(t.Context())
		if err != nil && !errors.Is(err, store.ErrAway) {
			t.Fatal(err)
		}
		put(t, s, "a", fmt.Sprintf("%dh", 2+r.Header.Revision))
		eventually(t, "the changed job is seen", func() bool {
			now, err := s.Summary(t.Context())
			return err == nil && now != before
		})
	}
}

// Without a server each call returns in time, and work resumes when the server is back.
func TestOutageIsReportedAndCleared(t *testing.T) {
	t.Parallel()
	lone, err := servers.NewEtcd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lone.Close(); err != nil {
			t.Error(err)
		}
	})
	s := open(t, addressOf(lone), Options{})
	put(t, s, "a", "1h")
	if err := lone.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*callMax)
	defer cancel()
	if _, err := store.JobNamed(ctx, s, "default", "a"); !errors.Is(err, store.ErrAway) {
		t.Errorf("got %v, want %v", err, store.ErrAway)
	}
	if err := lone.Start(); err != nil {
		t.Fatal(err)
	}
	put(t, s, "b", "1h")
	if j, err := store.JobNamed(t.Context(), s, "default", "a"); err != nil || j.Definition.Version != 1 {
		t.Errorf("got %v, %v", j, err)
	}
}

// New defaults change only the jobs that rely on them.
func TestOtherDefaultsAreGivenToJobs(t *testing.T) {
	address := empty()
	first := open(t, address, Options{})
	documents, err := job.Decode("job.yaml", []byte("name: a\nschedule: {cron: '0 9 * * *'}\nrun: {shell: 'true'}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.PutOne(t.Context(), first, store.PutJob{Definition: documents[0].Job, IfVersion: 0, Actor: "ann"}); err != nil {
		t.Fatal(err)
	}
	timing := func(s *Store) string {
		list, _, err := s.JobsChanged(t.Context(), store.AllPartitions, 0, 10)
		if err != nil || len(list) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		return list[0].Timing
	}
	before := timing(first)
	second := open(t, address, Options{Defaults: job.Defaults{Timezone: "Asia/Tokyo"}})
	if after := timing(second); after == before {
		t.Errorf("the timing is still %s", after)
	}
}
