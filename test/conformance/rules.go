package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/job"
)

// rule is a rule of docs/worker-protocol.md with what plays it. A rule may have several cases, whose names
// have something behind a slash.
type rule struct {
	name string
	ends bool // the process ends in it
	// handlers is set for rules about handlers: belfry worker, which runs commands, has another answer.
	handlers bool
	play     func(t *trial)
}

var rules = []rule{
	{name: "join", handlers: true, play: joins},
	{name: "unknown-fields", play: func(t *trial) { // each answer has one
		t.begin()
		t.succeeds("unknown-fields", t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}}))
	}},
	{name: "version/refused", ends: true, play: func(t *trial) {
		t.spoil(first("join", 1000, refusalOf(http.StatusUpgradeRequired, client.TypeProtocol)))
		t.refusedStart("version", "this is the hint")
	}},
	{name: "version/unknown", ends: true, play: func(t *trial) {
		t.change(func() { t.protocol = 9 })
		t.refusedStart("version", "9")
	}},
	{name: "refused", ends: true, play: func(t *trial) {
		no := refusalOf(http.StatusUnauthorized, client.TypeUnauthenticated)
		t.spoil(func(string) *fault { return no })
		t.refusedStart("refused", "this is the hint")
	}},
	{name: "renew", play: renews},
	{name: "clock-ahead", play: func(t *trial) {
		t.change(func() { t.ahead = -time.Hour })
		t.begin()
		t.until("clock-ahead", "says that its clock is an hour ahead", func() bool {
			return len(t.loads) > 0 && abs(t.loads[len(t.loads)-1].ClockAhead-time.Hour.Milliseconds()) < 2000
		})
	}},
	{name: "due", play: starts},
	{name: "verdict", play: verdicts},
	{name: "capacity", play: func(t *trial) { // the server counts
		t.begin()
		var all []*run
		for range 3 * capacity {
			all = append(all, t.add(kind{handler: "sleep", params: map[string]any{"seconds": "0.2"}}))
		}
		for _, r := range all {
			t.succeeds("capacity", r)
		}
	}},
	{name: "claim-once", play: func(t *trial) { // the claim is granted, and its answer lost
		t.spoil(first("claims", 1, &fault{done: true}))
		t.begin()
		t.succeeds("claim-once", t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}}))
	}},
	{name: "taken-back", play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "context", params: map[string]any{"text": "old"}, dueIn: 3 * time.Second, change: func(r *run) { r.Kind = job.RunScheduled }})
		time.Sleep(1500 * time.Millisecond)
		t.change(func() {
			r.definition.Version++
			r.changed = t.now()
			r.document = json.RawMessage(strings.NewReplacer(`"old"`, `"new"`, `"version":1`, `"version":2`).Replace(string(r.document)))
			t.server.hints = append(t.server.hints, "jobs")
		})
		t.succeeds("taken-back", r)
		if out, _ := t.written(r); !strings.Contains(out, "new") {
			t.fail("taken-back: the run has the old definition: %s", out)
		}
	}},
	{name: "params", play: params},
	{name: "params/wrong", handlers: true, play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "echo", params: map[string]any{"text": "hi", "count": "many"}})
		t.until("params", "reports a run whose parameter is no number", func() bool { return r.State == job.StateDone })
		if res := t.first(r); res.Outcome != job.OutcomeFailed || !res.Permanent || !strings.Contains(res.Reason.String(), "count") || t.witnessed(r, "begin") != 0 {
			t.fail("params: count=many has the outcome %s, permanent %v, %q", res.Outcome, res.Permanent, res.Reason)
		}
	}},
	{name: "shards", play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "context", params: map[string]any{"text": "a"}, change: func(r *run) { r.Shard, r.Shards = 2, 5 }})
		whole := t.add(kind{handler: "context", params: map[string]any{"text": "a"}})
		for r, want := range map[*run]context{r: {Shard: 2, Shards: 5}, whole: {Shards: 1}} {
			t.succeeds("shards", r)
			if got := t.context(r); got.Shard != want.Shard || got.Shards != want.Shards {
				t.fail("shards: the handler has shard %d of %d, want %d of %d", got.Shard, got.Shards, want.Shard, want.Shards)
			}
		}
	}},
	{name: "timeout", play: func(t *trial) {
		t.begin()
		t.endsEarly("timeout", t.add(kind{handler: "sleep", params: map[string]any{"seconds": "60"}, policy: `{"timeout": "1s", "kill_grace": "1s"}`}), job.OutcomeTimedOut)
	}},
	{name: "fenced", play: fenced},
	{name: "unfenced", play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "7"}, policy: `{"kill_grace": "1s"}`, change: func(r *run) { r.LostAfter, r.Unfenced = 5000, true }})
		t.begun("unfenced", r)
		t.spoil(silent)
		time.Sleep(5 * time.Second)
		t.spoil(nil)
		t.succeeds("unfenced", r)
	}},
	{name: "cancel", play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "60"}})
		t.begun("cancel", r)
		t.change(func() {
			r.CancelBy, r.CancelReason = "ann", job.Text("wrong day")
			t.server.hints = append(t.server.hints, "cancels")
		})
		t.endsEarly("cancel", r, job.OutcomeCancelled)
	}},
	{name: "taken", play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "60"}})
		t.begun("taken", r)
		t.change(func() { r.hidden, r.refuse = true, true })
		t.until("taken", "ends an attempt that the store gave to another worker", func() bool { return t.witnessed(r, "end") > 0 })
	}},
	{name: "unknown", play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "3"}})
		t.begun("unknown", r)
		ghost := t.ghost()
		t.until("unknown", "gives an attempt back that it does not know", func() bool { return t.released[ghost] })
		t.succeeds("unknown", r)
	}},
	{name: "report", play: func(t *trial) {
		t.begin()
		began := time.Now().Add(-time.Second)
		r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "1"}})
		res := t.succeeds("report", r)
		if res.Started.Before(began) || res.Ended.Sub(res.Started) < 900*time.Millisecond {
			t.fail("report: the attempt slept a second and ran from %s to %s", res.Started, res.Ended)
		}
	}},
	{name: "failure", play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "fail", params: map[string]any{"text": "no rows for 星期二"}})
		if res := t.done("failure", r); res.Outcome != job.OutcomeFailed || !strings.Contains(res.Cause, "no rows for 星期二") || !t.commands && !strings.Contains(res.Reason.String(), "no rows for 星期二") {
			t.fail("failure: the outcome is %s, the reason %q, the cause %q", res.Outcome, res.Reason, res.Cause)
		}
	}},
	{name: "result-once/lost answer", play: func(t *trial) {
		t.spoil(first("results", 2, &fault{done: true}))
		t.begin()
		r := t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}})
		t.until("result-once", "repeats a result whose answer was lost", func() bool { return r.answered })
		t.succeeds("result-once", r)
	}},
	{name: "result-once/not accepted", play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}, change: func(r *run) { r.refuse = true }})
		t.succeeds("result-once", r)
		time.Sleep(6 * time.Second) // the server blames a repetition
	}},
	{name: "undecided", play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}, change: func(r *run) { r.undecided = 1 }})
		t.until("undecided", "reports an undecided result again", func() bool { return r.State == job.StateDone })
		t.succeeds("undecided", r)
	}},
	{name: "flow", handlers: true, play: flows},
	{name: "output", play: outputs},
	{name: "output-live", play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "60"}})
		t.until("output-live", "sends the output of a running attempt", func() bool { out, _ := r.output(); return strings.Contains(out, "sleeping") })
	}},
	{name: "output-bounded", play: func(t *trial) {
		t.begin()
		r := t.add(kind{handler: "echo", params: map[string]any{"text": strings.Repeat("0123456789", 3000), "count": "100"}})
		res := t.succeeds("output-bounded", r)
		out, errs := t.written(r)
		if kept := len(out) + len(errs); kept > outputMax*11/10 || kept < outputMax/3 || res.OutputBytes != 100*30001+5 || !strings.HasSuffix(errs, "oops\n") {
			t.fail("output-bounded: of 3,000,105 bytes %d are kept, the worker says that there were %d, and the end is %q", kept, res.OutputBytes, errs[max(0, len(errs)-20):])
		}
	}},
	{name: "secrets", handlers: true, play: secrets},
	{name: "secret-missing", handlers: true, play: func(t *trial) {
		t.change(func() {
			t.server.secrets = func() wire.Secrets { return wire.Secrets{Missing: "db_password", Near: "db_passwort"} }
		})
		t.begin()
		r := t.add(kind{handler: "secret", params: passwords})
		t.until("secret-missing", "reports an attempt whose secret is missing", func() bool { return r.State == job.StateDone })
		if res := t.first(r); res.Outcome != job.OutcomeFailed || !strings.Contains(res.Reason.String(), "db_password") || t.witnessed(r, "begin") > 0 {
			t.fail("secret-missing: the outcome is %s, %q", res.Outcome, res.Reason)
		}
	}},
	{name: "secret-problem", handlers: true, play: func(t *trial) {
		t.change(func() { t.server.secrets = func() wire.Secrets { return wire.Secrets{Problem: "the vault is sealed"} } })
		t.begin()
		r := t.add(kind{handler: "secret", params: passwords})
		t.until("secret-problem", "postpones an attempt whose secret cannot be read", func() bool { return r.State == job.StateDone })
		if res := t.first(r); !res.Postponed || t.count("secrets", time.Time{}) < 2 || t.witnessed(r, "begin") > 0 {
			t.fail("secret-problem: the worker has asked %d times; the result is postponed: %v", t.count("secrets", time.Time{}), res.Postponed)
		}
	}},
	{name: "drained", handlers: true, play: func(t *trial) { // belfry worker leaves it to the store to refuse its claims
		t.begin()
		t.change(func() { t.drain = &wire.Drain{Since: time.Now(), By: "ann", Reason: "new disk"} })
		time.Sleep(6 * time.Second)
		r := t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}})
		time.Sleep(2 * time.Second)
		if t.witnessed(r, "begin") > 0 {
			t.fail("drained: a drained worker starts a run")
		}
		t.change(func() { t.drain = nil })
		t.succeeds("drained", r)
	}},
	{name: "session-over", play: sessionOver},
	{name: "predecessors", play: func(t *trial) { // of another process on the directory, whose attempts this one does not know
		old := newID()
		t.change(func() { t.sessions, t.before = []job.ID{old}, []job.ID{old} })
		ghost := t.ghost()
		t.start()
		t.until("predecessors", "settles the attempts of an earlier session", func() bool { return t.released[ghost] || t.lost[ghost] != "" })
		if left := t.within(0, func() bool { return t.leaving[old] }); !left {
			t.fail("predecessors: the worker settles an earlier session without leaving it first")
		}
	}},
	{name: "restart", play: restarts},
	{name: "spool", play: spools},
	{name: "retries/500", play: unwell(&fault{status: 500, body: "oops"})},
	{name: "retries/503", play: unwell(&fault{status: 503, header: http.Header{"Content-Type": {"application/problem+json"}}, body: `{"type": "urn:belfry:problem:unavailable", "title": "the store is away", "status": 503}`})},
	{name: "retries/html", play: unwell(&fault{status: 404, header: http.Header{"Content-Type": {"text/html"}}, body: "<html>no such host</html>"})},
	{name: "retries/invalid JSON", play: unwell(&fault{status: 200, header: http.Header{"Content-Type": {"application/json"}}, body: `{"claims": [`})},
	{name: "retries/reset", play: unwell(&fault{})},
	{name: "retries/hang", play: func(t *trial) {
		t.spoil(first("claims", 1, &fault{delay: time.Minute}))
		t.begin()
		t.succeeds("retries", t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}}))
	}},
	{name: "retries/random", play: func(t *trial) { // a third of all calls are cut, before or after they are done
		random := rand.New(rand.NewPCG(1, 2))
		t.spoil(func(op string) *fault {
			if n := random.IntN(6); n < 2 {
				return &fault{done: n == 0}
			}
			return nil
		})
		t.begin()
		var all []*run
		for range 12 {
			all = append(all, t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}}))
		}
		for _, r := range all {
			t.succeeds("retries", r)
		}
	}},
	{name: "retry-after", handlers: true, play: func(t *trial) { // belfry worker tries another server instead
		t.spoil(first("claims", 1, &fault{status: 503, header: http.Header{"Retry-After": {"3"}}, body: "busy"}))
		t.begin()
		t.succeeds("retry-after", t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}}))
		var at []time.Time
		t.change(func() {
			for _, c := range t.calls {
				if c.op == "claims" {
					at = append(at, c.at)
				}
			}
		})
		if d := at[1].Sub(at[0]); d < 2900*time.Millisecond {
			t.fail("retry-after: the server asks for 3 s, and the worker repeats its claim after %s", d)
		}
	}},
	{name: "stop", ends: true, play: stops},
	{name: "stop/silent server", ends: true, play: func(t *trial) {
		t.begin()
		t.spoil(silent)
		time.Sleep(500 * time.Millisecond)
		t.signal(syscall.SIGTERM)
		t.ends(t.patience)
	}},
}

