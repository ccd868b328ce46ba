package web_test

import (
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
)

func TestADocumentIsCheckedAndSaved(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	shows := func(path string, status int, want string, pairs ...string) string {
		t.Helper()
		answer := b.send(path, pairs...)
		if body := answer.Body.String(); answer.Code != status || !strings.Contains(body, want) {
			t.Errorf("%s with %v answers %d without %q: %.600s", path, pairs, answer.Code, want, body[max(0, strings.Index(body, "<form method=\"post\" action=\"/jobs")):])
		}
		return answer.Body.String()
	}
	const good = "name: nightly\nschedule: {cron: '30 2 * * *', timezone: Europe/Berlin}\nrun: {shell: 'true'} # as ever\n"
	shows("/jobs/new", 200, "at 02:30 every day", "document", good)
	shows("/jobs/new", 200, "did you mean FRI?", "document", strings.Replace(good, "30 2 * * *", "30 2 * * MON-FIR", 1))
	body := shows("/jobs/new", 200, "line 2", "document", strings.Replace(good, "30 2 * * *", "nonsense", 1))
	// A page that is sent before it has arrived whole lacks the last field, and saves nothing.
	form := body[strings.Index(body, " data-edit>"):]
	form = form[:strings.Index(form, "</form>")]
	if last := form[strings.LastIndex(form, ` name="form"`):]; strings.Contains(last, "</textarea>") || strings.Count(form, ` name="form"`) != 1 {
		t.Errorf("the token of the form is not behind its document: %s", last)
	}
	// The form changes the text and keeps the rest of it.
	body = shows("/jobs/new", 200, "# as ever", "document", good, "was.description", "", "field.description", "tells all", "was.schedule.cron", "30 2 * * *", "field.schedule.cron", "0 4 * * *")
	if !strings.Contains(body, "description: tells all") || !strings.Contains(body, "at 04:00 every day") {
		t.Errorf("the form has not changed the document: %s", body)
	}
	if answer := b.send("/jobs/new", "document", good, "action", "save"); answer.Header().Get("Location") != "/jobs/default/nightly?said=saved" {
		t.Errorf("creating answers %d to %s", answer.Code, answer.Header().Get("Location"))
	}
	shows("/jobs/new", 409, "nightly", "document", good, "action", "save")
	shows("/jobs/default/nightly/edit", 422, "schedule", "document", strings.Replace(good, "30 2 * * *", "nonsense", 1), "action", "save", "of", "default/nightly", "present", "1")
	changed := strings.Replace(good, "30 2", "45 2", 1)
	shows("/jobs/default/nightly/edit", 200, "cron: 45 2 * * *</span>", "document", changed, "of", "default/nightly", "present", "1")
	if answer := b.send("/jobs/default/nightly/edit", "document", changed, "action", "save", "of", "default/nightly", "present", "1"); answer.Code != http.StatusSeeOther {
		t.Errorf("saving answers %d: %s", answer.Code, answer.Body)
	}
	// Another person has saved meanwhile: both versions are there.
	late := strings.Replace(good, "30 2", "50 2", 1)
	body = shows("/jobs/default/nightly/edit", 412, "45 2 * * *", "document", late, "action", "save", "of", "default/nightly", "present", "1")
	if !strings.Contains(body, "50 2 * * *") || !strings.Contains(body, `name="over" value="2"`) {
		t.Errorf("the conflict does not offer both versions: %s", body)
	}
	if answer := b.send("/jobs/default/nightly/edit", "document", late, "of", "default/nightly", "present", "1", "over", "2"); answer.Code != http.StatusSeeOther {
		t.Errorf("saving over the version that was shown answers %d", answer.Code)
	}
	if answer := b.send("/jobs/default/nightly/rollback", "version", "1", "present", "3"); answer.Code != http.StatusSeeOther {
		t.Errorf("rolling back answers %d: %s", answer.Code, answer.Body)
	}
	if answer := b.send("/jobs/default/nightly/rollback", "version", "1", "present", "2"); answer.Code != http.StatusPreconditionFailed {
		t.Errorf("rolling back an older page answers %d", answer.Code)
	}
}

