//go:build !linux

package servers

import "os/exec"

// startTied starts a server. If this process is killed, the server has to be ended by hand.
func startTied(cmd *exec.Cmd) error { return cmd.Start() }
