package replica

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

const (
	// runsMax is how many unfinished runs a job may have: each server holds them in memory, and
	// an edit of the job may read all.
	runsMax = 100_000
	// inCell and inCellSize are how many runs are in the cell of their job, and how many bytes
	// these have about: each step about the job writes them all. Others have keys of their own.
	inCell     = 32
	inCellSize = 16 << 10
	// spreadMax is how many runs one step takes out of a cell, of which versions before kept
	// thousands.
	spreadMax = 500
	// handOnMax is how many ready runs of a session one commit hands on.
	handOnMax = 500
	// opsMax is how many keys one commit writes: what etcd takes in nested transactions beside as
	// many compares as it takes.
	opsMax = 1500
)

// commit is what a step writes, in parts that can be written one after another. Cells that
// the step ties together are in one part.
type commit struct {
	before []Pair // definitions, which are not seen until a cell names them
	parts  []*part
	prune  []revised // jobs whose old definitions may be removed
}

// revised is a job with its new version.
type revised struct {
	uid     job.ID
	version int64
}

// part is what is written at once.
type part struct {
	Txn
	audit []store.AuditRecord
	news  []*cell // cells that go into the feed of changes
	cells []*staged
	// records are those that are written as one group.
	records []*store.Record
}

func newPart() *part { return &part{Txn: Txn{Compares: map[string]int64{}}} }

func (t *Txn) put(key string, value []byte) {
	t.Puts = append(t.Puts, Pair{Key: key, Value: value})
}

// Write implements ledger.Tx.
func (t *tx) Write(c *engine.Changes) error {
	if len(c.HandOn) > 0 {
		// Runs that were given to these sessions a moment ago are handed on, too.
		if err := t.confirm(t.ctx); err != nil {
			return err
		}
	}
	w := t.writer()
	if err := w.collect(c); err != nil {
		return err
	}
	if t.changed {
		return ledger.ErrAgain
	}
	t.commit = w.commit(c)
	if t.changed {
		return ledger.ErrAgain
	}
	if n := len(t.commit.parts); t.whole && n > 1 {
		return fmt.Errorf("the change writes so much, with %d runs, that it does not fit into one commit of this store, put fewer jobs at once: %w", w.runs(), store.ErrTooMany)
	}
	if len(w.loose) > 0 {
		if err := t.b.fresh(t.ctx); err != nil {
			return err
		}
		if t.b.differs(w.loose) {
			return ledger.ErrAgain
		}
	}
	return nil
}

// staged is a cell as a step leaves it.
type staged struct {
	cell
	set   map[job.ID]*store.Run // that are written under keys of their own
	gone  map[job.ID]bool       // whose own keys are removed
	alone bool                  // it is not there and is not made: its runs are left over
}

// ops is how many keys it writes.
func (c *staged) ops() int { return 1 + len(c.set) + len(c.gone) }

// spread gives runs keys of their own that have no room in the cell.
func (c *staged) spread(most int) {
	kept, size, moved := c.runs[:0], 0, 0
	for _, r := range c.runs {
		if n := runSize(r); moved == spreadMax || len(kept) < most && size+n <= inCellSize {
			kept, size = append(kept, r), size+n
			continue
		}
		c.putApart(r)
		c.apart++
		moved++
	}
	clear(c.runs[len(kept):])
	c.runs = kept
}

func (c *staged) putApart(r *store.Run) {
	if c.set == nil { // as in most cells
		c.set = map[job.ID]*store.Run{}
	}
	c.set[r.ID] = r
}

// write puts it into a transaction.
func (c *staged) write(t *Txn) {
	if !c.alone {
		t.put(cellKey(c.job.UID), encodeCell(&c.cell))
	}
	for _, r := range c.set {
		t.put(runKey(r), encodeRun(r))
	}
	for id := range c.gone {
		t.Deletes = append(t.Deletes, runKey(&store.Run{Run: job.Run{JobUID: c.job.UID, ID: id}}))
	}
}

