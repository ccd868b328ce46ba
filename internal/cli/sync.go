package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/cli/checkout"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
)

const (
	// syncEvery is the default interval of fetches, and syncEveryMin the shortest: a fetch is a sign-in at
	// another machine, and providers count those.
	syncEvery    = time.Minute
	syncEveryMin = 5 * time.Second
	// gitTokenMax is where a file of a token is cut off when it is read.
	gitTokenMax = 1024
	// statusTextMax is the longest description of a commit status at GitHub, in characters.
	statusTextMax = 140
	// unreachedAfter is how long a repository is not reached before the server shows it: providers and networks
	// restart within that, and jobs are no less current than without a new commit.
	unreachedAfter = 10 * time.Minute
	// mistakeMax is the longest mistake that a server takes, in characters: of three bytes they are within its bound.
	mistakeMax = 600
)

// syncFlags are the flags of belfry sync.
type syncFlags struct {
	sources
	branch, path string
	every        job.Duration
	once         bool
	tokenFile    string
	sshKey       string
	knownHosts   string
	statusFile   string
}

func newSync(env Env) *cobra.Command {
	ask := syncFlags{every: job.Duration(syncEvery)}
	cmd := &cobra.Command{
		Use:   "sync URL [flags]",
		Short: "Follow the job files of a git repository",
		Long: `Follow the job files of a git repository: fetch a branch each minute with the git of this
machine, and apply the files of each new commit, as belfry apply --watch does for a folder.
If a commit has a mistake, or the repository is not reached for 10 minutes, belfry attention
shows it and the jobs stay as the last good commit had them. It deletes without asking if --prune is given, and
leaves alone what is changed on the server until the next commit.

A token for https is in BELFRY_GIT_TOKEN or the file of --git-token-file. ssh uses the key
of --ssh-key, else those of ssh itself, and refuses unknown hosts. Nothing of the
repository is executed: hooks, submodules and filters have no effect.

SIGHUP makes it fetch at once. --once applies the last commit and ends.`,
		Example: `belfry sync https://git.example.com/team/jobs.git --prune
belfry sync https://github.com/acme/infra --branch main --path cron --git-token-file token
belfry sync git@github.com:acme/jobs.git --ssh-key deploy-key --owner acme --prune
belfry sync file:///srv/git/jobs.git --once`,
		Args: oneName("repository"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return followRepository(cmd, env, ask, args[0])
		},
	}
	f := cmd.Flags()
	addWord(f, &ask.branch, "branch", "", "NAME", "branch to follow; default: that of the repository")
	addWord(f, &ask.path, "path", "", "PATH", "folder or file in the repository; default: all of it")
	addParsed(f, &ask.every, "interval", "", job.Duration(syncEvery).String(), "DURATION", "how often to fetch, at least "+syncEveryMin.String(), parseInterval)
	f.BoolVar(&ask.once, "once", false, "apply the last commit and end")
	addWord(f, &ask.owner, "owner", "", "NAME", "owner of the files; jobs are marked with it; default: git: and the repository")
	f.BoolVar(&ask.prune, "prune", false, "delete jobs of the owner that are not in the files")
	addWord(f, &ask.tokenFile, "git-token-file", "", "FILE", "file with a token for https, which only its owner can read; else BELFRY_GIT_TOKEN")
	addWord(f, &ask.sshKey, "ssh-key", "", "FILE", "private key for ssh")
	addWord(f, &ask.knownHosts, "known-hosts", "", "FILE", "keys of hosts for ssh; default: those that ssh knows")
	addWord(f, &ask.statusFile, "status-file", "", "FILE", "write the outcome of each commit into FILE, for its status at the provider")
	addConnection(cmd, &ask.connection)
	return cmd
}

func parseInterval(text string) (job.Duration, error) {
	d, err := job.ParseDuration(text)
	if err == nil && d < job.Duration(syncEveryMin) {
		err = fmt.Errorf("%q is too short; the minimum is %v", text, syncEveryMin)
	}
	return d, err
}

// followRepository applies a branch whenever it changes, until it is interrupted.
func followRepository(cmd *cobra.Command, env Env, ask syncFlags, address string) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	hurry := make(chan os.Signal, 1) // one request to hurry is as good as many
	signal.Notify(hurry, syscall.SIGHUP)
	defer signal.Stop(hurry)
	repository, err := ask.open(env, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, repository.Close()) }()
	server, err := connect(env, ask.connection)
	if err != nil {
		return err
	}
	look, problems := ask.lookAt(env, repository, server.namespace), shownProblems{server: server}
	from := client.Apply{Documents: []client.Document{}, Owner: ask.owner, Source: &client.Commit{URL: repository.Address.String(), Branch: repository.Branch}}
	following := following{
		look: func(ctx context.Context) reading {
			_ = problems.showOwed(ctx) // it was said when it failed first
			r := look(ctx)
			if !ask.once && ctx.Err() == nil { // the caller of --once sees its failure
				problems.showReach(ctx, from, &r)
			}
			return r
		},
		every: time.Duration(ask.every), hurry: hurry,
		ended: func(r *reading, applied client.Applied, err error) {
			if failed := ask.writeStatus(env, r, applied, err); failed != nil {
				env.tell("%v\n", failed)
			}
			problems.show(ctx, r, err)
		},
	}
	if ask.once {
		return following.once(ctx, server)
	}
	env.tell("following %s; an interrupt ends it\n", repository.Address)
	following.run(ctx, cmd, server)
	return nil
}

