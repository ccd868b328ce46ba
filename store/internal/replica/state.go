package replica

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/btree"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/nodeclock"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// The keys. Each process copies the keys that begin with [Copied].
const (
	cellKeys        = Copied + "c/" // a job and its unfinished runs, by uid; runs without room there, by uid and run
	nameKeys        = Copied + "n/" // the uid of a job, by its name
	requestKeys     = Copied + "k/" // identities of requests
	sessionKeys     = Copied + "s/" // session data from joining
	renewalKeys     = Copied + "r/" // session data from each renewal
	documentKeys    = Copied + "y/" // documents, by the letter of their kind
	tokenKeys       = Copied + "y/t/"
	drainKeys       = Copied + "y/d/"
	historyKeys     = Copied + "h/" // groups of records written together
	handoverKeys    = Copied + "o/" // handed-over attempts, by number
	numbersKey      = Copied + "e"  // the last numbers of the audit and the feed of changes
	lastHandoverKey = Copied + "q"  // the last reserved number of a handover
	signalKey       = Signal        // the process and the hints of the latest commit

	// Versions of what a step reads as a whole: written by each commit that changes any
	// of it, and compared by each step that has read it.
	membersKey   = Copied + "x/m"  // the sessions, without their renewals
	followsKey   = Copied + "x/f"  // which jobs follow which, and which calendars they name
	documentsKey = Copied + "x/y"  // documents, tokens and drains
	slotKeys     = Copied + "x/p/" // the runs in a pool's slot
	turnKeys     = Copied + "x/t/" // the next turn of a line

	definitionKeys = "d/" // by uid and version
	auditKeys      = "a/" // by number
	outputKeys     = "o/" // by run, attempt and number
)

func cellKey(uid job.ID) string   { return cellKeys + string(uid[:]) }
func nameKey(full string) string  { return nameKeys + full }
func sessionKey(id job.ID) string { return sessionKeys + string(id[:]) }
func renewalKey(id job.ID) string { return renewalKeys + string(id[:]) }
func runKey(r *store.Run) string  { return cellKey(r.JobUID) + "/" + string(r.ID[:]) }
func isRunKey(key string) bool {
	return strings.HasPrefix(key, cellKeys) && len(key) > len(cellKeys)+len(job.ID{})
}
func big(n int64) string                  { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }
func definitionsOf(uid job.ID) string     { return definitionKeys + string(uid[:]) }
func idIn(key, prefix string) (id job.ID) { copy(id[:], strings.TrimPrefix(key, prefix)); return id }

// documentLetters are the kinds in keys.
var documentLetters = map[job.Kind]string{job.KindCalendar: "c/", job.KindPool: "p/", job.KindChannel: "n/", job.KindExecutors: "x/", job.KindWindow: "w/", job.KindHook: "h/", "": "t/"}

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

// head is the job in a cell.
type head struct {
	job engine.Job // without Document and Policy
	// document is the key of the job's definition.
	document string
	seq      int64 // number of its latest change in the feed
	timing   string
	// follows and calendars are the full names of the jobs that it follows and of the
	// calendars that it names.
	follows, calendars []string
	boot, broadcast    bool
	// doc is the definition, if the driver is [Local]: then it has no key.
	doc *engine.Document
}

// cell is a job with its unfinished runs, except those with keys of their own. It is immutable.
type cell struct {
	*head // shared by versions that differ in runs alone
	runs  []*store.Run
	apart int         // number of runs with keys of their own
	fit   *engine.Fit // the fit of these runs, nil if their values are complete
	// coded are its runs as this process encoded them, in their order: most do not change between
	// writes of the cell. It is empty for a cell with one run.
	coded []codedRun
}

// codedRun is an encoded run.
type codedRun struct {
	run  *store.Run
	text []byte
}

// change is the place of a job in the feed of changes.
type change struct {
	seq int64
	uid job.ID
}

// find returns the place of a run, or -1.
func (c *cell) find(id job.ID) int {
	return slices.IndexFunc(c.runs, func(r *store.Run) bool { return r.ID == id })
}

