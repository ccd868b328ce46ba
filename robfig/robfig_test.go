package robfig_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/belfrytest"
	"github.com/belfry-cron/belfry/job"
	cron "github.com/belfry-cron/belfry/robfig"
)

// inBubble are the options of a Cron in fake time.
func inBubble(t *testing.T) cron.Option {
	return cron.On(nil, belfrytest.Options(t)...)
}

// ticks notes when jobs run.
type ticks struct {
	mu   sync.Mutex
	list []string
}

func (l *ticks) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, text+time.Now().Format(" 15:04:05"))
}

func (l *ticks) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.list)
	return strings.Join(l.list, ", ")
}

type greeter struct {
	name string
	to   *ticks
}

func (g *greeter) Run() { g.to.add(g.name) }

// odd is a schedule of the program's own: the odd seconds.
type odd struct{}

func (odd) Next(t time.Time) time.Time {
	t = t.Truncate(time.Second).Add(time.Second)
	if t.Second()%2 == 0 {
		t = t.Add(time.Second)
	}
	return t
}

func TestEntriesRunAsInRobfigCron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got ticks
		c := cron.New(inBubble(t), cron.WithSeconds(), cron.WithLocation(time.UTC), cron.WithLogger(cron.DiscardLogger))
		must := func(id cron.EntryID, err error) cron.EntryID {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		must(c.AddFunc("*/3 * * * * *", func() { got.add("three") }))
		five := must(c.AddFunc("@every 5s", func() { got.add("five") }))
		must(c.AddJob("4 0 0 * * ?", &greeter{"job", &got}))
		must(c.AddJob("CRON_TZ=Asia/Tokyo 2 0 9 * * *", &greeter{"tokyo", &got}))
		c.Schedule(odd{}, cron.FuncJob(func() { got.add("odd") }))
		c.Start()
		belfrytest.Advance(6*time.Second + 500*time.Millisecond)
		late := must(c.AddFunc("8 * * * * *", func() { got.add("late") }))
		c.Remove(five)
		belfrytest.Advance(4 * time.Second)
		if e := c.Entry(late); !e.Valid() || e.Prev.Second() != 8 || e.Next.Second() != 8 || e.Next.Minute() != 1 {
			t.Errorf("the entry that was added later is %+v", e)
		}
		if n := len(c.Entries()); n != 5 || c.Entry(five).Valid() {
			t.Errorf("there are %d entries", n)
		}
		<-c.Stop().Done()
		want := "five 00:00:05, job 00:00:04, late 00:00:08, odd 00:00:01, odd 00:00:03, odd 00:00:05, odd 00:00:07, odd 00:00:09, " +
			"three 00:00:03, three 00:00:06, three 00:00:09, tokyo 00:00:02"
		if got.String() != want {
			t.Errorf("ran\n%s, want\n%s", &got, want)
		}
		belfrytest.Advance(5 * time.Second)
		if got.String() != want {
			t.Errorf("after Stop there ran\n%s", &got)
		}
		c.Start() // again
		belfrytest.Advance(3 * time.Second)
		<-c.Stop().Done()
		if !strings.Contains(got.String(), "three 00:00:18") {
			t.Errorf("after another Start there ran\n%s", &got)
		}
	})
}

func TestStopWaitsForJobsThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got ticks
		c := cron.New(inBubble(t), cron.WithLogger(cron.DiscardLogger))
		if _, err := c.AddFunc("@every 1s", func() { time.Sleep(2500 * time.Millisecond); got.add("done") }); err != nil {
			t.Fatal(err)
		}
		c.Start()
		belfrytest.Advance(1500 * time.Millisecond)
		<-c.Stop().Done()
		if got.String() != "done 00:00:03" {
			t.Errorf("ran %s", &got)
		}
	})
}

func TestWrappersAreAroundJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got ticks
		logger := cron.VerbosePrintfLogger(printer{&got})
		chain := cron.NewChain(cron.Recover(logger), cron.SkipIfStillRunning(logger))
		j := chain.Then(cron.FuncJob(func() { time.Sleep(2 * time.Second); panic("no") }))
		var group sync.WaitGroup
		for range 2 {
			group.Go(j.Run)
		}
		group.Wait()
		delayed := cron.NewChain(cron.DelayIfStillRunning(logger)).Then(cron.FuncJob(func() { time.Sleep(40 * time.Second) }))
		for range 3 {
			group.Go(delayed.Run)
		}
		group.Wait()
		want := "delay, duration=1m20s 00:01:22, panic, error=no 00:00:02, skip 00:00:00"
		if got.String() != want {
			t.Errorf("logged %s, want %s", &got, want)
		}
	})
}

// printer takes what is logged, up to a stack.
type printer struct{ to *ticks }

func (p printer) Printf(format string, args ...any) {
	text, _, _ := strings.Cut(fmt.Sprintf(format, args...), ", stack=")
	p.to.add(text)
}

func TestOnAStoreEachEntryRunsOnceForAllInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got ticks
		open := belfrytest.Shared()
		var all []*cron.Cron
		for i := range 3 {
			options := append(belfrytest.Options(t), belfry.WithNodeName(fmt.Sprint("n", i)))
			c := cron.New(cron.On(open, options...), cron.WithPolicy(belfry.Overlap(job.OverlapSkip)), cron.WithLogger(cron.DiscardLogger))
			if _, err := c.AddNamed("five", "@every 5s", &greeter{"five", &got}); err != nil {
				t.Fatal(err)
			}
			c.Schedule(odd{}, &greeter{"odd", &got})
			c.Start()
			all = append(all, c)
		}
		belfrytest.Advance(10*time.Second + 500*time.Millisecond)
		if _, err := all[0].AddFunc("@daily", func() {}); err == nil || !strings.Contains(err.Error(), "before Start") {
			t.Errorf("an entry that the others do not know was answered with %v", err)
		}
		for _, c := range all {
			<-c.Stop().Done()
		}
		want := "five 00:00:05, five 00:00:10, odd 00:00:01, odd 00:00:03, odd 00:00:05, odd 00:00:07, odd 00:00:09"
		if got.String() != want {
			t.Errorf("ran %s, want %s", &got, want)
		}
	})
}

func TestExpressionsHaveTheFieldsThatTheParserSays(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		options cron.ParseOption
		spec    string
		next    string // "" for a mistake
	}{
		{cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow, "30 2 * * *", "2026-01-01T02:30:00Z"},
		{cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow, "0 30 2 * * *", ""},
		{cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow, "@daily", ""},
		{cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor, "@daily", "2026-01-02T00:00:00Z"},
		{cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow, "30 2 * * *", "2026-01-01T02:30:00Z"},
		{cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow, "5 30 2 * * *", "2026-01-01T02:30:05Z"},
		{cron.Dom | cron.Month | cron.DowOptional, "15 */3", "2026-01-15T00:00:00Z"},
		{cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow, "61 2 * * *", ""},
		{cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow, "TZ=Asia/Tokyo 30 2 ? * *", "2026-01-01T17:30:00Z"},
		{cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow, "TZ=Mars/Base 30 2 * * *", ""},
		{cron.Descriptor, "@every 90s", "2026-01-01T00:01:30Z"},
		{cron.Descriptor, "@every soon", ""},
	} {
		s, err := cron.NewParser(c.options).Parse(c.spec)
		got := ""
		if err == nil {
			got = s.Next(at).Format(time.RFC3339)
		}
		if got != c.next {
			t.Errorf("%q is next at %s, %v; want %s", c.spec, got, err, c.next)
		}
	}
}

func Example() {
	// import cron "github.com/belfry-cron/belfry/robfig"
	c := cron.New(cron.WithSeconds(), cron.WithLogger(cron.DiscardLogger))
	ran := make(chan string, 1)
	if _, err := c.AddFunc("* * * * * *", func() {
		select {
		case ran <- "hello, each second":
		default:
		}
	}); err != nil {
		panic(err)
	}
	c.Start()
	fmt.Println(<-ran)
	<-c.Stop().Done()
	// Output: hello, each second
}

var _ context.Context = cron.New().Stop()
