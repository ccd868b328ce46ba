package kubeexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/remote/kube"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// pollFirst and pollMost bound the wait between polls of a Job, which is pollShare of its age: an end
	// is noticed soon after it, and long Jobs do not load the API.
	pollFirst, pollMost = time.Second, 10 * time.Second
	pollShare           = 10
	// idleEvery is how often a node without clusters looks: for runs of a cluster that was removed.
	idleEvery = 30 * time.Second
	// callWithin bounds the calls of a poll.
	callWithin = 8 * time.Second
	// pollers is how many Jobs a node polls at once, and pagesMax how many batches it takes.
	pollers  = 16
	pagesMax = 20
	// overtime is how long after its timeout a Job is deleted: usually the cluster has ended it.
	overtime = 15 * time.Second
	// awayMost is how long a Job that must end is waited for while its cluster is silent.
	awayMost = 10 * time.Minute
	// endMost is how long beyond its grace the end of a pod is waited for: its node may be dead.
	endMost = 2 * time.Minute
	// leftPrefix begins the names of notes about Jobs whose runs have ended while their cluster was silent.
	// A node deletes them, which looks in one of leftLooks looks.
	leftPrefix = "kube/"
	leftLooks  = 30
	// leftWithin bounds a call for such a Job: other Jobs wait for it.
	leftWithin = 2 * time.Second
	// leftMost is how long such a Job is remembered: a cluster that is silent for longer is gone.
	leftMost = 30 * 24 * time.Hour
	// logTries is how often the rest of an output is read.
	logTries = 3
)

// outstanding is an attempt to poll, with the result of the poll.
type outstanding struct {
	*store.Outstanding
	about  about
	answer store.Answer
	result *store.Result // how it ended; nil if it has not
	// isLeft is set if its Job must be deleted when its cluster answers again.
	isLeft bool
	// failure is that of the store: then nothing is noted.
	failure error
}

// Look polls the Jobs that are due.
func (e *Executor) Look(ctx context.Context) error {
	now := time.Now()
	if len(*e.clusters.Load()) == 0 && now.Sub(e.looked) < idleEvery {
		return nil
	}
	e.looked = now
	if err := e.noteTried(ctx); err != nil {
		return err
	}
	if e.looks++; e.looks%leftLooks == 1 {
		if err := e.deleteLeft(ctx); err != nil {
			return err
		}
	}
	for range pagesMax {
		list, err := e.config.Store.ToAsk(ctx, Kind, store.MaxBatch)
		if err != nil {
			return err
		}
		if err := e.pollAll(ctx, list); err != nil {
			return err
		}
		if len(list) < store.MaxBatch {
			return nil
		}
	}
	return nil
}

// noteTried records how this node's first tries to create Jobs have ended, so that they are polled at once
// and a Job that was created is not created again.
func (e *Executor) noteTried(ctx context.Context) error {
	e.mu.Lock()
	batch := e.tried[:min(len(e.tried), store.MaxBatch)]
	e.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	waits, numbers := map[int64]job.Reason{}, make([]int64, 0, len(batch))
	for _, t := range batch {
		waits[t.number], numbers = t.waits, append(numbers, t.number)
	}
	list, err := e.config.Store.Handovers(ctx, store.HandoverQuery{Numbers: numbers, Limit: store.MaxBatch})
	if err != nil {
		return err
	}
	var answers []store.Answer
	for i := range list {
		o := &outstanding{Outstanding: &store.Outstanding{Handover: list[i]}, answer: store.Answer{Handover: list[i]}}
		if err := json.Unmarshal([]byte(list[i].About), &o.about); err != nil {
			continue // the poll reports it
		}
		if why := waits[list[i].Number]; why.IsZero() {
			o.about.Manifest, o.answer.Seen = nil, true
		} else {
			o.about.wait(why)
			o.answer.Next = pollFirst
		}
		o.note()
		answers = append(answers, o.answer)
	}
	if err := e.config.Store.Asked(ctx, answers); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tried = slices.Clone(e.tried[len(batch):])
	return nil
}

// note stores the findings about an attempt for the node that polls next.
func (o *outstanding) note() {
	text, _ := json.Marshal(o.about) // it always encodes
	o.answer.About = string(text)
}

// silent are the clusters that did not answer in a batch, and why: each call costs seconds.
type silent struct {
	mu  sync.Mutex
	why map[string]error
}

func (s *silent) of(cluster string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why[cluster]
}

func (s *silent) add(cluster string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why[cluster] = err
}

