package cli

import (
	"context"
	"log/slog"

	"github.com/belfry-cron/belfry/internal/server"
)

// upgrades returns a function that decides about a signal to upgrade: the new version must be able
// to read the configuration. Until then the process continues as it is.
func upgrades(log *slog.Logger, opened func() bool) func(context.Context) bool {
	return func(ctx context.Context) bool {
		if !opened() {
			log.Warn("cannot upgrade while the server starts; send the signal again")
			return false
		}
		program, err := server.Program()
		if err == nil {
			err = server.CheckProgram(ctx, program)
		}
		if err != nil {
			log.Error("cannot upgrade; this version continues", "error", err)
			return false
		}
		return true
	}
}

// inherited returns the state of the previous version, and whether that version only requested a
// check of the configuration, which is done.
func inherited(env Env) (c *server.CarryOver, checked bool, err error) {
	c, checked, err = server.Inherited(env.Getenv)
	if err != nil {
		return nil, checked, failed("%v", err)
	}
	return c, checked, nil
}

// continueAs executes the next version of the program, if there is state to continue.
func continueAs(c *server.CarryOver, data string, log *slog.Logger) error {
	if c == nil {
		return nil
	}
	program, err := server.Program()
	if err == nil {
		log.Info("executing the new version", "program", program, "attempts", len(c.Node.Attempts))
		err = c.Execute(program, data)
	}
	if err != nil {
		return failed("cannot upgrade, and the commands that ran are ended: %v", err)
	}
	return nil
}
