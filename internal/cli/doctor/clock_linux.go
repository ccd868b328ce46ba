package doctor

import "syscall"

// unsynchronized is the kernel's bit STA_UNSYNC.
const unsynchronized = 0x40

// clock reports whether the machine's clock is synchronized.
func clock() Finding {
	f := Finding{Check: "clock", Status: Note}
	var t syscall.Timex
	switch _, err := syscall.Adjtimex(&t); {
	case err != nil:
		f.Found = "cannot be asked: " + err.Error()
	case t.Status&unsynchronized != 0:
		f.Found, f.Do = "the kernel reports that it is not synchronized", "turn on time synchronization (chrony, systemd-timesyncd), in a container on its host"
	default:
		f.Status, f.Found = Well, "is synchronized"
	}
	return f
}
