package cli

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

const (
	// loginWithin is how long belfry login waits: the life of a sign-in on a server.
	loginWithin = 10 * time.Minute
	// browserWithin bounds a request of a browser on this machine, which takes milliseconds.
	browserWithin = 10 * time.Second
	// codeMax bounds a typed code with blanks around it.
	codeMax = 1024
)

func newLogin(env Env) *cobra.Command {
	var (
		asked     config.Asked
		noBrowser bool
	)
	cmd := &cobra.Command{
		Use:   "login [flags]",
		Short: "Sign in as a person, at the OpenID provider of the server",
		Long: `Sign in as a person. The command opens a page of the server in a browser. There you sign
in at the OpenID provider of the server and allow the command to act as you. Later
commands of this user to this server have your roles, and the audit names you. Without a
terminal the address is only printed.

The session is kept in sessions.json beside the configuration of the client, in a file
that only you can read. It ends with belfry logout, after 12 hours without use, when
oidc.session_for has passed since you signed in, or when an administrator ends it.

The browser must run on this machine: it brings a code to a port of 127.0.0.1. Otherwise
use --no-browser: open the address on any machine, and paste the code that the page shows.

BELFRY_TOKEN and --data take precedence over the session, and the session takes precedence
over the token of a context.`,
		Example: "belfry login --server https://belfry.example.com\nbelfry login --no-browser",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asked.Data != "" {
				return misused("--data is for the token of a server on this machine; name the server with --server")
			}
			server, err := connect(env, asked)
			if err != nil {
				return err
			}
			return login(cmd.Context(), server, noBrowser, asked.Server != "")
		},
	}
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "print the address for a browser on any machine, and read the code that it shows")
	addServer(cmd, &asked)
	return cmd
}

// login begins a session of a person and stores it. named is set if a flag names the server.
func login(ctx context.Context, server *remote, noBrowser, named bool) error {
	env := server.env
	how, err := server.SignIn(ctx)
	if err != nil {
		return server.refused(err)
	}
	page, err := url.Parse(how.URL)
	if err != nil {
		return failed("the sign-in page of %s has no valid address: %v", server.URL(), err)
	}
	// A server must not get a code that is for another one.
	if base, err := url.Parse(server.URL()); err != nil || !sameOrigin(base, page) {
		at := oneLine(page.Scheme + "://" + page.Host)
		f := &failure{code: ExitUsage, message: fmt.Sprintf("people sign in to this server at %s, and the command names it %s", at, server.URL())}
		return f.withHint("belfry login --server %s", at)
	}
	verifier, state := rand.Text()+rand.Text(), rand.Text()
	query := url.Values{"challenge": {auth.Challenge(verifier)}, "state": {state}}
	var code string
	if noBrowser {
		page.RawQuery = query.Encode()
		code, err = typedCode(env, page.String())
	} else {
		code, err = broughtCode(ctx, env, page, query)
	}
	if err != nil {
		return err
	}
	session, err := server.BeginSession(ctx, client.SignInCode{Code: code, Verifier: verifier})
	if client.IsType(err, client.TypeUnauthenticated) {
		return &failure{code: ExitNotAllowed, message: "the code is wrong, was used, or is older than a minute", hint: "run belfry login again"}
	}
	if err != nil {
		return server.refused(err)
	}
	if err := config.KeepSession(server.URL(), config.Session{Token: session.Secret, Person: session.Person}, env.Getenv); err != nil {
		return failed("the session could not be kept: %v", err)
	}
	if env.Getenv("BELFRY_TOKEN") != "" {
		env.tell("BELFRY_TOKEN is set and takes precedence over the session; unset it\n")
	}
	if named {
		env.tell("other commands use the session with --server or BELFRY_SERVER=%s\n", server.URL())
	}
	return write(env, fmt.Appendf(nil, "signed in to %s as %s, %s, until %s\n", server.URL(), oneLine(session.Person), oneLine(session.Roles), instant(env, session.Expires)))
}

