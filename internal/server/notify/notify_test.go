package notify_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/server/notify"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// world is a store in fake time with a service that receives.
type world struct {
	*testing.T
	store   store.Store
	session store.Session

	mu       sync.Mutex
	got      []sent
	down     error // the error of the service
	lasting  notification.Lasting
	answerIn time.Duration
	behind   bool // history lacks the latest ends
	noOutput bool // output cannot be read
}

// sent is a message that the service has accepted.
type sent struct {
	at      time.Duration // since the beginning
	node    string
	message notification.Message
}

var began time.Time

func (w *world) now() time.Duration { return time.Since(began).Round(time.Second) }

// inTime runs a test in a bubble of fake time.
func inTime(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began = time.Now()
		s := memory.New(memory.Options{})
		w := &world{T: t, store: s}
		var err error
		w.session, err = s.Join(t.Context(), store.Session{ID: newID(), Node: "n", Roles: []string{store.RolePlanner, store.RoleWorker}})
		w.must(err)
		test(w)
	})
}

func newID() job.ID {
	id, _ := job.NewID(time.Now(), rand.Reader)
	return id
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// start runs a notifier, and returns what stops it.
func (w *world) start(node string) (stop func()) {
	n := notify.New(notify.Config{
		Store: w.store, Node: node, Log: slog.New(slog.DiscardHandler),
		Send: func(ctx context.Context, c *job.Channel, m *notification.Message) error {
			w.mu.Lock()
			wait, down := w.answerIn, w.down
			w.mu.Unlock()
			if wait > 0 {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
			}
			if down != nil {
				return down
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.got = append(w.got, sent{w.now(), node, *m})
			return nil
		},
		Output: func(_ context.Context, run job.ID, attempt, lines int) ([]string, error) {
			if w.noOutput {
				return nil, errors.New("history is away")
			}
			return []string{fmt.Sprintf("the last %d of attempt %d", lines, attempt)}, nil
		},
		Look: func(context.Context) (notification.Lasting, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.lasting, nil
		},
		Behind: func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.behind
		},
	})
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() { defer close(done); n.Run(ctx) }()
	return func() { cancel(); <-done }
}

// channel defines a channel: its document but for name and service.
func (w *world) channel(name, text string) *job.Channel {
	w.Helper()
	docs, err := job.Decode("c.yaml", []byte("kind: channel\nname: "+name+"\nto: {slack: {url: {file: x}}}\n"+text))
	w.must(err)
	w.must(docs[0].Validate())
	c, err := w.store.PutDocument(w.Context(), docs[0], store.AnyVersion, "test")
	w.must(err)
	return c.Channel
}

// job defines a job that runs by hand.
func (w *world) job(name, labels string) *store.Job {
	w.Helper()
	docs, err := job.Decode("j.yaml", []byte("name: "+name+"\nlabels: {"+labels+"}\nrun: echo\npolicy: {overlap: allow}"))
	w.must(err)
	list, err := w.store.PutJobs(w.Context(), []store.PutJob{{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "test"}})
	w.must(err)
	return list[0]
}

// claim starts a run of a job, and returns its attempt and the verdict.
func (w *world) claim(j *store.Job) (store.Attempt, store.Verdict) {
	w.Helper()
	w.must(w.store.Renew(w.Context(), w.session.ID, store.Load{}))
	id := newID()
	_, err := w.store.Trigger(w.Context(), []store.TriggerItem{{ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Key: id.String(), Session: w.session.ID, Node: "n", Actor: "test"}})
	w.must(err)
	return w.claimRun(j, id)
}

func (w *world) claimRun(j *store.Job, id job.ID) (store.Attempt, store.Verdict) {
	w.Helper()
	w.must(w.store.Renew(w.Context(), w.session.ID, store.Load{}))
	a := store.Attempt{Job: j.Definition.UID, Run: id, Number: 1, Token: newID()}
	outcomes, err := w.store.Claim(w.Context(), w.session.ID, []store.Attempt{a})
	w.must(err)
	return a, outcomes[0].Verdict
}

func TestSkippedRunsAreReportedWhenThereAreSeveralInARow(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", "rules: [{events: [skipped, recovered]}]\ngroup: {wait: 1s, every: 1s}")
		defer w.start("a")()
		w.after(20 * time.Second)
		docs, err := job.Decode("j.yaml", []byte("name: backup\nrun: echo\npolicy: {overlap: skip}"))
		w.must(err)
		list, err := w.store.PutJobs(w.Context(), []store.PutJob{{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "test"}})
		w.must(err)
		running, _ := w.claim(list[0])
		for range 2 {
			w.after(10 * time.Second)
			_, _ = w.claim(list[0])
		}
		w.after(10 * time.Second)
		w.want("after two", w.said(), "")
		for range 3 {
			_, _ = w.claim(list[0])
			w.after(10 * time.Second)
		}
		m := w.messages()
		if len(m) != 1 || m[0].message.Severity != notification.Warning || !strings.Contains(m[0].message.Lines[0].Reason, running.Run.String()) {
			t.Errorf("the messages are %+v", m)
		}
		w.want("after five", w.said(), "54s default/backup was skipped 3 times in a row")
		_, err = w.store.Finish(w.Context(), w.session.ID, []store.Result{{Attempt: running, Outcome: job.OutcomeSucceeded}})
		w.must(err)
		w.after(20 * time.Second)
		w.want("after the end of the run", w.said(), "1m38s default/backup is no longer skipped")
	})
}