// writer turns the changes of a step into a commit.
type writer struct {
	t     *tx
	cells map[job.ID]*staged // as they will be
	order []job.ID           // of the cells, as the step came to them
	// tied has for each cell another one that must be written with it: a forest.
	tied    map[job.ID]job.ID
	made    map[job.ID]bool
	news    map[job.ID]bool
	dropped map[job.ID]bool // names that become free
	rest    *part           // what belongs to no cell
	members bool            // sessions are changed, besides their renewals
	docs    bool
	follows bool
	pools   map[string]job.ID // slots of pools that are changed, and a cell with one of their runs
	before  []Pair
	prune   []revised
	now     time.Time        // of the step
	words   []*store.Record  // that are changed in words alone, and not fed
	loose   map[string]int64 // see loosen
}

func (t *tx) writer() *writer {
	return &writer{t: t, cells: map[job.ID]*staged{}, tied: map[job.ID]job.ID{}, rest: newPart(), now: t.now}
}

// runs is how many runs are written.
func (w *writer) runs() (n int) {
	for _, c := range w.cells {
		n += len(c.runs) + len(c.set)
	}
	return n
}

func (w *writer) collect(c *engine.Changes) error {
	w.made, w.news, w.dropped, w.pools = map[job.ID]bool{}, map[job.ID]bool{}, map[job.ID]bool{}, map[string]job.ID{}
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
		is.spread(w.t.b.opt.InCell)
		if n := len(is.runs) + is.apart; n > runsMax {
			return fmt.Errorf("job %s would have %d unfinished runs, and this store keeps at most %d of a job: %w", is.job.FullName(), n, runsMax, store.ErrNoSpace)
		}
	}
	w.sessions(c)
	return w.documents(c)
}

// cell returns a cell for the step to change.
func (w *writer) cell(uid job.ID) *staged {
	if own := w.cells[uid]; own != nil {
		return own
	}
	w.t.b.mu.RLock()
	defer w.t.b.mu.RUnlock()
	w.t.saw(cellKey(uid))
	own := &staged{alone: true}
	if is := w.t.b.state.cells[uid]; is != nil {
		own.cell, own.alone = *is, false
		own.runs = slices.Clone(is.runs)
	}
	own.job.UID = uid
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

// tieFlows ties the cells of runs that flows of other jobs have created to those of the
// flows, if the step involves both.
func (w *writer) tieFlows(c *engine.Changes) {
	var of map[job.ID]job.ID // the jobs of the runs
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
	if _, pool := engine.PoolOf(r.Slot); !pool {
		return
	}
	if other, known := w.pools[r.Slot]; known {
		w.tie(r.JobUID, other)
		return
	}
	w.pools[r.Slot] = r.JobUID
}

func (w *writer) setRun(r *store.Run) {
	c := w.cell(r.JobUID)
	own := *r
	if i := c.find(r.ID); i >= 0 {
		w.touch(c.runs[i]) // it may have been in another slot
		c.runs[i] = &own
	} else if was := w.apart(r.ID); was != nil {
		w.touch(was)
		c.putApart(&own)
	} else {
		c.runs = append(c.runs, &own)
	}
	w.touch(r)
}

// apart returns a run that has a key of its own, or nil.
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
		if c.gone == nil { // as in most cells
			c.gone = map[job.ID]bool{}
		}
		c.gone[r.ID] = true
		c.apart--
	}
}

