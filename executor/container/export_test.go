package container

import "time"

// WaitForEnd sets the wait for the end of a container after SIGKILL.
func (e *Executor) WaitForEnd(d time.Duration) { e.killWait = d }