func TestALateStartIsReportedAtTheEndOfTheRun(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", "rules: [{events: [late_start], for: 1m}]\ngroup: {wait: 1s, every: 1s}")
		defer w.start("a")()
		w.after(20 * time.Second)
		j := w.job("backup", "")
		for _, late := range []time.Duration{50 * time.Second, 2 * time.Minute} {
			id := newID()
			_, err := w.store.Trigger(w.Context(), []store.TriggerItem{{ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Key: id.String(), Session: w.session.ID, Node: "n", Actor: "test"}})
			w.must(err)
			for range late / (10 * time.Second) {
				w.after(10 * time.Second)
				w.must(w.store.Renew(w.Context(), w.session.ID, store.Load{}))
			}
			a, _ := w.claimRun(j, id)
			w.after(5 * time.Second)
			_, err = w.store.Finish(w.Context(), w.session.ID, []store.Result{{Attempt: a, Outcome: job.OutcomeSucceeded}})
			w.must(err)
			w.after(10 * time.Second)
		}
		m := w.messages()
		if len(m) != 1 || m[0].message.Title != "default/backup started late" || m[0].message.Lines[0].Reason != "it started 2 min after it was due" {
			t.Errorf("the messages are %+v", m)
		}
	})
}

func TestAnExceededUsageIsReportedAtTheEndOfTheRun(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", "rules: [{events: [failed]}]\ngroup: {wait: 1s, every: 1s}")
		defer w.start("a")()
		w.after(20 * time.Second)
		docs, err := job.Decode("j.yaml", []byte("name: backup\nrun: echo\npolicy: {expect: {memory_below: 200MB, cpu_below: 30s}}"))
		w.must(err)
		list, err := w.store.PutJobs(w.Context(), []store.PutJob{{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "test"}})
		w.must(err)
		end := func(used job.Usage) {
			a, _ := w.claim(list[0])
			_, err = w.store.Finish(w.Context(), w.session.ID, []store.Result{{Attempt: a, Outcome: job.OutcomeSucceeded, Usage: used}})
			w.must(err)
			w.after(20 * time.Second)
		}
		end(job.Usage{CPUSeconds: 31, MemoryBytes: 210e6})
		w.want("without a rule", w.said(), "")
		w.channel("second", "rules: [{events: [unmet]}]\ngroup: {wait: 1s, every: 1s}")
		w.after(20 * time.Second)
		end(job.Usage{CPUSeconds: 29.9, MemoryBytes: 199e6})
		w.want("as expected", w.said(), "")
		end(job.Usage{CPUSeconds: 31, MemoryBytes: 210e6})
		m := w.messages()
		if len(m) != 1 || m[0].message.Title != "default/backup does not meet an expectation" ||
			m[0].message.Lines[0].Reason != "attempt 1 used 210.0 MB of memory, expected was less than 200.0 MB; attempt 1 used 31 s of processor time, expected was less than 30 s" {
			t.Errorf("the messages are %+v", m)
		}
	})
}

