package replica

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/btree"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// The keys. Those behind Copied are in the copy of each process.
const (
	cellKeys        = Copied + "c/" // a job and its unfinished runs, by uid
	nameKeys        = Copied + "n/" // the uid of the job that has a name
	requestKeys     = Copied + "k/" // identities of requests
	sessionKeys     = Copied + "s/" // what a node says when it joins
	renewalKeys     = Copied + "r/" // what it says each time it renews
	documentKeys    = Copied + "y/" // documents, by the letter of their kind
	tokenKeys       = Copied + "y/t/"
	drainKeys       = Copied + "y/d/"
	historyKeys     = Copied + "h/" // groups of records that were written together
	handoverKeys    = Copied + "o/" // attempts that were handed over, by number
	numbersKey      = Copied + "e"  // the last numbers of the audit and of the feed of changes
	lastHandoverKey = Copied + "q"  // the last number of a handover that was reserved
	signalKey       = Signal        // the process of the latest commit, and its hints

	// Versions of what a step reads as a whole: written by each commit that changes any
	// of it, and compared by each step that has read it.
	membersKey   = Copied + "x/m"  // the sessions, but for their renewals
	followsKey   = Copied + "x/f"  // which jobs follow which, and name which calendars
	documentsKey = Copied + "x/y"  // documents, tokens and drains
	slotKeys     = Copied + "x/p/" // the runs in the slot of a pool

	definitionKeys = "d/" // by uid and version
	auditKeys      = "a/" // by number
	outputKeys     = "o/" // by run, attempt and number
)

func cellKey(uid job.ID) string           { return cellKeys + string(uid[:]) }
func nameKey(full string) string          { return nameKeys + full }
func sessionKey(id job.ID) string         { return sessionKeys + string(id[:]) }
func renewalKey(id job.ID) string         { return renewalKeys + string(id[:]) }
func big(n int64) string                  { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }
func definitionsOf(uid job.ID) string     { return definitionKeys + string(uid[:]) }
func idIn(key, prefix string) (id job.ID) { copy(id[:], strings.TrimPrefix(key, prefix)); return id }

// documentLetters stand for kinds in keys.
var documentLetters = map[job.Kind]string{job.KindCalendar: "c/", job.KindPool: "p/", job.KindChannel: "n/", job.KindExecutors: "x/", "": "t/"}

// documentKey returns the key of a document or token.
func documentKey(kind job.Kind, name string) string {
	return documentKeys + documentLetters[kind] + name
}

// documentIn is the inverse of documentKey.
func documentIn(key string) (d engine.Dropped) {
	for kind, letter := range documentLetters {
		if name, ok := strings.CutPrefix(key, documentKeys+letter); ok {
			d = engine.Dropped{Kind: kind, Name: name}
		}
	}
	return d
}

func requestKey(id engine.Identity) string {
	return requestKeys + string(id.Job[:]) + string(id.Kind) + "/" + big(int64(id.Shard)) + id.Key
}

func outputPrefix(run job.ID, attempt int) string {
	return outputKeys + string(run[:]) + big(int64(attempt))
}

// head is a job as its cell has it.
type head struct {
	job engine.Job // without Document and Policy
	// document is the key of its definition.
	document string
	seq      int64 // of its latest change, in the feed
	timing   string
	// follows and calendars are the full names of the jobs that it follows and of the
	// calendars that it names.
	follows, calendars []string
	boot, broadcast    bool
}

// cell is a job with its unfinished runs. It is not changed once it is made.
type cell struct {
	head
	runs []*store.Run
}

func (c *cell) run(id job.ID) *store.Run {
	for _, r := range c.runs {
		if r.ID == id {
			return r
		}
	}
	return nil
}

func encodeCell(c *cell) []byte {
	w := writing(256 + 160*len(c.runs))
	codeHead(w, &c.head)
	list(w, &c.runs, func(w *coder, r **store.Run) { codeRun(w, *r) })
	return w.b
}

func decodeCell(value []byte) (*cell, error) {
	c, r := &cell{}, reading(value)
	codeHead(r, &c.head)
	list(r, &c.runs, func(w *coder, run **store.Run) { *run = &store.Run{}; codeRun(w, *run) })
	return c, r.err()
}

