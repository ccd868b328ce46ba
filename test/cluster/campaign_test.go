//go:build servers

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/check/truth"
	"github.com/belfry-cron/belfry/internal/decide/account"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// numberOf reads a number from the environment.
func numberOf(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s: %q is not a number from 1", name, text)
	}
	return n
}

// Random faults of all kinds come one after the other, while jobs are due each second, some are paused,
// resumed and edited, and flows run. Each occurrence is accounted for once, and each reason is true.
func TestCampaign(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		seed := uint64(time.Now().UnixNano())
		if given := os.Getenv("BELFRY_SEED"); given != "" {
			seed, _ = strconv.ParseUint(given, 10, 64)
		}
		t.Logf("BELFRY_SEED=%d", seed)
		random := rand.New(rand.NewPCG(seed, 1))
		lines := filepath.Join(c.dir, "steps")
		c.beat(numberOf(t, "BELFRY_BEATS", beats))
		c.nodes[0].apply(fmt.Sprintf(flowText, lines))
		ctx, stop := context.WithCancel(t.Context())
		var users sync.WaitGroup
		for i := range edited {
			name := fmt.Sprint("edited", i)
			own := rand.New(rand.NewPCG(seed, uint64(2+i)))
			c.add(evidence.Job{Name: name, Slots: 1}, "lost_after: "+c.lostAfter.String()+", kill_grace: 0s", "fast")
			edits := &evidence.Job{Named: map[string]int{}}
			c.edited["default/"+name] = edits
			users.Go(func() { c.edit(ctx, name, edits, own) })
		}
		var flows []job.ID
		users.Go(func() { flows = c.flowAfterFlow(ctx) })
		defer users.Wait()
		defer stop()

		var down []evidence.Span
		faults := c.faults(random)
		for i := range numberOf(t, "BELFRY_FAULTS", 8) {
			f := faults[random.IntN(len(faults))]
			lasts := f.least + time.Duration(random.Int64N(int64(f.most-f.least+1)))
			span := evidence.Span{From: time.Now()}
			f.fault()
			<-time.After(lasts)
			f.mend()
			span.To = time.Now()
			t.Logf("%d: %s for %.1f s", i, f.what, span.To.Sub(span.From).Seconds())
			down = append(down, span)
			<-time.After(time.Second + time.Duration(random.Int64N(int64(8*time.Second))))
		}
		for _, n := range c.nodes {
			eventually(t, "node "+n.name+" is live again", func() bool { return n.live(n.name) })
		}
		stop()
		users.Wait()
		c.scanned()
		c.finish(down...)
		c.checkFlows(flows, lines)
	})
}

// scannedWithin is how soon after the last fault each node has compared what fell due before: an occurrence
// settles for two minutes, and a round over all jobs begins a minute after the one before, or after a start.
const scannedWithin = account.Settle + 90*time.Second

// scanned waits until the nodes have compared the occurrences of the campaign themselves, before its jobs are
// paused, and checks that they have found nothing.
func (c *cluster) scanned() {
	c.t.Helper()
	<-time.After(scannedWithin)
	found, err := c.nodes[0].Attention(c.t.Context(), "")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range found.Items {
		if f.Kind == client.AttentionOccurrence {
			c.t.Errorf("the scanner of a node has found, of %s: %s", f.Job, f.Text)
		}
	}
}

// edited is how many jobs are edited in a campaign.
const edited = 4

// kind is a kind of fault, and how long it lasts.
type kind struct {
	what        string
	fault, mend func()
	least, most time.Duration
}

