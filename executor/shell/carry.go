package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/executor/internal/verdict"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/sys/fdpass"
	"github.com/belfry-cron/belfry/job"
)

// handoff is a command that runs while the process of the node executes another version of its
// program: the process stays its parent, and keeps the command's output files.
type handoff struct {
	PID int `json:"pid"`
	// Stdout and Stderr are the numbers of the files to read its output from.
	Stdout int       `json:"stdout"`
	Stderr int       `json:"stderr"`
	Began  time.Time `json:"began"`
	Cgroup string    `json:"cgroup,omitempty"`
	// Dir is the folder of its script and result, and Result the file of its result.
	Dir    string `json:"dir,omitempty"`
	Result string `json:"result,omitempty"`
	// Its limits, for the reason of its end.
	Limits   job.Limits    `json:"limits"`
	CPUTime  time.Duration `json:"cpu_time,omitempty"`
	OOMKills int           `json:"oom_kills,omitempty"`
	// Hidden is the most memory that this program had.
	Hidden int64 `json:"hidden,omitempty"`
	// Found and Searched are the state of the search in its output.
	Found    bool      `json:"found,omitempty"`
	Searched [2][]byte `json:"searched"`
}

var _ executor.Carrier = (*Executor)(nil)

// Carries implements [executor.Carrier]: a wait for a process can be cancelled if it uses a pidfd.
func (e *Executor) Carries() bool { return e.carries }

// hasPidfd reports whether processes can be waited for by pidfds.
func hasPidfd() bool {
	pidfd := pidfdFile(os.Getpid())
	if pidfd == nil {
		return false
	}
	pidfd.Close()
	return true
}

// carry leaves a command to the next version of the program. Until then its output only
// fills the pipe.
func (p *preparedCommand) carry(s *supervision, match *verdict.Matcher) executor.Result {
	c := handoff{
		PID: s.proc.pid, Began: s.began, Cgroup: p.cgroup.path(), Dir: p.scriptDir, Result: p.result,
		Limits: p.limits, CPUTime: p.cpuTime, OOMKills: p.oomKills, Hidden: max(ownPeak(), s.hidden)}
	c.Found, c.Searched = match.State()
	var err error
	if c.Stdout, err = fdpass.Keep(p.stdout); err == nil {
		c.Stderr, err = fdpass.Keep(p.stderr)
	}
	text, jsonErr := json.Marshal(c)
	if err != nil || jsonErr != nil {
		// Its pipes close with the program, and the watchdog ends it.
		return executor.Result{Outcome: job.OutcomeLost, Reason: reason.Because.Of(reason.NodeStopped.Of(), job.Text(fmt.Sprint(err)))}
	}
	p.carried = true
	p.closePipes()
	return executor.Result{CarryOver: text}
}

// resume continues with a command that another version of the program has started.
func (e *Executor) resume(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
	lost := func(err error) executor.Result {
		return executor.Result{Outcome: job.OutcomeLost, Reason: reason.CannotGoOn.Of(reason.Words(err.Error()))}
	}
	var c handoff
	if err := json.Unmarshal(a.CarryOver, &c); err != nil {
		return lost(err)
	}
	if !isChild(c.PID) {
		return lost(fmt.Errorf("process %d is not its child", c.PID))
	}
	p := &preparedCommand{
		limits: c.Limits, cpuTime: c.CPUTime, oomKills: c.OOMKills, cgroup: reopenCgroup(c.Cgroup), scriptDir: c.Dir, result: c.Result,
		stdout: fdpass.File(c.Stdout, "output"), stderr: fdpass.File(c.Stderr, "output"),
		watched: executor.Process{Run: a.Run.ID, Number: a.Number, PID: c.PID, Cgroup: c.Cgroup, Grace: a.Grace, Fence: a.Fence},
	}
	if a.Together {
		e.flows.join(a.Run.Parent)
		p.leaveFlow = func() { e.flows.leave(a.Run.Parent) }
	}
	defer p.release()
	match, err := verdict.NewMatcher(a.Job.Policy.Success)
	if err != nil {
		return lost(err)
	}
	match.Continue(c.Found, c.Searched)
	return e.follow(ctx, a, p, &supervision{proc: newProcess(c.PID), began: c.Began, hidden: c.Hidden}, match, out)
}