// end runs a job to an outcome.
func (w *world) end(j *store.Job, outcome job.Outcome, reason string) {
	w.Helper()
	w.must(w.store.Renew(w.Context(), w.session.ID, store.Load{}))
	id := newID()
	_, err := w.store.Trigger(w.Context(), []store.TriggerItem{{ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Key: id.String(), Session: w.session.ID, Node: "n", Actor: "test"}})
	w.must(err)
	a := store.Attempt{Job: j.Definition.UID, Run: id, Number: 1, Token: newID()}
	_, err = w.store.Claim(w.Context(), w.session.ID, []store.Attempt{a})
	w.must(err)
	_, err = w.store.Finish(w.Context(), w.session.ID, []store.Result{{Attempt: a, Outcome: outcome, Reason: job.Text(reason)}})
	w.must(err)
}

func (w *world) setDown(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = err
}

func (w *world) setAnswerIn(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answerIn = d
}

// messages returns the messages since the last call of said.
func (w *world) messages() []sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.got)
}

// after lets time pass.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// said returns the titles of new messages, with their times.
func (w *world) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, m := range w.got {
		list = append(list, fmt.Sprintf("%s %s", m.at, m.message.Title))
	}
	w.got = nil
	return strings.Join(list, "; ")
}

func (w *world) want(what, got, want string) {
	w.Helper()
	if got != want {
		w.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// left returns how many entries the feed still has for notifications.
func (w *world) left() int {
	list, err := w.store.Consumers(w.Context())
	w.must(err)
	for i := range list {
		if list[i].Name == notification.Consumer().Name {
			return list[i].Entries
		}
	}
	return -1
}

const all = "rules: [{events: [failed, recovered, missed, late, paused, node_lost]}]\n"

func TestAFailureTellsOutputAndSinceWhichVersionItFails(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", all+"group: {wait: 1s, every: 1s}")
		w.channel("brief", all+"output_lines: 0\ngroup: {wait: 1s, every: 1s}")
		defer w.start("a")()
		w.after(10 * time.Second)
		j := w.job("backup", "")
		w.end(j, job.OutcomeSucceeded, "")
		w.after(10 * time.Second)
		d := *j.Definition
		d.Description = "changed"
		_, err := w.store.PutJobs(w.Context(), []store.PutJob{{Definition: &d, IfVersion: store.AnyVersion, Actor: "test"}})
		w.must(err)
		told := func(want, brief string) {
			t.Helper()
			w.after(10 * time.Second)
			for _, m := range w.messages() {
				l := m.message.Lines[0]
				text := strings.Join(l.Output, "|")
				if f := l.Failing; f != nil {
					text += fmt.Sprintf(" since %s version %d, before %d", f.Since.Sub(began).Round(time.Second), f.Version, f.Before)
				}
				if want := map[string]string{"default/ops": want, "default/brief": brief}[m.message.Channel]; text != want {
					t.Errorf("%s tells %q, want %q", m.message.Channel, text, want)
				}
			}
			if n := len(w.messages()); n != 2 {
				t.Errorf("there are %d messages", n)
			}
			w.got = nil
		}
		w.end(j, job.OutcomeFailed, "exit status 3")
		told("the last 20 of attempt 1 since 20s version 2, before 1", " since 20s version 2, before 1")
		w.noOutput = true
		w.end(j, job.OutcomeFailed, "exit status 3")
		told(" since 20s version 2, before 1", " since 20s version 2, before 1")
		for range 40 { // none of the last ends is a success
			w.end(j, job.OutcomeFailed, "exit status 3")
		}
		told(" since 20s version 2, before 1", " since 20s version 2, before 1")
	})
}

