package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/check/truth"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// woken is how long an attempt may continue when its machine wakes.
	woken = time.Second
	// planSlack is how much less than two thirds of the look-ahead may be planned: the time between
	// two rounds of a planner.
	planSlack = 5 * time.Second
	// quietAfter is how long after its due time a run must have ended when nothing is wrong and
	// attempts are short, even if it waits for others in its slot.
	quietAfter = 45 * time.Second
	// recallMax bounds the time until early claims are recalled when nothing is wrong: the time
	// between two polls for changes, and some calls.
	recallMax = 100 * time.Millisecond
	// takenOver bounds how late a run of a dead node starts if others may run it: it is overdue for
	// a second, and they poll four times a second.
	takenOver = 1500 * time.Millisecond
	// missedAfter is how late an occurrence must be planned to count as missed.
	missedAfter = 30 * time.Second
)

// checker has the history and the store of a world.
type checker struct {
	*History
	store   store.Store
	records map[job.ID][]*store.Record // by run, in the order of attempts
	byJob   map[job.ID][]*store.Record
	active  map[job.ID]store.Run
	// happened is what the judge of reasons knows.
	happened *truth.World
	// versions counts how often the jobs of a name were changed.
	versions map[string]int64
	calm     time.Time // when all runs had ended
	ahead    time.Duration
	late     time.Duration // how late a run may start when nothing is wrong; 0 disables the check
}

// Check checks a history against the invariants of the design, after some minutes of good weather
// with all nodes working. late bounds the lateness of runs in good weather.
func (h *History) Check(s store.Store, calm time.Time, lookAhead, late time.Duration) error {
	c := &checker{History: h, store: s, versions: map[string]int64{}, calm: calm, ahead: lookAhead, late: late}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := c.read(); err != nil {
		return err
	}
	c.checkAttempts()
	c.checkRecords()
	c.checkOverlap()
	c.checkRate()
	c.checkFollowers()
	c.checkFlows()
	c.checkChain()
	c.checkLateness()
	c.checkFreed()
	c.checkIdle()
	c.checkStale()
	c.checkHandedOver()
	c.checkReasons()
	c.checkAbsences()
	if err := c.checkUnplanned(); err != nil {
		return err
	}
	if err := c.checkShared(); err != nil {
		return err
	}
	for uid, b := range h.jobs {
		if err := c.checkJob(uid, b); err != nil {
			return err
		}
	}
	err := c.checkAudit()
	slices.Sort(h.problems) // independent of the order of maps
	return err
}

// read reads the whole content of the store.
func (c *checker) read() error {
	ctx := context.Background()
	c.records, c.byJob, c.active = map[job.ID][]*store.Record{}, map[job.ID][]*store.Record{}, map[job.ID]store.Run{}
	query := store.HistoryQuery{Limit: store.LookMax}
	for {
		page, next, err := c.store.Attempts(ctx, query)
		if err != nil {
			return err
		}
		for i := range page {
			r := &page[i]
			c.records[r.Run.ID] = append(c.records[r.Run.ID], r)
			c.byJob[r.Run.JobUID] = append(c.byJob[r.Run.JobUID], r)
		}
		if next == (store.RecordRef{}) {
			break
		}
		query.Before = next
	}
	for _, list := range c.records {
		slices.SortFunc(list, func(a, b *store.Record) int { return a.Attempt.Number - b.Attempt.Number })
	}
	active, err := c.store.ListActive(ctx, store.ActiveQuery{Limit: 1 << 20})
	for _, r := range active {
		c.active[r.ID] = r
	}
	return err
}

// old reports whether an event at a moment is old enough to have had its effect. At the end
// attempts are short.
func (c *checker) old(at time.Time) bool { return at.Before(c.calm.Add(-quietAfter)) }

// record returns the record of an attempt.
func (c *checker) record(key attemptKey) *store.Record {
	for _, r := range c.records[key.run] {
		if r.Attempt.Number == key.number {
			return r
		}
	}
	return nil
}

