package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/belfry-cron/belfry/internal/cli"
	"github.com/belfry-cron/belfry/internal/cli/systemd"
)

// documents writes the files that come with the program: manual pages, completions, the unit
// and the licence.
func (r *release) documents(ctx context.Context, dir string) error {
	for _, inner := range []string{"man", "completions"} {
		if err := os.MkdirAll(filepath.Join(dir, inner), 0o755); err != nil {
			return err
		}
	}
	commands := cli.Commands() //nolint:contextcheck // the commands are described, not run
	commands.DisableAutoGenTag = true
	err := doc.GenManTree(commands, &doc.GenManHeader{Title: "BELFRY", Section: "1", Date: &r.date, Source: "Belfry " + r.version, Manual: "Belfry"}, filepath.Join(dir, "man"))
	if err != nil {
		return err
	}
	for shell, file := range map[string]string{"bash": "belfry.bash", "zsh": "_belfry", "fish": "belfry.fish"} {
		var script, said bytes.Buffer
		env := cli.Env{Stdin: &bytes.Buffer{}, Stdout: &script, Stderr: &said, Getenv: func(string) string { return "" }, Now: time.Now}
		if code := cli.Run(ctx, env, []string{"completion", shell}); code != 0 {
			return fmt.Errorf("completion %s: %s", shell, said.String())
		}
		if err := os.WriteFile(filepath.Join(dir, "completions", file), script.Bytes(), 0o644); err != nil {
			return err
		}
	}
	unit, err := systemd.Unit(systemd.Options{Program: "/usr/bin/belfry", Config: "/etc/belfry/belfry.yaml"})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "belfry.service"), []byte(unit), 0o644); err != nil {
		return err
	}
	for _, name := range []string{"LICENSE", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
