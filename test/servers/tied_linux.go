package servers

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startTied starts a server that ends with this process, however that ends. The system ties it to
// the starting thread, which has to stay.
func startTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		select {} // keeps the thread as long as the process lives
	}()
	return <-started
}
