// Command report runs commands that print the output of go test -json, all at once, shows the
// relevant parts, and ends with one line. If tests fail, it lists them with the commands that run
// each of them again, and it lists the skipped tests with their reasons. The commands are separated
// by --.
//
// It knows nothing about the tests; make test does.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"time"
)

func main() {
	commands := split(os.Args[1:])
	if len(commands) == 0 {
		fmt.Fprintln(os.Stderr, "usage: report COMMAND [ARGUMENT...] [-- COMMAND [ARGUMENT...]]...")
		os.Exit(2)
	}
	// Ctrl-C ends the commands, and the report lists the failures so far.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	began := time.Now()
	r := newReport(os.Stdout)
	err := r.run(commands)
	if !r.finish(os.DirFS("."), time.Since(began), err) {
		os.Exit(1)
	}
}

// split divides arguments into commands.
func split(args []string) (commands [][]string) {
	for len(args) > 0 {
		n := slices.Index(args, "--")
		if n < 0 {
			n = len(args)
		}
		if n > 0 {
			commands = append(commands, args[:n])
		}
		args = args[min(n+1, len(args)):]
	}
	return commands
}

// run starts the commands and reads their output until all have ended.
func (r *report) run(commands [][]string) error {
	errs := make([]error, len(commands))
	var all sync.WaitGroup
	for i, command := range commands {
		all.Go(func() { errs[i] = r.follow(exec.Command(command[0], command[1:]...)) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// follow starts a command and reads its output until it ends.
func (r *report) follow(cmd *exec.Cmd) error {
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.line(line)
		}
		if err == io.EOF {
			return cmd.Wait()
		}
		if err != nil {
			return err
		}
	}
}
