package cli

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/sys/spelling"
	"github.com/belfry-cron/belfry/job"
)

// addConnection adds the flags of commands that use a server.
func addConnection(cmd *cobra.Command, asked *config.Asked) {
	f := cmd.Flags()
	addWord(f, &asked.Namespace, "namespace", "n", "NAME", "namespace of jobs named without one; else BELFRY_NAMESPACE")
	addServer(cmd, asked)
}

// addServer adds the flags of commands about a server itself, which has no namespace.
func addServer(cmd *cobra.Command, asked *config.Asked) {
	f := cmd.Flags()
	addWord(f, &asked.Server, "server", "", "URL", "address of the server; else BELFRY_SERVER")
	addWord(f, &asked.Context, "context", "", "NAME", "context of the client's configuration")
	addWord(f, &asked.Data, "data", "", "DIRECTORY", "data directory of a server on this machine; else BELFRY_DATA")
}

// addAll adds the flag of lists that are about all namespaces in any case.
func addAll(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "all namespaces, even if BELFRY_NAMESPACE is set")
}

// listCommand completes a command that lists items of a server, if it is namespaced in the
// namespaces of its flags.
func listCommand(env Env, cmd *cobra.Command, namespaced bool, show func(ctx context.Context, server *remote, namespace, output string) error) *cobra.Command {
	var (
		asked  config.Asked
		all    bool
		output string
	)
	cmd.Use, cmd.Aliases, cmd.Args = "list [flags]", []string{"ls"}, noArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		server, err := connect(env, asked)
		if err != nil {
			return err
		}
		namespace := ""
		if namespaced {
			namespace = server.listNamespace(all)
		}
		return server.refused(show(cmd.Context(), server, namespace, output))
	}
	if namespaced {
		addConnection(cmd, &asked)
		addAll(cmd, &all)
	} else {
		addServer(cmd, &asked)
	}
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

// listNamespace returns the namespace that a list is about, "" for all.
func (r *remote) listNamespace(all bool) string {
	if all {
		return ""
	}
	return r.listed
}

// remote is the server of a command.
type remote struct {
	*client.Client
	env       Env
	namespace string
	listed    string // namespace of lists, "" for all
	noToken   string // where a token was sought, if none was found
	tokenFrom string // source of the token, if there is one
	local     bool   // the server runs on a data directory of this machine
	person    string // person signed in with belfry login, "" with a token
	asked     []jobName
	// near returns existing jobs with names near to one that does not exist.
	near func(missing jobName) []string
}

// userAgent identifies commands in the audit.
func userAgent() string { return "belfry/" + versionOf(buildInfo()).Version }

// connect selects the server, without sending a request.
func connect(env Env, asked config.Asked) (*remote, error) { return connectAs(env, asked, userAgent()) }

// connectAs is connect with a user agent, by which the audit names the kind of client.
func connectAs(env Env, asked config.Asked, agent string) (*remote, error) {
	if asked.Data != "" {
		asked.Data = env.path(asked.Data)
	}
	c, err := config.Connect(asked, env.Getenv, auth.ReadToken)
	var problems job.Problems
	if errors.As(err, &problems) {
		return nil, wrongSettings(env, config.ClientFile(env.Getenv), err)
	}
	if errors.Is(err, config.ErrNoServer) {
		return nil, &failure{code: ExitUnreachable, message: err.Error(), hint: "start one with belfry serve --data"}
	}
	if err != nil {
		return nil, &failure{code: ExitUsage, message: err.Error()}
	}
	api, err := client.New(client.Config{URL: c.Server, Token: c.Token, UserAgent: agent})
	if err != nil {
		message := err.Error()
		if c.ServerFrom != "" {
			message = c.ServerFrom + ": " + message
		}
		return nil, &failure{code: ExitUsage, message: message}
	}
	r := &remote{Client: api, env: env, namespace: c.Namespace, listed: c.Listed, noToken: c.NoToken, tokenFrom: c.TokenFrom, local: c.Local, person: c.Person}
	r.near = r.nearJobs
	return r, nil
}

// exitCodes are the exit codes of problem types; others have [ExitFailed].
var exitCodes = map[client.ProblemType]ExitCode{
	client.TypeNotFound:        ExitNotFound,
	client.TypeUnauthenticated: ExitNotAllowed,
	client.TypeTooManyFailures: ExitNotAllowed,
	client.TypeForbidden:       ExitNotAllowed,
	client.TypeHostRefused:     ExitNotAllowed,
	client.TypeCrossOrigin:     ExitNotAllowed,
	client.TypeElsewhere:       ExitNotAllowed,
	client.TypeExists:          ExitConflict,
	client.TypeConflict:        ExitConflict,
	client.TypeChanged:         ExitConflict,
	client.TypeVersionWanted:   ExitConflict,
}

