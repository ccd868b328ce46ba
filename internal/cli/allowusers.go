package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-cron/belfry/internal/server/config"
)

const (
	// packagedConfig is the configuration file of the packages.
	packagedConfig = "/etc/belfry/belfry.yaml"
	// packagedReload makes the server of the packages read it again.
	packagedReload = "systemctl reload belfry"
)

// allowUsers writes users that jobs may name into a configuration file, or shows what it would
// write. reload is the command that makes the server read the file again.
func allowUsers(ctx context.Context, env Env, file, reload string, users []string, dryRun bool) error {
	path := env.path(file)
	text, err := os.ReadFile(path)
	if err != nil {
		return unreadable(file, err).withHint("name the configuration file of the server with --config")
	}
	before, err := config.ReadServer(path, file)
	if err != nil {
		return wrongSettings(env, file, err)
	}
	var missing []string
	for _, user := range users {
		if !slices.Contains(before.Shell.AllowUsers, user) && user != before.Shell.DefaultUser {
			missing = append(missing, user)
		}
	}
	if len(missing) == 0 {
		env.tell("%s lists %s already; the server has to read it again: %s\n", file, strings.Join(users, ", "), reload)
		return nil
	}
	changed, err := withAllowedUsers(text, missing)
	if err == nil {
		err = checkAllowed(path, file, changed, append(slices.Clone(before.Shell.AllowUsers), missing...))
	}
	if err != nil {
		return failed("%s: %v", file, err).withHint("add %s to shell.allow_users by hand", strings.Join(missing, ", "))
	}
	if dryRun {
		env.tell("%s would allow jobs to run as %s:\n", file, strings.Join(missing, ", "))
		return write(env, changedLines(text, changed))
	}
	if err := replaceFile(ctx, path, text, changed); err != nil {
		return failed("%s: %v", file, err)
	}
	env.tell("%s: jobs may run as %s once the server has read it: %s\n", file, strings.Join(missing, ", "), reload)
	if slices.Contains(missing, "root") {
		env.tell("note: with root, each person who may define jobs can do everything on this machine\n")
	}
	return nil
}

// changedLines returns the lines that a text has and an earlier one lacks.
func changedLines(before, after []byte) []byte {
	had := map[string]bool{}
	for line := range bytes.Lines(before) {
		had[string(line)] = true
	}
	var b bytes.Buffer
	for line := range bytes.Lines(after) {
		if !had[string(line)] {
			b.Write(line)
		}
	}
	return b.Bytes()
}

// withAllowedUsers inserts users into shell.allow_users of a configuration, and changes nothing
// else.
func withAllowedUsers(text []byte, users []string) ([]byte, error) {
	list := strings.Join(users, ", ")
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(slices.Clone(text), '\n')
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if document.Kind == 0 { // comments alone
		return append(slices.Clone(text), []byte("shell:\n  allow_users: ["+list+"]\n")...), nil
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode || root.Style&yaml.FlowStyle != 0 {
		return nil, errors.New("it is not a mapping with a line for each setting")
	}
	shell := valueOf(root, "shell")
	if shell == nil {
		return append(slices.Clone(text), []byte("shell:\n  allow_users: ["+list+"]\n")...), nil
	}
	if shell.Kind != yaml.MappingNode {
		return nil, errors.New("shell is not a mapping")
	}
	allowed := valueOf(shell, "allow_users")
	switch flow := shell.Style&yaml.FlowStyle != 0; {
	case allowed == nil && flow:
		comma := ", "
		if len(shell.Content) == 0 {
			comma = ""
		}
		return insert(text, shell.Line, shell.Column, "allow_users: ["+list+"]"+comma), nil
	case allowed == nil:
		first := shell.Content[0]
		return insert(text, first.Line, 0, strings.Repeat(" ", first.Column-1)+"allow_users: ["+list+"]\n"), nil
	case allowed.Kind != yaml.SequenceNode:
		return nil, errors.New("shell.allow_users is not a list")
	case allowed.Style&yaml.FlowStyle == 0:
		var lines strings.Builder
		for _, user := range users {
			lines.WriteString(strings.Repeat(" ", allowed.Column-1) + "- " + user + "\n")
		}
		return insert(text, allowed.Line, 0, lines.String()), nil
	case len(allowed.Content) > 0:
		list += ", "
	}
	return insert(text, allowed.Line, allowed.Column, list), nil
}

// valueOf returns the value of a key, nil without one.
func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// insert inserts text into a line, after n characters.
func insert(text []byte, line, column int, more string) []byte {
	var b bytes.Buffer
	n := 0
	for l := range bytes.Lines(text) {
		if n++; n != line {
			b.Write(l)
			continue
		}
		runes := []rune(string(l))
		b.WriteString(string(runes[:column]) + more + string(runes[column:]))
	}
	return b.Bytes()
}

// checkAllowed refuses a changed configuration that differs in more than the users. It uses a
// temporary file, since configurations are read from files.
func checkAllowed(path, file string, changed []byte, want []string) error {
	f, err := os.CreateTemp("", "belfry-*.yaml") // created with the mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(changed)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	before, err := config.ReadServer(path, file)
	if err != nil {
		return err
	}
	after, err := config.ReadServer(f.Name(), file)
	if err != nil {
		return err
	}
	slices.Sort(want)
	got := slices.Sorted(slices.Values(after.Shell.AllowUsers))
	others := slices.DeleteFunc(config.Changed(before, after), func(f config.Field) bool { return f.Name == "shell.allow_users" })
	if !slices.Equal(got, want) || len(others) > 0 {
		return fmt.Errorf("the setting cannot be inserted: shell.allow_users would be %s", strings.Join(got, ", "))
	}
	return nil
}

// replaceFile atomically replaces the text of a file, with its mode and owner, unless it has
// changed since. A link stays a link.
func replaceFile(ctx context.Context, path string, before, after []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	f, err := beside(path)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails once it has replaced the file
	_, err = f.Write(after)
	if err = errors.Join(err, f.Sync(), f.Close(), ctx.Err()); err != nil {
		return err
	}
	now, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, before) {
		return errors.New("the file was changed meanwhile")
	}
	return os.Rename(f.Name(), path)
}

// beside makes an empty file beside another one, with its mode and owner.
func beside(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-new-") // cron skips names that begin with a dot
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && (int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid()) {
		err = f.Chown(int(st.Uid), int(st.Gid))
	}
	if err = errors.Join(err, f.Chmod(info.Mode().Perm())); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}

// mayReplace reports why replaceFile would fail, before anything depends on it.
func mayReplace(path string) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	f, err := beside(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
