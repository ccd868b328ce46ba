package main

import (
	"bytes"
	"compress/flate"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/job"
)

const (
	// token is the token of every worker.
	token = "belfry_conformance"
	// listMax is the most attempts, results or jobs in a request.
	listMax = 500
	// callsMax is the most calls in a second: a worker of at most four attempts that makes more does not wait.
	callsMax = 60
	// outputMax is the most output of an attempt.
	outputMax = 1 << 20
	// recordsMax is the most records of a chunk.
	recordsMax = 64 << 10
	// claimAhead is how long before it is due a run can be claimed.
	claimAhead = 2 * time.Second
)

// call is a call of the worker.
type call struct {
	op      string // join, renew, leave, end, members, ready, claims …
	at      time.Time
	session job.ID
	body    []byte
	status  int
}

// fault is what goes wrong with a call.
type fault struct {
	done   bool          // it is done, and the answer is lost
	delay  time.Duration // before anything else
	status int           // the answer; 0 cuts the connection
	header http.Header
	body   string
}

// run is a run and what the worker did with it.
type run struct {
	wire.Run
	definition *job.Job
	document   json.RawMessage
	verdicts   []string // the answers to its first claims
	session    job.ID   // that it is assigned to; of any, if zero
	steps      map[string]wire.Step
	item       []byte
	hidden     bool // the store does not have it any more
	refuse     bool // its result is not accepted
	undecided  int  // how often its result is not decided
	changed    time.Time

	claims, releases int
	tokens           map[job.ID]bool
	results          []wire.Result
	answered         bool
	chunks           []wire.Chunk
	began            time.Time // when the claim was granted
}

// server plays a server to a worker.
type server struct {
	mu       sync.Mutex
	news     chan struct{} // closed at each change
	ahead    time.Duration // of the clock of the store
	runs     []*run
	calls    []call
	wrong    []string
	sessions []job.ID // the latest is the last
	over     map[job.ID]bool
	leaving  map[job.ID]bool
	joins    []wire.Join
	loads    []wire.Load
	hints    []string
	protocol int                    // the version in the answer to a join
	before   []job.ID               // predecessors of the next session
	ghosts   map[job.ID][]wire.Run  // attempts of sessions that the worker does not know
	released map[job.ID]bool        // their tokens
	lost     map[job.ID]job.Outcome // likewise
	drain    *wire.Drain
	secrets  func() wire.Secrets
	faults   func(op string) *fault // nil: no fault
}

func newServer() *server {
	return &server{
		news: make(chan struct{}), over: map[job.ID]bool{}, leaving: map[job.ID]bool{}, protocol: 1,
		ghosts: map[job.ID][]wire.Run{}, released: map[job.ID]bool{}, lost: map[job.ID]job.Outcome{},
	}
}

func newID() job.ID {
	id, err := job.NewID(time.Now(), rand.Reader)
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return id
}

// now is the clock of the store.
func (s *server) now() time.Time { return time.Now().Add(s.ahead).UTC() }

// change changes the server, and wakes what waits for that.
func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.news)
	s.news = make(chan struct{})
}

// blame notes a mistake of the worker. The mutex is held.
func (s *server) blame(rule, format string, args ...any) {
	s.wrong = append(s.wrong, rule+": "+fmt.Sprintf(format, args...))
}

// refusal is an answer without success.
type refusal struct {
	status  int
	problem client.ProblemType
	detail  string
}

func (r *refusal) Error() string { return r.detail }

func refuse(status int, problem client.ProblemType, format string, args ...any) error {
	return &refusal{status, problem, fmt.Sprintf(format, args...)}
}