func TestFoldedGroupsOfTheFormSayWhatIsInThem(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	const document = "name: nightly\nschedule: {cron: '30 2 * * *', timezone: Asia/Tokyo, clock_change: literal}\nrun: {shell: 'true'}\nplace: {labels: {zone: ZONE}}\npolicy: {timeout: 30m, retry: {attempts: 2, backoff: 1m}}\n"
	for zone, want := range map[string]string{"de": `faint" title="matching nodes: 1 of 1" data-summary>matching nodes: 1 of 1<`, "fr": `warn-text" title="matching nodes: 0 of 1" data-summary>matching nodes: 0 of 1<`} {
		body := b.send("/jobs/new", "document", strings.Replace(document, "ZONE", zone, 1)).Body.String()
		for _, want := range []string{want, "data-summary>2 more attempts after 1 min · ended after 30 min", "now 17:41, UTC&#43;09:00", "a repeated one runs twice"} {
			if !strings.Contains(body, want) {
				t.Errorf("in zone %s the form does not say %q", zone, want)
			}
		}
		if strings.Contains(body, `id="g-where" open`) || strings.Contains(body, `id="g-wrong" open`) {
			t.Error("a group without a mistake is unfolded")
		}
	}
	body := b.send("/jobs/new", "document", strings.Replace(document, "30m", "soon", 1)).Body.String()
	if !strings.Contains(body, `id="g-wrong" open`) || !strings.Contains(body, "line 5, column 19") || !strings.Contains(body, "<h2>1 mistake</h2>") {
		t.Errorf("the mistake in a folded group is not shown: %s", body)
	}
}

func TestEachFieldOfTheFormGoesIntoTheDocument(t *testing.T) {
	w := newWorld(t)
	b := w.login("ann")
	text := "name: nightly # at night\nschedule: 30 2 * * *\nrun: 'true'\n"
	check := func(path, was, is string) {
		t.Helper()
		answer := b.send("/jobs/new", "document", text, "was."+path, was, "field."+path, is)
		body := html.UnescapeString(answer.Body.String())
		_, body, _ = strings.Cut(body, "data-document>")
		text, _, _ = strings.Cut(body, "</textarea>")
		if list, err := job.Decode("", []byte(text)); err != nil || list[0].Validate(job.Now(w.now)) != nil {
			t.Fatalf("with %s %q the document is no job: %v\n%s", path, is, err, text)
		}
	}
	fields := [][2]string{
		{"namespace", "shop"}, {"description", "tells all"}, {"schedule.timezone", "Europe/Berlin"}, {"schedule.clock_change", "skip_once"}, {"schedule.spread", "5m"},
		{"run.dir", "/srv"}, {"run.user", "shop"}, {"policy.timeout", "30m"}, {"policy.retry.attempts", "2"}, {"policy.retry.backoff", "1m"}, {"policy.overlap", "queue"},
		{"policy.missed", "latest"}, {"policy.expect.finish_within", "45m"},
	}
	for _, f := range fields {
		check(f[0], "", f[1])
	}
	list, err := job.Decode("", []byte(text))
	w.must(err)
	j := list[0].Job
	if s := &j.Schedule; j.Namespace != "shop" || len(s.Cron) != 1 || s.Cron[0] != "30 2 * * *" || s.ClockChange != job.ClockSkipOnce || s.Spread != job.Duration(5*time.Minute) {
		t.Errorf("the schedule is %+v", s)
	}
	if s := j.Run.Shell; s == nil || s.Command != "true" || s.Dir != "/srv" || s.User != "shop" {
		t.Errorf("the command is %+v", s)
	}
	if p := &j.Policy; p.Retry == nil || *p.Retry.Attempts != 2 || p.Overlap != job.OverlapQueue || p.Expect.FinishWithin != job.Duration(45*time.Minute) {
		t.Errorf("the policy is %+v", p)
	}
	for _, f := range slices.Backward(fields) {
		check(f[0], f[1], "")
	}
	if want := "name: nightly # at night\nschedule:\n  cron: 30 2 * * *\nrun:\n  shell: 'true'\n"; text != want {
		t.Errorf("without them the document is\n%s, want\n%s", text, want)
	}
	if body := b.send("/jobs/new", "document", "name: a\nrun: {shell: {command: 'true', dir: /srv}}\n", "was.run.dir", "/srv", "field.run.dir", "/var").Body.String(); !strings.Contains(body, "dir: /var") || strings.Contains(body, "/srv") {
		t.Errorf("a directory inside of run.shell does not change: %s", body)
	}
}

