package httpapi_test

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const previewPath = "/api/v1/schedules:preview?"

// query writes pairs of name and value.
func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v.Encode()
}

func TestAScheduleIsPreviewed(t *testing.T) {
	s := newServer(t)
	s.call("PUT", "/api/v1/calendars/ops/holidays", `{"kind": "calendar", "namespace": "ops", "name": "holidays", "calendar": {"include": ["2026-11-21"]}}`, "If-None-Match", "*")
	for _, tt := range []struct {
		name                          string
		query                         []string
		expression, zone, description string
		next                          string // the first
		items                         int
		note, reason                  string
	}{
		{
			"an expression", []string{"expr", "30 2 * * 1-5", "n", "3"},
			"30 2 * * 1-5", "UTC", "at 02:30, Monday through Friday", "2026-11-23T02:30:00Z", 3, "", "",
		},
		{
			"a change of the clock", []string{"expr", "30 2 * * *", "tz", "Europe/Berlin", "from", "2026-11-01T00:00:00Z"},
			"30 2 * * *", "Europe/Berlin", "at 02:30 every day", "2026-11-01T02:30:00+01:00", 10, "on 28 March 2027 02:30 does not exist in Berlin: runs at 03:00; on 31 October 2027 02:30 comes twice in Berlin: runs on the first pass only (UTC+02:00)", "",
		},
		{
			"another dialect and language", []string{"expr", "0 0 12 ? * FRI#2", "dialect", "quartz", "lang", "zh"},
			"0 0 12 ? * 6#2", "UTC", "每月第二个周五 12:00", "2026-12-11T12:00:00Z", 10, "", "",
		},
		{
			"never", []string{"expr", "0 0 30 2 *"},
			"0 0 30 2 *", "UTC", "at 00:00 on 30 February", "", 0, "", "it never falls due after 2026-11-20T14:00:00Z: February has no day 30",
		},
		{
			"a value that belongs to a job", []string{"expr", "H 3 * * *", "job", "default/backup"},
			"15 3 * * *", "UTC", "at 03:15 every day", "2026-11-21T03:15:00Z", 10, "", "",
		},
		{
			"a schedule with a calendar", []string{"schedule", `{"cron": "0 9 * * *", "timezone": "Asia/Shanghai", "except": ["holidays"]}`, "job", "ops/x"},
			"0 9 * * *", "Asia/Shanghai", "at 09:00 every day, except in: holidays", "2026-11-22T09:00:00+08:00", 10, "", "",
		},
		{
			"a schedule with a value that belongs to a job", []string{"schedule", `{"cron": "H 3 * * *"}`, "job", "default/backup"},
			"15 3 * * *", "UTC", "at 03:15 every day", "2026-11-21T03:15:00Z", 10, "", "",
		},
		{
			"several expressions", []string{"schedule", `{"cron": ["0 9 * * *", "@every 90s"], "max_runs": 4}`},
			"0 9 * * * | @every 1m30s", "UTC", "at 09:00 every day; every 90 seconds", "2026-11-20T14:01:30Z", 4, "", "",
		},
		{
			"instants", []string{"schedule", `{"at": ["2026-11-20T15:00:00Z"], "boot": true}`},
			"", "UTC", "at 2026-11-20T15:00:00Z; at the start of a node", "2026-11-20T15:00:00Z", 1, "", "",
		},
		{
			"what follows", []string{"schedule", `{"on": "import"}`, "lang", "zh"},
			"", "UTC", "在 import 运行之后", "", 0, "", "没有可预知的到期时间",
		},
		{
			"nothing", []string{"schedule", `{}`},
			"", "UTC", "by hand", "", 0, "", "it falls due at no time that is known in advance",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.t = t
			p := ok[client.Preview](s, "GET", previewPath+query(tt.query...), "")
			if p.Expression != tt.expression || p.Timezone != tt.zone || p.Description != tt.description || p.Reason != tt.reason {
				t.Errorf("%+v", p)
			}
			first := ""
			if len(p.Next) > 0 {
				first = p.Next[0].Format(time.RFC3339)
			}
			if first != tt.next || len(p.Next) != tt.items || strings.Join(p.Notes, "; ") != tt.note {
				t.Errorf("%d occurrences from %s, notes %q", len(p.Next), first, p.Notes)
			}
		})
	}
}

