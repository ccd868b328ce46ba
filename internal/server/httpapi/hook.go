package httpapi

import (
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// hookBody bounds the body of a call of a hook, which is read before its signature can be checked.
// The events of code hosts and payment services have some 10 KB, rarely 100.
var hookBody = limit{1 << 20, 50_000}

// hookBodiesMax bounds the bytes of the large bodies of such calls in flight, so that strangers leave
// the room of other requests alone.
const hookBodiesMax = 8 << 20

// hooksPath begins the addresses of hooks.
const hooksPath = "/hooks/"

// hookRoutes take the calls of hooks: a signature or a secret in the address proves the caller.
func (a *api) hookRoutes() {
	room := bodies{semaphore.NewWeighted(hookBodiesMax)}
	call := func(w http.ResponseWriter, r *http.Request) {
		done, refused := room.take(w, r, hookBody, auth.StrangerTime)
		defer done()
		if refused != nil {
			a.writeProblem(w, refused)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			a.writeProblem(w, a.asProblem(r.Context(), err))
			return
		}
		called, err := a.Service.Hooks.Call(r.Context(), service.HookCall{ID: r.PathValue("id"), Secret: r.PathValue("secret"), From: addressOf(r), Header: r.Header, Body: body})
		if err != nil {
			p := a.asProblem(r.Context(), err)
			if service.ErrorOf(err).Type == client.TypeUnauthenticated {
				p = a.slowed(r, p)
			}
			a.writeProblem(w, p)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if !called.Repeated && !called.Run.IsZero() {
			w.WriteHeader(http.StatusAccepted)
		}
		_ = json.NewEncoder(w).Encode(called) // the caller has left
	}
	a.mux.add("POST "+hooksPath+"{id}", need{public: true}, call)
	a.mux.add("POST "+hooksPath+"{id}/{secret}", need{public: true}, call)
}

// slowed counts a refused secret with the wrong tokens of its address, and returns the answer.
func (a *api) slowed(r *http.Request, refused *problem) *problem {
	address := addressOf(r)
	wait, first := a.Tokens.Failed(address, a.Now())
	if first {
		a.Log.Warn("an address sends many invalid tokens", "address", address)
	}
	if wait > 0 {
		return problemOf(service.Refuse(client.TypeTooManyFailures, phrase.ManyInvalid, phrase.ValidNotSlowed)).
			withHeader("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	}
	return refused
}

// addressOf returns the address of a caller, the zero one if it has none.
func addressOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return from.Addr()
}
