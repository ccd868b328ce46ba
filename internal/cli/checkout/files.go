package checkout

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	// entriesMax is the most files below the path, of any kind: the list of them is in memory.
	entriesMax = 200_000
	// filesMax and bytesMax bound the job files of a commit, which are in memory several times. A request to the
	// server has at most 10,000 documents in 16 MiB, without the comments and calendars that files have beside.
	filesMax = 10_000
	bytesMax = 64 << 20
	// linkMax is the longest target of a link that is followed.
	linkMax = 4 << 10
)

// extensions are the endings of files that are read: documents, and calendars that they name.
var extensions = []string{".yaml", ".yml", ".json", ".ics"}

// The modes of files in git.
const (
	modeLink      = "120000"
	modeSubmodule = "160000"
)

// CommitError is a mistake in a commit: the next fetch of it fails as well.
type CommitError struct{ text string }

func (e *CommitError) Error() string { return e.text }

func wrong(format string, args ...any) error { return &CommitError{fmt.Sprintf(format, args...)} }

// entry is a file of a commit.
type entry struct {
	mode, object, name string
	size               int64
}

// Files writes the job files of the last fetched commit below the path into a directory of the copy, in place
// of those of an earlier commit, and returns the directory and the files' common name in it: the path, or "."
// without one.
func (r *Repository) Files(ctx context.Context, c Commit) (dir, name string, err error) {
	dir, err = r.files(ctx, c)
	if _, isWrong := errors.AsType[*CommitError](err); err != nil && !isWrong && ctx.Err() == nil {
		err = errors.Join(err, os.RemoveAll(filepath.Join(r.dir, copied))) // it may be damaged: the next fetch makes another
	}
	if err != nil {
		return "", "", fmt.Errorf("commit %s: %w", c.Short(), err)
	}
	name = "."
	if r.Path != "" {
		name = filepath.FromSlash(r.Path)
	}
	return dir, name, nil
}

func (r *Repository) files(ctx context.Context, c Commit) (dir string, err error) {
	entries, err := r.list(ctx, c)
	if err != nil {
		return "", err
	}
	if len(entries) == 0 && r.Path != "" {
		return "", wrong("the repository has no %s: --path is a folder or a file in it", r.Path)
	}
	byName := make(map[string]*entry, len(entries))
	for i := range entries {
		byName[entries[i].name] = &entries[i]
	}
	var wanted []*entry
	var sum int64
	for i := range entries {
		e := &entries[i]
		if e.mode == modeSubmodule {
			return "", wrong("%s is a submodule, which is never read: name a folder without submodules with --path", e.name)
		}
		if !r.isRead(e.name) {
			continue
		}
		if !filepath.IsLocal(filepath.FromSlash(e.name)) {
			return "", wrong("%q is no name of a file", e.name)
		}
		if sum += e.size; len(wanted) == filesMax || sum > bytesMax {
			return "", wrong("it has more than %d job files or %d MiB of them: name a smaller folder with --path", filesMax, bytesMax>>20)
		}
		wanted = append(wanted, e)
	}
	if !slices.ContainsFunc(wanted, func(e *entry) bool { return path.Ext(e.name) != ".ics" }) {
		return "", wrong("it has no .yaml, .yml or .json files in %s", cmp.Or(r.Path, "the repository"))
	}
	dir = filepath.Join(r.dir, "files")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, r.write(ctx, dir, wanted, byName)
}

// isRead reports whether a file may have documents: what begins with a point below the path is hidden, as for belfry
// apply.
func (r *Repository) isRead(name string) bool {
	inside := strings.TrimPrefix(name, r.Path)
	hidden := slices.ContainsFunc(strings.Split(inside, "/"), func(part string) bool { return strings.HasPrefix(part, ".") })
	return inside == "" || !hidden && slices.Contains(extensions, path.Ext(name))
}

