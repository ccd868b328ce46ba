package server

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// machineOf identifies a data directory at this boot of this machine, so that a returning node,
// which has the lock of the directory, knows that earlier attempts are gone. A path does not
// suffice: containers share the boot of their host, and each may have its own /data.
func machineOf(data string) (string, error) {
	info, err := os.Stat(data)
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("look at %s: this system does not tell how to identify it", data)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		// On other systems the name must suffice.
		name, err := os.Hostname()
		if err != nil {
			return "", err
		}
		boot = []byte(name)
	}
	return fmt.Sprintf("%s/%d/%d", bytes.TrimSpace(boot), stat.Dev, stat.Ino), nil
}