// ServeHTTP implements [http.Handler].
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, wire.BodyMax+1))
	if err != nil {
		return // the worker has cut the connection
	}
	op, session := opOf(r)
	s.mu.Lock()
	at := len(s.calls)
	s.calls = append(s.calls, call{op: op, at: time.Now(), session: session, body: body})
	var f *fault
	if s.faults != nil {
		f = s.faults(op)
	}
	s.mu.Unlock()
	if f != nil && f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-r.Context().Done():
			return
		}
	}
	if f != nil && !f.done && (f.status != 0 || f.delay == 0) {
		s.spoil(w, f)
		return
	}
	var answer any
	if op == "hints" {
		s.await(r)
	}
	s.change(func() {
		s.check(r, op, body)
		answer, err = s.answer(r, op, session, body)
		s.calls[at].status = http.StatusOK
		var no *refusal
		if errors.As(err, &no) {
			s.calls[at].status = no.status
		}
		if op == "results" && err == nil && f == nil {
			s.acknowledge(body)
		}
	})
	switch {
	case f != nil && f.done:
		s.spoil(w, f)
	case err != nil:
		var no *refusal
		if !errors.As(err, &no) {
			no = &refusal{http.StatusInternalServerError, client.TypeInternal, err.Error()}
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(no.status)
		_ = json.NewEncoder(w).Encode(client.Problem{Type: no.problem, Title: no.detail, Status: no.status, Detail: no.detail, Hint: "this is the hint"}) // the worker may be gone
	case answer == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(withUnknown(answer)) // the worker may be gone
	}
}

// withUnknown encodes an answer with a field that no version has.
func withUnknown(answer any) []byte {
	data, err := json.Marshal(answer)
	if err != nil {
		panic(err) // messages always encode
	}
	return append([]byte(`{"field_of_a_later_version": {"a": [1, null]}, `), data[1:]...)
}

// spoil gives the answer of a fault.
func (s *server) spoil(w http.ResponseWriter, f *fault) {
	if f.status == 0 {
		panic(http.ErrAbortHandler) // cuts the connection
	}
	for name, values := range f.header {
		w.Header()[name] = values
	}
	w.WriteHeader(f.status)
	_, _ = io.WriteString(w, f.body) // the worker may be gone
}

// opOf returns the name of a call, and its session.
func opOf(r *http.Request) (op string, session job.ID) {
	path, ok := strings.CutPrefix(r.URL.Path, "/api/v1/worker/")
	if !ok {
		return r.Method + " " + r.URL.Path, session
	}
	parts := strings.Split(path, "/")
	switch {
	case parts[0] != "sessions":
		return parts[0], session
	case len(parts) == 1:
		return "join", session
	}
	_ = session.UnmarshalText([]byte(parts[1])) // a wrong one is no session
	if len(parts) == 2 {
		return "end", session
	}
	return parts[2], session
}

// methods are the methods of calls that are not POST.
var methods = map[string]string{"end": "DELETE", "members": "GET", "hints": "GET", "ready": "GET", "runs": "GET", "clock": "GET", "calendars": "GET"}

// check looks at what all calls have in common.
func (s *server) check(r *http.Request, op string, body []byte) {
	if r.Header.Get("Authorization") != "Bearer "+token {
		s.blame("join", "%s has the header Authorization: %s", op, r.Header.Get("Authorization"))
	}
	if len(body) > 0 && !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		s.blame("join", "%s has the content type %s, not application/json", op, r.Header.Get("Content-Type"))
	}
	if len(body) > wire.BodyMax {
		s.blame("output", "the body of %s has more than 4 MiB", op)
	}
	second := time.Now().Add(-time.Second)
	n := 0
	for i := len(s.calls) - 1; i >= 0 && s.calls[i].at.After(second); i-- {
		n++
	}
	if n > callsMax {
		s.blame("retries", "the worker makes %d calls in a second", n)
	}
}

// read decodes a body strictly.
func (s *server) read(op string, body []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		s.blame("unknown-fields", "the body of %s: %v: %.300s", op, err, body)
		return refuse(http.StatusUnprocessableEntity, client.TypeInvalid, "%v", err)
	}
	return nil
}

func (s *server) latest() (session job.ID) {
	if len(s.sessions) > 0 {
		session = s.sessions[len(s.sessions)-1]
	}
	return session
}

func (s *server) knows(session job.ID) bool {
	for _, one := range s.sessions {
		if one == session {
			return true
		}
	}
	return false
}

