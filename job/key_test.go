package job_test

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

func TestKeysAreNames(t *testing.T) {
	j := &job.Job{Name: "j", Namespace: "shop", Params: map[string]job.Param{"customer": {Default: "none"}, "region": {}}}
	k, err := j.CompileKey(`c-{{ .Param.customer }}.{{ .Param.region | lower }}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ customer, region, want string }{
		{"42", "EU", "shop/c-42.eu"},
		{"", "", "shop/c-none."},
		{"Acme", "x", "shop/c-Acme.x"},
		{"a/b", "x", "shop/c-8f0a8379174ffce3"},
		{"客户", "x", ""},
		{strings.Repeat("a", 123), "x", "shop/c-" + strings.Repeat("a", 123) + ".x"},
		{strings.Repeat("a", 125), "x", ""},
		{strings.Repeat("a", 3<<20), "x", ""}, // longer than the output of a template may be
	} {
		params := map[string]string{"region": tt.region, "unknown": "x"}
		if tt.customer != "" {
			params["customer"] = tt.customer
		}
		got := k.Of(params)
		if tt.want == "" && (len(got) != len("shop/c-")+16 || got == k.Of(nil)) || tt.want != "" && got != tt.want {
			t.Errorf("%.20s, %s: %q, want %q", tt.customer, tt.region, got, tt.want)
		}
		if again := k.Of(params); again != got {
			t.Errorf("%q and %q of the same parameters", got, again)
		}
	}
	if a, b := k.Of(map[string]string{"customer": "é"}), k.Of(map[string]string{"customer": "è"}); a == b {
		t.Errorf("two customers have the key %q", a)
	}
}

func TestKeysAreChecked(t *testing.T) {
	for _, tt := range []struct{ params, key, want string }{
		{"{c: {}}", "x-{{ .Param.c }}", ""},
		{"{c: {}}", "x-{{ .Param.d }}", "policy.concurrency_key: unknown parameter .Param.d (declared are c)"},
		{"{c: {}}", "{{ .Param.c }}", "policy.concurrency_key: does not begin with the name of a pool (for example customer-{{ .Param.customer }})"},
		{"{c: {}}", "other/x-{{ .Param.c }}", "does not begin with the name of a pool"},
		{"{c: {}}", "x-{{ .Scheduled }}", "unknown field .Scheduled (there are .Param"},
		{"{c: {}}", "x-{{ .Secret.s }}", "unknown field .Secret"},
		{"{c: {type: secret, values: [a]}}", "x-{{ .Param.c }}", ".Param.c cannot be here"},
		{"{c: {}}", "x-{{ .Param.c", "is not a template"},
	} {
		docs, err := job.Decode("j.yaml", []byte("name: j\nparams: "+tt.params+"\nrun: {shell: 'true'}\npolicy: {overlap: queue, concurrency_key: '"+tt.key+"'}\n"))
		if err == nil {
			err = docs[0].Validate()
		}
		switch {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", tt.key, err, tt.want)
		}
	}
}
