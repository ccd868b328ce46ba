package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// serverRoutes are about the server itself: its nodes, tokens and changes.
func (a *api) serverRoutes() {
	register(a, "GET /nodes", "list-nodes", "List nodes by name", may(service.Read), a.listNodes)
	register(a, "GET /server", "get-server", "Say what the server is, and what could be better about it", may(service.Read), bare(a.Service.Nodes.About))
	register(a, "POST /nodes/{id}/drain", "drain-node", "Stop a node from accepting runs", may(service.Administer, smallBody), a.drainNode)
	register(a, "POST /nodes/{id}/undrain", "undrain-node", "Let a node accept runs again", may(service.Administer), a.undrainNode)
	register(a, "GET /xxl/executors", "list-executors", "List the executors of XXL-JOB and their groups", may(service.Read), bare(a.Service.Executors.List))
	register(a, "POST /xxl/runs", "add-past-runs", "Add runs of an xxl-job-admin to the history", may(service.Administer, documentBody), taking(a.Service.Executors.AddPastRuns))
	register(a, "POST /xxl/numbers", "raise-numbers", "Let the numbers of runs at executors begin higher", may(service.Administer, smallBody), taking(a.Service.Executors.Raise))
	register(a, "GET /attention", "list-attention", "List what a person should look at, the worst first", may(service.Read), a.listAttention)
	for verb, m := range map[string]struct {
		summary string
		do      func(context.Context, service.Caller, client.AttentionRequest) ([]client.Attention, error)
	}{
		"snooze":  {"Put a problem aside", a.Service.Attention.Snooze},
		"wake":    {"End the snooze of a problem", a.Service.Attention.Wake},
		"take":    {"Say that you look after a problem", a.Service.Attention.Take},
		"release": {"Say that you no longer look after a problem", a.Service.Attention.Release},
		"note":    {"Write a note for others at a problem", a.Service.Attention.Note},
	} {
		register(a, "POST /attention:"+verb, verb+"-attention", m.summary, may(service.Operate, smallBody), func(ctx context.Context, in *markInput) (*answer[client.Page[client.Attention]], error) {
			return listed(m.do(ctx, caller(ctx), in.Body))
		}, http.StatusNotFound, http.StatusConflict)
	}
	register(a, "GET /audit", "list-audit", "List changes, the latest first", may(service.Read), a.listAudit)
	register(a, "GET /badges", "list-badges", "List badges, without their links", may(service.Define), a.listBadges)
	register(a, "POST /badges", "create-badge", "Create the badge of a job or label, in place of the one before", may(service.Define, smallBody), taking(a.Service.Badges.Create), http.StatusOK, http.StatusNotFound)
	register(a, "POST /badges:revoke", "revoke-badge", "End the link of a badge", may(service.Define, smallBody), taking(a.Service.Badges.Revoke), http.StatusOK, http.StatusNotFound)
	register(a, "GET /tokens", "list-tokens", "List tokens by name", may(service.Administer), a.listTokens)
	register(a, "POST /tokens", "create-token", "Create a token", may(service.Administer, smallBody), a.createToken, http.StatusCreated)
	register(a, "DELETE /tokens/{name}", "revoke-token", "Revoke a token", may(service.Administer), a.revokeToken)
}

type listNodesInput struct {
	Gone bool `query:"gone" doc:"Also nodes that are gone and were there within the last 7 days."`
}

func (a *api) listNodes(ctx context.Context, in *listNodesInput) (*answer[client.Page[client.Node]], error) {
	if in.Gone {
		return listed(a.Service.Nodes.All(ctx, caller(ctx)))
	}
	return listed(a.Service.Nodes.List(ctx, caller(ctx)))
}

// NodeInput names a node in a path.
type NodeInput struct {
	ID string `path:"id" minLength:"1" maxLength:"255" doc:"The name of the node, or its session."`
}

type drainNodeInput struct {
	NodeInput
	Body *client.DrainRequest `required:"false"`
}

func (a *api) drainNode(ctx context.Context, in *drainNodeInput) (*answer[client.Node], error) {
	return answered(a.Service.Nodes.Drain(ctx, caller(ctx), in.ID, given(in.Body).Reason))
}

