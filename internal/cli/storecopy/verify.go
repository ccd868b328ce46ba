package storecopy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// verify reads both stores and compares all copied data.
func (c *copying) verify(ctx context.Context) error {
	all := sha256.New()
	for _, part := range []struct {
		name string
		look func(context.Context, Store, *digest) error
		n    *int
	}{
		{"what belongs to no job", digestKept, new(int)},
		{"jobs", c.digestJobs, &c.result.Jobs},
		{"the audit", c.digestAudit, &c.result.Audit},
	} {
		own, its := newDigest(), newDigest()
		if err := part.look(ctx, c.from, own); err != nil {
			return err
		}
		if err := part.look(ctx, c.to, its); err != nil {
			return err
		}
		c.o.Progress("verifying "+part.name, own.n)
		if a, b := own.Sum(nil), its.Sum(nil); own.n != its.n || !bytes.Equal(a, b) {
			return fmt.Errorf("%w: %s: %d in the source with digest %x, %d in the target with digest %x; the first that differs is %s", ErrDiffers, part.name, own.n, a[:8], its.n, b[:8], own.differs(its))
		}
		*part.n = own.n
		all.Write(own.Sum(nil))
	}
	if err := c.verifyHistory(ctx, all); err != nil {
		return err
	}
	c.result.Digest = hex.EncodeToString(all.Sum(nil))
	return nil
}

// digest is a hash over values, how many there were, and a short sum of each.
type digest struct {
	hash.Hash
	n    int
	sums []namedSum
}

type namedSum struct {
	name string
	sum  uint64
}

// differs names the first value that differs from another digest.
func (d *digest) differs(other *digest) string {
	for i, own := range d.sums {
		if i >= len(other.sums) || other.sums[i].sum != own.sum {
			return own.name
		}
	}
	return "at the end"
}

func newDigest() *digest { return &digest{Hash: sha256.New()} }

func (d *digest) add(name string, value any) error {
	text, err := canonical(value)
	if err == nil {
		d.n++
		_, _ = d.Write(append(text, '\n')) // a hash never fails
		sum := sha256.Sum256(text)
		d.sums = append(d.sums, namedSum{name, binary.BigEndian.Uint64(sum[:])})
	}
	return err
}

// canonical encodes a value equally for all stores, whatever they make of empty values.
func canonical(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	return json.Marshal(pruned(tree))
}

// pruned removes what is empty.
func pruned(tree any) any {
	switch v := tree.(type) {
	case map[string]any:
		for key, inner := range v {
			if v[key] = pruned(inner); v[key] == nil {
				delete(v, key)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = pruned(v[i])
		}
		if len(v) == 0 {
			return nil
		}
	case string:
		if v == "" {
			return nil
		}
	}
	return tree
}

func digestKept(ctx context.Context, s Store, d *digest) error {
	survey := engine.Survey{All: true}
	if err := s.Operate(ctx, &survey); err != nil {
		return err
	}
	k := &survey.Kept
	for id, s := range k.Sessions { // a node publishes it with each renewal, unless the store has a clock
		s.ClockOff = false
		k.Sessions[id] = s
	}
	for _, part := range []struct {
		name  string
		value any
	}{{"documents", k.Documents}, {"tokens", k.Tokens}, {"drained nodes", k.Drains}, {"sessions", k.Sessions}, {"sessions that are over", k.Over}, {"the last number of a handover", k.Number}} {
		if err := d.add(part.name, part.value); err != nil {
			return err
		}
	}
	return nil
}

// digestJobs adds the jobs by name, with their revisions and unfinished runs.
func (c *copying) digestJobs(ctx context.Context, s Store, d *digest) error {
	return eachJob(ctx, s, func(list []*store.Job) error {
		uids := make([]job.ID, len(list))
		for i, j := range list {
			uids[i] = j.Definition.UID
		}
		survey := engine.Survey{Jobs: uids}
		if err := s.Operate(ctx, &survey); err != nil {
			return err
		}
		for i := range survey.Cells {
			cell := &survey.Cells[i]
			definition := cell.Job.Document.Definition
			cell.Job.Document, cell.Job.Policy = nil, nil
			for r := range cell.Runs {
				cell.Runs[r].AlertAt = time.Time{} // derived from the rest
			}
			revisions, err := revisionsOf(ctx, s, cell.Job.UID, 0)
			if err != nil {
				return err
			}
			if s == c.from {
				c.result.Revisions += len(revisions)
			}
			for r := range revisions {
				revisions[r].Definition = userPart(revisions[r].Definition)
			}
			if err := d.add(cell.Job.FullName(), []any{cell, userPart(definition), revisions}); err != nil {
				return fmt.Errorf("job %s: %w", cell.Job.FullName(), err)
			}
		}
		return nil
	})
}

// userPart is a definition as its user wrote it.
func userPart(definition *job.Job) *job.Job {
	own := *definition
	own.UID, own.Version, own.Epoch, own.Status = job.ID{}, 0, 0, nil
	return &own
}

// digestAudit adds the records that were copied, without their numbers.
func (c *copying) digestAudit(ctx context.Context, s Store, d *digest) error {
	first, _, err := auditSpan(ctx, c.from)
	if err != nil {
		return err
	}
	if s == c.to {
		marked, _, err := auditSpan(ctx, c.to)
		if err != nil {
			return err
		}
		mark, err := auditAt(ctx, c.to, marked)
		if err != nil {
			return err
		}
		first += marked + 1 - mark.Version
	}
	return eachAudit(ctx, s, first, func(list []store.AuditRecord) error {
		for i := range list {
			name := fmt.Sprintf("record %d", list[i].Seq)
			list[i].Seq = 0
			if err := d.add(name, &list[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// verifyHistory compares each record of the source and its output. The target may have more:
// what the source has removed since an earlier copy.
func (c *copying) verifyHistory(ctx context.Context, all hash.Hash) error {
	c.result.Attempts, c.result.Chunks = 0, 0
	return pairs(ctx, c.from, c.to, func(r, same *store.Record) error {
		wrong := func(what string) error {
			return fmt.Errorf("%w: %s attempt %d of run %s of job %s/%s", ErrDiffers, what, r.Attempt.Number, r.Run.ID, r.Run.Namespace, r.Run.Name)
		}
		if same == nil {
			return wrong("the target has no")
		}
		a, err := canonical(r)
		if err != nil {
			return err
		}
		b, err := canonical(same)
		if err != nil {
			return err
		}
		if string(a) != string(b) {
			return wrong("the target has another")
		}
		_, _ = all.Write(a)
		if c.result.Attempts++; c.result.Attempts%historyPage == 0 {
			c.o.Progress("verifying history", c.result.Attempts)
		}
		if r.OutputBytes == 0 {
			return nil
		}
		own, err := c.digestOutput(ctx, c.from, r)
		if err != nil {
			return err
		}
		its, err := c.digestOutput(ctx, c.to, r)
		if err != nil {
			return err
		}
		c.result.Chunks += own.n
		if sum := own.Sum(nil); own.n != its.n || string(sum) != string(its.Sum(nil)) {
			return wrong("the target has other output of")
		}
		_, _ = all.Write(own.Sum(nil))
		return nil
	})
}

func (c *copying) digestOutput(ctx context.Context, s Store, r *store.Record) (*digest, error) {
	d := newDigest()
	return d, eachChunk(ctx, s, r.Ref(), func(chunk store.OutputChunk) error {
		chunk.DropFrom, chunk.DropTo = 0, 0
		return d.add("", chunk)
	})
}
