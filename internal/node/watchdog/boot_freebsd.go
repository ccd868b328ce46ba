package watchdog

import (
	"encoding/hex"
	"fmt"

	"golang.org/x/sys/unix"
)

// bootID names the time between two starts of the machine. FreeBSD has it since version 13.
func bootID() (string, error) {
	id, err := unix.SysctlRaw("kern.boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return hex.EncodeToString(id), nil
}
