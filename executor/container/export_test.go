package container

import "time"

// WaitForEnd sets how long the end of a container is waited for after SIGKILL.
func (e *Executor) WaitForEnd(d time.Duration) { e.killWait = d }