func TestScheduleMistakesHaveTheirPlace(t *testing.T) {
	s := newServer(t)
	for _, tt := range []struct {
		name  string
		query []string
		want  client.FieldError
	}{
		{
			"an expression", []string{"expr", "0 9 * * MON-FIR"},
			client.FieldError{Parameter: "expr", Detail: `day of week: "FIR" is not a number or a name, allowed is 0-7 or SUN-SAT`, Hint: "did you mean FRI?", Position: 13, Length: 3},
		},
		{
			"letters of several bytes before it", []string{"expr", "0 9 * 一 61"},
			client.FieldError{Parameter: "expr", Detail: `month: "一" is not expected here`, Position: 7, Length: 1},
		},
		{
			"no job", []string{"expr", "H 3 * * *"},
			client.FieldError{Parameter: "expr", Detail: "minute: H draws its value from the name of a job, and none is given", Hint: "give the job with job=namespace/name", Position: 1, Length: 1},
		},
		{
			"no job in a schedule", []string{"schedule", `{"cron": "H 3 * * *"}`},
			client.FieldError{Parameter: "schedule", Path: "schedule.cron[0]", Detail: `minute: H draws its value from the name of a job, and none is given (at position 1 of "H 3 * * *")`, Hint: "give the job with job=namespace/name"},
		},
		{
			"a field of a schedule", []string{"schedule", `{"cron": "0 25 * * *"}`},
			client.FieldError{Parameter: "schedule", Path: "schedule.cron", Detail: `hour: 25 is out of range, allowed is 0-23 (at position 3 of "0 25 * * *")`},
		},
		{
			"an unknown field", []string{"schedule", `{"corn": "0 2 * * *"}`},
			client.FieldError{Parameter: "schedule", Path: "schedule.corn", Detail: `unknown field "corn"`, Hint: `did you mean "cron"?`},
		},
		{
			"a calendar that does not exist", []string{"schedule", `{"cron": "0 2 * * *", "only": ["holidays"]}`},
			client.FieldError{Parameter: "schedule", Path: "schedule.only[0]", Detail: "there is no calendar default/holidays"},
		},
		{"nothing", nil, client.FieldError{Parameter: "expr", Detail: "give exactly one of expr and schedule"}},
		{"both", []string{"expr", "@daily", "schedule", "{}"}, client.FieldError{Parameter: "expr", Detail: "give exactly one of expr and schedule"}},
		{"a job without a namespace", []string{"expr", "@daily", "job", "x"}, client.FieldError{Parameter: "job", Detail: "is not namespace/name"}},
		{
			"a zone beside a schedule", []string{"schedule", "{}", "tz", "UTC"},
			client.FieldError{Parameter: "tz", Detail: "is for expr", Hint: "a schedule has its timezone in itself"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.t = t
			p := s.refused(client.TypeInvalid, 422, "GET", previewPath+query(tt.query...), "")
			for i := range p.Errors {
				e := &p.Errors[i] // TestErrorsHaveCodes looks at the codes
				e.Code, e.Args, e.HintCode, e.HintArgs = "", nil, "", nil
			}
			if len(p.Errors) != 1 || p.Errors[0] != tt.want {
				t.Errorf("the errors are %+v", p.Errors)
			}
		})
	}
	s.t = t
	for _, wrong := range []string{"expr=@daily&tz=Moon", "expr=@daily&lang=fr", "expr=@daily&n=0", "schedule=[]", "schedule={}},{"} {
		s.refused(client.TypeInvalid, 422, "GET", previewPath+url.PathEscape(wrong), "")
	}
}

func TestPreviewReadsNoOtherNamespace(t *testing.T) {
	s := newServer(t)
	s.call("PUT", "/api/v1/calendars/ops/holidays", `{"kind": "calendar", "namespace": "ops", "name": "holidays", "calendar": {"include": ["2026-11-21"]}}`, "If-None-Match", "*")
	s.grant("web-viewer", "of web", store.RoleViewer, "web")
	for _, tt := range []struct {
		name  string
		query string
		want  int
	}{
		{"its own schedule", query("schedule", `{"cron": "0 9 * * *"}`), 200},
		{"an expression", query("expr", "H 9 * * *", "job", "ops/x"), 200},
		{"a job elsewhere", query("schedule", `{"cron": "0 9 * * *", "except": ["holidays"]}`, "job", "ops/x"), 403},
		{"a calendar elsewhere", query("schedule", `{"cron": "0 9 * * *", "except": ["ops/holidays"]}`), 403},
	} {
		if w := s.as("of web", "GET", previewPath+tt.query, ""); w.Code != tt.want {
			t.Errorf("%s: status %d, want %d: %s", tt.name, w.Code, tt.want, w.Body)
		}
	}
}

func TestTheClientAsksForAPreview(t *testing.T) {
	s := newServer(t)
	web := httptest.NewServer(s.handler)
	defer web.Close()
	c, err := client.New(client.Config{URL: web.URL, Token: token, HTTP: web.Client()})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Preview(t.Context(), client.PreviewQuery{
		Expression: "H 3 * * *", Timezone: "Europe/Berlin", Dialect: "default", ClockChange: job.ClockSkipOnce,
		Job: "default/backup", Lang: "zh", From: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), Count: 2,
	})
	if err != nil || p.Expression != "15 3 * * *" || p.Description != "每天 03:15" || len(p.Next) != 2 || p.Next[0].Format(time.RFC3339) != "2027-01-01T03:15:00+01:00" {
		t.Errorf("%+v, %v", p, err)
	}
	_, err = c.Preview(t.Context(), client.PreviewQuery{Schedule: `{"every": "1h", "cron": "@daily"}`})
	if !client.IsType(err, client.TypeInvalid) {
		t.Errorf("the error is %v", err)
	}
}

// A mistake and its correction are codes with arguments.
func TestErrorsHaveCodes(t *testing.T) {
	s := newServer(t)
	p := s.refused(client.TypeInvalid, 422, "GET", previewPath+query("schedule", `{"corn": "0 2 * * *"}`), "")
	e := p.Errors[0]
	if e.Code != "unknown_field" || e.Args.Texts()["x"] != "corn" || e.HintCode != "did_you_mean" || e.HintArgs.Texts()["name"] != "cron" {
		t.Errorf("the problem is %+v", p)
	}
}