func abs(n int64) int64 { return max(n, -n) }

// refusalOf is the answer of a problem.
func refusalOf(status int, problem client.ProblemType) *fault {
	body, err := json.Marshal(client.Problem{Type: problem, Title: "it is refused", Status: status, Detail: "it is refused", Hint: "this is the hint"})
	if err != nil {
		panic(err) // it always encodes
	}
	return &fault{status: status, header: http.Header{"Content-Type": {"application/problem+json"}}, body: string(body)}
}

// refusedStart starts a worker that must end with an error that has a text.
func (t *trial) refusedStart(rule, text string) {
	t.start()
	if t.ends(t.patience) {
		t.fail("%s: the worker ends without an error", rule)
	}
	if !strings.Contains(t.said.String(), text) {
		t.fail("%s: the worker does not print %q", rule, text)
	}
}

func joins(t *trial) {
	t.begin()
	j := t.joins[0]
	has := map[string]bool{}
	for _, name := range j.Handlers {
		has[name] = true
	}
	for _, name := range []string{"echo", "fail", "sleep", "context", "sum", "secret"} {
		if !has[name] {
			t.fail("join: the worker has no handler %s: %v", name, j.Handlers)
		}
	}
	if !j.Only || j.Capacity != capacity || j.DataDir == "" {
		t.fail("join: the worker says handlers_only %v, capacity %d, directory %q", j.Only, j.Capacity, j.DataDir)
	}
}