// job takes a job as the step leaves it.
func (w *writer) job(j *engine.Job) error {
	c := w.cell(j.UID)
	c.alone = false
	hadFollows, wasDeleted := len(c.follows)+len(c.calendars) > 0, c.job.Deleted
	c.job = *j
	c.job.Document, c.job.Policy = nil, nil
	full := j.FullName()
	if j.Made() {
		w.made[j.UID] = true
	}
	if j.Deleted && !wasDeleted {
		w.dropped[j.UID] = true
	}
	if d := j.Document; d != nil {
		if j.Revised() {
			value, err := json.Marshal(written{d.Actor, j.Changed, j.Epoch, []byte(c.document), d.Text})
			if err != nil {
				return fmt.Errorf("encode job %s: %w", full, err)
			}
			c.document = newDefinition(j.UID, j.Version)
			w.before = append(w.before, Pair{Key: c.document, Value: value})
			w.prune = append(w.prune, revised{j.UID, j.Version})
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

// handOn takes the session from ready runs of sessions, and returns the sessions that may have
// more.
func (w *writer) handOn(sessions []job.ID) (more []job.ID) {
	left := handOnMax
	for _, id := range sessions {
		w.t.b.mu.RLock()
		ready := w.t.b.state.index.ReadyOf(id)
		list := ready[:min(len(ready), left)]
		w.t.b.mu.RUnlock()
		if left -= len(list); len(list) < len(ready) {
			more = append(more, id)
		}
		for _, r := range list {
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
		value := encode(is, codeSession, 256)
		was := b.state.sessions[id]
		if was == nil || !bytes.Equal(value, encode(&session{Session: *was, over: b.state.over[id]}, codeSession, 256)) {
			w.rest.put(sessionKey(id), value)
			w.members = true
		}
		if was == nil || !was.Renewed.Equal(is.Renewed) || !was.Steady.Equal(is.Steady) || !was.BeforeGap.Equal(is.BeforeGap) || was.Load != is.Load {
			w.t.saw(renewalKey(id))
			w.rest.put(renewalKey(id), encode(&renewal{is.Renewed, is.Steady, is.BeforeGap, is.Load, b.localNow()}, codeRenewal, 64))
		}
	}
	if w.members {
		w.t.saw(membersKey)
	}
}

func (w *writer) documents(c *engine.Changes) error {
	for _, d := range c.Documents {
		value, err := columns.EncodeDocument(d)
		if err != nil {
			return fmt.Errorf("encode %s %s: %w", d.Kind, d.FullName(), err)
		}
		w.docs = true
		w.rest.put(documentKey(d.Kind, d.FullName()), value)
	}
	for i := range c.Tokens {
		w.docs = true
		w.rest.put(tokenKeys+c.Tokens[i].Name, encode(&c.Tokens[i], codeToken, 128))
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
		w.rest.put(drainKeys+d.Node, encode(d.Drain, codeDrain, 64))
	}
	return nil
}

// commit divides the writes into parts.
func (w *writer) commit(c *engine.Changes) *commit {
	parts := map[job.ID]*part{}
	of := func(uid job.ID) *part {
		if _, ok := w.tied[uid]; !ok {
			return w.rest
		}
		root := w.root(uid)
		if parts[root] == nil {
			parts[root] = newPart()
		}
		return parts[root]
	}
	byName := map[string]job.ID{}
	for _, uid := range w.order {
		p, is := of(uid), w.cells[uid]
		p.Compares[cellKey(uid)] = w.t.reads[cellKey(uid)]
		full := is.job.FullName()
		byName[full] = uid
		switch {
		case w.made[uid]:
			delete(p.Compares, cellKey(uid)) // a new uid; its name decides
			p.Compares[nameKey(full)] = 0
			p.put(nameKey(full), uid[:])
		case w.dropped[uid]:
			p.Deletes = append(p.Deletes, nameKey(full))
		}
		if p.cells = append(p.cells, is); w.news[uid] {
			p.news = append(p.news, &is.cell)
		}
	}
	for slot, uid := range w.pools {
		of(uid).put(slotKeys+slot, []byte(w.t.b.writer))
	}
	w.records(c, of)
	handed := w.handovers(c, of)
	for i := range c.Keys {
		of(c.Keys[i].Job).put(requestKey(c.Keys[i].Identity), encode(&c.Keys[i], codeKey, 96))
	}
	for i, a := range c.Audit {
		p := w.rest
		if uid, ok := byName[a.Object]; ok {
			p = of(uid)
		}
		a.Seq = int64(i) // its place among those of the step, for now
		p.audit = append(p.audit, a)
	}
	var list []*part
	for _, uid := range w.order {
		if p := parts[uid]; p != nil && w.root(uid) == uid {
			list = append(list, p)
		}
	}
	list = append(list, handed...)
	if w.members {
		w.rest.put(membersKey, []byte(w.t.b.writer))
	}
	if w.docs {
		w.rest.put(documentsKey, []byte(w.t.b.writer))
	}
	if w.follows {
		w.rest.put(followsKey, []byte(w.t.b.writer))
	}
	list = w.gather(list)
	w.output(c, list)
	w.signal(c, list)
	return &commit{w.before, list, w.prune}
}

// gather combines parts that fit into one transaction. All compare the data that the step
// has read and none of them writes. Data of no cell is written last: a step that is
// repeated after a partial commit then still finds work.
func (w *writer) gather(list []*part) []*part {
	common := w.common(append(list, w.rest))
	most, size := w.t.b.driver.Bounds()
	if w.t.whole {
		size += size / 3 // drivers leave room for more
	}
	var together []*part
	var last *part
	for _, p := range append(list, w.rest) {
		if last == nil || len(last.Compares)+len(p.Compares) > most || last.size()+p.size() > size || last.ops()+p.ops() > opsMax {
			last = newPart()
			maps.Copy(last.Compares, common)
			together = append(together, last)
		}
		maps.Copy(last.Compares, p.Compares)
		last.Puts, last.Deletes = append(last.Puts, p.Puts...), append(last.Deletes, p.Deletes...)
		last.audit, last.news, last.cells = append(last.audit, p.audit...), append(last.news, p.news...), append(last.cells, p.cells...)
		last.records = append(last.records, p.records...)
	}
	for _, p := range together {
		slices.SortFunc(p.audit, func(a, b store.AuditRecord) int { return int(a.Seq - b.Seq) })
	}
	return together
}

// common returns the versions of the data that the step has read and no part writes. A part
// compares itself what it writes.
func (w *writer) common(list []*part) map[string]int64 {
	writes := map[string]*part{}
	for _, p := range list {
		for _, put := range p.Puts {
			writes[put.Key] = p
		}
		for _, key := range p.Deletes {
			writes[key] = p
		}
	}
	common, most := map[string]int64{}, commonMax
	defer func() { w.loosen(common, most) }()
	for key, version := range w.t.reads {
		switch p := writes[key]; {
		case p != nil:
			p.Compares[key] = version
		case strings.HasPrefix(key, cellKeys) && w.cells[idIn(key, cellKeys)] != nil:
			// Its part compares it.
		case strings.HasPrefix(key, nameKeys) && version > 0:
			// The job of the name was read: it changes when the name does.
		default:
			common[key] = version
		}
	}
	if w.t.whole {
		most, _ = w.t.b.driver.Bounds()
		for _, p := range list {
			most -= len(p.Compares)
		}
	}
	return common
}

// commonMax is how much that a step has read and not written its parts compare: more would
// leave no room for what they write.
const commonMax = 40

// loosen removes cells and renewals from the common comparisons if they are too many. Each
// only decided refusals, and is compared with the copy before the commit.
func (w *writer) loosen(common map[string]int64, most int) {
	if len(common) <= most {
		return
	}
	w.loose = map[string]int64{}
	for key, version := range common {
		// The names of jobs that others follow are guarded by followsKey.
		if strings.HasPrefix(key, cellKeys) || strings.HasPrefix(key, renewalKeys) || w.t.whole && strings.HasPrefix(key, nameKeys) {
			w.loose[key] = version
			delete(common, key)
		}
	}
}

// size is about how many bytes a part has.
func (p *part) size() (n int) {
	for _, put := range p.Puts {
		n += len(put.Key) + len(put.Value)
	}
	for _, c := range p.cells {
		n += 256 + 64*len(c.gone)
		for _, r := range c.runs {
			n += runSize(r)
		}
		for _, r := range c.set {
			n += runSize(r) + 64
		}
	}
	for _, r := range p.records {
		n += runFixed + len(r.Run.Flow) + len(r.Attempt.Reason) + len(r.Unmet)
	}
	for i := range p.audit {
		a := &p.audit[i]
		n += 512 + len(a.Detail)
		for _, ch := range a.Changes {
			n += len(ch.Path) + len(ch.Before) + len(ch.After)
		}
	}
	return n + 64*len(p.Compares)
}

// ops is how many keys a part writes.
func (p *part) ops() int {
	n := len(p.Puts) + len(p.Deletes) + len(p.audit)
	for _, c := range p.cells {
		n += c.ops()
	}
	return n
}

// runFixed is how many bytes a run or a record has at most, besides its texts.
const runFixed = 320

// runSize is how many bytes a run has at most in its cell.
func runSize(r *store.Run) int {
	n := runFixed + len(r.Namespace) + len(r.Name) + len(r.Key) + len(r.Slot) + len(r.Node) + len(r.Reason) + len(r.CancelBy) + len(r.CancelReason) + len(r.Flow)
	for key, value := range r.Params {
		n += len(key) + len(value) + 8
	}
	return n
}

// records puts new records beside their cells, and replaces existing ones in place.
func (w *writer) records(c *engine.Changes, of func(job.ID) *part) {
	for _, r := range c.Records {
		p := of(r.Run.JobUID)
		p.records = append(p.records, r)
	}
	if w.t.b.opt.apart { // the record that is replaced may be on its way to history
		for _, r := range c.Replaced {
			p := of(r.Run.JobUID)
			p.records = append(p.records, r)
		}
		w.words = wordsOnly(c.Replaced)
		return
	}
	w.words = wordsOnly(c.Replaced)
	w.feed(&w.rest.Txn, c.Replaced)
	replaced := map[*group][]*store.Record{}
	w.t.b.mu.RLock()
	for _, r := range c.Replaced {
		if g := w.t.b.state.groupOf[recordKey{r.Run.ID, r.Attempt.Number}]; g != nil {
			w.t.saw(g.key)
			replaced[g] = append(replaced[g], r)
		}
	}
	w.t.b.mu.RUnlock()
	for g, list := range replaced {
		own := &group{key: g.key, records: slices.Clone(g.records)}
		for _, r := range list {
			for i, o := range own.records {
				if o.Run.ID == r.Run.ID && o.Attempt.Number == r.Attempt.Number {
					own.records[i] = r
				}
			}
		}
		w.rest.put(own.key, encodeGroup(own))
	}
}

// newGroupKey returns a key that no other group has, in the order of time.
func newGroupKey(at time.Time) string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // crypto/rand does not fail
	return historyKeys + big(at.UnixMicro()) + string(random[:])
}

// groupTime returns the moment for the key of a new group: now, but later than that of any
// group in the outbox with a record of the same run. The later key of two records of an
// attempt counts, and both may fall into one microsecond, or the clock may be set back
// between them.
func (b *Backend) groupTime(now time.Time, records []*store.Record) time.Time {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.state.outbox == nil {
		return now
	}
	for _, r := range records {
		for _, p := range b.state.outbox.byRun[r.Run.ID] {
			if at := timeOfGroup(p.key); now.UnixMicro() <= at.UnixMicro() {
				now = at.Add(time.Microsecond)
			}
		}
	}
	return now
}

// timeOfGroup returns the moment that the key of a group was made with.
func timeOfGroup(key string) time.Time {
	return time.UnixMicro(number(key[len(historyKeys) : len(historyKeys)+8])).UTC()
}

// output goes with the first part: it is read by runs that the step has accepted.
func (w *writer) output(c *engine.Changes, list []*part) {
	if len(c.Output) > 0 {
		putOutput(&list[0].Txn, c.Output, map[string]bool{})
	}
}

// signal sets the subjects and the origin of a commit, for other processes.
func (w *writer) signal(c *engine.Changes, list []*part) {
	hint := c.Hints
	for uid := range w.news {
		hint = hint.With(store.HintJobs | store.HintAbout(uid))
	}
	value := encode(&signal{w.t.b.writer, hint}, codeSignal, 16)
	for _, p := range list {
		if len(p.records) > 0 {
			g := &group{newGroupKey(w.t.b.groupTime(w.now, p.records)), p.records}
			p.put(g.key, encodeGroup(g))
			w.feed(&p.Txn, p.records)
		}
		p.put(signalKey, value)
	}
}

// putOutput adds new chunks to a transaction, and removes the chunks that they push out,
// even for repeated ones.
func putOutput(t *Txn, chunks []store.OutputChunk, there map[string]bool) {
	dropped := map[string]bool{}
	for i := range chunks {
		o := &chunks[i]
		prefix := outputPrefix(o.Run, o.Attempt)
		for seq := o.DropFrom; seq < o.DropTo; seq++ {
			if key := prefix + big(int64(seq)); !dropped[key] {
				dropped[key] = true
				t.Deletes = append(t.Deletes, key)
			}
		}
	}
	for i := range chunks {
		o := &chunks[i]
		if key := outputPrefix(o.Run, o.Attempt) + big(int64(o.Seq)); !there[key] && !dropped[key] {
			there[key] = true
			t.Puts = append(t.Puts, Pair{Key: key, Value: encode(o, codeChunk, len(o.Data)+96)})
		}
	}
}

// do writes the parts one after another, and returns the version of the last. What takes
// numbers compares the last ones that were given, so that they become visible in their order.
func (c *commit) do(ctx context.Context, b *Backend) (last int64, err error) {
	if err := b.putAll(ctx, c.before); err != nil {
		return 0, err
	}
	if last, err = c.putParts(ctx, b); err == nil {
		c.pruneDefinitions(ctx, b)
	} else if last == 0 && errors.Is(err, ledger.ErrAgain) {
		var t Txn // no cell names them, and none will
		for _, p := range c.before {
			t.Deletes = append(t.Deletes, p.Key)
		}
		if len(t.Deletes) > 0 {
			_, _, _ = b.driver.Commit(ctx, &t)
		}
	}
	return last, err
}

// pruneDefinitions removes definitions beyond the limit. Leftovers of a failure are removed
// with a later version.
func (c *commit) pruneDefinitions(ctx context.Context, b *Backend) {
	for _, r := range c.prune {
		if old := r.version - int64(b.opt.Revisions); old > 0 {
			_ = b.removeRange(ctx, definitionsOf(r.uid), definitionsOf(r.uid)+big(old+1))
		}
	}
}

func (c *commit) putParts(ctx context.Context, b *Backend) (last int64, err error) {
	for _, p := range c.parts {
		version, err := p.write(ctx, b)
		if err != nil {
			return last, err
		}
		last = version
	}
	return last, nil
}

// write commits a part. A part with new numbers waits for others of this process that have
// some, and until the copy has them, so that the next finds the last number. If another
// process was quicker it takes new numbers, as long as nothing else was changed.
func (p *part) write(ctx context.Context, b *Backend) (version int64, err error) {
	numbered := len(p.audit)+len(p.news) > 0
	if numbered {
		b.numbering.Lock()
		defer b.numbering.Unlock()
	}
	for try := 0; ; try++ {
		t := Txn{Compares: maps.Clone(p.Compares), Puts: slices.Clip(p.Puts), Deletes: p.Deletes, Adds: p.Adds}
		if numbered {
			p.number(b, &t)
		}
		t.Deletes = slices.Clip(t.Deletes)
		for _, is := range p.cells {
			is.write(&t)
		}
		version, done, err := b.driver.Commit(ctx, &t)
		switch {
		case err != nil:
			return 0, err
		case done && numbered:
			return version, b.await(ctx, version)
		case done:
			return version, nil
		case !numbered || try == numberTries:
			return 0, ledger.ErrAgain
		}
		if err := b.fresh(ctx); err != nil {
			return 0, err
		}
		if b.differs(p.Compares) {
			return 0, ledger.ErrAgain
		}
	}
}

// numberTries is how often a part takes new numbers because other processes were quicker.
const numberTries = 50

// differs reports whether the copy has other versions of keys.
func (b *Backend) differs(versions map[string]int64) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for key, version := range versions {
		if b.state.versions[key] != version {
			return true
		}
	}
	return false
}

// number gives the changes of a part their numbers.
func (p *part) number(b *Backend, t *Txn) {
	b.mu.RLock()
	n, version := b.state.numbers, b.state.versions[numbersKey]
	b.mu.RUnlock()
	for i := range p.audit {
		n.audit++
		p.audit[i].Seq = n.audit
		t.put(auditKeys+big(n.audit), encode(&p.audit[i], codeAudit, 256))
	}
	for _, c := range p.news {
		n.feed++
		c.seq = n.feed
	}
	t.Compares[numbersKey] = version
	t.put(numbersKey, encode(&n, codeNumbers, 16))
}

// putAll writes pairs that nothing names yet, as many at a time as fit.
func (b *Backend) putAll(ctx context.Context, pairs []Pair) error {
	most, room := b.driver.Bounds()
	for len(pairs) > 0 {
		n, size := 0, 0
		for n < len(pairs) && n < most && (n == 0 || size+len(pairs[n].Value) < room) {
			size += len(pairs[n].Value) + len(pairs[n].Key)
			n++
		}
		if _, _, err := b.driver.Commit(ctx, &Txn{Puts: pairs[:n]}); err != nil {
			return err
		}
		pairs = pairs[n:]
	}
	return nil
}
