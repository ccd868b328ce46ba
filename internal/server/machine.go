package server

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// machineOf identifies a data directory at this boot of this machine, so that a returning
// node knows that earlier attempts are gone: it has the lock of the directory. A path would
// not do: containers share the boot of their host, and each may have a /data of its own.
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
		// Elsewhere the name has to do.
		name, err := os.Hostname()
		if err != nil {
			return "", err
		}
		boot = []byte(name)
	}
	return fmt.Sprintf("%s/%d/%d", bytes.TrimSpace(boot), stat.Dev, stat.Ino), nil
}