// session is a stored session, without the data of its renewals.
type session struct {
	store.Session
	over bool
}

// renewal is what a node says each time that it renews its session.
type renewal struct {
	renewed, steady, beforeGap time.Time
	load                       store.Load
	clock                      time.Time // of the node's machine
}

// numbers are the last that were given.
type numbers struct{ audit, feed int64 }

func codeNumbers(c *coder, n *numbers) { c.int64(&n.audit); c.int64(&n.feed) }

// signal is the process of a commit, and the reasons for others to poll.
type signal struct {
	writer string
	hint   store.Hint
}

func codeSignal(c *coder, s *signal) {
	text(c, &s.writer)
	n := int64(s.hint)
	c.int64(&n)
	s.hint = store.Hint(n)
}

// group is the records that one commit has written.
type group struct {
	key     string
	records []*store.Record
}

// state is the copy.
type state struct {
	versions map[string]int64
	unread   map[string]error // values that cannot be decoded
	cells    map[job.ID]*cell
	names    *btree.BTreeG[named]
	requests map[string]engine.Key
	sessions map[job.ID]*store.Session // with what the renewals say
	over     map[job.ID]bool
	renewals map[job.ID]renewal

	documents engine.Documents
	tokens    map[string]store.Token
	drains    map[string]*store.Drain
	numbers   numbers

	// Indexes of the runs, by due time and id unless noted.
	runs    map[job.ID]*store.Run
	index   ledger.RunIndex
	slots   map[string]map[job.ID]*store.Run // in the slots of pools
	alarms  *btree.BTreeG[*store.Run]        // by AlertAt
	late    *btree.BTreeG[*store.Run]        // by LateAfter, not running
	suspect map[job.ID]*store.Run            // to be looked at by Tidy

	// Indexes of the jobs.
	followers map[string]map[job.ID]bool // by what they follow
	naming    map[string]map[job.ID]bool // by the calendar that they name
	changes   *btree.BTreeG[*cell]       // by seq
	resting   map[job.ID]bool            // paused until a moment, or completed
	deleted   map[job.ID]bool
	sums      [job.Partitions]store.PartitionSummary

	handovers handovers
	consumers map[string]*keptConsumer // replaced, not changed
	outbox    *outbox                  // nil if history is kept here

	groups  map[string]*group
	records map[job.ID][]*store.Record // by run
	groupOf map[recordKey]*group
	latest  *btree.BTreeG[*store.Record]
	// silent are records whose output is known to be gone.
	silent map[recordKey]bool
}

type recordKey struct {
	run    job.ID
	number int
}

type named struct {
	full string
	uid  job.ID
}

const degree = 32 // of the trees

func newState(apart bool) *state {
	by := func(at func(*store.Run) time.Time) *btree.BTreeG[*store.Run] {
		return btree.NewG(degree, func(a, b *store.Run) bool {
			return cmp.Or(at(a).Compare(at(b)), bytes.Compare(a.ID[:], b.ID[:])) < 0
		})
	}
	s := &state{
		consumers: map[string]*keptConsumer{}, handovers: newHandovers(),
		versions: map[string]int64{}, unread: map[string]error{}, cells: map[job.ID]*cell{}, requests: map[string]engine.Key{},
		names:    btree.NewG(degree, func(a, b named) bool { return a.full < b.full }),
		sessions: map[job.ID]*store.Session{}, over: map[job.ID]bool{}, renewals: map[job.ID]renewal{},
		documents: engine.Documents{}, tokens: map[string]store.Token{}, drains: map[string]*store.Drain{},
		runs: map[job.ID]*store.Run{}, slots: map[string]map[job.ID]*store.Run{},
		alarms: by(func(r *store.Run) time.Time { return r.AlertAt }), late: by(func(r *store.Run) time.Time { return r.LateAfter }),
		suspect:   map[job.ID]*store.Run{},
		followers: map[string]map[job.ID]bool{}, naming: map[string]map[job.ID]bool{},
		changes: btree.NewG(degree, func(a, b *cell) bool { return a.seq < b.seq }),
		resting: map[job.ID]bool{}, deleted: map[job.ID]bool{},
		groups: map[string]*group{}, records: map[job.ID][]*store.Record{}, groupOf: map[recordKey]*group{}, silent: map[recordKey]bool{},
		latest: btree.NewG(degree, func(a, b *store.Record) bool { return compareRecords(a.Ref(), b.Ref()) < 0 }),
	}
	if apart {
		s.outbox = newOutbox()
	}
	return s
}