// answer answers a call. The mutex is held.
func (s *server) answer(r *http.Request, op string, session job.ID, body []byte) (any, error) {
	if want := methods[op]; r.Method != want && (want != "" || r.Method != http.MethodPost) {
		s.blame("join", "the worker calls %s %s", r.Method, r.URL.Path)
		return nil, refuse(http.StatusMethodNotAllowed, client.TypeMalformed, "no such method")
	}
	if !session.IsZero() {
		late := op == "results" || op == "releases"
		if !late && (!s.knows(session) || s.over[session]) {
			return nil, refuse(http.StatusGone, client.TypeSessionOver, "the session is over")
		}
	}
	switch op {
	case "join":
		return s.join(body)
	case "renew":
		var load wire.Load
		if err := s.read(op, body, &load); err != nil {
			return nil, err
		}
		s.loads = append(s.loads, load)
		return nil, nil
	case "leave":
		s.leaving[session] = true
		return nil, nil
	case "end":
		s.end(session)
		return nil, nil
	case "members":
		member := wire.Member{ID: session, Node: s.joins[len(s.joins)-1].Node, Roles: []string{"handlers", "role-of-a-later-version"}, Joined: s.now(), Renewed: s.now(), Drain: s.drain, Leaving: s.leaving[session]}
		return wire.Members{Now: s.now(), Sessions: []wire.Member{{ID: newID(), Roles: []string{"planner"}, Joined: s.now(), Renewed: s.now()}, member}}, nil
	case "hints":
		after := s.place(r)
		list := s.hints[min(max(after, 0), len(s.hints)):]
		if after < 0 {
			list = []string{"jobs", "runs", "cancels", "placed", "nodes", "lost"}
		}
		return wire.Hints{Place: fmt.Sprintf("p-%d", len(s.hints)), Hints: append([]string{"hint-of-a-later-version"}, list...)}, nil
	case "ready":
		return s.ready(r, session)
	case "claims":
		var attempts wire.Attempts
		if err := s.read(op, body, &attempts); err != nil {
			return nil, err
		}
		return s.claim(session, attempts.Attempts)
	case "releases":
		var attempts wire.Attempts
		if err := s.read(op, body, &attempts); err != nil {
			return nil, err
		}
		s.release(attempts.Attempts)
		return nil, nil
	case "results":
		var results wire.Results
		if err := s.read(op, body, &results); err != nil {
			return nil, err
		}
		return s.finish(results.Results)
	case "runs":
		return s.mine(session), nil
	case "output":
		var output wire.Output
		if err := s.read(op, body, &output); err != nil {
			return nil, err
		}
		for i := range output.Chunks {
			s.chunk(&output.Chunks[i])
		}
		return nil, nil
	case "secrets":
		var of wire.SecretsOf
		if err := s.read(op, body, &of); err != nil {
			return nil, err
		}
		if r := s.byToken(of.Attempt.Token); r == nil || r.State != job.StateRunning {
			s.blame("secrets", "the worker asks for secrets of an attempt that it did not claim")
			return wire.Secrets{Problem: "the session does not run the attempt"}, nil
		}
		return s.secrets(), nil
	}
	return s.rest(op, body)
}

// end ends a session, whose attempts must have results.
func (s *server) end(session job.ID) {
	for _, r := range s.runs {
		if r.State == job.StateRunning && r.session == session {
			s.blame("stop", "the session ends while its attempt of the run %s has no result", r.ID)
		}
	}
	s.over[session] = true
}

// mine returns the runs that a session has claimed.
func (s *server) mine(session job.ID) wire.Mine {
	mine := wire.Mine{Runs: append([]wire.Run{}, s.ghosts[session]...)}
	for _, r := range s.runs {
		if r.State == job.StateRunning && r.session == session && !r.hidden {
			mine.Runs = append(mine.Runs, r.Run)
		}
	}
	return mine
}