// The form has the fields of all kinds of schedule and work, and hides the fields of kinds that the document does not have.
func TestTheFormOffersKindsOfScheduleAndWork(t *testing.T) {
	b := newWorld(t).login("ann")
	shows := func(document string, wants ...string) {
		t.Helper()
		body := b.send("/jobs/new", "document", document).Body.String()
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("for %q the form has no %q", document, want)
			}
		}
	}
	const request = "name: a\nschedule: {every: 5m}\nrun: {http: {url: 'https://example.org'}}\n"
	shows(request, `value="http" checked`, `value="every" checked`, `<div class="field" data-kind="shell"><label for="f-run.dir">`, `<div class="field wide set" data-kind="http">`)
	shows("name: a\nrun: {handler: bake}\n", `value="handler" checked`, `value="hand" checked`)
	shows("name: a\nschedule: {cron: '0 3 * * *', on: [b]}\nrun: {shell: x}\n", `value="cron" checked`, `<div class="field wide set" data-kind="on">`)
	if body := b.send("/jobs/new", "document", "name: a\nrun: {job: b}\n").Body.String(); strings.Contains(body, "kind.what") {
		t.Error("the form of work that it cannot say offers other work")
	}
	// As the script sends another kind: the fields of the former one are empty.
	body := html.UnescapeString(b.send("/jobs/new", "document", request,
		"was.schedule.cron", "", "field.schedule.cron", "0 4 * * *", "was.schedule.every", "5m", "field.schedule.every", "",
		"was.run.handler", "", "field.run.handler", "bake", "was.run.http.url", "https://example.org", "field.run.http.url", "").Body.String())
	for _, want := range []string{"at 04:00 every day", "name: a\nschedule: {cron: 0 4 * * *}\nrun:\n  handler: bake\n", `value="handler" checked`} {
		if !strings.Contains(body, want) {
			t.Errorf("after another kind is chosen there is no %q", want)
		}
	}
}

func TestTheFormOffersContainers(t *testing.T) {
	b := newWorld(t).login("ann")
	for _, c := range []struct {
		document, want string
		fields         []string
	}{
		{"name: a\nrun: echo x\n", "run:\n  container:\n    image: alpine\n    shell: echo y\n    mounts: /srv:/in:ro\n", []string{
			"was.run.container.image", "", "field.run.container.image", "alpine", "was.run.container.shell", "", "field.run.container.shell", "echo y",
			"was.run.container.mounts", "", "field.run.container.mounts", "/srv:/in:ro", "was.run.shell", "echo x", "field.run.shell", "",
		}},
		{"name: a\nrun: {container: alpine, shell: echo x}\n", "run: {container: alpine, shell: echo y}\n", []string{"was.run.container.shell", "echo x", "field.run.container.shell", "echo y"}},
		{"name: a\nrun: {container: alpine, shell: echo x}\n", "run:\n  shell: echo y\n", []string{
			"was.run.container.image", "alpine", "field.run.container.image", "", "was.run.container.shell", "echo x", "field.run.container.shell", "",
			"was.run.shell", "", "field.run.shell", "echo y",
		}},
		{"name: a\nrun: {kubernetes: alpine, shell: echo x}\n", "run: {kubernetes: busybox, shell: echo x}\n", []string{"was.run.kubernetes.image", "alpine", "field.run.kubernetes.image", "busybox"}},
		{"name: a\nrun: {kubernetes: alpine}\n", "cluster: eu", []string{"was.run.kubernetes.cluster", "", "field.run.kubernetes.cluster", "eu"}},
		{"name: a\nrun: {container: alpine}\n", "image: busybox", []string{"was.run.container.image", "alpine", "field.run.container.image", "busybox", "was.run.container.network", "", "field.run.container.network", "none"}},
	} {
		body := html.UnescapeString(b.send("/jobs/new", append([]string{"document", c.document}, c.fields...)...).Body.String())
		_, text, _ := strings.Cut(body, "data-document>")
		text, _, _ = strings.Cut(text, "</textarea>")
		if list, err := job.Decode("", []byte(text)); err != nil || list[0].Validate(job.Now(time.Now())) != nil || !strings.Contains(text, c.want) {
			t.Errorf("%q becomes %q, %v; want %q", c.document, text, err, c.want)
		}
		if checked := strings.Contains(body, `value="container" checked`); checked != strings.Contains(text, "container") {
			t.Errorf("for %q container is chosen: %v", text, checked)
		}
	}
}

