package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Build writes a program of the module to a path, compiled as releases are and by these flags of go
// build. It calls go run, which keeps linked programs: each is linked once for the tests of all packages.
func Build(path, pkg string, flags ...string) error {
	root, err := os.Getwd()
	for err == nil && !isRoot(root) {
		if root == filepath.Dir(root) {
			err = fmt.Errorf("no folder above has cmd/belfry")
		}
		root = filepath.Dir(root)
	}
	if err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	cmd := exec.Command("go", slices.Concat([]string{"run", "-exec", "cp"}, flags, []string{"./" + pkg, path})...)
	cgo := "CGO_ENABLED=0"
	if slices.Contains(flags, "-race") {
		cgo = "CGO_ENABLED=1" // the race detector is not written in Go
	}
	cmd.Dir, cmd.Env = root, append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

func isRoot(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cmd", "belfry"))
	return err == nil
}
