package nodebench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A sketch is the least that a store must do for runs on a key-value store: the state of a job with
// its runs is one value, which each of three steps (plan, claim, finish) reads, compares and
// writes, with an index of ready runs and a record of ended ones. It decides nothing.
const (
	sketchCells   = 10_000
	sketchBatch   = 500
	sketchCallers = 4
	sketchSteps   = 3 // plan, claim, finish
	// sketchCell and sketchRecord are how many bytes they have in Belfry.
	sketchCell, sketchRecord = 200, 160
)

// sketch lets callers take batches of cells through their steps for a time, and returns the runs
// per second. step makes one step of a batch that begins with a cell.
func sketch(ctx context.Context, atLeast time.Duration, step func(ctx context.Context, first, n int) error) (caughtUp, error) {
	var runs atomic.Int64
	var failed error
	var once sync.Once
	var callers sync.WaitGroup
	began := time.Now()
	for caller := range sketchCallers {
		callers.Go(func() {
			mine := sketchCells / sketchCallers
			for first := caller * mine; time.Since(began) < atLeast; {
				for n := range sketchSteps {
					if err := step(ctx, first, n); err != nil {
						once.Do(func() { failed = err })
						return
					}
				}
				runs.Add(sketchBatch)
				if first += sketchBatch; first+sketchBatch > (caller+1)*mine {
					first = caller * mine
				}
			}
		})
	}
	callers.Wait()
	return caughtUp{finished: int(runs.Load()), took: time.Since(began)}, failed
}

// etcdSketch is a sketch on etcd: compares and puts of up to a hundred cells in a transaction.
func etcdSketch(ctx context.Context, p place, atLeast time.Duration) (r caughtUp, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{p.endpoint}})
	if err != nil {
		return r, err
	}
	defer client.Close()
	const reads, writes = 120, 100
	key := func(i int) string { return fmt.Sprintf("sketch/c/%08d", i) }
	cell, group := string(make([]byte, sketchCell)), string(make([]byte, sketchBatch*sketchRecord))
	for from := 0; from < sketchCells; from += writes {
		var puts []clientv3.Op
		for i := range writes {
			puts = append(puts, clientv3.OpPut(key(from+i), cell))
		}
		if _, err := client.Txn(ctx).Then(puts...).Commit(); err != nil {
			return r, err
		}
	}
	own, server, err := p.spent()
	if err != nil {
		return r, err
	}
	r, err = sketch(ctx, atLeast, func(ctx context.Context, first, n int) error {
		revisions := make([]int64, sketchBatch)
		for from := 0; from < sketchBatch; from += reads {
			var gets []clientv3.Op
			for i := from; i < min(from+reads, sketchBatch); i++ {
				gets = append(gets, clientv3.OpGet(key(first+i)))
			}
			answer, err := client.Txn(ctx).Then(gets...).Commit()
			if err != nil {
				return err
			}
			for i, one := range answer.Responses {
				revisions[from+i] = one.GetResponseRange().Kvs[0].ModRevision
			}
		}
		var parts sync.WaitGroup
		errs := make([]error, sketchBatch/writes)
		for part := range errs {
			parts.Go(func() {
				var ifs []clientv3.Cmp
				var puts []clientv3.Op
				for i := part * writes; i < (part+1)*writes; i++ {
					ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(key(first+i)), "=", revisions[i]))
					puts = append(puts, clientv3.OpPut(key(first+i), cell))
				}
				if part == 0 && n != 1 { // the ready and the ended runs
					puts = append(puts, clientv3.OpPut(fmt.Sprintf("sketch/g/%d/%d/%d", n, first, time.Now().UnixNano()), group))
				}
				answer, err := client.Txn(ctx).If(ifs...).Then(puts...).Commit()
				if err == nil && !answer.Succeeded {
					err = errors.New("a cell of the sketch was changed by another caller")
				}
				errs[part] = err
			})
		}
		parts.Wait()
		return errors.Join(errs...)
	})
	if err != nil {
		return r, err
	}
	return r, r.charge(p, own, server)
}

// redisSketchText compares the stamps of cells, and writes them, what is ready and what has ended.
// KEYS: cells, ready, records. ARGV: the step, how many cells; keys, stamps, values; the records.
const redisSketchText = `
local step, n = tonumber(ARGV[1]), tonumber(ARGV[2])
local have = redis.call('HMGET', KEYS[1], unpack(ARGV, 3, 2 + n))
local put, ready = {}, {}
for i = 1, n do
  if (have[i] and string.sub(have[i], 1, 8) or '') ~= ARGV[2 + n + i] then return 0 end
  put[#put + 1] = ARGV[2 + i]
  put[#put + 1] = ARGV[2 + 2 * n + i]
  if step == 0 then ready[#ready + 1] = i end
  ready[#ready + 1] = ARGV[2 + i]
end
redis.call('HSET', KEYS[1], unpack(put))
if step == 0 then redis.call('ZADD', KEYS[2], unpack(ready)) end
if step == 1 then redis.call('ZREM', KEYS[2], unpack(ready)) end
if step == 2 then redis.call('XADD', KEYS[3], 'MAXLEN', '~', 1000, '*', 'd', ARGV[3 + 3 * n]) end
return 1`

// redisSketch is a sketch on Redis: one script commits a batch.
func redisSketch(ctx context.Context, p place, atLeast time.Duration) (r caughtUp, err error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{p.endpoint}, DisableCache: true})
	if err != nil {
		return r, err
	}
	defer client.Close()
	script := rueidis.NewLuaScript(redisSketchText)
	var stamp atomic.Uint64
	key := func(i int) string { return fmt.Sprintf("%08d", i) }
	rest, records := string(make([]byte, sketchCell)), string(make([]byte, sketchBatch*sketchRecord))
	own, server, err := p.spent()
	if err != nil {
		return r, err
	}
	r, err = sketch(ctx, atLeast, func(ctx context.Context, first, n int) error {
		keys := make([]string, sketchBatch)
		for i := range keys {
			keys[i] = key(first + i)
		}
		have, err := client.Do(ctx, client.B().Hmget().Key("{sketch}:cells").Field(keys...).Build()).ToArray()
		if err != nil {
			return err
		}
		args := append([]string{fmt.Sprint(n), fmt.Sprint(sketchBatch)}, keys...)
		for i := range have {
			value, err := have[i].ToString()
			if err != nil && !rueidis.IsRedisNil(err) {
				return err
			}
			args = append(args, value[:min(8, len(value))])
		}
		mine := string(binary.BigEndian.AppendUint64(nil, stamp.Add(1)))
		for range keys {
			args = append(args, mine+rest)
		}
		done, err := script.Exec(ctx, client, []string{"{sketch}:cells", "{sketch}:ready", "{sketch}:records"}, append(args, records)).AsInt64()
		if err == nil && done != 1 {
			err = errors.New("a cell of the sketch was changed by another caller")
		}
		return err
	})
	if err != nil {
		return r, err
	}
	return r, r.charge(p, own, server)
}
