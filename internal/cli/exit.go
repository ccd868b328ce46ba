package cli

// ExitCode is the exit status of a command. The numbers are a contract: scripts depend on
// them.
type ExitCode int

// The exit codes. A command that is interrupted where it can say so ends with
// the code that shells show for those that end by their signal.
const (
	ExitOK     ExitCode = 0 // done as asked
	ExitFailed ExitCode = 1 // it failed, or the answer is no
	ExitUsage  ExitCode = 2 // the command line itself is wrong

	// For commands that talk to a server.
	ExitNotFound    ExitCode = 3 // what was named does not exist
	ExitNotAllowed  ExitCode = 4 // the server refused
	ExitConflict    ExitCode = 5 // it was changed meanwhile
	ExitUnreachable ExitCode = 6 // no server answered
	ExitTimedOut    ExitCode = 7 // waiting took too long
	ExitRunFailed   ExitCode = 8 // the run that was waited for failed

	ExitInterrupted ExitCode = 130
)