// checkAttempts compares the attempts' own evidence with their records.
func (c *checker) checkAttempts() {
	started := map[attemptKey]*Attempt{}
	for _, a := range c.attempts {
		key := attemptKey{a.Run.ID, a.Number}
		if other := started[key]; other != nil {
			c.problem("started once", "attempt %d of %s of %s has started on %s at %s and on %s at %s",
				a.Number, a.Run.Name, a.Run.Due, other.Node, other.Started, a.Node, a.Started)
		}
		started[key] = a
		if a.Started.Before(a.Run.Due) {
			c.problem("no start early", "an attempt of %s has started %s early", a.Run.Name, a.Run.Due.Sub(a.Started))
		}
		if ended := c.jobs[a.Run.JobUID].ended[a.Run.Epoch]; c.late > 0 && a.Run.Kind == job.RunScheduled && !ended.IsZero() &&
			a.Started.After(ended.Add(recallMax)) && !c.faulty(ended.Add(-settled), a.Started, true) {
			c.problem("withdrawn means withdrawn", "an attempt of %s has started %s after its epoch was ended", a.Run.Name, a.Started.Sub(ended))
		}
		if a.Ended.IsZero() {
			if c.old(a.Started) {
				c.problem("liveness", "attempt %d of %s of %s on %s has not ended", a.Number, a.Run.Name, a.Run.Due, a.Node)
			}
			continue
		}
		if !a.Woken.IsZero() && a.Gains && !c.lost[key].IsZero() && c.lost[key].Before(a.Woken) && a.Ended.After(a.Woken.Add(woken)) {
			c.problem("no zombies", "an attempt of %s went on for %s after its machine woke", a.Run.Name, a.Ended.Sub(a.Woken))
		}
		if lost := c.lost[key]; a.Gains && a.Woken.IsZero() && !lost.IsZero() && a.Ended.After(lost) {
			c.problem("no zombies", "an attempt of %s on %s went on for %s after it was taken for lost", a.Run.Name, a.Node, a.Ended.Sub(lost))
		}
		record, outcome := c.record(key), c.acked[key]
		switch {
		case record == nil && !c.old(a.Ended):
		case record == nil:
			c.problem("nothing acknowledged is lost", "attempt %d of %s of %s ended as %s at %s and is nowhere", a.Number, a.Run.Name, a.Run.Due, a.Outcome, a.Ended)
		case specOf(a.Run.Name).handed && record.Attempt.Outcome == job.OutcomeCancelled: // whatever it reports later
		case outcome != "" && record.Attempt.Outcome != outcome:
			c.problem("nothing acknowledged is lost", "attempt %d of %s of %s was acknowledged as %s and is kept as %s",
				a.Number, a.Run.Name, a.Run.Due, outcome, record.Attempt.Outcome)
		case specOf(a.Run.Name).handed && record.Attempt.Outcome == job.OutcomeTimedOut: // its report came too late
		case record.Attempt.Outcome != a.Outcome && record.Attempt.Outcome != job.OutcomeLost:
			c.problem("nothing acknowledged is lost", "attempt %d of %s of %s ended as %s and is kept as %s",
				a.Number, a.Run.Name, a.Run.Due, a.Outcome, record.Attempt.Outcome)
		}
	}
	// An attempt begins after the end of the previous one.
	for key, a := range started {
		if before := started[attemptKey{key.run, key.number - 1}]; before != nil && before.Woken.IsZero() && a.Started.Before(before.Ended) {
			c.problem("started once", "attempt %d of %s of %s has started while attempt %d ran", a.Number, a.Run.Name, a.Run.Due, before.Number)
		}
	}
	for id := range c.active {
		if r := c.active[id]; c.old(r.Due) && (specOf(r.Name).run == "" || r.Due.Before(c.calm.Add(-flowQuietAfter))) {
			c.problem("liveness", "the run of %s of %s is still %s in the end: %s", r.Name, r.Due, r.State, r.Reason)
		}
	}
}

// checkRecords checks each run separately.
func (c *checker) checkRecords() {
	for id, list := range c.records {
		last := list[len(list)-1]
		if last.Run.Kind == job.RunStep {
			continue // see checkFlows
		}
		name := last.Run.Name
		s := specOf(name)
		finals := 0
		for i, r := range list {
			if r.Final {
				finals++
			}
			if r.Final && r.Attempt.Number > 0 && i < len(list)-1 {
				c.problem("accounted", "the run of %s of %s continues after its end", name, last.Run.Due)
			}
			if !r.Final && s.retries == 0 {
				c.problem("no double run", "%s is retried although its policy does not say so", name)
			}
			if !r.Final && r.Attempt.Outcome == job.OutcomeLost && !s.onLost {
				c.problem("no double run", "a lost attempt of %s is retried although its policy does not say so", name)
			}
			if r.Attempt.Number > s.retries+1 {
				c.problem("no double run", "%s has attempt %d", name, r.Attempt.Number)
			}
			c.checkOutcome(r)
		}
		_, active := c.active[id]
		if finals > 1 || active && finals > 0 || !active && finals == 0 {
			c.problem("accounted", "the run of %s of %s has %d final records; is it active: %t", name, last.Run.Due, finals, active)
		}
	}
}