// pollAll polls a batch.
func (e *Executor) pollAll(ctx context.Context, list []store.Outstanding) error {
	next, gone := make(chan *outstanding), &silent{why: map[string]error{}}
	var group sync.WaitGroup
	for range min(pollers, len(list)) {
		group.Go(func() {
			for o := range next {
				e.poll(ctx, gone, o)
			}
		})
	}
	all := make([]*outstanding, len(list))
	for i := range list {
		all[i] = &outstanding{Outstanding: &list[i], answer: store.Answer{Handover: list[i].Handover, Next: nextOf(list[i].Now.Sub(list[i].Sent))}}
		next <- all[i]
	}
	close(next)
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e.sawClusters(all, gone)
	var results []store.Result
	var answers []store.Answer
	var failures []error
	for _, o := range all {
		if o.failure != nil {
			failures = append(failures, o.failure)
		} else if err := e.noteLeft(ctx, o); err != nil {
			failures = append(failures, err)
		} else if o.result != nil {
			results = append(results, *o.result)
		} else {
			answers = append(answers, o.answer)
		}
	}
	if len(results) > 0 {
		if _, err := e.config.Store.Finish(ctx, job.ID{}, results); err != nil {
			return err
		}
		for i := range results {
			e.config.Wrote(results[i].Run)
		}
	}
	if len(answers) > 0 {
		failures = append(failures, e.config.Store.Asked(ctx, answers))
	}
	return errors.Join(failures...)
}

// sawClusters logs when a cluster stops to answer, and when it does again.
func (e *Executor) sawClusters(polled []*outstanding, gone *silent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := map[string]bool{}
	for _, o := range polled {
		if name := o.about.Cluster; !seen[name] {
			seen[name] = true
			if e.outages[name] == nil {
				e.outages[name] = failurelog.New(e.config.Log, "the cluster "+name+" of Kubernetes does not answer; its runs wait", "the cluster "+name+" of Kubernetes answers again")
			}
			e.outages[name].Saw(gone.why[name])
			e.away[name] = gone.why[name] != nil
		}
	}
}

// nextOf returns when a Job of an age is polled again.
func nextOf(age time.Duration) time.Duration {
	return min(max(pollFirst, age/pollShare), pollMost)
}

// poll polls an attempt.
func (e *Executor) poll(ctx context.Context, gone *silent, o *outstanding) {
	if err := json.Unmarshal([]byte(o.About), &o.about); err != nil {
		o.finish(&store.Result{Outcome: job.OutcomeLost, Reason: job.Text(fmt.Sprintf("read handover %d: %v", o.Number, err))})
		return
	}
	a := &o.about
	outcome, why := o.mustEnd()
	err := gone.of(a.Cluster)
	if c, known := (*e.clusters.Load())[a.Cluster]; err == nil && known {
		calling, cancel := context.WithTimeout(ctx, callWithin)
		defer cancel()
		if outcome != "" {
			err = e.end(calling, c.Client, o, outcome, why)
		} else {
			err = e.follow(calling, c.Client, o)
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errStore):
			o.failure = err
			return
		case kube.IsAway(err):
			gone.add(a.Cluster, err)
		}
	} else if err == nil {
		err = errUnknown
	}
	if err == nil {
		a.Away = time.Time{}
	} else if o.result == nil {
		o.away(outcome, why, err)
	}
	if text, _ := json.Marshal(a); o.result == nil && string(text) != o.About {
		o.note()
	}
}

var (
	// errStore is that of a store, which is no outage of a cluster.
	errStore   = errors.New("the store")
	errUnknown = errors.New("no cluster of this name is in the configuration of this node")
)

// away records that the cluster of an attempt does not answer. An attempt that must end does so after a
// while.
func (o *outstanding) away(outcome job.Outcome, why job.Reason, err error) {
	a := &o.about
	if o.answer.Next = pollMost; errors.Is(err, errUnknown) {
		o.answer.Next = pollFirst // another node may know the cluster
	}
	a.wait(reason.KubeAway.Of(a.Cluster, words(err.Error())))
	if outcome == "" {
		return
	}
	if a.Away.IsZero() {
		a.Away = o.Now
	}
	if o.Now.Sub(a.Away) >= awayMost {
		o.isLeft = true
		o.finish(&store.Result{Outcome: outcome, Reason: reason.KubeAwayAtEnd.Of(why, a.Cluster, words(err.Error()))})
	}
}

// noteLeft notes a Job that is left, before its run ends.
func (e *Executor) noteLeft(ctx context.Context, o *outstanding) error {
	if !o.isLeft {
		return nil
	}
	text, err := o.Now.MarshalText()
	if err == nil {
		_, err = e.config.Store.PutNote(ctx, store.Note{Name: leftPrefix + o.about.place(), Text: text})
	}
	if errors.Is(err, store.ErrConflict) { // it is noted already
		return nil
	}
	return err
}

