// Package helptest is for tests based on the help of the program.
package helptest

import "strings"

// Commands returns the commands without subcommands, with their help, which help returns for the
// words of a command.
func Commands(help func(words []string) string) map[string]string {
	found := map[string]string{}
	var walk func(name string)
	walk = func(name string) {
		text := help(append(strings.Fields(name), "--help"))
		_, list, group := strings.Cut(text, "\nCommands:\n")
		if !group {
			found[strings.TrimSpace(name)] = text
			return
		}
		list, _, _ = strings.Cut(list, "\n\n")
		for line := range strings.Lines(list) {
			walk(name + " " + strings.Fields(line)[0])
		}
	}
	walk("")
	return found
}

// Formats returns the output formats of a command, from its help.
func Formats(help string) []string {
	_, list, found := strings.Cut(strings.Join(strings.Fields(help), " "), "format of the output: ")
	if !found {
		return nil
	}
	list, _, _ = strings.Cut(list, " (default")
	return strings.Split(list, ", ")
}
