package xxlexec

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// askEvery is how often an executor is polled about a job.
	askEvery = 15 * time.Second
	// overtime is how long after its timeout the keeper ends a run: usually its executor does.
	overtime = 15 * time.Second
	// lostMin is the least time of silence after which a run is lost: after an outage Java sends
	// its results again within 30 s.
	lostMin = 40 * time.Second
	// lostUnseen is the silence after which a run is lost at a registered executor that was never
	// seen busy: some always answer idle, and executors in Node do once they have refused a run.
	lostUnseen = 10 * time.Minute
	// killTries is how often a kill is sent to an executor before the keeper gives up, and killRest
	// the pause: three times in 10 s.
	killTries = 3
	killRest  = 5 * time.Second
	// askers is how many executors are polled at once, and pagesMax how many batches a poll takes.
	askers   = 32
	pagesMax = 20
	// gapMax is for how long polls may fail before this node loses track: as long as a session lives.
	gapMax = store.SessionLife
	// rememberedMax bounds what a keeper remembers of addresses and jobs.
	rememberedMax = 20_000
	// sendSpan is how long a request may be in flight: of runs that were sent within it of
	// each other, any may have arrived first.
	sendSpan = dialMax + answerWait
)

// keeper polls handovers.
type keeper struct {
	mu sync.Mutex
	// since is the beginning of this node's polls without a gap, and looked the last poll.
	since, looked time.Time
	// busy are the addresses known to report what they run.
	busy map[string]bool
	// over are the last ends of a job's runs at an address, where an executor may have
	// several.
	over map[place]lastEnds
}

// lastEnds are when the last run that has ended was sent, and the last one that has failed.
type lastEnds struct{ any, failed time.Time }

// place is a job at an executor.
type place struct {
	address string
	job     int32
}

func (k *keeper) init() {
	k.busy, k.over = map[string]bool{}, map[place]lastEnds{}
}

// ended notes the end of a run.
func (k *keeper) ended(e *endedRun) {
	if !e.about.Allows {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.over) >= rememberedMax {
		clear(k.over)
	}
	last, sent := k.over[e.about.place()], e.handover.Sent
	if last.any.Before(sent) {
		last.any = sent
	}
	if e.callback.Code != xxl.CodeOK && last.failed.Before(sent) {
		last.failed = sent
	}
	k.over[e.about.place()] = last
}

// learn records conclusions about a run from the ends of later runs, and reports whether
// they are new.
func (k *keeper) learn(of *about, sent time.Time) bool {
	if !of.Allows {
		return false
	}
	k.mu.Lock()
	last := k.over[of.place()]
	k.mu.Unlock()
	known := *of
	of.Overtaken = of.Overtaken || last.any.After(sent.Add(sendSpan))
	of.Failed = of.Failed || last.failed.After(sent)
	return *of != known
}

// sawBusy records that an address reports what it runs.
func (k *keeper) sawBusy(address string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.busy) >= rememberedMax {
		clear(k.busy)
	}
	k.busy[address] = true
}

func (k *keeper) tells(address string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.busy[address]
}

// look records a poll, and returns how long this node has polled without a gap. In a gap, results
// may have been dropped.
func (k *keeper) look(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.since.IsZero() || now.Sub(k.looked) > gapMax {
		k.since = now
	}
	k.looked = now
	return now.Sub(k.since)
}

// asked records that this node has polled until now: silent executors make no gap.
func (k *keeper) asked(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looked = now
}

// askAll polls all runs that are due for it.
func (a *Admin) askAll(ctx context.Context) error {
	for range pagesMax {
		list, err := a.store.ToAsk(ctx, Kind, store.MaxBatch)
		if err != nil {
			return err
		}
		watched := a.keeper.look(time.Now())
		if err := a.askSome(ctx, list, watched); err != nil {
			return err
		}
		a.keeper.asked(time.Now())
		if len(list) < store.MaxBatch {
			return nil
		}
	}
	return nil
}

// unreachable are the addresses that did not answer a request of a batch, and why. Each costs seconds,
// and a dead machine may have hundreds of runs: the batch does not ask them again.
type unreachable struct {
	mu  sync.Mutex
	why map[string]error
}

