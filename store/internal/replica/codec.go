package replica

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/nodeclock"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

const (
	// format is the first byte of each value that a coder has written.
	format = 1
	// formatApart is the format of runs with keys of their own, and of the cells of their jobs:
	// versions without such keys refuse it.
	formatApart = 2
	// formatFitted is the format of such cells, and of such runs, where the cell says which slot its
	// waiting runs need and when they are too late. Versions without it refuse them.
	formatFitted = 3
	formatLatest = formatFitted
)

// Errors of values that cannot be read.
var (
	errNewer = fmt.Errorf("a newer belfry has written it, and this one knows formats up to %d: use that one", formatLatest)
	errValue = fmt.Errorf("%w: the value cannot be read", store.ErrDamaged)
)

// coder encodes or decodes values: one function per type lists its fields once, in order.
type coder struct {
	b       []byte
	reading bool
	bad     bool
	newer   bool
}

func writing(room int) *coder { return &coder{b: append(make([]byte, 0, room), format)} }

func reading(value []byte) *coder {
	if len(value) == 0 || value[0] < format || value[0] > formatLatest {
		return &coder{reading: true, bad: true, newer: len(value) > 0 && value[0] > formatLatest}
	}
	return &coder{b: value[1:], reading: true}
}

// err returns the error in a value that was read.
func (c *coder) err() error {
	switch {
	case c.newer:
		return errNewer
	case c.bad:
		return errValue
	}
	return nil
}

func (c *coder) int64(v *int64) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, *v)
		return
	}
	n, size := binary.Varint(c.b)
	if size <= 0 {
		c.bad, c.b = true, nil
		return
	}
	*v, c.b = n, c.b[size:]
}

func (c *coder) int(v *int) {
	n := int64(*v)
	if c.int64(&n); c.reading { // the written value may be shared
		*v = int(n)
	}
}

// size codes a length; that many bytes must remain.
func (c *coder) size(n int) int {
	c.int(&n)
	if c.reading && (n < 0 || n > len(c.b)) {
		c.bad, c.b = true, nil
		return 0
	}
	return n
}

func (c *coder) bytes(v *[]byte) {
	n := c.size(len(*v))
	if !c.reading {
		c.b = append(c.b, *v...)
		return
	}
	if *v = nil; n > 0 {
		*v = append([]byte(nil), c.b[:n]...)
	}
	c.b = c.b[n:]
}

const (
	// packFrom is the size from which bytes are compressed. Small values are read too often for
	// that.
	packFrom = 16 << 10
	// unpackMax bounds unpacked bytes: the results and the state of a flow are far
	// smaller.
	unpackMax = 16 << 20
)

// packed is bytes for JSON, compressed if they are large: the last step of a flow writes its
// state twice, and etcd takes 1.5 MB in one request. A zero byte, with which no JSON begins, marks
// them.
func (c *coder) packed(v *[]byte) {
	if !c.reading && len(*v) >= packFrom {
		var to bytes.Buffer
		to.WriteByte(0)
		// No error: the level exists, and writes to a buffer succeed.
		w, _ := flate.NewWriter(&to, flate.BestSpeed)
		_, _ = w.Write(*v)
		_ = w.Close()
		small := to.Bytes()
		c.bytes(&small)
		return
	}
	if c.bytes(v); c.reading && len(*v) > 0 && (*v)[0] == 0 {
		large, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader((*v)[1:])), unpackMax))
		if err != nil || len(large) == unpackMax {
			c.bad = true
		}
		*v = large
	}
}

func text[T ~string](c *coder, v *T) {
	n := c.size(len(*v))
	if !c.reading {
		c.b = append(c.b, *v...)
		return
	}
	*v, c.b = T(c.b[:n]), c.b[n:]
}

func (c *coder) id(v *job.ID) {
	if !c.reading {
		c.b = append(c.b, v[:]...)
		return
	}
	if len(c.b) < len(v) {
		c.bad, c.b = true, nil
		return
	}
	c.b = c.b[copy(v[:], c.b):]
}

func (c *coder) bool(v *bool) {
	n := int64(0)
	if *v {
		n = 1
	}
	if c.int64(&n); c.reading {
		*v = n == 1
	}
}

func (c *coder) time(v *time.Time) {
	n := columns.Nanos(*v)
	c.int64(&n)
	if c.reading {
		*v = columns.FromNanos(n)
	}
}

func (c *coder) duration(v *time.Duration) {
	n := int64(*v)
	if c.int64(&n); c.reading {
		*v = time.Duration(n)
	}
}

func list[T any](c *coder, v *[]T, each func(*coder, *T)) {
	n := c.size(len(*v))
	if c.reading {
		if *v = nil; n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		each(c, &(*v)[i])
	}
}

func codedReason(c *coder, v *job.Reason) {
	stored := v.Stored()
	if text(c, &stored); c.reading {
		*v = job.StoredReason(stored)
	}
}

