package replica

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/btree"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// turnAfter is the number of tries after which a step waits for its turn.
const turnAfter = 2

// Step implements [ledger.Backend].
func (b *Backend) Step(ctx context.Context, o *ledger.Order, decide func(ledger.Tx) error) error {
	if err := b.step(ctx, o, decide); err != nil {
		return err
	}
	b.trim(ctx)
	return nil
}

func (b *Backend) step(ctx context.Context, o *ledger.Order, decide func(ledger.Tx) error) error {
	if o.Starts {
		if err := b.mayStart(ctx); err != nil {
			return err
		}
	}
	if o.Try > turnAfter || b.isSerial() {
		// Contending steps of this process then run one after another.
		b.turn.Lock()
		defer b.turn.Unlock()
	}
	if o.Try > 0 {
		if err := b.fresh(ctx); err != nil {
			return err
		}
	}
	if err := b.whole(); err != nil {
		return err
	}
	t := &tx{b: b, ctx: ctx, reads: map[string]int64{}, whole: o.Items > 1 && !o.Parts, divides: o.Items > 1 && o.Parts, oneEach: b.opt.OneEach && o.Parts, frees: store.MaxBatch}
	if o.Parts && o.Items > 0 {
		t.frees = min(o.Items+freesMore, store.MaxBatch)
	}
	if err := decide(t); err != nil {
		return cmp.Or(t.confirm(ctx), err)
	}
	if t.commit == nil {
		// A refusal must rest on current data.
		if err := t.confirm(ctx); err != nil {
			return err
		}
		o.Committed()
		return ctx.Err()
	}
	for _, p := range t.commit.parts {
		p.Adds = o.Adds
	}
	version, err := t.commit.do(ctx, b)
	if err != nil {
		return err
	}
	if err := b.settle(ctx, version, o.Committed); err != nil || len(t.handsOn) == 0 {
		return err
	}
	return b.handOn(ctx, t.handsOn)
}

// handOn hands on the remaining ready runs of sessions that get no new ones. After a failure other
// nodes take them when they are overdue.
func (b *Backend) handOn(ctx context.Context, sessions []job.ID) error {
	for tries := 0; len(sessions) > 0; {
		if err := b.fresh(ctx); err != nil {
			return err
		}
		t := &tx{b: b, ctx: ctx, reads: map[string]int64{}}
		if _, err := t.Now(); err != nil {
			return err
		}
		err := t.Write(&engine.Changes{HandOn: sessions, Hints: store.HintRuns})
		if err == nil && len(t.commit.parts) > 0 {
			var version int64
			if version, err = t.commit.do(ctx, b); err == nil {
				err = b.settle(ctx, version, func() {})
			}
		}
		switch {
		case err == nil:
			sessions, tries = t.handsOn, 0
		case !errors.Is(err, ledger.ErrAgain) || tries == numberTries:
			return err
		default:
			tries++
		}
	}
	return nil
}

// settle waits until the copy has a commit, and calls a function then: in the order of the
// commits of this process.
func (b *Backend) settle(ctx context.Context, version int64, call func()) error {
	done := make(chan struct{})
	b.mu.Lock()
	if b.version >= version {
		b.mu.Unlock()
		call()
		return nil
	}
	b.waiting = append(b.waiting, waiter{version, func() { call(); close(done) }})
	slices.SortStableFunc(b.waiting, func(a, c waiter) int { return int(a.version - c.version) })
	b.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done(): // it is committed anyway
	}
	return nil
}

// tx is a step in progress.
type tx struct {
	b   *Backend
	ctx context.Context
	// reads are the versions of the keys that the step has read; changed is set when a key was read
	// in two versions.
	reads   map[string]int64
	changed bool
	// whole is set for a step about several items that must be committed together.
	whole bool
	// divides is set for a step about several items that may be committed apart.
	divides bool
	// oneEach is set if each part is a commit: see Options.OneEach.
	oneEach bool
	// frees is how many places in a slot the step makes free at most.
	frees  int
	now    time.Time // of the step
	commit *commit
	// handsOn are sessions with more ready runs than one commit hands on.
	handsOn []job.ID
	copied  int // number of the backend's copies in use
}

// confirm returns [ledger.ErrAgain] if data that the step has read has changed, and another
// error if that cannot be determined.
func (t *tx) confirm(ctx context.Context) error {
	if t.changed {
		return ledger.ErrAgain
	}
	if len(t.reads) == 0 {
		return nil
	}
	if err := t.b.fresh(ctx); err != nil {
		return err
	}
	if t.b.differs(t.reads) {
		return ledger.ErrAgain
	}
	return nil
}

