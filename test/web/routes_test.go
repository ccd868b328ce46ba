//go:build servers

package web

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// strangers are the pages without a session.
var strangers = []string{"/ui/login", "/ui/sign-in", "/ui/sign-in/callback"}

// notPages are the routes that answer with no page.
var notPages = []string{"GET /ui/assets/"}

// answers are the pages that a form is answered with, by the pattern of its address, and how a person comes to them.
var answers = map[string]func(*tab){
	"POST /jobs/bulk": func(b *tab) {
		b.open("/jobs?q=label:team=shop")
		b.sends("/jobs/bulk", `{action: "pause", job: [...document.querySelectorAll("[data-list] input[name=job]")].map(i => i.value)}`)
	},
	"POST /jobs/import": func(b *tab) { b.imports(photographedCrontab) },
	"POST /jobs/new": func(b *tab) {
		b.open("/jobs/new")
		b.sends("/jobs/new", `{action: "check", document: "name: a name\nschedule: {cron: \"61 * * * MON-FIR\"}\nrun: {shel: true}\n"}`)
	},
	"POST /jobs/{namespace}/{name}/edit": func(b *tab) { // another person has saved meanwhile
		const job = "shop/price-import-from-the-feeds-of-all-suppliers"
		b.open("/jobs/" + job + "/edit")
		b.sends("/jobs/"+job+"/edit", `{action: "save", of: "`+job+`", present: "1", document: document.querySelector("[data-document]").value.replace("30m", "40m")}`)
	},
	"POST /channels/new": func(b *tab) {
		b.open("/channels/new")
		b.sends("/channels/new", `{action: "check", document: "kind: channel\nname: x\nto: {webhook: {url: nowhere}}\n"}`)
	},
	"POST /channels/{namespace}/{name}": func(b *tab) {
		b.open("/channels/ops/on-call")
		b.sends("/channels/ops/on-call", `{action: "check", document: document.querySelector("[data-document]").value.replace("1s", "2s")}`)
	},
	"POST /tokens": func(b *tab) {
		b.open("/settings")
		b.sends("/tokens", `{name: "a-token-of-a-dashboard-of-the-payments-team-"+document.documentElement.lang.toLowerCase(), role: "viewer"}`)
	},
	"POST /badges": func(b *tab) {
		b.open("/settings")
		b.sends("/badges", `{shows: "shop/price-import-from-the-feeds-of-all-suppliers"}`)
	},
	"POST /shared/hooks": func(b *tab) {
		b.open("/shared")
		b.sends("/shared/hooks", `{name: "a-hook-of-the-merges-of-the-recommendation-models-"+document.documentElement.lang.toLowerCase(), job: "shop/jiage-daoru", from: "standard"}`)
	},
	"POST /ui/sign-in/command": func(b *tab) {
		b.open("/settings")
		b.sends("/ui/sign-in/command", `{challenge: "short"}`)
	},
}

// comeBack are the forms that are answered with the page that they stand on, or with another one of the others.
var comeBack = strings.Fields(`
	/ui/login /ui/logout /ui/look /jobs/bulk/undo /jobs/{namespace}/{name}/backfill /jobs/{namespace}/{name}/backfill/cancel
	/jobs/{namespace}/{name}/run /jobs/{namespace}/{name}/pause /jobs/{namespace}/{name}/resume /jobs/{namespace}/{name}/delete
	/jobs/{namespace}/{name}/restore /jobs/{namespace}/{name}/rollback /examples /examples/remove
	/runs/{id}/cancel /runs/{id}/retry /runs/retry /runs/{id}/steps/{step}/answer /runs/{id}/signal
	/channels/{namespace}/{name}/test /channels/{namespace}/{name}/delete /notifications/{id}/ack /attention/
	/shared/windows /shared/windows/{namespace}/{name}/close /shared/windows/{namespace}/{name}/open /nodes/{id}/drain /nodes/{id}/undrain /badges/revoke /sessions/{id}/end /tokens/{name}/revoke`)

// sends sends a form of the page that is open: the script gives its fields.
func (b *tab) sends(address, fields string) {
	b.t.Helper()
	b.do(chromedp.Evaluate(`{
		const form = document.createElement("form"), fields = `+fields+`;
		form.method = "post";
		form.action = "`+address+`";
		fields.form = document.querySelector("input[name=form]").value;
		for (const [name, values] of Object.entries(fields)) for (const value of [values].flat()) {
			const field = document.createElement("input");
			Object.assign(field, {type: "hidden", name, value});
			form.append(field);
		}
		document.body.append(form);
		document.documentElement.dataset.left = "1";
		form.submit();
	}`, nil))
	b.until("the answer to "+address, `document.readyState === "complete" && document.documentElement.dataset.left === undefined`)
}

// isWhole reports the routes of the web UI that no test of its pages looks at.
func isWhole(t *testing.T, paths []string) {
	t.Helper()
	sources, err := filepath.Glob("../../internal/server/web/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var mux http.ServeMux
	looked := map[string]bool{}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`"((?:GET|POST) /[^"]*)"`).FindAllSubmatch(text, -1) {
			looked[string(m[1])] = false
			mux.Handle(string(m[1]), http.NotFoundHandler())
		}
	}
	if len(looked) < len(answers) {
		t.Fatalf("the sources of the web UI have %d routes", len(looked))
	}
	for _, path := range append(paths, strangers...) {
		_, pattern := mux.Handler(httptest.NewRequest(http.MethodGet, path, http.NoBody))
		looked[pattern] = true
	}
	for pattern := range answers {
		if _, is := looked[pattern]; !is {
			t.Errorf("%s is no route", pattern)
		}
		looked[pattern] = true
	}
	for _, path := range comeBack {
		looked["POST "+path] = true
	}
	for _, pattern := range notPages {
		looked[pattern] = true
	}
	for pattern, seen := range looked {
		if !seen {
			t.Errorf("no test of the pages looks at %s", pattern)
		}
	}
}
