package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Many steps read a run with a definition in its state, but compile it once.
func TestADefinitionInTheStateOfARunIsCompiledOnce(t *testing.T) {
	b := NewBatch(time.Time{}, 0, 0)
	definition := func(step, command string) []byte {
		docs, err := job.Decode("f.yaml", fmt.Appendf(nil, "name: f\nrun: {flow: {steps: [{name: %s, run: {shell: %s}}]}}", step, command))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(docs[0].Job)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := b.compiled(definition("first", "true"))
	if first.step("first") == nil {
		t.Fatal("the flow has no step of its definition")
	}
	b.Reset(time.Time{}.Add(time.Second))
	if b.compiled(definition("first", "true")) != first {
		t.Error("the next step compiles the same definition again")
	}
	if other := b.compiled(definition("other", "true")); other.step("other") == nil || other.step("first") != nil {
		t.Error("another definition is not compiled")
	}
	if b.compiled([]byte("{")) != noFlow || b.compiled([]byte("{}")) != noFlow {
		t.Error("what is no flow has steps")
	}
	for i := range 10 * ownFlowsMax {
		b.compiled(definition(fmt.Sprint("s", i), "true"))
	}
	long := definition("long", strings.Repeat("x", ownFlowMax))
	if b.compiled(long).step("long") == nil {
		t.Error("a long definition is not compiled")
	}
	if n := len(b.ownFlows); n > ownFlowsMax || b.ownFlows[string(long)] != nil {
		t.Errorf("the batch keeps %d flows, at most %d are to be kept and none as long as %d bytes", n, ownFlowsMax, len(long))
	}
}
