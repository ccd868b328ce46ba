// Package checkout keeps a private copy of one branch of a git repository, by the git of the machine, and reads
// job files of it. Nothing of a repository is executed: git never makes a work tree, so that hooks, filters,
// submodules and links of the repository have no effect. It knows neither jobs nor servers.
package checkout

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// fetchTimeout bounds a fetch, which is of one commit. Git itself ends a connection by which nothing
	// comes for slowTime seconds.
	fetchTimeout = 10 * time.Minute
	slowTime     = "60"
	// readTimeout bounds what git does with the copy alone.
	readTimeout = 2 * time.Minute
	// afterKill is how long the pipes of git stay open after its end: a child may hold them.
	afterKill = 5 * time.Second
	// repositoryMax bounds the copy on disk: jobs are text, and a repository of gigabytes is a mistake. It is
	// measured every measureEvery while git fetches.
	repositoryMax = 2 << 30
	measureEvery  = time.Second
	// saidMax is the end of the messages of git that is kept.
	saidMax = 4 << 10
)

// ErrInUse means that another process uses the copy.
var ErrInUse = errors.New("is in use")

// Config says what to copy, and where to.
type Config struct {
	Address    Address
	Branch     string // "" is the default branch of the repository
	Path       string // of a folder or file within it, "" for all
	Dir        string // below it each repository and branch has a directory
	Token      string // for https, "" for none
	SSHKey     string // a file, "" for the keys of ssh itself
	KnownHosts string // a file, "" for those of ssh itself
	Getenv     func(string) string
}

// Repository is the copy of a branch. Its methods must not be called at the same time.
type Repository struct {
	Config
	dir     string // of this copy
	lock    *os.File
	address string   // for git
	env     []string // of git
	secrets *strings.Replacer
}

// Commit is a commit of a repository.
type Commit struct {
	Hash    string
	Subject string // the first line of its message
	Time    time.Time
}

// Short is the hash as people write it.
func (c Commit) Short() string { return c.Hash[:min(len(c.Hash), 7)] }

// Open makes or reuses the directory of a copy, which no other process may use until Close.
func Open(c Config) (r *Repository, err error) {
	if err := checkBranch(c.Branch); err != nil {
		return nil, err
	}
	if c.Path, err = CheckPath(c.Path); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("git"); err != nil {
		return nil, errors.New("the program git is not found: install git 2.31 or later")
	}
	r = &Repository{Config: c, address: c.Address.fetched}
	if err := r.setEnv(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(c.Address.fetched + "\x00" + c.Branch))
	r.dir = filepath.Join(c.Dir, hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(r.dir, 0o700); err != nil { // it may be older than this program
		return nil, err
	}
	if r.lock, err = os.OpenFile(filepath.Join(r.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(r.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("the copy of %s in %s %w: another belfry sync follows this branch as this user", c.Address, r.dir, ErrInUse)
	}
	if err != nil {
		return nil, errors.Join(err, r.lock.Close())
	}
	return r, nil
}

// Close lets other processes use the copy.
func (r *Repository) Close() error {
	return errors.Join(syscall.Flock(int(r.lock.Fd()), syscall.LOCK_UN), r.lock.Close())
}

// passed are the variables of this process that git receives: how to find programs, keys, proxies and authorities.
var passed = []string{
	"PATH", "HOME", "TMPDIR", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO",
	"http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY",
}

// setEnv makes the environment of git: without settings of the machine and of the user, which may run programs.
func (r *Repository) setEnv() error {
	env := []string{
		"LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_LFS_SKIP_SMUDGE=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_ALLOW_PROTOCOL=" + r.Address.scheme,
	}
	for _, name := range passed {
		if value := r.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	ssh := "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes"
	if r.SSHKey != "" {
		ssh += " -o IdentitiesOnly=yes -i " + shellWord(r.SSHKey)
	}
	if r.KnownHosts != "" {
		ssh += " -o " + shellWord(`UserKnownHostsFile="`+r.KnownHosts+`"`)
	}
	env = append(env, "GIT_SSH_COMMAND="+ssh)
	hidden := []string{r.Address.fetched, r.Address.shown}
	settings := [][2]string{
		{"core.hooksPath", os.DevNull}, {"credential.helper", ""}, {"http.lowSpeedLimit", "1"}, {"http.lowSpeedTime", slowTime},
		{"fetch.recurseSubmodules", "false"}, {"gc.auto", "1000"}, {"gc.autoDetach", "false"}, {"gc.pruneExpire", "now"}, {"gc.reflogExpire", "now"},
	}
	if r.Token != "" {
		address, key, value, err := r.Address.withToken(r.Token)
		if err != nil {
			return err
		}
		r.address = address
		settings = append(settings, [2]string{key, value}, [2]string{"http.followRedirects", "false"})
		_, basic, _ := strings.Cut(value, "Basic ")
		hidden = append(hidden, r.Token, "***", basic, "***", base64.StdEncoding.EncodeToString([]byte(r.Token)), "***")
	}
	r.secrets = strings.NewReplacer(hidden...)
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(settings)))
	for i, s := range settings { // in the environment, because other users can read arguments
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s[1]))
	}
	r.env = env
	return nil
}

