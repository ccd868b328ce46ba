package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/store"
)

// elsewhereRoute answers what is asked of a node without the role api. A token is
// wanted as everywhere: strangers are not told which nodes there are.
func (a *api) elsewhereRoute() {
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.writeProblem(w, refuse(client.TypeElsewhere, "node %s does not have the role api, and answers no requests to the API", a.Node).
			withHint("%s", a.whereAPI(r.Context())))
	})
}

// namedMax is how many nodes are named to whoever has asked a wrong one: the first
// that is up is enough.
const namedMax = 5

// whereAPI says in words which nodes answer the API.
func (a *api) whereAPI(ctx context.Context) string {
	sessions, err := a.Store.Sessions(ctx)
	if err != nil {
		return "another node may, but the store does not say which"
	}
	now, err := a.Store.Now(ctx)
	if err != nil {
		return "another node may, but the store does not say which"
	}
	sessions = slices.DeleteFunc(sessions, func(s store.Session) bool {
		return !s.Live(now) || !slices.Contains(s.Roles, store.RoleAPI)
	})
	if len(sessions) == 0 {
		return "no node that is up has the role; belfry serve --roles api with the same store runs one"
	}
	slices.SortFunc(sessions, func(x, y store.Session) int { return cmp.Compare(x.Node, y.Node) })
	var list []string
	for _, s := range sessions[:min(len(sessions), namedMax)] {
		list = append(list, "node "+s.Node+" at "+s.Address)
	}
	return "these answer: " + strings.Join(list, ", ")
}
