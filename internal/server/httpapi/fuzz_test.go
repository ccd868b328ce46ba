package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
)

// unchanged is the world of the fuzz targets. It is made again once something in
// it has been changed, so that each input meets the same.
var unchanged struct {
	*world
	changes int64
}

// fuzz makes a request. Whatever it is, it is answered as the description says,
// never by a failure of the server, and a refusal names a mistake and changes
// nothing.
func fuzz(t *testing.T, make func(w *world) *http.Request) {
	u := &unchanged
	if u.world != nil {
		u.t = t
	}
	if u.world == nil || u.world.changes() != u.changes {
		u.world = newWorld(t)
		u.changes = u.world.changes()
	}
	answer := u.answer(make(u.world))
	if answer.Code < 400 {
		return
	}
	if answer.Code >= 500 {
		t.Errorf("the status is %d: %s", answer.Code, answer.Body)
	}
	var p client.Problem
	if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || p.Status != answer.Code {
		t.Errorf("the status is %d, and the problem %v: %s", answer.Code, err, answer.Body)
	}
	if answer.Code == http.StatusUnprocessableEntity && len(p.Errors) == 0 {
		t.Errorf("no mistake is named: %s", answer.Body)
	}
	if u.world.changes() != u.changes {
		t.Errorf("it is refused with %d, and something has changed: %s", answer.Code, answer.Body)
	}
}

// with returns the operations that a condition holds for, in order.
func (d *described) with(condition func(o *operation) bool) []*operation {
	return slices.DeleteFunc(d.sorted(), func(o *operation) bool { return !condition(o) || !strings.HasPrefix(o.path, "/api/") || o.endless() })
}

func (o *operation) takesBody() bool { return o.node["requestBody"] != nil }

// takes reports whether an operation has a parameter.
func (o *operation) takes(name string) bool {
	return slices.ContainsFunc(anys(o.node["parameters"]), func(p any) bool { return p.(map[string]any)["name"] == name })
}

func FuzzBodies(f *testing.F) {
	list := description(f).with((*operation).takesBody)
	for i, o := range list {
		for _, body := range append(examples(f, o), `{}`, `null`, `[]`, `{"name": 1}`) {
			f.Add(uint8(i), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		o := list[int(route)%len(list)]
		fuzz(t, func(w *world) *http.Request { return w.request(o, w.target(o), string(body)) })
	})
}

// FuzzQueries has the place in a list as it is in a page_token, beside the query.
func FuzzQueries(f *testing.F) {
	list := description(f).with(func(o *operation) bool { return o.method == http.MethodGet })
	for i, o := range list {
		for _, p := range anys(o.node["parameters"]) {
			if p := p.(map[string]any); p["in"] == "query" {
				for _, value := range []string{"1", "default/nightly", "2026-11-20T00:00:00Z", "H+3+*+*+*"} {
					f.Add(uint8(i), p["name"].(string)+"="+value, []byte(nil))
				}
			}
		}
		for _, query := range []string{
			"", "page_size=501&page_token=x", "label=a=b&label=c", "sort=next&state=paused&filled=true&text=n", "state=done&outcome=failed&unmet=true",
			"from=2026-11-20T00:00:00Z&to=2026-11-21T00:00:00%2B01:00", "text=x&from=2020-01-01T00:00:00Z", "count=3&from=2199-12-31T00:00:00Z",
			"attempt=1&offset=3&stream=stdout&timestamps=1&tail=1", "expr=0+0+L+*+*&tz=Europe/Berlin&n=3&lang=zh", "expr=H+H+*+*+*&job=web/a&dialect=vixie5&dst=literal",
			"schedule=%7B%22every%22%3A%221m%22%7D", "a=%zz", ";",
		} {
			f.Add(uint8(i), query, []byte(nil))
		}
		if !o.takes("page_token") {
			continue
		}
		for _, place := range []string{
			`{"after":"default/a"}`, `{"before":3}`, `{"version":2}`, `{"past":true}`, `{"active":{"Due":"2026-11-20T14:00:00Z","ID":"00000000000000000000000000"}}`,
			`{"ended":{"Ended":"2026-11-20T14:00:01Z","Run":"00000000000000000000000000","Attempt":1}}`, `{"at":"2026-11-20T14:00:00Z","next":"2026-11-21T02:30:00Z"}`, `{`, `null`, `[]`,
		} {
			f.Add(uint8(i), "", []byte(place))
		}
		f.Add(uint8(i), "sort=next", []byte(`{"at":"2026-11-20T14:00:00Z"}`))
	}
	f.Fuzz(func(t *testing.T, route uint8, query string, place []byte) {
		o := list[int(route)%len(list)]
		if len(place) > 0 && o.takes("page_token") {
			query += "&page_token=" + base64.RawURLEncoding.EncodeToString(place)
		}
		fuzz(t, func(w *world) *http.Request {
			r := w.request(o, w.target(o), "")
			r.URL.RawQuery = query
			return r
		})
	})
}

func FuzzNamesAndHeaders(f *testing.F) {
	list := description(f).with(func(*operation) bool { return true })
	headers := []string{"If-Match", "If-None-Match", "Idempotency-Key", "Accept", "Last-Event-ID", "Content-Type", "Authorization", "Host", "Origin"}
	for i := range list {
		for j, value := range []string{`"2"`, "*", "key", "text/event-stream", "1:4", "application/json; charset=utf-8", "Bearer x", "localhost", "https://example.org"} {
			f.Add(uint8(i), "default", "nightly", uint8(j), value)
		}
		f.Add(uint8(i), "", "01M7WSD70J4JVRQ9N4TN6P9NR3", uint8(0), `W/"1", "2"`)
	}
	f.Fuzz(func(t *testing.T, route uint8, namespace, name string, header uint8, value string) {
		o := list[int(route)%len(list)]
		body := ""
		if o.takesBody() {
			body = examples(t, o)[0]
		}
		fuzz(t, func(w *world) *http.Request {
			r := w.request(o, w.target(o), body)
			if namespace != "default" || name != "nightly" {
				r.URL.Path = strings.NewReplacer("{namespace}", namespace, "{name}", name, "{id}", name, "{version}", name).Replace(o.path)
			}
			switch field := headers[int(header)%len(headers)]; {
			case field == "Host":
				r.Host = value
			// A running run would be followed until its end, which does not come here.
			case field == "Accept" && !strings.Contains(r.URL.Path, w.ended.ID.String()):
			default:
				r.Header.Set(field, value)
			}
			return r
		})
	})
}
