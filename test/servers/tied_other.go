//go:build !linux

package servers

import "os/exec"

// startTied starts a server. If this process is killed, somebody has to end it.
func startTied(cmd *exec.Cmd) error { return cmd.Start() }
