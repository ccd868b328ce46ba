package service

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/account"
	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/nodeinfo"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// pass lets time go by, in which the node lives.
func (b *bench) pass(d time.Duration) {
	b.t.Helper()
	b.mu.Lock()
	b.now = b.now.Add(d)
	b.mu.Unlock()
	b.renew(store.Load{})
}

func (b *bench) renew(load store.Load) {
	b.t.Helper()
	if err := b.store.Renew(b.t.Context(), b.session, load); err != nil {
		b.t.Fatal(err)
	}
}

// ends makes a run of a job that ends so.
func (b *bench) ends(s *Service, name string, outcome job.Outcome) {
	b.t.Helper()
	namespace, own, ok := strings.Cut(name, "/")
	if !ok {
		namespace, own = "default", name
	}
	result, err := s.Runs.Start(b.t.Context(), admin, Name{namespace, own}, client.RunRequest{}, "")
	if err != nil {
		b.t.Fatal(err)
	}
	b.start(result.Run)
	b.finish(result.Run, outcome)
	b.pass(time.Minute)
}

func attention(t *testing.T, s *Service, who Caller, namespace string) map[string]client.Attention {
	t.Helper()
	list, err := s.Attention.List(t.Context(), who, namespace)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]client.Attention{}
	for _, a := range list {
		found[string(a.Kind)+" "+a.Job+a.Node] = a
	}
	if len(found) != len(list) {
		t.Errorf("something is listed twice: %+v", list)
	}
	return found
}

