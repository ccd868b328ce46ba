package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// registryTests are about registered receivers of work.
var registryTests = []test{
	{"a registration counts for some time after its last sign of life", func(e *env) {
		e.register("b", "http://b:1", "")
		e.register("a", "http://a:2", "")
		e.register("a", "http://a:1", "D")
		list, err := e.Registrations(e.ctx, "xxl")
		e.must(err)
		equal(e, "by group and address", registered(list), "a http://a:1 D, a http://a:2 , b http://b:1 ")
		sameTime(e, "seen", list[0].Seen, e.now())
		e.clock.Advance(store.RegistrationLife - time.Second)
		e.register("a", "http://a:2", "")
		e.clock.Advance(time.Second)
		list, err = e.Registrations(e.ctx, "xxl")
		e.must(err)
		equal(e, "after its life", registered(list), "a http://a:2 ")
		sameTime(e, "seen again", list[0].Seen, e.now().Add(-time.Second))
		for more := true; more; {
			more, err = e.Tidy(e.ctx)
			e.must(err)
		}
		list, err = e.Registrations(e.ctx, "xxl")
		e.must(err)
		equal(e, "what counts is not tidied away", registered(list), "a http://a:2 ")
	}},
	{"a repeated registration replaces the earlier one and a removal counts at once", func(e *env) {
		e.register("a", "http://a:1", "")
		e.register("a", "http://a:1", "D")
		e.register("a/b", "http://a:1", "")
		list, err := e.Registrations(e.ctx, "xxl")
		e.must(err)
		equal(e, "registrations", registered(list), "a http://a:1 D, a/b http://a:1 ")
		gone := []store.Registration{{Kind: "xxl", Group: "a", Address: "http://a:1"}, {Kind: "xxl", Group: "a", Address: "http://nowhere"}}
		e.must(e.Unregister(e.ctx, gone))
		e.must(e.Unregister(e.ctx, gone))
		list, err = e.Registrations(e.ctx, "xxl")
		e.must(err)
		equal(e, "what is left", registered(list), "a/b http://a:1 ")
	}},
	{"registrations of different kinds are separate", func(e *env) {
		e.must(e.Register(e.ctx, []store.Registration{{Kind: "xxl", Group: "a", Address: "1"}, {Kind: "xxl-2", Group: "a", Address: "2"}}))
		for kind, want := range map[string]string{"xxl": "a 1 ", "xxl-2": "a 2 ", "x": ""} {
			list, err := e.Registrations(e.ctx, kind)
			e.must(err)
			equal(e, "those of "+kind, registered(list), want)
		}
	}},
	{"a batch of registrations may be empty, name one twice, and is bounded", func(e *env) {
		e.must(e.Register(e.ctx, []store.Registration{{Kind: "xxl", Group: "a", Address: "1"}, {Kind: "xxl", Group: "a", Address: "1", Generation: "D"}}))
		e.must(e.Register(e.ctx, nil))
		e.must(e.Unregister(e.ctx, nil))
		list, err := e.Registrations(e.ctx, "xxl")
		e.must(err)
		equal(e, "the later counts", registered(list), "a 1 D")
		many := make([]store.Registration, store.MaxBatch+1)
		e.want(e.Register(e.ctx, many), store.ErrTooMany)
		e.want(e.Unregister(e.ctx, many), store.ErrTooMany)
		for i := range many {
			many[i] = store.Registration{Kind: "xxl", Group: "many", Address: fmt.Sprintf("http://10.0.0.%d:9999", i)}
		}
		e.must(e.Register(e.ctx, many[1:]))
		list, err = e.Registrations(e.ctx, "xxl")
		e.must(err)
		equal(e, "registrations", len(list), store.MaxBatch+1)
	}},
	{"a follower with a broadcast over executors has a run for each registered executor", func(e *env) {
		up := e.put("name: first\nrun: {shell: ls}")
		down := e.put("name: second\nschedule: {on: first}\nrun: {xxl: {group: g, handler: h}}\nplace: {strategy: broadcast}")
		shards := func() string {
			first := e.trigger(up)
			e.claim(e.a, first, store.Started)
			e.finish(first, job.OutcomeSucceeded)
			list, err := e.ListActive(e.ctx, store.ActiveQuery{Job: down.Definition.UID, Limit: 10})
			e.must(err)
			var names []string
			for _, r := range list {
				names = append(names, fmt.Sprintf("%d/%d", r.Shard, r.Shards))
				_, err := e.Cancel(e.ctx, r.ID, "ann", "")
				e.must(err)
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		equal(e, "without an executor", shards(), "0/1")
		for _, address := range []string{"http://a", "http://b", "http://c"} {
			e.register("g", address, "")
		}
		e.register("other", "http://a", "")
		equal(e, "with three", shards(), "0/3 1/3 2/3")
		list := &job.Executors{Name: "typed", Group: "g", Addresses: []string{"http://c/", "http://d"}}
		_, err := e.PutDocument(e.ctx, job.Document{Executors: list}, 0, "ann")
		e.must(err)
		equal(e, "with one more that is listed, and one that is both", shards(), "0/4 1/4 2/4 3/4")
	}},
}

func (e *env) register(group, address, generation string) {
	e.Helper()
	e.must(e.Register(e.ctx, []store.Registration{{Kind: "xxl", Group: group, Address: address, Generation: generation}}))
}

// registered writes registrations on one line.
func registered(list []store.Registration) string {
	var lines []string
	for _, r := range list {
		lines = append(lines, r.Group+" "+r.Address+" "+r.Generation)
	}
	return strings.Join(lines, ", ")
}
