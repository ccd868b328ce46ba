package health_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/health"
	"github.com/belfry-cron/belfry/store"
)

func TestANodeWithoutAShellSaysSo(t *testing.T) {
	dir := t.TempDir()
	worker := config.Server{Roles: []config.Role{config.Role(store.RoleWorker)}}
	worker.Shell.Path = dir
	if f := health.Shell(worker); f.Status != health.Note || !strings.Contains(f.Found.String(), "has no sh") || f.Do.IsZero() {
		t.Errorf("without sh it finds %+v", f)
	}
	other := worker
	other.Roles = []config.Role{config.Role(store.RoleAPI)}
	if f := health.Shell(other); f.Status != health.Well {
		t.Errorf("a server that runs no jobs finds %+v", f)
	}
	if err := os.WriteFile(filepath.Join(dir, "sh"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if f := health.Shell(worker); f.Status != health.Well {
		t.Errorf("with sh it finds %+v", f)
	}
}
