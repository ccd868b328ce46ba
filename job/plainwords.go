package job

import "strings"

// PlainWords returns the words of a command that a shell would only split at blanks and
// execute, and whether the command is such. It is if
//
//   - it consists of letters, digits and _ . / : , + @ % = - and of blanks
//     between words: no quotes, variables, patterns, redirections or lists;
//   - its first word is not an assignment, an option or a job (%1),
//   - and is nothing that shells know themselves: what they do then may differ
//     from the program of that name, such as echo.
//
// When in doubt, a command is for the shell.
func PlainWords(command string) ([]string, bool) {
	command = strings.Trim(command, " \t\n")
	for i := range len(command) {
		if !plain[command[i]] {
			return nil, false
		}
	}
	words := strings.FieldsFunc(command, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) == 0 || strings.ContainsAny(words[0], "=%") || words[0][0] == '-' || shellWords[words[0]] {
		return nil, false
	}
	return words, true
}

// plain are the characters without a special meaning to a shell anywhere in a word.
var plain = func() (set [256]bool) {
	const characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,+@%=- \t"
	for i := range len(characters) {
		set[characters[i]] = true
	}
	return set
}()

// shellWords are the builtins and reserved words of dash, bash, ksh, zsh and
// busybox, any of which may be sh.
var shellWords = func() map[string]bool {
	set := map[string]bool{}
	for _, word := range strings.Fields(`
		. : alias autoload bg bind bindkey break builtin bye caller case cd chdir command compgen
		complete compopt continue coproc declare dirs disable disown do done echo echotc
		elif else emulate enable esac eval exec exit export false fc fg fi float for foreach
		function functions getln getopts hash help hist history if in integer jobs kill let
		limit local log logout mapfile nameref newgrp nocorrect noglob popd print printf
		private pushd pushln pwd r read readarray readonly rehash repeat return sched
		select set setopt shift shopt source stat suspend test then time times trap true
		ttyctl type typeset ulimit umask unalias unfunction unhash unlimit unset unsetopt
		until vared wait whence where which while zmodload`) {
		set[word] = true
	}
	return set
}()