// lostAfter is the lost_after of the jobs whose runs belong to a node.
const lostAfter = time.Minute

// checkOutcome checks whether an outcome is justified.
func (c *checker) checkOutcome(r *store.Record) {
	switch r.Attempt.Outcome {
	case job.OutcomeMissed:
		if reason.NodeGone.Is(r.Attempt.Reason) {
			c.checkGone(r, lostAfter)
		}
		after := missedAfter
		switch s, why := specOf(r.Run.Name), reason.Inner(r.Attempt.Reason, "why"); {
		case reason.JobDeleted.Is(why), reason.ScheduleChanged.Is(why):
			return // no planner can plan it later: see checkUnplanned
		case reason.JobPaused.Is(why):
			return // nor that: the user wanted it to catch up
		case s.lateBy > 0:
			after = s.lateBy
		}
		if late := r.Attempt.Ended.Sub(r.Run.Due); late < after && r.Run.Kind == job.RunScheduled && !c.isFollowed(r) {
			c.problem("accounted", "%s of %s was recorded as missed %s after it was due: %s", r.Run.Name, r.Run.Due, late, r.Attempt.Reason)
		}
	case job.OutcomeSkipped:
		if s := specOf(r.Run.Name); s.most+s.flowMost == 0 && !s.windowed {
			c.problem("overlap", "a run of %s was skipped: %s", r.Run.Name, r.Attempt.Reason)
		}
	case job.OutcomeWithdrawn:
		if _, ok := steady[r.Run.Name]; ok {
			c.problem("accounted", "a run of %s was withdrawn without a change: %s", r.Run.Name, r.Attempt.Reason)
		}
	case job.OutcomeCancelled:
		if _, ok := steady[r.Run.Name]; ok && r.Run.Kind != job.RunByFlow && !strings.Contains(steady[r.Run.Name].rest, "overlap: replace") {
			c.problem("accounted", "a run of %s was cancelled without a request: %s", r.Run.Name, r.Attempt.Reason)
		}
	}
}

// occurrence identifies what may have one run.
type occurrence struct {
	kind  job.RunKind
	key   string
	shard int
}

// moment is an occurrence by a schedule.
type moment struct {
	epoch     int64
	scheduled time.Time
}

// checkJob checks all runs of a job together: an identity has one run, apart from withdrawn ones.
func (c *checker) checkJob(uid job.ID, b *book) error {
	j, err := store.JobByUID(context.Background(), c.store, uid)
	if err != nil {
		return fmt.Errorf("read job %s: %w", b.name, err)
	}
	c.versions[b.name] += j.Definition.Version
	runs := map[occurrence]job.ID{}
	planned := map[moment]int{} // shards of planned occurrences
	wanted := map[moment]int{}
	missed := map[int64][]*store.Record{}
	count := func(r *job.Run, withdrawn bool) {
		key := occurrence{r.Kind, r.Key, r.Shard}
		if other, ok := runs[key]; ok && other != r.ID && !withdrawn {
			c.problem("once", "the occurrence %v of %s has the runs %s and %s", key, b.name, other, r.ID)
		}
		if !withdrawn {
			runs[key] = r.ID
		}
		if r.Kind == job.RunScheduled {
			at := moment{r.Epoch, r.Scheduled.UTC()}
			planned[at]++
			wanted[at] = max(1, r.Shards)
		}
	}
	for _, r := range c.byJob[uid] {
		switch {
		case r.Attempt.Outcome == job.OutcomeMissed && (r.Count > 1 || r.Attempt.Number == 0 && !r.Until.IsZero()):
			missed[r.Run.Epoch] = append(missed[r.Run.Epoch], r)
		case r.Final:
			count(&r.Run, r.Attempt.Outcome == job.OutcomeWithdrawn)
		}
	}
	for _, r := range c.active {
		if r.JobUID == uid {
			count(&r.Run, false)
		}
	}
	for at, n := range planned {
		if n != wanted[at] {
			c.problem("accounted", "of the occurrence of %s of %s there are %d runs, want %d", b.name, at.scheduled, n, wanted[at])
		}
	}
	if s, ok := steady[b.name]; ok && s.shards > 0 {
		for at, n := range wanted {
			if n != s.shards {
				c.problem("accounted", "the occurrence of %s of %s has %d shards", b.name, at.scheduled, n)
			}
		}
	}
	if _, ok := steady[b.name]; !ok {
		return nil // the cursor passed it in an old epoch, by an old schedule
	}
	return c.checkPlan(j, b, planned, missed[1])
}

