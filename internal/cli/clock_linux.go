package cli

import "syscall"

// unsynchronized is the bit of the kernel that says so, STA_UNSYNC.
const unsynchronized = 0x40

// clock reports whether something keeps the clock of the machine right.
func clock() finding {
	f := finding{Check: "clock", Status: isNote}
	var t syscall.Timex
	switch _, err := syscall.Adjtimex(&t); {
	case err != nil:
		f.Found = "cannot be asked: " + err.Error()
	case t.Status&unsynchronized != 0:
		f.Found, f.Do = "the kernel reports that it is not synchronized", "turn on time synchronization (chrony, systemd-timesyncd), in a container on its host"
	default:
		f.Status, f.Found = isWell, "is synchronized"
	}
	return f
}
