package servers

import (
	"fmt"
	"os"
	"testing"
)

// Main runs the tests of a package on one shared server, and returns the exit code.
func Main[S interface{ Close() error }](m *testing.M, server *S, start func() (S, error)) int {
	var err error
	if *server, err = start(); err != nil {
		fmt.Fprintln(os.Stderr, "start the server of the tests:", err)
		return 1
	}
	code := m.Run()
	if err := (*server).Close(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the server of the tests:", err)
		return 1
	}
	return code
}
