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
	case *turn:
		return encode(is, codeTurn, 16)
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
		value, _ := json.Marshal(is) // it consists of names and numbers
		return value
	case *job.Document:
		value, _ := columns.EncodeDocument(*is) // setDocument has encoded it before
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

// ownValues are the values that this process has encoded and committed, by key. When they come back,
// the copy reuses them instead of decoding them again. It compares the bytes, so that it has what the
// store has, whatever became of the commit.
type ownValues struct {
	mu     sync.Mutex
	values map[string]Pair
}

// ownMax bounds these values: a commit with an unknown result may never come back.
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
		case *cell, *apartRun, *group: // other values are small or rare
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

// find gives a pair its decoded value, if this process has encoded it.
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

// isSerial reports whether steps run one after another, so that they need not compare what they have
// read.
func (b *Backend) isSerial() bool { return b.local != nil && !b.opt.Compares }

// alone makes a change outside of a step wait for its turn among serial steps.
func (b *Backend) alone() (release func()) {
	if !b.isSerial() {
		return func() {}
	}
	b.turn.Lock()
	return b.turn.Unlock
}
