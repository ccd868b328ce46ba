//go:build servers

package tutorial

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/test/servers"
)

func TestTheTutorialWorksAsWritten(t *testing.T) {
	r := newReader(t)
	r.database = servers.StartPostgres(t).Schema()
	if n := r.read("../../docs/tutorial.md", strings.NewReplacer()); n < 20 {
		t.Errorf("the tutorial has %d blocks, and the test understands no others", n)
	}
}