// checkPlan compares the planned runs of a job without edits, and the records of what it has
// missed, with its schedule.
//
// Each occurrence that a cursor has passed is one run or in one record.
func (c *checker) checkPlan(j *store.Job, b *book, planned map[moment]int, missed []*store.Record) error {
	if j.Definition.Epoch != 1 {
		c.problem("accounted", "%s has the epoch %d without a change", b.name, j.Definition.Epoch)
	}
	schedule, err := j.Filled.CompileSchedule(nil)
	if err != nil || len(j.Filled.Schedule.Cron) == 0 && j.Filled.Schedule.Every == 0 {
		return err
	}
	passed := b.epochs[1]
	if passed == nil {
		c.problem("liveness", "%s was never planned", b.name)
		return nil
	}
	if !passed.to.Equal(j.Cursor) {
		c.problem("once", "the cursor of %s stands at %s, and was moved to %s", b.name, j.Cursor, passed.to)
	}
	for at := range cron.Between(schedule, passed.from, j.Cursor) {
		in := 0
		for _, r := range missed {
			if !at.Before(r.Run.Scheduled) && !at.After(r.Until) {
				in++
			}
		}
		if planned[moment{1, at.UTC()}] > 0 {
			in++
			delete(planned, moment{1, at.UTC()})
		}
		if in != 1 {
			c.problem("accounted", "the occurrence of %s of %s is accounted for %d times", b.name, at, in)
		}
	}
	for at := range planned {
		c.problem("accounted", "%s was planned for %s, when it is not due", b.name, at.scheduled)
	}
	if most := j.Filled.Schedule.MaxRuns; most > 0 {
		if j.Planned != most {
			c.problem("accounted", "%s has become %d runs, want %d", b.name, j.Planned, most)
		}
		return nil
	}
	if next := schedule.Next(j.Cursor); next.Before(c.calm.Add(c.ahead*2/3 - planSlack)) {
		c.problem("liveness", "%s is not planned for %s, which is %s ahead", b.name, next, next.Sub(c.calm))
	}
	return nil
}

// checkOverlap counts the attempts that ran at once, by their own evidence.
func (c *checker) checkOverlap() {
	type change struct {
		at   time.Time
		by   int
		name string
	}
	changes := map[string][]change{}
	for _, a := range c.attempts {
		if specOf(a.Run.Name).most == 0 || a.Run.Kind == job.RunBackfill {
			continue
		}
		// A frozen machine that counted as dead is not checked.
		end := a.Ended
		if !a.Frozen.IsZero() && !c.lost[attemptKey{a.Run.ID, a.Number}].IsZero() {
			end = a.Frozen
		}
		key := slotOf(&a.Run, a.Node)
		changes[key] = append(changes[key], change{a.Started, 1, a.Run.Name}, change{end, -1, a.Run.Name})
	}
	for key, list := range changes {
		slices.SortFunc(list, func(a, b change) int {
			if order := a.at.Compare(b.at); order != 0 {
				return order
			}
			return a.by - b.by // at one instant, ends come before beginnings
		})
		n := 0
		for _, change := range list {
			if n += change.by; n > parallelOf(change.name) {
				c.problem("overlap", "%d runs in the slot %s of %s at %s", n, key, change.name, change.at)
				break
			}
		}
	}
}

// checkFollowers checks that each end has made one run of each follower.
func (c *checker) checkFollowers() {
	followers := map[job.ID]int{}
	var created time.Time
	for _, b := range c.jobs {
		if b.name == "follower" {
			created = b.created
		}
	}
	follows := func(r *job.Run) {
		if r.Name == "follower" {
			followers[r.Parent]++
		}
	}
	for _, list := range c.records {
		follows(&list[len(list)-1].Run)
	}
	for id := range c.active {
		r := c.active[id]
		follows(&r.Run)
	}
	for id, list := range c.records {
		r := truth.Final(list)
		if r.Run.Name != "retry" || !r.Final || r.Attempt.Ended.Before(created) {
			continue
		}
		want := 0
		switch r.Attempt.Outcome {
		case job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeTimedOut, job.OutcomeLost:
			want = 1
		}
		if got := followers[id]; got != want && !r.Replaces {
			c.problem("nothing acknowledged is lost", "the run of retry of %s ended as %s and has %d followers", r.Run.Due, r.Attempt.Outcome, got)
		}
	}
}