func renews(t *trial) {
	t.begin()
	r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "60"}})
	t.begun("renew", r)
	began := time.Now()
	time.Sleep(9 * time.Second)
	if n := t.count("renew", began); n < 3 || n > 9 {
		t.fail("renew: the worker renews its session %d times in 9 s", n)
	}
	// A renewal without an answer does not keep it from the next.
	t.spoil(first("renew", 1, &fault{delay: time.Minute}))
	began = time.Now()
	time.Sleep(8 * time.Second)
	if n := t.count("renew", began); n < 2 {
		t.fail("renew: after a renewal without an answer there is none for 8 s")
	}
}

func starts(t *trial) {
	t.change(func() { t.ahead = time.Hour }) // the clock of the machine is wrong
	t.begin()
	r := t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}, dueIn: 2500 * time.Millisecond})
	due := time.Now().Add(2500 * time.Millisecond)
	t.begun("due", r)
	if late := time.Since(due); late < -100*time.Millisecond || late > 5*time.Second {
		t.fail("due: the run starts %s after it is due", late)
	}
	t.succeeds("due", r)
}

func verdicts(t *trial) {
	var never []*run
	for _, v := range []string{"taken", "gone", "late", "waiting", "skipped", "verdict-of-a-later-version"} {
		if t.commands && v == "verdict-of-a-later-version" {
			continue // belfry worker refuses the whole answer
		}
		never = append(never, t.add(kind{handler: "echo", params: map[string]any{"text": v}, change: func(r *run) { r.verdicts = []string{v} }}))
	}
	early := t.add(kind{handler: "echo", params: map[string]any{"text": "early"}, change: func(r *run) { r.verdicts = []string{"early", "early"} }})
	t.begin()
	t.succeeds("verdict", early)
	t.until("verdict", "claims each run", func() bool {
		for _, r := range never {
			if r.claims == 0 {
				return false
			}
		}
		return true
	})
	time.Sleep(time.Second)
	for _, r := range never {
		if t.witnessed(r, "begin") > 0 {
			t.fail("verdict: a run starts that was not granted")
		}
	}
}

