package web_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestAFlowIsAnsweredOnItsPage(t *testing.T) {
	w := newWorld(t)
	w.fill()
	ann, vera := w.login("ann"), w.login("vera")
	path := "/runs/" + w.flow.String()
	shows := func(b *browser, path string, texts ...string) {
		t.Helper()
		body := b.ask("GET", path, nil).Body.String()
		for _, text := range texts {
			if !strings.Contains(body, text) {
				t.Errorf("%s does not show %q", path, text)
			}
		}
	}
	shows(ann, "/", "step ask waits for a person: publish?")
	shows(ann, "/flows", "nightly", "0 of 6 steps")
	shows(ann, path, `<a href="/flows?namespace=data">data</a>`, `aria-current="page">This run</a>`, `<a href="/jobs/data/nightly/graph">Graph</a>`, `data-graph tabindex="0"`)
	shows(ann, "/jobs/data/nightly/graph", "shell true, for each item", "icons.svg#clock", "icons.svg#user", "icons.svg#bell", "icons.svg#term", "icons.svg#code", `<div class="seg needs-script"`)
	shows(ann, "/jobs/data/nightly/graph", "for each item", "after extract, ask", "approval: publish?")
	shows(ann, path, "running, 0 of 6 steps done", "waits for extract, ask", "0 of 2 items have ended", "waits for signal open", path+"/steps/ask/answer")
	shows(ann, path+"?step=ready", "Send signal open")
	if body := vera.ask("GET", path, nil).Body.String(); strings.Contains(body, "/answer") {
		t.Error("a viewer may answer")
	}
	if answer := vera.send(path+"/steps/ask/answer", "answer", "approve"); answer.Code != http.StatusForbidden {
		t.Errorf("the answer of a viewer is answered with %d", answer.Code)
	}
	if answer := ann.send(path+"/steps/ask/answer", "answer", "perhaps"); answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("an answer that is none is answered with %d", answer.Code)
	}
	if answer := ann.send(path+"/steps/ask/answer", "answer", "reject", "note", "too few rows"); answer.Code != http.StatusSeeOther {
		t.Errorf("a rejection is answered with %d: %.300s", answer.Code, answer.Body)
	}
	shows(ann, path, "too few rows", "1 of 6 steps")
	if answer := ann.send(path+"/signal", "signal", "open", "data", "{"); answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("a signal that is not JSON is answered with %d", answer.Code)
	}
	if answer := ann.send(path+"/signal", "signal", "open", "data", `{"rows":12}`); answer.Code != http.StatusSeeOther {
		t.Errorf("a signal is answered with %d: %.300s", answer.Code, answer.Body)
	}
	shows(ann, path+"?step=ready", "{&#34;rows&#34;:12}")
	if answer := ann.send(path+"/retry", "from", "ask"); answer.Code != http.StatusConflict {
		t.Errorf("a flow that has not ended is run again: %d", answer.Code)
	}
	if answer := ann.send("/runs/"+w.flow.String()+"/cancel", "reason", "enough"); answer.Code != http.StatusSeeOther {
		t.Errorf("the end is answered with %d", answer.Code)
	}
	if answer := ann.send("/runs/"+w.flow.String()+"/cancel", "reason", "at once"); answer.Code != http.StatusSeeOther {
		t.Errorf("the second end is answered with %d", answer.Code)
	}
	shows(ann, path+"?step=ready", "From ready", "Take ready as succeeded")
	again := ann.send(path+"/retry", "from", "extract", "from", "ask")
	if again.Code != http.StatusSeeOther {
		t.Fatalf("running again from a step is answered with %d: %s", again.Code, again.Body)
	}
	shows(ann, again.Header().Get("Location"), "Runs again")
	if answer := ann.ask("GET", "/jobs/shop/price-import/graph", nil); answer.Code != http.StatusNotFound {
		t.Errorf("the graph of a job that is no flow is answered with %d", answer.Code)
	}
}
