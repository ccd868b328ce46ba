package belfry_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The thread that a server of a test is tied to stays.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/belfry-cron/belfry/test/servers.startTied.func1"))
}