// once applies what the source says now.
func (f *following) once(ctx context.Context, server *remote) error {
	r := f.look(ctx)
	switch {
	case ctx.Err() != nil:
		return server.refused(ctx.Err())
	case r.absent:
		return r.err
	}
	applied, _, err := server.applyReading(ctx, &r)
	f.ended(&r, applied, err)
	return err
}

// open checks the flags, and opens the copy of the repository.
func (ask *syncFlags) open(env Env, address string) (*checkout.Repository, error) {
	at, err := checkout.ParseAddress(address)
	if err != nil {
		return nil, misused("%v", err)
	}
	c := checkout.Config{Address: at, Branch: ask.branch, Getenv: env.Getenv, Token: strings.TrimSpace(env.Getenv("BELFRY_GIT_TOKEN"))}
	if c.Path, err = checkout.CheckPath(ask.path); err != nil {
		return nil, misused("--path: %v", err)
	}
	if ask.owner == "" {
		if ask.owner = "git:" + repositoryName(at, ask.branch, c.Path); len(ask.owner) > ownerMax {
			return nil, misused("--owner is missing: the address of the repository is too long for a mark")
		}
	}
	if ask.tokenFile != "" {
		if c.Token, err = auth.ReadToken(env.path(ask.tokenFile)); err != nil {
			return nil, misused("--git-token-file: %v", err)
		}
		if c.Token == "" || len(c.Token) >= gitTokenMax {
			return nil, misused("--git-token-file: %s has no token, or more than %d bytes", ask.tokenFile, gitTokenMax-1)
		}
	}
	for _, key := range []struct {
		flag, file string
		to         *string
	}{{"--ssh-key", ask.sshKey, &c.SSHKey}, {"--known-hosts", ask.knownHosts, &c.KnownHosts}} {
		if key.file == "" {
			continue
		}
		*key.to = env.path(key.file)
		if _, err := os.Stat(*key.to); err != nil {
			return nil, misused("%s: %v", key.flag, err)
		}
	}
	if c.Dir, err = copiesDir(env); err != nil {
		return nil, err
	}
	repository, err := checkout.Open(c)
	if errors.Is(err, checkout.ErrInUse) {
		return nil, &failure{code: ExitConflict, message: err.Error()}
	}
	return repository, err
}

// repositoryName names what is followed.
func repositoryName(at checkout.Address, branch, path string) string {
	name := at.Name()
	if path != "" {
		name += "/" + path
	}
	if branch != "" {
		name += "@" + branch
	}
	return name
}

