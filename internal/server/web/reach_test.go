package web_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// reach puts in executors, and a channel whose service is away.
func (w *world) reach() {
	w.t.Helper()
	ctx := w.t.Context()
	w.must(w.store.Register(ctx, []store.Registration{
		{Kind: store.ExecutorsOfXXL, Group: "billing", Address: "http://10.0.0.7:9999/"},
		{Kind: store.ExecutorsOfXXL, Group: "billing", Address: "http://10.0.0.8:9999/", Generation: "D"},
	}))
	list, err := job.Decode("", []byte("kind: channel\nnamespace: ops\nname: hook\nto: {webhook: {url: 'https://example.org/hook', secret: {file: key}}}\nrules: [{events: [failed, recovered]}]\n"))
	w.must(err)
	put, err := w.store.PutDocument(ctx, list[0], 0, "wei")
	w.must(err)
	c := put.Channel
	group := notification.NewGroup(c, &notification.Event{Kind: job.NoticeFailed, Namespace: "shop", Job: "price-import"})
	group.Add(c, notification.Event{Kind: job.NoticeFailed, Namespace: "shop", Job: "price-import", Run: w.failed, Time: w.now, Text: job.Text("exit status 1"), Lasting: true}, w.now)
	for name, note := range map[string]any{
		notification.GroupNotes + c.UID.String() + "/" + group.ID: group,
		notification.ChannelNotes + c.UID.String():                notification.ChannelState{Channel: "ops/hook", UID: c.UID, Sent: 12, Error: job.Text("the service answered 503"), FailedAt: w.now, SentAt: w.now.Add(-time.Hour)},
	} {
		text, err := json.Marshal(note)
		w.must(err)
		_, err = w.store.PutNote(ctx, store.Note{Name: name, Text: text})
		w.must(err)
	}
}

// shows tells which texts a page lacks.
func (b *browser) shows(path string, texts ...string) {
	b.t.Helper()
	body := b.ask("GET", path, nil).Body.String()
	for _, text := range texts {
		if !strings.Contains(body, text) {
			b.t.Errorf("%s does not show %q", path, text)
		}
	}
}

func TestExecutorsAreListedByTheirGroup(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("vera")
	b.shows("/executors", "2 executors; groups: 1", "http://10.0.0.7:9999/", "XXL-JOB 3.5", "online", "no job names it")
	w.now = w.now.Add(time.Minute)
	b.shows("/executors", "missed a beat")
}

func TestGroupsThatJobsNameAndThatHaveNoExecutorAreShown(t *testing.T) {
	w := newWorld(t)
	w.fill()
	for name, group := range map[string]string{"a": "<orders>", "b": "<orders>", "c": "billing"} {
		_, err := store.PutOne(t.Context(), w.store, store.PutJob{Actor: "wei", Definition: &job.Job{
			Namespace: "shop", Name: "at-" + name, Run: job.RunSpec{XXL: &job.XXL{Group: group, Handler: "h"}},
		}})
		w.must(err)
	}
	b := w.login("vera")
	b.shows("/executors", "2 executors; groups: 1, running: 0. 1 group that jobs name has none.", "&lt;orders&gt;", "2 jobs", "1 job<", "so its runs fail")
	if strings.Contains(b.ask("GET", "/executors", nil).Body.String(), "no job names it") {
		t.Error("a group that a job names counts as one that none names")
	}
}