func compareRecords(a, b store.RecordRef) int {
	return cmp.Or(a.Ended.Compare(b.Ended), bytes.Compare(a.Run[:], b.Run[:]), cmp.Compare(a.Attempt, b.Attempt))
}

// put writes a pair into the copy. If requested, it returns the event for followers of the
// store.
func (s *state) put(p Pair, tell bool) (sig signal, happened []store.Event) {
	if p.Version < s.versions[p.Key] {
		return sig, nil
	}
	s.versions[p.Key] = p.Version
	var err error
	switch key := p.Key; {
	case strings.HasPrefix(key, cellKeys):
		var c *cell
		if c, err = decodeCell(p.Value); err == nil {
			happened = s.putCell(c, tell)
		}
	case strings.HasPrefix(key, historyKeys):
		var g *group
		if g, err = decodeGroup(key, p.Value); err == nil {
			if s.outbox != nil {
				happened = endsOf(g, tell && !s.outbox.groups.Has(&packed{key: key}))
				s.outbox.put(g, p.Value)
			} else {
				happened = s.putGroup(g, tell)
			}
		}
	case strings.HasPrefix(key, consumerKeys):
		var c keptConsumer
		if err = json.Unmarshal(p.Value, &c); err != nil {
			err = fmt.Errorf("%w: %w", store.ErrDamaged, err)
			break
		}
		s.consumers = maps.Clone(s.consumers)
		s.consumers[strings.TrimPrefix(key, consumerKeys)] = &c
	case strings.HasPrefix(key, nameKeys):
		full := strings.TrimPrefix(key, nameKeys)
		var uid job.ID
		copy(uid[:], p.Value)
		s.names.ReplaceOrInsert(named{full, uid})
	case strings.HasPrefix(key, requestKeys):
		s.requests[key], err = decode(p.Value, codeKey)
	case strings.HasPrefix(key, sessionKeys):
		var one session
		if one, err = decode(p.Value, codeSession); err == nil {
			s.putSession(&one)
		}
	case strings.HasPrefix(key, renewalKeys):
		var r renewal
		if r, err = decode(p.Value, codeRenewal); err == nil {
			s.renew(idIn(key, renewalKeys), r)
		}
	case strings.HasPrefix(key, tokenKeys):
		s.tokens[strings.TrimPrefix(key, tokenKeys)], err = decode(p.Value, codeToken)
	case strings.HasPrefix(key, drainKeys):
		var d store.Drain
		if d, err = decode(p.Value, codeDrain); err == nil {
			s.drains[strings.TrimPrefix(key, drainKeys)] = &d
		}
	case documentIn(key).Kind != "":
		var d job.Document
		if d, err = columns.DecodeDocument(documentIn(key).Kind, p.Value); err == nil {
			s.documents.Put(d)
		}
	case strings.HasPrefix(key, handoverKeys):
		var h store.Handover
		if h, err = decode(p.Value, codeHandover); err == nil {
			s.handovers.put(&h)
		}
	case key == lastHandoverKey:
		s.handovers.last, err = decode(p.Value, (*coder).int64)
	case key == numbersKey:
		s.numbers, err = decode(p.Value, codeNumbers)
	case key == signalKey:
		sig, err = decode(p.Value, codeSignal)
	}
	if err != nil {
		s.unread[p.Key] = err
	} else {
		delete(s.unread, p.Key)
	}
	return sig, happened
}

