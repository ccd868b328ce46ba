package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// History is all that is known at the end about what was to happen and what did.
type History struct {
	Jobs    []Job
	Events  []Event  // what the jobs have written
	Records []Record // what the server says of runs that are over
	// Down are the times in which no server ran.
	Down []Span
	// Acknowledged are runs that a request was answered with, by id, with the outcome
	// that was seen, if any was.
	Acknowledged map[string]string
}

// Job is what is expected of one job that was acknowledged.
type Job struct {
	Name string // namespace/name
	// Occurrences fell due in the window, by scheduled time. Each must be
	// accounted for.
	Occurrences []time.Time
	// Open are when it is unknown which definition was in force: between a
	// request that changes the job and its answer. Occurrences in them may be
	// accounted for or not.
	Open []Span
	// Withdrawn has the times when the job was paused or deleted, from the answer of that
	// request to the next request that ends it. Its occurrences in them need no
	// record, and nothing may start in them but runs by hand.
	Withdrawn []Span
	// Named are the attempts that the answers of those requests have named as
	// claimed or going on, by run: these may start in spite of them.
	Named map[string]int
	// Lock is what the job shares slots by. Default: its name.
	Lock string
	// Slots are how many attempts run at once; 0 is without bound.
	Slots int
	// Retries are how many further attempts a run may have.
	Retries int
	// StartWithin is how late the first attempt of what succeeds may start
	// after its scheduled time, without the times of Down. Default: no bound.
	StartWithin time.Duration
}

// Between sets what is expected of a job with a fixed rate from the request that creates it
// to the one that pauses it for good. What its schedule has before the job exists never
// falls due.
func (j *Job) Between(first time.Time, every time.Duration, created, paused Span) {
	j.Open = []Span{created, paused}
	j.Withdrawn = []Span{{From: paused.To, To: paused.To.Add(time.Hour)}}
	for t := first; t.Before(paused.From); t = t.Add(every) {
		if t.After(created.From) {
			j.Occurrences = append(j.Occurrences, t)
		}
	}
}

// Record is what the server says of a run that is over.
type Record struct {
	Job, Run  string
	Kind      string // schedule, hand, …
	Scheduled time.Time
	Until     time.Time // of the last one, for a record of many
	Outcome   string
	Attempts  []string // the outcomes of its attempts, by number
}

// Span is a time from From to To.
type Span struct{ From, To time.Time }

func (s Span) has(t time.Time) bool { return !t.Before(s.From) && !t.After(s.To) }

func (s Span) length() time.Duration { return s.To.Sub(s.From) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func covered(spans []Span, t time.Time) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.has(t) })
}

// Violation is a sentence about an invariant that does not hold.
type Violation struct {
	Invariant Invariant
	Text      string
}

// Invariant is the name of what must hold.
type Invariant string

// What must hold. docs/architecture.md explains them.
const (
	Once                        Invariant = "Once"
	Accounted                   Invariant = "Accounted"
	StartedOnce                 Invariant = "StartedOnce"
	Withdrawn                   Invariant = "Withdrawn"
	Overlap                     Invariant = "Overlap"
	NothingAcknowledgedIsLost   Invariant = "NothingAcknowledgedIsLost"
	Punctual                    Invariant = "Punctual"
	RecordsAgreeWithTheEvidence Invariant = "RecordsAgreeWithTheEvidence"
)

// checker collects violations.
type checker struct {
	history History
	found   []Violation
	jobs    map[string]*Job
	records map[string]*Record   // by run
	events  map[string][]Event   // by run, by time
	byJob   map[string][]*Record // by job
}

func (c *checker) violated(i Invariant, format string, args ...any) {
	c.found = append(c.found, Violation{i, fmt.Sprintf(format, args...)})
}

