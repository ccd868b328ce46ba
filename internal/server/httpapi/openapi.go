package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/job"
)

// humaConfig is how the routes' library is used: JSON only, no pages of its own,
// unknown parameters are mistakes.
func (a *api) humaConfig() huma.Config {
	registry := huma.NewMapRegistry(schemasAt, schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[client.Document](), reflect.TypeFor[document]())
	registry.RegisterTypeAlias(reflect.TypeFor[wire.Document](), reflect.TypeFor[document]())
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Belfry", Version: a.Version, License: &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"},
				Description: "A distributed crontab. Errors are problems as in RFC 9457. " +
					"The security of each operation names the least role of its token: viewer, runner or admin; or worker, for which there is no other.",
			},
			Servers: []*huma.Server{{URL: "/", Description: "The server that this is from."}},
			Tags:    tags,
			Components: &huma.Components{
				Schemas: registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {
					Type: "http", Scheme: "bearer", Description: "The header Authorization: Bearer TOKEN. belfry token create makes tokens.",
				}},
			},
		},
		Formats:                      map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{fromLibrary},
	}
}

// schemaName names a type in the description. The messages of workers have names of their own.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.PkgPath() == reflect.TypeFor[wire.Join]().PkgPath() {
		return "Worker" + name
	}
	return name
}

// tags are what operations are about: the first part of their path.
var tags = []*huma.Tag{
	{Name: "jobs", Description: "What runs when."},
	{Name: "runs", Description: "Planned, running and finished runs, with their output."},
	{Name: "schedules", Description: "What schedules mean, before a job uses them."},
	{Name: "calendars", Description: "Days that schedules skip or are restricted to."},
	{Name: "pools", Description: "Bounds on how many runs of several jobs run at once."},
	{Name: "hooks", Description: "Hooks, by which other programs start jobs with signed requests."},
	{Name: "windows", Description: "Maintenance windows, in which jobs do not start."},
	{Name: "channels", Description: "Where notifications go, and which."},
	{Name: "executors", Description: "Executors of XXL-JOB whose addresses are typed in."},
	{Name: "notifications", Description: "What channels have to say."},
	{Name: "secrets", Description: "Named values for jobs and channels, without the values."},
	{Name: "deliveries", Description: "How channels deliver."},
	{Name: "nodes", Description: "The processes that plan and run jobs."},
	{Name: "xxl", Description: "Executors of XXL-JOB."},
	{Name: "stats", Description: "What has run, counted."},
	{Name: "lanes", Description: "What has run, counted by job."},
	{Name: "load", Description: "What schedules will start."},
	{Name: "attention", Description: "What a person should look at."},
	{Name: "tokens", Description: "Who may do what."},
	{Name: "badges", Description: "How jobs are, for everyone with a link."},
	{Name: "sessions", Description: "Codes that log browsers in."},
	{Name: "sign-in", Description: "How a person signs in on a command line."},
	{Name: "callbacks", Description: "Results of requests that services have taken and report later."},
	{Name: "events", Description: "Events as they happen."},
	{Name: "worker", Description: "The part of a worker that reaches no store: version 1 of the protocol. Every request can be repeated after a lost answer."},
	{Name: "audit", Description: "Who changed what."},
	{Name: "server", Description: "What the server is."},
	{Name: "health", Description: "For programs that watch the server."},
}

// tagOf returns the subject of a path.
func tagOf(path string) string {
	rest, below := strings.CutPrefix(path, "/api/v1/")
	if !below {
		return "health"
	}
	return rest[:strings.IndexAny(rest+"/", "/:")]
}

// documented says what documents the operations with a tag are about: those
// below /jobs are jobs.
var documented = map[string]string{"jobs": "Job", "calendars": "Calendar", "pools": "Pool", "windows": "Window", "channels": "Channel", "hooks": "Hook", "executors": "Executors"}

// schemasAt is where the schemas are in the description.
const schemasAt = "#/components/schemas/"

// document replaces [client.Document] in the description of the API.
type document struct{}

// Schema returns the place of the schema of documents, which writeDescription puts there.
func (document) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Extensions: map[string]any{documentMark: true}}
}

