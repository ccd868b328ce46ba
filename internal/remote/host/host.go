// Package host answers workers without a store: it is the server's side of package remote.
package host

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/sys/cache"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is the part of a store that workers without a store use.
type Store interface {
	work.Backing
	PutToken(ctx context.Context, p store.PutToken) (store.Token, error)
	JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error)
}

// Config configures the answers to workers.
type Config struct {
	Store   Store
	Tokens  service.Tokens
	Secrets *secret.Keeper
	// Followers learn of the output that workers send. Default: nobody.
	Followers *service.Followers
	// Node is the name of this node, "" for none.
	Node string
	// OutputLimit is how much of the output of an attempt a worker keeps, and the server stores at most
	// twice as much. Default: 1 MiB.
	OutputLimit int
	// Trace returns the trace of an attempt. Nil: workers get that of the request for the run.
	Trace func(run *job.Run, attempt int) job.Trace
	// Now is the clock of this machine. Default: [time.Now].
	Now func() time.Time
}

// Workers implements package work for workers without a store. A worker is trusted about
// its own runs only: its sessions belong to its token, it receives only definitions of jobs
// that it may run, and it reports only on its own attempts, whose tokens it alone knows.
type Workers struct {
	Config
	work  work.Store
	hints hintBoard
	// owned has the immutable facts of sessions: their owners, and the jobs that they suit. The store
	// refuses sessions that it has removed.
	owned  cache.Map[job.ID, store.Session]
	output *workerOutput
}

// New returns the workers of a store.
func New(c Config) *Workers {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Followers == nil {
		c.Followers = service.NewFollowers(nil)
	}
	return &Workers{Config: c, work: work.On(c.Store, c.Now), hints: hintBoard{news: make(chan struct{})}, output: newWorkerOutput(c.OutputLimit)}
}

// machineOf returns the store's name for a worker's machine: no worker can pass for a
// server, or for one with another token, and settle its attempts.
func machineOf(who service.Caller, machine string) string {
	return ownMachines(who) + machine
}

func ownMachines(who service.Caller) string {
	return "worker/" + hex.EncodeToString(who.Token[:]) + "/"
}

// protocolOf returns the version that both sides speak.
func protocolOf(oldest, newest int) (int, error) {
	theirs := phrase.WorkerTooOld.Of(oldest, newest, wire.Oldest, wire.Newest)
	switch {
	case newest < wire.Oldest:
		return 0, service.Refuse(client.TypeProtocol, theirs, phrase.UpgradeWorker)
	case oldest > wire.Newest:
		return 0, service.Refuse(client.TypeProtocol, theirs, phrase.UpgradeServers)
	}
	return min(newest, wire.Newest), nil
}

// workerSessionsMax bounds the sessions of a token: every node and page reads all sessions.
const workerSessionsMax = 500

