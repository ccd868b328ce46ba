package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/cli"
)

var (
	// typed is a command of belfry in a line for a shell: first, after another one, in one, or in a container.
	typed = regexp.MustCompile(`(?m)(?:^ *|[|;&] +|\$\(|-- |[A-Z]=\S+ )(belfry [a-z](?:'[^']*'|"[^"]*"|[^\n|;&<>()#'"])*)`)
	// inText is a command of belfry in a sentence.
	inText = regexp.MustCompile("`(belfry [a-z][^`]*)`")
	word   = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
)

// The commands in all documents have the words, flags and arguments that the program takes.
func TestCommandsInDocumentsCanBeTyped(t *testing.T) {
	found := 0
	for _, name := range append(documents(t), "docs/compose.yaml", "docs/alerts.yaml") {
		if strings.HasPrefix(name, "docs/decisions/") {
			continue // they are as they were decided
		}
		text := strings.ReplaceAll(readDocument(t, name), "\\\n", " ")
		var list []string
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
			kind, how, _ := strings.Cut(block[2], " ")
			if kind != "sh" && kind != "crontab" || strings.Contains(how, "fails") {
				continue
			}
			for _, match := range typed.FindAllStringSubmatch(block[3], -1) {
				list = append(list, match[1])
			}
		}
		for _, match := range inText.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			list = append(list, match[1])
		}
		for _, command := range list {
			found++
			if problem := untypable(command); problem != "" {
				t.Errorf("%s: %s: %s", name, command, problem)
			}
		}
	}
	if found < 300 {
		t.Errorf("%d commands were found in the documents", found)
	}
	for _, wrong := range []string{"belfry job crate a", "belfry job list --nowhere", "belfry job get a b", "belfry"} {
		if untypable(wrong) == "" {
			t.Errorf("%q can be typed", wrong)
		}
	}
}

// untypable says what is wrong with a command; "" if nothing is. Dots stand for what a reader puts in.
func untypable(command string) string {
	command, _, _ = strings.Cut(command, " >")
	words := word.FindAllString(command, -1)
	for i := range words {
		words[i] = strings.ReplaceAll(strings.Trim(words[i], `'"`), "…", "a=b")
	}
	root := cli.Commands()
	cmd, rest, err := root.Find(words[1:])
	if err != nil {
		return err.Error()
	}
	if cmd == root || cmd.HasSubCommands() && len(rest) > 0 {
		return "there is no such command"
	}
	// In sentences a command may stand for itself, without its arguments or the value of its last flag.
	if err := cmd.ParseFlags(rest); err != nil {
		if strings.HasPrefix(err.Error(), "flag needs an argument: ") {
			return ""
		}
		return err.Error()
	}
	if args := cmd.Flags().Args(); len(args) > 0 {
		if err := cmd.ValidateArgs(args); err != nil {
			return err.Error()
		}
	}
	return ""
}
