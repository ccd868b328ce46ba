package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
)

const (
	// redialMax bounds the pause between attempts to reach etcd after an outage. By default gRPC
	// waits up to two minutes, long after other nodes count a silent node as lost.
	redialMax = time.Second
	// opsMax is the default maximum of operations in a transaction, --max-txn-ops.
	// comparesMax leaves room for as many operations as compares: nested transactions get
	// what the outer one leaves.
	opsMax      = 128
	comparesMax = 110
	// sizeMax keeps requests below the default limit of a server, 1.5 MiB.
	sizeMax = 1 << 20
	// pageMax is how many keys are read at once when the copy is filled.
	pageMax = 1000
	// restMin and restMax bound the pause before a broken watch is opened again.
	restMin = 50 * time.Millisecond
	restMax = 5 * time.Second
)

// Variables, because tests on slow machines need more time.
var (
	// callMax is how long a call may take: longer than an election.
	callMax = 10 * time.Second
	// keepAlive is the time after which a silent connection is checked.
	keepAlive = 5 * time.Second
)

// driver implements [replica.Driver].
type driver struct {
	client *clientv3.Client
	prefix string
	stop   context.CancelFunc
	over   sync.WaitGroup
	full   atomic.Bool // see upkeep

	mu sync.Mutex
	// cluster and revision are of the latest answer, and steps is how many commits the copy has.
	cluster  uint64
	revision int64
	steps    int64
	// wentBack is set when an answer is older than an earlier one, until the copy is filled again.
	// refill ends the watch then.
	wentBack bool
	refill   context.CancelFunc
}

// errWentBack is the error of a cluster that has lost acknowledged revisions.
var errWentBack = fmt.Errorf("%w: etcd is another cluster than before, or was restored from an older snapshot", store.ErrAway)

func newDriver(client *clientv3.Client, a location) *driver {
	ctx, stop := context.WithCancel(context.Background())
	d := &driver{client: client, prefix: a.Prefix + "/", stop: stop}
	d.over.Go(func() { d.upkeep(ctx, a.compact) })
	return d
}

// latest returns the revision of the latest answer, to be noted before a call.
func (d *driver) latest() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.revision
}

// answered takes the header of a linearizable answer: it is never older than an answer from
// before the call, unless the cluster was restored from an older snapshot. Then the copy is
// filled again: its watch would wait for a distant future revision.
func (d *driver) answered(before int64, h *etcdserverpb.ResponseHeader) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cluster == 0 {
		d.cluster = h.ClusterId
	}
	if d.wentBack || h.ClusterId != d.cluster || h.Revision < before {
		d.wentBack = true
		if d.refill != nil {
			d.refill()
		}
		return errWentBack
	}
	d.revision = max(d.revision, h.Revision)
	return nil
}

// Close implements [replica.Driver].
func (d *driver) Close() error {
	d.stop()
	d.over.Wait()
	return d.client.Close()
}

// Now implements [replica.Driver]: etcd has no clock.
func (d *driver) Now(context.Context) (time.Time, bool, error) { return time.Time{}, false, nil }

// Bounds implements [replica.Driver].
func (d *driver) Bounds() (compares, size int) { return comparesMax, sizeMax }

// failure translates an error of the client into an error of the store contract.
func failure(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w", store.ErrNoSpace, err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps), isTooLong(err):
		return fmt.Errorf("%w: etcd takes no request as large as this, see --max-request-bytes and --max-txn-ops: %w", store.ErrTooMany, err)
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", store.ErrAway, err)
	}
	code := status.Code(err)
	var server rpctypes.EtcdError
	if errors.As(err, &server) {
		code = server.Code()
	}
	switch code {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument:
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrAway, err)
}

// isTooLong reports whether the client refused to send a request that no server takes. An
// overloaded server uses the same code, and then a repetition helps.
func isTooLong(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "trying to send message larger than max")
}

// bounded returns a context that ends in time.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callMax)
}

// ended returns the context's error if the call's own context has ended, or the error of the call.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return failure(err)
}

// Get implements [replica.Driver].
func (d *driver) Get(ctx context.Context, keys []string) ([][]byte, error) {
	values := make([][]byte, 0, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), opsMax)
		ops := make([]clientv3.Op, n)
		for i, key := range keys[:n] {
			ops[i] = clientv3.OpGet(d.prefix + key)
		}
		within, cancel := bounded(ctx)
		before := d.latest()
		r, err := d.client.Txn(within).Then(ops...).Commit()
		cancel()
		if err != nil {
			return nil, ended(ctx, err)
		}
		if err := d.answered(before, r.Header); err != nil {
			return nil, err
		}
		for _, one := range r.Responses {
			if kvs := one.GetResponseRange().Kvs; len(kvs) > 0 {
				values = append(values, kvs[0].Value)
			} else {
				values = append(values, nil)
			}
		}
		keys = keys[n:]
	}
	return values, nil
}