// Check returns what does not hold.
func Check(h History) []Violation {
	c := &checker{
		history: h, jobs: map[string]*Job{}, records: map[string]*Record{},
		events: map[string][]Event{}, byJob: map[string][]*Record{},
	}
	for i := range h.Jobs {
		c.jobs[h.Jobs[i].Name] = &h.Jobs[i]
	}
	for i := range h.Records {
		r := &h.Records[i]
		if c.records[r.Run] != nil {
			c.violated(Once, "%s: run %s has two records", r.Job, r.Run)
		}
		c.records[r.Run] = r
		c.byJob[r.Job] = append(c.byJob[r.Job], r)
	}
	events := slices.Clone(h.Events)
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	for _, e := range events {
		c.events[e.Run] = append(c.events[e.Run], e)
	}
	for _, run := range sortedKeys(c.events) {
		c.checkRun(run, c.events[run])
	}
	for i := range h.Records {
		c.checkRecord(&h.Records[i])
	}
	for i := range h.Jobs {
		c.checkOccurrences(&h.Jobs[i])
	}
	c.checkOverlap(events)
	for _, run := range sortedKeys(h.Acknowledged) {
		c.checkAcknowledged(run, h.Acknowledged[run])
	}
	return c.found
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// checkRun looks at what the attempts of one run have written.
func (c *checker) checkRun(run string, events []Event) {
	name := events[0].Job
	job, record := c.jobs[name], c.records[run]
	if job == nil {
		c.violated(Accounted, "run %s is of %s, which no request has acknowledged", run, name)
		return
	}
	r := attempts{job: job, run: run, record: record, starts: map[int]Event{}}
	for _, e := range events {
		switch e.Kind {
		case Start:
			c.checkStart(&r, e)
		case End:
			if _, began := r.starts[e.Attempt]; !began {
				c.violated(RecordsAgreeWithTheEvidence, "%s: attempt %d of run %s ended and never started", name, e.Attempt, run)
			}
			if e.Detail == "0" {
				r.succeeded, r.ended = e.Attempt, e.At
			}
		}
	}
	if record == nil {
		c.violated(Accounted, "%s: run %s started, and the history does not have it", name, run)
		return
	}
	c.checkLateness(&r)
}

// attempts are the attempts of one run.
type attempts struct {
	job       *Job
	run       string
	record    *Record       // may be nil
	starts    map[int]Event // by attempt
	latest    int
	succeeded int       // the last attempt that succeeded, or 0
	ended     time.Time // when it did
}

// checkStart compares the start of an attempt with what went before it.
func (c *checker) checkStart(r *attempts, e Event) {
	name, run, record := r.job.Name, r.run, r.record
	if first, twice := r.starts[e.Attempt]; twice {
		c.violated(StartedOnce, "%s: attempt %d of run %s started as process %d and as %d", name, e.Attempt, run, first.PID, e.PID)
	}
	if e.Attempt < r.latest {
		c.violated(StartedOnce, "%s: attempt %d of run %s started after attempt %d", name, e.Attempt, run, r.latest)
	}
	if r.succeeded > 0 && !c.unacknowledged(record, r.succeeded, r.ended) {
		c.violated(StartedOnce, "%s: attempt %d of run %s started after attempt %d had succeeded", name, e.Attempt, run, r.succeeded)
	}
	if e.Attempt > 1+r.job.Retries {
		c.violated(StartedOnce, "%s: run %s has attempt %d, and may have %d", name, run, e.Attempt, 1+r.job.Retries)
	}
	r.starts[e.Attempt], r.latest = e, max(r.latest, e.Attempt)
	if !e.Scheduled.IsZero() && e.At.Before(e.Scheduled) && (record == nil || record.Kind == "schedule") {
		c.violated(Punctual, "%s: run %s started %s before its time", name, run, e.Scheduled.Sub(e.At))
	}
	if record != nil && record.Kind != "hand" && r.job.Named[run] < e.Attempt && covered(r.job.Withdrawn, e.At) {
		c.violated(Withdrawn, "%s: run %s started at %s, while the job was withdrawn", name, run, stamp(e.At))
	}
}

// checkLateness compares the start of the first attempt with its scheduled time.
func (c *checker) checkLateness(r *attempts) {
	first, began := r.starts[1]
	if !began || r.job.StartWithin == 0 || r.record.Kind != "schedule" {
		return
	}
	late := first.At.Sub(r.record.Scheduled)
	for _, down := range c.history.Down {
		late -= max(0, Span{later(down.From, r.record.Scheduled), earlier(down.To, first.At)}.length())
	}
	if late > r.job.StartWithin {
		c.violated(Punctual, "%s: run %s of %s started %s late", r.job.Name, r.run, stamp(r.record.Scheduled), late)
	}
}

// reportedWithin is how long a result may be on its way to the store, on a machine
// that is busy with something else.
const reportedWithin = 30 * time.Second

// unacknowledged reports whether an attempt ended so shortly before its server died
// that it cannot have been acknowledged: it is lost, and is made again by the policy.
func (c *checker) unacknowledged(r *Record, attempt int, ended time.Time) bool {
	if r == nil || len(r.Attempts) < attempt || r.Attempts[attempt-1] != "lost" {
		return false
	}
	return slices.ContainsFunc(c.history.Down, func(down Span) bool {
		return Span{down.From.Add(-reportedWithin), down.To}.has(ended)
	})
}

// checkRecord compares what the server says with what the job has written.
func (c *checker) checkRecord(r *Record) {
	if c.jobs[r.Job] == nil {
		return // it is about nothing that was expected
	}
	starts, ends := map[int]bool{}, map[int]string{}
	for _, e := range c.events[r.Run] {
		switch e.Kind {
		case Start:
			starts[e.Attempt] = true
		case End:
			ends[e.Attempt] = e.Detail
		}
	}
	switch r.Outcome {
	case "skipped", "missed", "withdrawn":
		if len(starts) > 0 && len(r.Attempts) == 0 {
			c.violated(RecordsAgreeWithTheEvidence, "%s: run %s is %s, and it started", r.Job, r.Run, r.Outcome)
		}
	case "succeeded":
		if len(r.Attempts) == 0 || r.Attempts[len(r.Attempts)-1] != "succeeded" {
			c.violated(RecordsAgreeWithTheEvidence, "%s: run %s succeeded, and its attempts ended as %v", r.Job, r.Run, r.Attempts)
		}
	}
	for i, outcome := range r.Attempts {
		n := i + 1
		code, ended := ends[n]
		switch {
		case outcome == "succeeded" && (!starts[n] || !ended || code != "0"):
			c.violated(RecordsAgreeWithTheEvidence, "%s: attempt %d of run %s succeeded, and did not write so", r.Job, n, r.Run)
		case outcome == "failed" && ended && code == "0":
			c.violated(RecordsAgreeWithTheEvidence, "%s: attempt %d of run %s failed, and wrote that it succeeded", r.Job, n, r.Run)
		}
	}
	for n := range starts {
		if n > len(r.Attempts) {
			c.violated(RecordsAgreeWithTheEvidence, "%s: attempt %d of run %s started, and the history has %d", r.Job, n, r.Run, len(r.Attempts))
		}
	}
}

// checkOccurrences asks for each occurrence what became of it.
func (c *checker) checkOccurrences(j *Job) {
	runs := map[int64]*Record{} // by scheduled time
	var spans []*Record
	for _, r := range c.byJob[j.Name] {
		if r.Kind != "schedule" {
			continue
		}
		if r.Until.After(r.Scheduled) {
			spans = append(spans, r)
			continue
		}
		if r.Outcome == "withdrawn" {
			continue // a later definition can have an occurrence at the same moment
		}
		if other := runs[r.Scheduled.UnixNano()]; other != nil {
			c.violated(Once, "%s: the occurrence of %s has the runs %s and %s", j.Name, stamp(r.Scheduled), other.Run, r.Run)
		}
		runs[r.Scheduled.UnixNano()] = r
	}
	due := map[int64]bool{}
	for _, t := range j.Occurrences {
		due[t.UnixNano()] = true
		run := runs[t.UnixNano()]
		inSpan := slices.ContainsFunc(spans, func(r *Record) bool { return Span{r.Scheduled, r.Until}.has(t) })
		switch {
		case run != nil && inSpan:
			c.violated(Once, "%s: the occurrence of %s has run %s and is among the missed", j.Name, stamp(t), run.Run)
		case run == nil && !inSpan && !covered(j.Open, t) && !covered(j.Withdrawn, t) && !c.withdrawn(j, t):
			c.violated(Accounted, "%s: nothing is said of the occurrence of %s", j.Name, stamp(t))
		}
	}
	for _, at := range slices.Sorted(mapKeys(runs)) {
		r := runs[at]
		if !due[at] && !covered(j.Open, r.Scheduled) && !covered(j.Withdrawn, r.Scheduled) {
			c.violated(Once, "%s: run %s is for %s, when nothing fell due", j.Name, r.Run, stamp(r.Scheduled))
		}
	}
}

// withdrawn reports whether an occurrence was withdrawn by a change that was made, or
// came to its end, after it had fallen due. One that was withdrawn before, and not
// planned again, has vanished.
func (c *checker) withdrawn(j *Job, t time.Time) bool {
	recorded := slices.ContainsFunc(c.byJob[j.Name], func(r *Record) bool { return r.Outcome == "withdrawn" && r.Scheduled.Equal(t) })
	afterwards := func(s Span) bool { return !s.To.Before(t) }
	return recorded && (slices.ContainsFunc(j.Open, afterwards) || slices.ContainsFunc(j.Withdrawn, afterwards))
}

func mapKeys[V any](m map[int64]V) func(func(int64) bool) {
	return func(yield func(int64) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// checkOverlap counts what runs at once under each lock. Attempts that have
// written no end are left to the locks that the jobs take themselves.
func (c *checker) checkOverlap(events []Event) {
	type attempt struct {
		run    string
		number int
	}
	type edge struct {
		at    time.Time
		delta int
		event Event
	}
	ended := map[attempt]time.Time{}
	for _, e := range events {
		if e.Kind == End {
			ended[attempt{e.Run, e.Attempt}] = e.At
		}
		if e.Kind == Contended {
			c.violated(Overlap, "%s: attempt %d of run %s found its slots taken at %s", e.Job, e.Attempt, e.Run, stamp(e.At))
		}
	}
	edges, slots := map[string][]edge{}, map[string]int{}
	for _, e := range events {
		j := c.jobs[e.Job]
		if e.Kind != Start || j == nil || j.Slots == 0 {
			continue
		}
		end, ok := ended[attempt{e.Run, e.Attempt}]
		if !ok {
			continue
		}
		lock := cmp.Or(j.Lock, j.Name)
		slots[lock] = j.Slots
		edges[lock] = append(edges[lock], edge{e.At, 1, e}, edge{end, -1, e})
	}
	for _, lock := range sortedKeys(edges) {
		list := edges[lock]
		slices.SortFunc(list, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.delta, b.delta)) })
		going := 0
		for _, e := range list {
			going += e.delta
			if e.delta > 0 && going > slots[lock] {
				c.violated(Overlap, "%s: %d attempts go on at %s with run %s, and %d may", lock, going, stamp(e.at), e.event.Run, slots[lock])
			}
		}
	}
}

// checkAcknowledged looks for acknowledged runs.
func (c *checker) checkAcknowledged(run, outcome string) {
	r := c.records[run]
	switch {
	case r == nil:
		c.violated(NothingAcknowledgedIsLost, "run %s was acknowledged, and is gone", run)
	case outcome != "" && outcome != "lost" && r.Outcome != outcome:
		c.violated(NothingAcknowledgedIsLost, "run %s was %s, and is %s", run, outcome, r.Outcome)
	}
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000") }