// documentMark marks the schema of a document.
const documentMark = "x-belfry-document"

// describe completes the operations of the library, which requests read as well: so
// nothing of them changes later.
func (a *api) describe() {
	a.describePlain()
	a.huma.OpenAPI().Components.Responses = a.problemResponses()
	for _, operation := range a.operations() {
		a.complete(operation)
	}
}

// writeDescription writes the description of the API. Package job has the schemas of
// documents.
func (a *api) writeDescription() ([]byte, error) {
	data, err := json.Marshal(a.huma.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	if err := addDocuments(tree); err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	withoutPatternDescriptions(tree)
	return json.MarshalIndent(tree, "", "  ")
}

// withoutPatternDescriptions removes a keyword of the library, for its messages, that no OpenAPI has.
func withoutPatternDescriptions(tree any) {
	switch t := tree.(type) {
	case map[string]any:
		if _, isText := t["patternDescription"].(string); isText {
			delete(t, "patternDescription")
		}
		for _, value := range t {
			withoutPatternDescriptions(value)
		}
	case []any:
		for _, value := range t {
			withoutPatternDescriptions(value)
		}
	}
}

// operations returns all operations of the description.
func (a *api) operations() (list []*huma.Operation) {
	for _, item := range a.huma.OpenAPI().Paths {
		for _, operation := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
			if operation != nil {
				list = append(list, operation)
			}
		}
	}
	return list
}

// describePlain adds the routes that are not the library's.
func (a *api) describePlain() {
	add := func(path, id, summary, kind string, schema *huma.Schema, answers ...int) {
		operation := &huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, Summary: summary, Responses: map[string]*huma.Response{}}
		for _, status := range answers {
			operation.Responses[strconv.Itoa(status)] = &huma.Response{
				Description: http.StatusText(status), Content: map[string]*huma.MediaType{kind: {Schema: schema}},
			}
		}
		a.huma.OpenAPI().AddOperation(operation)
	}
	text := &huma.Schema{Type: huma.TypeString}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, end := range []string{"", "/{signal}"} {
			operation := &huma.Operation{
				OperationID: strings.ToLower(method) + "-ping" + map[bool]string{true: "-signal"}[end != ""], Method: method, Path: "/ping/{key}" + end,
				Summary:    "Report on a job with its ping key",
				Parameters: []*huma.Param{{Name: "key", In: "path", Required: true, Schema: text, Description: "The ping key of the job."}},
				Responses:  map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{"text/plain": {Schema: text}}}},
			}
			if end != "" {
				operation.Parameters = append(operation.Parameters, &huma.Param{Name: "signal", In: "path", Required: true, Schema: text, Description: "start, fail, or an exit code."})
			}
			a.huma.OpenAPI().AddOperation(operation)
		}
	}
	for _, end := range []string{"", "/{secret}"} {
		called := map[string]*huma.MediaType{"application/json": {Schema: a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[client.HookCalled](), true, "HookCalled")}}
		operation := &huma.Operation{
			OperationID: "call-hook" + map[bool]string{true: "-url"}[end != ""], Method: http.MethodPost, Path: "/hooks/{id}" + end, Summary: "Start the job of a hook, whose templates read the body",
			Parameters: []*huma.Param{{Name: "id", In: "path", Required: true, Schema: text, Description: "The uid of the hook."}},
			Responses:  map[string]*huma.Response{"200": {Description: "The call started no run.", Content: called}, "202": {Description: "The call started a run.", Content: called}},
		}
		if end != "" {
			operation.Parameters = append(operation.Parameters, &huma.Param{Name: "secret", In: "path", Required: true, Schema: text, Description: "The secret, for a hook of the form url."})
		}
		a.huma.OpenAPI().AddOperation(operation)
	}
	a.huma.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "get-badge", Method: http.MethodGet, Path: "/badge/{file}", Summary: "Show a badge as SVG or JSON",
		Parameters: []*huma.Param{{Name: "file", In: "path", Required: true, Schema: text, Description: "What the link of the badge ends with: its secret with .svg or .json."}, {Name: "lang", In: "query", Schema: text, Description: "The language of the message: en (default) or zh."}},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
			"image/svg+xml":    {Schema: text},
			"application/json": {Schema: a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[client.BadgeState](), true, "BadgeState")},
		}}},
	})
	add("/livez", "livez", "Report that the process responds", "text/plain", text, http.StatusOK)
	add("/readyz", "readyz", "Report whether requests can be served, and why not", "text/plain", text, http.StatusOK, http.StatusServiceUnavailable)
	if a.Metrics != nil {
		add("/metrics", "metrics", "Get the metrics for Prometheus", "text/plain", text, http.StatusOK)
	}
	add("/openapi.json", "openapi", "Get this description", "application/json", &huma.Schema{Type: huma.TypeObject}, http.StatusOK)
	add("/openapi-3.0.json", "openapi-30", "Get this description in OpenAPI 3.0", "application/json", &huma.Schema{Type: huma.TypeObject}, http.StatusOK)
}