func (a *api) undrainNode(ctx context.Context, in *NodeInput) (*answer[client.Node], error) {
	return answered(a.Service.Nodes.Undrain(ctx, caller(ctx), in.ID))
}

type attentionInput struct {
	Namespace string `query:"namespace" maxLength:"128" doc:"Only what is about jobs of this namespace, and about nodes."`
}

func (a *api) listAttention(ctx context.Context, in *attentionInput) (*answer[client.Page[client.Attention]], error) {
	return listed(a.Service.Attention.List(ctx, caller(ctx), in.Namespace))
}

type markInput struct {
	Body client.AttentionRequest
}

type listAuditInput struct {
	PageInput
	Namespace string    `query:"namespace" maxLength:"128" doc:"Only changes of what is in this namespace."`
	Object    string    `query:"object" maxLength:"257" doc:"Only changes of this: namespace/name, or the name of a token."`
	Actor     string    `query:"actor" maxLength:"128" doc:"Only changes by the holder of this token, or by belfry itself."`
	Action    string    `query:"action" maxLength:"64" doc:"Only these changes, such as job.change; or job, for all changes of jobs."`
	Group     string    `query:"group" maxLength:"64" doc:"Only changes of this request."`
	From      time.Time `query:"from" doc:"Only changes at this instant or later."`
	To        time.Time `query:"to" doc:"Only changes before this instant."`
}

func (a *api) listAudit(ctx context.Context, in *listAuditInput) (*answer[client.Page[client.AuditRecord]], error) {
	return answered(a.Service.Audit.List(ctx, caller(ctx), client.AuditQuery{
		Namespace: in.Namespace, Object: in.Object, Actor: in.Actor, Action: in.Action, Group: in.Group, From: in.From, To: in.To,
		PageSize: in.PageSize, PageToken: in.PageToken,
	}))
}

func (a *api) listTokens(ctx context.Context, _ *struct{}) (*answer[client.Page[client.Token]], error) {
	return listed(a.Service.Access.List(ctx, caller(ctx)))
}

type createTokenInput struct {
	Body client.TokenRequest
}

type createTokenOutput struct {
	Status       int
	CacheControl string `header:"Cache-Control"`
	Body         client.NewToken
}

func (a *api) createToken(ctx context.Context, in *createTokenInput) (*createTokenOutput, error) {
	token, err := a.Service.Access.Create(ctx, caller(ctx), in.Body)
	return &createTokenOutput{Status: http.StatusCreated, CacheControl: "no-store", Body: token}, err
}

// sessionRoutes begin, list and end sessions of browsers.
func (a *api) sessionRoutes() {
	register(a, "GET /sessions", "list-sessions", "List sessions of people by person", may(service.Administer), a.listSessions)
	register(a, "DELETE /sessions/{person}", "end-sessions", "End all sessions of a person", may(service.Administer), a.endSessions)
	register(a, "POST /sessions:code", "create-login-code", "Create a code that logs a browser in as the caller, once", may(service.Read), a.createCode, http.StatusCreated)
	register(a, "GET /sign-in", "get-sign-in", "Get the page at which people sign in on a command line", need{public: true}, a.getSignIn, http.StatusOK, http.StatusConflict)
	register(a, "POST /sign-in", "sign-in", "Begin a session with the code of that page", need{public: true, body: smallBody}, a.beginSession, http.StatusCreated)
	register(a, "DELETE /sign-in", "sign-out", "End the session of the caller", may(service.Read), a.endSession)
}

// signInPage is the page at which a person lets a command line sign in.
const signInPage = "/ui/sign-in/command"

func (a *api) getSignIn(context.Context, *struct{}) (*answer[client.SignIn], error) {
	if a.SignInAt == "" {
		return nil, noProvider()
	}
	return answered(client.SignIn{URL: a.SignInAt + signInPage}, nil)
}

func noProvider() *problem {
	return problemOf(service.Refuse(client.TypeConflict, phrase.NoProvider, phrase.UseTokenOrOIDC))
}

type beginSessionInput struct{ Body client.SignInCode }

type beginSessionOutput struct {
	Status       int
	CacheControl string `header:"Cache-Control"`
	Body         client.NewSession
}