// encodeCell encodes a cell that is not shared yet.
func encodeCell(c *cell) []byte {
	w := writing(256 + 160*len(c.runs))
	codeHead(w, c.head)
	ends := w.runs(c)
	if c.apart > 0 {
		w.b[0] = formatApart
		w.int(&c.apart)
		if c.fit != nil {
			w.b[0] = formatFitted
			codeFit(w, c.fit)
		}
	}
	c.coded = make([]codedRun, 0, len(ends)-1)
	for i, end := range ends[1:] {
		c.coded = append(c.coded, codedRun{c.runs[i], w.b[ends[i]:end:end]})
	}
	return w.b
}

// runs codes the runs of a cell. If there are several, it returns where each begins and the last ends.
func (c *coder) runs(of *cell) (ends []int) {
	n, before := len(of.runs), of.coded
	c.int(&n)
	if n > 1 {
		ends = make([]int, 0, n+1)
	}
	ends = append(ends, len(c.b))
	for _, r := range of.runs {
		if at := slices.IndexFunc(before, func(o codedRun) bool { return o.run == r }); at >= 0 {
			c.b, before = append(c.b, before[at].text...), before[at+1:]
		} else {
			codeRun(c, r)
		}
		if n > 1 {
			ends = append(ends, len(c.b))
		}
	}
	return ends
}

// decodeCell reads a cell. It reuses equal runs of the previous cell, which may be nil: they need
// not be indexed again.
func decodeCell(value []byte, was *cell) (*cell, error) {
	c, r := &cell{head: &head{}}, reading(value)
	codeHead(r, c.head)
	var before []*store.Run
	if was != nil {
		before = was.runs
	}
	again := &coder{}
	list(r, &c.runs, func(r *coder, run **store.Run) {
		if len(before) > 0 {
			again.b = again.b[:0]
			if codeRun(again, before[0]); bytes.HasPrefix(r.b, again.b) {
				*run, before, r.b = before[0], before[1:], r.b[len(again.b):]
				return
			}
		}
		*run = &store.Run{}
		codeRun(r, *run)
		if at := slices.IndexFunc(before, func(o *store.Run) bool { return o.ID == (*run).ID }); at >= 0 {
			before = before[at+1:] // most runs are in the same order
		}
	})
	if len(value) > 0 && value[0] >= formatApart {
		r.int(&c.apart)
	}
	if len(value) > 0 && value[0] >= formatFitted {
		c.fit = &engine.Fit{}
		codeFit(r, c.fit)
	}
	return c, r.err()
}

// session is a stored session, without the data of its renewals.
type session struct {
	store.Session
	over bool
}

// renewal is the data of a node's renewal of its session.
type renewal struct {
	renewed, steady, beforeGap time.Time
	load                       store.Load
	clock                      time.Time // clock of the node's machine
	standing                   nodeclock.Standing
	since                      int64 // see nodeclock.Renewal
}

// numbers are the last numbers in use.
type numbers struct{ audit, feed int64 }

// turn is the next turn of a line.
type turn struct{ at time.Time }

func codeTurn(c *coder, t *turn) { c.time(&t.at) }

func codeNumbers(c *coder, n *numbers) { c.int64(&n.audit); c.int64(&n.feed) }

