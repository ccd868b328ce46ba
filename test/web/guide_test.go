//go:build servers

package web

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// guideFlows returns the flows of docs/flows.md by their file names, to work in a directory.
func guideFlows(t *testing.T, dir string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/flows.md")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```yaml file=([a-z]+)\\.yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		list[m[1]] = strings.ReplaceAll(m[2], "/tmp/shop", dir)
	}
	return list
}

// The five flows of the guide run in the pages: started, approved and run again from a step there,
// with the states that the guide shows.
func TestTheFlowsOfTheGuideInABrowser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, sub := range []string{"in", "loaded"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{"in/orders.csv": "o1\no2\n", "in/users.csv": ""} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flows := guideFlows(t, dir)
	for _, name := range []string{"etl", "deploy", "backup", "report", "trip"} {
		if flows[name] == "" {
			t.Fatalf("the guide has no flow %s", name)
		}
		// Namespaces keep the jobs of this test apart from the jobs of other tests.
		apply(t, strings.Replace(flows[name], "name: "+name, "name: "+name+"\nnamespace: guide", 1))
	}
	b := newTab(t)
	b.looks("light", "en")
	start := func(name string) {
		b.open("/jobs/guide/" + name)
		b.until("the button", `(b => { b.click(); return true; })(document.querySelector("form[action$='/run'] button.primary"))`) // of some jobs it is in a menu
		b.until("the page of the run of "+name, `location.pathname.startsWith("/runs/") && document.readyState === "complete"`)
	}
	ends := func(name, outcome string, steps ...string) {
		b.until("the end of "+name, fmt.Sprintf(`document.querySelector("#head .pill")?.textContent.includes(%q)`, outcome))
		for _, words := range steps {
			step, state, _ := strings.Cut(words, " ")
			b.until(name+": "+words, fmt.Sprintf(`document.querySelector("#step-%s")?.textContent.includes(%q)`, step, state))
		}
	}
	start("etl")
	ends("etl", "failed", "list succeeded", "load failed", "publish blocked", "note succeeded")
	if err := os.WriteFile(filepath.Join(dir, "in/users.csv"), []byte("u1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	failed := value[string](b, "location.pathname")
	b.open(failed + "?step=load")
	b.choose(`#step summary`, `#step button[name="from"]`)
	b.until("the new run", fmt.Sprintf(`location.pathname.startsWith("/runs/") && location.pathname !== %q`, failed))
	ends("etl again", "succeeded", "load succeeded", "publish succeeded")

	start("deploy")
	b.until("the question", `document.querySelector("#step .said")?.textContent === "Deploy v1?"`)
	b.types("note", "seen on staging")
	b.click(`button[value="approve"]`)
	ends("deploy", "succeeded", "approve seen on staging", "install succeeded", "smoke succeeded", "rollback not needed")

	start("backup")
	ends("backup", "succeeded", "check succeeded", "keep succeeded", "clean succeeded")
	start("report")
	ends("report", "succeeded", "summary skipped", "details succeeded", "translate failed", "send succeeded")
	start("trip")
	ends("trip", "succeeded", "charge succeeded", "cancel_hotel not needed")
	for file, want := range map[string]string{"published": "o1\no2\nu1\n", "live.txt": "program v1\n", "report.txt": "all rows\n", "trip": "hotel\nflight\n"} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(text) != want {
			t.Errorf("%s has %q (%v), want %q", file, text, err, want)
		}
	}
	if list := b.complained(); len(list) > 0 {
		t.Errorf("the pages complain: %q", list)
	}
}