func TestFailureAndRecoveryAreSentOnce(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", all)
		defer w.start("a")()
		w.after(20 * time.Second)
		j := w.job("backup", "")
		w.end(j, job.OutcomeFailed, "exit status 3")
		w.after(20 * time.Second)
		w.want("after a failure", w.said(), "32s default/backup failed")
		w.after(time.Hour)
		w.end(j, job.OutcomeSucceeded, "")
		w.after(time.Hour)
		if got := w.said(); !strings.HasSuffix(got, "default/backup has recovered") || strings.Contains(got, ";") {
			t.Errorf("after a success: %q", got)
		}
		if n := w.left(); n != 0 {
			t.Errorf("%d entries of the feed are left", n)
		}
		notes, err := w.store.Notes(t.Context(), notification.GroupNotes, "", 10)
		if err != nil || len(notes) != 0 {
			t.Errorf("%d groups are kept that are over, %v", len(notes), err)
		}
	})
}

func TestNothingRecoversWhileHistoryIsBehind(t *testing.T) {
	inTime(t, func(w *world) {
		setBehind := func(behind bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.behind = behind
		}
		w.channel("ops", all)
		defer w.start("a")()
		w.after(20 * time.Second)
		j := w.job("backup", "")
		w.end(j, job.OutcomeFailed, "exit status 3")
		w.after(time.Minute)
		w.want("after a failure", w.said(), "32s default/backup failed")
		w.end(j, job.OutcomeSucceeded, "") // like an old success whose later failures are not read
		setBehind(true)
		w.after(time.Hour)
		w.want("while history is behind", w.said(), "")
		setBehind(false)
		w.after(time.Hour)
		if got := w.said(); !strings.HasSuffix(got, "default/backup has recovered") {
			t.Errorf("after it has caught up: %q", got)
		}
	})
}

func TestEventsOfAGroupShareRateLimitedMessages(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", all+"group: {by: channel, wait: 30s, every: 10m}\n")
		defer w.start("a")()
		w.after(20 * time.Second)
		jobs := []*store.Job{w.job("a", ""), w.job("b", ""), w.job("c", "")}
		for _, j := range jobs {
			w.end(j, job.OutcomeFailed, "no network")
			w.after(5 * time.Second)
		}
		w.after(30 * time.Second)
		w.want("three jobs", w.said(), "52s 3 problems with 3 jobs or nodes")
		for range 4 {
			w.end(jobs[0], job.OutcomeFailed, "no network")
			w.after(time.Minute)
		}
		w.want("within ten minutes", w.said(), "")
		w.after(10 * time.Minute)
		got := w.messages()
		w.want("later failures", w.said(), "10m52s default/a failed")
		if len(got) == 1 && got[0].message.Lines[0].Count != 5 {
			t.Errorf("the message tells of %d failures, want 5", got[0].message.Lines[0].Count)
		}
	})
}

func TestServiceOutageOfAnHourLosesNothing(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", all)
		w.setDown(&notification.Failure{Err: errors.New("status 503")})
		defer w.start("a")()
		w.after(20 * time.Second)
		var jobs []*store.Job
		for n := range 20 {
			jobs = append(jobs, w.job(fmt.Sprintf("j%02d", n), ""))
		}
		for range 3 {
			for _, j := range jobs {
				w.end(j, job.OutcomeFailed, "exit status 1")
			}
			w.after(20 * time.Minute)
		}
		w.want("while it is away", w.said(), "")
		w.setDown(nil)
		w.after(20 * time.Minute)
		counts := map[string]int{}
		for _, m := range w.messages() {
			for _, l := range m.message.Lines {
				counts[l.Job] = l.Count
			}
		}
		for n := range 20 {
			if name := fmt.Sprintf("j%02d", n); counts[name] != 3 {
				t.Errorf("of %s %d failures were said, want 3", name, counts[name])
			}
		}
	})
}

