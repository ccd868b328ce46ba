package service

import (
	"errors"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// A run by hand, and a repeated one, have values that fit the types of their parameters.
func TestRunsHaveParametersThatFit(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	name := b.put(s, `{"name": "a", "run": {"shell": "true"}, "params": {"rows": {"type": "int", "min": "1"}, "region": {"type": "enum", "values": ["eu", "us"], "required": true}}}`)
	for _, c := range []struct {
		params map[string]string
		want   string
	}{
		{map[string]string{"region": "eu", "rows": "5"}, ""},
		{map[string]string{"region": "us", "rows": ""}, ""},
		{nil, "params.region: is missing"},
		{map[string]string{"region": ""}, "params.region: is missing"},
		{map[string]string{"region": "eu", "rows": "0"}, "params.rows: must be at least 1, found 0"},
		{map[string]string{"region": "asia", "rows": "x"}, `params.region: "asia" is not known`},
		{map[string]string{"region": "asia", "rows": "x"}, "params.rows: x is not a whole number"},
	} {
		_, err := s.Runs.Start(t.Context(), admin, name, client.RunRequest{Params: c.params}, "")
		var e *Error
		if (err == nil) != (c.want == "") || err != nil && (!errors.As(err, &e) || e.Type != client.TypeInvalid || e.Errors[0].Code == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("with %v: %v, want %q", c.params, err, c.want)
		}
	}
	outcome, err := s.Runs.Start(t.Context(), admin, name, client.RunRequest{Params: map[string]string{"region": "eu"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	b.start(outcome.Run)
	b.finish(outcome.Run, job.OutcomeFailed)
	if _, err := s.Runs.Retry(t.Context(), admin, outcome.Run.ID, client.RetryRequest{}, ""); err != nil {
		t.Errorf("it is not repeated: %v", err)
	}
	if _, err := s.Runs.Retry(t.Context(), admin, outcome.Run.ID, client.RetryRequest{Params: map[string]string{"rows": "-1"}}, ""); err == nil || !strings.Contains(err.Error(), "params.rows: must be at least 1") {
		t.Errorf("with a wrong value it is repeated: %v", err)
	}
}
