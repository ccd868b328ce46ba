package engine

import (
	"cmp"
	"slices"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Plan decides whether a cursor moves, and creates the runs of the occurrences that it passes. It
// needs the job and, for their names, the sessions; if the item completes a job that is removed on
// completion, also its unfinished runs. Once all items are decided, runs with a token are claimed,
// or else hinted: see claimPlanned.
//
// Each occurrence is planned once: the cursor moves only from the planner's position, in the step
// that creates the runs in the span that it passes. Each is accounted for: a moment of the span is
// a run, missed, or not in the schedule.
func (b *Batch) Plan(planner job.ID, item *store.PlanItem) store.PlanOutcome {
	j := b.job(item.Job)
	switch {
	case j == nil || j.Deleted || j.Epoch != item.Epoch:
		return store.Withdrawn
	case j.repeats(planner, item):
		return store.Planned // the answer was lost
	case j.State != job.JobActive:
		return store.Withdrawn
	case !j.Cursor.Equal(item.From), j.Policy.MaxRuns > 0 && j.Planned != item.Planned:
		return store.Moved
	case !wellFormed(j, item):
		return store.Malformed
	case b.tooFar(item):
		return store.TooFar
	}
	occurrences := 0
	for i, n := range item.Runs {
		if i == 0 || !n.Scheduled.Equal(item.Runs[i-1].Scheduled) {
			occurrences++
		}
		r := b.newRun(j, n.ID, job.RunScheduled, KeyOf(n.Scheduled))
		r.Scheduled, r.Due, r.NextDue, r.Shard, r.Shards = n.Scheduled, n.Due, n.NextDue, n.Shard, n.Shards
		b.place(j, &r, n.Session, n.Node)
		if n.Token.IsZero() {
			b.hint(r.Due)
		}
	}
	for _, span := range item.Missed {
		if outage := unreached(b.session(planner), span.First, span.Last); !outage.IsZero() {
			span.Reason = reason.AfterOutage.Of(cmp.Or(span.Reason, reason.Unplanned.Of(job.Reason{})), outage)
		}
		b.miss(j, span)
	}
	j.Cursor, j.Planner = item.To, planner
	j.Planned += occurrences
	b.saveJob(j)
	if item.Complete {
		b.complete(j)
	}
	return store.Planned
}

// wellFormed reports whether an item creates only runs that its cursor passes, in order.
func wellFormed(j *Job, item *store.PlanItem) bool {
	if !j.Policy.Planned || item.To.Before(item.From) {
		return false
	}
	passed := item.From
	shard := 0
	occurrences := 0
	for i, n := range item.Runs {
		if i > 0 && n.Scheduled.Equal(passed) {
			if shard++; n.Shard != shard {
				return false
			}
		} else if !n.Scheduled.After(passed) || n.Shard != 0 {
			return false
		} else {
			passed, shard = n.Scheduled, 0
			occurrences++
		}
		if n.ID.IsZero() || n.Scheduled.After(item.To) || n.Due.Before(n.Scheduled) || n.Shard > 0 && n.Shard >= n.Shards {
			return false
		}
	}
	passed = item.From
	for _, span := range item.Missed {
		if span.ID.IsZero() || !span.First.After(passed) || span.Last.Before(span.First) || span.Last.After(item.To) || span.Count < 1 {
			return false
		}
		passed = span.Last
	}
	return j.Policy.MaxRuns == 0 || j.Planned+occurrences <= j.Policy.MaxRuns
}

// tooFar reports whether an item exceeds the limit by the store's clock: the clock of a
// planner must not move a cursor into the future.
func (b *Batch) tooFar(item *store.PlanItem) bool {
	return item.To.After(b.now.Add(b.lookAhead+store.PlanSlack)) ||
		slices.ContainsFunc(item.Missed, func(s store.MissedSpan) bool { return s.Last.After(b.now) })
}

// miss records occurrences that will not run. They are settled: no new epoch plans them again.
func (b *Batch) miss(j *Job, span store.MissedSpan) {
	if span.Last.After(j.Floor) {
		j.Floor = span.Last
		b.saveJob(j)
	}
	why := cmp.Or(span.Reason, reason.Unplanned.Of(job.Reason{}))
	b.keep(store.Record{
		Run: job.Run{
			ID: span.ID, JobUID: j.UID, Namespace: j.Namespace, Name: j.Name,
			Kind: job.RunScheduled, Key: KeyOf(span.First), Epoch: j.Epoch, Version: j.Version,
			State: job.StateDone, Scheduled: span.First, Due: span.First,
			Outcome: job.OutcomeMissed, Reason: why,
		},
		Attempt: job.Attempt{Run: span.ID, Ended: b.now, Outcome: job.OutcomeMissed, Reason: why},
		Final:   true, Count: span.Count, Until: span.Last,
	})
}

// Trigger creates a run outside of cursors. It needs the job, the stored key of the request if any
// (AddKey), and the session for its name.
//
// The step that creates the run also looks up and stores the key, so that a request counts once.
func (b *Batch) Trigger(item *store.TriggerItem) store.TriggerOutcome {
	identity := IdentityOf(item)
	key := identity.Key
	if id := b.key(identity); !id.IsZero() && (item.PutOff == 0 || b.putOff(id, item)) {
		return store.TriggerOutcome{Run: id}
	}
	j := b.job(item.Job)
	refused := j == nil || j.Deleted || j.Policy.Reported ||
		item.Kind != job.RunByHand && j.State == job.JobPaused ||
		item.Kind == job.RunBoot && j.State != job.JobActive
	if refused {
		return store.TriggerOutcome{Err: store.ErrNotFound}
	}
	r := b.newRun(j, item.ID, item.Kind, key)
	r.Due = item.Due
	if r.Due.IsZero() {
		r.Due = b.now
	}
	r.Scheduled = item.Scheduled
	if r.Scheduled.IsZero() {
		r.Scheduled = r.Due
	}
	r.Due = r.Due.Add(item.PutOff)
	r.Shard, r.Shards, r.Params, r.Overlap = item.Shard, item.Shards, item.Params, item.Overlap
	r.Parent, r.Flow = item.Again, item.Flow
	b.place(j, &r, item.Session, item.Node)
	b.hint(r.Due)
	put(&b.keys, identity, r.ID)
	b.done.Keys = append(b.done.Keys, Key{identity, r.ID, b.now.Add(cmp.Or(item.KeyFor, store.KeyLife))})
	switch {
	case item.Actor == "":
	case item.Kind == job.RunBackfill:
		b.auditBackfill(item.Actor, j, r.Scheduled)
	case item.Shards > 0 && b.handRequests[Identity{item.Job, item.Kind, key, 0}]:
		// Another part of the request.
	default:
		if item.Shards > 0 {
			if b.handRequests == nil {
				b.handRequests = map[Identity]bool{}
			}
			b.handRequests[Identity{item.Job, item.Kind, key, 0}] = true
		}
		b.audit(item.Actor, "run."+string(item.Kind), j.FullName(), j.Version, reason.RunOf.Of(r.ID))
	}
	return store.TriggerOutcome{Run: r.ID, Made: true}
}

// putOff puts off a run that has not started and takes the parameters of another request for it. It
// reports false for a run that has started, or waits for nothing but its slot.
func (b *Batch) putOff(id job.ID, item *store.TriggerItem) bool {
	m := b.run(id)
	if m == nil || m.removed || m.State != job.StateReady || m.HoldsSlot || !m.First.IsZero() || !m.Due.After(b.now) {
		return false
	}
	m.Params, m.Due = item.Params, b.now.Add(item.PutOff)
	if last := m.Scheduled.Add(item.PutOff * store.PutOffMax); m.Due.After(last) {
		m.Due = last
	}
	j := b.jobOf(&m.Run)
	b.moveSlot(m, j.Policy.SlotKey(&m.Run.Run, m.Node))
	b.save(m)
	b.done.Given = append(b.done.Given, &m.Run)
	b.hint(m.Due)
	b.audit(item.Actor, "run.put_off", j.FullName(), j.Version, reason.RunOf.Of(id))
	return true
}

// IdentityOf returns the identity of a requested run.
func IdentityOf(item *store.TriggerItem) Identity {
	key := item.Key
	switch {
	case key != "":
	case item.Kind == job.RunBackfill:
		key = KeyOf(item.Scheduled)
	default:
		key = item.ID.String()
	}
	return Identity{item.Job, item.Kind, key, item.Shard}
}

// StartsRun reports whether an audit record is about the manual start of a run.
func StartsRun(r *store.AuditRecord, run job.ID) bool {
	return r.Action == "run."+string(job.RunByHand) && r.Detail == reason.RunOf.Of(run)
}

// newRun returns a run of a job that is ready for its first attempt.
func (b *Batch) newRun(j *Job, id job.ID, kind job.RunKind, key string) store.Run {
	return store.Run{
		Run: job.Run{
			ID: id, JobUID: j.UID, Namespace: j.Namespace, Name: j.Name, Kind: kind, Key: key,
			Epoch: j.Epoch, Version: j.Version, State: job.StateReady, Attempt: 1,
		},
		Priority: j.Policy.Priority,
	}
}

// place adds a new run, and assigns it to a session that is known and accepts runs: the planner may
// not know yet that a node is leaving. A run of a broadcast always belongs to its node, as each
// node has one.
func (b *Batch) place(j *Job, r *store.Run, session job.ID, node string) {
	if s := b.session(session); j.Policy.Reported {
		r.State, r.Reason = job.StateWaiting, reason.NoReport.Of()
	} else if s != nil && s.Takes() {
		r.Session, r.Node = s.ID, s.Node
	} else if j.Policy.Broadcast {
		r.Node = node
	}
	r.LateAfter = j.Policy.LateAfter(r.Kind, r.Due)
	r.Slot = j.Policy.SlotKey(&r.Run, r.Node)
	b.makeRun(*r)
}

// Place decides whether a run is assigned to a session. It needs both, and the
// job.
func (b *Batch) Place(p store.Placement) {
	m := b.run(p.Run)
	s := b.session(p.Session)
	if m == nil || m.removed || m.State != job.StateReady || m.Attempt != p.Attempt || s == nil || !s.Takes() || m.Session == p.Session {
		return
	}
	if !MayGoTo(b.jobOf(&m.Run).Policy.Bound, m.Node, s.Node) {
		return // it waits for a new session of its node
	}
	m.Session, m.Node = s.ID, s.Node
	if m.Last == "" && !m.IsPostponed() {
		m.Reason = job.Reason{} // the former reason was why it was not placed
	}
	b.save(m)
	b.done.Hints |= store.HintPlaced
}
