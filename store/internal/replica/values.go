package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// set writes a decoded value under a copied key. It must not change afterwards.
func (b *Backend) set(t *Txn, key string, is any) {
	p := Pair{Key: key, Is: is}
	if b.local == nil {
		p.Value = p.encoded()
	}
	t.Puts = append(t.Puts, p)
}

// encoded returns the encoded value.
func (p *Pair) encoded() []byte {
	if p.Value != nil {
		return p.Value
	}
	switch is := p.Is.(type) {
	case *cell:
		return encodeCell(is)
	case *apartRun:
		return encodeRun(is)
	case *group:
		return encodeGroup(is)
	case jobName:
		return is.uid[:]
	case *engine.Key:
		return encode(is, codeKey, 96)
	case *session:
		return encode(is, codeSession, 256)
	case *renewal:
		return encode(is, codeRenewal, 64)
	case *store.Token:
		return encode(is, codeToken, 128)
	case *store.Drain:
		return encode(is, codeDrain, 64)
	case *store.Handover:
		return encode(is, codeHandover, 128+len(is.About))
	case lastHandover:
		return encode(&is, codeLastHandover, 16)
	case *numbers:
		return encode(is, codeNumbers, 16)
	case *signal:
		return encode(is, codeSignal, 16)
	case *keptConsumer:
		value, _ := json.Marshal(is) // it has names and numbers alone
		return value
	case *job.Document:
		value, _ := columns.EncodeDocument(*is) // set by setDocument, which has tried it
		return value
	}
	return nil
}

// signalIn returns the signal in a pair.
func signalIn(p *Pair) (*signal, error) {
	if is, ok := p.Is.(*signal); ok {
		return is, nil
	}
	return decoded(p, codeSignal)
}

// ownValues are values that this process has encoded and committed, by key. The copy takes them when
// they come back, instead of decoding them again: it compares the bytes, so whatever has become of the
// commit, it takes what the store has.
type ownValues struct {
	mu     sync.Mutex
	values map[string]Pair
}

// ownMax bounds the values that are remembered: a commit whose fate is unknown may never come back.
const ownMax = 10_000

// remember notes the values of a transaction.
func (o *ownValues) remember(t *Txn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.values == nil || len(o.values) > ownMax {
		o.values = map[string]Pair{}
	}
	for _, p := range t.Puts {
		switch p.Is.(type) {
		case *cell, *apartRun, *group: // others are small or seldom
			o.values[p.Key] = p
		}
	}
}

// forget removes the values of a transaction that was refused.
func (o *ownValues) forget(t *Txn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range t.Puts {
		if own, ok := o.values[p.Key]; ok && own.Is == p.Is {
			delete(o.values, p.Key)
		}
	}
}

// find completes a pair that has come back with its decoded value, if this process has encoded it.
func (o *ownValues) find(p *Pair) {
	if p.Is != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if own, ok := o.values[p.Key]; ok && bytes.Equal(own.Value, p.Value) {
		p.Is = own.Is
		delete(o.values, p.Key)
	}
}

// commit commits a transaction.
func (b *Backend) commit(ctx context.Context, t *Txn) (version int64, done bool, err error) {
	if b.local != nil {
		return b.driver.Commit(ctx, t)
	}
	b.own.remember(t)
	version, done, err = b.driver.Commit(ctx, t)
	if err == nil && !done {
		b.own.forget(t)
	}
	return version, done, err
}

// isSerial reports whether steps run one after another, and so need not compare what they have read.
func (b *Backend) isSerial() bool { return b.local != nil && !b.opt.Compares }

// alone makes a change outside of a step wait for its turn among steps that do not compare.
func (b *Backend) alone() (release func()) {
	if !b.isSerial() {
		return func() {}
	}
	b.turn.Lock()
	return b.turn.Unlock
}