// shellWord quotes a word for the shell by which git starts ssh.
func shellWord(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

const (
	// copied is the repository in the directory of a copy.
	copied = "repository"
	// fetched is where the copy keeps the branch, whatever its name.
	fetched = "refs/belfry/head"
)

// Fetch brings the copy up to date, and returns the last commit of the branch.
func (r *Repository) Fetch(ctx context.Context) (Commit, error) {
	dir := filepath.Join(r.dir, copied)
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
		if err := os.RemoveAll(dir); err != nil {
			return Commit{}, err
		}
		if _, err := r.git(ctx, readTimeout, "init", "--quiet", "--bare", "--template=", "--", dir); err != nil {
			return Commit{}, err
		}
	}
	for _, pattern := range []string{"*.lock", filepath.FromSlash("refs/belfry/*.lock")} { // of a git that was killed
		left, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range left {
			if err := os.Remove(name); err != nil {
				return Commit{}, err
			}
		}
	}
	from := "HEAD"
	if r.Branch != "" {
		from = "refs/heads/" + r.Branch
	}
	fetching, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		bound(fetching, dir, repositoryMax, stop)
	}()
	_, err := r.git(fetching, fetchTimeout, "--git-dir="+dir, "fetch", "--quiet", "--depth=1", "--force", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head",
		"--", r.address, "+"+from+":"+fetched)
	stop(nil)
	<-ended
	if err != nil && ctx.Err() == nil {
		if err := os.RemoveAll(dir); err != nil { // it may be damaged: the next fetch makes another
			return Commit{}, err
		}
	}
	var large *tooLargeError
	switch {
	case errors.As(context.Cause(fetching), &large):
		return Commit{}, fmt.Errorf("fetch %s: %w", r.Address, large)
	case err != nil && strings.Contains(err.Error(), "couldn't find remote ref"):
		if r.Branch == "" {
			return Commit{}, fmt.Errorf("%s has no commit yet", r.Address)
		}
		return Commit{}, fmt.Errorf("%s has no branch %q", r.Address, r.Branch)
	case err != nil:
		return Commit{}, fmt.Errorf("fetch %s: %w", r.Address, err)
	}
	out, err := r.git(ctx, readTimeout, "--git-dir="+dir, "log", "-1", "--no-show-signature", "--format=%H%x00%ct%x00%s", fetched, "--")
	if err != nil {
		return Commit{}, err
	}
	parts := strings.SplitN(strings.TrimSuffix(string(out), "\n"), "\x00", 3)
	seconds, err := strconv.ParseInt(parts[min(1, len(parts)-1)], 10, 64)
	if len(parts) != 3 || err != nil {
		return Commit{}, fmt.Errorf("git log prints %q instead of a commit", out)
	}
	return Commit{Hash: parts[0], Subject: strings.ToValidUTF8(parts[2], "�"), Time: time.Unix(seconds, 0).UTC()}, nil
}

// tooLargeError means that a copy is larger than allowed.
type tooLargeError struct{ max int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the last commit alone has more than %d MiB", e.max>>20)
}

// bound ends a fetch whose copy becomes too large.
func bound(ctx context.Context, dir string, most int64, stop context.CancelCauseFunc) {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var size int64
		_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // files come and go
			if err != nil || e.IsDir() {
				return nil //nolint:nilerr // the next measure counts it
			}
			if info, err := e.Info(); err == nil {
				size += info.Size()
			}
			return nil
		})
		if size > most {
			stop(&tooLargeError{most})
			return
		}
	}
}

// command returns a git that ends with the context, together with its children.
func (r *Repository) command(ctx context.Context, args ...string) (*exec.Cmd, *tail) {
	cmd := exec.CommandContext(ctx, "git", args...)
	said := &tail{}
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.WaitDelay = r.dir, r.env, said, afterKill
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd, said
}

// git runs git, and returns what it prints.
func (r *Repository) git(ctx context.Context, timeout time.Duration, args ...string) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	cmd, said := r.command(ctx, args...)
	out, err := cmd.Output()
	return out, r.explain(ctx, timeout, said, err)
}

// explain returns the error of a git, without secrets.
func (r *Repository) explain(ctx context.Context, timeout time.Duration, said *tail, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("git has not ended after %v", timeout)
	}
	message := ""
	for line := range strings.Lines(r.secrets.Replace(string(said.text))) {
		line = strings.TrimSpace(line)
		if rest, fatal := strings.CutPrefix(line, "fatal: "); fatal {
			message = rest
			break
		}
		message = cmp.Or(line, message)
	}
	return fmt.Errorf("git: %s", cmp.Or(message, err.Error()))
}

// tail keeps the end of a text.
type tail struct{ text []byte }

// Write is called by the process.
func (t *tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-saidMax):]
	return len(b), nil
}