// sameOrigin reports whether two addresses belong to one server.
func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// typedCode asks for the code on a page.
func typedCode(env Env, address string) (string, error) {
	env.tell("Open this address in a browser, on any machine:\n\n%s\n\nCode: ", address)
	line, err := bufio.NewReader(io.LimitReader(env.Stdin, codeMax)).ReadString('\n')
	if code := strings.TrimSpace(line); code != "" {
		return code, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return "", misused("there is no code on standard input")
	}
	return "", failed("read the code: %v", err)
}

// broughtCode opens the page and waits until the browser brings the code to this machine.
func broughtCode(ctx context.Context, env Env, page *url.URL, query url.Values) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", failed("%v", err).withHint("use --no-browser")
	}
	codes := make(chan string, 1)
	s := &http.Server{
		ReadHeaderTimeout: browserWithin, ReadTimeout: browserWithin, WriteTimeout: browserWithin,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			values := r.URL.Query()
			if r.URL.Path != "/" || values.Get("state") != query.Get("state") || values.Get("code") == "" {
				http.Error(w, "this is not the answer to belfry login", http.StatusBadRequest)
				return
			}
			_, _ = io.WriteString(w, "belfry login continues in the terminal. You can close this page.\n")
			select {
			case codes <- values.Get("code"):
			default: // the browser has reloaded the page
			}
		}),
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		// The answer to the browser may be on its way.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
		<-served
	}()
	query.Set("port", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	page.RawQuery = query.Encode()
	env.tell("Open this address in a browser on this machine, if none opens:\n\n%s\n\n", page)
	ctx, cancel := context.WithTimeoutCause(ctx, loginWithin, os.ErrDeadlineExceeded)
	defer cancel()
	unopened := make(chan string, 1)
	if env.StdoutIsTerminal {
		go func() {
			// Without a desktop xdg-open is the browser, and may outlive this command.
			if program, err := openBrowser(context.WithoutCancel(ctx), page.String()); err != nil {
				unopened <- program
			}
		}()
	}
	for {
		select {
		case code := <-codes:
			return code, nil
		case program := <-unopened:
			env.tell("no browser could be opened with %s; if the browser is on another machine, use --no-browser\n", program)
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), os.ErrDeadlineExceeded) {
				return "", &failure{code: ExitTimedOut, message: fmt.Sprintf("the sign-in was not finished within %s", job.Duration(loginWithin).InWords())}
			}
			return "", &failure{code: ExitInterrupted, message: "interrupted"}
		}
	}
}

func newLogout(env Env) *cobra.Command {
	var asked config.Asked
	cmd := &cobra.Command{
		Use:     "logout [flags]",
		Short:   "End the session that belfry login began",
		Long:    "End the session at a server that belfry login began, and forget it on this machine.",
		Example: "belfry logout --server https://belfry.example.com",
		Args:    noArguments,
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, _ []string) error {
			return logout(ctx, server)
		}),
	}
	addServer(cmd, &asked)
	return cmd
}

// logout ends the session at a server, independent of other commands' tokens.
func logout(ctx context.Context, server *remote) error {
	session, err := config.SessionAt(server.URL(), server.env.Getenv)
	if err != nil {
		return failed("%v", err)
	}
	if session.Token == "" {
		return &failure{code: ExitNotFound, message: fmt.Sprintf("there is no session at %s", server.URL()), hint: "belfry login begins one"}
	}
	own, err := client.New(client.Config{URL: server.URL(), Token: session.Token, UserAgent: userAgent()})
	if err != nil {
		return failed("%v", err)
	}
	// A session that has ended is only forgotten.
	if err := own.EndSession(ctx); err != nil && !client.IsType(err, client.TypeUnauthenticated) {
		return server.refused(err)
	}
	if err := config.KeepSession(server.URL(), config.Session{}, server.env.Getenv); err != nil {
		return failed("the session has ended and could not be forgotten: %v", err)
	}
	return write(server.env, fmt.Appendf(nil, "signed out of %s\n", server.URL()))
}