// Join begins a session.
func (s *Workers) Join(ctx context.Context, who service.Caller, request wire.Join) (wire.Joined, error) {
	if err := who.May(service.WorkAsWorker); err != nil {
		return wire.Joined{}, err
	}
	version, err := protocolOf(request.Oldest, request.Newest)
	if err != nil {
		return wire.Joined{}, err
	}
	if request.Only && len(request.Handlers) == 0 {
		return wire.Joined{}, service.WrongField("handlers", phrase.NoHandlers)
	}
	for i, name := range request.Handlers { // of belfry worker they are also marks, which no job names
		if request.Only && !job.IsHandlerName(name) {
			return wire.Joined{}, service.WrongField(fmt.Sprintf("handlers[%d]", i), phrase.NotHandlerName.Of(phrase.Quoted(name)), phrase.HandlerForm)
		}
	}
	if _, err := s.sessionOf(ctx, who, request.Session); err != nil && !errors.Is(err, store.ErrSessionOver) {
		return wire.Joined{}, err
	}
	sessions, err := s.Store.Sessions(ctx)
	if err != nil {
		return wire.Joined{}, err
	}
	others := 0
	for i := range sessions {
		if sessions[i].ID != request.Session && strings.HasPrefix(sessions[i].Machine, ownMachines(who)) {
			others++
		}
	}
	if others >= workerSessionsMax {
		return wire.Joined{}, service.Refuse(client.TypeTooMany, phrase.TooManyWorkers.Of(others, who.Name), phrase.OtherToken)
	}
	roles := []string{store.RoleWorker}
	if request.Only {
		roles = []string{store.RoleHandlers}
	}
	labels, err := allowedLabels(who, request.Labels)
	if err != nil {
		return wire.Joined{}, err
	}
	labels[job.LabelWorker] = cmp.Or(who.Terms.Worker, who.Name)
	delete(labels, job.LabelWorkerNamespace)
	if who.Namespace != "" {
		roles = append(roles, store.RoleBound)
		labels[job.LabelWorkerNamespace] = who.Namespace
	}
	session, err := s.Store.Join(ctx, store.Session{
		ID: request.Session, Node: request.Node, Machine: machineOf(who, request.Machine), DataDir: request.DataDir, Roles: roles, Labels: labels,
		Handlers: request.Handlers, Capacity: request.Capacity, Version: request.Version, Zones: request.Zones, Address: store.ViaServer + s.Node,
	})
	if err != nil {
		return wire.Joined{}, workerError(err)
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return wire.Joined{}, err
	}
	return wire.Joined{Protocol: version, Now: now, Predecessors: orEmpty(session.Predecessors)}, nil
}

// ownLabels are labels that a worker sets itself, whether its token allows them or not.
var ownLabels = []string{"arch", "host"}

// allowedLabels returns the labels of a worker. It refuses labels that its token does not
// allow, and omits a worker's own ones that it did not set.
func allowedLabels(who service.Caller, values map[string]string) (map[string]string, error) {
	labels := maps.Clone(values)
	if labels == nil {
		labels = map[string]string{}
	}
	if who.Terms.Labels == nil {
		return labels, nil
	}
	var wrong []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch {
		case key == job.LabelWorker || key == job.LabelWorkerNamespace: // the server sets them
		case slices.Contains(who.Terms.Labels, key+"=*") || slices.Contains(who.Terms.Labels, key+"="+values[key]):
		case slices.Contains(ownLabels, key):
			delete(labels, key)
		default:
			wrong = append(wrong, key+"="+values[key])
		}
	}
	if len(wrong) == 0 {
		return labels, nil
	}
	return nil, service.Refuse(client.TypeForbidden, phrase.LabelsNotAllowed.Of(who.Name, wrong), phrase.LabelsAllowed.Of(who.Terms.Labels))
}

// OwnToken exchanges a joining token for a token of the worker's own.
func (s *Workers) OwnToken(ctx context.Context, who service.Caller, request wire.OwnToken) (wire.Granted, error) {
	if err := who.May(service.JoinAsWorker); err != nil {
		return wire.Granted{}, err
	}
	hash, ok := auth.ParseHash(request.Hash)
	if !ok {
		return wire.Granted{}, service.WrongField("hash", phrase.NotTokenHash)
	}
	name := who.Name + "." + tokenPart(request.Node)
	if len(name) > tokenNameMax {
		return wire.Granted{}, service.WrongField("node", phrase.TokenNameTooLong.Of(len(name), tokenNameMax))
	}
	t, err := s.Store.PutToken(ctx, store.PutToken{
		Name: name, Hash: hash, Joins: who.Token, Actor: who.Name, Terms: store.Terms{Certificate: who.Certificate},
	})
	s.Tokens.Forget()
	switch {
	case errors.Is(err, store.ErrLimit):
		return wire.Granted{}, service.Refuse(client.TypeForbidden, phrase.JoinUsedUp.Of(who.Name), phrase.CreateJoinToken)
	case errors.Is(err, store.ErrExists):
		return wire.Granted{}, service.Refuse(client.TypeExists, phrase.HasJoined.Of(name, request.Node), phrase.RevokeIt.Of(name))
	case errors.Is(err, store.ErrTooMany):
		return wire.Granted{}, service.Refuse(client.TypeConflict, phrase.TooManyTokens.Of(store.TokensMax), phrase.RevokeUnneeded)
	case errors.Is(err, store.ErrNotFound):
		return wire.Granted{}, service.Refuse(client.TypeUnauthenticated, phrase.JoinTokenInvalid, phrase.CreateJoinToken)
	case err != nil:
		return wire.Granted{}, err
	}
	return wire.Granted{Name: t.Name, Namespace: t.Namespace, Labels: t.Labels, Certificate: t.Certificate}, nil
}

