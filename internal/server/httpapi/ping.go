package httpapi

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// pingBodyMax is how much of a body is kept as output.
const pingBodyMax = 100 << 10

// pingRoutes take pings in the form of healthchecks.io: the key of a job serves as the
// token, so that a program that can fetch a URL can report.
func (a *api) pingRoutes() {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		a.mux.add(method+" /ping/{key}", need{public: true}, a.ping) // the key says who it is
		a.mux.add(method+" /ping/{key}/{signal}", need{public: true}, a.ping)
	}
}

func (a *api) ping(w http.ResponseWriter, r *http.Request) {
	report, ok := pingOf(r.PathValue("signal"))
	if !ok {
		a.writeProblem(w, problemOf(service.Refuse(client.TypeNotFound, phrase.PingEndUnknown, phrase.PingEnds)))
		return
	}
	_, err := a.Service.Reports.Ping(r.Context(), r.PathValue("key"), func(ctx context.Context) (client.Report, error) {
		auth.Shown(ctx)
		body, err := io.ReadAll(io.LimitReader(r.Body, pingBodyMax))
		if err != nil {
			return report, &service.Error{Type: client.TypeMalformed, Detail: reason.Say(phrase.BodyUnread)}
		}
		report.Output = strings.ToValidUTF8(string(body), "\uFFFD")
		return report, nil
	})
	if err != nil {
		a.writeProblem(w, a.asProblem(r.Context(), err))
		return
	}
	plain(w, http.StatusOK, "OK\n")
}

// pingOf parses the end of a ping's path.
func pingOf(signal string) (client.Report, bool) {
	switch signal {
	case "":
		return client.Report{State: client.ReportSucceeded}, true
	case "start":
		return client.Report{State: client.ReportStarted}, true
	case "fail":
		return client.Report{State: client.ReportFailed, Reason: "a failure was reported"}, true
	}
	code, err := strconv.ParseUint(signal, 10, 8)
	if err != nil {
		return client.Report{}, false
	}
	exit := int(code)
	report := client.Report{State: client.ReportSucceeded, ExitCode: &exit}
	if exit != 0 {
		report.State = client.ReportFailed
	}
	return report, true
}