// context is what the handler of that name prints.
type context struct {
	Run           string
	Attempt       int
	Shard, Shards int
	Params        map[string]any
}

func (t *trial) context(r *run) (c context) {
	out, _ := t.written(r)
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		t.fail("the handler context prints %q: %v", out, err)
	}
	return c
}

func params(t *trial) {
	t.begin()
	r := t.add(kind{handler: "context", params: map[string]any{"text": "default", "other": map[string]any{"default": "o"}}, change: func(r *run) {
		r.Params, r.Attempt = map[string]string{"text": "given 数据", "undeclared": "x"}, 3
	}})
	t.succeeds("params", r)
	c := t.context(r)
	if _, undeclared := c.Params["undeclared"]; undeclared || c.Params["text"] != "given 数据" || c.Attempt != 3 || c.Run != r.ID.String() || !t.commands && c.Params["other"] != "o" {
		t.fail("params: the handler has %+v", c)
	}
}

// endsEarly waits for an attempt that is asked to end.
func (t *trial) endsEarly(rule string, r *run, want job.Outcome) {
	res := t.done(rule, r)
	if t.witnessed(r, "end") == 0 {
		t.fail("%s: the attempt is reported before it has ended", rule)
	}
	if res.Outcome != want {
		t.fail("%s: the outcome is %s, %q, want %s", rule, res.Outcome, res.Reason, want)
	}
}

