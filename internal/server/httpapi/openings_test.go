package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

func TestWindowsAreSeenAhead(t *testing.T) {
	s := newServer(t)
	hour := s.clock().UTC().Truncate(time.Hour).Add(time.Hour)
	at := func(d time.Duration) string { return hour.Add(d).Format(time.RFC3339) }
	ok[any](s, "PUT", "/api/v1/windows/default/db", `{"kind":"window","name":"db","schedule":{"at":["`+at(0)+`","`+at(30*time.Minute)+`","`+at(48*time.Hour)+`"]},"for":"1h","match":{"labels":{"team":"db"}},"description":"升级"}`, "If-None-Match", "*")
	ok[any](s, "PUT", "/api/v1/windows/ops/all", `{"kind":"window","namespace":"ops","name":"all","schedule":{"at":["`+at(-2*time.Hour)+`"]},"for":"100h","action":"skip","match":{"namespaces":["shop"]}}`, "If-None-Match", "*")
	for _, text := range []string{
		`{"name":"hourly","labels":{"team":"db"},"schedule":{"cron":"0 * * * *"},"run":{"shell":"true"}}`,
		`{"name":"other","schedule":{"cron":"0 * * * *"},"run":{"shell":"true"}}`,
		`{"name":"reported","labels":{"team":"db"},"schedule":{"cron":"0 * * * *"},"run":{"external":{}}}`,
		`{"namespace":"shop","name":"sale","schedule":{"cron":"0 * * * *"},"run":{"shell":"true"}}`,
	} {
		ok[any](s, "POST", "/api/v1/jobs", text)
	}
	for name, want := range map[string][]job.WindowAction{
		"default/hourly": {job.WindowHold, job.WindowHold, ""}, "default/other": {"", "", ""}, "default/reported": {"", "", ""},
		"shop/sale": {job.WindowSkip, job.WindowSkip, job.WindowSkip},
	} {
		next := ok[client.Occurrences](s, "GET", "/api/v1/jobs/"+name+"/next?count=3", "")
		for i, o := range next.Items {
			var action job.WindowAction
			if o.Window != nil {
				action = o.Window.Action
			}
			if action != want[i] {
				t.Errorf("occurrence %d of %s, %s, is in %+v, want %q", i, name, o.Due, o.Window, want[i])
			}
		}
	}

	list := func(query string) []client.Opening {
		return ok[client.Page[client.Opening]](s, "GET", "/api/v1/load/windows"+query, "").Items
	}
	until := "&to=" + at(72*time.Hour)
	if all := list("?from=" + at(-time.Hour) + until); len(all) != 3 || all[0].Window != "ops/all" || !all[1].Until.Equal(hour.Add(90*time.Minute)) || !all[2].Opened.Equal(hour.Add(48*time.Hour)) {
		t.Errorf("the openings of all namespaces are %+v", all)
	}
	if own := list("?namespace=default&from=" + at(-time.Hour) + until); len(own) != 2 || own[0].ReasonCode != "in_window" || own[0].Window != "default/db" {
		t.Errorf("the openings for default are %+v", own)
	}
	if near, err := s.dial().Openings(t.Context(), "default", hour.Add(90*time.Minute), time.Time{}); err != nil || len(near.Items) != 0 {
		t.Errorf("after the end of an opening there are %+v (%v)", near.Items, err)
	}
	p := s.refused(client.TypeInvalid, http.StatusUnprocessableEntity, "GET", "/api/v1/load/windows?to="+at(33*24*time.Hour), "")
	if len(p.Errors) != 1 || p.Errors[0].Parameter != "to" {
		t.Errorf("a span that ends too late is answered with %+v", p)
	}

	if run := ok[client.Run](s, "POST", "/api/v1/jobs/shop/sale/run", ""); run.Window == nil || run.Window.Window != "ops/all" || run.Window.Reason == "" {
		t.Errorf("a run by hand in a window says %+v", run.Window)
	}
	if run := ok[client.Run](s, "POST", "/api/v1/jobs/default/hourly/run", ""); run.Window != nil {
		t.Errorf("a run by hand outside of windows says %+v", run.Window)
	}
}
