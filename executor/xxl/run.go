package xxlexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// refusedFor is how long a refused run is sent again if no other run of the job is unfinished:
	// Java takes up to 45 ms to notice the end of a run.
	refusedFor = 2 * time.Second
	// refusedRest is the time between these tries.
	refusedRest = 50 * time.Millisecond
	// siblingMax bounds the wait for another shard, step or item of the same job: longer than nearly all
	// of them run, while an executor that no longer knows what it runs refuses forever.
	siblingMax = 24 * time.Hour
	// triedMax bounds the executors that are tried: an unreachable one takes 2 s.
	triedMax = 10
)

// about is the data of a handover to an executor.
type about struct {
	Group      string `json:"group"`
	Address    string `json:"address"`
	Generation string `json:"generation,omitempty"`
	Job        int32  `json:"job"`
	// SentAt is when the run was sent, in ms: executors file its log by it.
	SentAt int64 `json:"sent_at"`
	// Allows is set if an executor may have several runs of the job, and AtOnce if it starts each
	// at its arrival.
	Allows bool `json:"allows,omitempty"`
	AtOnce bool `json:"at_once,omitempty"`

	// Findings of keepers: since when, in ms, no earlier run is unfinished there, whether a later
	// one has ended, or failed, and how many kills had no answer.
	First     int64 `json:"first,omitempty"`
	Overtaken bool  `json:"overtaken,omitempty"`
	Failed    bool  `json:"failed,omitempty"`
	Kills     int   `json:"kills,omitempty"`
}

func (a *about) place() place { return place{a.Address, a.Job} }

// mayQueue reports whether the run may wait at its executor for other runs of the job.
func (a *about) mayQueue() bool { return a.Allows && !a.AtOnce }

// aboutOf decodes the data of a handover of this package.
func aboutOf(h *store.Handover) (about, error) {
	var about about
	if err := json.Unmarshal([]byte(h.About), &about); err != nil {
		return about, fmt.Errorf("read handover %d: %w", h.Number, err)
	}
	return about, nil
}

// targetOf returns the executor that a run was sent to.
func (a *Admin) targetOf(ab *about) target {
	return target{group: ab.Group, address: ab.Address, generation: ab.Generation, token: a.tokenOf(ab.Group)}
}

var _ executor.Executor = (*Admin)(nil)

// Run sends an attempt to an executor. It does not wait for its end.
func (a *Admin) Run(ctx context.Context, at executor.Attempt, _ executor.Output) executor.Result {
	spec, err := at.Job.Expand(at.Data)
	if err != nil {
		return failed(job.Text(err.Error()))
	}
	x := spec.XXL
	s := a.current.Load()
	if x.Glue != nil && !s.Glue {
		return failed(reason.NoGlue.Of())
	}
	if err := at.Start(); err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	chosen := at.Run.Params[job.ExecutorParam]
	list, err := a.targetsOf(ctx, x.Group, chosen)
	if err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	if chosen != "" {
		list = slices.DeleteFunc(list, func(t target) bool { return t.address != chosen })
		if len(list) == 0 {
			return failed(reason.ExecutorGone.Of(chosen, x.Group))
		}
	}
	if len(list) == 0 {
		return failed(reason.NoExecutors.Of(x.Group))
	}
	strategy := at.Job.Place.Strategy
	order := a.routes.order(list, strategy, at.Run.JobUID, at.Run.Shard)
	g := giving{admin: a, settings: s, attempt: &at, xxl: x, turn: order[0].address}
	for _, to := range order[:min(len(order), triedMax)] {
		if ctx.Err() != nil {
			outcome, why := executor.ByCause(ctx)
			return executor.Result{Outcome: outcome, Reason: why}
		}
		if strategy == job.StrategyFirstIdle && !g.isIdle(ctx, to) {
			continue
		}
		if result, done := g.give(ctx, to); done {
			return result
		}
	}
	none := reason.NoneReached
	if strategy == job.StrategyFirstIdle {
		none = reason.NoneIdle
	}
	why := none.Of(x.Group, g.passed)
	if left := len(order) - triedMax; left > 0 {
		why = reason.MoreUntried.Of(why, left)
	}
	return failed(why)
}

func failed(why job.Reason) executor.Result {
	return executor.Result{Outcome: job.OutcomeFailed, Reason: cleaned(why)}
}

// cleaned removes from a reason what pages cannot show, and bounds it.
func cleaned(why job.Reason) job.Reason {
	return why.Map(func(text string) string { return xxl.Clean(text, xxl.MessageMax) })
}

// giving is an attempt on its way to an executor.
type giving struct {
	admin    *Admin
	settings *settings
	attempt  *executor.Attempt
	xxl      *job.XXL
	turn     string   // the address whose turn it is
	passed   []string // addresses that refused it, with the reason
}

func (g *giving) pass(to target, why any) {
	g.passed = append(g.passed, fmt.Sprintf("%s (%v)", to.address, why))
}

