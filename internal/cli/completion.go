package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// shells are the shells with completion.
var shells = []string{"bash", "zsh", "fish", "powershell"}

// bashWithoutPackage has the functions of the package bash-completion that the script of
// the command library calls, for a bash without that package. The script never splits words
// at = or :, which are their only features in use.
const bashWithoutPackage = `if ! declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
    _get_comp_words_by_ref()
    {
        local line="${COMP_LINE:0:COMP_POINT}"
        read -ra words <<< "$line"
        [[ $line == *[[:space:]] ]] && words+=("")
        cword=$((${#words[@]} - 1))
        cur="${words[cword]}"
        prev=""
        ((cword > 0)) && prev="${words[cword - 1]}"
        return 0
    }
fi
if ! declare -F __ltrim_colon_completions >/dev/null 2>&1; then
    __ltrim_colon_completions()
    {
        [[ $1 == *:* && $COMP_WORDBREAKS == *:* ]] || return 0
        local i prefix="${1%"${1##*:}"}"
        for i in "${!COMPREPLY[@]}"; do
            COMPREPLY[i]="${COMPREPLY[i]#"$prefix"}"
        done
    }
fi

`

func newCompletion(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "completion " + strings.Join(shells, "|"),
		Short: "Print the completion script for a shell",
		Long: `Print a script with which a shell completes commands, flags and their values,
including time zones.`,
		Example: `source <(belfry completion bash)                # this session
belfry completion bash > /etc/bash_completion.d/belfry
belfry completion zsh > "${fpath[1]}/_belfry"
belfry completion fish > ~/.config/fish/completions/belfry.fish
belfry completion powershell | Out-String | Invoke-Expression`,
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return misused("name one shell: %s", strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			var b bytes.Buffer
			var err error
			switch args[0] {
			case "bash":
				b.WriteString(bashWithoutPackage)
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
