package sim

import (
	"fmt"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/check/truth"
	"github.com/belfry-cron/belfry/job"
)

// History has the events of a cluster, by the store's clock, which is right.
type History struct {
	mu       sync.Mutex
	problems []string
	more     int // number of further problems

	attempts   []*Attempt
	acked      map[attemptKey]job.Outcome // results acknowledged by the store
	lost       map[attemptKey]time.Time   // when the store counted an attempt as lost
	faults     []fault
	jobs       map[job.ID]*book
	holders    map[string]map[job.ID]bool // holders of each slot
	runs       map[job.ID]*runBook        // that were claimed
	asked      map[string]job.ID          // runs by job and idempotency key
	cancels    map[job.ID]int             // how often users were told that a run will end
	sessions   map[job.ID]*session
	absences   []absence
	claims     map[job.ID][]truth.Claim // by run
	openings   []truth.Opening          // of the window
	freed      []freed
	edits      []change
	unplanned  []endedSchedule
	begun      map[attemptKey]bool // started attempts
	idle       []idle
	stale      []stale
	Commits    int // steps of the store
	Planned    int // claims as part of a plan
	Changes    int // jobs created, changed or deleted by users
	Faults     int // number of faults
	Reports    int // deaths of processes reported by their watchdogs
	Within     int // changes during the time of claims
	Absences   int // of all nodes
	HandedOver int // attempts
	Outlived   int // of these, ended after an absence of all nodes
	Flows      int // ended runs of flows
	Late       int // occurrences due and unplanned when their schedule ended
	handed     map[attemptKey]handedOver
	// Calls without an answer or refusal: Mute never arrived, Unheard were made.
	Mute, Unheard int
}

// freed is a run that the window had held, and was claimed.
type freed struct {
	name     string
	from, at time.Time // when it could start, and when it was claimed
}

// stale is a moment at which a planner repeated an earlier plan.
type stale struct {
	name string
	at   time.Time
}

type attemptKey struct {
	run    job.ID
	number int
}

// Attempt is the evidence of an attempt.
type Attempt struct {
	Run            job.Run
	Number         int
	Node           string
	Gains          bool // its loss frees a retry, a slot, or a step of a flow
	Started, Ended time.Time
	Outcome        job.Outcome
	// Frozen is when its machine froze while it ran, Woken when that ended.
	Frozen, Woken time.Time
}

// fault is a time in which something was wrong. After a death other nodes take over unclaimed runs.
type fault struct {
	from, to time.Time
	death    bool
}

// book is a job's data from the steps of the store.
type book struct {
	name    string
	created time.Time
	// epochs has the span of scheduled times that the cursor has moved over.
	epochs map[int64]*span
	// Acknowledged epochs: no run of an earlier one may be claimed.
	epoch, version  int64
	ended           map[int64]time.Time // when users were told that an epoch had ended
	paused, deleted bool
	planner         job.ID // the session that moved the cursor to its position
}

type span struct{ from, to time.Time }

type runBook struct {
	slot    string
	token   job.ID
	run     job.Run
	session job.ID    // the claiming session
	claimed time.Time // zero after the claim
	// lostAfter is the job's lost_after at the claim.
	lostAfter time.Duration
}

// problemsMax bounds what is printed about one world.
const problemsMax = 20

func newHistory() *History {
	return &History{
		acked: map[attemptKey]job.Outcome{}, lost: map[attemptKey]time.Time{}, jobs: map[job.ID]*book{},
		holders: map[string]map[job.ID]bool{}, runs: map[job.ID]*runBook{}, asked: map[string]job.ID{},
		cancels: map[job.ID]int{}, sessions: map[job.ID]*session{}, begun: map[attemptKey]bool{}, handed: map[attemptKey]handedOver{}, claims: map[job.ID][]truth.Claim{},
	}
}

// Problems returns the violations.
func (h *History) Problems() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.more > 0 {
		return append(h.problems[:len(h.problems):len(h.problems)], fmt.Sprintf("and %d more", h.more))
	}
	return h.problems
}

// problem records a broken invariant. The caller holds the mutex.
func (h *History) problem(invariant, format string, args ...any) {
	if len(h.problems) == problemsMax {
		h.more++
		return
	}
	h.problems = append(h.problems, invariant+": "+fmt.Sprintf(format, args...))
}

// broken is problem for a caller without the mutex.
func (h *History) broken(invariant, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problem(invariant, format, args...)
}

// begin notes that an attempt starts.
func (h *History) begin(a *Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts = append(h.attempts, a)
	h.begun[attemptKey{a.Run.ID, a.Number}] = true
}

// fault records that something is wrong for a time.
func (h *History) fault(from, to time.Time, death bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fault{from, to, death})
}

// wrong counts a fault.
func (h *History) wrong() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Faults++
}

// reported counts a death that was reported.
func (h *History) reported() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Reports++
}

// within counts a change during the time of claims.
func (h *History) within() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Within++
}

// absence counts an absence of all nodes.
func (h *History) absence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Absences++
}

// mute counts a call that is not answered.
func (h *History) mute(isNew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if isNew {
		h.Unheard++
	} else {
		h.Mute++
	}
}

// book returns the data of a job. The caller holds the mutex.
func (h *History) book(uid job.ID) *book {
	b := h.jobs[uid]
	if b == nil {
		b = &book{epochs: map[int64]*span{}, ended: map[int64]time.Time{}}
		h.jobs[uid] = b
	}
	return b
}

// end notes that an attempt has ended.
func (h *History) end(a *Attempt, at time.Time, outcome job.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.Ended, a.Outcome = at, outcome
}
