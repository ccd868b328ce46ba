package replica

import (
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// commit divides the writes into parts.
func (w *writer) commit(c *engine.Changes) *commit {
	parts := map[job.ID]*part{}
	of := func(uid job.ID) *part {
		if _, ok := w.tied[uid]; !ok || w.t.b.isSerial() {
			return w.rest
		}
		root := w.root(uid)
		if parts[root] == nil {
			parts[root] = newPart()
		}
		return parts[root]
	}
	var byName map[string]job.ID // for the audit
	if len(c.Audit) > 0 {
		byName = make(map[string]job.ID, len(w.order))
	}
	for _, uid := range w.order {
		p, is := of(uid), w.cells[uid]
		if !w.t.b.isSerial() {
			p.compare(cellKey(uid), w.t.reads[cellKey(uid)])
		}
		if byName != nil {
			byName[is.job.FullName()] = uid
		}
		switch {
		case w.named[uid]:
			full := is.job.FullName()
			if is.job.Made() {
				delete(p.Compares, cellKey(uid)) // a new uid needs no compare; its name has one
			}
			p.compare(nameKey(full), 0)
			w.t.b.set(&p.Txn, nameKey(full), jobName{full, uid})
		case w.dropped[uid]:
			p.Deletes = append(p.Deletes, nameKey(is.job.FullName()))
		}
		if p.cells = append(p.cells, is); w.news[uid] {
			p.news = append(p.news, &is.cell)
		}
	}
	w.markSlots(c, of)
	for _, moved := range c.Turns {
		w.t.b.set(&of(moved.By[0]).Txn, turnKeys+moved.Line, &turn{moved.At})
	}
	w.records(c, of)
	handed := w.handovers(c, of)
	for i := range c.Keys {
		key := c.Keys[i]
		w.t.b.set(&of(key.Job).Txn, requestKey(key.Identity), &key)
	}
	for i, a := range c.Audit {
		p := w.rest
		if uid, ok := byName[a.Object]; ok {
			p = of(uid)
		}
		a.Seq = int64(i) // its place in the step, until numbered
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

// gather combines parts that fit into one transaction. All compare the data that the step has read
// and no part writes. Data outside cells is written last: so a step that is repeated after a
// partial commit still finds work.
func (w *writer) gather(list []*part) []*part {
	if w.t.b.isSerial() {
		w.rest.sortAudit()
		return []*part{w.rest}
	}
	common := w.common(append(list, w.rest))
	most, size := w.t.b.driver.Bounds()
	if w.t.whole {
		size += size / 3 // the bounds of drivers leave this room
	}
	var together []*part
	var last *part
	bytes, ops := 0, 0 // size of the last part
	for _, p := range append(list, w.rest) {
		more, moreOps := p.size(), p.ops()
		if last == nil || w.t.oneEach || len(last.Compares)+len(p.Compares) > most || bytes+more > size || ops+moreOps > opsMax {
			last = newPart()
			maps.Copy(last.Compares, common)
			together = append(together, last)
			bytes, ops = last.size(), 0
		}
		bytes, ops = bytes+more, ops+moreOps
		last.add(p)
	}
	for i, p := range together {
		p.Part, p.Parts = i, len(together)
		p.sortAudit()
	}
	return together
}

// markSlots writes the keys of the shared slots that the step changes, and removes the keys of slots
// that it leaves empty: a slot for each customer would leave keys without end.
func (w *writer) markSlots(c *engine.Changes, of func(job.ID) *part) {
	left := map[string]int{}
	w.t.b.mu.RLock()
	for slot := range w.pools {
		if in := w.t.b.state.slots[slot]; in != nil {
			left[slot] = len(in.holding) + in.waiting.Len() + in.ready.Len()
		}
	}
	for _, list := range [...][]*store.Run{c.Saved, c.Removed} {
		for _, r := range list {
			if was := w.t.b.state.runs[r.ID]; was != nil {
				left[was.Slot]--
			}
		}
	}
	w.t.b.mu.RUnlock()
	for _, list := range [...][]*store.Run{c.Saved, c.Made} {
		for _, r := range list {
			left[r.Slot]++
		}
	}
	for slot, uid := range w.pools {
		key, p := slotKeys+slot, of(uid)
		if _, compared := w.t.reads[key]; left[slot] == 0 && (compared || w.t.b.isSerial()) {
			p.Deletes = append(p.Deletes, key)
		} else {
			p.put(key, []byte(w.t.b.writer))
		}
	}
}

// add adds what another part writes.
func (p *part) add(o *part) {
	maps.Copy(p.Compares, o.Compares)
	p.Puts, p.Deletes = append(p.Puts, o.Puts...), append(p.Deletes, o.Deletes...)
	p.audit, p.news, p.cells = append(p.audit, o.audit...), append(p.news, o.news...), append(p.cells, o.cells...)
	p.records = append(p.records, o.records...)
}

func (p *part) sortAudit() {
	slices.SortFunc(p.audit, func(a, b store.AuditRecord) int { return int(a.Seq - b.Seq) })
}

// common returns the versions of the data that the step has read and no part writes. Each part
// compares the data that it writes.
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
			// A part compares it.
		case strings.HasPrefix(key, nameKeys) && version > 0:
			// The named job was read: it changes with its name.
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

// commonMax bounds the data that a step has read and not written, which each part compares: more
// would leave no room for its writes.
const commonMax = 40

// loosen removes cells and renewals from the common comparisons if they are too many. These only
// decided refusals, and are compared with the copy before the commit.
func (w *writer) loosen(common map[string]int64, most int) {
	if len(common) <= most {
		return
	}
	w.loose = map[string]int64{}
	for key, version := range common {
		// followsKey guards the names of jobs that others follow.
		if strings.HasPrefix(key, cellKeys) || strings.HasPrefix(key, renewalKeys) || w.t.whole && strings.HasPrefix(key, nameKeys) {
			w.loose[key] = version
			delete(common, key)
		}
	}
}

// isTooLarge reports whether a server would refuse a part, or need long for it. The jobs of runs in one
// pool share a part, and each is compared.
func (b *Backend) isTooLarge(p *part) bool {
	if b.isSerial() {
		return false
	}
	most, size := b.driver.Bounds()
	return len(p.Compares) > most || p.size() > size+size/3 || p.ops() > opsMax
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
		n += runFixed + len(r.Run.Flow) + len(r.Attempt.Reason.Stored()) + len(r.Attempt.Cause) + len(r.Unmet.Stored()) + len(r.Attempt.Usage.Stored())
	}
	for i := range p.audit {
		a := &p.audit[i]
		n += 512 + len(a.Detail.Stored())
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
	n := runFixed + len(r.Namespace) + len(r.Name) + len(r.Key) + len(r.Slot) + len(r.Node) + len(r.Reason.Stored()) + len(r.CancelBy) + len(r.CancelReason.Stored()) + len(r.Flow)
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
	if w.t.b.opt.apart { // the replaced record may be on its way to history
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
		w.t.b.set(&w.rest.Txn, own.key, own)
	}
}

// newGroupKey returns a key that no other group has, in the order of time.
func newGroupKey(at time.Time) string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // crypto/rand does not fail
	return historyKeys + big(at.UnixMicro()) + string(random[:])
}

// groupTime returns the moment for the key of a new group: now, but later than the moment of any
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

// timeOfGroup returns the moment in the key of a group.
func timeOfGroup(key string) time.Time {
	return time.UnixMicro(number(key[len(historyKeys) : len(historyKeys)+8])).UTC()
}

// output adds the output to the first part, so that it is written no later than any result.
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
	is := &signal{w.t.b.writer, hint}
	for _, p := range list {
		if len(p.records) > 0 {
			g := &group{newGroupKey(w.t.b.groupTime(w.now, p.records)), p.records}
			w.t.b.set(&p.Txn, g.key, g)
			w.feed(&p.Txn, p.records)
		}
		w.t.b.set(&p.Txn, signalKey, is)
	}
}

// putOutput adds new chunks to a transaction, and removes the chunks that they displace, also for
// repeated ones.
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
