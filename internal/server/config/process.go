package config

// Running returns the process of the server on a data directory, and false if there is none or this
// user may not know.
func Running(dir string) (pid int, running bool) {
	a, err := readAddress(dir)
	return a.PID, err == nil && a.PID > 0
}

// RunningAs returns the user that the server on a data directory shares with commands of jobs, ""
// for none, and false if there is no server or this user may not know.
func RunningAs(dir string) (sharedUser string, running bool) {
	a, err := readAddress(dir)
	return a.SharedUser, err == nil && a.PID > 0
}

// RunningFile returns the configuration file of the server on a data directory, "" without one, and
// the command that makes the server read it again, "" if there is no server or this user may not know.
func RunningFile(dir string) (file, reload string) {
	a, _ := readAddress(dir)
	return a.File, a.Reload
}
