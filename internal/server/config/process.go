package config

// Running returns the process of the server that runs on a data directory, and
// false if none does or this user may not know.
func Running(dir string) (pid int, running bool) {
	a, err := readAddress(dir)
	return a.PID, err == nil && a.PID > 0
}

// RunningAs returns the user that the server which runs on a data directory shares with
// commands of jobs, "" for none, and false if no server runs or this user may not know.
func RunningAs(dir string) (sharedUser string, running bool) {
	a, err := readAddress(dir)
	return a.SharedUser, err == nil && a.PID > 0
}