// deleteLeft deletes the Jobs that were left in clusters that answer again.
func (e *Executor) deleteLeft(ctx context.Context) error {
	after := ""
	silent := map[string]bool{}
	for range pagesMax {
		list, err := e.config.Store.Notes(ctx, leftPrefix, after, store.MaxBatch)
		if err != nil {
			return err
		}
		for i := range list {
			n := &list[i]
			after = n.Name
			if !e.isGone(ctx, n, silent) {
				continue
			}
			n.Text = nil
			if _, err := e.config.Store.PutNote(ctx, *n); err != nil && !errors.Is(err, store.ErrConflict) {
				return err
			}
		}
		if len(list) < store.MaxBatch {
			return nil
		}
	}
	return nil
}

// isGone deletes a Job that was left, and reports whether its note has no more use.
func (e *Executor) isGone(ctx context.Context, n *store.Note, silent map[string]bool) bool {
	cluster, job, _ := strings.Cut(strings.TrimPrefix(n.Name, leftPrefix), "/")
	namespace, name, _ := strings.Cut(job, "/")
	if c, known := (*e.clusters.Load())[cluster]; known && !silent[cluster] {
		calling, cancel := context.WithTimeout(ctx, leftWithin)
		defer cancel()
		err := c.Client.DeleteJob(calling, namespace, name)
		if err == nil || kube.IsNotFound(err) {
			return true
		}
		silent[cluster] = kube.IsAway(err)
	}
	var since time.Time
	err := since.UnmarshalText(n.Text)
	return err != nil || time.Since(since) > leftMost
}

// wait sets why the work has not begun or is not seen.
func (a *about) wait(why job.Reason) {
	a.Waits = nil
	if !why.IsZero() {
		a.Waits = &why
	}
}

// finish sets the result of an attempt.
func (o *outstanding) finish(r *store.Result) {
	r.Attempt, r.Started, r.Ended, r.OutputBytes = o.Attempt, o.Sent, o.Now, o.about.Log.Offset
	if r.Outcome != job.OutcomeSucceeded {
		r.Cause = o.about.Last
	}
	o.result = r
}

// follow looks how far the Job of an attempt has come. It creates a missing one only as long as the
// cluster would have kept it.
func (e *Executor) follow(ctx context.Context, c *kube.Client, o *outstanding) error {
	a := &o.about
	if len(a.Manifest) > 0 {
		if why, err := e.ensure(ctx, c, o); err != nil || !why.IsZero() {
			switch {
			case !why.IsZero():
				o.finish(&store.Result{Outcome: job.OutcomeFailed, Reason: why})
			case kube.IsOverQuota(err):
				a.wait(unmade(a, err))
				err = nil
			case kube.IsNotFound(err):
				o.finish(&store.Result{Outcome: job.OutcomeLost, Reason: reason.KubeUnseen.Of(a.Namespace + "/" + a.Name)})
				err = nil
			}
			return err
		}
		a.Manifest = nil
	}
	o.answer.Seen = true
	p, j, err := e.look(ctx, c, a, false)
	if err != nil {
		return err
	}
	a.wait(waits(p, a.Main))
	result := judge(a, j, p, o.Timeout)
	chunks, err := e.output(ctx, c, o, p, result != nil)
	switch {
	case err != nil:
		return err
	case result != nil && a.LogTries > 0 && a.LogTries < logTries:
		result = nil // the rest of the output is read again
		o.answer.Next = pollFirst
	}
	if result == nil {
		return e.store(ctx, o, chunks)
	}
	if result.Outcome == job.OutcomeSucceeded && a.Match != "" && !a.Matched {
		code := 0
		if result.ExitCode != nil {
			code = *result.ExitCode
		}
		result.Outcome, result.Reason, result.Value = job.OutcomeFailed, reason.Unmatched.Of(reason.ExitStatus.Of(code), a.Match), nil
	}
	result.Output = chunks
	o.finish(result)
	return nil
}

// ensure finds the Job of an attempt that was not seen yet, or creates it. The Job may have been there
// and gone if the last look is longer ago than the cluster keeps it.
func (e *Executor) ensure(ctx context.Context, c *kube.Client, o *outstanding) (job.Reason, error) {
	a := &o.about
	found, err := c.Job(ctx, a.Namespace, a.Name)
	switch {
	case err == nil && !isOurs(found, a):
		return reason.KubeForeign.Of(a.Namespace + "/" + a.Name), nil
	case kube.IsNotFound(err) && o.Now.Sub(o.Sent) < keptFor, kube.IsNotFound(err) && o.Now.Sub(a.Absent) < keptFor:
		a.Absent = o.Now
		return create(ctx, c, a)
	}
	return job.Reason{}, err
}

