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
		if err := second.Stop(); err != nil {
			t.Fatal(err)
		}
		own := second.Port
		second.Port = first.Port
		if err := second.Start(); !errors.Is(err, errTaken) {
			t.Errorf("at the port of another one it starts with %v", err)
		}
		second.Port = own
		if err := second.Start(); err != nil {
			t.Error(err)
		}
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		first, second := StartMariaDB(t), StartMariaDB(t)
		if err := second.Stop(); err != nil {
			t.Fatal(err)
		}
		own := second.Port
		second.Port = first.Port
		if err := second.Start(); !errors.Is(err, errTaken) {
			t.Errorf("at the port of another one it starts with %v", err)
		}
		second.Port = own
		if err := second.Start(); err != nil {
			t.Error(err)
		}
	})
}
