package replica

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/nodeclock"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// stagedCell is a cell after a step.
type stagedCell struct {
	cell
	set   map[job.ID]*store.Run // runs to write under keys of their own
	gone  map[job.ID]bool       // runs whose own keys are removed
	alone bool                  // the cell does not exist: its runs have lost their job
	// policy is the policy of its job after the step, nil if the step does not change the job.
	policy *engine.Policy
}

// ops is how many keys it writes.
func (c *stagedCell) ops() int { return 1 + len(c.set) + len(c.gone) }

// spread moves runs to keys of their own if the cell has no room for them: its number and, where values
// are encoded, its size are bounded.
func (c *stagedCell) spread(most int, encoded bool) {
	rest, size, moved := c.runs[:0], 0, 0
	for _, r := range c.runs {
		n := 0
		if encoded {
			n = runSize(r)
		}
		if moved == spreadMax || len(rest) < most && size+n <= inCellSize {
			rest, size = append(rest, r), size+n
			continue
		}
		c.putApart(r)
		c.apart++
		moved++
	}
	clear(c.runs[len(rest):])
	c.runs = rest
}

func (c *stagedCell) putApart(r *store.Run) {
	if c.set == nil { // most cells have no runs apart
		c.set = map[job.ID]*store.Run{}
	}
	c.set[r.ID] = r
}

// write puts it into a transaction.
func (c *stagedCell) write(b *Backend, t *Txn) {
	if !c.alone {
		b.set(t, cellKey(c.job.UID), &c.cell)
	}
	for _, r := range c.set {
		b.set(t, runKey(r), &apartRun{r, fitting(c.fit, r)})
	}
	for id := range c.gone {
		t.Deletes = append(t.Deletes, runKey(&store.Run{Run: job.Run{JobUID: c.job.UID, ID: id}}))
	}
}

// writer turns the changes of a step into a commit.
type writer struct {
	t     *tx
	cells map[job.ID]*stagedCell // cells after the step
	order []job.ID               // cells in the order of the step
	// tied has for each cell another one that must be written with it: a forest.
	tied    map[job.ID]job.ID
	named   map[job.ID]bool // jobs that take their names
	news    map[job.ID]bool
	dropped map[job.ID]bool // names that become free
	rest    *part           // data outside cells
	members bool            // the step changes sessions, besides their renewals
	docs    bool
	follows bool
	pools   map[string]job.ID // changed slots of pools, each with a cell of one of its runs
	before  []Pair
	prune   []jobVersion
	now     time.Time        // of the step
	words   []*store.Record  // records that change in words only, and are not fed
	loose   map[string]int64 // see loosen
}

func (t *tx) writer() *writer {
	return &writer{t: t, cells: map[job.ID]*stagedCell{}, tied: map[job.ID]job.ID{}, rest: newPart(), now: t.now}
}

// runs is how many runs are written.
func (w *writer) runs() (n int) {
	for _, c := range w.cells {
		n += len(c.runs) + len(c.set)
	}
	return n
}

func (w *writer) collect(c *engine.Changes) error {
	w.named, w.news, w.dropped, w.pools = map[job.ID]bool{}, map[job.ID]bool{}, map[job.ID]bool{}, map[string]job.ID{}
	for _, j := range c.Jobs {
		if err := w.job(j); err != nil {
			return err
		}
	}
	for _, r := range c.Made {
		w.setRun(r)
		if !r.Parent.IsZero() {
			w.tieParent(r, c)
		}
	}
	for _, r := range c.Saved {
		w.setRun(r)
	}
	for _, r := range c.Removed {
		w.removeRun(r)
	}
	w.tieFlows(c)
	w.t.handsOn = w.handOn(c.HandOn)
	for _, is := range w.cells {
		is.spread(w.t.b.opt.InCell, w.t.b.local == nil)
		w.chooseFit(is)
		if n := len(is.runs) + is.apart; n > runsMax {
			return fmt.Errorf("job %s would have %d unfinished runs, and this store keeps at most %d of a job: %w", is.job.FullName(), n, runsMax, store.ErrNoSpace)
		}
	}
	w.sessions(c)
	return w.documents(c)
}

// cell returns a cell for the step to change.
func (w *writer) cell(uid job.ID) *stagedCell {
	if own := w.cells[uid]; own != nil {
		return own
	}
	w.t.b.mu.RLock()
	defer w.t.b.mu.RUnlock()
	w.t.sawCell(uid)
	own := &stagedCell{}
	if is := w.t.b.state.cells[uid]; is != nil {
		own.cell = *is
		own.runs = slices.Clone(is.runs)
	} else {
		own.alone, own.head = true, &head{job: engine.Job{UID: uid}}
	}
	w.cells[uid], w.tied[uid] = own, uid
	w.order = append(w.order, uid)
	return own
}

