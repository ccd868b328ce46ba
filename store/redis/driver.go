package redis

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
)

const (
	// comparesMax and sizeMax bound a commit, which blocks all other callers: 500 cells
	// take about a millisecond.
	comparesMax = 500
	sizeMax     = 1 << 20
	// someKeys is how many keys one command reads.
	someKeys = 500
	// restMin and restMax bound the pause before a broken feed is read again.
	restMin = 20 * time.Millisecond
	restMax = 2 * time.Second
	// redialMin is the minimum time between two searches for another master.
	redialMin = 500 * time.Millisecond
	// roomEach is how often the memory of the server is checked, and roomLeast the part that must
	// be free for more jobs and claims: results still fit then.
	roomEach  = 5 * time.Second
	roomLeast = 0.1
)

// keys are the keys of a store, all in one slot of a Redis Cluster.
type keys struct {
	meta   string // hash: the last version, the number of commits, the size of the feed
	copied string // hash: the keys that each process copies
	other  string // hash: definitions, output and the audit
	order  string // sorted set: the names of these keys
	feed   string // stream: the changes of the copied keys
	sizes  string // list: how large the entries of the feed are
}

func keysOf(a location) keys {
	tag := "{" + a.Prefix + "}:"
	return keys{tag + "meta", tag + "copied", tag + "other", tag + "order", tag + "feed", tag + "sizes"}
}

//go:embed commit.lua
var commitText string

var (
	committing = newScript(commitText)
	telling    = newScript("return redis.call('TIME')") // with a key, so that its master runs it
)

// driver implements [replica.Driver].
type driver struct {
	keys keys
	a    location
	stop context.CancelFunc
	over sync.WaitGroup
	full atomic.Bool
	ctx  context.Context //nolint:containedctx // of the work in the background, until Close

	mu      sync.Mutex
	client  *client
	dialing bool
	dialed  time.Time
	// mark is the latest commit known to this process: a server without it has lost it.
	mark place
}

// place identifies a commit: its version, and the number of commits before it on the same line of
// masters.
type place struct{ version, steps int64 }

func newDriver(client *client, a location) *driver {
	d := &driver{keys: keysOf(a), a: a, client: client}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.over.Go(d.watchRoom)
	return d
}

// Close implements [replica.Driver].
func (d *driver) Close() error {
	d.stop()
	d.over.Wait()
	d.now().Close()
	return nil
}

func (d *driver) now() *client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.client
}

// call uses the client within a bounded time. An error that shows that the server is no longer the
// master starts a search for the master.
func (d *driver) call(ctx context.Context, do func(ctx context.Context, c *client) error) error {
	within, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	c := d.now()
	err := do(within, c)
	if err == nil {
		return nil
	}
	if err = ended(ctx, err); errors.Is(err, store.ErrAway) {
		d.redial(c)
	}
	return err
}

// redial searches for the master again, in the background and once at a time.
func (d *driver) redial(failed *client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client != failed || d.dialing || time.Since(d.dialed) < redialMin || d.ctx.Err() != nil {
		return
	}
	d.dialing = true
	d.over.Go(func() {
		client, _, err := dial(d.ctx, d.a, failed.others...)
		d.mu.Lock()
		d.dialing, d.dialed = false, time.Now()
		if err == nil {
			d.client = client
		}
		d.mu.Unlock()
		if err == nil {
			failed.Close()
		}
	})
}

// Bounds implements [replica.Driver].
func (d *driver) Bounds() (compares, size int) { return comparesMax, sizeMax }

// Now implements [replica.Driver].
func (d *driver) Now(ctx context.Context) (now time.Time, _ bool, err error) {
	err = d.call(ctx, func(ctx context.Context, c *client) error {
		parts, err := telling.run(ctx, c, []string{d.keys.meta})
		if err == nil {
			now = time.Unix(parts[0], 1000*parts[1])
		}
		return err
	})
	return now, true, err
}

// Tail implements [replica.Driver].
func (d *driver) Tail(ctx context.Context) (version int64, err error) {
	err = d.call(ctx, func(ctx context.Context, c *client) error {
		version, err = redis.Int64(c.do(ctx, "HGET", d.keys.meta, "tail"))
		if errors.Is(err, redis.ErrNil) {
			return nil
		}
		return err
	})
	return version, err
}

func isCopied(key string) bool { return strings.HasPrefix(key, replica.Copied) }

// stampSize is how many bytes of each value are its version.
const stampSize = 8

func pairOf(key string, value []byte) replica.Pair {
	return replica.Pair{Key: key, Value: value[stampSize:], Version: int64(binary.BigEndian.Uint64(value[:stampSize]))}
}