// signal is the process of a commit, and the reasons for other processes to poll.
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
	unread   map[string]error // undecodable values
	cells    map[job.ID]*cell
	names    *btree.BTreeG[jobName]
	requests map[string]engine.Key
	sessions map[job.ID]*store.Session // including their renewals
	over     map[job.ID]bool
	members  atomic.Pointer[[]ledger.Member] // the sessions by id; nil after a change
	renewals map[job.ID]renewal

	documents engine.Documents
	windows   atomic.Pointer[engine.Windows] // nil until they are compiled
	tokens    map[string]store.Token
	drains    map[string]*store.Drain
	numbers   numbers

	// Indexes of the runs, by due time and id unless noted.
	runs    map[job.ID]*store.Run
	index   ledger.RunIndex
	apart   map[job.ID]*btree.BTreeG[*store.Run] // runs with keys of their own, by job
	turns   map[string]time.Time                 // of lines, by their names
	slots   map[string]*slotRuns                 // runs in the slots of pools, and runs apart, by slot
	alarms  *btree.BTreeG[*store.Run]            // by AlertAt
	late    *btree.BTreeG[*store.Run]            // runs that do not run, by LateAfter
	suspect map[job.ID]*store.Run                // runs that Tidy examines
	fitted  map[job.ID]fitMask                   // of those apart
	touched map[job.ID]bool                      // jobs whose runs apart this update changes
	telling *telling                             // nil without followers

	// Indexes of the jobs.
	followers map[string]map[job.ID]bool // by the job that they follow
	naming    map[string]map[job.ID]bool // by the calendar that they name
	changes   *btree.BTreeG[change]      // by seq
	resting   map[job.ID]bool            // jobs paused until a moment, or completed
	deleted   map[job.ID]bool
	sums      [job.Partitions]store.PartitionSummary

	handovers handovers
	consumers map[string]*keptConsumer // replaced, not changed
	outbox    *outbox                  // nil if this store keeps history

	groups  map[string]*group
	records map[job.ID][]*store.Record // by run
	groupOf map[recordKey]*group
	latest  *ledger.RecordIndex
	// silent are records whose output is known to be gone.
	silent map[recordKey]bool
}

// telling has the events of an update for followers of the store.
type telling struct {
	before map[job.ID]*store.Run // runs that the update replaces
	events []store.Event
}

// slotRuns are the runs in a slot. Runs that do not hold it are ordered by due time and id.
type slotRuns struct {
	holding        map[job.ID]*store.Run
	waiting, ready *btree.BTreeG[*store.Run]
	queued         int // number of queued runs among waiting: see isQueued
}

// isQueued reports whether a waiting run counts for the limit of a queue.
func isQueued(r *store.Run) bool { return r.Overlap == "" && !r.AwaitsPrevious }

type recordKey struct {
	run    job.ID
	number int
}

type jobName struct {
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
		names:    btree.NewG(degree, func(a, b jobName) bool { return a.full < b.full }),
		sessions: map[job.ID]*store.Session{}, over: map[job.ID]bool{}, renewals: map[job.ID]renewal{},
		documents: engine.Documents{}, tokens: map[string]store.Token{}, drains: map[string]*store.Drain{},
		runs: map[job.ID]*store.Run{}, apart: map[job.ID]*btree.BTreeG[*store.Run]{}, slots: map[string]*slotRuns{}, turns: map[string]time.Time{}, touched: map[job.ID]bool{},
		alarms: by(func(r *store.Run) time.Time { return r.AlertAt }), late: by(func(r *store.Run) time.Time { return r.LateAfter }),
		suspect: map[job.ID]*store.Run{}, fitted: map[job.ID]fitMask{},
		followers: map[string]map[job.ID]bool{}, naming: map[string]map[job.ID]bool{},
		changes: btree.NewG(degree, func(a, b change) bool { return a.seq < b.seq }),
		resting: map[job.ID]bool{}, deleted: map[job.ID]bool{},
		groups: map[string]*group{}, records: map[job.ID][]*store.Record{}, groupOf: map[recordKey]*group{}, silent: map[recordKey]bool{},
		latest: ledger.NewRecordIndex(),
	}
	if apart {
		s.outbox = newOutbox()
	}
	return s
}

// newOrder is for runs by due time and id.
func newOrder() *btree.BTreeG[*store.Run] {
	return btree.NewG(degree, func(a, b *store.Run) bool { return a.Ref().Compare(b.Ref()) < 0 })
}

// put writes a pair into the copy.
func (s *state) put(p Pair) {
	if p.Version < s.versions[p.Key] {
		return
	}
	s.versions[p.Key] = p.Version
	err := error(nil)
	if p.Is == nil {
		p.Is, err = s.decode(&p)
	}
	if err != nil {
		s.unread[p.Key] = err
		return
	}
	if len(s.unread) > 0 {
		delete(s.unread, p.Key)
	}
	s.install(&p)
}

