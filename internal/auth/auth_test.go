package auth_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/auth"
)

var now = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)

func open(t *testing.T, dir string) (*auth.Tokens, bool) {
	t.Helper()
	tokens, made, err := auth.Open(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	return tokens, made
}

func TestFirstStartMakesATokenOnce(t *testing.T) {
	dir := t.TempDir()
	tokens, made := open(t, dir)
	if !made {
		t.Error("no token was made")
	}
	token, err := auth.ReadToken(filepath.Join(dir, auth.TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(token) < 43 {
		t.Errorf("the token %q has less than 256 bits", token)
	}
	if name, ok := tokens.Authenticate(token); !ok || name != auth.Admin {
		t.Errorf("the token is that of %q, %v", name, ok)
	}

	again, made := open(t, dir)
	if made {
		t.Error("a second token was made")
	}
	if _, ok := again.Authenticate(token); !ok {
		t.Error("the token is not valid any more after a restart")
	}
}

func TestOnlyTheTokenItselfIsValid(t *testing.T) {
	dir := t.TempDir()
	tokens, _ := open(t, dir)
	token, err := auth.ReadToken(filepath.Join(dir, auth.TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"", "admin", token + " ", token[:len(token)-1], strings.ToUpper(token)} {
		if name, ok := tokens.Authenticate(other); ok {
			t.Errorf("%q is taken for the token of %s", other, name)
		}
	}
}

func TestTheTokenIsKeptAsAHashAlone(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	token, err := auth.ReadToken(filepath.Join(dir, auth.TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != auth.TokenFile && strings.Contains(string(data), token) {
			t.Errorf("%s has the token", e.Name())
		}
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v", e.Name(), info.Mode())
		}
	}
	if len(entries) != 2 {
		t.Errorf("there are %d files, want 2", len(entries))
	}
}

func TestTheServerNeedsNoTokenFile(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	path := filepath.Join(dir, auth.TokenFile)
	token, err := auth.ReadToken(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	tokens, made := open(t, dir)
	if made {
		t.Error("another token was made")
	}
	if _, ok := tokens.Authenticate(token); !ok {
		t.Error("the token is not valid any more")
	}
}

func TestATokenThatOthersCanReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("secret\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	_, err := auth.ReadToken(path)
	if err == nil || !strings.Contains(err.Error(), "0640") || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error is %v", err)
	}
}

func TestDamagedTokensAreRefused(t *testing.T) {
	for _, text := range []string{"", "{", `{"tokens": [{"name": "admin", "sha256": "00"}]}`, `{"tokens": [{"name": "", "sha256": ""}]}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "tokens.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := auth.Open(dir, now); err == nil || !strings.Contains(err.Error(), "tokens.json") {
			t.Errorf("%q gives the error %v", text, err)
		}
	}
}