func texts(c *coder, v *[]string) { list(c, v, text[string]) }

func pairs(c *coder, v *map[string]string) {
	type pair struct{ key, value string }
	var all []pair
	for key, value := range *v {
		all = append(all, pair{key, value})
	}
	slices.SortFunc(all, func(a, b pair) int { return cmp.Compare(a.key, b.key) })
	list(c, &all, func(c *coder, p *pair) { text(c, &p.key); text(c, &p.value) })
	if c.reading {
		*v = nil
		for _, p := range all {
			if *v == nil {
				*v = make(map[string]string, len(all))
			}
			(*v)[p.key] = p.value
		}
	}
}

// maybe is an optional value.
func maybe[T any](c *coder, v **T, each func(*coder, *T)) {
	there := *v != nil
	c.bool(&there)
	if !there {
		return
	}
	if c.reading {
		*v = new(T)
	}
	each(c, *v)
}

func codeRun(c *coder, r *store.Run) {
	codeJobRun(c, &r.Run)
	c.id(&r.Session)
	c.id(&r.Token)
	text(c, &r.Slot)
	text(c, &r.Overlap)
	c.bool(&r.AwaitsPrevious)
	c.int(&r.Priority)
	c.time(&r.LateAfter)
	text(c, &r.Last)
	c.time(&r.First)
	c.time(&r.Claimed)
	c.time(&r.FirstDue)
	c.time(&r.AlertAt)
	text(c, &r.Others)
	text(c, &r.CancelBy)
	codedReason(c, &r.CancelReason)
	c.time(&r.NextDue)
	c.time(&r.FloorBefore)
	lostAfter := columns.StoredLostAfter(r)
	if c.int64(&lostAfter); c.reading {
		r.LostAfter, r.Unfenced = columns.LostAfter(lostAfter)
	}
}

func codeJobRun(c *coder, r *job.Run) {
	c.id(&r.ID)
	c.id(&r.JobUID)
	text(c, &r.Namespace)
	text(c, &r.Name)
	text(c, &r.Kind)
	text(c, &r.Key)
	c.int(&r.Shard)
	c.int(&r.Shards)
	c.int64(&r.Epoch)
	c.int64(&r.Version)
	text(c, &r.State)
	c.time(&r.Scheduled)
	c.time(&r.Due)
	c.int(&r.Attempt)
	text(c, &r.Node)
	c.bool(&r.HoldsSlot)
	pairs(c, &r.Params)
	c.id(&r.Parent)
	text(c, &r.Outcome)
	codedReason(c, &r.Reason)
	c.packed(&r.Flow)
}

// codeRecord codes a record as the last part of a value: fields of the cause and of the usage may be
// missing.
func codeRecord(c *coder, r *store.Record) {
	codeRecordBefore(c, r)
	codeCause(c, r)
	if r.Attempt.Usage != (job.Usage{}) || c.reading {
		codeUsage(c, r)
	}
}

// codeUsage codes the usage of a record, which follows the fields of codeCause.
func codeUsage(c *coder, r *store.Record) {
	if c.reading && len(c.b) == 0 {
		return
	}
	used := r.Attempt.Usage.Stored()
	if text(c, &used); c.reading {
		r.Attempt.Usage = job.StoredUsage(used)
	}
}

// codeCause codes fields of a record that earlier versions do not know. They follow everything that
// those versions read.
func codeCause(c *coder, r *store.Record) {
	if c.reading && len(c.b) == 0 {
		return
	}
	text(c, &r.Attempt.Cause)
	fingerprint := int64(r.Attempt.Fingerprint) // all its bits
	if c.int64(&fingerprint); c.reading {
		r.Attempt.Fingerprint = job.Fingerprint(fingerprint)
	}
}

// codeRecordBefore is a record without its cause.
func codeRecordBefore(c *coder, r *store.Record) {
	codeJobRun(c, &r.Run)
	a := &r.Attempt
	c.id(&a.Run)
	c.int(&a.Number)
	c.id(&a.Token)
	text(c, &a.Node)
	c.time(&a.Started)
	c.time(&a.Ended)
	text(c, &a.Outcome)
	codedReason(c, &a.Reason)
	maybe(c, &a.ExitCode, (*coder).int)
	text(c, &a.Signal)
	c.int(&a.HTTPStatus)
	c.bool(&r.Final)
	c.int(&r.Count)
	c.time(&r.Until)
	c.bool(&r.Replaces)
	c.int64(&r.OutputBytes)
	codedReason(c, &r.Unmet)
	c.time(&r.Begun)
	c.time(&r.Claimed)
	text(c, &r.Slot)
}

