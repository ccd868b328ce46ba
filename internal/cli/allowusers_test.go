package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Users are inserted without any other change, however the file is written.
func TestAllowedUsersAreInsertedIntoAnyFile(t *testing.T) {
	for _, c := range []struct{ name, before, want string }{
		{"an empty file", "", "shell:\n  allow_users: [www-data, root]\n"},
		{"comments alone, without an end of line", "# 服务器", "# 服务器\nshell:\n  allow_users: [www-data, root]\n"},
		{"no shell", "log_level: warn # quiet\n", "log_level: warn # quiet\nshell:\n  allow_users: [www-data, root]\n"},
		{"a mapping in lines", "shell:\n    # 注释\n    umask: \"027\"\nlog_level: warn\n", "shell:\n    # 注释\n    allow_users: [www-data, root]\n    umask: \"027\"\nlog_level: warn\n"},
		{"a mapping in braces", "shell: {umask: \"027\"} # 注释\n", "shell: {allow_users: [www-data, root], umask: \"027\"} # 注释\n"},
		{"an empty mapping", "shell: {}\n", "shell: {allow_users: [www-data, root]}\n"},
		{"a list in brackets", "shell: {allow_users: [backup]} # 注释\n", "shell: {allow_users: [www-data, root, backup]} # 注释\n"},
		{"a list in lines", "shell:\n  allow_users:\n  # 备份\n  - backup # one\n  umask: \"027\"\n", "shell:\n  allow_users:\n  # 备份\n  - www-data\n  - root\n  - backup # one\n  umask: \"027\"\n"},
	} {
		path := filepath.Join(t.TempDir(), "belfry.yaml")
		if err := os.WriteFile(path, []byte(c.before), 0o640); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		env := Env{Stdout: &said, Stderr: &said, Getenv: func(string) string { return "" }, Dir: "/"}
		if err := allowUsers(t.Context(), env, path, packagedReload, []string{"www-data", "root"}, false); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.name, err, got, c.want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: the file has another mode: %v, %v", c.name, info.Mode(), err)
		}
		if rest, err := os.ReadDir(filepath.Dir(path)); err != nil || len(rest) != 1 {
			t.Errorf("%s: the folder has %v, %v", c.name, rest, err)
		}
	}
}

func TestFilesThatCannotTakeUsersStayAsTheyAre(t *testing.T) {
	for _, c := range []struct{ name, before, want string }{
		{"a file in braces", "{log_level: warn}\n", "not a mapping with a line for each setting"},
		{"an alias", "shell: &a {umask: \"027\"}\n", "add www-data to shell.allow_users by hand"},
		{"a mistake", "shel: {}\n", "1 mistake"},
	} {
		path := filepath.Join(t.TempDir(), "belfry.yaml")
		if err := os.WriteFile(path, []byte(c.before), 0o640); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		env := Env{Stdout: &said, Stderr: &said, Getenv: func(string) string { return "" }, Dir: "/"}
		err := allowUsers(t.Context(), env, path, packagedReload, []string{"www-data"}, false)
		var f *failure
		if err == nil {
			t.Errorf("%s: it is taken", c.name)
		} else if !errors.As(err, &f) || !strings.Contains(err.Error()+f.hint, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != c.before {
			t.Errorf("%s: the file is %q, %v", c.name, got, err)
		}
	}
}