// asking returns the body of a command that uses a server. to is read when the flags are parsed.
func asking(env Env, to *config.Asked, do func(ctx context.Context, server *remote, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		server, err := connect(env, *to)
		if err != nil {
			return err
		}
		return server.refused(do(cmd.Context(), server, args))
	}
}

// askingJob is asking for a command about the job that its first argument names.
func askingJob(env Env, to *config.Asked, do func(ctx context.Context, server *remote, name jobName) error) func(*cobra.Command, []string) error {
	return asking(env, to, func(ctx context.Context, server *remote, args []string) error {
		name, err := server.named(args[0])
		if err != nil {
			return err
		}
		return do(ctx, server, name)
	})
}

// askingRun is asking for a command about the run that its first argument names.
func askingRun(env Env, to *config.Asked, do func(ctx context.Context, server *remote, id job.ID) error) func(*cobra.Command, []string) error {
	return asking(env, to, func(ctx context.Context, server *remote, args []string) error {
		id, err := parseRun(args[0])
		if err != nil {
			return err
		}
		return do(ctx, server, id)
	})
}

// refused converts an error of the client to a failure.
func (r *remote) refused(err error) error {
	var own *failure
	var p *client.Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.Is(err, client.ErrUnreachable):
		f := &failure{code: ExitUnreachable, message: err.Error()}
		var untrusted *tls.CertificateVerificationError
		if errors.As(err, &untrusted) {
			return f.withHint("set SSL_CERT_FILE to the certificates of its authority, if the system does not trust it")
		}
		var plain tls.RecordHeaderError
		if rest, secure := strings.CutPrefix(r.URL(), "https://"); secure && (errors.As(err, &plain) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")) {
			return f.withHint("it answers without TLS: did you mean http://%s?", rest)
		}
		return f.withHint("start one with belfry serve, or name another with --server or BELFRY_SERVER")
	case errors.Is(err, context.Canceled):
		return &failure{code: ExitInterrupted, message: "interrupted"}
	case !errors.As(err, &p):
		return failed("%v", err)
	}
	f := failed("%s", p.Title)
	if p.Detail != "" {
		f.message = p.Detail
	}
	if code, ok := exitCodes[p.Type]; ok {
		f.code = code
	}
	f.hint, f.problem = p.Hint, p
	for _, e := range p.Errors {
		f.details = append(f.details, e.String())
	}
	if p.MoreErrors > 0 {
		f.details = append(f.details, fmt.Sprintf("and %d more", p.MoreErrors))
	}
	tooLong := slices.ContainsFunc(p.Errors, func(e client.FieldError) bool { return e.Parameter == "name" })
	if p.Type == client.TypeNotFound || tooLong {
		for _, name := range r.asked {
			if tooLong || strings.Contains(f.message, "there is no job "+name.String()) {
				if near := r.near(name); len(near) > 0 {
					f.hint = "did you mean " + strings.Join(near, " or ") + "?"
				}
				break
			}
		}
	}
	switch {
	case p.Type == client.TypeUnauthenticated && r.person != "":
		f.message = fmt.Sprintf("the session of %s at %s has ended", oneLine(r.person), r.URL())
		f.hint = "sign in again with belfry login, or forget the session with belfry logout"
	case p.Type == client.TypeUnauthenticated:
		if r.tokenFrom == "" {
			f.message = r.URL() + " requires a token"
		} else {
			f.message = fmt.Sprintf("%s refuses the token from %s: %s", r.URL(), r.tokenFrom, f.message)
		}
		f.hint = cmp.Or(r.noToken, p.Hint)
	}
	return f
}

// patienceMax is the number of retries, a second apart, of a request to a server that has
// answered before: it may be restarting.
const patienceMax = 10

