package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/server/config"
)

const oidcFile = `oidc:
  issuer: https://id.example.com/realms/main
  client_id: belfry
  client_secret: hunter2
  redirect_url: https://belfry.example.com/ui/sign-in/callback
  groups:
    belfry-admins: [admin]
    /Web Team: [web=runner, shop=viewer]
  people:
    Ann@example.com: [admin]
`

func readOIDC(t *testing.T, text string) (config.Server, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "belfry.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.ReadServer(path, "belfry.yaml")
	if err != nil {
		return c, err
	}
	c = c.Filled(func(string) string { return "" }, "one", false)
	c.Data = "/data"
	return c, c.Check()
}

func TestSignInIsConfiguredWithRolesByGroupAndNamespace(t *testing.T) {
	c, err := readOIDC(t, oidcFile)
	if err != nil {
		t.Fatal(err)
	}
	namespace, role := c.OIDC.Groups["/Web Team"][0].Parse()
	if namespace != "web" || role != "runner" || c.OIDC.GroupsClaim != "groups" || c.OIDC.Button != "id.example.com" || len(c.OIDC.Scopes) != 2 {
		t.Errorf("the settings are %+v", c.OIDC)
	}
	l := config.Layers{File: c, FileName: "belfry.yaml"}
	for _, s := range l.Settings(c) {
		if s.Name == "oidc.client_secret" && s.Value != config.Hidden {
			t.Errorf("the client secret is shown as %v", s.Value)
		}
	}
}

func TestMistakesInTheSettingsOfSignInAreNamed(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"  issuer: https://id.example.com/realms/main\n", "", "set oidc.issuer"},
		{"  client_id: belfry\n", "", "oidc.client_id is missing"},
		{"  redirect_url: https://belfry.example.com/ui/sign-in/callback\n", "", "oidc.redirect_url is missing"},
		{"com/ui/sign-in/callback", "com/", "must end in /ui/sign-in/callback"},
		{"https://id.example", "http://id.example", "oidc.issuer: http://id.example.com/realms/main has no TLS"},
		{"https://belfry.example", "http://belfry.example", "oidc.redirect_url: http://belfry.example.com/ui/sign-in/callback has no TLS"},
		{"web=runner", "web=king", `"web=king" is not a role, which is viewer, runner or admin, or namespace=role`},
		{"web=runner", "W*=runner", `"W*" is not the name of a namespace`},
		{"  client_id: belfry\n", "  client_id: belfry\n  client_secret_file: a\n", "cannot be combined"},
		{"  client_id: belfry\n", "  client_id: belfry\n  session_for: 8d\n", "session_for"},
		{"  client_id: belfry\n", "  client_id: belfry\n  name: a:b\n", "oidc.name"},
	} {
		if _, err := readOIDC(t, strings.Replace(oidcFile, c.from, c.to, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %q for %q: %v, want %q", c.to, c.from, err, c.want)
		}
	}
}