// Range implements [replica.Driver].
func (d *driver) Range(ctx context.Context, from, to string, limit int, backwards bool) ([]replica.Pair, error) {
	opts := []clientv3.OpOption{clientv3.WithRange(d.prefix + to), clientv3.WithLimit(int64(limit))}
	if backwards {
		opts = append(opts, clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
	}
	within, cancel := bounded(ctx)
	defer cancel()
	before := d.latest()
	r, err := d.client.Get(within, d.prefix+from, opts...)
	if err != nil {
		return nil, ended(ctx, err)
	}
	if err := d.answered(before, r.Header); err != nil {
		return nil, err
	}
	list := make([]replica.Pair, len(r.Kvs))
	for i, kv := range r.Kvs {
		list[i] = d.pair(kv)
	}
	return list, nil
}

func (d *driver) pair(kv *mvccpb.KeyValue) replica.Pair {
	return replica.Pair{Key: strings.TrimPrefix(string(kv.Key), d.prefix), Value: kv.Value, Version: kv.ModRevision}
}

// Commit implements [replica.Driver].
func (d *driver) Commit(ctx context.Context, t *replica.Txn) (version int64, done bool, err error) {
	if t.Adds && d.full.Load() {
		return 0, false, fmt.Errorf("%w: etcd has less than %.0f %% of its quota left", store.ErrNoSpace, 100*roomLeast)
	}
	if n := len(t.Compares); n >= opsMax {
		return 0, false, fmt.Errorf("%w: the change compares %d keys, and etcd takes fewer than %d at once", store.ErrTooMany, n, opsMax)
	}
	var ifs []clientv3.Cmp
	for key, version := range t.Compares {
		ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(d.prefix+key), "=", version))
	}
	var ops []clientv3.Op
	for _, p := range t.Puts {
		ops = append(ops, clientv3.OpPut(d.prefix+p.Key, string(p.Value)))
	}
	for _, key := range t.Deletes {
		ops = append(ops, clientv3.OpDelete(d.prefix+key))
	}
	if len(ops) > opsMax {
		ops = nested(ops, len(ifs))
	}
	within, cancel := bounded(ctx)
	defer cancel()
	before := d.latest()
	r, err := d.client.Txn(within).If(ifs...).Then(ops...).Commit()
	if err != nil {
		return 0, false, ended(ctx, err)
	}
	if err := d.answered(before, r.Header); err != nil {
		return 0, false, err
	}
	return r.Header.Revision, r.Succeeded, nil
}

// nested puts operations into transactions without conditions. Each may have as many as the
// outer one leaves, which has n compares.
func nested(ops []clientv3.Op, compares int) (list []clientv3.Op) {
	inner := 1
	for n := 1; n < opsMax; n++ {
		if inner = opsMax - max(n, compares); n*inner >= len(ops) {
			break
		}
	}
	for len(ops) > 0 {
		n := min(inner, len(ops))
		list = append(list, clientv3.OpTxn(nil, ops[:n], nil))
		ops = ops[n:]
	}
	return list
}

// Tail implements [replica.Driver].
func (d *driver) Tail(ctx context.Context) (int64, error) {
	within, cancel := bounded(ctx)
	defer cancel()
	before := d.latest()
	r, err := d.client.Get(within, d.prefix+replica.Signal, clientv3.WithKeysOnly())
	if err != nil {
		return 0, ended(ctx, err)
	}
	if err := d.answered(before, r.Header); err != nil {
		return 0, err
	}
	if len(r.Kvs) == 0 {
		return 0, nil
	}
	return r.Kvs[0].ModRevision, nil
}

// Follow implements [replica.Driver].
func (d *driver) Follow(ctx context.Context, apply func(replica.Update)) {
	rest := restMin
	for ctx.Err() == nil {
		watching, cancel := context.WithCancel(ctx)
		d.mu.Lock()
		d.refill = cancel
		d.mu.Unlock()
		version, err := d.fill(ctx, apply)
		if err == nil {
			rest = restMin
			d.watch(watching, version+1, apply)
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(rest):
			rest = min(2*rest, restMax)
		}
	}
}

// fill reads all copied keys at one revision.
func (d *driver) fill(ctx context.Context, apply func(replica.Update)) (version int64, err error) {
	whole := replica.Update{Whole: true}
	var cluster uint64
	var steps int64
	from := d.prefix + replica.Copied
	to := clientv3.GetPrefixRangeEnd(from)
	for {
		opts := []clientv3.OpOption{clientv3.WithRange(to), clientv3.WithLimit(pageMax)}
		if version > 0 {
			opts = append(opts, clientv3.WithRev(version))
		}
		within, cancel := bounded(ctx)
		r, err := d.client.Get(within, from, opts...)
		cancel()
		if err != nil {
			return 0, failure(err)
		}
		if version == 0 {
			version, cluster = r.Header.Revision, r.Header.ClusterId
		}
		for _, kv := range r.Kvs {
			p := d.pair(kv)
			if p.Key == replica.Signal {
				steps = kv.Version
			}
			whole.Puts = append(whole.Puts, p)
		}
		if !r.More {
			break
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
	whole.Version = version
	d.mu.Lock()
	if whole.Lost = max(0, d.steps-steps); d.wentBack {
		whole.Lost = max(whole.Lost, 1) // other nodes may have written as many since
		d.revision = 0
	}
	d.wentBack, d.cluster, d.revision, d.steps = false, cluster, max(d.revision, version), steps
	d.mu.Unlock()
	apply(whole)
	return version, nil
}

// watch passes changes on from a revision, until the watch breaks.
func (d *driver) watch(ctx context.Context, from int64, apply func(replica.Update)) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range d.client.Watch(ctx, d.prefix+replica.Copied, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if r.Err() != nil {
			return // the watch was compacted, lost its leader or ended: read the state again
		}
		for events := r.Events; len(events) > 0; {
			u := replica.Update{Version: events[0].Kv.ModRevision}
			n := 0
			for ; n < len(events) && events[n].Kv.ModRevision == u.Version; n++ {
				p := d.pair(events[n].Kv)
				if events[n].Type == clientv3.EventTypeDelete {
					u.Deletes = append(u.Deletes, p.Key)
					continue
				}
				u.Puts = append(u.Puts, p)
				if p.Key == replica.Signal {
					d.mu.Lock()
					d.steps = events[n].Kv.Version // each commit of copied keys writes this key
					d.mu.Unlock()
				}
			}
			events = events[n:]
			apply(u)
		}
	}
}
