package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// need is the right that a route requires before it reads the request. The service checks
// again, including the namespace.
type need struct {
	public bool // no token
	right  service.Right
	// body bounds the body of the route; without it a body is ignored.
	body limit
	// without: if the store does not answer, the cached token counts.
	without bool
}

// access has each route of the API. A missing one is for administrators of the server
// alone.
var access = map[string]need{
	"GET /livez":                {public: true},
	"GET /readyz":               {public: true},
	"GET /ping/{key}":           {public: true}, // the key says who it is; HEAD is GET
	"POST /ping/{key}":          {public: true},
	"GET /ping/{key}/{signal}":  {public: true},
	"POST /ping/{key}/{signal}": {public: true},
	callbackPattern:             {public: true, body: reportBody},        // the secret says who it is
	"GET /metrics":              {right: service.Observe, without: true}, // it names jobs of all namespaces
	"GET /openapi.json":         {right: service.Read},
	"/":                         {right: service.Read}, // there is nothing

	"GET /api/v1/jobs":                                        {right: service.Read},
	"POST /api/v1/jobs":                                       {right: service.Define, body: documentBody},
	"POST /api/v1/jobs:apply":                                 {right: service.Define, body: filesBody},
	"POST /api/v1/jobs:check":                                 {right: service.Read, body: documentBody},
	"POST /api/v1/jobs:bulk":                                  {right: service.Operate, body: smallBody},
	"GET /api/v1/jobs/{namespace}/{name}":                     {right: service.Read},
	"PUT /api/v1/jobs/{namespace}/{name}":                     {right: service.Define, body: documentBody},
	"DELETE /api/v1/jobs/{namespace}/{name}":                  {right: service.Define},
	"POST /api/v1/jobs/{namespace}/{name}/pause":              {right: service.Define, body: smallBody},
	"POST /api/v1/jobs/{namespace}/{name}/resume":             {right: service.Define, body: smallBody},
	"POST /api/v1/jobs/{namespace}/{name}/run":                {right: service.Operate, body: paramsBody},
	"POST /api/v1/jobs/{namespace}/{name}/report":             {right: service.Operate, body: reportBody},
	"POST /api/v1/jobs/{namespace}/{name}/ping-key":           {right: service.Define},
	"POST /api/v1/jobs/{namespace}/{name}/backfill":           {right: service.Operate, body: smallBody},
	"POST /api/v1/jobs/{namespace}/{name}/backfill/cancel":    {right: service.Operate, body: smallBody},
	"GET /api/v1/jobs/{namespace}/{name}/next":                {right: service.Read},
	"GET /api/v1/jobs/{namespace}/{name}/followers":           {right: service.Read},
	"GET /api/v1/jobs/{namespace}/{name}/revisions":           {right: service.Read},
	"GET /api/v1/jobs/{namespace}/{name}/revisions/{version}": {right: service.Read},
	"POST /api/v1/jobs/{namespace}/{name}/rollback":           {right: service.Define, body: smallBody},

	"GET /api/v1/jobs/{namespace}/{name}/statistics": {right: service.Read},

	"GET /api/v1/schedules:preview": {right: service.Read},
	"GET /api/v1/stats":             {right: service.Read},
	"GET /api/v1/load":              {right: service.Read},
	"GET /api/v1/load/jobs":         {right: service.Read},
	"GET /api/v1/lanes":             {right: service.Read},

	"GET /api/v1/calendars":                         {right: service.Read},
	"GET /api/v1/calendars/{namespace}/{name}":      {right: service.Read},
	"PUT /api/v1/calendars/{namespace}/{name}":      {right: service.Define, body: documentBody},
	"DELETE /api/v1/calendars/{namespace}/{name}":   {right: service.Define},
	"GET /api/v1/pools":                             {right: service.Read},
	"GET /api/v1/pools/{namespace}/{name}":          {right: service.Read},
	"PUT /api/v1/pools/{namespace}/{name}":          {right: service.Define, body: documentBody},
	"DELETE /api/v1/pools/{namespace}/{name}":       {right: service.Define},
	"GET /api/v1/channels":                          {right: service.Read},
	"GET /api/v1/channels/{namespace}/{name}":       {right: service.Read},
	"PUT /api/v1/channels/{namespace}/{name}":       {right: service.Define, body: documentBody},
	"DELETE /api/v1/channels/{namespace}/{name}":    {right: service.Define},
	"GET /api/v1/executors":                         {right: service.Read},
	"GET /api/v1/executors/{namespace}/{name}":      {right: service.Read},
	"PUT /api/v1/executors/{namespace}/{name}":      {right: service.Define, body: documentBody},
	"DELETE /api/v1/executors/{namespace}/{name}":   {right: service.Define},
	"POST /api/v1/channels/{namespace}/{name}/test": {right: service.Define},
	"GET /api/v1/deliveries":                        {right: service.Read},
	"GET /api/v1/secrets":                           {right: service.Read},
	"PUT /api/v1/secrets/{namespace}/{name}":        {right: service.Define, body: documentBody},
	"DELETE /api/v1/secrets/{namespace}/{name}":     {right: service.Define},
	"POST /api/v1/secrets:rotate":                   {right: service.Administer},
	"GET /api/v1/notifications":                     {right: service.Read},
	"POST /api/v1/notifications/{id}/ack":           {right: service.Operate},

	"GET /api/v1/runs":              {right: service.Read},
	"GET /api/v1/runs/{id}":         {right: service.Read},
	"POST /api/v1/runs/{id}/cancel": {right: service.Operate, body: smallBody},

	"POST /api/v1/runs/{id}/steps/{step}/approve": {right: service.Operate, body: smallBody},
	"POST /api/v1/runs/{id}/steps/{step}/reject":  {right: service.Operate, body: smallBody},
	"POST /api/v1/runs/{id}/signals/{signal}":     {right: service.Operate, body: resultBody},

	"POST /api/v1/runs/{id}/retry":       {right: service.Operate, body: paramsBody},
	"GET /api/v1/runs/{id}/lines":        {right: service.Read},
	"GET /api/v1/runs/{id}/lines:search": {right: service.Read},
	"GET " + outputPath:                  {right: service.Read},

	"GET " + eventsPath: {right: service.Read},

	"GET /api/v1/nodes":                {right: service.Read},
	"GET /api/v1/server":               {right: service.Read},
	"GET /api/v1/xxl/executors":        {right: service.Read},
	"POST /api/v1/xxl/runs":            {right: service.Administer, body: documentBody},
	"POST /api/v1/xxl/numbers":         {right: service.Administer, body: smallBody},
	"POST /api/v1/nodes/{id}/drain":    {right: service.Administer, body: smallBody},
	"POST /api/v1/nodes/{id}/undrain":  {right: service.Administer},
	"GET /api/v1/attention":            {right: service.Read},
	"GET /api/v1/audit":                {right: service.Read},
	"GET /api/v1/tokens":               {right: service.Administer},
	"POST /api/v1/tokens":              {right: service.Administer, body: smallBody},
	"DELETE /api/v1/tokens/{name}":     {right: service.Administer},
	"POST /api/v1/sessions:code":       {right: service.Read},
	"GET /api/v1/sessions":             {right: service.Administer},
	"DELETE /api/v1/sessions/{person}": {right: service.Administer},
	"GET /api/v1/sign-in":              {public: true},
	"POST /api/v1/sign-in":             {public: true, body: smallBody}, // the code says who it is
	"DELETE /api/v1/sign-in":           {right: service.Read},

	"POST /api/v1/worker/tokens":                      {right: service.JoinAsWorker, body: smallBody},
	"POST /api/v1/worker/sessions":                    {right: service.WorkAsWorker, body: workerBody},
	"GET /api/v1/worker/clock":                        {right: service.WorkAsWorker},
	"GET /api/v1/worker/calendars":                    {right: service.WorkAsWorker},
	"POST /api/v1/worker/sessions/{session}/renew":    {right: service.WorkAsWorker, body: smallBody},
	"POST /api/v1/worker/sessions/{session}/leave":    {right: service.WorkAsWorker},
	"DELETE /api/v1/worker/sessions/{session}":        {right: service.WorkAsWorker},
	"GET /api/v1/worker/sessions/{session}/members":   {right: service.WorkAsWorker},
	"GET /api/v1/worker/sessions/{session}/ready":     {right: service.WorkAsWorker},
	"POST /api/v1/worker/sessions/{session}/overdue":  {right: service.WorkAsWorker, body: smallBody},
	"POST /api/v1/worker/sessions/{session}/claims":   {right: service.WorkAsWorker, body: workerBody},
	"POST /api/v1/worker/sessions/{session}/releases": {right: service.WorkAsWorker, body: workerBody},
	"POST /api/v1/worker/sessions/{session}/results":  {right: service.WorkAsWorker, body: workerBody},
	"GET /api/v1/worker/sessions/{session}/runs":      {right: service.WorkAsWorker},
	"POST /api/v1/worker/sessions/{session}/output":   {right: service.WorkAsWorker, body: workerBody},
	"POST /api/v1/worker/sessions/{session}/versions": {right: service.WorkAsWorker, body: workerBody},
	"POST /api/v1/worker/sessions/{session}/over":     {right: service.WorkAsWorker, body: smallBody},
	"POST /api/v1/worker/sessions/{session}/secrets":  {right: service.WorkAsWorker, body: smallBody},
	"POST /api/v1/worker/sessions/{session}/boot":     {right: service.WorkAsWorker, body: smallBody},
	"GET /api/v1/worker/sessions/{session}/hints":     {right: service.WorkAsWorker},
}