// problemResponses describes the problems, grouped by status.
func (a *api) problemResponses() map[string]*huma.Response {
	schema := a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[client.Problem](), true, "Problem")
	headers := map[int]map[string]*huma.Header{
		http.StatusUnauthorized:       {"WWW-Authenticate": describedHeader("Which token is required.")},
		http.StatusPreconditionFailed: {"ETag": describedHeader("The version that it has by now.")},
		http.StatusTooManyRequests:    {"Retry-After": describedHeader("After how many seconds to try again, where that is known.")},
	}
	responses := map[string]*huma.Response{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[kind]
		if k.status == http.StatusMethodNotAllowed {
			continue // no operation has it
		}
		text := fmt.Sprintf("`%s`: %s.", kind, k.title)
		name := problemName(k.status)
		if r := responses[name]; r != nil {
			r.Description += " " + text
			continue
		}
		responses[name] = &huma.Response{
			Description: text, Headers: headers[k.status],
			Content: map[string]*huma.MediaType{problemType: {Schema: schema}},
		}
	}
	return responses
}

func problemName(status int) string { return "Problem" + strconv.Itoa(status) }

func describedHeader(text string) *huma.Header {
	return &huma.Header{Description: text, Schema: &huma.Schema{Type: huma.TypeString}}
}

// complete adds to an operation the facts that follow from its route and parameters: its
// subject, the required role, and the problems.
func (a *api) complete(o *huma.Operation) {
	o.Tags = []string{tagOf(o.Path)}
	wanted := a.mux.needs[o.Method+" "+o.Path]
	if wanted.public {
		o.Security = []map[string][]string{} // empty, not missing: no token is needed
	} else {
		o.Security = []map[string][]string{{"token": {string(wanted.right.Role)}}}
	}
	delete(o.Responses, "default")
	answers, _ := o.Metadata[answersKey].([]int)
	for _, status := range slices.Concat(answers, problemsOf(o, wanted)) {
		code := strconv.Itoa(status)
		switch {
		case o.Responses[code] != nil:
		case status < 300:
			created := *o.Responses["200"]
			created.Description = http.StatusText(status)
			o.Responses[code] = &created
		default:
			o.Responses[code] = &huma.Response{Ref: "#/components/responses/" + problemName(status)}
		}
	}
	if answers != nil && answers[0] < 300 && !slices.Contains(answers, http.StatusOK) {
		delete(o.Responses, "200")
	}
}

// answersKey is where an operation keeps the answers of register.
const answersKey = "answers"