// rest answers what belfry worker calls besides.
func (s *server) rest(op string, body []byte) (any, error) {
	switch op {
	case "clock":
		return wire.Clock{Now: s.now()}, nil
	case "calendars":
		return wire.Calendars{Calendars: []wire.Document{}}, nil
	case "overdue":
		return wire.Runs{Runs: []wire.Ready{}}, nil
	case "boot":
		return nil, nil
	case "over":
		return wire.RunIDs{Runs: []job.ID{}}, nil
	case "versions":
		var jobs wire.Jobs
		if err := s.read(op, body, &jobs); err != nil {
			return nil, err
		}
		versions := wire.Versions{Versions: []wire.Version{}}
		for _, uid := range jobs.Jobs {
			v := wire.Version{Job: uid, Deleted: true}
			for _, r := range s.runs {
				if r.Job == uid {
					v = wire.Version{Job: uid, Version: r.definition.Version, Changed: r.changed}
				}
			}
			versions.Versions = append(versions.Versions, v)
		}
		return versions, nil
	}
	s.blame("join", "there is no call %s", op)
	return nil, refuse(http.StatusNotFound, client.TypeNotFound, "there is no call %s", op)
}

func (s *server) join(body []byte) (any, error) {
	var j wire.Join
	if err := s.read("join", body, &j); err != nil {
		return nil, err
	}
	switch {
	case j.Session.IsZero() || j.Node == "" || j.Machine == "" || j.Capacity < 1:
		s.blame("join", "session, node, machine or capacity is missing: %s", body)
	case j.Oldest > 1 || j.Newest < 1:
		s.blame("version", "the worker does not speak version 1: %s", body)
	case s.over[j.Session]:
		s.blame("session-over", "the worker begins a session with the identity of one that is over")
		return nil, refuse(http.StatusGone, client.TypeSessionOver, "the session is over")
	}
	s.joins = append(s.joins, j)
	if !s.knows(j.Session) {
		s.sessions = append(s.sessions, j.Session)
	}
	predecessors := s.before
	if predecessors == nil {
		predecessors = []job.ID{}
	}
	return wire.Joined{Protocol: s.protocol, Now: s.now(), Predecessors: predecessors}, nil
}

// place returns the place after which the worker wants hints; -1 for all.
func (s *server) place(r *http.Request) int {
	name, number, _ := strings.Cut(r.URL.Query().Get("after"), "-")
	after, err := strconv.Atoi(number)
	if name != "p" || err != nil {
		return -1
	}
	return after
}

