package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

func newSecret(env Env) *cobra.Command {
	cmd := group("secret", "secrets", "Set, list and delete secrets of jobs and channels", "belfry secret set db_password <password.txt\nbelfry secret list")
	cmd.Long = `Set, list and delete secrets: values that jobs and channels of a namespace name and that
are never shown again. A job has them in its environment, in files, in its standard input, or
in a request: {{ .Secret.db_password }}.`
	cmd.AddCommand(newSecretSet(env), newSecretList(env), newSecretDelete(env), newSecretRotate(env), newSecretKey(env))
	return cmd
}

func newSecretSet(env Env) *cobra.Command {
	var (
		asked    config.Asked
		request  client.SecretRequest
		fromFile string
		signing  bool
	)
	cmd := &cobra.Command{
		Use:   "set NAME [flags]",
		Short: "Create or change a secret",
		Long: `Create or change a secret. The value is read from standard input, with a prompt on a
terminal, or from a file; the line break after a single line is removed. Servers encrypt
it before they store it, and never show it again.

With --file, --env or --vault the store keeps only the place of the value, and servers read
it when an attempt starts.

With --signing-key the value is a new key for the signatures of webhooks. It is printed
once, on standard output, for the program that checks the signatures.`,
		Example: `belfry secret set db_password <password.txt
belfry secret set tls_key --from-file key.pem -n web
belfry secret set api_token --vault kv/belfry/web/api#token
belfry secret set hook_key --signing-key`,
		Args: oneName("secret"),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, name, err := connectFor(env, asked, args[0])
			if err != nil {
				return err
			}
			if !job.IsSecretName(name.name) {
				f := misused("%q is not the name of a secret: it has 1 to %d ASCII letters, digits and underscores", name.name, job.SecretNameMax)
				if near := strings.NewReplacer("-", "_", ".", "_", " ", "_").Replace(name.name); job.IsSecretName(near) {
					return f.withHint("did you mean %s?", near)
				}
				return f
			}
			places := 0
			for _, place := range []string{fromFile, request.File, request.Env, request.Vault} {
				if place != "" {
					places++
				}
			}
			if signing {
				places++
			}
			if places > 1 {
				return misused("only one of --from-file, --file, --env, --vault and --signing-key can be given")
			}
			if signing {
				request.Value = signingKey()
				done, err := setSecret(cmd.Context(), server, name, request)
				if err != nil {
					return server.refused(err)
				}
				env.tell("%s", done)
				return write(env, []byte(request.Value+"\n"))
			}
			if request.File+request.Env+request.Vault == "" {
				if request.Value, err = readSecret(env, name, fromFile); err != nil {
					return err
				}
			}
			done, err := setSecret(cmd.Context(), server, name, request)
			if err != nil {
				return server.refused(err)
			}
			return write(env, []byte(done))
		},
	}
	f := cmd.Flags()
	addWord(f, &fromFile, "from-file", "", "FILE", "file of this machine with the value; - is standard input")
	addWord(f, &request.File, "file", "", "NAME", "file of the servers, in the directory of the namespace in notify.secrets")
	addWord(f, &request.Env, "env", "", "NAME", "end of the name of a variable of the servers")
	addWord(f, &request.Vault, "vault", "", "PLACE", "place in Vault, mount/path#field")
	f.BoolVar(&signing, "signing-key", false, "make a key for the signatures of webhooks, and print it")
	addWord(f, &request.Description, "description", "", "TEXT", "what the secret is for")
	addConnection(cmd, &asked)
	return cmd
}

// readSecret reads a value from a file or standard input; on a terminal it prompts.
func readSecret(env Env, name jobName, file string) (string, error) {
	var data []byte
	var err error
	switch stdin, isFile := env.Stdin.(*os.File); {
	case file != "" && file != "-":
		if !filepath.IsAbs(file) {
			file = filepath.Join(env.Dir, file)
		}
		f, err := os.Open(file)
		if err != nil {
			return "", misused("%v", err)
		}
		defer f.Close()
		data, err = io.ReadAll(io.LimitReader(f, job.SecretMax+2))
		if err != nil {
			return "", err
		}
	case file == "" && env.StdinIsTerminal && isFile:
		env.tell("value of %s: ", name)
		data, err = term.ReadPassword(int(stdin.Fd()))
		env.tell("\n")
	default:
		data, err = io.ReadAll(io.LimitReader(env.Stdin, job.SecretMax+2))
	}
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	value := secret.Trim(string(data))
	switch {
	case value == "":
		return "", misused("the value of %s is empty", name)
	case len(value) > job.SecretMax:
		return "", misused("the value of %s has more than %d bytes", name, job.SecretMax)
	case strings.ContainsRune(value, 0):
		return "", misused("the value of %s has a NUL byte, which no variable and no header can hold", name)
	}
	return value, nil
}

