package main

// fault is a change of the code that breaks an invariant, and the test that must notice.
type fault struct {
	invariant string
	what      string
	file      string
	old, new  string // old occurs once in the file
	pkg       string
	test      string // the pattern of go test -run; it matches few tests, at least one of which must fail
}

// The invariants that the design promises. Each has faults.
const (
	once         = "once"
	accounted    = "accounted"
	startedOnce  = "started once"
	withdrawn    = "withdrawn means withdrawn"
	overlap      = "overlap"
	noZombies    = "no zombies"
	acknowledged = "nothing acknowledged is lost"
	bounded      = "bounded"
)

const suite = "./store/memory"

// faults are the mutations. The pages docs/testing-*.md list what else was tried by hand.
var faults = []fault{
	{once, "the cursor is moved without a comparison", "internal/engine/create.go",
		"case !j.Cursor.Equal(item.From), ", "case ",
		suite, "^TestStore$/^once:_the_cursor_moves"},
	{once, "runs outside of what the cursor passes are planned", "internal/engine/create.go",
		"case !wellFormed(j, item):", "case false:",
		suite, "^TestStore$/^once:_a_run_lies"},
	{once, "a repeated item is not recognized", "internal/engine/create.go",
		"case j.repeats(planner, item):", "case false:",
		suite, "^TestStore$/^once:_a_repeated_item"},
	{once, "the key of a request is not looked up", "internal/engine/create.go",
		"made := b.key(identity); !made.IsZero()", "made := b.key(identity); false && !made.IsZero()",
		suite, "^TestStore$/^once:_a_request_with_the_same_key"},
	{once, "the key of a request is not kept", "internal/engine/create.go",
		"b.done.Keys = append(b.done.Keys, Key{identity, r.ID, b.now.Add(store.KeyLife)})", "",
		suite, "^TestStore$/^once:_a_request_with_the_same_key"},
	{once, "a new epoch begins before what was claimed", "internal/engine/floor.go",
		"if !timing.Planned || len(claims) == 0 {\n\t\treturn lastOf(from, j.Floor)", "if !timing.Planned || len(claims) == 0 {\n\t\treturn from",
		suite, "^TestStore$/^once:_a_new_epoch_never"},
	{once, "a claim does not raise the floor", "internal/engine/floor.go",
		"if r.Scheduled.After(j.Floor) {\n\t\tj.Floor = r.Scheduled", "if r.Scheduled.After(j.Floor) {",
		suite, "^TestStore$/^once:_a_new_epoch_never"},

	{accounted, "missed occurrences leave no record", "internal/engine/create.go",
		"for _, span := range item.Missed {\n\t\tb.miss(j, span)", "for range item.Missed {",
		suite, "^TestStore$/^accounted:_missed_occurrences"},
	{accounted, "what a withdrawn run was for is not planned again", "internal/engine/finish.go",
		"if a.Outcome != job.OutcomeWithdrawn {", "if true {",
		suite, "^TestStore$/^accounted:_what_was_withdrawn"},
	{accounted, "a released attempt keeps its instant", "internal/engine/settle.go",
		"b.restoreFloor(j, m)", "",
		suite, "^TestStore$/^accounted:_what_was_claimed_ahead"},
	{accounted, "a run ends without a record", "internal/engine/finish.go",
		"record.Final, record.OutputBytes, record.Unmet = !isStep(&m.Run.Run), output, j.Policy.unmet(&m.Run, &a, true)\n\tb.keep(record)",
		"record.Final, record.OutputBytes, record.Unmet = !isStep(&m.Run.Run), output, j.Policy.unmet(&m.Run, &a, true)",
		suite, "^TestStore$/^a_finished_run_leaves_with_its_record"},
	{accounted, "what was planned before an absence runs whatever the missed policy says", "internal/engine/claim.go",
		"reason, yes := SettledByMissed(j.Policy.Missed, r.Due, r.NextDue, b.absences()); yes", "reason, yes := SettledByMissed(j.Policy.Missed, r.Due, r.NextDue, b.absences()); yes && false",
		suite, "^TestStore$/^accounted:_what_was_planned_ahead"},
	{accounted, "a job has no followers", "internal/engine/finish.go",
		"if follower.Deleted || follower.State != job.JobActive {", "if true {",
		suite, "^TestStore$/^once:_a_follower"},

	{startedOnce, "what runs on another node is started again", "internal/engine/claim.go",
		"if r.Token == a.Token && r.Attempt == a.Number && r.Session == s.ID {", "if true {",
		suite, "^TestStore$/^started_once"},
	{startedOnce, "the number of an attempt is not compared", "internal/engine/claim.go",
		"if r.Attempt != a.Number {", "if false {",
		suite, "^TestStore$/^started_once:_another_attempt"},
	{startedOnce, "a node that leaves claims", "internal/engine/claim.go",
		"if s.Leaving {\n\t\treturn false", "if s.Leaving {",
		suite, "^TestStore$/^a_node_that_leaves"},
	{startedOnce, "a retry keeps the number of the attempt before", "internal/engine/finish.go",
		"m.Attempt++\n", "\n",
		suite, "^TestStore$/^(started_once:_an_attempt_is_followed|a_retry_waits)"},
	{startedOnce, "the claim of another session is taken for a repeated one", "internal/engine/claim.go",
		"r.Attempt == a.Number && r.Session == s.ID {", "r.Attempt == a.Number {",
		suite, "^TestStore$/^started_once"},
	{startedOnce, "an attempt starts without a line in the journal", "internal/worker/attempt.go",
		"if w.Journal != nil {\n\t\t\t\tif err", "if w.Journal != nil && false {\n\t\t\t\tif err",
		"./internal/worker", "^TestFullJournalStartsNothing$"},

	{withdrawn, "the epoch of what is planned is not compared", "internal/engine/create.go",
		"case j == nil || j.Deleted || j.Epoch != item.Epoch:", "case j == nil || j.Deleted:",
		suite, "^TestStore$/^an_item_is_refused"},
	{withdrawn, "a paused job is planned", "internal/engine/create.go",
		"case j.State != job.JobActive:", "case false:",
		suite, "^TestStore$/^(an_item_is_refused|withdrawn)"},
	{withdrawn, "a claim does not compare epochs", "internal/engine/batch.go",
		"r.Kind == job.RunBackfill || r.Epoch == j.Epoch:", "r.Kind == job.RunBackfill || true:",
		suite, "^TestStore$/^withdrawn:_a_change"},
	{withdrawn, "runs of a paused job start", "internal/engine/batch.go",
		"case paused:", "case false && paused:",
		suite, "^TestStore$/^withdrawn"},
	{withdrawn, "runs of a deleted job start", "internal/engine/batch.go",
		"case j.Deleted:\n\t\treturn \"the job was deleted\", true", "case false:\n\t\treturn \"the job was deleted\", true",
		suite, "^TestStore$/^withdrawn:_a_deleted"},
	{withdrawn, "a cancelled run is retried", "internal/engine/finish.go",
		"if r.CancelBy != \"\" {\n\t\treturn time.Time{}, false, \"it was cancelled", "if false {\n\t\treturn time.Time{}, false, \"it was cancelled",
		suite, "^TestStore$/^a_running_attempt_is_asked"},
	{withdrawn, "a pause does not begin an epoch", "internal/engine/edit.go",
		"b.newEpoch(j, b.now, plan{}, whyPaused+by(p.By))", "b.saveJob(j)",
		suite, "^TestStore$/^withdrawn:_nothing_starts"},

	{overlap, "a claim does not ask for a slot", "internal/engine/claim.go",
		"if free > 0 {\n\t\treturn b.take(j, m, s, a)\n\t}\n\treturn b.overlaps", "if true {\n\t\treturn b.take(j, m, s, a)\n\t}\n\treturn b.overlaps",
		suite, "^TestStore$/^overlap:_a_run_of_skip"},
	{overlap, "a claim made ahead takes a slot that an earlier run wants", "internal/engine/claim.go",
		"if free > b.earlier(r) {", "if free > 0 {",
		suite, "^TestStore$/^overlap:_a_claim_made_ahead"},
	{overlap, "max_parallel is not counted", "internal/engine/batch.go",
		"return max(1, p.MaxParallel) - b.held(r.Slot)", "return max(1, p.MaxParallel)",
		suite, "^TestStore$/^overlap:_max_parallel"},
	{overlap, "the pool has room for any number", "internal/engine/batch.go",
		"return max(1, b.poolSize(pool)) - b.held(r.Slot)", "return max(1, b.poolSize(pool))",
		suite, "^TestStore$/^overlap:_a_pool"},
	{overlap, "a freed slot is not handed on", "internal/engine/finish.go",
		"if held && handOn && j.Policy.Contends(&m.Run) {", "if held && !handOn && j.Policy.Contends(&m.Run) {",
		suite, "^TestStore$/^overlap:_a_run_of_queue"},
	{overlap, "the slot goes to the run that is due last", "internal/engine/batch.go",
		"if b.waits(m) && (next == nil || before(&m.Run, &next.Run)) {", "if b.waits(m) && (next == nil || before(&next.Run, &m.Run)) {",
		suite, "^TestStore$/^overlap:_the_slot_goes"},
	{overlap, "runs of a queue are not counted", "internal/engine/claim.go",
		"r.Overlap == \"\" && n >= j.Policy.QueueLimit", "r.Overlap == \"\" && n > 2*j.Policy.QueueLimit",
		suite, "^TestStore$/^overlap:_a_run_of_queue"},

	{noZombies, "attempts are lost although their node lives", "internal/engine/settle.go",
		"if !IsLost(b.now, LostAfter(&m.Run, b.jobOf(&m.Run).Policy.LostAfter), session, maps.Values(b.sessions)) {", "if false {",
		suite, "^TestStore$/^an_attempt_is_lost"},
	{noZombies, "time in which the store was away counts as silence", "internal/engine/silence.go",
		"longest = max(longest, min(now.Sub(heard), now.Sub(witness.Steady)))", "longest = max(longest, now.Sub(heard))",
		"./internal/engine", "^TestSilenceDuringAnOutageDoesNotCount$"},
	{noZombies, "an attempt has no fence", "internal/agenda/fence.go",
		"if !gains {\n\t\treturn 0\n\t}", "if true {\n\t\treturn 0\n\t}",
		"./internal/worker", "^TestFencedAttemptsEndBeforeOthersMayTakeThem$"},
	{noZombies, "the fence leaves no time for the grace", "internal/agenda/fence.go",
		"run.LostAfter-Grace(p)-fenceMargin", "run.LostAfter-fenceMargin",
		"./internal/worker", "^TestFencedAttemptsEndBeforeOthersMayTakeThem$"},
	{noZombies, "fences are not looked at before a start", "internal/worker/attempt.go",
		"if w.fenced(it) {\n\t\t\t\treturn errFenced", "if false {\n\t\t\t\treturn errFenced",
		"./internal/worker", "^TestNothingStartsPastItsFence$"},
	{noZombies, "fences of running attempts are not looked at", "internal/worker/reconcile.go",
		"w.endRunning(executor.ErrFenced, w.fenced)", "",
		"./internal/worker", "^TestFencedAttemptsEndBeforeOthersMayTakeThem$"},
	{noZombies, "a renewal counts from its answer", "internal/membership/membership.go",
		"m.tell(sent)\n\tm.mu.Lock()", "sent = m.config.Boot()\n\tm.tell(sent)\n\tm.mu.Lock()",
		"./internal/membership", "^TestRenewalCountsFromItsSending$"},
	{noZombies, "the watchdog kills nothing when the node dies", "internal/watchdog/guard.go",
		"e.signal(pids, syscall.SIGTERM)\n\t\t\t}\n\t\t}", "}\n\t\t}",
		"./internal/watchdog", "^TestCommandsOfADeadNodeAreEnded$"},
	{noZombies, "the watchdog does not wake a stopped process to end it", "internal/watchdog/guard.go",
		"_ = syscall.Kill(target, syscall.SIGCONT)", "_ = target",
		"./internal/watchdog", "^TestCommandsOfAFrozenNodeEndAtTheFence$"},

	{acknowledged, "the token of a result is not compared", "internal/engine/finish.go",
		"m.Attempt == a.Number && m.Token == a.Token", "m.Attempt == a.Number",
		suite, "^TestStore$/^nothing_acknowledged"},
	{acknowledged, "the attempt of a result is not compared", "internal/engine/finish.go",
		"return m.State == job.StateRunning && m.Attempt == a.Number &&", "return m.State == job.StateRunning &&",
		suite, "^TestStore$/^nothing_acknowledged"},
	{acknowledged, "results are dropped when the store refuses the call", "internal/worker/results.go",
		"q.waiting = append(batch, q.waiting...)", "",
		"./internal/worker", "^TestResultsAreRetriedUntilAcknowledged$"},

	{bounded, "a batch has no bound", "store/internal/ledger/ledger.go",
		"if o.Items > store.MaxBatch {\n\t\treturn store.ErrTooMany\n\t}\n\tkept", "kept",
		suite, "^TestStore$/^batches_are_bounded"},
	{bounded, "a claim may come as early as it likes", "internal/engine/claim.go",
		"if r.Due.Sub(b.now) > store.ClaimAhead {", "if false {",
		suite, "^TestStore$/^a_run_is_claimed_at_most"},
	{bounded, "planning may go as far ahead as it likes", "internal/engine/create.go",
		"case b.tooFar(item):", "case false:",
		suite, "^TestStore$/^nothing_is_planned_beyond"},
	{bounded, "a run may start however late", "internal/engine/claim.go",
		"if b.tooLate(r) {", "if false {",
		suite, "^TestStore$/^(a_run_that_is_too_late|accounted:_after_an_edit)"},
}
