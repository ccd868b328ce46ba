package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// From a failed run to the jobs that have the same error there is nothing to click: they are named beside it. The
// overview has them below the worst one, and repeats the last runs of all.
func TestJobsWithOneErrorAreShownTogether(t *testing.T) {
	w := newWorld(t)
	w.fill()
	var last job.ID
	for _, name := range []string{"refused-a", "refused-b", "refused-c"} {
		w.put(fmt.Sprintf("namespace: shop\nname: %s\nrun: {shell: 'true'}\n", name))
		for range len("refused-c") - len(name) + strings.Index("cba", name[len(name)-1:]) + 1 {
			last = w.ran("shop/"+name, job.OutcomeFailed)
		}
	}
	b := w.login("ann")
	page := b.page("/")
	group := page[strings.Index(page, `class="same"`):]
	group, _, _ = strings.Cut(group, `action="/runs/retry"`)
	for _, name := range []string{"shop/refused-b", "shop/refused-c"} {
		if strings.Count(group, `title="`+name+`"`) != 1 {
			t.Errorf("%s is not below the worst job", name)
		}
	}
	for _, text := range []string{"2 other jobs fail with the same error", "One error explains 3 of them.", "Retry all 3"} {
		if !strings.Contains(page, text) {
			t.Errorf("the overview does not say %q", text)
		}
	}
	run := b.page("/runs/" + last.String())
	for _, text := range []string{`href="#same">The same error in 2 other jobs</a>`, `title="shop/refused-a"`, `title="shop/refused-b"`, "All runs with this error"} {
		if !strings.Contains(run, text) {
			t.Errorf("the page of the run has no %s", text)
		}
	}
	at := strings.Index(run, "/runs?cause=")
	list := b.page(run[at : at+len("/runs?cause=")+16])
	for name, n := range map[string]int{"shop/refused-a": 3, "shop/refused-b": 2, "shop/refused-c": 1, "shop/price-import": 0} {
		if got := strings.Count(list, `href="/jobs/`+name+`"`); got != n {
			t.Errorf("the list of runs has %d of %s", got, name)
		}
	}
	if answer := b.send("/runs/retry", "run", last.String()); answer.Code != http.StatusSeeOther || !strings.Contains(answer.Header().Get("Location"), "n=1") {
		t.Errorf("a retry is answered with %d, %s", answer.Code, answer.Header().Get("Location"))
	}
	if answer := b.send("/runs/retry", "run", last.String(), "run", w.id().String()); answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "1 of 2 runs were repeated") {
		t.Errorf("a retry of an unknown run is answered with %d", answer.Code)
	}
	if answer := b.send("/runs/retry", "run", "x"); answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("a retry of no id is answered with %d", answer.Code)
	}
}