func TestSlowServiceDelaysNoOther(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("slow", "rules: [{events: [failed], jobs: [slow]}]\n")
		w.channel("ops", "rules: [{events: [failed], jobs: [quick]}]\n")
		stop := w.start("a")
		w.after(20 * time.Second)
		w.setAnswerIn(10 * time.Minute)
		w.end(w.job("slow", ""), job.OutcomeFailed, "x")
		w.after(20 * time.Second)
		w.setAnswerIn(0)
		w.end(w.job("quick", ""), job.OutcomeFailed, "x")
		w.after(20 * time.Second)
		w.want("the quick one", w.said(), "52s default/quick failed")
		w.after(10 * time.Minute)
		w.want("the slow one", w.said(), "10m32s default/slow failed")
		stop()
	})
}

func TestRefusedMessagesWaitForAChangeOfTheChannel(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", all)
		w.setDown(&notification.Failure{Err: errors.New("status 404: no_service"), Refused: true})
		defer w.start("a")()
		w.after(20 * time.Second)
		w.end(w.job("a", ""), job.OutcomeFailed, "x")
		w.after(30 * time.Minute)
		w.setDown(nil)
		w.after(time.Minute)
		w.want("before it is changed", w.said(), "")
		w.channel("ops", all+"description: it has a new secret\n")
		w.after(10 * time.Second)
		w.want("after that", w.said(), "31m22s default/a failed")
	})
}

func TestMessagesRefusedForADayAreDroppedAndCounted(t *testing.T) {
	inTime(t, func(w *world) {
		c := w.channel("ops", "rules: [{events: [missed, failed]}]\n")
		w.setDown(&notification.Failure{Err: errors.New("status 400"), Refused: true})
		defer w.start("a")()
		w.after(20 * time.Second)
		w.end(w.job("a", ""), job.OutcomeFailed, "x")
		w.after(30 * time.Hour)
		notes, err := w.store.Notes(t.Context(), notification.ChannelNotes+c.UID.String(), "", 1)
		w.must(err)
		if len(notes) != 1 || !strings.Contains(string(notes[0].Text), `"given_up":1`) || !strings.Contains(string(notes[0].Text), `"failed":24`) {
			t.Errorf("the state of the channel is %s", notes[0].Text)
		}
	})
}

func TestQuietHoursAndTheirExceptions(t *testing.T) {
	inTime(t, func(w *world) { // it begins at midnight of January 1, 2000, UTC: 01:00 in Berlin
		w.channel("ops", `rules: [{events: [failed, node_lost]}]
zone: Europe/Berlin
quiet: [{from: "22:00", to: "07:00", except: [node_lost]}]
`)
		defer w.start("a")()
		w.after(20 * time.Second)
		w.end(w.job("a", ""), job.OutcomeFailed, "x")
		w.after(time.Hour)
		w.want("at night", w.said(), "")
		w.mu.Lock()
		w.lasting = notification.Lasting{Events: []notification.Event{{Kind: job.NoticeNodeLost, Node: "n7", Time: time.Now()}}}
		w.mu.Unlock()
		w.after(time.Minute)
		if got := w.said(); !strings.HasSuffix(got, "node n7 is silent") {
			t.Errorf("the exception is not said at night: %q", got)
		}
		w.after(5 * time.Hour)
		w.want("in the morning, at 07:00 in Berlin", w.said(), "6h0m0s default/a failed")
	})
}