// copiesDir returns the folder for copies of repositories.
func copiesDir(env Env) (string, error) {
	cache := env.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(cache) {
		home := env.Getenv("HOME")
		if !filepath.IsAbs(home) {
			return "", misused("there is no place for a copy of the repository: neither XDG_CACHE_HOME nor HOME is set to a folder")
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "belfry", "sync"), nil
}

// lookAt returns the function that reads the last commit of a repository. A commit is read once.
func (ask *syncFlags) lookAt(env Env, repository *checkout.Repository, namespace string) func(context.Context) reading {
	var last reading
	return func(ctx context.Context) reading {
		commit, err := repository.Fetch(ctx)
		if err != nil {
			return reading{err: err, absent: true}
		}
		if commit.Hash == last.commit.Hash {
			return last
		}
		r := reading{commit: commit, sum: sha256.Sum256([]byte(commit.Hash))}
		dir, name, err := repository.Files(ctx, commit)
		if _, isWrong := errors.AsType[*checkout.CommitError](err); err != nil && !isWrong {
			return reading{err: err, absent: true}
		}
		if r.err = err; err == nil {
			of := ask.sources
			of.files, of.recursive = []string{name}, true
			r.readBelow(env, dir, &of, namespace)
		}
		r.request.Owner = ask.owner // of files that cannot be read, too
		r.request.Source = &client.Commit{URL: repository.Address.String(), Branch: repository.Branch, Commit: commit.Hash}
		for i := range r.request.Documents {
			r.request.Source.Files = append(r.request.Source.Files, filepath.ToSlash(r.documents[i].File))
		}
		last = r
		return r
	}
}

// readBelow reads files below a folder that they cannot leave.
func (r *reading) readBelow(env Env, dir string, ask *sources, namespace string) {
	if env.root, r.err = os.OpenRoot(dir); r.err != nil {
		return
	}
	defer env.root.Close()
	env.Dir = dir
	r.read(env, ask, namespace)
}

// shownProblems shows at a server why a commit is not applied, and that the repository is not reached.
type shownProblems struct {
	server *remote
	// owed are about the last commit and about the way to the repository: nil, or not answered by the server yet.
	owed [2]*client.Apply
	// away is since when the repository is not reached, and shown the reason that the server shows, "" for none.
	away  time.Time
	shown string
}

const aboutCommit, aboutReach = 0, 1 // in owed

// show shows how an attempt to apply failed, unless the server itself is the cause.
func (m *shownProblems) show(ctx context.Context, r *reading, err error) {
	if m.owed[aboutCommit] = nil; err == nil || isOfServer(err) {
		return
	}
	from := *r.request.Source
	from.Files, from.Mistake = nil, shortened(r.mistake(err), mistakeMax)
	m.owed[aboutCommit] = &client.Apply{Documents: []client.Document{}, Owner: r.request.Owner, Source: &from}
	m.sendOwed(ctx)
}

// showReach shows a repository that is not reached for long, until it is reached again.
func (m *shownProblems) showReach(ctx context.Context, about client.Apply, r *reading) {
	from := *about.Source
	switch now := m.server.env.Now(); {
	case !r.absent && m.shown == "":
		m.away = time.Time{}
		return
	case !r.absent:
		from.Commit, from.Reached = r.commit.Hash, true
		m.away, m.shown = time.Time{}, ""
	default:
		if m.away.IsZero() {
			m.away = now
		}
		why := shortened(asFailure(r.err).Error(), mistakeMax)
		if now.Sub(m.away) < unreachedAfter || withoutDigits(why) == withoutDigits(m.shown) {
			return
		}
		from.Unreached, m.shown = why, why
	}
	about.Source = &from
	m.owed[aboutReach] = &about
	m.sendOwed(ctx)
}

// withoutDigits is the same for messages that differ in milliseconds or ports: each change is in the audit.
func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text)
}

func (m *shownProblems) sendOwed(ctx context.Context) {
	if err := m.showOwed(ctx); err != nil {
		m.server.env.tell("the server does not show the problem yet: %v\n", err)
	}
}

// showOwed repeats what the server has not answered to.
func (m *shownProblems) showOwed(ctx context.Context) error {
	for i, request := range m.owed {
		if request == nil {
			continue
		}
		if _, err := m.server.Apply(ctx, *request); err != nil {
			return err
		}
		m.owed[i] = nil
	}
	return nil
}

// isOfServer reports whether an attempt failed at the server, and not by a mistake in the commit.
func isOfServer(err error) bool {
	f := asFailure(err)
	return f.code == ExitUnreachable || f.code == ExitNotAllowed || f.problem != nil && f.problem.Status >= http.StatusInternalServerError
}

// commitName is a commit as it is shown: its hash and the first line of its message.
func commitName(c checkout.Commit) string {
	return strings.TrimSpace(c.Short() + " " + printable(shortened(c.Subject, 72))) // as long as git shows it
}

// shortened cuts a text to a number of characters.
func shortened(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// commitStatus is the outcome of a commit, in the words of GitHub's commit statuses.
type commitStatus struct {
	Commit      string    `json:"commit"`
	State       string    `json:"state"` // success, failure for a mistake of the commit, error for one of the server
	Description string    `json:"description"`
	Time        time.Time `json:"time"`
}

// writeStatus replaces the file of the last outcome.
func (ask *syncFlags) writeStatus(env Env, r *reading, applied client.Applied, err error) error {
	if ask.statusFile == "" {
		return nil
	}
	s := commitStatus{Commit: r.commit.Hash, State: "success", Time: env.Now().UTC().Truncate(time.Second)}
	if s.Description = fmt.Sprintf("%s applied", counted(len(applied.Results), "document")); err != nil {
		s.State, s.Description = "failure", r.mistake(err)
		if isOfServer(err) {
			s.State = "error"
		}
	}
	s.Description = shortened(s.Description, statusTextMax)
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	file := env.path(ask.statusFile)
	failed := encoder.Encode(s)
	if failed == nil {
		failed = os.WriteFile(file+".new", text.Bytes(), 0o644)
	}
	if failed == nil {
		failed = os.Rename(file+".new", file)
	}
	if failed != nil {
		return fmt.Errorf("--status-file: %w", failed)
	}
	return nil
}

// mistake returns the first mistake of a reading that was not applied, and the number of others.
func (r *reading) mistake(err error) string {
	f := asFailure(err)
	list := f.details
	if r.validation != nil && len(r.problems) > 0 {
		list = nil
		for _, p := range r.problems {
			list = append(list, p.Error())
		}
	}
	if len(list) == 0 {
		return f.Error()
	}
	if n := len(list) - 1; n > 0 {
		return fmt.Sprintf("%s, and %s", list[0], counted(n, "other mistake"))
	}
	return list[0]
}