// saw notes that a key was read. The copy is locked.
func (t *tx) saw(key string) {
	if t.b.isSerial() {
		return
	}
	version := t.b.state.versions[key]
	if was, ok := t.reads[key]; ok && was != version {
		t.changed = true
	}
	t.reads[key] = version
}

// sawCell notes that a cell was read. Steps that compare nothing need no key.
func (t *tx) sawCell(uid job.ID) {
	if !t.b.isSerial() {
		t.saw(cellKey(uid))
	}
}

// Now implements [ledger.Tx].
func (t *tx) Now() (time.Time, error) {
	if t.changed {
		return time.Time{}, ledger.ErrAgain
	}
	now, err := t.b.Now(t.ctx)
	t.now = now
	return now, err
}

// unheardMax is how old the latest renewal that the copy has may be for the copy to be doubted: a node
// that is silent for longer is rarely back in the same session.
const unheardMax = 30 * time.Second

// missesRenewals reports whether a node that seems silent may have been heard: the copy may be late. A
// reason that names the silence must be true.
func (b *Backend) missesRenewals(now time.Time) bool {
	if b.isSerial() {
		return false
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, s := range b.state.sessions {
		if age := now.Sub(s.Renewed); age > engine.HeardWithin && age < unheardMax {
			return true
		}
	}
	return false
}

// loadResult is the result of a Load in the copy: documents are read when it is not locked.
type loadResult struct {
	jobs, named, following, naming []*cell
	names, upstreams, calendars    []string
	add                            []*store.Run
}

// Load implements [ledger.Tx].
func (t *tx) Load(n *engine.Need, b *engine.Batch) error {
	anywhere := func(ref engine.RunRef) bool { return ref.Job.IsZero() }
	if n.Judges || len(n.Running)+len(n.Names) > 0 || slices.ContainsFunc(n.Runs, anywhere) || slices.ContainsFunc(n.Records, anywhere) {
		// Rare: edits, conflicting decisions of others, and runs without a known cell that
		// could prove their absence.
		if err := t.b.fresh(t.ctx); err != nil {
			return err
		}
	}
	now, err := t.b.Now(t.ctx)
	if err != nil {
		return err
	}
	if n.Sessions && t.b.missesRenewals(now) {
		if err := t.b.fresh(t.ctx); err != nil {
			return err
		}
	}
	if n.Executors {
		list, err := t.b.Registrations(t.ctx, store.ExecutorsOfXXL)
		if err != nil {
			return err
		}
		listed, err := t.b.Documents(t.ctx, job.KindExecutors)
		if err != nil {
			return err
		}
		b.UseExecutors(list, listed)
	}
	for _, name := range n.Notes {
		version, err := t.b.noteVersion(t.ctx, name)
		if err != nil {
			return err
		}
		b.AddNote(name, version)
	}
	var f loadResult
	t.b.mu.RLock()
	t.look(n, b, &f, now)
	t.b.mu.RUnlock()
	if t.changed {
		return ledger.ErrAgain
	}
	return t.add(b, &f)
}

// look reads the needed data from the copy.
func (t *tx) look(n *engine.Need, b *engine.Batch, f *loadResult, now time.Time) {
	s := t.b.state
	for _, uid := range n.Jobs {
		t.sawCell(uid)
		if c := s.cells[uid]; c != nil {
			f.jobs = append(f.jobs, c)
		}
	}
	for _, name := range n.Names {
		t.saw(nameKey(name))
		if found, ok := s.names.Get(jobName{full: name}); ok {
			t.sawCell(found.uid)
			if c := s.cells[found.uid]; c != nil {
				f.named, f.names = append(f.named, c), append(f.names, name)
			}
		}
	}
	for _, ref := range n.Runs {
		r := s.runs[ref.Run]
		switch {
		case r != nil:
			t.seeRun(f, r)
		case !ref.Job.IsZero():
			t.sawCell(ref.Job)
		}
	}
	for _, uid := range n.Whole {
		t.seeRuns(f, uid, func(*store.Run) bool { return true })
	}
	for _, uid := range n.Waiting {
		t.seeRuns(f, uid, func(r *store.Run) bool { return r.State != job.StateReady })
	}
	for i := range n.Slots {
		t.slot(&n.Slots[i], b, f, now)
	}
	if len(n.Upstreams) > 0 || len(n.Follows) > 0 || len(n.Naming) > 0 {
		t.saw(followsKey)
	}
	t.lookFollows(n, b, f)
	for _, id := range n.Keys {
		t.sawCell(id.Job) // a request changes it
		if request, ok := s.requests[requestKey(id)]; ok && now.Before(request.Expires) {
			b.AddKey(id, request.Run)
		}
	}
	for _, ref := range n.Records {
		// The end of a run changes its cell.
		if !ref.Job.IsZero() {
			t.sawCell(ref.Job)
		}
		if s.outbox != nil {
			t.lookOutbox(ref.Run, b)
		}
		for _, r := range s.records[ref.Run] {
			b.AddRecord(r)
			t.saw(s.groupOf[recordKey{ref.Run, r.Attempt.Number}].key)
		}
	}
	t.lookHandovers(n, b)
	t.lookMembers(n, b)
	t.lookDocuments(n, b)
}

func (t *tx) seeRun(f *loadResult, r *store.Run) {
	t.sawCell(r.JobUID)
	f.add = append(f.add, r)
}

func (t *tx) seeRuns(f *loadResult, uid job.ID, wanted func(*store.Run) bool) {
	t.sawCell(uid)
	for _, r := range t.b.state.runsOf(uid) {
		if wanted(r) {
			f.add = append(f.add, r)
		}
	}
}

// freesMore is how many more places a step may free in a slot than it has items: for runs withdrawn
// between two attempts. The next step about the slot takes the rest.
const freesMore = 32

// surelyWaits reports whether a run waits for its slot and nothing else.
func (s *state) surelyWaits(r *store.Run, now time.Time) bool {
	return !r.AwaitsPrevious && r.Kind != job.RunStep && !r.Session.IsZero() && // a reported run has none
		(r.LateAfter.IsZero() || !now.After(r.LateAfter)) && s.suspect[r.ID] == nil
}

// slot adds the members of a slot: see [engine.SlotNeed]. Of the waiting runs it adds as many as the
// step can make ready, and only counts the rest, if these surely wait.
func (t *tx) slot(need *engine.SlotNeed, b *engine.Batch, f *loadResult, now time.Time) {
	s := t.b.state
	var holding, waiting, ready []*store.Run // members that the batch lacks
	in := s.slots[need.Key]
	if in == nil {
		in = &slotRuns{}
	}
	queued := in.queued // of all waiting runs
	if engine.IsShared(need.Key) {
		t.saw(slotKeys + need.Key)
		t.saw(documentsKey)
		t.seePool(need.Key, b)
	} else if !need.Job.IsZero() {
		t.sawCell(need.Job)
		if c := s.cells[need.Job]; c != nil {
			for _, r := range c.runs {
				switch {
				case r.Slot != need.Key:
				case r.HoldsSlot:
					holding = append(holding, r)
				case r.State != job.StateWaiting:
					if r.Ref().Compare(need.Until) <= 0 {
						ready = append(ready, r)
					}
				default:
					if waiting = append(waiting, r); isQueued(r) {
						queued++
					}
				}
			}
		}
	}
	for _, r := range in.holding {
		t.seeRun(f, r)
	}
	for _, r := range holding {
		t.seeRun(f, r)
	}
	for _, r := range firstOf(in.ready, ready) {
		if r.Ref().Compare(need.Until) <= 0 {
			t.seeRun(f, r)
		}
	}
	first := firstOf(in.waiting, waiting)
	if !slices.ContainsFunc(first, func(r *store.Run) bool { return !s.surelyWaits(r, now) }) {
		first = first[:min(len(first), t.frees)]
	}
	for _, r := range first {
		if t.seeRun(f, r); isQueued(r) {
			queued--
		}
	}
	if queued > 0 {
		b.MoreWaiting(need.Key, queued)
	}
}

// seePool adds the pool or line of a slot, if it has one.
func (t *tx) seePool(slot string, b *engine.Batch) {
	name, ok := engine.PoolOfSlot(slot)
	if !ok {
		return
	}
	if engine.IsLine(name) {
		t.saw(turnKeys + name)
	}
	b.AddPool(name, t.b.state.documents.Slots(name), t.b.state.turns[name])
}

// firstOf returns the first runs of a tree, which may be nil, and of a list, by due time and id.
func firstOf(tree *btree.BTreeG[*store.Run], list []*store.Run) (first []*store.Run) {
	slices.SortFunc(list, func(a, b *store.Run) int { return a.Ref().Compare(b.Ref()) })
	if tree != nil {
		tree.Ascend(func(r *store.Run) bool {
			for len(list) > 0 && list[0].Ref().Compare(r.Ref()) < 0 {
				first, list = append(first, list[0]), list[1:]
			}
			first = append(first, r)
			return len(first) < store.MaxBatch
		})
	}
	first = append(first, list...)
	return first[:min(len(first), store.MaxBatch)]
}

func (t *tx) lookFollows(n *engine.Need, b *engine.Batch, f *loadResult) {
	s := t.b.state
	for _, name := range n.Upstreams {
		for _, c := range s.sorted(s.followers[name]) {
			t.sawCell(c.job.UID)
			f.following, f.upstreams = append(f.following, c), append(f.upstreams, name)
		}
	}
	for _, name := range n.Follows {
		if found, ok := s.names.Get(jobName{full: name}); ok {
			b.AddFollows(name, s.cells[found.uid].follows)
		}
	}
	for _, full := range n.Naming {
		for _, c := range s.sorted(s.naming[full]) {
			t.sawCell(c.job.UID)
			f.naming, f.calendars = append(f.naming, c), append(f.calendars, full)
		}
	}
}

// sorted returns cells by the names of their jobs.
func (s *state) sorted(uids map[job.ID]bool) (cells []*cell) {
	for uid := range uids {
		cells = append(cells, s.cells[uid])
	}
	slices.SortFunc(cells, func(a, c *cell) int { return strings.Compare(a.job.FullName(), c.job.FullName()) })
	return cells
}

func (t *tx) lookMembers(n *engine.Need, b *engine.Batch) {
	s := t.b.state
	if n.Sessions || n.Judges || len(n.Running) > 0 {
		t.saw(membersKey)
	}
	if n.Sessions {
		b.UseSessions(s.sessions)
		for id := range s.over {
			b.AddOver(id)
		}
	}
	if n.Judges {
		for id := range s.sessions {
			t.saw(renewalKey(id))
		}
	}
	for _, id := range n.Running {
		if r := s.index.Running(id); r != nil {
			b.AddRunning(id, r.ID)
		}
	}
}

func (t *tx) lookDocuments(n *engine.Need, b *engine.Batch) {
	s := t.b.state
	if len(n.Documents) > 0 || n.Tokens || n.Drains || n.Windows {
		t.saw(documentsKey)
	}
	for _, kind := range n.Documents {
		b.UseDocuments(kind, clone(s.documents[kind]))
	}
	if n.Windows {
		all := s.windows.Load()
		if all == nil {
			all = engine.NewWindows(s.documents)
			s.windows.Store(all)
		}
		b.UseWindows(all)
	}
	if n.Tokens {
		b.UseTokens(s.allTokens())
	}
	if n.Drains {
		b.UseDrains(clone(s.drains))
	}
}

func clone[V any](m map[string]V) map[string]V {
	own := make(map[string]V, len(m))
	for key, value := range m {
		own[key] = value
	}
	return own
}

// newJob returns a job for the batch to own. A serial step reuses the jobs of earlier ones.
func (t *tx) newJob() *engine.Job {
	if !t.b.isSerial() {
		return &engine.Job{}
	}
	if t.copied == len(t.b.copies) {
		t.b.copies = append(t.b.copies, &engine.Job{})
	}
	t.copied++
	return t.b.copies[t.copied-1]
}

// add passes what was found to the batch, with documents.
func (t *tx) add(b *engine.Batch, f *loadResult) error {
	jobs, err := t.b.copiesOf(t.ctx, slices.Concat(f.jobs, f.named, f.following, f.naming), t.newJob)
	if err != nil {
		return err
	}
	next := func(n int) []*engine.Job {
		first := jobs[:n]
		jobs = jobs[n:]
		return first
	}
	for _, j := range next(len(f.jobs)) {
		b.AddJob(j)
	}
	for i, j := range next(len(f.named)) {
		b.AddNamed(f.names[i], j)
	}
	for i, j := range next(len(f.following)) {
		b.AddFollower(f.upstreams[i], j)
	}
	for i, j := range next(len(f.naming)) {
		b.AddNaming(f.calendars[i], j)
	}
	for _, r := range f.add {
		b.AddRun(r)
	}
	return nil
}