// isIdle asks an executor whether it runs the job.
func (g *giving) isIdle(ctx context.Context, to target) bool {
	answer, err := g.settings.caller.ask(ctx, to, xxl.PathIdleBeat, xxl.OfJob(g.xxl.Number(g.attempt.Run.JobUID)))
	if err == nil && !answer.OK() {
		err = fmt.Errorf("busy: %s", orCode(answer))
	}
	if err != nil {
		g.pass(to, err)
	}
	return err == nil
}

// give sends the attempt to an executor, and reports whether the attempt is done: false means that
// the request certainly did not arrive.
func (g *giving) give(ctx context.Context, to target) (executor.Result, bool) {
	at, x := g.attempt, g.xxl
	allows := at.Job.Policy.Overlap == job.OverlapAllow
	note := about{
		Group: to.group, Address: to.address, Generation: to.generation, Job: x.Number(at.Run.JobUID),
		SentAt: time.Now().UnixMilli(), Allows: allows, AtOnce: allows && x.Block != "" && x.Block != job.BlockSerial,
	}
	text, err := json.Marshal(note)
	if err != nil {
		return failed(job.Text(err.Error())), true
	}
	number, err := at.HandOver(ctx, executor.Handover{Kind: Kind, To: to.address, About: string(text)})
	if err != nil {
		// Nothing was sent, neither here nor to an earlier address.
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}, true
	}
	// From here on the end of ctx must not interrupt a request, whose fate would be unknown.
	ctx = context.WithoutCancel(ctx)
	request := g.trigger(note, number, allows)
	until := time.Now().Add(refusedFor)
	for {
		answer, err := g.settings.caller.ask(ctx, to, pathOf(to), request.Body())
		var unsent *notSent
		switch {
		case errors.As(err, &unsent):
			g.pass(to, err)
			return executor.Result{}, false
		case err != nil || answer.OK():
			// A request without an answer may have arrived: it is not sent again.
			if to.address != g.turn {
				g.admin.routes.instead(at.Run.JobUID, at.Job.Place.Strategy, to.address)
			}
			return executor.Result{HandedOver: true}, true
		case answer.IsOtherPath() && to.generation != generationD:
			// It was refused, so that nothing runs. For the keeper the handover must name the
			// generation.
			to.generation = generationD
			g.admin.registry.learn(to.address, generationD)
			return g.give(ctx, to)
		case answer.IsBusy() && allows && (note.AtOnce || !hasSiblings(&at.Run)): // steps of flows allow overlaps, and wait for each other
			return executor.Result{Outcome: job.OutcomeSkipped, Reason: reason.RunsAlready.Of(to.address, reason.Words(answer.Message))}, true
		case answer.IsBusy() && time.Now().Before(until):
			time.Sleep(refusedRest)
			continue
		case answer.IsBusy() && hasSiblings(&at.Run):
			why := reason.RunsAlready.Of(to.address, reason.Words(answer.Message))
			if waited := time.Since(at.Run.ID.Time()); waited > siblingMax {
				return failed(reason.RefusedSince.Of(waited.Truncate(time.Second), why)), true
			}
			return executor.Result{Unstarted: true, Postponed: true, Reason: cleaned(why)}, true
		}
		return failed(reason.Refused.Of(to.address, reason.Words(orCode(answer)))), true
	}
}

// hasSiblings reports whether other runs of the job may run beside a run by its policy: steps and items
// of a flow, and shards. Executors identify all of them by the job's number; one that refuses a second
// run gets it when the first has ended.
func hasSiblings(r *job.Run) bool { return r.Kind == job.RunStep || r.Shards > 1 }

// orCode returns the message of an executor, or its code.
func orCode(a xxl.Answer) string {
	if a.Message == "" {
		return fmt.Sprintf("code %d", a.Code)
	}
	return a.Message
}

func pathOf(to target) string {
	if to.generation == generationD {
		return xxl.PathTrigger
	}
	return xxl.PathRun
}

// trigger returns the request for the attempt.
func (g *giving) trigger(note about, number int64, allows bool) *xxl.Trigger {
	at, x := g.attempt, g.xxl
	t := &xxl.Trigger{
		JobID: note.Job, Handler: x.Handler, Params: x.Param, Block: job.BlockSerial.Name(),
		LogID: number, LogDateTime: note.SentAt, GlueType: "BEAN", Index: at.Run.Shard, Total: max(1, at.Run.Shards),
	}
	if allows {
		t.Block = x.Block.Name()
	}
	if limit := at.Job.Policy.Timeout; limit != nil {
		t.Timeout = int((time.Duration(*limit) + time.Second - 1) / time.Second)
	}
	if x.Glue != nil {
		t.GlueType, t.GlueSource, t.GlueUpdatedAt = x.Glue.Type.Name(), x.Glue.Source, x.Glue.Moment()
	}
	return t
}