// Get implements [replica.Driver].
func (d *driver) Get(ctx context.Context, keys []string) ([][]byte, error) {
	values := make([][]byte, 0, len(keys))
	for len(keys) > 0 {
		some := keys[:min(len(keys), someKeys)]
		keys = keys[len(some):]
		pairs, err := d.read(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, p := range pairs {
			values = append(values, p.Value)
		}
	}
	return values, nil
}

// read returns pairs for uncopied keys in their order, with version 0 for missing ones.
func (d *driver) read(ctx context.Context, keys []string) (pairs []replica.Pair, err error) {
	err = d.call(ctx, func(ctx context.Context, c *client) error {
		list, err := redis.ByteSlices(c.do(ctx, "HMGET", redis.Args{d.keys.other}.AddFlat(keys)...))
		if err != nil {
			return err
		}
		for i, value := range list {
			if value == nil {
				pairs = append(pairs, replica.Pair{Key: keys[i]})
			} else {
				pairs = append(pairs, pairOf(keys[i], value))
			}
		}
		return nil
	})
	return pairs, err
}

// Range implements [replica.Driver].
func (d *driver) Range(ctx context.Context, from, to string, limit int, backwards bool) (list []replica.Pair, err error) {
	var found []string
	err = d.call(ctx, func(ctx context.Context, c *client) error {
		command, first, last := "ZRANGEBYLEX", "["+from, "("+to
		if backwards {
			command, first, last = "ZREVRANGEBYLEX", last, first
		}
		found, err = redis.Strings(c.do(ctx, command, d.keys.order, first, last, "LIMIT", 0, limit))
		return err
	})
	for err == nil && len(found) > 0 {
		some := found[:min(len(found), someKeys)]
		found = found[len(some):]
		var pairs []replica.Pair
		pairs, err = d.read(ctx, some)
		for _, p := range pairs {
			if p.Version > 0 { // otherwise it was removed in between
				list = append(list, p)
			}
		}
	}
	return list, err
}

// Commit implements [replica.Driver].
func (d *driver) Commit(ctx context.Context, t *replica.Txn) (version int64, done bool, err error) {
	if t.Adds && d.full.Load() {
		return 0, false, fmt.Errorf("%w: Redis has less than %.0f %% of maxmemory left", store.ErrNoSpace, 100*roomLeast)
	}
	err = d.call(ctx, func(ctx context.Context, c *client) error {
		answer, err := d.execute(ctx, c, arguments(t))
		if err != nil {
			return err
		}
		if done = answer[0] == 1; done {
			version = answer[1]
			d.note(place{answer[1], answer[2]})
		}
		return nil
	})
	return version, done, err
}

// execute runs the script that commits, and waits for replicas if configured. Their answer is about
// the connection, so that both use the same one.
func (d *driver) execute(ctx context.Context, c *client, args []any) (answer []int64, err error) {
	k := d.keys
	names := []string{k.meta, k.copied, k.other, k.order, k.feed, k.sizes}
	if d.a.wait == 0 {
		return committing.run(ctx, c, names, args...)
	}
	conn, err := c.idle.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	own := dedicated{conn}
	if answer, err = committing.run(ctx, own, names, args...); err != nil || answer[0] == 0 {
		return answer, err
	}
	have, err := redis.Int(own.do(ctx, "WAIT", d.a.wait, waitFor.Milliseconds()))
	if err == nil && have < d.a.wait {
		err = fmt.Errorf("%d of %d replicas have the commit after %v", have, d.a.wait, waitFor)
	}
	return answer, err
}

// note notes a commit announced to this process.
func (d *driver) note(p place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.steps > 0 && p.version > d.mark.version { // a change without copied keys is not in the feed
		d.mark = p
	}
}

// arguments are the arguments of commit.lua.
func arguments(t *replica.Txn) []any {
	// In each list copied keys come first.
	var compared, versions, puts, deletes [2][]any
	which := func(key string) int {
		if isCopied(key) {
			return 0
		}
		return 1
	}
	for key, version := range t.Compares {
		var stamp []byte
		if version > 0 {
			stamp = binary.BigEndian.AppendUint64(nil, uint64(version))
		}
		i := which(key)
		compared[i], versions[i] = append(compared[i], key), append(versions[i], stamp)
	}
	for _, p := range t.Puts {
		i := which(p.Key)
		puts[i] = append(puts[i], p.Key, p.Value)
	}
	for _, key := range t.Deletes {
		i := which(key)
		deletes[i] = append(deletes[i], key)
	}
	args := []any{feedMax}
	for _, n := range []int{
		len(compared[0]), len(compared[1]), len(puts[0]) / 2, len(puts[1]) / 2, len(deletes[0]), len(deletes[1]),
	} {
		args = append(args, n)
	}
	for i := range 2 {
		args = append(append(args, compared[i]...), versions[i]...)
	}
	args = append(append(args, puts[0]...), puts[1]...)
	return append(append(args, deletes[0]...), deletes[1]...)
}

// watchRoom checks whether the server has memory left, and is the master still by the Sentinels.
func (d *driver) watchRoom() {
	tick := time.NewTicker(roomEach)
	defer tick.Stop()
	for {
		c := d.now()
		if about, err := look(d.ctx, c, d.a); err == nil {
			d.full.Store(about.Most > 0 && float64(about.Used) > (1-roomLeast)*float64(about.Most))
		}
		if d.a.sentinel != "" {
			if master, _, err := masterOf(d.ctx, d.a, slices.Concat(d.a.Hosts, c.others)); err == nil && master != c.host {
				d.redial(c)
			}
		}
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
	}
}
