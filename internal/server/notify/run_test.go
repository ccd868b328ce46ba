package notify_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/server/notify"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// await gives a run a webhook of its own, as a request for the run does.
func (w *world) await(run job.ID) {
	w.Helper()
	text, err := json.Marshal(notification.Awaited{Run: run, Namespace: "default", To: job.WebhookService{URL: "https://ci.example.org"}})
	w.must(err)
	_, err = w.store.PutNote(w.Context(), store.Note{Name: notification.RunNotes + run.String(), Text: text})
	w.must(err)
}

// notes returns how many notes of notifications are left but the lease.
func (w *world) notes() int {
	w.Helper()
	list, err := w.store.Notes(w.Context(), "notify/", "", store.MaxBatch)
	w.must(err)
	n := 0
	for i := range list {
		if list[i].Name != notification.LeaseNote {
			n++
		}
	}
	return n
}

func TestTheEndOfARunIsSentOnceToItsOwnWebhook(t *testing.T) {
	inTime(t, func(w *world) {
		j := w.job("a", "")
		other, _ := w.claim(j)
		w.await(other.Run)
		a, _ := w.claim(j)
		w.await(a.Run)
		stop := w.start("a")
		w.after(time.Minute)
		w.want("while it runs", w.said(), "")

		w.setDown(&notification.Failure{Err: errors.New("no route")})
		_, err := w.store.Finish(w.Context(), w.session.ID, []store.Result{{Attempt: a, Outcome: job.OutcomeSucceeded}})
		w.must(err)
		w.after(time.Minute)
		stop() // the message survives the node
		w.setDown(nil)
		defer w.start("b")()
		w.after(5 * time.Minute)
		got := w.messages()
		if len(got) != 1 || got[0].message.Title != "default/a succeeded" || got[0].message.Severity != notification.Good ||
			got[0].message.Open || got[0].message.Lines[0].Run != a.Run || got[0].message.Lines[0].Outcome != job.OutcomeSucceeded {
			t.Fatalf("the webhook got %+v, want the success", got)
		}
		_ = w.said()

		_, err = w.store.Finish(w.Context(), w.session.ID, []store.Result{{Attempt: other, Outcome: job.OutcomeTimedOut, Reason: job.Text("too slow")}})
		w.must(err)
		w.after(10 * time.Second)
		got = w.messages()
		if len(got) != 1 || got[0].message.Title != "default/a timed out" || got[0].message.Severity != notification.Bad || len(got[0].message.Lines[0].Output) == 0 {
			t.Errorf("the webhook got %+v, want the timeout with its output", got)
		}
		w.after(time.Hour)
		if n := len(w.messages()); n != 1 || w.notes() != 0 {
			t.Errorf("after an hour there were %d messages, and %d notes are left", n, w.notes())
		}
	})
}

func TestARunThatIsNotInHistoryHasNoWebhookForEver(t *testing.T) {
	inTime(t, func(w *world) {
		w.await(newID())
		defer w.start("a")()
		w.after(30 * time.Minute)
		if w.notes() != 1 {
			t.Errorf("after half an hour %d notes are left, want 1", w.notes())
		}
		w.after(time.Hour)
		if w.notes() != 0 || len(w.messages()) != 0 {
			t.Errorf("%d notes are left, and %d messages were sent", w.notes(), len(w.messages()))
		}
	})
}

func TestAWebhookOfARunNeedsNoKey(t *testing.T) {
	headers := make(chan http.Header, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header }))
	defer receiver.Close()
	a := notification.Awaited{Run: newID(), Namespace: "default", To: job.WebhookService{URL: receiver.URL}}
	err := notify.NewSender(notify.SenderConfig{}).Send(t.Context(), a.Channel(), &notification.Message{ID: "msg_1"})
	if err != nil {
		t.Fatal(err)
	}
	header := <-headers
	if header.Get("Webhook-Id") != "msg_1" || header.Get("Webhook-Timestamp") == "" || header.Values("Webhook-Signature") != nil {
		t.Errorf("the request had the header %v", header)
	}
}
