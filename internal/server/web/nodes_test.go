package web_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// reports makes the note of a node that says how fast the store answers it.
func (w *world) reports(name string, session job.ID, p50, p99 time.Duration) {
	w.t.Helper()
	text, err := json.Marshal(map[string]any{"Node": name, "Session": session, "Seen": w.now, "P50": p50, "P99": p99})
	w.must(err)
	_, err = w.store.PutNote(w.t.Context(), store.Note{Name: "node/" + name, Text: text})
	w.must(err)
}

func TestThePageOfNodesSaysHowFarTheStoreIsAndHowLateRunsStart(t *testing.T) {
	w := newWorld(t)
	w.fill()
	ann := w.login("ann")
	said := func(texts ...string) {
		t.Helper()
		body := ann.ask("GET", "/nodes", nil).Body.String()
		for _, text := range texts {
			if !strings.Contains(body, text) {
				t.Errorf("the page has no %q", text)
			}
		}
	}
	said("1 node takes runs.", "1 run of the last hour", "No node has left within 7 days.")
	if body := newWorld(t).login("ann").ask("GET", "/nodes", nil).Body.String(); !strings.Contains(body, "no run of the last hour") {
		t.Error("a server without runs does not say that it has none")
	}

	far := w.id()
	_, err := w.store.Join(t.Context(), store.Session{ID: far, Node: "sha-1", Machine: "sha-1", Roles: []string{store.RoleWorker}, Capacity: 4, Version: "1.2", Handlers: []string{placement.Engine("Podman 5.4.2"), job.ContainerHandler, job.ClusterHandler("prod-eu")}})
	w.must(err)
	w.reports("ber-1", w.node, 1700*time.Microsecond, 6*time.Millisecond)
	w.reports("sha-1", far, 188*time.Millisecond, 300*time.Millisecond)
	w.reports("ber-3", w.id(), time.Millisecond, time.Millisecond)
	w.put("namespace: shop\nname: late\nrun: {shell: 'true'}\npolicy: {overlap: allow}\n")
	for _, wait := range []time.Duration{40 * time.Millisecond, 20 * time.Millisecond, 1500 * time.Millisecond} {
		attempt := w.runs("shop/late")
		w.now = w.now.Add(wait + time.Second)
		w.ends(attempt, time.Second, job.OutcomeSucceeded)
	}
	w.now = w.now.Add(time.Minute) // what the page has read before is not kept for so long
	_, err = w.store.Now(t.Context())
	w.must(err)
	w.must(w.store.Renew(t.Context(), w.node, store.Load{Running: 1}))
	w.must(w.store.Renew(t.Context(), far, store.Load{ClockAhead: 800 * time.Millisecond}))
	said(
		"worker · 1.2 · Podman 5.4.2 · Kubernetes prod-eu", "2 nodes share the work. None leads.", "1 of 12 slots are in use.",
		"sha-1 is far from the store.", "A call of the store usually takes 188.0 ms there and 1.7 ms on ber-1", "Its clock is 0.80 s ahead",
		"p50 1.7 ms, p99 6.0 ms to ber-1", "p50 188.0 ms, p99 300.0 ms to sha-1", "ber-3",
		"4 runs of the last hour", ">20 ms<", "1.5 s, shop/late", "<dt>Over 1 s</dt><dd class=\"\">1</dd>",
	)
	if body := w.login("vera").ask("GET", "/nodes", nil, "Accept-Language", "zh").Body.String(); !strings.Contains(body, "sha-1 离存储较远。") {
		t.Error("the note is not in Chinese")
	}
}