func (w *writer) root(uid job.ID) job.ID {
	for w.tied[uid] != uid {
		uid = w.tied[uid]
	}
	return uid
}

func (w *writer) tie(a, b job.ID) { w.tied[w.root(a)] = w.root(b) }

// tieParent ties the cell of a run to the cell of the run whose end created it.
func (w *writer) tieParent(r *store.Run, c *engine.Changes) {
	for _, record := range c.Records {
		if record.Run.ID == r.Parent && record.Run.JobUID != r.JobUID {
			w.cell(record.Run.JobUID)
			w.tie(r.JobUID, record.Run.JobUID)
		}
	}
}

// tieFlows ties the cells of runs that flows of other jobs have created to the cells of the
// flows, if the step involves both.
func (w *writer) tieFlows(c *engine.Changes) {
	var of map[job.ID]job.ID // jobs by run
	for _, list := range [...][]*store.Run{c.Made, c.Saved, c.Removed} {
		for _, r := range list {
			if r.Kind != job.RunByFlow {
				continue
			}
			if of == nil {
				of = map[job.ID]job.ID{}
				for _, all := range [...][]*store.Run{c.Made, c.Saved, c.Removed} {
					for _, o := range all {
						of[o.ID] = o.JobUID
					}
				}
			}
			if uid, ok := of[r.Parent]; ok {
				w.tie(r.JobUID, uid)
			}
		}
	}
}

func (w *writer) touch(r *store.Run) {
	if !engine.IsShared(r.Slot) {
		return
	}
	if other, known := w.pools[r.Slot]; known {
		w.tie(r.JobUID, other)
		return
	}
	w.pools[r.Slot] = r.JobUID
}

// setRun stages a run after the step.
func (w *writer) setRun(r *store.Run) {
	c := w.cell(r.JobUID)
	if i := c.find(r.ID); i >= 0 {
		w.touch(c.runs[i]) // the slot it was in changes too
		c.runs[i] = r
	} else if was := w.apart(r.ID); was != nil {
		w.touch(was)
		c.putApart(r)
	} else {
		c.runs = append(c.runs, r)
	}
	w.touch(r)
}

// apart returns a run with a key of its own, or nil.
func (w *writer) apart(id job.ID) *store.Run {
	w.t.b.mu.RLock()
	defer w.t.b.mu.RUnlock()
	if r := w.t.b.state.runs[id]; r != nil && w.t.b.state.isApart(r) {
		return r
	}
	return nil
}

func (w *writer) removeRun(r *store.Run) {
	c := w.cell(r.JobUID)
	if i := c.find(r.ID); i >= 0 {
		w.touch(c.runs[i])
		c.runs = slices.Delete(c.runs, i, i+1)
	} else if was := w.apart(r.ID); was != nil {
		w.touch(was)
		if c.gone == nil { // most cells have no runs apart
			c.gone = map[job.ID]bool{}
		}
		c.gone[r.ID] = true
		c.apart--
	}
}

// job stages a job after the step.
func (w *writer) job(j *engine.Job) error {
	c := w.cell(j.UID)
	h := *c.head
	c.head, c.alone = &h, false
	hadFollows, wasDeleted := len(c.follows)+len(c.calendars) > 0, c.job.Deleted
	c.job = *j
	c.job.Document, c.job.Policy = nil, nil
	if j.Made() || j.Restored() {
		w.named[j.UID] = true
	}
	if j.Deleted && !wasDeleted {
		w.dropped[j.UID] = true
	}
	if d := j.Document; d != nil {
		c.policy = d.Policy
		if j.Revised() {
			value, err := json.Marshal(written{d.Actor, j.Changed, j.Epoch, []byte(c.document), d.Text})
			if err != nil {
				return fmt.Errorf("encode job %s: %w", j.FullName(), err)
			}
			c.document = newDefinition(j.UID, j.Version)
			w.before = append(w.before, Pair{Key: c.document, Value: value})
			w.prune = append(w.prune, jobVersion{j.UID, j.Version})
		}
		if w.t.b.local != nil {
			c.doc = d
		}
		c.timing, c.follows, c.calendars = d.Timing, engine.Follows(d.Filled), d.Calendars
		c.boot, c.broadcast = d.Filled.Schedule.Boot, d.Policy.Broadcast
	}
	if hadFollows || len(c.follows)+len(c.calendars) > 0 {
		w.follows = w.follows || j.News()
	}
	if j.News() {
		w.news[j.UID] = true
	}
	return nil
}

