//go:build servers

package openapi

import (
	"os"
	"path/filepath"
	"testing"
)

// Assistants come by the official client for TypeScript, as most do.
func TestAssistantsCallBothDoors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	settings := filepath.Join(dir, "server.yaml")
	if err := os.WriteFile(settings, []byte("mcp: {allow_changes: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	belfry, url, token := serve(t, "--config", settings)
	copyTo(t, dir, "testdata/mcp/package.json", "testdata/mcp/client.js")
	if err := os.Symlink(modules(t, "testdata/mcp"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if said := run(t, dir, "node", "client.js", belfry, url, token); said != "http\nstdio\ncareful\n" {
		t.Errorf("the client says\n%s", said)
	}
}
