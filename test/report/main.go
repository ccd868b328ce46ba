// Command report runs a command that prints the output of go test -json, shows what a person
// needs of it, and ends with one line. If tests fail, it lists them with the
// commands that run each of them again.
//
// It knows nothing about the tests; make test does.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: report COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	// Ctrl-C ends the command, and the report says what has failed until then.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	began := time.Now()
	r := newReport(os.Stdout)
	err := r.run(exec.Command(os.Args[1], os.Args[2:]...))
	if !r.finish(os.DirFS("."), time.Since(began), err) {
		os.Exit(1)
	}
}

// run reads the output of a command until it ends.
func (r *report) run(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
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