// patient repeats a request until there is an answer. The request must be repeatable, and the
// server known to exist.
func (r *remote) patient(ctx context.Context, ask func() error) error {
	for again := 0; ; again++ {
		err := ask()
		if gone := errors.Is(err, client.ErrUnreachable) || client.IsType(err, client.TypeUnavailable); !gone || again == patienceMax {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// insist makes a repeatable request that the server executes once, and repeats it after a lost
// answer. again is how a person repeats it.
func (r *remote) insist(ctx context.Context, again string, ask func(context.Context) error) error {
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	err := ask(traced)
	if !errors.Is(err, client.ErrUnreachable) || !sent.Load() {
		return err
	}
	if err = r.patient(ctx, func() error { return ask(ctx) }); errors.Is(err, client.ErrUnreachable) {
		f := &failure{code: ExitUnreachable, message: fmt.Sprintf("the request was sent, but its outcome is unknown: %v", err)}
		return f.withHint("repeating is safe with %s", again)
	}
	return err
}

// named returns the job that a word names: NAME or NAMESPACE/NAME.
func (r *remote) named(text string) (jobName, error) {
	namespace, name, found := strings.Cut(text, "/")
	if !found {
		namespace, name = r.namespace, text
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return jobName{}, misused("%q is not the name of a job; write NAME or NAMESPACE/NAME", text)
	}
	named := jobName{namespace, name}
	r.asked = append(r.asked, named)
	return named, nil
}

const (
	// nearWithin bounds how long a failure waits for the names of other jobs.
	nearWithin = 2 * time.Second
	// nearMax is the most names that a failure suggests.
	nearMax = 3
	// nearPages is how many pages of jobs a failure reads: nearWithin suffices for 2,000 jobs.
	nearPages = 4
)

// nearJobs returns jobs with names near to a missing one: names that contain it, as imported names with
// a hash do, or names that it begins with, and similar ones.
func (r *remote) nearJobs(missing jobName) []string {
	ctx, cancel := context.WithTimeout(context.Background(), nearWithin)
	defer cancel()
	var near []string
	if page, err := r.Jobs(ctx, client.JobQuery{PageSize: pageSize, Text: missing.name}); err == nil {
		near = slices.DeleteFunc(r.namesIn(page.Page, job.KindJob, "/"), func(name string) bool { return name == missing.String() })
	}
	if len(near) == 0 {
		var names []string
		q := client.JobQuery{PageSize: pageSize}
		for range nearPages {
			page, err := r.Jobs(ctx, q)
			if err != nil {
				break
			}
			names = append(names, r.namesIn(page.Page, job.KindJob, "/")...)
			if q.PageToken = page.NextPageToken; q.PageToken == "" {
				break
			}
		}
		similar := spelling.Near(missing.String(), names)
		near = slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(missing.String(), name) || 2*len(name) < len(missing.String()) || slices.Contains(similar, name)
		})
		slices.SortStableFunc(near, func(a, b string) int { return len(b) - len(a) })
		near = append(similar, near...)
	}
	return near[:min(len(near), nearMax)]
}

func (n jobName) String() string { return n.namespace + "/" + n.name }

// completeWithin bounds how long a shell waits for names.
const completeWithin = 2 * time.Second

// namesOf returns the shell completion of names that a server lists for the typed text, while the
// command accepts more. Without a server it returns none.
func namesOf(env Env, asked *config.Asked, list func(ctx context.Context, server *remote, typed string) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		server, err := connect(env, *asked)
		if err != nil || len(args) > 0 && cmd.ValidateArgs(append(slices.Clone(args), typed)) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		names, err := list(ctx, server, typed)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, typed) || slices.Contains(args, name) })
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}

// jobNames returns the shell completion of job names.
func jobNames(env Env, asked *config.Asked) cobra.CompletionFunc {
	return namesOf(env, asked, func(ctx context.Context, server *remote, typed string) (names []string, err error) {
		page, err := server.Jobs(ctx, client.JobQuery{PageSize: pageSize, Text: typed[strings.LastIndex(typed, "/")+1:]})
		return server.namesIn(page.Page, job.KindJob, typed), err
	})
}

// namesIn returns the names of documents that continue the typed text.
func (r *remote) namesIn(page client.Page[client.Document], kind job.Kind, typed string) (names []string) {
	for _, d := range page.Items {
		read, err := r.read(d, kind)
		if err != nil {
			continue
		}
		name := read.FullName()
		if !strings.Contains(typed, "/") {
			name = strings.TrimPrefix(name, r.namespace+"/")
		}
		names = append(names, name)
	}
	return names
}

// onlyFirst completes the first word of a command alone.
func onlyFirst(names cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd, args, typed)
	}
}

// addJob adds a flag for the name of a job.
func addJob(env Env, cmd *cobra.Command, asked *config.Asked, name *string, usage string) {
	addWord(cmd.Flags(), name, "job", "", "NAME", usage)
	if err := cmd.RegisterFlagCompletionFunc("job", jobNames(env, asked)); err != nil {
		panic(err) // a flag registered twice or not at all
	}
}

// agree asks a person to confirm an action that cannot be undone, in words that begin with a verb.
// Without a terminal only --yes confirms it.
func agree(env Env, yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	question := fmt.Sprintf(format, args...)
	if !env.StdinIsTerminal || !env.StderrIsTerminal {
		what, which, listed := strings.Cut(question, ": ")
		if listed {
			which = ": " + which
		}
		return misused("refusing to %s without confirmation%s; pass --yes", what, which)
	}
	if _, err := fmt.Fprintf(env.Stderr, "%s%s? [y/N] ", strings.ToUpper(question[:1]), printable(question[1:])); err != nil {
		return failed("ask: %v", err)
	}
	answer, err := bufio.NewReader(env.Stdin).ReadString('\n')
	if err != nil && answer == "" {
		answer = "n"
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return failed("cancelled; nothing was changed")
}
