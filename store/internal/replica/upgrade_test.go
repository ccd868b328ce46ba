package replica_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
	"github.com/belfry-cron/belfry/store/storetest"
)

// fixture has the keys of a store whose runs are in all formats. A release line that changes a
// format adds a file: UPDATE=1 writes it.
const fixture = "testdata/format3.txt"

// Data of an earlier version in etcd or Redis is read: jobs, runs in cells and apart, history,
// output and audit.
func TestAStoreOfFormat3IsRead(t *testing.T) {
	if os.Getenv("UPDATE") == "1" {
		if err := os.WriteFile(fixture, []byte(filled(t)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	d, txn := driver{Shelf: newShelf()}, replica.Txn{}
	for line := range strings.Lines(string(text)) {
		quoted, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		key, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatal(err)
		}
		data, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			t.Fatal(err)
		}
		txn.Puts = append(txn.Puts, replica.Pair{Key: key, Value: data})
	}
	if _, _, err := d.Commit(t.Context(), &txn); err != nil {
		t.Fatal(err)
	}
	storetest.Upgraded(t, openOn(t, d, storetest.Options{Now: func() time.Time { return storetest.UpgradedAt }}))
}

// filled returns the keys of a store with the data that storetest.Upgraded checks.
func filled(t *testing.T) string {
	ctx, now := t.Context(), storetest.UpgradedAt.Add(-5*time.Second)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kept := newShelf()
	s := openWith(t, driver{Shelf: kept}, storetest.Options{Now: func() time.Time { return now }}, 1)
	session, err := s.Join(ctx, store.Session{ID: job.ID{1}, Node: "a", Machine: "boot-1/2049/17", DataDir: "/data", Roles: []string{store.RoleWorker}, Capacity: 10})
	must(err)
	docs, err := job.Decode("test.yaml", []byte(`
{name: daily, labels: {team: a}, schedule: {every: 1m}, policy: {overlap: allow}, run: {shell: 'true'}}
---
{name: paused, schedule: {every: 1m}, run: {shell: 'true'}}
`))
	must(err)
	daily, err := store.PutOne(ctx, s, store.PutJob{Definition: docs[0].Job, Actor: "ann"})
	must(err)
	docs[1].Job.Paused = true
	_, err = store.PutOne(ctx, s, store.PutJob{Definition: docs[1].Job, Actor: "ann", Pause: store.Pause{By: "ann", Reason: job.Text("holiday")}})
	must(err)
	at := now.Add(3 * time.Second)
	item := store.PlanItem{Job: daily.Definition.UID, Epoch: daily.Definition.Epoch, From: daily.Cursor, To: at}
	for i := range 3 {
		item.Runs = append(item.Runs, store.NewRun{ID: job.ID{7, byte(i)}, Session: session.ID, Scheduled: at.Add(-time.Duration(2-i) * time.Second), Due: at.Add(-time.Duration(2-i) * time.Second)})
	}
	planned, _, err := s.Plan(ctx, session.ID, []store.PlanItem{item})
	if must(err); planned[0] != store.Planned {
		t.Fatalf("plan: %v", planned)
	}
	now = at
	attempts := []store.Attempt{{Job: daily.Definition.UID, Run: job.ID{7, 0}, Number: 1, Token: job.ID{8, 0}}, {Job: daily.Definition.UID, Run: job.ID{7, 1}, Number: 1, Token: job.ID{8, 1}}}
	claimed, err := s.Claim(ctx, session.ID, attempts)
	if must(err); claimed[0].Verdict != store.Started || claimed[1].Verdict != store.Started {
		t.Fatalf("claim: %+v", claimed)
	}
	code := 3
	ended, err := s.Finish(ctx, session.ID, []store.Result{{
		Attempt: attempts[0], Outcome: job.OutcomeFailed, Reason: job.Text("exit status 3"), ExitCode: &code, Started: now, Ended: now, OutputBytes: 5,
		Output: []store.OutputChunk{{Run: attempts[0].Run, Attempt: 1, Bytes: 5, Time: now, Data: []byte("hello")}},
	}})
	if must(err); !ended[0].Accepted {
		t.Fatal("the result is not accepted")
	}
	pairs, err := driver{Shelf: kept}.Range(ctx, "", "\xff", 1000, false)
	must(err)
	var text strings.Builder
	for _, p := range pairs {
		fmt.Fprintf(&text, "%s %s\n", strconv.QuoteToASCII(p.Key), base64.StdEncoding.EncodeToString(p.Value))
	}
	return text.String()
}
