package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
)

// values is a body with n members of an object in a field.
func values(field string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{%q: {`, field)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"p%d":"v"`, i)
	}
	return b.String() + "}}"
}

func TestAListOfMistakesEndsAtAHundredWithACount(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "run": {"shell": "true"}}`)
	job := `{"name": "a", "run": {"shell": "true"}`
	for i := range 250 {
		job += fmt.Sprintf(`, "x%d": 1`, i)
	}
	job += "}"
	var labels []string
	for i := range 150 {
		labels = append(labels, fmt.Sprintf("state=x%d", i))
	}
	for name, r := range map[string]struct {
		method, path, body string
		mistakes           int
	}{
		"parameters of a run":  {"POST", "/api/v1/jobs/default/a/run", values("params", 700), 700},
		"fields of a job":      {"POST", "/api/v1/jobs", job, 250},
		"several documents":    {"POST", "/api/v1/jobs:apply", `{"documents": [` + job + `, ` + strings.Replace(job, `"a"`, `"b"`, 1) + `]}`, 500},
		"values of parameters": {"GET", "/api/v1/runs?" + strings.Join(labels, "&"), "", 150},
	} {
		p := s.refused(client.TypeInvalid, 422, r.method, r.path, r.body)
		if len(p.Errors) != 100 || p.MoreErrors != r.mistakes-100 {
			t.Errorf("%s: %d mistakes are listed and %d counted, want 100 and %d", name, len(p.Errors), p.MoreErrors, r.mistakes-100)
		}
	}
}

func TestEachRouteHasItsOwnLimitOfABody(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "run": {"shell": "true"}}`)
	long := strings.Repeat("x", 20<<10)
	for _, r := range []struct{ method, path, body, says string }{
		{"POST", "/jobs/default/a/pause", `{"reason": "` + long + `"}`, "at most 16384 are allowed"},
		{"POST", "/jobs/default/a/run", values("params", 2000), "2001 values, and at most 1000"},
		{"POST", "/jobs/default/a/run", values("params", 900_000), "at most 2097152 are allowed"},
		{"POST", "/jobs", values("labels", 60_000), "at most 50000"},
		{"PUT", "/jobs/default/a", values("labels", 60_000), "at most 50000"},
		{"POST", "/jobs:apply", `{"documents": [` + strings.Repeat("0,", 1_000_000) + `0]}`, "at most 1000000"},
	} {
		p := s.refused(client.TypeTooLarge, 413, r.method, "/api/v1"+r.path, r.body, "If-Match", "*")
		if !strings.Contains(p.Detail, r.says) {
			t.Errorf("%s %s: %q does not say %q", r.method, r.path, p.Detail, r.says)
		}
	}
	// Brackets and commas in texts are no values.
	ok[client.Change](s, "POST", "/api/v1/jobs/default/a/pause", `{"reason": "`+strings.Repeat(`,[{\"`, 200)+`"}`)
}

// A request that was a tenth of a second's work for its sender must not be a minute's work
// for the server.
func TestAHugeRequestIsRefusedCheaply(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "run": {"shell": "true"}}`)
	body := values("params", 900_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := s.call("POST", "/api/v1/jobs/default/a/run", body)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 || w.Body.Len() > 16<<10 {
		t.Errorf("%d bytes of answer took %d MiB", w.Body.Len(), took>>20)
	}
}

// slowBody is a body whose end does not come until the test lets it.
type slowBody struct{ end chan struct{} }

func (b slowBody) Read([]byte) (int, error) {
	<-b.end
	return 0, http.ErrBodyReadAfterClose
}

func (b slowBody) Close() error { return nil }

func TestLargeBodiesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		end := make(chan struct{})
		send := func(path string, size int64) *httptest.ResponseRecorder {
			r := httptest.NewRequest("POST", "/api/v1"+path, slowBody{end})
			r.ContentLength, r.Host = size, "127.0.0.1:8420"
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			return w
		}
		for range 2 {
			go send("/jobs:apply", 16<<20)
		}
		synctest.Wait()
		began := time.Now()
		w := send("/jobs:apply", 100<<10)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("the third large request has the status %d: %s", w.Code, w.Body)
		}
		if waited := time.Since(began); waited != 10*time.Second {
			t.Errorf("it waited for %s", waited)
		}
		// Small requests need no room.
		ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "run": {"shell": "true"}}`)
		close(end)
		synctest.Wait()
		ok[client.Applied](s, "POST", "/api/v1/jobs:apply", `{"documents": [`+strings.Repeat(" ", 100<<10)+`]}`)
	})
}

func TestABodyOfUnknownLengthHasTheSameLimit(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "run": {"shell": "true"}}`)
	for size, want := range map[int]int{1 << 10: http.StatusOK, 20 << 10: http.StatusRequestEntityTooLarge} {
		r := httptest.NewRequest("POST", "/api/v1/jobs/default/a/pause", strings.NewReader(`{}`+strings.Repeat(" ", size)))
		r.ContentLength, r.Host = -1, "127.0.0.1:8420"
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		if w := s.answer(r); w.Code != want {
			t.Errorf("%d bytes have the status %d, want %d: %s", size, w.Code, want, w.Body)
		}
	}
}

func TestTheLimitsAreInTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, limit := range httpapi.Limits() {
		if row := "| " + name + " | " + limit.InWords() + " |\n"; !strings.Contains(string(text), row) {
			t.Errorf("docs/api.md has no row %s", row)
		}
	}
}
