package web_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestTheListOfJobsFindsWhatNeverRanAndWhatFallsDue(t *testing.T) {
	w := newWorld(t)
	w.fill()
	list, err := job.Decode("", []byte("namespace: shop\nname: unused\nschedule: {cron: '0 0 1 1 *'}\nrun: {shell: 'true'}\n"))
	w.must(err)
	_, err = store.PutOne(t.Context(), w.store, store.PutJob{Definition: list[0].Job, Actor: "wei"})
	w.must(err)
	w.now = w.now.Add(time.Minute)
	b := w.login("ann")
	rows := func(path string) string {
		t.Helper()
		var names []string
		for _, m := range regexp.MustCompile(`<tr data-href="/jobs/([^"]*)"`).FindAllStringSubmatch(b.ask("GET", path, nil).Body.String(), -1) {
			names = append(names, m[1])
		}
		return strings.Join(names, " ")
	}
	if got := rows("/jobs?state=never_ran"); !strings.Contains(got, "shop/unused") || strings.Contains(got, "price-import") {
		t.Errorf("never ran: %s", got)
	}
	if got := rows("/jobs?sort=failure"); !strings.HasPrefix(got, "shop/price-import ") || !strings.Contains(got, "shop/unused") {
		t.Errorf("by the last failure: %s", got)
	}
	b.shows("/jobs?q=due:1h", "due within", "--due-before 1h")
	b.shows("/jobs?state=never_ran", "--never-ran")
	for _, pairs := range [][]string{{"state", "never_ran"}, {"state", "failing"}, {"q", "due:1h"}} {
		if answer := b.send("/jobs/bulk", append([]string{"action", "pause", "all", "1"}, pairs...)...); answer.Code != http.StatusUnprocessableEntity && answer.Code != http.StatusBadRequest {
			t.Errorf("pausing all jobs with %v is answered with %d", pairs, answer.Code)
		}
	}
}

// The title of a job stands below its name in the list and in its head.
// What H stands for depends on the job, which the page knows.
func TestAnExpressionThatTheJobCompletesIsInWords(t *testing.T) {
	w := newWorld(t)
	w.fill()
	list, err := job.Decode("", []byte("namespace: shop\nname: hashed\nschedule: {cron: 'H/15 * * * *'}\nrun: {shell: 'true'}\n"))
	w.must(err)
	_, err = store.PutOne(t.Context(), w.store, store.PutJob{Definition: list[0].Job, Actor: "wei"})
	w.must(err)
	w.login("ann").shows("/jobs/shop/hashed", "at minutes ", " of every hour")
}

func TestATitleStandsBesideTheNameOfAJob(t *testing.T) {
	w := newWorld(t)
	w.put("namespace: shop\nname: jiage-daoru\ntitle: 价格导入\nrun: {shell: 'true'}\n")
	b := w.login("ann")
	b.shows("/jobs", `title="价格导入">价格导入</span>`)
	b.shows("/jobs/shop/jiage-daoru", "<b>价格导入</b>")
}

// A filter stands in the field once, as a mark that can be taken away; words that are searched beside it keep it.
func TestAFilterOfJobsIsShownOnce(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	const mark, kept = `<b>team</b><span class="cut">shop</span>`, `<input type="hidden" name="q" value="label:team=shop">`
	for path, words := range map[string]string{"/jobs?q=label%3Ateam%3Dshop+price": "price", "/jobs?q=label%3Ateam%3Dshop&q=price": "price", "/jobs?q=label%3Ateam%3Dshop&q=": ""} {
		body := b.page(path)
		if strings.Count(body, mark) != 1 || !strings.Contains(body, kept+`<input name="q" value="`+words+`" placeholder`) {
			t.Errorf("%s does not show its filter once, beside %q", path, words)
		}
		if !strings.Contains(body, "price-import") || strings.Contains(body, `name="job" form="bulk" value="ops/`) {
			t.Errorf("%s lists other jobs", path)
		}
	}
}
