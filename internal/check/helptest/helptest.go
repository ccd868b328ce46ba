// Package helptest is for tests that go by what the help of the program says.
package helptest

import "strings"

// Commands returns the commands that have none below them, with their help, which is asked
// for by the words of a command.
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

// Formats are those in which a command prints its answer, by its help.
func Formats(help string) []string {
	_, list, found := strings.Cut(strings.Join(strings.Fields(help), " "), "format of the output: ")
	if !found {
		return nil
	}
	list, _, _ = strings.Cut(list, " (default")
	return strings.Split(list, ", ")
}