// routes is a mux that checks the right of a route before the route runs. No route can
// bypass it.
type routes struct {
	http.ServeMux
	patterns []string
	refuse   func(http.ResponseWriter, *problem)
	bodies   bodies
	// open refuses callers of public routes whose secret is not valid, before the body is read.
	open map[string]func(*http.Request) *problem
}

// HandleFunc adds a route.
func (m *routes) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	wanted, listed := access[pattern]
	if !listed {
		wanted.right = service.Administer
	}
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if wanted.public && !strings.Contains(pattern, " /api/") {
			handler(w, r)
			return
		}
		if err := wanted.allow(r); err != nil {
			m.refuse(w, problemOf(service.ErrorOf(err)))
			return
		}
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
			// A parameter that cannot be read would be left out, and the answer be about more.
			m.refuse(w, refuse(client.TypeMalformed, "the query of the request cannot be read").withHint("write a %% as %%25"))
			return
		}
		within := bodyTime
		switch open := m.open[pattern]; {
		case open != nil:
			if refused := open(r); refused != nil {
				m.refuse(w, refused)
				return
			}
		case wanted.public:
			within = auth.StrangerTime
		}
		done, refused := m.bodies.take(w, r, wanted.body, within)
		defer done()
		if refused != nil {
			m.refuse(w, refused)
			return
		}
		handler(w, r)
	})
}

// allow checks the right of a route.
func (n *need) allow(r *http.Request) error {
	who, namespace := caller(r.Context()), r.PathValue("namespace")
	switch {
	case n.public:
		return nil
	case namespace != "":
		return who.MayIn(n.right, namespace)
	}
	return who.May(n.right)
}

// Handle adds a route.
func (m *routes) Handle(pattern string, handler http.Handler) {
	m.HandleFunc(pattern, handler.ServeHTTP)
}
