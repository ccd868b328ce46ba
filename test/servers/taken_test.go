//go:build servers

package servers

import (
	"errors"
	"testing"
)

// Somebody may take a port between the moment that it is found free and the one that the
// server binds it.
func TestAServerDoesNotTakeAnotherOneForItself(t *testing.T) {
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		first, second := StartPostgres(t), StartPostgres(t)
		startAt(t, first.Port, &second.Port, second.Stop, second.Start)
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		first, second := StartMariaDB(t), StartMariaDB(t)
		startAt(t, first.Port, &second.Port, second.Stop, second.Start)
	})
}

// startAt starts a server again at a port that another one has, and then at its own.
func startAt(t *testing.T, taken int, port *int, stop, start func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	own := *port
	*port = taken
	if err := start(); !errors.Is(err, errTaken) {
		t.Errorf("at the port of another one it starts with %v", err)
	}
	*port = own
	if err := start(); err != nil {
		t.Error(err)
	}
}
