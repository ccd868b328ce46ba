package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-cron/belfry/internal/cli"
)

// The example for Docker Compose names only what exists: services, volumes, configurations, commands,
// flags and settings.
func TestComposeExampleIsWhole(t *testing.T) {
	text, err := os.ReadFile("../../docs/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type service struct {
		Image, Hostname string
		Restart         string
		Grace           string `yaml:"stop_grace_period"`
		Environment     map[string]string
		Configs         []struct{ Source, Target string }
		Depends         map[string]struct{ Condition string } `yaml:"depends_on"`
		ReadOnly        bool                                  `yaml:"read_only"`
		Tmpfs           []string
		CapDrop         []string `yaml:"cap_drop"`
		SecurityOpt     []string `yaml:"security_opt"`
		Command         []string
		Volumes, Ports  []string
		Healthcheck     struct {
			Test     []string
			Interval string
			Retries  int
		}
	}
	var compose struct {
		Common   service `yaml:"x-belfry"`
		Services map[string]service
		Configs  map[string]struct{ Content string }
		Volumes  map[string]struct{}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&compose); err != nil {
		t.Fatal(err)
	}
	var planners, workers int
	for name, s := range compose.Services {
		for _, v := range s.Volumes {
			if of, _, _ := strings.Cut(v, ":"); !strings.HasPrefix(of, "./") {
				if _, there := compose.Volumes[of]; !there {
					t.Errorf("%s has the volume %s, which does not exist", name, of)
				}
			}
		}
		for other := range s.Depends {
			if len(compose.Services[other].Healthcheck.Test) == 0 {
				t.Errorf("%s waits for %s, which has no check of its health", name, other)
			}
		}
		if len(s.Command) == 0 {
			continue
		}
		if s.Hostname != name || !strings.Contains(s.Environment["BELFRY_STORE"], "@db/") {
			t.Errorf("%s is called %s, with the store %s", name, s.Hostname, s.Environment["BELFRY_STORE"])
		}
		cmd, flags, err := cli.Commands().Find(s.Command)
		if err == nil {
			err = cmd.ParseFlags(flags)
		}
		if err != nil || cmd.Name() != "serve" {
			t.Errorf("%s runs belfry %s: %v", name, strings.Join(s.Command, " "), err)
		}
		if roles := cmd.Flags().Lookup("roles").Value.String(); strings.Contains(strings.Join(s.Command, " "), "planner,api") {
			planners++
		} else if slices.Contains(s.Command, "worker") {
			workers++
		} else {
			t.Errorf("%s has the roles %s", name, roles)
		}
		for _, c := range s.Configs {
			file := filepath.Join(t.TempDir(), "belfry.yaml")
			if err := os.WriteFile(file, []byte(compose.Configs[c.Source].Content), 0o600); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(s.Command, c.Target) {
				t.Errorf("%s does not read %s", name, c.Target)
			}
			if code, words := importLive(t, map[string]string{"HOME": t.TempDir()}, "config", "--config", file); code != cli.ExitOK {
				t.Errorf("the configuration of %s: %s", name, words)
			}
		}
	}
	if planners != 3 || workers != 1 {
		t.Errorf("there are %d servers and %d workers", planners, workers)
	}
}