// problemsOf returns the possible problems of an operation: the common ones, and the problems of
// its parts.
func problemsOf(o *huma.Operation, wanted need) []int {
	list := []int{http.StatusForbidden, http.StatusInternalServerError}
	switch {
	case strings.HasPrefix(o.Path, "/ping/"), strings.HasPrefix(o.Path, "/badge/"):
		return append(list, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
	case strings.HasPrefix(o.Path, hooksPath):
		return append(list, http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusConflict, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
			http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
	case wanted.public && !strings.HasPrefix(o.Path, "/api/"):
		return list
	}
	list = append(list, http.StatusBadRequest, http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusServiceUnavailable)
	if o.Path != "/metrics" { // which every node has
		list = append(list, http.StatusMisdirectedRequest)
	}
	if tagOf(o.Path) == "health" {
		return list
	}
	list = append(list, http.StatusUnprocessableEntity, http.StatusGatewayTimeout)
	if strings.Contains(o.Path, "{") {
		list = append(list, http.StatusNotFound)
	}
	if o.Method != http.MethodGet {
		list = append(list, http.StatusConflict)
	}
	if o.RequestBody != nil {
		list = append(list, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if slices.ContainsFunc(o.Parameters, func(p *huma.Param) bool { return p.Name == "If-Match" }) {
		list = append(list, http.StatusPreconditionFailed)
		if o.Method != http.MethodPost {
			list = append(list, http.StatusPreconditionRequired)
		}
	}
	return list
}

// addDocuments puts the schemas of documents into the description, each under the
// name that it has in package job.
func addDocuments(tree map[string]any) error {
	var documents map[string]any
	renamed := strings.ReplaceAll(string(job.Schema()), `"#/$defs/`, `"`+schemasAt)
	if err := json.Unmarshal([]byte(renamed), &documents); err != nil {
		return err
	}
	schemas := tree["components"].(map[string]any)["schemas"].(map[string]any)
	for name, schema := range documents["$defs"].(map[string]any) {
		if schemas[name] != nil {
			return fmt.Errorf("there are two schemas %s", name)
		}
		schemas[name] = schema
	}
	delete(documents, "$defs")
	delete(documents, "$schema")
	delete(documents, "$id")
	schemas["Document"] = documents
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")

	// A page of documents becomes one of calendars and one of pools; the page of jobs has a
	// type.
	page := schemas["PageDocument"]
	delete(schemas, "PageDocument")
	for _, kind := range documented {
		if kind != "Job" {
			schemas["Page"+kind] = withDocuments(page, kind)
		}
	}
	for path, item := range tree["paths"].(map[string]any) {
		if kind := documented[tagOf(path)]; kind != "" && !strings.HasSuffix(path, ":apply") {
			tree["paths"].(map[string]any)[path] = withDocuments(item, kind)
		}
	}
	schemas["WorkerCalendars"] = withDocuments(schemas["WorkerCalendars"], "Calendar")
	for _, name := range []string{"Change", "Revision", "JobPage", "WorkerClaim"} {
		schemas[name] = withDocuments(schemas[name], "Job")
	}
	schemas["Apply"] = withDocuments(schemas["Apply"], "Document")
	return nil
}

// withDocuments returns a part of the description with the schema of a kind in
// place of the mark of documents.
func withDocuments(tree any, kind string) any {
	switch t := tree.(type) {
	case map[string]any:
		if t[documentMark] != nil {
			return map[string]any{"$ref": schemasAt + kind}
		}
		filled := make(map[string]any, len(t))
		for key, value := range t {
			filled[key] = withDocuments(value, kind)
		}
		return filled
	case []any:
		filled := make([]any, len(t))
		for i, value := range t {
			filled[i] = withDocuments(value, kind)
		}
		return filled
	case string:
		return strings.Replace(t, schemasAt+"PageDocument", schemasAt+"Page"+kind, 1)
	}
	return tree
}

// streamOf describes a stream of server-sent events: the data of each type of event. Those
// without a type are messages.
func (a *api) streamOf(data map[string]reflect.Type) *huma.MediaType {
	var kinds []*huma.Schema
	for name, t := range data {
		event := &huma.Schema{
			Title: name, Type: huma.TypeObject, Required: []string{"data"},
			Properties: map[string]*huma.Schema{
				"id":    {Type: huma.TypeString, Description: "What resumes behind it, by Last-Event-ID."},
				"event": {Type: huma.TypeString, Extensions: map[string]any{"const": name}},
				"data":  a.huma.OpenAPI().Components.Schemas.Schema(t, true, ""),
			},
		}
		if name != "message" {
			event.Required = append(event.Required, "event")
		}
		kinds = append(kinds, event)
	}
	slices.SortFunc(kinds, func(x, y *huma.Schema) int { return strings.Compare(x.Title, y.Title) })
	return &huma.MediaType{Schema: &huma.Schema{
		Description: "Server-sent events.", Type: huma.TypeArray, Items: &huma.Schema{AnyOf: kinds},
	}}
}
