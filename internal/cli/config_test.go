package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/store"
)

// TestReferenceOfConfigurationIsComplete writes the table of all settings of a server.
func TestReferenceOfConfigurationIsComplete(t *testing.T) {
	const name, begin, end = "docs/configuration.md", "<!-- settings -->\n", "<!-- end of settings -->\n"
	text := readDocument(t, name)
	before, rest, found := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no lines %s and %s", name, begin, end)
	}
	var b strings.Builder
	b.WriteString("\n| field | flag, variable | meaning | default | why |\n|---|---|---|---|---|\n")
	for _, f := range config.Fields() {
		var by []string
		if f.Flag != "" {
			by = append(by, "`--"+f.Flag+"`")
		}
		if f.Env != "" {
			by = append(by, "`"+f.Env+"`")
		}
		fallback := "none"
		if f.Default != "" {
			fallback = f.Default
			if !strings.Contains(fallback, " ") {
				fallback = "`" + fallback + "`"
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, strings.Join(by, ", "), f.Doc, fallback, f.Why)
	}
	expect(t, name, text, before+begin+b.String()+"\n"+end+after)
}

// The defaults in the configuration equal the defaults of the packages.
func TestConfigurationDefaultsMatchTheParts(t *testing.T) {
	if config.DefaultCapacity != node.DefaultCapacity || config.DefaultRevisions != store.RevisionsDefault || config.DefaultDrain != node.DefaultDrainTimeout {
		t.Error("a default of the configuration is not that of the node or the store")
	}
}
