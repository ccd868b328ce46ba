package tutorial

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestTheGuideOfFlowsWorksAsWritten(t *testing.T) {
	r := newReader(t)
	if n := r.read("../../docs/flows.md", strings.NewReplacer("/tmp/shop", filepath.Join(r.dir, "shop"))); n < 50 {
		t.Errorf("the guide has %d blocks, and the test understands no others", n)
	}
}