func TestACrontabIsShownBeforeItsJobsAreMade(t *testing.T) {
	b := newWorld(t).login("ann")
	const text = "30 2 * * 1-5 /usr/local/bin/report.sh\n@reboot /bin/true\n"
	if answer := b.send("/jobs/import", "crontab", text); answer.Code != 200 || !strings.Contains(answer.Body.String(), "at 02:30") {
		t.Errorf("the lines are not explained: %d %s", answer.Code, answer.Body)
	}
	if answer := b.send("/jobs/import", "crontab", text, "action", "save"); answer.Header().Get("Location") != "/jobs?n=2&said=imported" {
		t.Errorf("importing answers %d to %s: %.500s", answer.Code, answer.Header().Get("Location"), answer.Body)
	}
}

// A Chinese page says in Chinese what is wrong with a document, and leaves the words of the document as they are.
func TestMistakesInDocumentsAreInTheLanguageOfThePage(t *testing.T) {
	b := newWorld(t).login("ann")
	send := func(path, lang, document, action string) string {
		form := url.Values{"form": {auth.FormToken(b.secret)}, "document": {document}, "action": {action}}
		return html.UnescapeString(b.ask("POST", path, form, "Accept-Language", lang).Body.String())
	}
	const wrong = "name: nightly\nschedule: {cron: '0 3 * * MON-FIR'}\nrun: {shel: 'true'}\npolicy: {timeout: 90}\n"
	for _, c := range []struct{ path, document, action, english, chinese string }{
		{"/jobs/new", wrong, "check", `unknown field "shel" <span class="muted">did you mean "shell"?`, `未知字段 "shel" <span class="muted">您是不是想写 "shell"？`},
		{"/jobs/new", wrong, "check", `"90" has a number without a unit w, d, h, m, s or ms`, `"90" 的数字没有单位 w、d、h、m、s 或 ms`},
		{"/jobs/new", "name: a\nschedule: {cron: '0 3 * * MON-FIR'}\nrun: {shell: x}\n", "check", `day of week: "FIR" is not a number or a name`, `星期："FIR" 不是数字或名称`},
		{"/jobs/new", "name: Nightly\nrun: {shell: x}\n", "save", `"Nightly" is not a name`, `"Nightly" 不是有效名称`},
		{"/channels/new", "kind: channel\nname: ops\nto: {webhook: {}}\nrules: [{events: [failed]}]\n", "save", "must have one of url and url_secret", "必须有 url 和 url_secret 之一"},
		{"/channels/new", "kind: chanel\n", "check", `"chanel" is not known`, `未知的值 "chanel"`},
	} {
		if body := send(c.path, "en", c.document, c.action); !strings.Contains(body, c.english) {
			t.Errorf("in English %s says of %q no %q", c.path, c.document, c.english)
		}
		if body := send(c.path, "zh", c.document, c.action); !strings.Contains(body, c.chinese) {
			t.Errorf("in Chinese %s says of %q no %q", c.path, c.document, c.chinese)
		}
	}
}

// The form makes every kind of job, and its parameters.
func TestTheFormMakesFlowsExecutorsReportsAndParameters(t *testing.T) {
	w := newWorld(t)
	b := w.login("ann")
	const start = "name: made\nrun:\n  shell: 'true'\n"
	none := []string{"was.run.shell", "true", "field.run.shell", ""}
	for _, c := range []struct {
		fields []string
		want   []string
	}{
		{append(none, "was.run.flow.steps", "", "field.run.flow.steps", "- name: a # the first\n  run: {shell: echo a}\n- name: b\n  needs: a\n  run: {shell: echo b}"), []string{"  flow:\n    steps:\n      - name: a # the first\n", "<svg"}},
		{append(none, "was.run.xxl.group", "", "field.run.xxl.group", "orders", "was.run.xxl.handler", "", "field.run.xxl.handler", "settle"), []string{"  xxl:\n    group: orders\n    handler: settle\n"}},
		{append(none, "was.run.external.grace", "", "field.run.external.grace", "5m"), []string{"  external:\n    grace: 5m\n"}},
		{[]string{"was.params", "", "field.params", "day: {type: date, required: true}"}, []string{"params:\n  day: {type: date, required: true}\n"}},
		{[]string{"was.params", "", "field.params", "day: {type"}, []string{`id="e-params"`, "day: {type"}},
		{[]string{"was.title", "", "field.title", "价格导入"}, []string{"title: 价格导入\n"}},
	} {
		answer := b.send("/jobs/new", append([]string{"document", start}, c.fields...)...)
		body := html.UnescapeString(answer.Body.String())
		for _, want := range c.want {
			if answer.Code != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%q answers %d without %q: %s", c.fields, answer.Code, want, body[strings.Index(body, "data-document"):])
			}
		}
	}
}
