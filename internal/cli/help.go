package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// printHelp writes the help of a command: its purpose, use, examples, and flags with defaults.
func printHelp(env Env, cmd *cobra.Command) error {
	s := styleFor(env, env.StdoutIsTerminal)
	var b strings.Builder
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	fmt.Fprintf(&b, "%s\n", about)

	usage := cmd.UseLine()
	if cmd.HasSubCommands() {
		usage = cmd.CommandPath() + " COMMAND [flags]"
		if strings.Contains(cmd.Use, " ") { // it does something alone as well
			usage = cmd.UseLine() + "\n  " + usage
		}
	}
	fmt.Fprintf(&b, "\n%s\n  %s\n", s.strong("Usage:"), usage)

	if cmd.HasExample() {
		fmt.Fprintf(&b, "\n%s\n", s.strong("Examples:"))
		for line := range strings.Lines(cmd.Example) {
			fmt.Fprintf(&b, "  %s", line)
		}
		b.WriteByte('\n')
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s\n", s.strong("Commands:"))
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s  %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	if flags := flagLines(cmd.Flags()); flags != "" {
		fmt.Fprintf(&b, "\n%s\n%s", s.strong("Flags:"), flags)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s COMMAND --help says more about a command.\n", cmd.CommandPath())
	}
	return write(env, []byte(b.String()))
}

// flagLines describes flags, one in a line, with their values and defaults.
func flagLines(flags *pflag.FlagSet) string {
	type row struct{ left, right string }
	var rows []row
	width := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		left := "    --" + f.Name
		if f.Shorthand != "" {
			left = "-" + f.Shorthand + ", --" + f.Name
		}
		right := f.Usage
		if kind := f.Value.Type(); kind != "bool" {
			// Lists of words are too long for the left column.
			if words := strings.Split(kind, "|"); len(words) > 1 {
				right += ": " + strings.Join(words, ", ")
				kind = strings.ToUpper(f.Name)
			}
			left += " " + kind
			if f.DefValue != "" && f.DefValue != "[]" {
				right += fmt.Sprintf(" (default %s)", f.DefValue)
			}
		}
		width = max(width, len(left))
		rows = append(rows, row{left, right})
	})
	var b strings.Builder
	for _, r := range rows {
		left := r.left
		for _, line := range wrapText(r.right, helpWidth-width-4) {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, left, line)
			left = ""
		}
	}
	return b.String()
}

// helpWidth is the width of the narrowest common terminal.
const helpWidth = 80

// wrapText breaks a text into lines of at most n bytes, where it has blanks.
func wrapText(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// newHelp returns "belfry help COMMAND".
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND]",
		Short:  "Show help for a command",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return helpOn(cmd.Root(), args)
		},
	}
}

// helpOn prints the help of a command, or of a subcommand named by words.
func helpOn(cmd *cobra.Command, words []string) error {
	target, rest, err := cmd.Find(words)
	if err != nil || len(rest) > 0 {
		return unknownCommand(cmd, words[:1])
	}
	return target.Help()
}
