package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

func newHook(env Env) *cobra.Command {
	k := setKind{
		kind: job.KindHook, about: "Calls of its address start nothing then. Its secret stays.", example: "deploy",
		head: []string{"NAME", "JOB", "FROM", "SECRET", "PAUSED", "ADDRESS", "DESCRIPTION"},
		row: func(d job.Document) []string {
			h := d.Hook
			paused := "-"
			if h.Paused {
				paused = "yes"
			}
			return []string{d.FullName(), h.Job, string(h.From), h.Secret, paused, h.Address(), orDash(h.Description)}
		},
		list: (*client.Client).Hooks, get: (*client.Client).Hook, remove: (*client.Client).DeleteHook,
	}
	cmd := newSet(env, k)
	cmd.Short = "Create, list, show, rotate and delete hooks"
	cmd.Long = `Create, list, show, rotate and delete hooks. A hook starts a job for another program, such
as GitHub, GitLab, Stripe or any sender of Standard Webhooks, when a request to its address
proves that the sender knows a secret. belfry apply creates and updates hooks as well.`
	for _, verb := range cmd.Commands() {
		if verb.Name() == "get" {
			verb.Aliases = []string{"show"}
		}
	}
	cmd.AddCommand(newHookCreate(env, k), newHookRotate(env, k))
	return cmd
}

// shownHook is a hook with what is shown once.
type shownHook struct {
	Hook   string `json:"hook"`
	URL    string `json:"url"`
	Secret string `json:"secret,omitempty"`
}

func newHookCreate(env Env, k setKind) *cobra.Command {
	var (
		asked  config.Asked
		hook   job.Hook
		output string
	)
	from := string(job.HookStandard)
	cmd := &cobra.Command{
		Use:   "create NAME --job JOB [flags]",
		Short: "Create a hook, and show its address and secret",
		Long: `Create a hook, and show its address and its secret, which is shown only now. The secret
is stored as hook_NAME in the namespace, encrypted as all secrets are. With --secret the
hook has a secret that exists, such as the one that Stripe has made.

--param and --if are templates of the call: {{ .Body.key }} is a value of its body, and
{{ .Header.x_github_event }} a header.`,
		Example: `belfry hook create deploy --job deploy --from github --if '{{ eq .Body.ref "refs/heads/main" }}' --param 'commit={{ .Body.after }}'
belfry hook create nightly --job report --from url
belfry secret set stripe_key && belfry hook create paid --job invoice --from stripe --secret stripe_key`,
		Args: oneName(string(job.KindHook)),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			h := hook
			h.Namespace, h.Name, h.From = name.namespace, name.name, job.HookForm(from)
			return createHook(ctx, server, k, name, &h, output)
		}),
	}
	f := cmd.Flags()
	addWord(f, &hook.Job, "job", "", "JOB", "the job of the namespace that a call starts")
	addChoice(cmd, &from, "from", "", "how callers prove that they know the secret", job.HookForm("").Values()...)
	addWord(f, &hook.Secret, "secret", "", "NAME", "a secret that exists; else a new one is made")
	addWord(f, &hook.If, "if", "", "TEMPLATE", "start a run only if this is true")
	f.VarP((*labels)(&hook.Params), "param", "p", "template of a parameter: KEY=TEMPLATE; may be repeated")
	f.StringArrayVar(&hook.Allow, "allow", nil, "address, or CIDR, from which calls are taken; may be repeated; else any address")
	addWord(f, &hook.Description, "description", "", "TEXT", "what the hook is for")
	addConnection(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML)
	return cmd
}

func createHook(ctx context.Context, server *remote, k setKind, name jobName, h *job.Hook, output string) error {
	switch {
	case h.Job == "":
		return misused("--job is missing").withHint("belfry hook create %s --job JOB", name.name)
	case h.From == job.HookStripe && h.Secret == "":
		return misused("--secret is missing: Stripe makes the secret of an endpoint").withHint("belfry secret set stripe_key, then --secret stripe_key")
	}
	switch _, err := k.get(server.Client, ctx, name.namespace, name.name); {
	case err == nil:
		f := failed("the hook %s exists", name).withHint("belfry hook rotate gives it another secret, and belfry apply changes it")
		f.code = ExitConflict
		return f
	case !client.IsType(err, client.TypeNotFound):
		return err
	}
	value := ""
	if h.Secret == "" {
		h.Secret = "hook_" + strings.NewReplacer("-", "_", ".", "_").Replace(name.name)
		there, err := server.Secrets(ctx, name.namespace)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(there.Items, func(s client.SecretInfo) bool { return s.Name == h.Secret }) {
			return failed("the secret %s exists", h.Secret).withHint("--secret %s uses it", h.Secret)
		}
		if value, err = newHookSecret(ctx, server, h); err != nil {
			return err
		}
	}
	sent, err := client.DocumentOf(job.Document{Kind: job.KindHook, Hook: h}.Bare())
	if err != nil {
		return err
	}
	if _, err := server.Apply(ctx, client.Apply{Documents: []client.Document{sent}}); err != nil {
		if value != "" {
			err = cmp.Or(server.DeleteSecret(ctx, name.namespace, h.Secret), err)
		}
		return err
	}
	return showHook(ctx, server, k, name, value, output)
}

// newHookSecret gives the secret of a hook a new value.
func newHookSecret(ctx context.Context, server *remote, h *job.Hook) (string, error) {
	value := signingKey()
	if h.From != job.HookStandard {
		random := make([]byte, 32) // as many as the signature has
		_, _ = rand.Read(random)   // crypto/rand never fails
		value = hex.EncodeToString(random)
	}
	_, err := server.SetSecret(ctx, cmp.Or(h.Namespace, job.DefaultNamespace), h.Secret, client.SecretRequest{Value: value, Description: "hook " + h.FullName()})
	return value, err
}

// showHook shows the address of a hook, and its new secret if there is one.
func showHook(ctx context.Context, server *remote, k setKind, name jobName, value, output string) error {
	d, err := k.get(server.Client, ctx, name.namespace, name.name)
	if err != nil {
		return err
	}
	read, err := server.read(d, job.KindHook)
	if err != nil {
		return err
	}
	address := strings.TrimSuffix(server.URL(), "/") + read.Hook.Address()
	if read.Hook.From == job.HookURL && value != "" {
		address, value = strings.TrimSuffix(address, "SECRET")+value, ""
	}
	return showOne(server.env, output, shownHook{name.String(), address, value}, address, func(w io.Writer) {
		fmt.Fprintln(w, address)
		if value != "" {
			fmt.Fprintln(w, value)
		}
	})
}

func newHookRotate(env Env, k setKind) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:   "rotate NAME [flags]",
		Short: "Give a hook another secret, and show it",
		Long: `Give the secret of a hook another value, and show it, only now. Calls with the value
before are refused from then on. The address stays, unless it contains the secret.`,
		Example: "belfry hook rotate deploy",
		Args:    oneName(string(job.KindHook)),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			d, err := k.get(server.Client, ctx, name.namespace, name.name)
			if err != nil {
				return err
			}
			read, err := server.read(d, job.KindHook)
			if err != nil {
				return err
			}
			if read.Hook.From == job.HookStripe {
				return failed("Stripe makes the secret of the hook %s", name).withHint("roll it there, then belfry secret set %s", read.Hook.Secret)
			}
			value, err := newHookSecret(ctx, server, read.Hook)
			if err != nil {
				return err
			}
			return showHook(ctx, server, k, name, value, output)
		}),
	}
	addConnection(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML)
	cmd.ValidArgsFunction = setNames(env, &asked, k)
	return cmd
}
