//go:build servers

package tutorial

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// One server has a worker in Python and one in TypeScript, each made and used as its page says.
func TestThePagesOfOtherLanguagesWorkAsWritten(t *testing.T) {
	for _, name := range []string{"python3", "node"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("this test runs a worker with %s: install it: %v", name, err)
		}
	}
	r := newReader(t)
	root, err := filepath.Abs("../..")
	r.must(err)
	// What the package managers do, without their registries.
	r.exports = "export BELFRY_URL=http://127.0.0.1:" + r.ports["8420"] + " PYTHONPATH=" + filepath.Join(root, "sdk/python") + "\n"
	r.must(os.Mkdir(filepath.Join(r.dir, "node_modules"), 0o755))
	r.must(os.Symlink(filepath.Join(root, "sdk/typescript"), filepath.Join(r.dir, "node_modules", "belfry-cron")))
	pages := map[string]int{"python": 0, "typescript": 0}
	pages["python"] = r.read("../../docs/python.md", strings.NewReplacer())
	pages["typescript"] = r.read("../../docs/typescript.md", strings.NewReplacer("```sh serve\n", "```sh\n")) // it serves
	for page, n := range pages {
		if n < 9 {
			t.Errorf("docs/%s.md has %d blocks", page, n)
		}
	}
	nodes, err := r.shell(t.Context(), "belfry node list")
	if err != nil || !strings.Contains(nodes, "reports") || !strings.Contains(nodes, "invoices") {
		t.Errorf("the nodes are %v\n%s", err, nodes)
	}
}
