package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/server/config"
)

func TestShortAndPublicAccessTokensAreRefusedUnlessAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		token string
		xxl   config.XXL
		want  string
	}{
		"long":                           {"a-token-of-24-characters", config.XXL{Listen: ":9080"}, ""},
		"short":                          {"thirteen-chars"[:13], config.XXL{Listen: ":9080"}, "xxl.short_tokens: true accepts it"},
		"short and allowed":              {"thirteen-chars"[:13], config.XXL{Listen: ":9080", Short: true}, ""},
		"empty though short is allowed":  {"", config.XXL{Listen: ":9080", Short: true}, "is empty"},
		"public":                         {"default_token", config.XXL{Listen: "127.0.0.1:9080"}, "which everyone knows"},
		"public though short is allowed": {"default_token", config.XXL{Listen: "127.0.0.1:9080", Short: true}, "which everyone knows"},
		"public on one machine":          {"default_token", config.XXL{Listen: "127.0.0.1:9080", Insecure: true}, ""},
		"public for other machines":      {"default_token", config.XXL{Listen: "0.0.0.0:9080", Insecure: true}, "other machines reach 0.0.0.0:9080"},
		"public on all addresses":        {"default_token", config.XXL{Listen: ":9080", Insecure: true, Short: true}, "other machines reach :9080"},
	} {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(c.token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c.xxl.Tokens = []config.Path{config.Path(file)}
		tokens, err := c.xxl.ReadTokens()
		switch {
		case c.want == "" && (err != nil || len(tokens) != 1 || tokens[0] != c.token):
			t.Errorf("%s: the tokens are %q, %v", name, tokens, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		case c.want == "" && config.HasShortToken(tokens) != (len(c.token) < 16):
			t.Errorf("%s: short is %v", name, config.HasShortToken(tokens))
		}
	}
}
