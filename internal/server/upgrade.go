package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/sys/fdpass"
)

// ErrUpgrade is the cause that ends the context of Run when the process will execute another
// version of its program.
var ErrUpgrade = executor.ErrCarried

func isUpgrade(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrUpgrade) }

const (
	// carryOverFormat is the format of [CarryOver]. A version with another format must be restarted.
	carryOverFormat = 1
	// upgradeVariable is the message to the next version of the program: the number of the file
	// with a [CarryOver], or a query for its format.
	upgradeVariable = "BELFRY_UPGRADE"
	checkPrefix     = "check:"
	// checkWithin bounds the check of the configuration by the next version.
	checkWithin = 10 * time.Second
	// carryOverMax bounds the carried state: the unstored output of 512 attempts, with a
	// margin.
	carryOverMax = 2 << 30
)

// CarryOver is the running state of a process when it executes another version of its
// program.
type CarryOver struct {
	Format   int                 `json:"format"`
	Version  string              `json:"version"`
	Node     *node.CarryOver     `json:"node"`
	Watchdog *watchdog.CarryOver `json:"watchdog"`
	// Address is the address of the API, or of a worker's probes, and Listener the number of its
	// listening file.
	Address  string `json:"address,omitempty"`
	Listener int    `json:"listener,omitempty"`
}

func (c *CarryOver) node() *node.CarryOver {
	if c == nil {
		return nil
	}
	return c.Node
}

func (c *CarryOver) watchdog() *watchdog.CarryOver {
	if c == nil {
		return nil
	}
	return c.Watchdog
}

// listener returns the listener that is already open for an address, nil for none.
func (c *CarryOver) listener(address string) (net.Listener, error) {
	if c == nil || c.Listener == 0 {
		return nil, nil
	}
	file := fdpass.File(c.Listener, "listener")
	defer file.Close()
	if c.Address != address {
		return nil, nil
	}
	return net.FileListener(file)
}

// carryOver notes what continues, before the listener is closed; nil for nothing.
func (s *Server) carryOver(n *node.CarryOver) {
	if n == nil {
		return
	}
	s.carrying = &CarryOver{Format: carryOverFormat, Version: s.Version, Node: n}
	if s.socket == nil {
		return
	}
	if fd, err := fdpass.Keep(s.socket); err == nil {
		s.carrying.Address, s.carrying.Listener = s.address, fd
	}
}

// closeWatchdog ends the watchdog, or hands it to the next version of the program.
func (s *Server) closeWatchdog() (err error) {
	if s.carrying == nil {
		return s.watchdog.Close()
	}
	if s.carrying.Watchdog, err = s.watchdog.Carry(); err != nil {
		s.Log.Error("cannot carry running commands over to the next version; they are ended", "error", err)
		s.carrying = nil
	}
	return nil
}

// ToCarry returns the state for the next version of the program, or nil. Call it after
// Close.
func (s *Server) ToCarry() *CarryOver { return s.carrying }

// Inherited returns the state of the previous version in this process, or nil. checked is set if
// that version only checks whether this one can continue: then the program must exit.
func Inherited(getenv func(string) string) (c *CarryOver, checked bool, err error) {
	text := getenv(upgradeVariable)
	if text == "" {
		return nil, false, nil
	}
	if format, ok := strings.CutPrefix(text, checkPrefix); ok {
		if format != strconv.Itoa(carryOverFormat) {
			return nil, true, fmt.Errorf("this version cannot continue with the commands of the running one: restart it instead (format %s, want %d)", format, carryOverFormat)
		}
		return nil, true, nil
	}
	if err := os.Unsetenv(upgradeVariable); err != nil {
		return nil, false, err
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd <= 2 {
		return nil, false, fmt.Errorf("%s: %q is not the number of a file", upgradeVariable, text)
	}
	f := fdpass.File(fd, "upgrade")
	defer f.Close()
	c = &CarryOver{}
	if err := json.NewDecoder(io.LimitReader(f, carryOverMax)).Decode(c); err != nil {
		return nil, false, fmt.Errorf("read what the version before has left running: %w", err)
	}
	return c, false, nil
}

// CheckProgram checks whether a program can replace this one, with the same arguments.
func CheckProgram(ctx context.Context, program string) error {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, os.Args[1:]...)
	cmd.Env = append(os.Environ(), upgradeVariable+"="+checkPrefix+strconv.Itoa(carryOverFormat))
	cmd.WaitDelay = time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(output.String()))
	}
	return nil
}

// Program returns the file that this program was started by, where an upgrade has put another
// version.
func Program() (string, error) {
	if strings.Contains(os.Args[0], "/") {
		return filepath.Abs(os.Args[0])
	}
	if path, err := exec.LookPath(os.Args[0]); err == nil {
		return filepath.Abs(path)
	}
	return os.Executable()
}

// Execute replaces this program by another one, which continues with the carried state. It
// returns only on failure.
func (c *CarryOver) Execute(program, data string) error {
	f, err := os.CreateTemp(data, "upgrade-")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return err
	}
	err = json.NewEncoder(f).Encode(c)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("write what is left running: %w", err)
	}
	fd, err := fdpass.Keep(f)
	if err != nil {
		return err
	}
	env := append(os.Environ(), upgradeVariable+"="+strconv.Itoa(fd))
	err = syscall.Exec(program, os.Args, env)
	// If the new file is missing the present program continues: only it can manage its running
	// attempts.
	if again := syscall.Exec("/proc/self/exe", os.Args, env); again != nil {
		return fmt.Errorf("execute %s: %w", program, errors.Join(err, again))
	}
	return nil
}
