package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
)

// documents are two versions of a document of each kind, by its path.
var documents = map[string][2]string{
	"jobs/shop/a":      {`{"namespace": "shop", "name": "a", "run": "true"}`, `{"namespace": "shop", "name": "a", "run": "false"}`},
	"calendars/shop/b": {`{"kind": "calendar", "namespace": "shop", "name": "b", "calendar": {"include": ["2026-12-25"]}}`, `{"kind": "calendar", "namespace": "shop", "name": "b", "calendar": {"include": ["2026-12-26"]}}`},
	"hooks/shop/h":     {`{"kind": "hook", "namespace": "shop", "name": "h", "job": "a", "from": "url", "secret": "s"}`, `{"kind": "hook", "namespace": "shop", "name": "h", "job": "b", "from": "url", "secret": "s"}`},
	"windows/shop/w":   {`{"kind": "window", "namespace": "shop", "name": "w", "schedule": "@daily", "for": "1h"}`, `{"kind": "window", "namespace": "shop", "name": "w", "schedule": "@daily", "for": "2h"}`},
	"pools/shop/c":     {`{"kind": "pool", "namespace": "shop", "name": "c", "pool": {"size": 1}}`, `{"kind": "pool", "namespace": "shop", "name": "c", "pool": {"size": 2}}`},
	"channels/shop/d": {
		`{"kind": "channel", "namespace": "shop", "name": "d", "rules": {"events": "failing"}, "to": {"slack": {"url": {"file": "x"}}}}`,
		`{"kind": "channel", "namespace": "shop", "name": "d", "rules": {"events": "failed"}, "to": {"slack": {"url": {"file": "x"}}}}`,
	},
	"executors/shop/e": {`{"kind": "executors", "namespace": "shop", "name": "e", "addresses": "http://10.0.0.1:9999"}`, `{"kind": "executors", "namespace": "shop", "name": "e", "addresses": "http://10.0.0.2:9999"}`},
}

// setSecrets sets the secret of the hooks among the documents.
func (s *server) setSecrets() {
	s.t.Helper()
	for _, namespace := range []string{"default", "shop", "web"} {
		ok[any](s, "PUT", "/api/v1/secrets/"+namespace+"/s", `{"value": "a secret"}`)
	}
}

func TestAnyVersionIsChangedAndNoneIsCreated(t *testing.T) {
	s := newServer(t)
	s.setSecrets()
	for path, bodies := range documents {
		path = "/api/v1/" + path
		s.refused(client.TypeNotFound, 404, "PUT", path, bodies[0], "If-Match", "*")
		s.refused(client.TypeNotFound, 404, "GET", path, "")
		s.refused(client.TypeVersionWanted, 428, "PUT", path, bodies[0])
		if w := s.call("PUT", path, bodies[0], "If-None-Match", "*"); w.Code != http.StatusCreated || w.Header().Get("ETag") != `"1"` {
			t.Errorf("created with the status %d, ETag %s: %s", w.Code, w.Header().Get("ETag"), w.Body)
		}
		if w := s.call("PUT", path, bodies[1], "If-Match", "*"); w.Code != http.StatusOK || w.Header().Get("ETag") != `"2"` {
			t.Errorf("replaced with the status %d, ETag %s: %s", w.Code, w.Header().Get("ETag"), w.Body)
		}
		if w := s.call("DELETE", path, "", "If-Match", "*"); w.Code >= 300 {
			t.Errorf("deleted with the status %d: %s", w.Code, w.Body)
		}
		s.refused(client.TypeNotFound, 404, "DELETE", path, "", "If-Match", "*")
	}
}

func TestADocumentThatIsPutMayLeaveOutItsKindAndName(t *testing.T) {
	s := newServer(t)
	s.setSecrets()
	for path, bodies := range documents {
		var bare map[string]any
		if err := json.Unmarshal([]byte(bodies[0]), &bare); err != nil {
			t.Fatal(err)
		}
		delete(bare, "kind")
		delete(bare, "namespace")
		bare["name"] = nil
		body, err := json.Marshal(bare)
		if err != nil {
			t.Fatal(err)
		}
		if w := s.call("PUT", "/api/v1/"+path, string(body), "If-None-Match", "*"); w.Code != http.StatusCreated {
			t.Errorf("%s is put with the status %d: %s", path, w.Code, w.Body)
		}
		read := ok[map[string]any](s, "GET", "/api/v1/"+path, "")
		if name := path[len(path)-1:]; read["namespace"] != "shop" || read["name"] != name {
			t.Errorf("%s has the name %v/%v", path, read["namespace"], read["name"])
		}
		other := `{"kind": "pool", "pool": {"size": 1}}`
		if strings.HasPrefix(path, "pools/") {
			other = `{"kind": "job", "run": "true"}`
		}
		if p := s.refused(client.TypeInvalid, 422, "PUT", "/api/v1/"+path, other, "If-Match", "*"); len(p.Errors) != 1 || p.Errors[0].Path != "kind" {
			t.Errorf("%s of another kind is refused with %+v", path, p.Errors)
		}
	}
}

func TestDocumentOfAnotherNameIsRefused(t *testing.T) {
	s := newServer(t)
	s.setSecrets()
	for path, bodies := range documents {
		kind, _, _ := strings.Cut(path, "/")
		for request, want := range map[string]client.FieldError{
			path[:len(path)-1] + "z":            {Path: "name", Hint: "cannot be renamed; create another one"},
			kind + "/web/" + path[len(path)-1:]: {Path: "namespace", Hint: "write namespace: web"},
		} {
			p := s.refused(client.TypeInvalid, 422, "PUT", "/api/v1/"+request, bodies[0], "If-None-Match", "*")
			if len(p.Errors) != 1 || p.Errors[0].Path != want.Path || !strings.HasSuffix(p.Errors[0].Hint, want.Hint) {
				t.Errorf("%s is refused with %+v", request, p.Errors)
			}
		}
	}
}