// install puts a decoded value into the copy.
func (s *state) install(p *Pair) {
	switch is := p.Is.(type) {
	case *cell:
		s.putCell(is)
	case *apartRun:
		s.putApart(s.cells[is.run.JobUID].refit(is.run, is.fits), is.fits)
	case *group:
		if s.outbox == nil {
			s.putGroup(is)
			break
		}
		if !s.outbox.groups.Has(&encodedGroup{key: p.Key}) {
			s.tellEnds(is)
		}
		s.outbox.put(is, p.encoded())
	case *keptConsumer:
		s.consumers = maps.Clone(s.consumers)
		s.consumers[strings.TrimPrefix(p.Key, consumerKeys)] = is
	case jobName:
		s.names.ReplaceOrInsert(is)
	case *engine.Key:
		s.requests[p.Key] = *is
	case *session:
		s.putSession(is)
	case *renewal:
		s.renew(idIn(p.Key, renewalKeys), *is)
	case *store.Token:
		s.tokens[is.Name] = *is
	case *store.Drain:
		s.drains[strings.TrimPrefix(p.Key, drainKeys)] = is
	case *job.Document:
		s.documents.Put(*is)
		s.windows.Store(nil)
	case *store.Handover:
		s.handovers.put(is)
	case lastHandover:
		s.handovers.last = int64(is)
	case *numbers:
		s.numbers = *is
	case *turn:
		s.turns[strings.TrimPrefix(p.Key, turnKeys)] = is.at
	}
}

// lastHandover is the last number of a handover that was reserved.
type lastHandover int64

func codeLastHandover(c *coder, n *lastHandover) { c.int64((*int64)(n)) }

// apartRun is a run with a key of its own, and the fields of it that follow from the fit of its
// cell.
type apartRun struct {
	run  *store.Run
	fits fitMask
}

// decode returns the value of a copied key, nil for keys that only have versions.
func (s *state) decode(p *Pair) (any, error) {
	switch key := p.Key; {
	case isRunKey(key):
		r, f, err := decodeRun(p.Value)
		if err == nil && runKey(&r) != key {
			err = errValue
		}
		return &apartRun{&r, f}, err
	case strings.HasPrefix(key, cellKeys):
		return decodeCell(p.Value, s.cells[idIn(key, cellKeys)])
	case strings.HasPrefix(key, historyKeys):
		return decodeGroup(key, p.Value)
	case strings.HasPrefix(key, consumerKeys):
		var c keptConsumer
		if err := json.Unmarshal(p.Value, &c); err != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrDamaged, err)
		}
		return &c, nil
	case strings.HasPrefix(key, nameKeys):
		is := jobName{full: strings.TrimPrefix(key, nameKeys)}
		copy(is.uid[:], p.Value)
		return is, nil
	case strings.HasPrefix(key, requestKeys):
		return decoded(p, codeKey)
	case strings.HasPrefix(key, sessionKeys):
		return decoded(p, codeSession)
	case strings.HasPrefix(key, renewalKeys):
		return decoded(p, codeRenewal)
	case strings.HasPrefix(key, tokenKeys):
		return decoded(p, codeToken)
	case strings.HasPrefix(key, drainKeys):
		return decoded(p, codeDrain)
	case documentIn(key).Kind != "":
		d, err := columns.DecodeDocument(documentIn(key).Kind, p.Value)
		return &d, err
	case strings.HasPrefix(key, handoverKeys):
		return decoded(p, codeHandover)
	case key == lastHandoverKey:
		n, err := decode(p.Value, codeLastHandover)
		return n, err
	case key == numbersKey:
		return decoded(p, codeNumbers)
	case strings.HasPrefix(key, turnKeys):
		return decoded(p, codeTurn)
	case key == signalKey:
		return decoded(p, codeSignal)
	}
	return nil, nil
}

func decoded[T any](p *Pair, each func(*coder, *T)) (*T, error) {
	v, err := decode(p.Value, each)
	return &v, err
}