func fenced(t *trial) {
	t.begin()
	r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "60"}, policy: `{"kill_grace": "1s"}`, change: func(r *run) { r.LostAfter = 8000 }})
	t.begun("fenced", r)
	t.spoil(silent)
	end := time.Now().Add(8 * time.Second)
	if !t.within(time.Until(end), func() bool { return t.witnessed(r, "end") > 0 }) {
		t.fail("fenced: the attempt runs although it counts as lost: the worker has not renewed for 8 s")
	}
	t.spoil(nil)
	if res := t.done("fenced", r); res.Outcome == job.OutcomeSucceeded {
		t.fail("fenced: an attempt that was ended has succeeded")
	}
}

// ghost adds an attempt to the latest session, which the worker does not know.
func (t *trial) ghost() job.ID {
	g := wire.Run{ID: newID(), Job: newID(), Namespace: "default", Name: "ghost", Kind: job.RunByHand, State: job.StateRunning, Scheduled: t.now(), Due: t.now(), Attempt: 1, Token: newID(), LostAfter: lostAfter.Milliseconds()}
	t.change(func() { t.ghosts[t.latest()] = append(t.ghosts[t.latest()], g) })
	return g.Token
}

func flows(t *trial) {
	t.begin()
	r := t.add(kind{handler: "sum", params: map[string]any{"count": "40"}, change: func(r *run) {
		r.Kind, r.Key = job.RunStep, "after"
		r.steps = map[string]wire.Step{"before": {Outcome: job.OutcomeSucceeded, Attempt: 1, Result: []byte(`{"n": 1.5}`)}}
		r.item = []byte(`0.5`)
	}})
	res := t.succeeds("flow", r)
	var got map[string]float64
	if err := json.Unmarshal(res.Value, &got); err != nil || got["sum"] != 42 {
		t.fail("flow: the result of the step is %s, want {\"sum\": 42}", res.Value)
	}
}

func outputs(t *trial) {
	t.begin()
	text := "Zeile mit Umlauten äöü, 中文 and a tab\t."
	r := t.add(kind{handler: "echo", params: map[string]any{"text": text, "count": "1000"}})
	res := t.succeeds("output", r)
	out, errs := t.written(r)
	if want := strings.Repeat(text+"\n", 1000); out != want || errs != "oops\n" || res.OutputBytes != int64(len(want)+5) {
		t.fail("output: %d bytes of the standard output have arrived, want %d; of the standard error %q; output_bytes is %d", len(out), len(want), errs, res.OutputBytes)
	}
}

// passwords are the parameters of the handler secret.
var passwords = map[string]any{"password": map[string]any{"type": "secret", "values": []string{"db_password"}, "default": "db_password"}}

func secrets(t *trial) {
	t.change(func() {
		t.server.secrets = func() wire.Secrets { return wire.Secrets{Values: map[string]string{"db_password": "s3cret-s3cret"}} }
	})
	t.begin()
	r := t.add(kind{handler: "secret", params: passwords})
	res := t.succeeds("secrets", r)
	out, _ := t.written(r)
	if !strings.Contains(out, "length 13") {
		t.fail("secrets: the handler does not have the value: %q", out)
	}
	if all := fmt.Sprint(out, res.Reason, res.Cause, string(res.Value)); strings.Contains(all, "s3cret") || !strings.Contains(out, "***") {
		t.fail("secrets: the value is in the output or the result: %q", all)
	}
}