func TestAMessageIsRepeatedUntilItIsAcknowledged(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", all+"repeat: 1h\n")
		defer w.start("a")()
		w.after(20 * time.Second)
		j := w.job("a", "")
		w.end(j, job.OutcomeFailed, "x")
		w.after(2*time.Hour + 30*time.Minute)
		ids := map[string]bool{}
		for _, m := range w.messages() {
			ids[m.message.ID] = true
		}
		if len(ids) != 3 {
			t.Errorf("%d different ids of three messages", len(ids))
		}
		w.want("before", w.said(), "32s default/a failed; 1h0m32s Still: default/a failed; 2h0m32s Still: default/a failed")
		notes, err := w.store.Notes(t.Context(), notification.GroupNotes, "", 1)
		w.must(err)
		notes[0].Text = []byte(strings.Replace(string(notes[0].Text), `{"id"`, `{"acked":"2000-01-01T02:30:00Z","acked_by":"wei","id"`, 1))
		_, err = w.store.PutNote(t.Context(), notes[0])
		w.must(err)
		w.after(5 * time.Hour)
		w.want("acknowledged", w.said(), "")
		w.end(j, job.OutcomeSucceeded, "")
		w.after(time.Minute)
		if got := w.said(); !strings.HasSuffix(got, "default/a has recovered") {
			t.Errorf("the end is not said: %q", got)
		}
	})
}