// await waits for hints.
func (s *server) await(r *http.Request) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("wait"))
	if err != nil || seconds > int(wire.WaitMax/time.Second) {
		seconds = int(wire.WaitMax / time.Second)
	}
	end := time.After(time.Duration(seconds) * time.Second)
	for {
		s.mu.Lock()
		after, n, news := s.place(r), len(s.hints), s.news
		_, session := opOf(r)
		gone := s.over[session]
		s.mu.Unlock()
		if after < 0 || n > after || gone {
			return
		}
		select {
		case <-news:
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *server) ready(r *http.Request, session job.ID) (any, error) {
	until := s.now()
	if text := r.URL.Query().Get("until"); text != "" {
		var err error
		if until, err = time.Parse(time.RFC3339Nano, text); err != nil {
			s.blame("join", "until=%s is no moment of RFC 3339", text)
			return nil, refuse(http.StatusUnprocessableEntity, client.TypeInvalid, "until: %v", err)
		}
	}
	list := wire.Runs{Runs: []wire.Ready{}}
	for _, one := range s.runs {
		if one.State == job.StateReady && !one.Due.After(until) && (one.session.IsZero() || one.session == session) && !s.leaving[session] {
			list.Runs = append(list.Runs, wire.Ready{ID: one.ID, Due: one.Due, Job: one.Job, Session: session, Attempt: one.Attempt})
		}
	}
	return list, nil
}

func (s *server) byID(id job.ID) *run {
	for _, r := range s.runs {
		if r.ID == id {
			return r
		}
	}
	return nil
}

func (s *server) byToken(token job.ID) *run {
	for _, r := range s.runs {
		if r.tokens[token] {
			return r
		}
	}
	return nil
}

func (s *server) claim(session job.ID, attempts []wire.Attempt) (any, error) {
	if len(attempts) == 0 || len(attempts) > listMax {
		s.blame("capacity", "the worker claims %d attempts at once", len(attempts))
	}
	if s.leaving[session] {
		s.blame("stop", "the worker claims after it has left")
	}
	if s.drain != nil && time.Since(s.drain.Since) > 5*time.Second {
		s.blame("drained", "the worker claims while its node is drained")
	}
	claims := wire.Claims{Claims: []wire.Claim{}}
	for _, a := range attempts {
		r := s.byID(a.Run)
		if other := s.byToken(a.Token); a.Token.IsZero() || other != nil && (other != r || r.Attempt != a.Number) {
			s.blame("claim-once", "the token %s is that of another attempt", a.Token)
		}
		if r == nil {
			s.blame("claim-once", "the worker claims a run that it was not given")
			claims.Claims = append(claims.Claims, wire.Claim{Verdict: "gone", Now: s.now()})
			continue
		}
		r.claims++
		c := wire.Claim{Verdict: "taken", Now: s.now()}
		switch {
		case r.State == job.StateRunning && r.Token == a.Token, r.State == job.StateReady && len(r.verdicts) == 0 && r.Attempt == a.Number && !r.Due.After(s.now().Add(claimAhead)):
			if r.State == job.StateReady {
				r.began = time.Now()
			}
			r.State, r.Token, r.session, r.Claimed = job.StateRunning, a.Token, session, s.now()
			r.Version = r.definition.Version
			r.tokens[a.Token] = true
			present := r.Run
			c = wire.Claim{Verdict: "started", Now: s.now(), Job: wire.Document{RawMessage: r.document}, Epoch: 1, Changed: r.changed, Steps: r.steps, Item: r.item, Run: &present}
		case r.State == job.StateReady && len(r.verdicts) > 0:
			c.Verdict, r.verdicts = r.verdicts[0], r.verdicts[1:]
			if c.Verdict != "early" {
				r.State = job.StateWaiting
			}
		case r.State == job.StateReady:
			c.Verdict = "early"
		}
		claims.Claims = append(claims.Claims, c)
	}
	held := 0
	for _, r := range s.runs {
		if r.State == job.StateRunning && r.session == session {
			held++
		}
	}
	if most := s.joins[len(s.joins)-1].Capacity; held > most {
		s.blame("capacity", "%d attempts are claimed and not reported, and the capacity is %d", held, most)
	}
	return claims, nil
}

func (s *server) release(attempts []wire.Attempt) {
	for _, a := range attempts {
		s.released[a.Token] = true
		for session, list := range s.ghosts {
			for i := range list {
				if list[i].Token == a.Token {
					s.ghosts[session] = append(list[:i:i], list[i+1:]...)
					break
				}
			}
		}
		if r := s.byToken(a.Token); r != nil && r.State == job.StateRunning && r.Token == a.Token {
			r.State, r.Token = job.StateReady, job.ID{}
			r.releases++
		}
	}
}

func (s *server) finish(results []wire.Result) (any, error) {
	if len(results) == 0 || len(results) > listMax {
		s.blame("report", "the worker reports %d results at once", len(results))
	}
	finished := wire.Finished{Results: []wire.Accepted{}}
	for i := range results {
		res := &results[i]
		if isGhost(s.ghosts, res.Token) {
			s.lost[res.Token] = res.Outcome
			finished.Results = append(finished.Results, wire.Accepted{Accepted: true})
			continue
		}
		r := s.byToken(res.Token)
		switch {
		case r == nil || r.ID != res.Run || r.Attempt != res.Number || r.Job != res.Job:
			s.blame("report", "a result has the token %s, run %s, attempt %d, job %s, which is no claim", res.Token, res.Run, res.Number, res.Job)
			finished.Results = append(finished.Results, wire.Accepted{})
			continue
		case r.answered:
			s.blame("result-once", "the result of the run %s was answered and is sent again", r.ID)
		case res.Outcome == "" || !isOutcome(res.Outcome):
			s.blame("report", "the outcome is %q", res.Outcome)
		case res.Ended.Before(res.Started):
			s.blame("report", "the attempt has ended at %s, before it started at %s", res.Ended, res.Started)
		case res.Value != nil && (!json.Valid(res.Value) || len(res.Value) > job.ResultMax):
			s.blame("flow", "the value is no JSON of at most %d bytes: %.100s", job.ResultMax, res.Value)
		case len(r.results) > 0 && (r.results[0].Outcome != res.Outcome || r.results[0].Reason != res.Reason):
			s.blame("result-once", "a repeated result is another one: %s, then %s", r.results[0].Outcome, res.Outcome)
		}
		for k := range res.Output {
			s.chunk(&res.Output[k])
		}
		r.results = append(r.results, *res)
		if r.undecided > 0 {
			r.undecided--
			finished.Results = append(finished.Results, wire.Accepted{Undecided: true})
			continue
		}
		r.State = job.StateDone
		finished.Results = append(finished.Results, wire.Accepted{Accepted: !r.refuse})
	}
	return finished, nil
}

// acknowledge notes which results were answered: an answer that was lost is none.
func (s *server) acknowledge(body []byte) {
	var all wire.Results
	_ = json.Unmarshal(body, &all) // it was read before
	for i := range all.Results {
		if r := s.byToken(all.Results[i].Token); r != nil && r.State == job.StateDone {
			r.answered = true
		}
	}
}

func isGhost(ghosts map[job.ID][]wire.Run, token job.ID) bool {
	for _, list := range ghosts {
		for i := range list {
			if list[i].Token == token {
				return true
			}
		}
	}
	return false
}

func isOutcome(o job.Outcome) bool {
	switch o {
	case job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeTimedOut, job.OutcomeCancelled, job.OutcomeLost:
		return true
	}
	return false
}

// chunk keeps a chunk of output.
func (s *server) chunk(c *wire.Chunk) {
	r := s.byID(c.Run)
	if r == nil || c.Attempt != r.Attempt {
		s.blame("output", "a chunk is of the run %s, attempt %d, which is no claim", c.Run, c.Attempt)
		return
	}
	for i := range r.chunks {
		if old := &r.chunks[i]; old.Seq == c.Seq {
			if !bytes.Equal(old.Data, c.Data) || old.Offset != c.Offset {
				s.blame("output", "chunk %d was sent before with other data", c.Seq)
			}
			return
		}
	}
	if n := len(r.chunks); n > 0 {
		if last := &r.chunks[n-1]; c.Seq < last.Seq || c.Offset < last.Offset+int64(last.Bytes) {
			s.blame("output", "chunk %d at offset %d follows chunk %d, which ends at %d", c.Seq, c.Offset, last.Seq, last.Offset+int64(last.Bytes))
		}
	} else if c.Seq != 0 || c.Offset != 0 {
		s.blame("output", "the first chunk has the number %d and the offset %d", c.Seq, c.Offset)
	}
	stdout, stderr, err := records(c.Data)
	if err != nil || len(stdout)+len(stderr) != c.Bytes {
		s.blame("output", "the data of chunk %d: %v; it has %d bytes of output and says %d", c.Seq, err, len(stdout)+len(stderr), c.Bytes)
	}
	r.chunks = append(r.chunks, *c)
}

// output returns what a run has written.
func (r *run) output() (stdout, stderr string) {
	for i := range r.chunks {
		out, errs, _ := records(r.chunks[i].Data) // a wrong one was blamed
		stdout, stderr = stdout+string(out), stderr+string(errs)
	}
	return stdout, stderr
}

// records reads the records of a chunk.
func records(data []byte) (stdout, stderr []byte, err error) {
	if len(data) == 0 {
		return nil, nil, errors.New("it is empty")
	}
	codec, data := data[0], data[1:]
	if codec == 1 {
		if data, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), recordsMax+1)); err != nil {
			return nil, nil, err
		}
	} else if codec != 0 {
		return nil, nil, fmt.Errorf("it begins with %d", codec)
	}
	if len(data) > recordsMax {
		return nil, nil, fmt.Errorf("it has %d bytes of records", len(data))
	}
	for len(data) > 0 {
		mark, n := binary.Uvarint(data)
		if n <= 0 || len(data) < n+2 {
			return stdout, stderr, errors.New("a record is cut off")
		}
		size := int(binary.LittleEndian.Uint16(data[n:]))
		if data = data[n+2:]; len(data) < size {
			return stdout, stderr, errors.New("a record is cut off")
		}
		if mark&1 == 0 {
			stdout = append(stdout, data[:size]...)
		} else {
			stderr = append(stderr, data[:size]...)
		}
		data = data[size:]
	}
	return stdout, stderr, nil
}