func sessionOver(t *trial) {
	t.begin()
	old := t.session()
	r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "60"}})
	t.begun("session-over", r)
	t.change(func() { t.over[old] = true })
	t.until("session-over", "begins another session", func() bool { return t.latest() != old })
	t.until("session-over", "ends the attempts of a session that is over", func() bool { return t.witnessed(r, "end") > 0 })
	present := t.session()
	next := t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}, change: func(r *run) { r.session = present }})
	t.succeeds("session-over", next)
}

func restarts(t *trial) {
	t.begin()
	old := t.session()
	r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "60"}})
	t.begun("restart", r)
	t.signal(syscall.SIGKILL)
	t.ends(t.patience)
	t.change(func() { t.before = []job.ID{old} })
	ghost := t.ghost() // it was granted, and the process was killed before it had the answer
	t.start()
	t.until("restart", "settles what a process that was killed has left", func() bool { return r.State == job.StateDone && t.released[ghost] })
	if res := t.done("restart", r); res.Outcome != job.OutcomeLost {
		t.fail("restart: an attempt whose process was killed has the outcome %s", res.Outcome)
	}
	if first, second := t.joins[0], t.joins[len(t.joins)-1]; first.Machine != second.Machine || first.DataDir != second.DataDir {
		t.fail("restart: the second process is another machine or has another directory: %+v, %+v", first, second)
	}
}

func spools(t *trial) {
	t.begin()
	old := t.session()
	r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "2"}})
	t.begun("spool", r)
	t.spoil(silent)
	t.until("spool", "ends the attempt", func() bool { return t.witnessed(r, "end") > 0 })
	time.Sleep(time.Second)
	t.signal(syscall.SIGTERM)
	t.ends(t.patience)
	t.change(func() {
		t.faults, t.before = nil, []job.ID{old}
	})
	t.start()
	t.succeeds("spool", r)
}

// hurry is how many calls of one kind in a second are too many: waits that double make fewer, and a
// worker on a busy machine that does not wait makes more.
const hurry = 8

// unwell plays a server that is unwell for some seconds, at the start, in the middle and at a report.
func unwell(f *fault) func(t *trial) {
	all := func(string) *fault { return f }
	return func(t *trial) {
		t.spoil(all)
		t.start()
		time.Sleep(time.Second)
		t.spoil(nil)
		if !t.within(patient, func() bool { return len(t.sessions) > 0 }) {
			t.fail("retries: the worker never begins a session")
		}
		r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "1"}})
		t.begun("retries", r)
		t.spoil(all)
		began := time.Now()
		time.Sleep(3 * time.Second)
		t.mu.Lock()
		at := map[string][]time.Time{}
		for _, c := range t.calls {
			if c.at.After(began) {
				at[c.op] = append(at[c.op], c.at)
			}
		}
		t.mu.Unlock()
		for op, list := range at {
			for i := hurry - 1; i < len(list); i++ {
				if took := list[i].Sub(list[i-hurry+1]); took < time.Second {
					t.fail("retries: the worker makes %d calls of %s in %s to a server that is unwell", hurry, op, took)
					break
				}
			}
		}
		t.spoil(nil)
		t.succeeds("retries", r)
		t.succeeds("retries", t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}}))
	}
}

// session returns the latest session.
func (t *trial) session() job.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest()
}

// first returns the first result of a run.
func (t *trial) first(r *run) wire.Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.results[0]
}

func stops(t *trial) {
	t.begin()
	r := t.add(kind{handler: "sleep", params: map[string]any{"seconds": "4"}})
	t.begun("stop", r)
	t.signal(syscall.SIGTERM)
	t.until("stop", "leaves", func() bool { return t.leaving[t.latest()] })
	late := t.add(kind{handler: "echo", params: map[string]any{"text": "hi"}})
	t.succeeds("stop", r)
	t.until("stop", "ends its session", func() bool { return t.over[t.latest()] })
	if !t.ends(t.patience) {
		t.fail("stop: the process ends with %v", t.exit)
	}
	if t.witnessed(late, "begin") > 0 {
		t.fail("stop: a run starts after the worker has left")
	}
}
