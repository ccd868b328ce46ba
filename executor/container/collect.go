package container

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
)

const (
	// volumePrefix begins the names of the volumes of flows.
	volumePrefix = "belfry-flow-"
	// settleFirst and settleMost bound the waits between checks whether a flow has ended: it may
	// pause for days between two steps.
	settleFirst, settleMost = time.Second, time.Minute
	// settleBatch is the most flows in a question: each is a read of the store.
	settleBatch = 50
)

// Expect protects the container of an attempt that another version of the program has started, until
// Run with that attempt returns. Call it before Collect.
func (e *Executor) Expect(run job.ID, attempt int) { e.hold(nameOf(run, attempt), true) }

// Collect removes the containers of this node whose attempts have ended: an earlier process left
// them, or the engine was away at their end.
func (e *Executor) Collect(ctx context.Context) error {
	list, err := e.engine.List(ctx, labelNode, e.config.Node)
	if err != nil {
		return err
	}
	var failures []error
	for _, c := range list {
		name := "belfry-" + c.Labels[labelRun] + "-" + c.Labels[labelAttempt]
		e.mu.Lock()
		live := e.live[name]
		e.mu.Unlock()
		if live {
			continue
		}
		if err := e.engine.Remove(ctx, c.ID); err != nil && !engine.IsNotFound(err) {
			failures = append(failures, err)
			continue
		}
		e.mu.Lock()
		e.collected++
		e.mu.Unlock()
		e.config.Log.Info("removed a container of an attempt that is over", "job", c.Labels[labelJob], "run", c.Labels[labelRun], "attempt", c.Labels[labelAttempt], "was", c.State)
	}
	volumes, err := e.engine.Volumes(ctx, labelNode, e.config.Node)
	if err != nil {
		return errors.Join(append(failures, err)...)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range volumes {
		flow, err := job.ParseID(strings.TrimPrefix(v.Name, volumePrefix))
		if err == nil && e.uses[flow] == 0 && e.idle[flow] == nil {
			e.idle[flow] = &idleFlow{} // left by an earlier process
		}
	}
	return errors.Join(failures...)
}

// idleFlow is the volume of a flow that no attempt uses now.
type idleFlow struct {
	asked time.Time
	wait  time.Duration
}

func volumeOf(flow job.ID) string { return volumePrefix + flow.String() }

func (e *Executor) enter(flow job.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.uses[flow]++
	delete(e.idle, flow)
}

func (e *Executor) leave(flow job.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.uses[flow]--; e.uses[flow] <= 0 {
		delete(e.uses, flow)
		e.idle[flow] = &idleFlow{asked: time.Now(), wait: settleFirst}
	}
}

// makeFlowVolume creates the volume that the steps of the flow share.
func (r *attempt) makeFlowVolume(ctx context.Context) error {
	return r.engine.CreateVolume(ctx, engine.Volume{
		Name: volumeOf(r.Attempt.Run.Parent), Labels: map[string]string{labelNode: r.config.Node, labelFlow: r.Attempt.Run.Parent.String()},
	})
}

// openFlowVolume makes the directory in the shared volume writable for each user of an image. The
// volume itself belongs to root.
func (r *attempt) openFlowVolume(ctx context.Context) error {
	var b bytes.Buffer
	archive := tar.NewWriter(&b)
	_ = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path.Base(flowDir) + "/", Mode: 0o1777}) // into memory
	_ = archive.Close()
	return r.engine.Upload(ctx, r.name, job.FlowVolumeDir, b.Bytes())
}

// SettleFlows removes the volumes of flows that have ended in the store. It is called each second.
func (e *Executor) SettleFlows(ctx context.Context, over func(ctx context.Context, runs []job.ID) ([]job.ID, error)) error {
	now := time.Now()
	var list []job.ID
	e.mu.Lock()
	for flow, idle := range e.idle {
		if now.Sub(idle.asked) >= idle.wait && len(list) < settleBatch {
			list = append(list, flow)
			idle.asked, idle.wait = now, min(max(settleFirst, idle.wait+idle.wait/4), settleMost)
		}
	}
	e.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	gone, err := over(ctx, list)
	if err != nil {
		return err
	}
	for _, flow := range gone {
		e.mu.Lock()
		used := e.uses[flow] > 0
		e.mu.Unlock()
		if used {
			continue
		}
		if err := e.engine.RemoveVolume(ctx, volumeOf(flow)); err != nil && !engine.IsNotFound(err) {
			return err
		}
		e.mu.Lock()
		delete(e.idle, flow)
		e.mu.Unlock()
	}
	return nil
}
