package engine

import (
	"slices"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A run that is due when its own node plans it is claimed in the step that creates it. A
// repeated step finds the runs, and claims them with the same tokens.

// repeats reports whether an item was planned before, by the same session.
func (j *Job) repeats(planner job.ID, item *store.PlanItem) bool {
	return j.Planner == planner && j.Cursor.Equal(item.To) && (!item.From.Equal(item.To) || j.State == job.JobCompleted)
}

// claimsWhole reports whether the step that plans a run may claim it. The shards of a split job
// depend on each other, and a flow begins with its steps.
func (p *Policy) claimsWhole(n *store.NewRun) bool { return p.Flow == nil && n.Shards == 0 }

// lookClaims requests the inputs of an item's claims.
func (b *Batch) lookClaims(n *Need, j *Job, planner job.ID, item *store.PlanItem) {
	var first, latest *member
	for i := range item.Runs {
		r := &item.Runs[i]
		if !r.Token.IsZero() && b.facts.sessions {
			b.lookWindowOf(n, &member{Run: store.Run{Run: job.Run{JobUID: j.UID, Kind: job.RunScheduled, Due: r.Due}}})
		}
		switch {
		case r.Token.IsZero() || !j.Policy.claimsWhole(r):
		case j.repeats(planner, item):
			ref := RunRef{Run: r.ID, Job: j.UID}
			if m, known := b.lookRun(n, ref); m != nil {
				b.lookAround(n, m, r.Node)
			} else if known {
				b.lookRecords(n, ref)
			}
		case !b.facts.sessions:
			return // its hints, or the slots of a broadcast, depend on the nodes
		default:
			node := r.Node
			if s := b.sessions[r.Session]; s != nil && s.Takes() {
				node = s.Node
			}
			run := store.Run{Run: job.Run{ID: r.ID, JobUID: j.UID, Kind: job.RunScheduled, State: job.StateReady, Node: node, Scheduled: r.Scheduled, Due: r.Due}}
			run.Slot = j.Policy.SlotKey(&run.Run, node)
			switch {
			case first == nil:
				first = &member{Run: run}
				latest = first
			case run.Slot != first.Slot:
				b.lookAround(n, &member{Run: run}, b.nodeOf(planner))
			case before(&latest.Run, &run):
				latest = &member{Run: run}
			}
		}
	}
	if first != nil { // the runs in between need nothing else
		b.lookAround(n, first, b.nodeOf(planner))
		b.lookAround(n, latest, b.nodeOf(planner))
	}
}

// nodeOf returns the name of the node of a session, "" if unknown.
func (b *Batch) nodeOf(session job.ID) string {
	if s := b.sessions[session]; s != nil {
		return s.Node
	}
	return ""
}

// claimPlanned claims a run with a token after its item was decided.
func (b *Batch) claimPlanned(by *store.Session, planned store.PlanOutcome, uid job.ID, n *store.NewRun) store.ClaimOutcome {
	out := store.ClaimOutcome{Verdict: store.Taken, Now: b.now}
	if planned != store.Planned {
		return out
	}
	if j := b.job(uid); j.Policy.claimsWhole(n) && !b.isBehind(j, n.ID) {
		out = b.claimed(by, store.Attempt{Job: uid, Run: n.ID, Number: 1, Token: n.Token})
	}
	if m := b.runs[n.ID]; m != nil && !m.removed && m.State == job.StateReady {
		b.hint(n.Due)
	}
	return out
}

// isBehind reports whether an earlier run of the same slot is ready: it is claimed first. A window that
// was opened since may hold the run.
func (b *Batch) isBehind(j *Job, run job.ID) bool {
	r := b.run(run)
	switch {
	case r == nil, !j.Policy.Contends(&r.Run):
		return false
	case isHeld(&r.Run):
		return true
	}
	return slices.ContainsFunc(b.slotUntil(&r.Run), func(m *member) bool {
		return m != r && !m.removed && m.State == job.StateReady && !m.HoldsSlot && before(&m.Run, &r.Run) && !b.tooLate(&m.Run)
	})
}
