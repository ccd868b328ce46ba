package httpapi_test

import (
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// handOver hands over an attempt of a new run, and returns the path of its callback.
func (w *world) handOver(number int64, secret string) (path string, run job.ID) {
	w.t.Helper()
	ctx := w.t.Context()
	j, err := store.PutOne(ctx, w.store, store.PutJob{Definition: &job.Job{Name: "called", Run: job.RunSpec{HTTP: &job.HTTP{URL: "http://a", Callback: true}}, Policy: job.Policy{Overlap: job.OverlapAllow}}, Actor: "alice"})
	if err != nil {
		w.t.Fatal(err)
	}
	n := w.node()
	outcomes, err := w.store.Trigger(ctx, []store.TriggerItem{{ID: w.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: w.id().String(), Session: n.session, Actor: "alice"}})
	if err != nil {
		w.t.Fatal(err)
	}
	a := store.Attempt{Job: j.Definition.UID, Run: outcomes[0].Run, Number: 1, Token: w.id()}
	if _, err := w.store.Claim(ctx, n.session, []store.Attempt{a}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.AppendOutput(ctx, []store.OutputChunk{{Run: a.Run, Attempt: 1, Bytes: 4, Data: []byte("sent")}}); err != nil {
		w.t.Fatal(err)
	}
	hash := auth.HashOf(secret)
	got, err := w.store.HandOver(ctx, n.session, []store.Handover{{Number: number, Attempt: a, Kind: "http", To: "POST http://a", About: hex.EncodeToString(hash[:])}})
	if err != nil || got[0] != store.Handed {
		w.t.Fatalf("hand over: %v, %v", got, err)
	}
	return "/api/v1/callbacks/" + strconv.FormatInt(number, 10), a.Run
}

func (w *world) callBack(path, secret, body string) (int, string) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	return answer.Code, answer.Body.String()
}

func TestAServiceReportsByItsCallback(t *testing.T) {
	w := newWorld(t)
	path, run := w.handOver(19, "s3cret")
	for _, c := range []struct {
		path, secret, body string
		status             int
		says               string
	}{
		{path, "", `{"state": "succeeded"}`, 401, "Bearer"},
		{path, "wrong", `{"state": "succeeded"}`, 404, "no such callback"},
		{"/api/v1/callbacks/18", "s3cret", `{"state": "succeeded"}`, 404, "no such callback"},
		{"/api/v1/callbacks/x", "s3cret", `{"state": "succeeded"}`, 422, "number"},
		{path, "s3cret", ``, 400, ""},
		{path, "s3cret", `{"state": "done"}`, 422, "state"},
		{path, "s3cret", `{"state": "failed", "reason": "` + strings.Repeat("x", 1025) + `"}`, 422, "reason"},
		{path, "s3cret", `{"state": "running"}`, 204, ""},
		{path, "s3cret", `{"state": "failed", "exit_code": 3, "output": "half done"}`, 204, ""},
		{path, "s3cret", `{"state": "failed", "exit_code": 3, "output": "half done"}`, 204, ""}, // its answer was lost
		{path, "s3cret", `{"state": "succeeded"}`, 409, "the attempt is over"},
		{path, "s3cret", `{"state": "running"}`, 409, "the attempt is over"},
	} {
		w.now = w.now.Add(time.Second)
		if status, body := w.callBack(c.path, c.secret, c.body); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s with %q: %d %s, want %d %s", c.path, c.body, status, body, c.status, c.says)
		}
	}
	records, err := w.store.AttemptsOf(t.Context(), run)
	if err != nil || len(records) != 1 || records[0].Attempt.Outcome != job.OutcomeFailed || records[0].Attempt.Reason.String() != "exit status 3" || records[0].OutputBytes != 13 {
		t.Fatalf("history: %+v, %v", records, err)
	}
	output, err := w.store.Output(t.Context(), run, 1, 0, 10)
	if err != nil || len(output) != 2 || output[1].Seq != 1 || output[1].Offset != 4 {
		t.Errorf("output: %+v, %v", output, err)
	}
	if seen, err := w.store.Handovers(t.Context(), store.HandoverQuery{Numbers: []int64{19}, Limit: store.MaxBatch}); err != nil || seen[0].Seen.IsZero() {
		t.Errorf("the sign of life: %+v, %v", seen, err)
	}
}
