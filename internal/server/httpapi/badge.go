package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// badgeFor is how long the proxies of other sites may keep a badge.
const badgeFor = "max-age=60, s-maxage=60"

// badge shows a badge as a picture or as JSON.
func (a *api) badge(w http.ResponseWriter, r *http.Request) {
	secret, form, _ := strings.Cut(r.PathValue("file"), ".")
	if form != "svg" && form != "json" {
		a.writeProblem(w, a.asProblem(r.Context(), &service.Error{Type: client.TypeNotFound, Detail: reason.Say(phrase.NoSuchBadge)}))
		return
	}
	shown, err := a.Service.Badges.Show(r.Context(), secret, r.URL.Query().Get("lang"))
	if err != nil {
		a.writeProblem(w, a.asProblem(r.Context(), err))
		return
	}
	auth.Shown(r.Context())
	kind, body := "image/svg+xml", []byte(draw.Badge(shown.Label, shown.Message, shown.Color))
	if form == "json" {
		kind = "application/json"
		if body, err = json.Marshal(shown); err != nil {
			a.writeProblem(w, a.asProblem(r.Context(), err))
			return
		}
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", badgeFor)
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, _ = w.Write(body)
}