// remove takes a key out of the copy.
func (s *state) remove(key string, now time.Time) {
	delete(s.versions, key)
	delete(s.unread, key)
	switch {
	case strings.HasPrefix(key, cellKeys):
		if c := s.cells[idIn(key, cellKeys)]; c != nil {
			s.dropCell(c)
		}
	case strings.HasPrefix(key, consumerKeys):
		s.consumers = maps.Clone(s.consumers)
		delete(s.consumers, strings.TrimPrefix(key, consumerKeys))
	case strings.HasPrefix(key, historyKeys):
		if s.outbox != nil {
			s.outbox.remove(key, now)
		} else if g := s.groups[key]; g != nil {
			s.dropGroup(g)
		}
	case strings.HasPrefix(key, handoverKeys):
		s.handovers.drop(number(strings.TrimPrefix(key, handoverKeys)))
	case strings.HasPrefix(key, nameKeys):
		s.names.Delete(named{full: strings.TrimPrefix(key, nameKeys)})
	case strings.HasPrefix(key, requestKeys):
		delete(s.requests, key)
	case strings.HasPrefix(key, sessionKeys):
		id := idIn(key, sessionKeys)
		delete(s.sessions, id)
		delete(s.over, id)
	case strings.HasPrefix(key, renewalKeys):
		delete(s.renewals, idIn(key, renewalKeys))
	case strings.HasPrefix(key, tokenKeys):
		delete(s.tokens, strings.TrimPrefix(key, tokenKeys))
	case strings.HasPrefix(key, drainKeys):
		delete(s.drains, strings.TrimPrefix(key, drainKeys))
	case documentIn(key).Kind != "":
		gone := documentIn(key)
		delete(s.documents[gone.Kind], gone.Name)
	}
}

// putSession takes a session: steps before may still read the one that was there.
func (s *state) putSession(one *session) {
	kept := one.Session
	s.over[kept.ID] = one.over
	if !one.over {
		delete(s.over, kept.ID)
	}
	merge(&kept, s.renewals[kept.ID])
	s.setSession(&kept)
}

func (s *state) renew(id job.ID, r renewal) {
	s.renewals[id] = r
	if was := s.sessions[id]; was != nil {
		kept := *was
		merge(&kept, r)
		s.setSession(&kept)
	}
}

// setSession replaces the map as well: batches hold it.
func (s *state) setSession(kept *store.Session) {
	all := make(map[job.ID]*store.Session, len(s.sessions)+1)
	for id, one := range s.sessions {
		all[id] = one
	}
	all[kept.ID] = kept
	s.sessions = all
}

func merge(kept *store.Session, r renewal) {
	if !r.renewed.IsZero() {
		kept.Renewed, kept.Steady, kept.BeforeGap, kept.Load = r.renewed, r.steady, r.beforeGap, r.load
	}
}

func (s *state) putCell(c *cell, tell bool) (happened []store.Event) {
	was := s.cells[c.job.UID]
	if was != nil {
		if tell {
			happened = changed(was, c)
		}
		s.dropCell(was)
	} else if tell {
		happened = changed(&cell{}, c)
	}
	uid := c.job.UID
	s.cells[uid] = c
	s.changes.ReplaceOrInsert(c)
	if c.job.Deleted {
		s.deleted[uid] = true
	} else {
		addTo(s.followers, c.follows, uid)
		addTo(s.naming, c.calendars, uid)
		if c.job.State == job.JobActive {
			p := &s.sums[job.Partition(uid)]
			p.Jobs++
			p.Versions += c.job.Version
		}
	}
	if !c.job.PausedUntil.IsZero() || !c.job.Completed.IsZero() {
		s.resting[uid] = true
	}
	for _, r := range c.runs {
		s.addRun(c, r)
	}
	return happened
}

// changed returns what has happened to the runs of a job. How they ended comes with
// their records.
func changed(was, is *cell) (list []store.Event) {
	for _, r := range is.runs {
		before := was.run(r.ID)
		placed := before != nil && before.Session != r.Session && r.State != job.StateRunning // a handover is no news
		if before == nil || before.State != r.State || before.Attempt != r.Attempt || placed {
			shown := *r
			list = append(list, store.Event{Kind: store.RunEvent(r.State), Time: latestOf(r), Run: &shown})
		}
	}
	return list
}

// latestOf is a moment of a run for its event: when it was claimed, else when it was due
// or made.
func latestOf(r *store.Run) time.Time {
	if r.State == job.StateRunning {
		return r.Claimed
	}
	return r.ID.Time()
}

func (s *state) dropCell(c *cell) {
	uid := c.job.UID
	delete(s.cells, uid)
	s.changes.Delete(c)
	delete(s.deleted, uid)
	delete(s.resting, uid)
	if !c.job.Deleted {
		removeFrom(s.followers, c.follows, uid)
		removeFrom(s.naming, c.calendars, uid)
		if c.job.State == job.JobActive {
			p := &s.sums[job.Partition(uid)]
			p.Jobs--
			p.Versions -= c.job.Version
		}
	}
	for _, r := range c.runs {
		s.dropRun(r)
	}
}

