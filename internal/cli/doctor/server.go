package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/store"
)

// Cluster checks what a server knows of its cluster, whose nodes are given.
func Cluster(ctx context.Context, server *Server, nodes []client.Node, c config.Server, now time.Time) []Finding {
	list := []Finding{rolesOf(nodes), barredJobs(ctx, server), repositories(ctx, server), occurrences(ctx, server), openSecrets(ctx, server), countsOfHistory(ctx, server, now)}
	return append(list, channelsOf(ctx, server, c)...)
}

// rolesOf reports which part of the work no server does.
func rolesOf(nodes []client.Node) Finding {
	f := Finding{Check: "roles", Status: Well}
	has := map[string]int{}
	for _, n := range nodes {
		if n.State == string(store.SessionLive) || n.State == string(store.SessionDrained) {
			for _, role := range n.Roles {
				has[role]++
			}
		}
	}
	var list, missing []string
	for _, role := range config.Role("").Values() {
		list = append(list, fmt.Sprintf("%s %d", role, has[role]))
		if has[role] == 0 {
			missing = append(missing, role)
		}
	}
	f.Found = "live nodes by role: " + strings.Join(list, ", ")
	if len(missing) > 0 {
		f.Status, f.Do = Wrong, "start a server on this store with --roles "+strings.Join(missing, ",")
	}
	return f
}

// namedMax is how many jobs a finding names: a line of them.
const namedMax = 10

// barredJobs names jobs that no live node may run, and the reason of the first one.
func barredJobs(ctx context.Context, server *Server) Finding {
	f := Finding{Check: "jobs", Status: Well, Found: "each has a node that may run it, as far as they were examined"}
	page, err := server.Attention(ctx, "")
	if err != nil {
		f.Status, f.Found = Note, "not checked: "+server.Refused(err).Error()
		return f
	}
	var names []string
	for _, a := range page.Items {
		if a.Kind == client.AttentionBarred {
			names = append(names, a.Job)
			f.Do = cmp.Or(f.Do, a.Text)
		}
	}
	if len(names) > 0 {
		f.Status, f.Found = Wrong, "no live node may run "+strings.Join(names[:min(len(names), namedMax)], ", ")
		if more := len(names) - namedMax; more > 0 {
			f.Found += fmt.Sprintf(" and %d more", more)
		}
	}
	return f
}

// repositories names those that are not reached, or whose last commit was not applied.
func repositories(ctx context.Context, server *Server) Finding {
	f := Finding{Check: "repositories", Status: Well, Found: "each that is followed is reached, and has its last commit applied"}
	page, err := server.Attention(ctx, "")
	if err != nil {
		f.Status, f.Found = Note, "not checked: "+server.Refused(err).Error()
		return f
	}
	for i := range page.Items {
		if a := &page.Items[i]; a.Kind == client.AttentionSource {
			f.Status, f.Found, f.Do = Wrong, a.Text, "correct the file in the repository, or its address, key or network where belfry sync runs"
			return f
		}
	}
	return f
}

// occurrences names what the servers found when they compared schedules with history.
func occurrences(ctx context.Context, server *Server) Finding {
	f := Finding{Check: "occurrences", Status: Well, Found: "each has one run or one record, as far as servers have compared the last day"}
	page, err := server.Attention(ctx, "")
	if err != nil {
		f.Status, f.Found = Note, "not checked: "+server.Refused(err).Error()
		return f
	}
	for i := range page.Items {
		if a := &page.Items[i]; a.Kind == client.AttentionOccurrence {
			f.Status, f.Found = Wrong, fmt.Sprintf("job %s: %s", a.Job, a.Text)
			f.Do = "run the work by hand if it matters, see whether the store was restored, failed over or lost steps, and report it with belfry audit --action occurrence"
			return f
		}
	}
	return f
}

// openSecrets reports whether the server can open all secrets of its store.
func openSecrets(ctx context.Context, server *Server) Finding {
	f := Finding{Check: "secrets", Status: Well, Found: "the server opens all that are in the store"}
	about, err := server.Server(ctx)
	if err != nil {
		f.Status, f.Found = Note, "not checked: "+server.Refused(err).Error()
		return f
	}
	for _, h := range about.Hints {
		if h.Check == f.Check {
			f.Status, f.Found, f.Do = h.Status, h.Found, h.Do
		}
	}
	return f
}