// checkRate: in no time do more attempts start than the rate allows, and none waits for longer than its
// line.
func (c *checker) checkRate() {
	var starts []time.Time
	for id, claims := range c.claims {
		run := c.runs[id].run
		if !specOf(run.Name).rated {
			continue
		}
		for _, claim := range claims {
			starts = append(starts, claim.From)
		}
		first := claims[0].From
		if late := first.Sub(run.Scheduled); c.late > 0 && late > inLineMax && !c.faulty(run.Scheduled, first, true) {
			c.problem("rate", "a run of %s of %s started %s late", run.Name, run.Scheduled, late)
		}
	}
	slices.SortFunc(starts, time.Time.Compare)
	for i, n := 0, rate.Limit+rate.Burst-1; i+n < len(starts); i++ {
		if within := starts[i+n].Sub(starts[i]); within < time.Duration(rate.Per)-time.Duration(n)*time.Millisecond {
			c.problem("rate", "%d attempts started within %s from %s on", n+1, within, starts[i])
		}
	}
}

// inLineMax bounds the time in the line of the rate: as many runs wait before one as its job's queue_limit
// says, and the retries of those that run.
const inLineMax = 5 * time.Minute

// checkChain: each run of a chain but the last has one successor.
func (c *checker) checkChain() {
	successors, ends := map[job.ID]int{}, 0
	note := func(r *job.Run) {
		if r.Name == "chain" && !r.Parent.IsZero() {
			successors[r.Parent]++
		}
	}
	for _, list := range c.records {
		note(&list[len(list)-1].Run)
	}
	for id := range c.active {
		r := c.active[id]
		note(&r.Run)
		if r.Name == "chain" {
			ends++
		}
	}
	for id, list := range c.records {
		if r := truth.Final(list); r.Run.Name == "chain" && r.Final && successors[id] != 1 {
			c.problem("accounted", "the run of chain of %s has %d successors", r.Run.Due, successors[id])
		}
	}
	if ends != 1 {
		c.problem("accounted", "the chain has %d ends", ends)
	}
}

// settled is how long nothing must have been wrong before a due time for the run to start on time:
// long enough to plan and place again.
const settled = 20 * time.Second

// faulty reports whether anything was wrong between two moments, not counting deaths unless deaths
// is set.
func (c *checker) faulty(from, to time.Time, deaths bool) bool {
	return slices.ContainsFunc(c.faults, func(f fault) bool { return f.from.Before(to) && f.to.After(from) && (deaths || !f.death) })
}

// checkLateness checks that runs start on time when nothing is wrong.
func (c *checker) checkLateness() {
	if c.late == 0 {
		return
	}
	for _, a := range c.attempts {
		if a.Number > 1 || a.Run.Kind != job.RunScheduled || !steady[a.Run.Name].prompt {
			continue
		}
		switch late, before := a.Started.Sub(a.Run.Due), a.Run.Due.Add(-settled); {
		case late > c.late && !c.faulty(before, a.Started, true):
			c.problem("liveness", "a run of %s of %s has started %s late on %s, and nothing was wrong", a.Run.Name, a.Run.Due, late, a.Node)
		case late > takenOver && !c.faulty(before, a.Started, false) && a.Run.Name != "zone":
			c.problem("liveness", "a run of %s of %s has started %s late on %s, and only nodes have died", a.Run.Name, a.Run.Due, late, a.Node)
		}
	}
}

// checkFreed checks that a closed window keeps no run.
func (c *checker) checkFreed() {
	for _, f := range c.freed {
		if late := f.at.Sub(f.from); c.late > 0 && late > takenOver && !c.faulty(f.from.Add(-settled), f.at, true) {
			c.problem("windows", "a run of %s that the window held was claimed %s after it could start", f.name, late)
		}
	}
}

// checkAudit: each change of a job has one record.
func (c *checker) checkAudit() error {
	records := map[string]int64{}
	query := store.AuditQuery{Limit: store.LookMax}
	for {
		list, next, err := c.store.Audit(context.Background(), query)
		if err != nil {
			return err
		}
		for i := range list {
			if strings.HasPrefix(list[i].Action, "job.") {
				records[list[i].Object]++
			}
		}
		if next == 0 {
			break
		}
		query.Before = next
	}
	for name, n := range c.versions {
		if got := records[job.DefaultNamespace+"/"+name]; got != n {
			c.problem("audited", "%s was changed %d times, and there are %d records", name, n, got)
		}
	}
	return nil
}