// tokenNameMax is the longest name of a token.
const tokenNameMax = 128

// tokenPart writes the name of a node with the letters that names of tokens have.
func tokenPart(node string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(node))
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Clock returns the clock of the store.
func (s *Workers) Clock(ctx context.Context, who service.Caller) (wire.Clock, error) {
	if err := who.May(service.WorkAsWorker); err != nil {
		return wire.Clock{}, err
	}
	now, err := s.Store.Now(ctx)
	return wire.Clock{Now: now}, err
}

// Renew renews the session of a worker.
func (s *Workers) Renew(ctx context.Context, who service.Caller, id job.ID, load wire.Load) error {
	if _, err := s.sessionOf(ctx, who, id); err != nil {
		return err
	}
	return workerError(s.Store.Renew(ctx, id, store.Load{Running: load.Running, Ready: load.Ready, Unreported: load.Unreported, ClockAhead: time.Duration(load.ClockAhead) * time.Millisecond}))
}

// Leave records that a worker accepts no more runs.
func (s *Workers) Leave(ctx context.Context, who service.Caller, id job.ID) error {
	if _, err := s.sessionOf(ctx, who, id); err != nil {
		return err
	}
	return workerError(s.Store.Leave(ctx, id))
}

// End removes the session of a worker without running attempts.
func (s *Workers) End(ctx context.Context, who service.Caller, id job.ID) error {
	if _, err := s.sessionOf(ctx, who, id); err != nil {
		return err
	}
	return workerError(s.Store.End(ctx, id))
}

// Members returns the session of a worker and the visible part of the others.
func (s *Workers) Members(ctx context.Context, who service.Caller, id job.ID) (wire.Members, error) {
	own, err := s.sessionOf(ctx, who, id)
	if err != nil {
		return wire.Members{}, err
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return wire.Members{}, err
	}
	sessions, err := s.Store.Sessions(ctx)
	if err != nil {
		return wire.Members{}, err
	}
	members := wire.Members{Now: now, Sessions: []wire.Member{}}
	for i := range sessions {
		m := wire.MemberOf(&sessions[i])
		if m.ID != id {
			hash := sha256.Sum256(append([]byte("member"), m.ID[:]...))
			copy(m.ID[:], hash[:])
			m.Drain = nil
			if m.Node != own.Node {
				m.Node = ""
			}
		}
		m.Roles = orEmpty(m.Roles)
		members.Sessions = append(members.Sessions, m)
	}
	return members, nil
}

// Ready returns runs that are assigned to a worker.
func (s *Workers) Ready(ctx context.Context, who service.Caller, id job.ID, after wire.Place, until time.Time, limit int) (wire.Runs, error) {
	if _, err := s.sessionOf(ctx, who, id); err != nil {
		return wire.Runs{}, err
	}
	var err error
	if until.IsZero() {
		if until, err = s.Store.Now(ctx); err != nil {
			return wire.Runs{}, err
		}
	}
	runs, err := s.work.Ready(ctx, id, store.RunRef(after), until, limit)
	return wire.Runs{Runs: wire.ReadyOf(runs, id)}, workerError(err)
}

// Stealable returns overdue runs of other nodes that the worker may run.
func (s *Workers) Stealable(ctx context.Context, who service.Caller, id job.ID, request wire.Overdue) (wire.Runs, error) {
	self, err := s.sessionOf(ctx, who, id)
	if err != nil {
		return wire.Runs{}, err
	}
	runs, next, err := s.work.Stealable(ctx, self, work.Overdue{
		Now: request.Now, By: time.Duration(request.By) * time.Millisecond, After: store.RunRef(request.After), Limit: request.Limit,
	})
	return wire.Runs{Runs: wire.ReadyOf(runs, id), Next: wire.Place(next)}, workerError(err)
}

