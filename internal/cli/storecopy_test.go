package cli_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// A run that ended just before the last server stopped is in the feed alone: the server that is
// started with the copy has to report it.
func TestStoreCopyTakesEndsAlongThatNoServerHasNoted(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	from, to := filepath.Join(dir, "from.db"), filepath.Join(t.TempDir(), "to.db")
	s, err := sqlite.Open(ctx, from, sqlite.Options{})
	must(err)
	docs, err := job.Decode("a.yaml", []byte("kind: channel\nname: ops\nto: {slack: {url: {file: x}}}\nrules: [{events: [failed]}]\n---\nname: a\nrun: {shell: 'false'}\n"))
	must(err)
	_, err = s.PutDocument(ctx, docs[0], store.AnyVersion, "ann")
	must(err)
	must(s.PutConsumer(ctx, store.Consumer{Name: "notifications", FinalOnly: true, Outcomes: []job.Outcome{job.OutcomeFailed}}))
	j, err := store.PutOne(ctx, s, store.PutJob{Definition: docs[1].Job, Actor: "ann"})
	must(err)
	node, err := s.Join(ctx, store.Session{ID: job.ID{1}, Node: "n", Machine: "m", Roles: []string{store.RoleWorker}})
	must(err)
	a := store.Attempt{Job: j.Definition.UID, Run: job.ID{2}, Number: 1, Token: job.ID{3}}
	_, err = s.Trigger(ctx, []store.TriggerItem{{ID: a.Run, Job: a.Job, Kind: job.RunByHand, Session: node.ID, Node: "n", Actor: "ann"}})
	must(err)
	_, err = s.Claim(ctx, node.ID, []store.Attempt{a})
	must(err)
	_, err = s.PutNote(ctx, store.Note{Name: "secret/default/db", Text: []byte(`{"version": 1, "sealed": {"key": "k1"}}`)})
	must(err)
	done, err := s.Finish(ctx, node.ID, []store.Result{{Attempt: a, Outcome: job.OutcomeFailed, Reason: job.Text("exit status 1")}})
	must(err)
	must(s.Leave(ctx, node.ID))
	must(s.Close())
	if !done[0].Accepted {
		t.Fatal("the result is refused")
	}

	var out, errs bytes.Buffer
	env := cli.Env{Stdin: bytes.NewReader(nil), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
	if code := cli.Run(context.Background(), env, []string{"store", "copy", "sqlite:" + from, "sqlite:" + to}); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	key := filepath.Join(dir, "secret.key")
	if want := "the copy has the secrets, and not the key that opens them: copy " + key + " (or what secrets.key_file names) to " + filepath.Join(filepath.Dir(to), "secret.key") + "\n"; !strings.Contains(errs.String(), want) {
		t.Errorf("it says %s, want %s", errs.String(), want)
	}
	s, err = sqlite.Open(ctx, to, sqlite.Options{})
	must(err)
	defer func() { must(s.Close()) }()
	notes, err := s.Notes(ctx, "notify/group/", "", 10)
	must(err)
	if len(notes) != 1 || !bytes.Contains(notes[0].Text, []byte("exit status 1")) {
		t.Errorf("the copy has %d groups of notifications: %v", len(notes), notes)
	}
}
