package placement

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Commands are a node's published rules for the commands that it may run. Its session lists them as
// a handler, under a name that no program's handler has.
type Commands struct {
	// Users are the users that a job may run as, by name and number: "*" is every user but
	// root, and "" a job without run.user.
	Users []string `json:"users"`
	// Configured are the users that the configuration lists, and Absent the users that the machine
	// lacks.
	Configured []string `json:"configured,omitempty"`
	Absent     []string `json:"absent,omitempty"`
	// Self is the user of a node that cannot switch users, "" if it can.
	Self string `json:"self,omitempty"`
	// File is the configuration file, "" without one, and Reload the command that makes the
	// node read it again.
	File   string `json:"file,omitempty"`
	Reload string `json:"reload,omitempty"`
	// Shell reports whether the node finds sh.
	Shell bool `json:"shell,omitempty"`
}

// commandsPrefix begins the handler that holds [Commands].
const commandsPrefix = ":commands="

// Handler returns the entry among the handlers of a session that publishes c.
func (c Commands) Handler() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // it consists of texts
	}
	return commandsPrefix + string(text)
}

// enginePrefix begins the handler that names the container engine of a node.
const enginePrefix = ":engine="

// Engine returns the entry among the handlers of a session that names its container engine.
func Engine(name string) string { return enginePrefix + name }

// EngineOf returns the container engine of a session, "" for none, and its other handlers, the ones of
// jobs.
func EngineOf(handlers []string) (engine string, rest []string) {
	for _, handler := range handlers {
		name, ok := strings.CutPrefix(handler, enginePrefix)
		switch {
		case ok:
			engine = name
		case handler != job.ContainerHandler && !IsCommands(handler):
			rest = append(rest, handler)
		}
	}
	return engine, rest
}

// IsCommands reports whether a handler of a session is its [Commands] entry.
func IsCommands(handler string) bool { return strings.HasPrefix(handler, commandsPrefix) }

// commandsOf returns what a node publishes. Earlier versions and programs publish nothing.
func commandsOf(s *store.Session) (c Commands, published bool) {
	for _, handler := range s.Handlers {
		if text, ok := strings.CutPrefix(handler, commandsPrefix); ok {
			return c, json.Unmarshal([]byte(text), &c) == nil
		}
	}
	return c, false
}

// Barred explains why no live node may run a job, or a step of a flow: its labels, its handler, its
// user or a missing shell. There is no reason if a node may, or if no node is live. Drained nodes
// count, and nodes that publish no rules may run all commands.
func Barred(j *job.Job, live []store.Session) (why job.Reason) {
	if len(live) == 0 {
		return why
	}
	if j.Run.IsFlow() {
		for _, step := range j.Run.Flow.All() {
			if why := Barred(j.OfStep(step), live); !why.IsZero() {
				return reason.OfStep.Of(step.Name, why)
			}
		}
		return why
	}
	place, handler := j.Nodes(), j.Run.HandlerName()
	user, needsShell, isCommand := j.Run.AsCommand()
	for i := range live {
		s := &live[i]
		if !suits(s, &place, handler) {
			continue
		}
		c, published := commandsOf(s)
		if !isCommand || !published {
			return job.Reason{}
		}
		refusal := c.refusal(user, needsShell, s.Node)
		if refusal.IsZero() {
			return refusal
		}
		why = cmp.Or(why, refusal)
	}
	return cmp.Or(why, Nowhere(&place, handler, live))
}

// refusal explains why a node refuses a command; none if it does not.
func (c *Commands) refusal(user string, needsShell bool, node string) (none job.Reason) {
	switch {
	case !c.allows(user):
		return c.refuses(user, node)
	case !c.Shell && needsShell:
		return reason.NoShell.Of(node)
	}
	return none
}

// RefusesUser reports whether a node has published that it runs no commands as a user.
func RefusesUser(s *store.Session, user string) bool {
	if user == "" {
		return false
	}
	c, published := commandsOf(s)
	return published && !c.allows(user)
}

func (c *Commands) allows(user string) bool {
	isRoot := user == "root" || user == "0"
	return slices.Contains(c.Users, user) || user != "" && !isRoot && slices.Contains(c.Users, "*") && !slices.Contains(c.Absent, user)
}

// refuses explains why a node runs nothing as a user, and how to change that.
func (c *Commands) refuses(user, node string) job.Reason {
	switch {
	case user == "":
		return reason.NoRunUser.Of(node)
	case c.Self != "":
		return reason.CannotSwitch.Of(user, node, c.Self)
	case slices.Contains(c.Absent, user):
		return reason.NoSuchUser.Of(user, node)
	}
	add := AllowUsers(c.Configured, user)
	if c.File == "" {
		return reason.AllowInNewFile.Of(user, node, add)
	}
	return reason.AllowInFile.Of(user, add, c.File, node, c.Reload)
}

// AllowUsers returns the setting that lets jobs name more users, as the configuration file has it.
func AllowUsers(present []string, more ...string) string {
	list := slices.Clone(present)
	for _, user := range more {
		if !slices.Contains(list, user) {
			list = append(list, user)
		}
	}
	for i, user := range list {
		if user == "*" {
			list[i] = `"*"` // unquoted it would be an alias in YAML
		}
	}
	return "shell: {allow_users: [" + strings.Join(list, ", ") + "]}"
}
