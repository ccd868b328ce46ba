package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// systemd reports the server's state to the service manager, by the protocol of sd_notify:
// lines of text to a socket named in the environment. The zero value has no manager and
// sends nothing.
type systemd struct {
	socket string
	// within is the manager's watchdog interval; 0 for none.
	within time.Duration
	// continues is set in a version that replaced another one: the manager knows the process as
	// ready, and expects that message again.
	continues bool
	log       *slog.Logger
}

// systemdOf reads the manager's variables in the environment.
func systemdOf(getenv func(string) string, log *slog.Logger) systemd {
	d := systemd{socket: getenv("NOTIFY_SOCKET"), log: log}
	if pid := getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return d // it is about another process
	}
	if usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
		d.within = time.Duration(usec) * time.Microsecond
	}
	return d
}

// tellWithin is how long a manager may take to accept a line. A healthy manager reads at once, and
// a stopping server must not wait for it.
const tellWithin = time.Second

// tell sends a state. A manager that does not read it does not stop the server.
func (d *systemd) tell(state string) {
	if d.socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: d.socket, Net: "unixgram"})
	if err == nil {
		if err = conn.SetWriteDeadline(time.Now().Add(tellWithin)); err == nil {
			_, err = conn.Write([]byte(state))
		}
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		d.log.Debug("cannot notify systemd", "state", state, "error", err)
	}
}

// Startup work may take longer than the manager's timeout: upgrading a large database, or reading a
// million jobs.
const (
	startingEvery  = 10 * time.Second
	startingWithin = 60 * time.Second // for a machine that stalls for a while
)

// starting reports progress of the start, until ctx ends.
func (d *systemd) starting(ctx context.Context) {
	if d.socket == "" {
		return
	}
	ticker := time.NewTicker(startingEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if d.continues {
			d.tell("WATCHDOG=1")
		}
		d.tell("EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(startingWithin.Microseconds(), 10))
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// run notifies systemd when the server is ready, after a call of started, when it stops
// because ctx ends, and, until it has stopped, that all is well. well returns while the
// parts of the server work; if it outlives its context they do not.
func (d *systemd) run(ctx context.Context, ready, stopped <-chan struct{}, started func(), well func(context.Context) error) {
	if d.socket == "" {
		return
	}
	var alive <-chan time.Time
	every := d.within / 2
	if every > 0 {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		alive = ticker.C
	}
	stopping, failing := ctx.Done(), false
	for {
		select {
		case <-stopped:
			return
		case <-ready:
			started()
			d.tell("READY=1")
			ready = nil
		case <-stopping:
			if isUpgrade(ctx) {
				d.tell("RELOADING=1") // until the next version is ready
			} else {
				d.tell("STOPPING=1")
			}
			stopping = nil
		case <-alive:
			if ctx.Err() == nil {
				within, cancel := context.WithTimeout(ctx, every)
				err := well(within)
				cancel()
				// An error of the store is an answer, for which a restart is no remedy.
				late := errors.Is(err, context.DeadlineExceeded)
				if late && !failing {
					d.log.Error("the planner does not respond: not notifying the systemd watchdog, which will restart this server")
				}
				if failing = late; late {
					continue
				}
			}
			d.tell("WATCHDOG=1")
		}
	}
}
