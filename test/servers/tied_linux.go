package servers

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startTied starts a server that ends with this process, however that ends. What
// the system looks at is the thread that has started it: so that has to stay.
func startTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		select {} // the thread is kept as long as the process lives
	}()
	return <-started
}
