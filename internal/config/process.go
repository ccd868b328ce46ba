package config

// Running returns the process of the server that runs on a data directory, and
// false if none does or this user may not know.
func Running(dir string) (pid int, running bool) {
	a, err := readAddress(dir)
	return a.PID, err == nil && a.PID > 0
}