// signingKey returns a new key as Standard Webhooks write it.
func signingKey() string {
	key := make([]byte, sha256.Size) // as long as the signature's hash
	_, _ = rand.Read(key)            // crypto/rand never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// setSecret sets a secret, and returns a message.
func setSecret(ctx context.Context, server *remote, name jobName, request client.SecretRequest) (string, error) {
	set, err := server.SetSecret(ctx, name.namespace, name.name, request)
	if err != nil {
		return "", err
	}
	done := "changed"
	if set.Version == 1 {
		done = "created"
	}
	if n := len(request.Value); n > 0 && n < secret.MaskMin {
		server.env.tell("warning: %s has fewer than %d bytes, and is not masked in output\n", name, secret.MaskMin)
	}
	return fmt.Sprintf("secret %s %s\n", name, done), nil
}

func newSecretList(env Env) *cobra.Command {
	return listCommand(env, &cobra.Command{
		Short: "List secrets without their values", Example: "belfry secret list\nbelfry secret list -A -o json",
	}, true, listSecrets)
}

func listSecrets(ctx context.Context, server *remote, namespace, output string) error {
	page, err := server.Secrets(ctx, namespace)
	if err != nil {
		return err
	}
	env := server.env
	return showList(env, output, page.Items, page.NextPageToken, func(s client.SecretInfo) string { return s.FullName() }, func(w io.Writer) {
		var rows [][]string
		for _, s := range page.Items {
			rows = append(rows, []string{s.FullName(), secretSource(&s), fmt.Sprint(s.Version), instant(env, s.Changed), oneLine(s.By), orDash(oneLine(s.Description))})
		}
		table(w, styleFor(env, env.StdoutIsTerminal), []string{"NAME", "VALUE", "VERSION", "CHANGED", "BY", "DESCRIPTION"}, rows)
	})
}

// secretSource describes where the value of a secret is.
func secretSource(s *client.SecretInfo) string {
	switch {
	case s.File != "":
		return "file " + oneLine(s.File)
	case s.Env != "":
		return "env " + oneLine(s.Env)
	case s.Vault != "":
		return "vault " + oneLine(s.Vault)
	}
	return "key " + oneLine(s.Key)
}

func newSecretDelete(env Env) *cobra.Command {
	var (
		asked config.Asked
		yes   bool
	)
	cmd := &cobra.Command{
		Use:     "delete NAME [flags]",
		Aliases: []string{"rm"},
		Short:   "Delete a secret",
		Long:    "Delete a secret. Attempts of jobs that name it fail from then on.",
		Example: "belfry secret delete db_password --yes",
		Args:    oneName("secret"),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			page, err := server.Secrets(ctx, name.namespace)
			if err != nil {
				return err
			}
			exists := false
			for _, s := range page.Items {
				exists = exists || s.Name == name.name
			}
			if exists { // the server says the rest
				if err := agree(env, yes, "delete the secret %s", name); err != nil {
					return err
				}
			}
			if err := server.DeleteSecret(ctx, name.namespace, name.name); err != nil {
				return err
			}
			return write(env, fmt.Appendf(nil, "secret %s deleted\n", name))
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "delete without asking")
	addConnection(cmd, &asked)
	return cmd
}

func newSecretRotate(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:   "rotate [flags]",
		Short: "Seal all secrets with the newest key",
		Long: `Encrypt all secrets of the store with the first key of the server, which rereads its keys.
Before that, add a new key (belfry secret key) at the top of the keys of all servers;
afterwards the older keys can be removed.`,
		Example: "belfry secret rotate",
		Args:    noArguments,
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, _ []string) error {
			done, err := server.RotateSecrets(ctx)
			if err != nil {
				return err
			}
			return showOne(env, output, done, done.Key, func(w io.Writer) {
				fmt.Fprintf(w, "%d secrets were sealed with the key %s; %d had it already, %d are not in the store\n", done.Sealed, oneLine(done.Key), done.Before, done.Elsewhere)
			})
		}),
	}
	addServer(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML)
	return cmd
}

func newSecretKey(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print a new key for secrets",
		Long: `Print a line with a new key, for the file of secrets.key_file or for the output of
secrets.key_command. A server encrypts with its first key and decrypts with all of them.`,
		Example: "(umask 077; belfry secret key >/etc/belfry/secret.key)",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			if env.StdoutIsTerminal {
				return errors.New("the key would stay on the screen: write it to a file, for example (umask 077; belfry secret key >secret.key)")
			}
			return write(env, []byte(secret.NewKey(env.Now())))
		},
	}
}
