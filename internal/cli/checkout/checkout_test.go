package checkout_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/belfry-cron/belfry/internal/cli/checkout"
)

// origin is a repository that others fetch from.
type origin struct {
	t   *testing.T
	dir string
}

func newOrigin(t *testing.T) *origin {
	t.Helper()
	o := &origin{t, filepath.Join(t.TempDir(), "the origin")}
	if err := os.Mkdir(o.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	o.git("init", "--quiet", "--initial-branch=main")
	return o
}

// git runs git in the origin, and returns what it prints.
func (o *origin) git(args ...string) string {
	o.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = o.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// write writes files, by pairs of name and content.
func (o *origin) write(pairs ...string) {
	o.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		file := filepath.Join(o.dir, pairs[i])
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(pairs[i+1]), 0o600)); err != nil {
			o.t.Fatal(err)
		}
	}
}

func (o *origin) link(target, name string) {
	o.t.Helper()
	if err := os.Symlink(target, filepath.Join(o.dir, name)); err != nil {
		o.t.Fatal(err)
	}
}

// commit commits all files, and returns the hash.
func (o *origin) commit(message string) string {
	o.t.Helper()
	o.git("add", "--all")
	o.git("commit", "--quiet", "--allow-empty", "-m", message)
	return o.git("rev-parse", "HEAD")
}

func (o *origin) address() string { return "file://" + strings.ReplaceAll(o.dir, " ", "%20") }