// codeHead is a job without its runs and its definition.
func codeHead(c *coder, h *head) {
	j := &h.job
	c.id(&j.UID)
	text(c, &j.Namespace)
	text(c, &j.Name)
	c.int64(&j.Version)
	c.int64(&j.Epoch)
	text(c, &j.State)
	c.bool(&j.Deleted)
	c.time(&j.Cursor)
	c.time(&j.Floor)
	c.id(&j.Planner)
	c.int(&j.Planned)
	c.time(&j.PausedAt)
	c.time(&j.PausedUntil)
	text(c, &j.PausedBy)
	codedReason(c, &j.PauseReason)
	c.time(&j.Completed)
	c.int(&j.Failures)
	c.time(&j.Previous)
	c.bool(&j.PreviousOK)
	text(c, &j.PreviousFailed)
	c.time(&j.Created)
	c.time(&j.Changed)
	codedReason(c, &j.EpochWhy)
	text(c, &h.document)
	c.int64(&h.seq)
	text(c, &h.timing)
	texts(c, &h.follows)
	texts(c, &h.calendars)
	c.bool(&h.boot)
	c.bool(&h.broadcast)
}

func codeFit(c *coder, f *engine.Fit) {
	text(c, &f.Pool)
	c.bool(&f.Broadcast)
	c.bool(&f.NeedsPrevious)
	c.duration(&f.LateBy)
}

func codeSession(c *coder, s *session) {
	c.id(&s.ID)
	text(c, &s.Node)
	text(c, &s.Machine)
	text(c, &s.DataDir)
	texts(c, &s.Roles)
	pairs(c, &s.Labels)
	texts(c, &s.Handlers)
	c.int(&s.Capacity)
	text(c, &s.Version)
	text(c, &s.Zones)
	text(c, &s.Address)
	c.time(&s.Joined)
	c.bool(&s.Leaving)
	maybe(c, &s.Drain, codeDrain)
	list(c, &s.Predecessors, (*coder).id)
	c.bool(&s.over)
	c.time(&s.Left)
	list(c, &s.Absences, func(c *coder, a *store.Absence) { c.time(&a.From); c.time(&a.To) })
}

func codeDrain(c *coder, d *store.Drain) {
	c.time(&d.Since)
	text(c, &d.By)
	text(c, &d.Reason)
}

func codeRenewal(c *coder, r *renewal) {
	c.time(&r.renewed)
	c.time(&r.steady)
	c.time(&r.beforeGap)
	c.int(&r.load.Running)
	c.int(&r.load.Ready)
	c.duration(&r.load.ClockAhead)
	c.time(&r.clock)
	if c.reading && len(c.b) == 0 {
		return // written by a version without these fields
	}
	standing := int(r.standing)
	c.int(&standing)
	r.standing = nodeclock.Standing(standing)
	c.int64(&r.since)
	if c.reading && len(c.b) == 0 {
		return // written by a version without these fields
	}
	c.int(&r.load.Unreported)
}

func codeKey(c *coder, k *engine.Key) {
	c.id(&k.Job)
	text(c, &k.Kind)
	text(c, &k.Identity.Key)
	c.int(&k.Shard)
	c.id(&k.Run)
	c.time(&k.Expires)
}

func codeChunk(c *coder, o *store.OutputChunk) {
	c.id(&o.Run)
	c.int(&o.Attempt)
	c.int(&o.Seq)
	c.int64(&o.Offset)
	c.int(&o.Bytes)
	c.time(&o.Time)
	c.bytes(&o.Data)
}

func codeToken(c *coder, t *store.Token) {
	text(c, &t.Name)
	hash := t.Hash[:]
	c.bytes(&hash)
	copy(t.Hash[:], hash)
	text(c, &t.Role)
	text(c, &t.Namespace)
	c.time(&t.Created)
	text(c, &t.By)
	c.time(&t.Expires)
	if c.reading && len(c.b) == 0 {
		return // written by a version without these fields
	}
	c.time(&t.LastUsed)
	terms := t.TermsText()
	if text(c, &terms); c.reading && !c.bad && t.SetTerms(terms) != nil {
		c.bad = true
	}
}

func codeAudit(c *coder, a *store.AuditRecord) {
	c.int64(&a.Seq)
	c.time(&a.Time)
	text(c, &a.Actor)
	text(c, &a.Action)
	text(c, &a.Object)
	c.int64(&a.Version)
	codedReason(c, &a.Detail)
	list(c, &a.Changes, func(c *coder, ch *store.Change) { text(c, &ch.Path); text(c, &ch.Before); text(c, &ch.After) })
	text(c, &a.Origin.Client)
	text(c, &a.Origin.Address)
	text(c, &a.Origin.Group)
}

func encode[T any](v *T, each func(*coder, *T), room int) []byte {
	c := writing(room)
	each(c, v)
	return c.b
}

func decode[T any](value []byte, each func(*coder, *T)) (v T, err error) {
	c := reading(value)
	each(c, &v)
	return v, c.err()
}
