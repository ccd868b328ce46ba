// Command conformance starts a worker as a process, plays a server of Belfry to it, good and bad, and says
// which rules of docs/worker-protocol.md the worker breaks:
//
//	go run ./test/conformance [-run PATTERN] [-v] -- COMMAND [ARGUMENT...]
//
// That page says which handlers the worker has. The exit code is 1 if it breaks a rule.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
)

// parallel is how many cases are played at a time: most of a case is waiting.
const parallel = 8

func main() {
	os.Exit(conform(os.Args[1:], os.Stdout))
}

func conform(args []string, out io.Writer) int {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(out)
	pattern := flags.String("run", "", "play only the rules that match the regular expression")
	verbose := flags.Bool("v", false, "print what the worker wrote in cases that it failed, and the names of the others")
	commands := flags.Bool("commands", false, "the worker runs commands instead of handlers")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	only, err := regexp.Compile(*pattern)
	if err != nil || flags.NArg() == 0 {
		fmt.Fprintln(out, "usage: conformance [-run PATTERN] [-v] [-commands] -- COMMAND [ARGUMENT...]")
		return 2
	}
	chosen := choose(only, *commands)
	failed := 0
	for _, v := range playAll(chosen, flags.Args(), options{*commands, patient}) {
		switch {
		case len(v.wrong) > 0:
			failed++
			fmt.Fprintf(out, "FAIL %s\n", v.name)
			for _, text := range v.wrong {
				fmt.Fprintf(out, "     %s\n", text)
			}
			if *verbose {
				fmt.Fprintln(out, v.said)
			}
		case *verbose:
			fmt.Fprintf(out, "ok   %s\n", v.name)
		}
	}
	fmt.Fprintf(out, "%d of %d cases hold\n", len(chosen)-failed, len(chosen))
	if failed > 0 {
		return 1
	}
	return 0
}

// choose returns the rules to play.
func choose(only *regexp.Regexp, commands bool) (chosen []*rule) {
	for i := range rules {
		if only.MatchString(rules[i].name) && !(commands && rules[i].handlers) {
			chosen = append(chosen, &rules[i])
		}
	}
	return chosen
}

// verdict is how a worker keeps a rule.
type verdict struct {
	name  string
	wrong []string
	said  string // by the process
}

// playAll plays rules, some at a time, and returns the verdicts in their order.
func playAll(chosen []*rule, command []string, o options) []verdict {
	verdicts := make([]verdict, len(chosen))
	room := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for i, c := range chosen {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			verdicts[i].name = c.name
			verdicts[i].wrong, verdicts[i].said = play(c, command, o)
		})
	}
	all.Wait()
	return verdicts
}