// remove removes a key from the copy.
func (s *state) remove(key string, now time.Time) {
	delete(s.versions, key)
	delete(s.unread, key)
	switch {
	case isRunKey(key):
		if r := s.runs[idIn(key, key[:len(key)-len(job.ID{})])]; r != nil && s.isApart(r) {
			s.dropApart(r)
		}
	case strings.HasPrefix(key, cellKeys):
		if c := s.cells[idIn(key, cellKeys)]; c != nil {
			s.dropHead(c)
			for _, r := range c.runs {
				s.dropRun(r, false)
			}
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
		s.names.Delete(jobName{full: strings.TrimPrefix(key, nameKeys)})
	case strings.HasPrefix(key, requestKeys):
		delete(s.requests, key)
	case strings.HasPrefix(key, sessionKeys):
		id := idIn(key, sessionKeys)
		s.sessions = maps.Clone(s.sessions) // batches hold it
		delete(s.sessions, id)
		delete(s.over, id)
		s.members.Store(nil)
	case strings.HasPrefix(key, renewalKeys):
		delete(s.renewals, idIn(key, renewalKeys))
	case strings.HasPrefix(key, turnKeys):
		delete(s.turns, strings.TrimPrefix(key, turnKeys))
	case strings.HasPrefix(key, tokenKeys):
		delete(s.tokens, strings.TrimPrefix(key, tokenKeys))
	case strings.HasPrefix(key, drainKeys):
		delete(s.drains, strings.TrimPrefix(key, drainKeys))
	case documentIn(key).Kind != "":
		gone := documentIn(key)
		delete(s.documents[gone.Kind], gone.Name)
		s.windows.Store(nil)
	}
}

// putSession replaces a session: earlier steps may still read the old one.
func (s *state) putSession(one *session) {
	stored := one.Session
	s.over[stored.ID] = one.over
	if !one.over {
		delete(s.over, stored.ID)
	}
	merge(&stored, s.renewals[stored.ID])
	s.setSession(&stored)
}

func (s *state) renew(id job.ID, r renewal) {
	s.renewals[id] = r
	if was := s.sessions[id]; was != nil {
		session := *was
		merge(&session, r)
		s.setSession(&session)
	}
}

// setSession replaces the map as well: batches hold it.
func (s *state) setSession(session *store.Session) {
	s.sessions = maps.Clone(s.sessions)
	s.sessions[session.ID] = session
	s.members.Store(nil)
}

func merge(session *store.Session, r renewal) {
	if !r.renewed.IsZero() {
		session.Renewed, session.Steady, session.BeforeGap, session.Load = r.renewed, r.steady, r.beforeGap, r.load
		session.ClockOff = r.standing != nodeclock.Good
	}
}

func (s *state) putCell(c *cell) {
	uid := c.job.UID
	was := s.cells[uid]
	if was == nil {
		was = &cell{head: &head{}}
	} else if !was.isAt(c) {
		s.dropHead(was)
	}
	// An unchanged run stays in the indexes, unless the job changes its place.
	judged, gone, come := was.withdraws() == c.withdraws(), was.runs, c.runs
	if judged {
		gone, come = without(was.runs, c.runs), without(c.runs, was.runs)
	}
	for _, r := range gone {
		s.dropRun(r, false)
	}
	if was.isAt(c) {
		s.cells[uid] = c
	} else {
		s.addHead(c)
	}
	for _, r := range come {
		s.addRun(r, false)
	}
	if tree := s.apart[uid]; tree != nil && !judged {
		tree.Ascend(func(r *store.Run) bool { s.judge(r); return true })
	}
	s.refit(was, c)
	if was.apart+c.apart > 0 {
		s.touched[uid] = true
	}
}

// isAt reports whether another version of the cell is at the same places in the indexes of cells.
func (c *cell) isAt(other *cell) bool {
	a, b := &c.job, &other.job
	return a.UID == b.UID && c.seq == other.seq && a.Version == b.Version && a.State == b.State && a.Deleted == b.Deleted && c.rests() == other.rests() &&
		slices.Equal(c.follows, other.follows) && slices.Equal(c.calendars, other.calendars)
}

// rests reports whether the time may change the state of the job.
func (c *cell) rests() bool { return !c.job.PausedUntil.IsZero() || !c.job.Completed.IsZero() }

// withdrawal is the state that determines whether the runs of a job are withdrawn.
type withdrawal struct {
	deleted, paused, broadcast bool
	epoch                      int64
}

func (c *cell) withdraws() withdrawal {
	return withdrawal{c.job.Deleted, c.job.State == job.JobPaused, c.broadcast, c.job.Epoch}
}

// without returns the runs of a list that another list lacks. Most are in both, in the same order.
func without(list, other []*store.Run) (left []*store.Run) {
	next := 0
	for _, r := range list {
		at := next
		if at == len(other) || other[at] != r {
			at = slices.Index(other, r)
		}
		if at < 0 {
			left = append(left, r)
		} else {
			next = at + 1
		}
	}
	return left
}

func (s *state) addHead(c *cell) {
	uid := c.job.UID
	s.cells[uid] = c
	s.changes.ReplaceOrInsert(change{c.seq, uid})
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
	if c.rests() {
		s.resting[uid] = true
	}
}

// putApart adds a run with a key of its own.
func (s *state) putApart(r *store.Run, f fitMask) {
	if was := s.runs[r.ID]; was != nil && s.isApart(was) {
		s.dropApart(was)
	}
	tree := s.apart[r.JobUID]
	if tree == nil {
		tree = newOrder()
		s.apart[r.JobUID] = tree
	}
	tree.ReplaceOrInsert(r)
	if f > 0 {
		s.fitted[r.ID] = f
	}
	s.addRun(r, true)
	s.touched[r.JobUID] = true
}

func (s *state) dropApart(r *store.Run) {
	tree := s.apart[r.JobUID]
	if tree.Delete(r); tree.Len() == 0 {
		delete(s.apart, r.JobUID)
	}
	delete(s.fitted, r.ID)
	s.dropRun(r, true)
	s.touched[r.JobUID] = true
}

// isApart reports whether a run has a key of its own.
func (s *state) isApart(r *store.Run) bool {
	tree := s.apart[r.JobUID]
	if tree == nil {
		return false
	}
	is, ok := tree.Get(r)
	return ok && is == r
}

// runsOf returns all unfinished runs of a job.
func (s *state) runsOf(uid job.ID) (list []*store.Run) {
	if c := s.cells[uid]; c != nil {
		list = append(list, c.runs...)
	}
	if tree := s.apart[uid]; tree != nil {
		tree.Ascend(func(r *store.Run) bool { list = append(list, r); return true })
	}
	return list
}

// count compares the numbers of runs with keys of their own with the counts of their jobs. A
// missing run would look as if it had ended.
func (s *state) count() {
	for uid := range s.touched {
		c, have := s.cells[uid], s.apartOf(uid)
		switch key := cellKey(uid); {
		case c != nil && c.apart != have:
			s.unread[key] = fmt.Errorf("%w: %d unfinished runs have keys of their own, and should be %d", errApart, have, c.apart)
		case errors.Is(s.unread[key], errApart):
			delete(s.unread, key)
		}
	}
	clear(s.touched)
}

var errApart = fmt.Errorf("%w: runs are missing", store.ErrDamaged)

// tell notes a change of a run as an event for followers.
func (s *state) tell(r *store.Run) {
	if s.telling == nil {
		return
	}
	before := s.telling.before[r.ID]
	placed := before != nil && before.Session != r.Session && r.State != job.StateRunning // a handover is no event
	if before == nil || before.State != r.State || before.Attempt != r.Attempt || placed {
		shown := *r
		s.telling.events = append(s.telling.events, store.Event{Kind: store.RunEvent(r.State), Time: latestOf(r), Run: &shown})
	}
}

// latestOf returns the moment for the event of a run: when it was claimed, or else when it was due
// or made.
func latestOf(r *store.Run) time.Time {
	if r.State == job.StateRunning {
		return r.Claimed
	}
	return r.ID.Time()
}

func (s *state) dropHead(c *cell) {
	uid := c.job.UID
	delete(s.cells, uid)
	s.changes.Delete(change{seq: c.seq})
	delete(s.deleted, uid)
	delete(s.resting, uid)
	if c.job.Deleted {
		return
	}
	removeFrom(s.followers, c.follows, uid)
	removeFrom(s.naming, c.calendars, uid)
	if c.job.State == job.JobActive {
		p := &s.sums[job.Partition(uid)]
		p.Jobs--
		p.Versions -= c.job.Version
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

// addRun indexes a run; apart says that it has a key of its own.
func (s *state) addRun(r *store.Run, apart bool) {
	s.tell(r)
	s.runs[r.ID] = r
	s.index.Put(r)
	if engine.IsShared(r.Slot) || apart {
		if s.slots[r.Slot] == nil {
			s.slots[r.Slot] = &slotRuns{holding: map[job.ID]*store.Run{}, waiting: newOrder(), ready: newOrder()}
		}
		s.slots[r.Slot].add(r)
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
	s.judge(r)
}

// judge notes whether Tidy must examine a run. A run without a job is withdrawn.
func (s *state) judge(r *store.Run) {
	c := s.cells[r.JobUID]
	switch {
	case r.State == job.StateRunning || r.Kind == job.RunStep: // a step ends with its flow
	case c == nil || c.job.Deleted || c.job.State == job.JobPaused || c.job.Epoch != r.Epoch || r.Last != "" || c.broadcast:
		s.suspect[r.ID] = r
		return
	}
	delete(s.suspect, r.ID)
}

func (in *slotRuns) add(r *store.Run) {
	switch {
	case r.HoldsSlot:
		in.holding[r.ID] = r
	case r.State == job.StateWaiting:
		in.waiting.ReplaceOrInsert(r)
		if isQueued(r) {
			in.queued++
		}
	default:
		in.ready.ReplaceOrInsert(r)
	}
}

// drop removes a run, and reports whether the slot is empty.
func (in *slotRuns) drop(r *store.Run) bool {
	switch {
	case r.HoldsSlot:
		delete(in.holding, r.ID)
	case r.State == job.StateWaiting:
		in.waiting.Delete(r)
		if isQueued(r) {
			in.queued--
		}
	default:
		in.ready.Delete(r)
	}
	return len(in.holding)+in.waiting.Len()+in.ready.Len() == 0
}

func (s *state) dropRun(r *store.Run, apart bool) {
	if s.telling != nil {
		s.telling.before[r.ID] = r
	}
	delete(s.runs, r.ID)
	s.index.Remove(r)
	if engine.IsShared(r.Slot) || apart {
		if s.slots[r.Slot].drop(r) {
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
	list(w, &g.records, func(w *coder, r **store.Record) { codeRecordBefore(w, *r) })
	for _, r := range g.records {
		codeCause(w, r)
	}
	if slices.ContainsFunc(g.records, func(r *store.Record) bool { return r.Attempt.Usage != (job.Usage{}) }) {
		for _, r := range g.records {
			codeUsage(w, r)
		}
	}
	return w.b
}

func decodeGroup(key string, value []byte) (*group, error) {
	g, r := &group{key: key}, reading(value)
	list(r, &g.records, func(w *coder, record **store.Record) { *record = &store.Record{}; codeRecordBefore(w, *record) })
	for _, record := range g.records {
		codeCause(r, record)
	}
	for _, record := range g.records {
		codeUsage(r, record)
	}
	return g, r.err()
}

func (s *state) putGroup(g *group) {
	was := s.groups[g.key]
	if was != nil {
		s.dropGroup(was)
	}
	s.groups[g.key] = g
	for _, r := range g.records {
		if key := (recordKey{r.Run.ID, r.Attempt.Number}); s.groupOf[key] == nil {
			s.groupOf[key] = g
			s.records[r.Run.ID] = append(slices.Clip(s.records[r.Run.ID]), r)
			s.latest.Put(r)
		}
	}
	if was == nil {
		s.tellEnds(g)
	}
}

// tellEnds notes the ends of runs that a new group has.
func (s *state) tellEnds(g *group) {
	if s.telling == nil {
		return
	}
	for _, r := range g.records {
		if r.Final {
			shown := *r
			s.telling.events = append(s.telling.events, store.Event{Kind: store.RunEvent(job.StateDone), Time: r.Attempt.Ended, Run: &store.Run{Run: r.Run}, Record: &shown})
		}
	}
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
		s.latest.Remove(r)
		left := slices.DeleteFunc(slices.Clone(s.records[r.Run.ID]), func(o *store.Record) bool { return o == r })
		if s.records[r.Run.ID] = left; len(left) == 0 {
			delete(s.records, r.Run.ID)
		}
	}
}
