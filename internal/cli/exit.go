package cli

// ExitCode is the exit status of a command. The numbers are a contract: scripts depend on
// them.
type ExitCode int

// The exit codes. An interrupted command that can report it ends with the code of shells for its
// signal.
const (
	ExitOK     ExitCode = 0 // done as asked
	ExitFailed ExitCode = 1 // it failed, or the answer is no
	ExitUsage  ExitCode = 2 // the command line is wrong

	// For commands that use a server.
	ExitNotFound    ExitCode = 3 // a named object does not exist
	ExitNotAllowed  ExitCode = 4 // the server refused
	ExitConflict    ExitCode = 5 // a concurrent change
	ExitUnreachable ExitCode = 6 // no server answered
	ExitTimedOut    ExitCode = 7 // the wait took too long
	ExitRunFailed   ExitCode = 8 // the awaited run failed

	ExitInterrupted ExitCode = 130
)
