package belfry_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// linked returns the packages outside the standard library that a package links.
func linked(t *testing.T, pkg string) []string {
	t.Helper()
	list, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg).Output()
	if err != nil {
		t.Fatalf("go list %s: %v", pkg, err)
	}
	return strings.Fields(string(list))
}

// A program links only the store that it imports: each module here is in the binaries of all who
// import the package.
func TestAProgramLinksNoStoreButTheOneItNames(t *testing.T) {
	const own = "github.com/belfry-cron/belfry"
	allowed := []string{"go.yaml.in/yaml/v3", "golang.org/x/sys/unix", "github.com/rogpeppe/go-internal/diff"}
	root := linked(t, own)
	for _, pkg := range root {
		isOwn := pkg == own || strings.HasPrefix(pkg, own+"/")
		if !isOwn && !slices.Contains(allowed, pkg) {
			t.Errorf("package belfry links %s", pkg)
		}
		for _, rest := range []string{"/store/", "/executor/", "/internal/server/httpapi", "/internal/server/web", "/internal/cli", "/internal/server/config"} {
			if strings.HasPrefix(pkg, own+rest) || pkg == own+"/internal/server" {
				t.Errorf("package belfry links %s", pkg)
			}
		}
	}
	for store, driver := range map[string]string{
		"sqlite": "modernc.org/sqlite", "postgres": "github.com/jackc/pgx", "mysql": "github.com/go-sql-driver/mysql", "etcd": "go.etcd.io/etcd", "redis": "github.com/gomodule/redigo",
	} {
		has := linked(t, own+"/store/"+store)
		uses := func(module string) bool {
			return slices.ContainsFunc(has, func(pkg string) bool { return strings.HasPrefix(pkg, module) })
		}
		if !uses(driver) {
			t.Errorf("store/%s does not link %s", store, driver)
		}
		for _, other := range []string{"modernc.org/sqlite", "github.com/jackc/pgx", "github.com/go-sql-driver/mysql", "go.etcd.io/etcd", "github.com/gomodule/redigo", "github.com/spf13/cobra", "github.com/danielgtaylor/huma"} {
			if other != driver && uses(other) {
				t.Errorf("store/%s links %s", store, other)
			}
		}
	}
}

// The doors for assistants are of the program alone.
func TestPackagesForProgramsLinkNoDoorForAssistants(t *testing.T) {
	const own = "github.com/belfry-cron/belfry"
	for _, name := range []string{own, own + "/cron", own + "/job", own + "/client"} {
		for _, pkg := range linked(t, name) {
			if strings.HasPrefix(pkg, "github.com/modelcontextprotocol/") || strings.HasPrefix(pkg, own+"/internal/server/assistant") {
				t.Errorf("%s links %s", name, pkg)
			}
		}
	}
}
