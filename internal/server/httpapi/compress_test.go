package httpapi_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/belfry-cron/belfry/client"
)

func TestLargeAnswersToReadsAreCompressed(t *testing.T) {
	s := newServer(t)
	s.tells()
	for i := range 20 {
		ok[client.Change](s, "POST", "/api/v1/jobs", fmt.Sprintf(`{"name": "job-%d", "description": "a job among others", "run": {"shell": "true"}}`, i))
	}
	ask := func(method, path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://127.0.0.1"+path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		return w
	}
	plain, small := ask("GET", "/api/v1/jobs"), ask("GET", "/api/v1/jobs", "Accept-Encoding", "gzip, br")
	if plain.Header().Get("Content-Encoding") != "" || small.Header().Get("Content-Encoding") != "gzip" || small.Header().Get("Vary") == "" {
		t.Fatalf("the headers are %v and %v", plain.Header(), small.Header())
	}
	if 3*small.Body.Len() > plain.Body.Len() {
		t.Errorf("%d bytes are compressed to %d", plain.Body.Len(), small.Body.Len())
	}
	z, err := gzip.NewReader(small.Body)
	if err != nil {
		t.Fatal(err)
	}
	var page client.JobPage
	if err := json.NewDecoder(z).Decode(&page); err != nil || len(page.Items) != 20 {
		t.Errorf("the compressed page has %d jobs (%v)", len(page.Items), err)
	}
	for _, path := range []string{"/api/v1/jobs?page_size=1", "/livez", "/api/v1/jobs/default/none"} {
		if w := ask("GET", path, "Accept-Encoding", "gzip"); w.Header().Get("Content-Encoding") != "" || w.Body.Len() == 0 {
			t.Errorf("%s has the headers %v", path, w.Header())
		}
	}

	// Events come one by one, and not when a block is full.
	at := httptest.NewServer(s.handler)
	t.Cleanup(at.Close)
	request, err := http.NewRequestWithContext(t.Context(), "GET", at.URL+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept-Encoding", "gzip")
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Encoding") != "" {
		t.Errorf("events are answered with %d and %v", answer.StatusCode, answer.Header)
	}
}
