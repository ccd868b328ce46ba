package cli

import (
	"bytes"
	"context"
	"html/template"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/server/config"
)

func newUI(env Env) *cobra.Command {
	var (
		asked  config.Asked
		noOpen bool
	)
	cmd := &cobra.Command{
		Use:   "ui [flags]",
		Short: "Open the web UI, signed in",
		Long: `Open the web UI in a browser, signed in with the token of this command, and print its
address. The address works once and for a minute. Without a terminal it is only printed.
The browser receives the address in a file that only its user can read, which is removed
after 20 s.`,
		Example: "belfry ui\nbelfry ui --no-open",
		Args:    noArguments,
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, _ []string) error {
			return openUI(ctx, server, !noOpen && env.StdoutIsTerminal)
		}),
	}
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "only print the address")
	addServer(cmd, &asked)
	return cmd
}

// openUI prints the address of the web UI, and opens it.
func openUI(ctx context.Context, server *remote, open bool) error {
	code, err := server.LoginCode(ctx)
	if err != nil {
		return err
	}
	address := server.URL() + "/ui/login#" + code.Code
	if _, err := io.WriteString(server.env.Stdout, address+"\n"); err != nil {
		return failed("write: %v", err)
	}
	if !open {
		return nil
	}
	return openPrivately(ctx, server.env, address)
}

// pageFor is how long the page with the code is kept: on a busy machine a browser may read it after
// its opener has ended.
const pageFor = 20 * time.Second

// privatePage leads a browser to an address.
var privatePage = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={{.}}">
<title>Belfry</title>
<p><a href="{{.}}">Open the web UI of Belfry</a>
`))

// openPrivately opens an address in a browser through a private file, since every user of the
// machine sees the arguments of programs.
func openPrivately(ctx context.Context, env Env, address string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	const name = "belfry-ui-"
	dir, err := os.MkdirTemp(env.Getenv("XDG_RUNTIME_DIR"), name) // with the mode 0700
	if err != nil {
		dir, err = os.MkdirTemp("", name)
	}
	if err != nil {
		return failed("make a directory for the page that leads to the web UI: %v", err)
	}
	defer os.RemoveAll(dir)
	var page bytes.Buffer
	if err := privatePage.Execute(&page, address); err != nil {
		return failed("make the page that leads to the web UI: %v", err)
	}
	file := filepath.Join(dir, "open.html")
	if err := os.WriteFile(file, page.Bytes(), 0o600); err != nil {
		return failed("write the page that leads to the web UI: %v", err)
	}
	unopened := make(chan string, 1)
	go func() {
		// Without a desktop xdg-open is the browser, and may outlive this command.
		if program, err := openBrowser(context.WithoutCancel(ctx), "file://"+(&url.URL{Path: file}).EscapedPath()); err != nil {
			unopened <- program
		}
	}()
	enough := time.NewTimer(pageFor)
	defer enough.Stop()
	select {
	case program := <-unopened:
		env.tell("no browser could be opened with %s; open the address within a minute\n", program)
	case <-enough.C:
	case <-ctx.Done():
	}
	return nil
}

// openBrowser opens an address in a browser, with the program that it returns.
func openBrowser(ctx context.Context, address string) (program string, err error) {
	program = "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	return program, exec.CommandContext(ctx, program, address).Run()
}