// Claim starts attempts of a worker.
func (s *Workers) Claim(ctx context.Context, who service.Caller, id job.ID, request wire.Attempts) (wire.Claims, error) {
	self, err := s.sessionOf(ctx, who, id)
	if err != nil {
		return wire.Claims{}, err
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return wire.Claims{}, err
	}
	attempts := request.List()
	jobs, err := s.jobsOf(ctx, attempts)
	if err != nil {
		return wire.Claims{}, err
	}
	var allowed []store.Attempt
	var at []int // where they are in the answer
	outcomes := make([]store.ClaimOutcome, len(attempts))
	for i, a := range attempts {
		outcomes[i] = store.ClaimOutcome{Verdict: store.Taken, Now: now}
		if serves(&self, who, jobs[a.Job]) {
			allowed, at = append(allowed, a), append(at, i)
		}
	}
	var foreign []store.Attempt
	if len(allowed) > 0 {
		claims, err := s.Store.Claim(ctx, id, allowed)
		if err != nil {
			return wire.Claims{}, workerError(err)
		}
		for i, o := range claims {
			// The job was named by the worker, and may be changed since it was read.
			if o.Verdict == store.Started && (o.Job.Definition.UID != allowed[i].Job || !serves(&self, who, o.Job)) {
				foreign = append(foreign, store.Attempt{Job: o.Run.JobUID, Run: o.Run.ID, Number: o.Run.Attempt, Token: o.Run.Token})
				continue
			}
			outcomes[at[i]] = o
		}
	}
	if len(foreign) > 0 {
		if err := s.Store.Release(ctx, id, foreign); err != nil {
			return wire.Claims{}, workerError(err)
		}
	}
	answer := wire.Claims{Claims: make([]wire.Claim, len(outcomes))}
	for i := range outcomes {
		if o := &outcomes[i]; s.Trace != nil && o.Verdict == store.Started {
			run := *o.Run
			run.Params = job.WithTrace(run.Params, s.Trace(&run.Run, run.Attempt))
			o.Run = &run
		}
		if answer.Claims[i], err = wire.ClaimOf(&outcomes[i]); err != nil {
			return wire.Claims{}, err
		}
	}
	return answer, nil
}

// jobsOf returns the existing jobs of attempts.
func (s *Workers) jobsOf(ctx context.Context, attempts []store.Attempt) (map[job.ID]*store.Job, error) {
	named := make([]job.ID, len(attempts))
	for i := range attempts {
		named[i] = attempts[i].Job
	}
	slices.SortFunc(named, func(a, b job.ID) int { return slices.Compare(a[:], b[:]) })
	return s.jobsByUID(ctx, slices.Compact(named))
}

func (s *Workers) jobsByUID(ctx context.Context, uids []job.ID) (map[job.ID]*store.Job, error) {
	jobs := make(map[job.ID]*store.Job, len(uids))
	if len(uids) == 0 {
		return jobs, nil
	}
	list, err := s.Store.JobsByUID(ctx, uids)
	if err != nil {
		return nil, err
	}
	for i, j := range list {
		if j != nil {
			jobs[uids[i]] = j
		}
	}
	return jobs, nil
}

// serves reports whether a worker may run a job. j may be nil. A drained worker may still
// claim by this check: the store refuses it.
func serves(self *store.Session, who service.Caller, j *store.Job) bool {
	if j == nil || who.Namespace != "" && j.Filled.Namespace != who.Namespace {
		return false
	}
	// Servers poll handed-over work, at an address that the worker would choose.
	if j.Filled.Run.Group() != "" {
		return false
	}
	at := *self
	at.Drain, at.Leaving = nil, false
	place := j.Filled.Nodes()
	return placement.Eligible(&at, &place, j.Filled.Run.HandlerName())
}