func (a *api) beginSession(ctx context.Context, in *beginSessionInput) (*beginSessionOutput, error) {
	if a.SignInAt == "" {
		return nil, noProvider()
	}
	secret, holder, ends, err := a.Sessions.BeginCommand(ctx, in.Body.Code, in.Body.Verifier)
	if errors.Is(err, auth.ErrUnknown) {
		return nil, unauthenticated(phrase.CodeOfSignIn.Of(phrase.Span(job.Duration(auth.CodeFor).InWords())), phrase.SignInAgain)
	}
	if err != nil {
		return nil, err
	}
	a.Log.Info("a person has signed in on a command line", "person", holder.Name, "subject", holder.Person.Subject)
	return &beginSessionOutput{Status: http.StatusCreated, CacheControl: "no-store", Body: client.NewSession{
		Secret: secret, Person: holder.Name, Roles: service.CallerFor(holder).Says(), Expires: ends.UTC(),
	}}, nil
}

func (a *api) endSession(ctx context.Context, _ *struct{}) (*struct{}, error) {
	who := caller(ctx)
	if who.Roles == nil {
		return nil, problemOf(service.Refuse(client.TypeConflict, phrase.TokenNoSession.Of(who.Name), phrase.RevokeEnds))
	}
	return nil, a.Sessions.EndByHash(ctx, who.Token)
}

func (a *api) listBadges(ctx context.Context, _ *struct{}) (*answer[client.Page[client.Badge]], error) {
	return listed(a.Service.Badges.List(ctx, caller(ctx)))
}

func (a *api) listSessions(ctx context.Context, _ *struct{}) (*answer[client.Page[client.Session]], error) {
	sessions, err := a.Service.Access.Sessions(ctx, caller(ctx))
	list := []client.Session{}
	for i := range sessions {
		if one := &sessions[i]; one.Provider != "" {
			list = append(list, client.Session{Person: one.Holder, Subject: one.Subject, Begun: one.Begun, Expires: one.Ends})
		}
	}
	slices.SortFunc(list, func(a, b client.Session) int {
		return cmp.Or(cmp.Compare(a.Person, b.Person), a.Begun.Compare(b.Begun))
	})
	return listed(list, err)
}

// PersonName names a person in a path.
type PersonName struct {
	Person string `path:"person" maxLength:"257" doc:"The person's name in the audit, such as sso:ann@example.com."`
}

func (a *api) endSessions(ctx context.Context, in *PersonName) (*answer[client.SessionsEnded], error) {
	return answered(a.Service.Access.EndSessions(ctx, caller(ctx), in.Person))
}

type codeOutput struct {
	Status       int
	CacheControl string `header:"Cache-Control"`
	Body         client.LoginCode
}

func (a *api) createCode(ctx context.Context, _ *struct{}) (*codeOutput, error) {
	who := caller(ctx)
	if who.Roles != nil {
		return nil, problemOf(service.Refuse(client.TypeConflict, phrase.CodesForTokens.Of(who.Name), phrase.SignInInBrowser))
	}
	code, err := a.Sessions.NewCode(ctx, who.Token)
	return &codeOutput{Status: http.StatusCreated, CacheControl: "no-store", Body: client.LoginCode{
		Code: code, Expires: a.Now().Add(auth.CodeFor).UTC(),
	}}, err
}

// TokenName names a token in a path.
type TokenName struct {
	Name string `path:"name" maxLength:"128" doc:"Its name."`
}

func (a *api) revokeToken(ctx context.Context, in *TokenName) (*struct{}, error) {
	return nil, a.Service.Access.Revoke(ctx, caller(ctx), in.Name)
}

// elsewhereRoute answers on a node without the role api. A token is wanted as everywhere:
// strangers do not learn which nodes there are.
func (a *api) elsewhereRoute() {
	a.mux.add("/", may(service.Read), func(w http.ResponseWriter, r *http.Request) {
		where, err := a.Service.Nodes.WithAPI(r.Context(), caller(r.Context()))
		if err != nil {
			where = phrase.APIUnknownWhere
		}
		a.writeProblem(w, problemOf(service.Refuse(client.TypeElsewhere, phrase.NoAPIHere.Of(a.Node), where)))
	})
}
