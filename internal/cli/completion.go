package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// shells are those that completion knows.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func newCompletion(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "completion " + strings.Join(shells, "|"),
		Short: "Print what makes a shell complete commands and flags",
		Long: `Print a script that makes a shell complete commands, flags and their values, time
zones included.`,
		Example: `source <(belfry completion bash)                # this session
belfry completion bash > /etc/bash_completion.d/belfry
belfry completion zsh > "${fpath[1]}/_belfry"
belfry completion fish > ~/.config/fish/completions/belfry.fish
belfry completion powershell | Out-String | Invoke-Expression`,
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return misused("the name of one shell is wanted: %s", strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			var b bytes.Buffer
			var err error
			switch args[0] {
			case "bash":
				err = root.GenBashCompletionV2(&b, true)
			case "zsh":
				err = root.GenZshCompletion(&b)
			case "fish":
				err = root.GenFishCompletion(&b, true)
			case "powershell":
				err = root.GenPowerShellCompletionWithDesc(&b)
			default:
				f := misused("unknown shell %q, allowed is %s", args[0], strings.Join(shells, ", "))
				f.hint = didYouMean(args[0], "", shells)
				return f
			}
			if err != nil {
				return fmt.Errorf("make the completion for %s: %w", args[0], err)
			}
			return write(env, b.Bytes())
		},
	}
}