// Release returns unstarted attempts.
func (s *Workers) Release(ctx context.Context, who service.Caller, id job.ID, request wire.Attempts) error {
	if err := s.mineOrOver(ctx, who, id); err != nil {
		return err
	}
	return workerError(s.Store.Release(ctx, id, request.List()))
}

// Finish ends attempts. Results count by the tokens of their attempts, even from a session
// that is over.
func (s *Workers) Finish(ctx context.Context, who service.Caller, id job.ID, request wire.Results) (wire.Finished, error) {
	if err := s.mineOrOver(ctx, who, id); err != nil {
		return wire.Finished{}, err
	}
	results, ended := make([]store.Result, len(request.Results)), map[job.ID]bool{}
	for i := range request.Results {
		r := &request.Results[i]
		if r.Value != nil && (!json.Valid(r.Value) || len(r.Value) > job.ResultMax) {
			path := fmt.Sprintf("results[%d].value", i)
			return wire.Finished{}, service.WrongField(path, phrase.ResultJSON.Of(job.ResultMax))
		}
		for k := range r.Output {
			if r.Output[k].Run != r.Run || r.Output[k].Attempt != r.Number {
				path := fmt.Sprintf("results[%d].output[%d]", i, k)
				return wire.Finished{}, service.WrongField(path, phrase.OfOtherAttempt)
			}
		}
		results[i] = r.Result()
		results[i].Output = s.output.allowed(id, results[i].Output)
		ended[r.Run] = true
	}
	outcomes, err := s.Store.Finish(ctx, id, results)
	if err != nil {
		return wire.Finished{}, workerError(err)
	}
	s.output.forget(id, func(run job.ID) bool { return ended[run] })
	answer := wire.Finished{Results: make([]wire.Accepted, len(outcomes))}
	for i, o := range outcomes {
		answer.Results[i] = wire.Accepted{Accepted: o.Accepted, Undecided: o.Undecided, Ready: wire.ReadyOf(o.Ready, id)}
	}
	return answer, nil
}

// Mine returns the running runs of a worker by the store's records.
func (s *Workers) Mine(ctx context.Context, who service.Caller, id job.ID) (wire.Mine, error) {
	if _, err := s.sessionOf(ctx, who, id); err != nil {
		return wire.Mine{}, err
	}
	runs, err := store.RunsOn(ctx, s.Store, id)
	if err != nil {
		return wire.Mine{}, workerError(err)
	}
	mine := wire.Mine{Runs: make([]wire.Run, len(runs))}
	for i := range runs {
		mine.Runs[i] = wire.RunOf(&runs[i])
	}
	return mine, nil
}

// Output stores output of the worker's running attempts. It ignores output of other and of
// ended attempts.
func (s *Workers) Output(ctx context.Context, who service.Caller, id job.ID, request wire.Output) error {
	if _, err := s.sessionOf(ctx, who, id); err != nil {
		return err
	}
	runs, err := store.RunsOn(ctx, s.Store, id)
	if err != nil {
		return workerError(err)
	}
	present := make(map[job.ID]int, len(runs))
	for i := range runs {
		present[runs[i].ID] = runs[i].Attempt
	}
	chunks := slices.DeleteFunc(wire.OutputChunks(request.Chunks), func(c store.OutputChunk) bool { return present[c.Run] != c.Attempt })
	s.output.forget(id, func(run job.ID) bool { return present[run] == 0 })
	chunks = s.output.allowed(id, chunks)
	if len(chunks) == 0 {
		return nil
	}
	if err := s.Store.AppendOutput(ctx, chunks); err != nil {
		return workerError(err)
	}
	for i := range chunks {
		if i == 0 || chunks[i].Run != chunks[i-1].Run {
			s.Followers.Wrote(chunks[i].Run)
		}
	}
	return nil
}

// Versions returns the present versions of jobs that the worker may run.
func (s *Workers) Versions(ctx context.Context, who service.Caller, id job.ID, request wire.Jobs) (wire.Versions, error) {
	if _, err := s.sessionOf(ctx, who, id); err != nil {
		return wire.Versions{}, err
	}
	versions, err := s.work.Versions(ctx, request.Jobs)
	return wire.VersionsOf(versions), workerError(err)
}