// faults are the kinds of faults. Those of one node hit any of the three.
func (c *cluster) faults(random *rand.Rand) []kind {
	var n *node
	one := func(fault func()) func() {
		return func() { n = c.nodes[random.IntN(len(c.nodes))]; fault() }
	}
	fair := func() { c.turn(fair) }
	must := func(do func() error) func() {
		return func() {
			if err := do(); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	return []kind{
		{"a node is killed", one(func() { n.kill() }), func() { n.start() }, 0, 15 * time.Second},
		{"a node is lost with its watchdog", one(func() { n.lose() }), func() { n.start() }, 0, 20 * time.Second},
		{"a node is restarted", one(func() { n.stop() }), func() { n.start() }, 0, time.Second},
		{"a node is frozen", one(func() { n.signal(syscall.SIGSTOP) }), func() { n.signal(syscall.SIGCONT) }, time.Second, 20 * time.Second},
		{"a node is cut off", one(func() { n.proxy.turn(cut) }), fair, time.Second, 20 * time.Second},
		{"a node hears nothing", one(func() { n.proxy.turn(silent) }), fair, time.Second, 20 * time.Second},
		{"a node has half-open connections", one(func() { n.proxy.strand() }), func() {}, time.Second, 10 * time.Second},
		{"a node has answers late", one(func() { n.proxy.delay(slowAnswer) }), func() { n.proxy.delay(0) }, time.Second, 10 * time.Second},
		{"all nodes are killed", c.killAll, c.startAll, 0, 10 * time.Second},
		{"all nodes are cut off", func() { c.turn(cut) }, fair, time.Second, 15 * time.Second},
		{"all nodes hear nothing", func() { c.turn(silent) }, fair, time.Second, 15 * time.Second},
		{"the database does what it is asked, and answers nothing", func() { c.turn(mute) }, fair, time.Second, 15 * time.Second},
		{"the database is stopped", must(c.database.Stop), c.startDatabase, 0, 15 * time.Second},
		{"the database is killed", c.killDatabase, c.startDatabase, 0, 15 * time.Second},
	}
}

// add makes a job that is due each second.
func (c *cluster) add(expect evidence.Job, policy string, words ...string) {
	c.t.Helper()
	sent := time.Now()
	c.nodes[0].apply(c.text(expect.Name, policy, words...))
	c.created = append(c.created, evidence.Span{From: sent, To: time.Now()})
	expect.Name = "default/" + expect.Name
	rule := truth.Rule{}
	if strings.Contains(policy, "missed: all") {
		rule.Missed = job.MissedAll
	}
	c.rules[expect.Name] = rule
	c.jobs = append(c.jobs, expect)
}

// text returns a job that is due each second.
func (c *cluster) text(name, policy string, words ...string) string {
	args, err := json.Marshal(append([]string{c.evidence()}, words...))
	if err != nil {
		c.t.Error(err)
	}
	return fmt.Sprintf("name: %s\nschedule: {every: 1s, start: %q}\nrun: {shell: {command: %q, args: %s}}\npolicy: {%s}\n",
		name, c.began.Format(time.RFC3339), programs.witness, args, policy)
}

// persist asks the nodes in turn until one answers, and returns the time from the first request to
// the answer, also when the context ends. What was asked may have been done at any moment of it.
func (c *cluster) persist(ctx context.Context, what string, ask func(context.Context, *client.Client) error) evidence.Span {
	span := evidence.Span{From: time.Now()}
	turn := 0
	eventually(c.t, what, func() bool {
		asked := c.nodes[turn%len(c.nodes)].asked.Load()
		if turn++; asked == nil {
			return false
		}
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return ask(within, asked) == nil
	})
	span.To = time.Now()
	return span
}

// edit pauses, resumes and changes a job until the end, and notes when it is unknown what was in
// force.
func (c *cluster) edit(ctx context.Context, name string, edits *evidence.Job, random *rand.Rand) {
	rest := func() bool {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Duration(random.Int64N(int64(4 * time.Second)))):
			return true
		}
	}
	for i := 0; rest(); i++ {
		paused := c.persist(ctx, "pause "+name, func(ctx context.Context, asked *client.Client) error {
			answer, err := asked.Pause(ctx, "default", name, client.PauseRequest{})
			nameClaimed(edits, &answer)
			return err
		})
		rest()
		resumed := c.persist(ctx, "resume "+name, func(ctx context.Context, asked *client.Client) error {
			_, err := asked.Resume(ctx, "default", name, client.ResumeRequest{})
			return err
		})
		edits.Open = append(edits.Open, paused, resumed)
		edits.Withdrawn = append(edits.Withdrawn, evidence.Span{From: paused.To, To: resumed.From})
		rest()
		documents, err := job.Decode("job.yaml", []byte(c.text(name, "lost_after: "+c.lostAfter.String()+", kill_grace: 0s", "fast", fmt.Sprint("say=", i))))
		if err != nil {
			c.t.Error(err)
			return
		}
		document, err := client.DocumentOf(documents[0])
		if err != nil {
			c.t.Error(err)
			return
		}
		c.persist(ctx, "change "+name, func(ctx context.Context, asked *client.Client) error {
			_, err := asked.Apply(ctx, client.Apply{Documents: []client.Document{document}})
			return err
		})
	}
}

// flowAfterFlow starts flows until the end, and returns their runs.
func (c *cluster) flowAfterFlow(ctx context.Context) (runs []job.ID) {
	pace := time.NewTicker(2 * time.Second)
	defer pace.Stop()
	for ctx.Err() == nil {
		key := fmt.Sprint("flow-", len(runs))
		c.persist(ctx, "start "+key, func(ctx context.Context, asked *client.Client) error {
			run, err := asked.RunJob(ctx, "default", "ten", client.RunRequest{Params: map[string]string{"id": key}}, key)
			if err == nil {
				runs = append(runs, run.ID)
			}
			return err
		})
		<-pace.C
	}
	return runs
}