func TestRulesSelectByNameLabelAndFailuresInARow(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", `rules:
- {events: [failed], jobs: ["pay-*"], labels: {team: shop}}
- {events: [failing], in_a_row: 3}
`)
		defer w.start("a")()
		w.after(20 * time.Second)
		for _, j := range []*store.Job{w.job("pay-out", "team: shop"), w.job("pay-in", "team: other"), w.job("repay-x", "team: shop")} {
			w.end(j, job.OutcomeFailed, "x")
		}
		w.after(20 * time.Second)
		w.want("by name and label", w.said(), "32s default/pay-out failed")
		j := w.job("flaky", "")
		for _, outcome := range []job.Outcome{job.OutcomeFailed, job.OutcomeFailed, job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeFailed} {
			w.end(j, outcome, "x")
			w.after(20 * time.Second)
		}
		w.want("two in a row", w.said(), "")
		w.end(j, job.OutcomeTimedOut, "x")
		w.after(20 * time.Second)
		if got := w.said(); !strings.HasSuffix(got, "default/flaky failed 3 times in a row") {
			t.Errorf("three in a row are said as %q", got)
		}
	})
}

func TestLastMessageWithinTheLimitSummarizesTheRest(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", all+"limit: {messages: 3, per: 1h}\n")
		defer w.start("a")()
		w.after(20 * time.Second)
		for n := range 40 {
			w.end(w.job(fmt.Sprintf("j%02d", n), ""), job.OutcomeFailed, "x")
		}
		w.after(10 * time.Minute)
		if len(w.messages()) != 3 || len(w.messages()[2].message.Lines) != 38 {
			t.Errorf("%d messages: %s", len(w.messages()), w.said())
		}
	})
}

func TestTwoNodesDeliverOnceAndOneTakesOver(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", all+"group: {every: 1s}\n")
		stops := map[string]func(){"a": w.start("a"), "b": w.start("b")}
		w.after(30 * time.Second)
		j := w.job("a", "")
		w.end(j, job.OutcomeFailed, "x")
		w.after(time.Minute)
		if len(w.messages()) != 1 {
			t.Fatalf("two nodes have said %d messages, want 1", len(w.messages()))
		}
		first := w.messages()[0].node
		stops[first]()
		_ = w.said()
		w.end(j, job.OutcomeFailed, "x")
		w.after(time.Minute)
		if len(w.messages()) != 1 || w.messages()[0].node == first {
			t.Errorf("after node %s has stopped: %+v", first, w.messages())
		}
		for node, stop := range stops {
			if node != first {
				stop()
			}
		}
	})
}

// frozen is a store in which a node can no longer write its notes.
type frozen struct {
	store.Store
	mu  sync.Mutex
	off bool
}

func (f *frozen) PutNote(ctx context.Context, n store.Note) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.off {
		return 0, store.ErrAway
	}
	return f.Store.PutNote(ctx, n)
}

func TestCrashedDeliveryIsRepeatedUnderTheSameID(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", all)
		real := w.store
		f := &frozen{Store: real}
		w.store = f
		stop := w.start("a")
		w.after(20 * time.Second)
		w.setAnswerIn(5 * time.Second)
		w.end(w.job("a", ""), job.OutcomeFailed, "x")
		w.after(14 * time.Second) // during its delivery
		f.mu.Lock()
		f.off = true // the delivery cannot be recorded
		f.mu.Unlock()
		w.after(30 * time.Second)
		stop()
		w.store = real
		defer w.start("b")()
		w.after(time.Minute)
		if len(w.messages()) != 2 || w.messages()[0].message.ID != w.messages()[1].message.ID || w.messages()[1].node != "b" {
			t.Errorf("the message was said %d times, want twice under one id: %+v", len(w.messages()), w.messages())
		}
		_ = w.said()
		w.after(time.Hour)
		w.want("later", w.said(), "")
	})
}

func TestFeedEntryReadTwiceCountsOnce(t *testing.T) {
	c := (&job.Channel{Name: "ops", UID: job.ID{1}, Rules: []job.ChannelRule{{Events: []job.Notice{job.NoticeFailed}}}}).WithDefaults()
	e := notification.Event{Kind: job.NoticeFailed, Namespace: "default", Job: "a", Run: job.ID{7}, Attempt: 1, Lasting: true}
	g := notification.NewGroup(c, &e)
	if !g.Add(c, e, time.Unix(0, 0)) || g.Add(c, e, time.Unix(1, 0)) || g.Items[0].Count != 1 {
		t.Errorf("the group is %+v", g)
	}
}

func TestEndsAreKeptForAStoreWithoutServers(t *testing.T) {
	inTime(t, func(w *world) {
		keep := func() { w.Helper(); w.must(notify.KeepEnds(w.Context(), w.store, time.Now)) }
		keep()
		w.want("consumers without channels", fmt.Sprint(w.left()), "-1")
		w.channel("ops", all)
		stop := w.start("a")
		w.after(time.Minute)
		stop()
		j := w.job("a", "")
		w.end(j, job.OutcomeFailed, "exit status 1")
		w.want("entries of the feed", fmt.Sprint(w.left()), "1")
		for range 2 {
			keep()
			w.want("entries of the feed that are not kept", fmt.Sprint(w.left()), "0")
			list, err := w.store.Notes(w.Context(), notification.GroupNotes, "", 10)
			w.must(err)
			w.want("groups", fmt.Sprint(len(list)), "1")
		}
		defer w.start("b")()
		w.after(time.Minute)
		if got := w.messages(); len(got) != 1 {
			w.Errorf("the next server sends %d messages: %s", len(got), w.said())
		}
	})
}

func TestWithoutChannelsTheFeedHasNoConsumer(t *testing.T) {
	inTime(t, func(w *world) {
		defer w.start("a")()
		w.after(time.Minute)
		if n := w.left(); n != -1 {
			t.Errorf("the feed has a consumer with %d entries", n)
		}
		c := w.channel("ops", all)
		w.after(time.Minute)
		if n := w.left(); n != 0 {
			t.Errorf("with a channel the feed has %d entries for it, want 0", n)
		}
		w.must(w.store.DeleteDocument(t.Context(), job.KindChannel, "default/"+c.Name, store.AnyVersion, "test"))
		w.after(time.Minute)
		if n := w.left(); n != -1 {
			t.Errorf("without the channel the feed has a consumer with %d entries", n)
		}
	})
}

func TestEventsBeyondTheBoundAreCounted(t *testing.T) {
	inTime(t, func(w *world) {
		c := w.channel("ops", "rules: [{events: [failed]}]\n")
		w.setDown(&notification.Failure{Err: errors.New("status 503")})
		defer w.start("a")()
		w.after(20 * time.Second)
		for n := range 1010 {
			w.end(w.job(fmt.Sprintf("j%04d", n), ""), job.OutcomeFailed, "x")
		}
		w.after(time.Minute)
		notes, err := w.store.Notes(t.Context(), notification.ChannelNotes+c.UID.String(), "", 1)
		w.must(err)
		if len(notes) != 1 || !strings.Contains(string(notes[0].Text), `"dropped":10`) {
			t.Errorf("the state of the channel is %v", notes)
		}
	})
}

func TestLastingProblemsOfServerAndJobs(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", "rules: [{events: [late, recovered, node_lost]}]\ngroup: {every: 1s}\n")
		j := w.job("a", "")
		late := notification.Event{Kind: job.NoticeLate, Namespace: "default", Job: "a", UID: j.Definition.UID, Time: time.Now(), Text: job.Text("due 02:00")}
		lost := notification.Event{Kind: job.NoticeNodeLost, Node: "n2", Time: time.Now()}
		set := func(l notification.Lasting) {
			w.mu.Lock()
			defer w.mu.Unlock()
			l.Whole = slices.Concat(l.Whole, []job.Notice{job.NoticeLate, job.NoticeNodeLost})
			w.lasting = l
		}
		set(notification.Lasting{Events: []notification.Event{late, lost}})
		defer w.start("a")()
		w.after(time.Minute)
		if got := w.said(); !strings.Contains(got, "default/a is late") || !strings.Contains(got, "node n2 is silent") {
			t.Errorf("said: %q", got)
		}
		set(notification.Lasting{})
		w.after(time.Minute)
		if got := w.said(); !strings.HasSuffix(got, "default/a is no longer late") || strings.Contains(got, "n2") {
			t.Errorf("when the run has started and the node was forgotten: %q", got)
		}
		set(notification.Lasting{Live: map[string]bool{"n2": true}})
		w.after(time.Minute)
		if got := w.said(); !strings.HasSuffix(got, "node n2 is back") {
			t.Errorf("when the node is back: %q", got)
		}
	})
}

func TestApprovalsAreRequestedAndEndWithTheirAnswer(t *testing.T) {
	inTime(t, func(w *world) {
		w.channel("ops", "rules: [{events: [approval, recovered], for: 1m}]\ngroup: {every: 1s}\n")
		j := w.job("deploy", "")
		run := newID()
		asked := func(step string) notification.Event {
			return notification.Event{Kind: job.NoticeApproval, Namespace: "default", Job: "deploy", UID: j.Definition.UID, Run: run, Step: step, Time: time.Now(), Text: job.Text("step " + step + ": go on?")}
		}
		test, live := asked("test"), asked("live")
		set := func(events ...notification.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lasting = notification.Lasting{Events: events, Whole: []job.Notice{job.NoticeApproval}}
		}
		set(test, live)
		defer w.start("a")()
		w.after(30 * time.Second)
		if got := w.said(); got != "" {
			t.Errorf("before the minute of the rule is over: %q", got)
		}
		lines := func() (text string) {
			for _, m := range w.messages() {
				for _, line := range m.message.Lines {
					text += line.Text(time.UTC) + "\n"
				}
			}
			return text
		}
		w.after(2 * time.Minute)
		got := lines()
		for _, step := range []string{"test", "live"} {
			if strings.Count(got, "default/deploy waits for an approval: step "+step+": go on?") != 1 {
				t.Errorf("said of step %s: %q", step, got)
			}
		}
		set(live)
		w.after(time.Minute)
		if after := strings.TrimPrefix(lines(), got); strings.Count(after, "default/deploy has its answer") != 1 {
			t.Errorf("after one answer: %q", after)
		}
	})
}