// handOn takes ready runs from their sessions, and returns the sessions that may have more.
func (w *writer) handOn(sessions []job.ID) (more []job.ID) {
	left, pools := handOnMax, poolStep
	for _, id := range sessions {
		w.t.b.mu.RLock()
		ready := w.t.b.state.index.ReadyOf(id)
		list := ready[:min(len(ready), left)]
		w.t.b.mu.RUnlock()
		left -= len(list)
		isMore := len(list) < len(ready)
		for _, r := range list {
			if engine.IsShared(r.Slot) {
				if pools == 0 {
					isMore = true
					continue
				}
				pools--
			}
			c := w.cell(r.JobUID)
			is := r
			if i := c.find(r.ID); i >= 0 {
				is = c.runs[i]
			} else if c.set[r.ID] != nil {
				is = c.set[r.ID]
			} else if w.apart(r.ID) != r || c.gone[r.ID] {
				continue
			}
			if is.State == job.StateReady && is.Session == id {
				own := *is
				own.Session = job.ID{}
				w.setRun(&own)
			}
		}
		if isMore {
			more = append(more, id)
		}
	}
	return more
}

func (w *writer) sessions(c *engine.Changes) {
	b := w.t.b
	b.mu.RLock()
	defer b.mu.RUnlock()
	staged := map[job.ID]*session{}
	for _, s := range c.Sessions {
		staged[s.ID] = &session{Session: *s, over: b.state.over[s.ID]}
	}
	for _, id := range c.Reaped {
		if staged[id] == nil && b.state.sessions[id] != nil {
			staged[id] = &session{Session: *b.state.sessions[id]}
		}
		if staged[id] != nil {
			staged[id].over = true
		}
	}
	for _, id := range c.Ended {
		delete(staged, id)
		w.rest.Deletes = append(w.rest.Deletes, sessionKey(id), renewalKey(id))
		w.members = true
	}
	for id, is := range staged {
		was := b.state.sessions[id]
		if was == nil || !isSameSession(is, &session{Session: *was, over: b.state.over[id]}) {
			b.set(&w.rest.Txn, sessionKey(id), is)
			w.members = true
		}
		if was == nil || !was.Renewed.Equal(is.Renewed) || !was.Steady.Equal(is.Steady) || !was.BeforeGap.Equal(is.BeforeGap) || was.Load != is.Load {
			w.t.saw(renewalKey(id))
			r := renewal{renewed: is.Renewed, steady: is.Steady, beforeGap: is.BeforeGap, load: is.Load, clock: b.localNow()}
			if b.agrees {
				r.standing, r.since = b.clock.standing()
			}
			if off := r.standing != nodeclock.Good; was != nil && was.ClockOff != off {
				c.Hints |= store.HintNodes | store.HintRuns
			}
			w.t.b.set(&w.rest.Txn, renewalKey(id), &r)
		}
	}
	if w.members {
		w.t.saw(membersKey)
	}
}

// isSameSession reports whether two sessions are written alike: they differ in renewals alone.
func isSameSession(a, b *session) bool {
	return bytes.Equal(encode(a, codeSession, 256), encode(b, codeSession, 256))
}

func (w *writer) documents(c *engine.Changes) error {
	for _, d := range c.Documents {
		if _, err := columns.EncodeDocument(d); err != nil {
			return fmt.Errorf("encode %s %s: %w", d.Kind, d.FullName(), err)
		}
		w.docs = true
		w.t.b.set(&w.rest.Txn, documentKey(d.Kind, d.FullName()), &d)
	}
	for i := range c.Tokens {
		w.docs = true
		token := c.Tokens[i]
		w.t.b.set(&w.rest.Txn, tokenKeys+token.Name, &token)
	}
	for _, d := range c.Dropped {
		w.docs = true
		w.rest.Deletes = append(w.rest.Deletes, documentKey(d.Kind, d.Name))
	}
	for _, n := range c.Notes {
		writeNote(&w.rest.Txn, n)
	}
	for _, d := range c.Drains {
		w.docs = true
		if d.Drain == nil {
			w.rest.Deletes = append(w.rest.Deletes, drainKeys+d.Node)
			continue
		}
		drain := *d.Drain
		w.t.b.set(&w.rest.Txn, drainKeys+d.Node, &drain)
	}
	return nil
}