// Over returns which runs have ended, or never existed.
func (s *Workers) Over(ctx context.Context, who service.Caller, id job.ID, asked wire.RunIDs) (wire.RunIDs, error) {
	if _, err := s.sessionOf(ctx, who, id); err != nil {
		return wire.RunIDs{}, err
	}
	over, err := s.work.Over(ctx, asked.Runs)
	return wire.RunIDs{Runs: over}, workerError(err)
}

// Secrets returns the values of secrets for a running attempt of a session: only those that
// its job names.
func (s *Workers) Secrets(ctx context.Context, who service.Caller, id job.ID, request wire.SecretsOf) (wire.Secrets, error) {
	self, err := s.sessionOf(ctx, who, id)
	if err != nil {
		return wire.Secrets{}, err
	}
	runs, err := store.RunsOn(ctx, s.Store, id)
	if err != nil {
		return wire.Secrets{}, workerError(err)
	}
	at := slices.IndexFunc(runs, func(r store.Run) bool {
		return r.ID == request.Attempt.Run && r.Attempt == request.Attempt.Number && r.Token == request.Attempt.Token
	})
	if at < 0 {
		return wire.Secrets{Problem: fmt.Sprintf("the session does not run attempt %d of the run %s", request.Attempt.Number, request.Attempt.Run)}, nil
	}
	jobs, err := s.jobsByUID(ctx, []job.ID{runs[at].JobUID})
	if err != nil {
		return wire.Secrets{}, workerError(err)
	}
	j := jobs[runs[at].JobUID]
	if j == nil || who.Namespace != "" && j.Filled.Namespace != who.Namespace || !serves(&self, who, j) {
		return wire.Secrets{}, service.Refuse(client.TypeForbidden, phrase.NotJobOfWorker.Of(request.Attempt.Run))
	}
	named := j.Filled.SecretNames()
	for _, name := range request.Names {
		if !slices.Contains(named, name) {
			return wire.Secrets{}, service.Refuse(client.TypeForbidden, phrase.SecretNotNamed.Of(j.Filled.FullName(), name))
		}
	}
	values, err := s.Config.Secrets.Values(ctx, j.Filled.Namespace, request.Names)
	var missing *secret.Missing
	switch {
	case errors.As(err, &missing):
		return wire.Secrets{Missing: missing.Name, Near: missing.Near}, nil
	case err != nil:
		return wire.Secrets{Problem: err.Error()}, nil //nolint:nilerr // the worker tries again
	}
	return wire.Secrets{Values: values}, nil
}

// Calendars returns the calendars that the jobs of a worker may name.
func (s *Workers) Calendars(ctx context.Context, who service.Caller) (wire.Calendars, error) {
	if err := who.May(service.WorkAsWorker); err != nil {
		return wire.Calendars{}, err
	}
	list, err := store.Calendars(ctx, s.Store)
	if err != nil {
		return wire.Calendars{}, workerError(err)
	}
	calendars := wire.Calendars{Calendars: []wire.Document{}}
	for _, c := range list {
		if who.Namespace != "" && c.Namespace != who.Namespace {
			continue
		}
		text, err := json.Marshal(c)
		if err != nil {
			return wire.Calendars{}, err
		}
		calendars.Calendars = append(calendars.Calendars, wire.Document{RawMessage: text})
	}
	return calendars, nil
}

// StartBoot starts the jobs that are due at the start of a worker.
func (s *Workers) StartBoot(ctx context.Context, who service.Caller, id job.ID, request wire.Boot) error {
	self, err := s.sessionOf(ctx, who, id)
	if err != nil {
		return err
	}
	return workerError(s.work.StartBoot(ctx, self, request.Process))
}