func TestNotificationsAreAcknowledgedAndChannelsEdited(t *testing.T) {
	w := newWorld(t)
	w.fill()
	ann, vera := w.login("ann"), w.login("vera")
	ann.shows("/notifications", "1 channel cannot deliver.", "the service answered 503", "exit status 1", "/runs/"+w.failed.String(), `/channels/ops/hook/test`)
	if body := vera.ask("GET", "/notifications", nil).Body.String(); strings.Contains(body, "/test") || strings.Contains(body, "/ack") {
		t.Error("a viewer is offered to test and acknowledge")
	}
	path := ""
	for part := range strings.SplitSeq(ann.ask("GET", "/notifications", nil).Body.String(), `action="`) {
		if address, _, _ := strings.Cut(part, `"`); strings.HasSuffix(address, "/ack") {
			path = address
		}
	}
	if answer := vera.send(path); path == "" || answer.Code != http.StatusForbidden {
		t.Fatalf("a viewer acknowledges %s: %d", path, answer.Code)
	}
	if answer := ann.send(path); answer.Code != http.StatusSeeOther {
		t.Errorf("the acknowledgement is answered with %d", answer.Code)
	}
	ann.shows("/notifications", "acknowledged by ann")
	if answer := ann.send("/channels/ops/hook/test"); answer.Code != http.StatusConflict {
		t.Errorf("a server that sends nothing answers a test with %d", answer.Code)
	}

	const text = "kind: channel\nnamespace: ops\nname: hook\nto: {webhook: {url: 'https://example.org/other', secret: {file: key}}}\nrules: [{events: [missed]}]\n"
	if answer := ann.send("/channels/ops/hook", "document", strings.Replace(text, "missed", "mised", 1), "action", "save"); answer.Code != http.StatusUnprocessableEntity || !strings.Contains(answer.Body.String(), "missed") {
		t.Errorf("a mistake is answered with %d", answer.Code)
	}
	if answer := ann.send("/channels/ops/hook", "document", "name: a\nrun: {shell: 'true'}\n", "action", "save"); answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("a job in place of a channel is answered with %d", answer.Code)
	}
	if answer := ann.send("/channels/ops/hook", "document", text, "action", "check"); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "example.org/other") {
		t.Errorf("the check is answered with %d", answer.Code)
	}
	ann.shows("/channels/ops/hook", "example.org/hook")
	if answer := ann.send("/channels/ops/hook", "document", text, "action", "save"); answer.Code != http.StatusSeeOther {
		t.Errorf("saving is answered with %d: %.500s", answer.Code, answer.Body)
	}
	ann.shows("/channels/ops/hook", "example.org/other")
	if answer := vera.send("/channels/ops/hook/delete", "confirm", "hook"); answer.Code != http.StatusForbidden {
		t.Errorf("a viewer deletes a channel: %d", answer.Code)
	}
	if answer := ann.send("/channels/ops/hook/delete", "confirm", "hook"); answer.Code != http.StatusSeeOther {
		t.Errorf("deleting is answered with %d", answer.Code)
	}
	ann.shows("/notifications", "no notification is sent")
}

// The runs that share the work of one are a group on its page.
func TestShardsAreOneGroup(t *testing.T) {
	w := newWorld(t)
	w.fill()
	ctx := t.Context()
	list, err := job.Decode("", []byte("namespace: ops\nname: split\nrun: {shell: 'true'}\nplace: {shards: 3}\n"))
	w.must(err)
	j, err := store.PutOne(ctx, w.store, store.PutJob{Definition: list[0].Job, Actor: "wei"})
	w.must(err)
	var items []store.TriggerItem
	for i := range 3 {
		items = append(items, store.TriggerItem{ID: w.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: "together", Shard: i, Shards: 3, Session: w.node, Actor: "ann"})
	}
	outcomes, err := w.store.Trigger(ctx, items)
	w.must(err)
	attempt := store.Attempt{Run: outcomes[0].Run, Number: 1, Token: w.id()}
	_, err = w.store.Claim(ctx, w.node, []store.Attempt{attempt})
	w.must(err)
	_, err = w.store.Finish(ctx, w.node, []store.Result{{Attempt: attempt, Started: w.now, Ended: w.now, Outcome: job.OutcomeSucceeded}})
	w.must(err)
	w.now = w.now.Add(time.Second)
	b := w.login("vera")
	for _, m := range outcomes {
		b.shows("/runs/"+m.Run.String(), `id="shards"`, "1 of 3 have ended", "/runs/"+outcomes[0].Run.String(), "/runs/"+outcomes[1].Run.String(), "/runs/"+outcomes[2].Run.String())
	}
}