// list returns the files of a commit below the path.
func (r *Repository) list(ctx context.Context, c Commit) (entries []entry, err error) {
	args := []string{"ls-tree", "-r", "-l", "-z", "--full-tree", c.Hash}
	if r.Path != "" {
		args = append(args, "--", r.Path)
	}
	err = r.talk(ctx, args, func(_ io.Writer, out *bufio.Reader) error {
		for {
			record, err := out.ReadString(0)
			if errors.Is(err, io.EOF) && record == "" {
				return nil
			}
			if err != nil {
				return err
			}
			if len(entries) == entriesMax {
				return wrong("it has more than %d files: name a smaller folder with --path", entriesMax)
			}
			about, name, _ := strings.Cut(strings.TrimSuffix(record, "\x00"), "\t")
			fields := strings.Fields(about) // mode, type, object, size
			if len(fields) != 4 {
				return fmt.Errorf("git ls-tree prints %q", record)
			}
			e := entry{mode: fields[0], object: fields[2], name: name}
			if fields[3] != "-" { // of a submodule
				if e.size, err = strconv.ParseInt(fields[3], 10, 64); err != nil {
					return err
				}
			}
			entries = append(entries, e)
		}
	})
	return entries, err
}

// pointerOfLFS begins a file whose content is elsewhere.
var pointerOfLFS = []byte("version https://git-lfs.github.com/spec/")

// write writes files below a directory. Only their content is of the repository: each is a regular file that only
// this user can read.
func (r *Repository) write(ctx context.Context, dir string, wanted []*entry, byName map[string]*entry) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var written int64
	return r.talk(ctx, []string{"cat-file", "--batch"}, func(in io.Writer, out *bufio.Reader) error {
		for _, e := range wanted {
			content, err := blob(in, out, e)
			if err != nil {
				return err
			}
			if e.mode == modeLink {
				to, err := target(e, content, byName)
				if err != nil {
					return err
				}
				if content, err = blob(in, out, to); err != nil {
					return err
				}
			}
			if written += int64(len(content)); written > bytesMax { // a file counts once for each link to it
				return wrong("its job files have more than %d MiB: name a smaller folder with --path", bytesMax>>20)
			}
			if bytes.HasPrefix(content, pointerOfLFS) {
				return wrong("%s is in Git LFS, whose files are not fetched: keep job files in git itself", e.name)
			}
			name := filepath.FromSlash(e.name)
			if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				return err
			}
			f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			_, err = f.Write(content)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

// target returns the file that a link leads to, which is below the path as well.
func target(link *entry, content []byte, byName map[string]*entry) (*entry, error) {
	to := string(content)
	if len(to) > linkMax {
		to = to[:linkMax]
	}
	e := byName[path.Join(path.Dir(link.name), to)]
	if path.IsAbs(to) || e == nil || e.mode == modeLink {
		return nil, wrong("%s is a symbolic link to %q, which is no file of the commit below the same path: put a file in its place", link.name, to)
	}
	return e, nil
}

// blob reads the content of a file.
func blob(in io.Writer, out *bufio.Reader, e *entry) ([]byte, error) {
	if e.size > bytesMax {
		return nil, wrong("%s has more than %d MiB", e.name, bytesMax>>20)
	}
	if _, err := io.WriteString(in, e.object+"\n"); err != nil {
		return nil, err
	}
	head, err := out.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if want := fmt.Sprintf("%s blob %d\n", e.object, e.size); head != want {
		return nil, fmt.Errorf("%s: git has %q instead of its content", e.name, head)
	}
	content := make([]byte, e.size+1) // a newline follows
	if _, err := io.ReadFull(out, content); err != nil {
		return nil, err
	}
	return content[:e.size], nil
}

// talk runs git on the copy beside a function that uses its pipes.
func (r *Repository) talk(ctx context.Context, args []string, do func(in io.Writer, out *bufio.Reader) error) error {
	ctx, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	cmd, said := r.command(ctx, append([]string{"--git-dir=" + filepath.Join(r.dir, copied)}, args...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failure := do(in, bufio.NewReader(out))
	_ = in.Close() // git ends by it
	broke := errors.Is(failure, io.EOF) || errors.Is(failure, io.ErrUnexpectedEOF) || errors.Is(failure, syscall.EPIPE)
	if failure != nil && !broke {
		stop()
	}
	ended := cmd.Wait()
	if failure == nil || broke && ended != nil {
		return r.explain(ctx, readTimeout, said, ended)
	}
	return failure
}