// look returns the pod of a Job, nil for none, and the Job where it matters, nil if it is gone.
func (e *Executor) look(ctx context.Context, c *kube.Client, a *about, always bool) (*kube.Pod, *kube.Job, error) {
	pods, err := c.Pods(ctx, a.Namespace, a.Name)
	if err != nil {
		return nil, nil, err
	}
	p := latest(pods)
	if p != nil && !isOver(p) && p.Metadata.DeletionTimestamp == nil && !always {
		return p, nil, nil
	}
	j, err := c.Job(ctx, a.Namespace, a.Name)
	if kube.IsNotFound(err) {
		return p, nil, nil
	}
	return p, j, err
}

// output reads what is new in the output of a pod. The last try ends it with a line about what is
// missing.
func (e *Executor) output(ctx context.Context, c *kube.Client, o *outstanding, p *kube.Pod, final bool) ([]store.OutputChunk, error) {
	a := &o.about
	if p == nil || !hasBegun(p, a.Main) {
		return nil, nil
	}
	chunks, err := e.copyLog(ctx, c, o, p.Metadata.Name, final)
	if err == nil || errors.Is(err, errStore) {
		a.LogTries = 0
		return chunks, err
	}
	if !final {
		return chunks, nil // it is read again
	}
	if a.LogTries++; a.LogTries >= logTries {
		rest, n := e.chunks(o, a.Log.Seq, a.Log.Offset, []byte("belfry: the output may lack its end: "+string(words(err.Error()))+"\n"))
		a.Log.Seq, a.Log.Offset = a.Log.Seq+len(rest), a.Log.Offset+n
		chunks = append(chunks, rest...)
	}
	return chunks, nil
}

// store stores output of an attempt that continues.
func (e *Executor) store(ctx context.Context, o *outstanding, chunks []store.OutputChunk) error {
	if len(chunks) == 0 {
		return nil
	}
	if err := e.config.Store.AppendOutput(ctx, chunks); err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	e.config.Wrote(o.Attempt.Run)
	return nil
}

// end deletes the Job of an attempt, and waits for the end of its pod.
func (e *Executor) end(ctx context.Context, c *kube.Client, o *outstanding, outcome job.Outcome, why job.Reason) error {
	a := &o.about
	o.answer.Next = pollFirst
	// A node that was creating the Job may still do it.
	isSettled := len(a.Manifest) == 0 || o.Now.Sub(o.Sent) > 2*createWithin
	if a.Ending.IsZero() || !isSettled {
		if err := c.DeleteJob(ctx, a.Namespace, a.Name); err != nil && !kube.IsNotFound(err) {
			return err
		}
		if a.Ending.IsZero() {
			a.Ending = o.Now
		}
	}
	p, j, err := e.look(ctx, c, a, true)
	if err != nil {
		return err
	}
	isEnded := isSettled && j == nil && p == nil || p != nil && isOver(p)
	isStuck := o.Now.Sub(a.Ending) > a.Grace+endMost
	chunks, err := e.output(ctx, c, o, p, isEnded || isStuck)
	if err != nil {
		return err
	}
	if !isEnded && !isStuck {
		return e.store(ctx, o, chunks)
	}
	result := &store.Result{Outcome: outcome, Reason: why, Output: chunks}
	if p != nil {
		if s := statusOf(p, a.Main); s != nil && s.State.Terminated != nil {
			result.ExitCode = &s.State.Terminated.ExitCode
		}
	}
	if !isEnded {
		result.Reason = reason.KubeAwayAtEnd.Of(why, a.Cluster, "the pod has not ended")
	}
	o.finish(result)
	return nil
}

// mustEnd returns how an attempt must end that was cancelled or has run out of time, "" for none.
func (o *outstanding) mustEnd() (outcome job.Outcome, why job.Reason) {
	deadline := o.Deadline()
	switch {
	case o.Run.CancelBy != "":
		return job.OutcomeCancelled, reason.Cancelled.Of(o.Run.CancelBy, o.Run.CancelReason)
	case !deadline.IsZero() && o.Now.Sub(deadline) >= overtime:
		return job.OutcomeTimedOut, reason.KubeTimeout.Of(o.Timeout)
	}
	return "", job.Reason{}
}