func address(t *testing.T, text string) checkout.Address {
	t.Helper()
	a, err := checkout.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func open(t *testing.T, c checkout.Config) *checkout.Repository {
	t.Helper()
	if c.Dir == "" {
		c.Dir = filepath.Join(t.TempDir(), "sync")
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	r, err := checkout.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// read fetches, and returns the commit with the content of its files.
func read(t *testing.T, r *checkout.Repository) (checkout.Commit, map[string]string) {
	t.Helper()
	c, err := r.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir, _, err := r.Files(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s has the mode %v", name, info.Mode())
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, found
}

func equal(t *testing.T, got map[string]string, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got[pairs[i]] != pairs[i+1] {
			t.Errorf("%s has %q, want %q", pairs[i], got[pairs[i]], pairs[i+1])
		}
	}
	if len(got) != len(pairs)/2 {
		t.Errorf("there are %d files, want %d: %q", len(got), len(pairs)/2, got)
	}
}

func TestFetchFollowsABranch(t *testing.T) {
	o := newOrigin(t)
	o.write("jobs/a.yaml", "one", "jobs/夜间 备份.yaml", "night", "jobs/-f.json", "{}", "jobs/in/b.yml", "b", "jobs/days.ics", "BEGIN", "jobs/run.sh", "rm", "jobs/.hidden.yaml", "x", "README.md", "y")
	first := o.commit("First jobs\n\nwith a body")
	r := open(t, checkout.Config{Address: address(t, o.address())})
	c, files := read(t, r)
	if c.Hash != first || c.Subject != "First jobs" || c.Time.IsZero() {
		t.Errorf("the commit is %+v, want %s", c, first)
	}
	equal(t, files, "jobs/a.yaml", "one", "jobs/夜间 备份.yaml", "night", "jobs/-f.json", "{}", "jobs/in/b.yml", "b", "jobs/days.ics", "BEGIN")

	o.write("jobs/a.yaml", "two")
	o.git("rm", "--quiet", "jobs/in/b.yml", "jobs/days.ics", "jobs/-f.json")
	o.commit("Change")
	if _, files = read(t, r); len(files) != 2 || files["jobs/a.yaml"] != "two" {
		t.Errorf("the files of the second commit are %q", files)
	}

	// A rewritten history.
	o.git("checkout", "--quiet", "--orphan", "other")
	o.write("jobs/a.yaml", "three")
	forced := o.commit("Begin again")
	o.git("branch", "--force", "main", "other")
	o.git("checkout", "--quiet", "main")
	if c, files = read(t, r); c.Hash != forced || files["jobs/a.yaml"] != "three" {
		t.Errorf("after a forced push the commit is %+v with %q", c, files)
	}
}

func TestFetchOfABranchAndAPath(t *testing.T) {
	o := newOrigin(t)
	o.write("a.yaml", "main")
	o.commit("Main")
	o.git("checkout", "--quiet", "-b", "team/夜")
	o.write(".belfry/a.yaml", "branch", ".belfry/.b.yaml", "hidden", "jobs.txt", "text")
	o.commit("Branch")
	o.git("checkout", "--quiet", "main")
	for _, c := range []struct {
		path string
		want []string
	}{
		{".belfry", []string{".belfry/a.yaml", "branch"}},
		{"./.belfry/", []string{".belfry/a.yaml", "branch"}},
		{"a.yaml", []string{"a.yaml", "main"}},
		{"jobs.txt", []string{"jobs.txt", "text"}}, // named, as with belfry apply -f
	} {
		_, files := read(t, open(t, checkout.Config{Address: address(t, o.address()), Branch: "team/夜", Path: c.path}))
		equal(t, files, c.want...)
	}
}

func TestFetchSaysWhatIsMissing(t *testing.T) {
	o := newOrigin(t)
	empty := open(t, checkout.Config{Address: address(t, o.address())})
	if _, err := empty.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "has no commit yet") {
		t.Errorf("an empty repository: %v", err)
	}
	o.write("a.txt", "")
	o.commit("x")
	r := open(t, checkout.Config{Address: address(t, o.address()), Branch: "prod"})
	if _, err := r.Fetch(t.Context()); err == nil || !strings.HasSuffix(err.Error(), `has no branch "prod"`) {
		t.Errorf("a missing branch: %v", err)
	}
	o.git("branch", "prod") // and it comes later
	c, err := r.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Files(t.Context(), c); err == nil || !strings.Contains(err.Error(), "has no .yaml, .yml or .json files") {
		t.Errorf("a commit without job files: %v", err)
	}
	gone := open(t, checkout.Config{Address: address(t, "file:///nowhere/at%20all.git")})
	if _, err := gone.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "fetch file:///nowhere/at%20all.git: git: ") {
		t.Errorf("a missing repository: %v", err)
	}
}

func TestCommitsThatLeaveTheRepositoryAreRefused(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.yaml")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		make       func(o *origin)
	}{
		{"a link to a file of the machine", "is a symbolic link to \"" + secret, func(o *origin) { o.link(secret, "jobs/a.yaml") }},
		{"a link by ..", "is a symbolic link to \"../../../../etc/passwd\"", func(o *origin) { o.link("../../../../etc/passwd", "jobs/a.yaml") }},
		{"a link out of the path", "below the same path", func(o *origin) { o.link("../other.yaml", "jobs/a.yaml") }},
		{"a link to a link", "is a symbolic link to \"b\"", func(o *origin) { o.link("b", "jobs/a.yaml"); o.link(secret, "jobs/b") }},
		{"a submodule", "jobs/sub is a submodule", func(o *origin) {
			o.git("update-index", "--add", "--cacheinfo", "160000,"+o.git("rev-parse", "HEAD")+",jobs/sub")
		}},
		{"a file of LFS", "is in Git LFS", func(o *origin) {
			o.write("jobs/big.yaml", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOrigin(t)
			o.write("jobs/ok.yaml", "ok", "other.yaml", "other")
			o.commit("Good")
			c.make(o)
			if c.name == "a submodule" {
				o.git("commit", "--quiet", "-m", "Bad")
			} else {
				o.commit("Bad")
			}
			r := open(t, checkout.Config{Address: address(t, o.address()), Path: "jobs"})
			commit, err := r.Fetch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = r.Files(t.Context(), commit)
			var wrong *checkout.CommitError
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &wrong) {
				t.Errorf("the error is %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestLargeCommitsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		files   int
	}{
		"many files": {"x", 10_001},
		"many bytes": {strings.Repeat("# a comment\n", 90_000), 64},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t)
			o.write("blob", c.content)
			blob := o.git("hash-object", "-w", "blob")
			var index strings.Builder
			for i := range c.files {
				fmt.Fprintf(&index, "100644 %s\tjobs/%05d.yaml\n", blob, i)
			}
			o.write("index", index.String())
			o.git("-c", "alias.fill=!git update-index --index-info <index", "fill")
			o.git("commit", "--quiet", "-m", "x")
			r := open(t, checkout.Config{Address: address(t, o.address())})
			commit, err := r.Fetch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err = r.Files(t.Context(), commit); err == nil || !strings.Contains(err.Error(), "more than 10000 job files or 64 MiB") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestLinksWithinThePathAreFollowed(t *testing.T) {
	o := newOrigin(t)
	o.write("jobs/in/a.yaml", "a")
	o.link("in/a.yaml", "jobs/b.yaml")
	o.link("/etc", "jobs/etc") // leads out, and is never read
	o.commit("Links")
	_, files := read(t, open(t, checkout.Config{Address: address(t, o.address()), Path: "jobs"}))
	equal(t, files, "jobs/in/a.yaml", "a", "jobs/b.yaml", "a")
}

func TestNothingOfTheRepositoryRuns(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	o := newOrigin(t)
	o.write("a.yaml", "a", ".gitattributes", "* filter=evil diff=evil\n", ".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = ext::sh -c touch% "+ran+"\n")
	o.commit("Attributes")
	home := t.TempDir() // settings of the user are not read either
	config := "[filter \"evil\"]\n\tsmudge = touch " + ran + "\n[core]\n\tfsmonitor = touch " + ran + "\n\thooksPath = " + home + "\n"
	hook := "#!/bin/sh\ntouch " + ran + "\n"
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"post-checkout", "reference-transaction", "post-merge"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(hook), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	getenv := func(name string) string {
		if name == "HOME" {
			return home
		}
		return os.Getenv(name)
	}
	read(t, open(t, checkout.Config{Address: address(t, o.address()), Getenv: getenv}))
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program of the repository or of the user's settings ran")
	}
}

func TestOneProcessUsesACopy(t *testing.T) {
	o := newOrigin(t)
	o.write("a.yaml", "a")
	o.commit("x")
	c := checkout.Config{Address: address(t, o.address()), Dir: filepath.Join(t.TempDir(), "sync"), Getenv: os.Getenv}
	first, err := checkout.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkout.Open(c); !errors.Is(err, checkout.ErrInUse) {
		t.Errorf("a second sync: %v", err)
	}
	other := c
	other.Branch = "other"
	open(t, other) // is another copy
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	read(t, open(t, c))
	info, err := os.Stat(c.Dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of copies: %v, %v", info.Mode(), err)
	}
}

func TestFetchGoesOnAfterAKilledGit(t *testing.T) {
	o := newOrigin(t)
	o.write("a.yaml", "a")
	o.commit("x")
	c := checkout.Config{Address: address(t, o.address()), Dir: filepath.Join(t.TempDir(), "sync")}
	r := open(t, c)
	read(t, r)
	o.write("a.yaml", "b")
	o.commit("y")
	for _, name := range []string{"shallow.lock", "HEAD.lock", "refs/belfry/head.lock"} {
		left, err := filepath.Glob(filepath.Join(c.Dir, "*", "repository"))
		if err != nil || len(left) != 1 {
			t.Fatal(left, err)
		}
		if err := os.WriteFile(filepath.Join(left[0], name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, files := read(t, r)
	equal(t, files, "a.yaml", "b")

	// Damage is mended by a new copy, whether git or the reading of files meets it.
	for _, fetches := range []bool{true, false} {
		commit, err := r.Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		objects, err := filepath.Glob(filepath.Join(c.Dir, "*", "repository", "objects", "[0-9a-f]*", "*"))
		if err != nil || len(objects) == 0 {
			t.Fatal(objects, err)
		}
		for _, name := range objects {
			if err := errors.Join(os.Chmod(name, 0o600), os.Truncate(name, 0)); err != nil {
				t.Fatal(err)
			}
		}
		if fetches {
			_, err = r.Fetch(t.Context())
		} else {
			_, _, err = r.Files(t.Context(), commit)
		}
		if err == nil {
			t.Error("empty objects are no error")
		}
		_, files = read(t, r)
		equal(t, files, "a.yaml", "b")
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ text, shown, name string }{
		{"https://git.example.com/team/jobs.git", "https://git.example.com/team/jobs.git", "git.example.com/team/jobs"},
		{"https://ghp_secret@github.com/a/b", "https://github.com/a/b", "github.com/a/b"},
		{"ssh://git@git.example.com:2222/a/b.git", "ssh://git@git.example.com:2222/a/b.git", "git.example.com:2222/a/b"},
		{"git@github.com:a/b.git", "git@github.com:a/b.git", "github.com/a/b"},
		{"file:///srv/git/j.git", "file:///srv/git/j.git", "srv/git/j"},
	} {
		a := address(t, c.text)
		if a.String() != c.shown || a.Name() != c.name {
			t.Errorf("%s is shown as %s and named %s", c.text, a, a.Name())
		}
	}
	for text, want := range map[string]string{
		"":                                    "is missing",
		"--upload-pack=touch x":               "is an option",
		"ext::sh -c 'touch x'":                "a space",
		"ext::sh":                             "is not the address",
		"ext://x":                             "not fetched by ext",
		"http://example.com/x":                "without TLS",
		"git://github.com/a/b":                "not fetched by git",
		"/srv/git":                            "file:// and an absolute path",
		"../jobs":                             "is not the address",
		"file://host/x":                       "file:///srv",
		"https:///x":                          "no valid host",
		"ssh://-oProxyCommand=touch/x":        "cannot be parsed|no valid host",
		"ssh://-oX@host/x":                    "no valid host",
		"-oX@host:x":                          "is an option",
		"https://ann:hunter2@example.com/x":   "--git-token-file",
		"https://example.com/x?token=hunter2": "leave it out",
		"https://example.com/\nx":             "control character",
	} {
		_, err := checkout.ParseAddress(text)
		if err == nil || !slices.ContainsFunc(strings.Split(want, "|"), func(w string) bool { return strings.Contains(err.Error(), w) }) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error shows the password: %v", text, err)
		}
	}
	for _, branch := range []string{"-x", "a..b", "a b", "x:y", "x.lock", "a//b", "x@{1}", "/x", "x/", "\n"} {
		if _, err := checkout.Open(checkout.Config{Address: address(t, "file:///x"), Branch: branch, Dir: t.TempDir(), Getenv: os.Getenv}); err == nil || !strings.Contains(err.Error(), "is not the name of a branch") {
			t.Errorf("the branch %q: %v", branch, err)
		}
	}
	for _, path := range []string{"..", "../x", "a/../../x", "/etc", "-x", "a\x00"} {
		if got, err := checkout.CheckPath(path); err == nil {
			t.Errorf("the path %q is taken as %q", path, got)
		}
	}
	if _, err := checkout.Open(checkout.Config{Address: address(t, "ssh://git@example.com/x"), Token: "hunter2", Dir: t.TempDir(), Getenv: os.Getenv}); err == nil || !strings.Contains(err.Error(), "over https alone") {
		t.Errorf("a token for ssh: %v", err)
	}
}

func TestSSHUsesTheKeyAndRefusesUnknownHosts(t *testing.T) {
	o := newOrigin(t)
	o.write("a.yaml", "a")
	o.commit("x")
	bin := filepath.Join(t.TempDir(), "a folder")
	ssh := "#!/bin/sh\nfor word; do echo \"$word\" >>\"" + bin + "/said\"; done\neval \"$word\"\n" // the last word is the command
	if err := errors.Join(os.Mkdir(bin, 0o700), os.WriteFile(filepath.Join(bin, "ssh"), []byte(ssh), 0o700)); err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) string {
		if name == "PATH" {
			return bin + ":" + os.Getenv("PATH")
		}
		return os.Getenv(name)
	}
	key := filepath.Join(bin, "it's a key")
	at := "ssh://git@git.example.com:2222" + strings.ReplaceAll(o.dir, " ", "%20")
	_, files := read(t, open(t, checkout.Config{Address: address(t, at), SSHKey: key, KnownHosts: filepath.Join(bin, "known"), Getenv: getenv}))
	equal(t, files, "a.yaml", "a")
	said, err := os.ReadFile(filepath.Join(bin, "said"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"BatchMode=yes", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "-i\n" + key, "UserKnownHostsFile=\"" + bin + "/known\"", "2222", "git@git.example.com"} {
		if !strings.Contains(string(said), want+"\n") {
			t.Errorf("ssh is called without %q:\n%s", want, said)
		}
	}
}

func TestTokenIsSentAndNeverShown(t *testing.T) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Fatalf("%s is missing: install all of git", backend)
	}
	o := newOrigin(t)
	o.write("a.yaml", "a")
	o.commit("x")
	const token = "hunter2-的"
	var asked, refused atomic.Int32
	files := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(o.dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if asked.Add(1); user != "x-access-token" || password != token {
			refused.Add(1)
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	at := address(t, server.URL+"/the%20origin")
	dir := filepath.Join(t.TempDir(), "sync")
	with := open(t, checkout.Config{Address: at, Token: token, Dir: dir})
	_, got := read(t, with)
	equal(t, got, "a.yaml", "a")
	if refused.Load() != 0 || asked.Load() == 0 {
		t.Errorf("%d of %d requests were without the token", refused.Load(), asked.Load())
	}
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if strings.Contains(string(text), token) {
			t.Errorf("%s has the token", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"", "wrong-" + token} {
		r := open(t, checkout.Config{Address: at, Token: wrong})
		_, err := r.Fetch(t.Context())
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("with the token %q: %v", wrong, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := with.Fetch(ctx); err == nil {
		t.Error("a fetch goes on after its context has ended")
	}
}