// Hints waits for hints after a position, and returns the next position. A worker without a
// position, or with one of another server, must poll everything.
func (s *Workers) Hints(ctx context.Context, who service.Caller, id job.ID, place string, wait time.Duration) (wire.Hints, error) {
	if _, err := s.sessionOf(ctx, who, id); err != nil {
		return wire.Hints{}, err
	}
	hint, next := s.hints.wait(ctx, place, min(wait, wire.WaitMax))
	return wire.Hints{Place: next, Hints: wire.HintNames(hint)}, nil
}

// Run reads the hints of the store for workers, until ctx ends. Without it they only poll.
func (s *Workers) Run(ctx context.Context) {
	for hint := range s.Store.Hints(ctx) {
		s.hints.put(hint)
	}
}

// sessionOf returns a session of the caller.
func (s *Workers) sessionOf(ctx context.Context, who service.Caller, id job.ID) (store.Session, error) {
	if err := who.May(service.WorkAsWorker); err != nil {
		return store.Session{}, err
	}
	session, known := s.owned.Get(id)
	if !known {
		sessions, err := s.Store.Sessions(ctx)
		if err != nil {
			return store.Session{}, err
		}
		i := slices.IndexFunc(sessions, func(one store.Session) bool { return one.ID == id })
		if i < 0 {
			return store.Session{}, workerError(store.ErrSessionOver)
		}
		session = sessions[i]
		session.Drain, session.Leaving = nil, false
		s.owned.Put(id, session, ownedMax)
	}
	if !strings.HasPrefix(session.Machine, ownMachines(who)) {
		return store.Session{}, service.Refuse(client.TypeForbidden, phrase.SessionOfOther.Of(id, who.Name))
	}
	return session, nil
}

// mineOrOver is sessionOf for calls that are valid after the end of the session.
func (s *Workers) mineOrOver(ctx context.Context, who service.Caller, id job.ID) error {
	_, err := s.sessionOf(ctx, who, id)
	if errors.Is(err, store.ErrSessionOver) {
		return nil
	}
	return err
}

// ownedMax is how many sessions are remembered: more than there are at a time.
const ownedMax = 10_000

// workerError converts an error of the store for a worker, which handles the kinds
// differently.
func workerError(err error) error {
	var e *service.Error
	switch {
	case errors.Is(err, store.ErrSessionOver):
		e = service.Refuse(client.TypeSessionOver, phrase.SessionOver, phrase.BeginSession)
	case errors.Is(err, store.ErrNoSpace):
		e = service.Refuse(client.TypeNoSpace, phrase.StoreFull, phrase.RepeatUnknown)
	default:
		return err
	}
	return e.Because(err)
}

// hintBoard has the latest hints, each with a number: workers request those after a
// position, and none is lost between two requests.
type hintBoard struct {
	mu   sync.Mutex
	name string // unique name of the board
	last int64
	at   [8]int64 // the number of the latest hint of each bit
	news chan struct{}
}

// put adds a hint.
func (b *hintBoard) put(hint store.Hint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	for bit := range b.at {
		if hint&(1<<bit) != 0 {
			b.at[bit] = b.last
		}
	}
	close(b.news)
	b.news = make(chan struct{})
}

// since returns the hints after a position, and a channel that is closed when there are
// more.
func (b *hintBoard) since(place string) (hint store.Hint, next string, news <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.name == "" {
		b.name = newPlaceName()
	}
	next = b.name + "-" + strconv.FormatInt(b.last, 10)
	name, number, _ := strings.Cut(place, "-")
	seen, err := strconv.ParseInt(number, 10, 64)
	if err != nil || name != b.name {
		return ^store.Hint(0), next, b.news
	}
	for bit, at := range b.at {
		if at > seen {
			hint |= 1 << bit
		}
	}
	return hint, next, b.news
}

func (b *hintBoard) wait(ctx context.Context, place string, wait time.Duration) (store.Hint, string) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		hint, next, news := b.since(place)
		if hint != 0 {
			return hint, next
		}
		select {
		case <-news:
		case <-timer.C:
			return 0, next
		case <-ctx.Done():
			return 0, next
		}
	}
}

// newPlaceName returns a random name for a board, so that positions of an earlier server are
// not confused with its own.
func newPlaceName() string {
	return strings.ToLower(rand.Text())
}