func addTo(index map[string]map[job.ID]bool, keys []string, uid job.ID) {
	for _, key := range keys {
		if index[key] == nil {
			index[key] = map[job.ID]bool{}
		}
		index[key][uid] = true
	}
}

func removeFrom(index map[string]map[job.ID]bool, keys []string, uid job.ID) {
	for _, key := range keys {
		if delete(index[key], uid); len(index[key]) == 0 {
			delete(index, key)
		}
	}
}

func (s *state) addRun(c *cell, r *store.Run) {
	s.runs[r.ID] = r
	s.index.Put(r)
	if _, pool := engine.PoolOf(r.Slot); pool {
		inMap(s.slots, r.Slot)[r.ID] = r
	}
	if !r.AlertAt.IsZero() {
		s.alarms.ReplaceOrInsert(r)
	}
	if r.State == job.StateRunning {
		return
	}
	if !r.LateAfter.IsZero() {
		s.late.ReplaceOrInsert(r)
	}
	if r.Kind == job.RunStep {
		return // it ends with its flow
	}
	if c.job.Deleted || c.job.State == job.JobPaused || c.job.Epoch != r.Epoch || r.Last != "" || c.broadcast {
		s.suspect[r.ID] = r
	}
}

func inMap[K comparable](index map[K]map[job.ID]*store.Run, key K) map[job.ID]*store.Run {
	if index[key] == nil {
		index[key] = map[job.ID]*store.Run{}
	}
	return index[key]
}

func (s *state) dropRun(r *store.Run) {
	delete(s.runs, r.ID)
	s.index.Remove(r)
	if in := s.slots[r.Slot]; in != nil {
		if delete(in, r.ID); len(in) == 0 {
			delete(s.slots, r.Slot)
		}
	}
	if !r.AlertAt.IsZero() {
		s.alarms.Delete(r)
	}
	if !r.LateAfter.IsZero() {
		s.late.Delete(r)
	}
	delete(s.suspect, r.ID)
}

func encodeGroup(g *group) []byte {
	w := writing(256 * len(g.records))
	list(w, &g.records, func(w *coder, r **store.Record) { codeRecord(w, *r) })
	return w.b
}

func decodeGroup(key string, value []byte) (*group, error) {
	g, r := &group{key: key}, reading(value)
	list(r, &g.records, func(w *coder, record **store.Record) { *record = &store.Record{}; codeRecord(w, *record) })
	return g, r.err()
}

func (s *state) putGroup(g *group, tell bool) []store.Event {
	was := s.groups[g.key]
	if was != nil {
		s.dropGroup(was)
	}
	s.groups[g.key] = g
	for _, r := range g.records {
		if key := (recordKey{r.Run.ID, r.Attempt.Number}); s.groupOf[key] == nil {
			s.groupOf[key] = g
			s.records[r.Run.ID] = append(slices.Clip(s.records[r.Run.ID]), r)
			s.latest.ReplaceOrInsert(r)
		}
	}
	return endsOf(g, tell && was == nil)
}

// endsOf returns the ends of runs that a new group has.
func endsOf(g *group, tell bool) (happened []store.Event) {
	for _, r := range g.records {
		if tell && r.Final {
			shown := *r
			happened = append(happened, store.Event{Kind: store.RunEvent(job.StateDone), Time: r.Attempt.Ended, Run: &store.Run{Run: r.Run}, Record: &shown})
		}
	}
	return happened
}

func (s *state) dropGroup(g *group) {
	delete(s.groups, g.key)
	for _, r := range g.records {
		key := recordKey{r.Run.ID, r.Attempt.Number}
		if s.groupOf[key] != g {
			continue
		}
		delete(s.groupOf, key)
		delete(s.silent, key)
		s.latest.Delete(r)
		left := slices.DeleteFunc(slices.Clone(s.records[r.Run.ID]), func(o *store.Record) bool { return o == r })
		if s.records[r.Run.ID] = left; len(left) == 0 {
			delete(s.records, r.Run.ID)
		}
	}
}