// ask is caller.ask, unless the address has not answered already.
func (u *unreachable) ask(ctx context.Context, c *caller, to target, path string, body []byte) (xxl.Answer, error) {
	u.mu.Lock()
	err := u.why[to.address]
	u.mu.Unlock()
	if err != nil {
		return xxl.Answer{}, err
	}
	answer, err := c.ask(ctx, to, path, body)
	if err != nil {
		u.mu.Lock()
		u.why[to.address] = err
		u.mu.Unlock()
	}
	return answer, err
}

// outstanding is a run to poll, and the result of the poll.
type outstanding struct {
	*store.Outstanding
	about  about
	answer store.Answer
	result *store.Result // how it ended; nil if it has not
}

// note stores the findings about a run for the node that polls next.
func (o *outstanding) note() {
	text, _ := json.Marshal(o.about) // it always encodes
	o.answer.About = string(text)
}

// deadline returns when the timeout of the run has passed, zero if unknown.
func (o *outstanding) deadline() time.Time {
	switch from := o.about.First; {
	case !o.about.mayQueue():
		return o.Deadline()
	case from == 0 || o.Timeout == 0:
		return time.Time{}
	default:
		return time.UnixMilli(from).Add(o.Timeout)
	}
}

// noteFirst finds the run whose turn it is at an executor that may queue several: its timeout
// starts then. The turn came after the last poll.
func (a *Admin) noteFirst(ctx context.Context, runs []*outstanding) error {
	var waiting []*outstanding
	for _, o := range runs {
		if o.about.mayQueue() && o.Timeout > 0 && o.about.First == 0 {
			waiting = append(waiting, o)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	first, err := a.firstAt(ctx, waiting[0].Attempt.Job, waiting[0].about.place())
	if err != nil {
		return err
	}
	for _, o := range waiting {
		if o.Number != first {
			continue
		}
		since := o.Now.Add(-askEvery)
		if since.Before(o.Sent) {
			since = o.Sent
		}
		o.about.First = since.UnixMilli()
		o.note()
	}
	return nil
}

// firstAt returns the number of the earliest unfinished run of a job at an executor, 0 if unknown.
func (a *Admin) firstAt(ctx context.Context, uid job.ID, at place) (int64, error) {
	running, err := a.store.ListActive(ctx, store.ActiveQuery{Job: uid, State: job.StateRunning, Limit: store.MaxBatch})
	if err != nil || len(running) == store.MaxBatch { // in such a backlog the first one may be missing
		return 0, err
	}
	var number int64
	var sent time.Time
	for i := range running {
		list, err := a.store.Handovers(ctx, store.HandoverQuery{Run: running[i].ID, Limit: store.MaxBatch})
		if err != nil {
			return 0, err
		}
		for k := range list {
			h := &list[k]
			if h.IsOver() || h.Kind != Kind || h.Attempt.Number != running[i].Attempt {
				continue
			}
			if note, err := aboutOf(h); err == nil && note.place() == at && (number == 0 || h.Sent.Before(sent)) {
				number, sent = h.Number, h.Sent
			}
		}
	}
	return number, nil
}

// askSome polls runs: one request for all runs of a job at an executor.
func (a *Admin) askSome(ctx context.Context, list []store.Outstanding, watched time.Duration) error {
	groups := map[place][]*outstanding{}
	for i := range list {
		o := &outstanding{Outstanding: &list[i], answer: store.Answer{Handover: list[i].Handover, Next: askEvery}}
		var err error
		if o.about, err = aboutOf(&list[i].Handover); err != nil {
			a.log.Warn("what is known about a run at an executor cannot be read", "number", list[i].Number, "error", err)
		}
		groups[o.about.place()] = append(groups[o.about.place()], o)
	}
	next, gone := make(chan []*outstanding), &unreachable{why: map[string]error{}}
	var group sync.WaitGroup
	for range min(askers, len(groups)) {
		group.Go(func() {
			for runs := range next {
				a.askPlace(ctx, gone, runs, watched)
			}
		})
	}
	for _, runs := range groups {
		next <- runs
	}
	close(next)
	group.Wait()

	var results []store.Result
	var answers []store.Answer
	for _, runs := range groups {
		for _, o := range runs {
			if o.result != nil {
				results = append(results, *o.result)
			} else {
				answers = append(answers, o.answer)
			}
		}
	}
	if len(results) > 0 {
		if _, err := a.store.Finish(ctx, job.ID{}, results); err != nil {
			return err
		}
	}
	if len(answers) > 0 {
		return a.store.Asked(ctx, answers)
	}
	return nil
}

// askPlace polls the runs of a job at an executor.
func (a *Admin) askPlace(ctx context.Context, gone *unreachable, runs []*outstanding, watched time.Duration) {
	var silent []*outstanding
	if err := a.noteFirst(ctx, runs); err != nil {
		a.log.Warn("cannot tell which run of a job is first at its executor", "executor", runs[0].about.Address, "error", err)
	}
	for _, o := range runs {
		deadline := o.deadline()
		switch {
		case o.Run.CancelBy != "":
			a.end(ctx, gone, o, job.OutcomeCancelled, reason.Cancelled.Of(o.Run.CancelBy, o.Run.CancelReason))
		case !deadline.IsZero() && o.Now.Sub(deadline) >= overtime:
			a.end(ctx, gone, o, job.OutcomeTimedOut, reason.OverTimeout.Of(o.Timeout))
		default:
			silent = append(silent, o)
		}
	}
	if len(silent) == 0 {
		return
	}
	first := silent[0]
	to := a.targetOf(&first.about)
	answer, err := gone.ask(ctx, a.current.Load().caller, to, xxl.PathIdleBeat, xxl.OfJob(first.about.Job))
	if ctx.Err() != nil {
		return // the request was not sent
	}
	if err == nil && answer.IsRefusal() {
		err = fmt.Errorf("it answered: %s", answer.Message)
	}
	busy := err == nil && !answer.OK()
	if busy {
		a.keeper.sawBusy(to.address)
	}
	for _, o := range silent {
		limit := max(o.Run.LostAfter, lostMin)
		o.answer.Next = min(askEvery, limit/4)
		if a.keeper.learn(&o.about, o.Sent) {
			o.note()
		}
		if o.answer.Seen = busy && !o.about.Overtaken; o.answer.Seen {
			continue
		}
		registered := a.registry.has(to.group, to.address, err == nil)
		unseen := o.Seen.IsZero() && !a.keeper.tells(to.address)
		if registered && (unseen || o.about.Failed && !busy) {
			limit = max(limit, lostUnseen)
		}
		if watched < limit || o.Now.Sub(o.Sent) < limit || o.Now.Sub(o.Seen) < limit {
			continue
		}
		o.result = &store.Result{Attempt: o.Attempt, Started: o.Sent, Outcome: job.OutcomeLost, Reason: silence(to, limit, busy, registered, err)}
	}
}

// silence explains why a run is lost.
func silence(to target, limit time.Duration, busy, registered bool, err error) job.Reason {
	span := limit.Round(time.Second)
	switch {
	case err != nil && !registered:
		return reason.Unregistered.Of(to.address, span, reason.Words(err.Error()))
	case err != nil:
		return reason.Unreached.Of(to.address, span, reason.Words(err.Error()))
	case busy:
		return reason.Overtaken.Of(to.address, span)
	}
	return reason.Unknown.Of(to.address, span)
}

// end requests the end of a run at an executor. The run is over when the executor has
// answered, or after repeated requests without an answer.
func (a *Admin) end(ctx context.Context, gone *unreachable, o *outstanding, outcome job.Outcome, why job.Reason) {
	answer, err := gone.ask(ctx, a.current.Load().caller, a.targetOf(&o.about), xxl.PathKill, xxl.OfJob(o.about.Job))
	if ctx.Err() != nil {
		return
	}
	switch {
	case err != nil && o.about.Kills+1 < killTries:
		o.about.Kills++
		o.note()
		o.answer.Next = killRest
		return
	case err != nil:
		why = reason.KillUnanswered.Of(why, o.about.Address, reason.Words(err.Error()))
	case !answer.OK():
		why = reason.KillRefused.Of(why, o.about.Address, reason.Words(orCode(answer)))
	}
	o.result = &store.Result{Attempt: o.Attempt, Started: o.Sent, Outcome: outcome, Reason: cleaned(why)}
	if err != nil {
		return
	}
	e := endedRun{handover: &o.Handover, about: o.about, callback: &xxl.Callback{}}
	ctx, cancel := context.WithTimeout(ctx, logsWithin)
	defer cancel()
	a.readLog(ctx, &e)
	o.result.Output, o.result.OutputBytes = e.output, e.bytes
}