func TestAttentionListsProblemsForAPerson(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	for _, document := range []string{
		`{"name": "well", "run": {"shell": "true"}}`, `{"name": "once", "run": {"shell": "true"}}`, `{"name": "often", "run": {"shell": "true"}}`,
		`{"name": "gives-up", "run": {"shell": "true"}, "policy": {"pause_on_failure": 1}}`,
		`{"name": "by-hand", "paused": true, "run": {"shell": "true"}}`,
		`{"name": "nowhere", "run": {"shell": "true"}, "place": {"labels": {"zone": "moon"}}}`,
	} {
		b.put(s, document)
	}
	b.ends(s, "well", job.OutcomeFailed)
	b.ends(s, "well", job.OutcomeSucceeded)
	b.ends(s, "once", job.OutcomeSucceeded)
	b.ends(s, "once", job.OutcomeTimedOut)
	for range 3 {
		b.ends(s, "often", job.OutcomeFailed)
	}
	b.ends(s, "gives-up", job.OutcomeFailed)
	b.put(s, `{"name": "usually-quick", "run": {"shell": "true"}}`)
	for range 3 {
		b.ends(s, "usually-quick", job.OutcomeSucceeded)
	}
	long, err := s.Runs.Start(t.Context(), admin, Name{"default", "usually-quick"}, client.RunRequest{}, "")
	if err != nil {
		t.Fatal(err)
	}
	b.start(long.Run)
	for range 2 {
		if _, err := s.Runs.Start(t.Context(), admin, Name{"default", "nowhere"}, client.RunRequest{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	b.pass(9 * time.Second)
	if found := attention(t, s, admin, ""); found["slow default/usually-quick"].Kind != "" {
		t.Errorf("a run is slow after 9 s: %+v", found)
	}
	if found := attention(t, s, admin, ""); found["late default/nowhere"].Kind != "" {
		t.Errorf("a run is late after 9 s: %+v", found)
	}
	b.pass(2 * time.Second)
	b.renew(store.Load{Running: 4})
	b.mu.Lock()
	b.now = b.now.Add(store.SessionLife)
	b.mu.Unlock()

	if found := attention(t, s, admin, ""); found["slow default/usually-quick"].Kind != "" {
		t.Errorf("a run is slow before a minute is over: %+v", found)
	}
	b.mu.Lock()
	b.now = b.now.Add(time.Minute)
	b.mu.Unlock()
	found := attention(t, s, admin, "")
	for name, want := range map[string]client.Attention{
		"failing default/once":       {Severity: client.SeverityWarning, Count: 1, Text: "timed out"},
		"failing default/often":      {Severity: client.SeverityBad, Count: 3, Text: "the last 3 runs failed"},
		"late default/nowhere":       {Severity: client.SeverityBad, Count: 2, Text: "no live node"},
		"slow default/usually-quick": {Severity: client.SeverityWarning, Count: 1, Text: "running for 1 min 17 s"},
		"paused default/gives-up":    {Severity: client.SeverityBad, Count: 1, Text: "fail"},
		"node_silent one":            {Severity: client.SeverityBad, Count: 4, Text: "4 running attempts"},
	} {
		got := found[name]
		if got.Severity != want.Severity || got.Count != want.Count || !strings.Contains(got.Text, want.Text) {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
		if strings.HasPrefix(name, "paused") && (got.Run.IsZero() || got.Since.IsZero()) {
			t.Errorf("%s has not its last run and since when it fails: %+v", name, got)
		}
		delete(found, name)
	}
	if len(found) > 0 {
		t.Errorf("too much: %+v", found)
	}
	viewer := Caller{Name: "v", Role: store.RoleViewer, Namespace: "other"}
	if found := attention(t, s, viewer, ""); len(found) != 1 {
		t.Errorf("a caller of another namespace sees %+v", found)
	}
	if _, err := s.Attention.List(t.Context(), viewer, "default"); !isType(err, client.TypeForbidden) {
		t.Errorf("another namespace: %v", err)
	}
	b.renew(store.Load{ClockAhead: -1500 * time.Millisecond})
	if a := attention(t, s, admin, "")["clock_off one"]; !strings.Contains(a.Text, "1.5 s behind") {
		t.Errorf("the clock is %+v", a)
	}
}

func TestProblemsOfOneOutageAreOne(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	for _, name := range []string{"a", "b", "c", "d"} {
		b.put(s, `{"name": "`+name+`", "schedule": {"cron": "* * * * * *"}, "run": {"shell": "true"}, "policy": {"missed": "none"}}`)
	}
	from := b.now
	b.mu.Lock()
	b.now = b.now.Add(time.Minute)
	b.mu.Unlock()
	b.renew(store.Load{})
	for _, name := range []string{"a", "b", "c"} {
		j, err := store.JobNamed(t.Context(), b.store, "default", name)
		if err != nil {
			t.Fatal(err)
		}
		span := store.MissedSpan{ID: b.id(), First: from.Add(time.Second), Last: from.Add(3 * time.Second), Count: 3}
		out, _, err := b.store.Plan(t.Context(), b.session, []store.PlanItem{{Job: j.Definition.UID, Epoch: 1, From: j.Cursor, To: span.Last, Missed: []store.MissedSpan{span}}})
		if err != nil || out[0] != store.Planned {
			t.Fatal(out, err)
		}
	}
	b.ends(s, "d", job.OutcomeFailed)
	found := attention(t, s, admin, "")
	if len(found) != 2 || found["failing default/d"].Count != 1 {
		t.Errorf("found %+v", found)
	}
	delete(found, "failing default/d")
	for _, a := range found {
		if want := "; the same of 2 other jobs"; a.Count != 1 || !strings.Contains(a.Text, "did not reach the store from ") || !strings.HasSuffix(a.Text, want) {
			t.Errorf("the outage is %d of %q", a.Count, a.Text)
		}
	}
}

func TestWhatAJobMissedInAnOutageHidesNoFailure(t *testing.T) {
	now := time.Now()
	missed, failed := &store.Record{}, &store.Record{}
	missed.Attempt.Reason, failed.Attempt.Reason = reason.MissedNone.Of(reason.NoNodeThere.Of(now, now)), reason.NoNodeHas.Of(reason.Handler.Of("bake"))
	if got := telling([]*store.Record{missed, failed}); got != failed {
		t.Errorf("the job fails because of %v", got.Attempt.Reason)
	}
	if got := telling([]*store.Record{missed, missed}); got != missed {
		t.Errorf("the job fails because of %v", got.Attempt.Reason)
	}
}

func TestAttentionNamesOccurrencesThatAreNotAsTheyMustBe(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	text, _, err := account.Add(nil, []account.Finding{
		{Kind: account.Unaccounted, Job: "default/a", Scheduled: b.now, Found: b.now}, {Kind: account.Unaccounted, Job: "default/a", Scheduled: b.now.Add(time.Second), Found: b.now},
		{Kind: account.Early, Job: "shop/b", Run: job.ID{1}, Scheduled: b.now, By: time.Minute, Found: b.now},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.PutNote(t.Context(), store.Note{Name: account.NoteName, Text: text}); err != nil {
		t.Fatal(err)
	}
	all := attention(t, s, admin, "")
	if lost, early := all["occurrence default/a"], all["occurrence shop/b"]; len(all) != 2 || lost.Count != 2 || !strings.Contains(lost.Text, "neither a run nor a record") || early.Run != (job.ID{1}) || !strings.Contains(early.Text, "1 min before it was due") {
		t.Errorf("found %+v", all)
	}
	if some := attention(t, s, admin, "shop"); len(some) != 1 {
		t.Errorf("of a namespace there are %+v", some)
	}
}

func TestAttentionNamesAStoreThatIsAway(t *testing.T) {
	b := newBench(t)
	var warning phrase.Text
	s := b.serviceOn(Config{Node: "one", Remark: func() (phrase.Text, error) { return warning, nil }})
	if found := attention(t, s, admin, ""); len(found) > 0 {
		t.Errorf("without a warning: %+v", found)
	}
	warning = phrase.HistoryAway.Of(3, 40)
	if a := attention(t, s, admin, "")["store one"]; a.Text != warning.String() || a.TextCode != warning.Code() || a.Severity != client.SeverityBad {
		t.Errorf("the store is %+v", a)
	}
	if e := ErrorOf(fmt.Errorf("%w: no route to host", store.ErrHistoryAway)); e.Type != client.TypeUnavailable || e.Detail.String() != "the history store cannot be reached" {
		t.Errorf("the answer is %+v", e)
	}
}

func TestJobListCarriesRecentRuns(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	for _, document := range []string{`{"name": "a", "run": {"shell": "true"}}`, `{"name": "b", "run": {"shell": "true"}}`} {
		b.put(s, document)
	}
	b.ends(s, "a", job.OutcomeFailed)
	b.ends(s, "a", job.OutcomeSucceeded)
	for _, c := range []struct {
		recent int
		want   string
	}{{0, ""}, {1, "succeeded"}, {20, "succeeded failed"}} {
		page, err := s.Jobs.List(t.Context(), admin, client.JobQuery{Recent: c.recent}, false)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range page.Recent["default/a"] {
			got = append(got, string(r.Outcome))
		}
		if text := strings.Join(got, " "); text != c.want || len(page.Recent["default/b"]) > 0 {
			t.Errorf("with recent=%d the runs are %q, want %q", c.recent, text, c.want)
		}
		last, err := page.Items[0].Job()
		if err != nil || last.Status.LastOutcome != job.OutcomeSucceeded {
			t.Errorf("the last outcome is %v (%v)", last.Status, err)
		}
	}
}

// A run that waits for its secrets is listed at once, although it is due later by then.
func TestAttentionNamesSecretsThatCannotBeRead(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "sealed", "run": {"shell": "true"}}`)
	outcome, err := s.Runs.Start(t.Context(), admin, Name{"default", "sealed"}, client.RunRequest{}, "")
	if err != nil {
		t.Fatal(err)
	}
	b.start(outcome.Run)
	const why = "its secrets cannot be read: it is sealed with another key"
	attempt, err := store.ActiveRun(t.Context(), b.store, outcome.Run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.Finish(t.Context(), b.session, []store.Result{{Attempt: attempt.Present(), Postponed: true, Reason: job.Text(why)}}); err != nil {
		t.Fatal(err)
	}
	if a := attention(t, s, admin, "")[string(client.AttentionLate)+" default/sealed"]; a.Text != why || a.Run != outcome.Run.ID || a.Severity != client.SeverityBad {
		t.Errorf("attention has %+v", a)
	}
	run, err := s.Runs.Get(t.Context(), admin, outcome.Run.ID)
	if err != nil || run.State != job.StateWaiting || run.Reason != why || !run.Started.IsZero() {
		t.Errorf("the run is %+v, %v", run, err)
	}
	lasting, err := s.Attention.Lasting(t.Context(), admin)
	if err != nil || len(lasting.Events) != 1 || !strings.HasSuffix(lasting.Events[0].Text.String(), why) {
		t.Errorf("notifications have %+v, %v", lasting.Events, err)
	}
}

func TestAttentionShowsWarningsOfNodesWhileTheyHold(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	about := nodeinfo.Info{Node: "n", Session: b.session, Warnings: []job.Reason{reason.Say(phrase.ShortToken)}}
	reporter := nodeinfo.Reporter{Store: b.store, Clock: func() time.Duration { return 0 }, About: func() nodeinfo.Info { return about }}
	for _, want := range []string{phrase.ShortToken.Code(), ""} {
		if err := reporter.Tell(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		var found string
		for _, a := range attention(t, s, admin, "") {
			if a.Kind == client.AttentionNode && a.Severity == client.SeverityWarning && a.Node != "" {
				found += a.TextCode
			}
		}
		if found != want {
			t.Errorf("attention says %q, want %q", found, want)
		}
		about.Warnings = nil
	}
}

func TestADiskThatIsNearlyFullIsReportedWhileItIs(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	about := nodeinfo.Info{Node: "n", Session: b.session, Disk: "60MiB", DiskSince: time.Now().Add(-time.Hour).UTC()}
	reporter := nodeinfo.Reporter{Store: b.store, Clock: func() time.Duration { return 0 }, About: func() nodeinfo.Info { return about }}
	for _, want := range []string{"the disk of its data directory has 60MiB free: nothing starts on a full disk", ""} {
		if err := reporter.Tell(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		found, told := "", ""
		for _, a := range attention(t, s, admin, "") {
			if a.Kind == client.AttentionNode && a.Severity == client.SeverityBad {
				if found += a.Text; !a.Since.Equal(about.DiskSince) {
					t.Errorf("attention says it since %v, want %v", a.Since, about.DiskSince)
				}
			}
		}
		l, err := s.Attention.Lasting(t.Context(), admin)
		for _, e := range l.Events {
			if e.Kind == job.NoticeDisk && e.Node != "" {
				if told += e.Text.String(); !e.Time.Equal(about.DiskSince) { // a rule counts from it
					t.Errorf("a channel hears it since %v, want %v", e.Time, about.DiskSince)
				}
			}
		}
		if found != want || told != want || err != nil || !slices.Contains(l.Whole, job.NoticeDisk) {
			t.Errorf("attention says %q, a channel %q (%v), want %q", found, told, err, want)
		}
		about.Disk = ""
	}
}

// The list, the job and its page say the same number of failures in a row, however many there are.
func TestFailuresInARowAreOneNumber(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "often", "run": {"shell": "true"}}`)
	const most = inRowMax + 5
	b.ends(s, "often", job.OutcomeSucceeded)
	draft, err := ReadDraft([]byte(`{"name": "often", "run": {"shell": "false"}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Jobs.Put(t.Context(), admin, Name{"default", "often"}, draft, Expect{}); err != nil {
		t.Fatal(err)
	}
	b.ends(s, "often", job.OutcomeFailed)
	since := attention(t, s, admin, "")["failing default/often"].Since
	for n := 1; n < most; n++ {
		b.ends(s, "often", job.OutcomeFailed)
		if a := attention(t, s, admin, "")["failing default/often"]; !a.Since.Equal(since) || a.SinceVersion != 2 {
			t.Fatalf("after %d failures since %v what needs a person is %+v", n+1, since, a)
		}
	}
	s = b.serviceOn(Config{}) // another one, that remembers none of them
	b.ends(s, "often", job.OutcomeCancelled)
	if a := attention(t, s, admin, "")["failing default/often"]; a.Count != most || !a.Since.Equal(since) || a.SinceVersion != 2 || !strings.Contains(a.Text, fmt.Sprintf("the last %d runs failed", most)) {
		t.Errorf("what needs a person is %+v", a)
	}
	d, _, err := s.Jobs.Get(t.Context(), admin, Name{"default", "often"}, false)
	if err != nil || !strings.Contains(string(d.RawMessage), fmt.Sprintf(`"failures":%d`, most)) {
		t.Errorf("the job is %s (%v)", d.RawMessage, err)
	}
	page, err := s.Jobs.Listed(t.Context(), admin, client.JobQuery{}, false)
	if err != nil || page.Items[0].Status.Failures != most {
		t.Errorf("the list is %+v (%v)", page.Items, err)
	}
	b.ends(s, "often", job.OutcomeSucceeded)
	if found := attention(t, s, admin, ""); len(found) > 0 {
		t.Errorf("after a success there is %+v", found)
	}
}

// While channels fail, nothing is as it should be: they are one problem, before all others.
func TestAttentionNamesChannelsThatDoNotDeliver(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "often", "run": {"shell": "true"}}`)
	b.ends(s, "often", job.OutcomeFailed)
	b.ends(s, "often", job.OutcomeFailed)
	for i, name := range []string{"chat", "mail", "pager"} {
		draft, err := ReadDraft(fmt.Appendf(nil, `{"kind": "channel", "namespace": "ops", "name": %q, "paused": %v, "to": {"webhook": {"url": "https://hooks.example.com/x", "secret": {"file": "hook"}}}, "rules": [{"events": ["failed"]}]}`, name, name == "mail"), "")
		if err != nil {
			t.Fatal(err)
		}
		d, _, err := s.Channels.Put(t.Context(), admin, Name{"ops", name}, draft, Expect{Absent: true})
		if err != nil {
			t.Fatal(err)
		}
		uid := d.Channel.UID
		state := notification.ChannelState{Channel: "ops/" + name, UID: uid, Error: job.Text("status 403: " + name), FailedAt: b.clock().Add(time.Duration(i) * time.Minute)}
		text, err := json.Marshal(state)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.store.PutNote(t.Context(), store.Note{Name: notification.ChannelNotes + uid.String(), Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.Attention.List(t.Context(), admin, "")
	if err != nil || len(list) != 2 {
		t.Fatalf("there is %+v (%v)", list, err)
	}
	if a := list[0]; a.Kind != client.AttentionAlarms || a.Count != 2 || a.Channel != "ops/pager" || a.Text != "status 403: pager" || a.Severity != client.SeverityBad || !a.Since.Equal(b.clock()) {
		t.Errorf("the channels are %+v", a)
	}
	if list, err = s.Attention.List(t.Context(), admin, "shop"); err != nil || len(list) != 0 {
		t.Errorf("another namespace has %+v (%v)", list, err)
	}
}

func TestHintsNameMissingAndFailingChannels(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	hints := func(who Caller) string {
		t.Helper()
		about, err := s.Nodes.About(t.Context(), who)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, h := range about.Hints {
			list = append(list, h.Status+" "+h.Check+": "+h.Found)
			if why := h.FoundArgs.Reason(h.Found, h.FoundCode); reason.In(reason.Chinese, why, nil) == h.Found || h.CheckCode == "" || h.DoCode == "" {
				t.Errorf("the hint has no code: %+v", h)
			}
		}
		return strings.Join(list, "; ")
	}
	if got := hints(admin); !strings.HasPrefix(got, "note channels: there is none") {
		t.Errorf("without channels the hints are %q", got)
	}
	docs, err := job.Decode("", []byte("kind: channel\nnamespace: ops\nname: pager\nto: {slack: {url: {name: u}}}\nrules: [{events: [failed]}]"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.store.PutDocument(t.Context(), docs[0], store.AnyVersion, "test")
	if err != nil {
		t.Fatal(err)
	}
	if got := hints(admin); got != "" {
		t.Errorf("with a channel the hints are %q", got)
	}
	text, _ := json.Marshal(notification.ChannelState{UID: c.Channel.UID, Error: job.Text("status 403"), FailedAt: b.clock()})
	if _, err := b.store.PutNote(t.Context(), store.Note{Name: notification.ChannelNotes + c.Channel.UID.String(), Text: text}); err != nil {
		t.Fatal(err)
	}
	if got := hints(admin); !strings.HasPrefix(got, "wrong channel ops/pager: the latest try, at ") || !strings.HasSuffix(got, " has failed: status 403") {
		t.Errorf("with one that fails the hints are %q", got)
	}
	if got := hints(Caller{Name: "v", Role: store.RoleViewer, Namespace: "shop"}); got != "" {
		t.Errorf("a caller of another namespace gets the hints %q", got)
	}
}
