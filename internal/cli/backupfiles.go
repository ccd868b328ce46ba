package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/belfry-cron/belfry/internal/cli/doctor"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// The names in an archive of belfry backup --with-keys. The store is last: an archive with it is
// complete.
const (
	keptKey     = config.KeyFileName
	keptToken   = auth.TokenFile
	keptSecrets = "secrets/"
	keptConfig  = "belfry.yaml"
	keptStore   = "belfry.db"
)

const (
	// keptFileMax is the largest file beside the store: secrets and settings are much smaller.
	keptFileMax = 4 << 20
	// keptMax bounds the other files: restore keeps them in memory.
	keptMax = 1000
)

// keptFile is a file of a server beside its store.
type keptFile struct {
	name string // in the archive
	at   string // on this machine
	mode fs.FileMode
	data []byte
}

// keptFiles returns the files beside the store that a restore needs. file is the configuration, "" for
// none.
func keptFiles(env Env, file string, c config.Server) (list []keptFile, err error) {
	add := func(name, at string) error {
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return nil
		case info.Size() > keptFileMax:
			return fmt.Errorf("%s has %d bytes, at most %d are kept", at, info.Size(), keptFileMax)
		case len(list) == keptMax:
			return fmt.Errorf("there are more than %d files, the latest is %s", keptMax, at)
		}
		data, err := os.ReadFile(at)
		if err == nil {
			list = append(list, keptFile{name, at, info.Mode().Perm(), data})
		}
		return err
	}
	if key, _, _ := c.KeyFile(); key != "" {
		err = add(keptKey, key)
	}
	err = errors.Join(err, add(keptToken, filepath.Join(c.Data, auth.TokenFile)))
	if file != "" {
		err = errors.Join(err, add(keptConfig, env.path(file)))
	}
	dir := c.SecretsDir()
	namespaces, readErr := os.ReadDir(dir)
	if errors.Is(readErr, fs.ErrNotExist) {
		readErr = nil
	}
	err = errors.Join(err, readErr)
	for _, n := range namespaces {
		files, readErr := os.ReadDir(filepath.Join(dir, n.Name()))
		if errors.Is(readErr, syscall.ENOTDIR) {
			continue
		}
		err = errors.Join(err, readErr)
		for _, f := range files {
			err = errors.Join(err, add(keptSecrets+n.Name()+"/"+f.Name(), filepath.Join(dir, n.Name(), f.Name())))
		}
	}
	return list, err
}

// backUpWithKeys writes an archive with the store and the files beside it.
func backUpWithKeys(ctx context.Context, env Env, file string, c config.Server, store, to string) (err error) {
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("back up %s: %s: %w", store, to, fs.ErrExist)
	}
	files, err := keptFiles(env, file, c)
	if err != nil {
		return fmt.Errorf("back up the files beside %s: %w", store, err)
	}
	part, err := os.MkdirTemp(filepath.Dir(to), filepath.Base(to)+".part-*") // 0700
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }()
	db, whole := filepath.Join(part, keptStore), filepath.Join(part, "archive")
	if err := sqlite.Backup(ctx, store, db); err != nil {
		return err
	}
	if err := writeArchive(ctx, whole, files, db, env); err != nil {
		return fmt.Errorf("back up %s: %w", store, err)
	}
	if err := os.Link(whole, to); err != nil { // never replaces the file of another process
		return err
	}
	var names []string
	for _, f := range files {
		names = append(names, f.at)
	}
	env.tell("the backup has the store and %s: anyone who reads it can use all secrets\n", strings.Join(names, ", "))
	if file == "" {
		running, reload := config.RunningFile(c.Data)
		if running == "" && reload == "" && isThere(packagedConfig) { // no server says which file it has read
			running = packagedConfig
		}
		if running != "" {
			env.tell("the configuration file %s is not in it: name it with --config\n", running)
		}
	}
	for _, own := range []string{c.TLS.Key, c.TLS.Cert, c.Secrets.Vault.TokenFile} {
		if own != "" {
			env.tell("%s is not in it: keep it as well, or issue another one for the new machine\n", own)
		}
	}
	if len(c.Secrets.KeyCommand) > 0 {
		env.tell("the keys of secrets are those that secrets.key_command prints, and not in it\n")
	}
	return nil
}

func writeArchive(ctx context.Context, to string, files []keptFile, db string, env Env) (err error) {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{
			Name: f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: env.Now(), Format: tar.FormatPAX, PAXRecords: map[string]string{keptAt: f.at},
		})
		if err == nil {
			_, err = w.Write(f.data)
		}
		if err != nil {
			return err
		}
	}
	in, err := os.Open(db)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: keptStore, Mode: 0o600, Size: info.Size(), ModTime: env.Now(), Format: tar.FormatPAX}); err != nil {
		return err
	}
	if _, err := io.Copy(w, untilDone{ctx, in}); err != nil {
		return err
	}
	return errors.Join(w.Close(), out.Sync())
}

// keptAt is the record of an archive with the place that a file had.
const keptAt = "BELFRY.at"

// untilDone reads for as long as a context lasts.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// isArchive reports whether a file is an archive of belfry backup --with-keys.
func isArchive(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false // the restore reports why
	}
	defer f.Close()
	_, err = tar.NewReader(f).Next()
	return err == nil
}

// archiveFiles is an archive: its store is in a separate file, and its other files are in memory.
type archiveFiles struct {
	dir, store string
	files      []keptFile
}

// unpack reads an archive, with the places for its files on this machine. The store goes to a directory
// in the data directory, where there must be room for it.
func unpack(ctx context.Context, name string, c config.Server) (u archiveFiles, err error) {
	in, err := os.Open(name)
	if err != nil {
		return u, err
	}
	defer in.Close()
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return u, err
	}
	left, _ := filepath.Glob(filepath.Join(c.Data, unpackedDir+"*")) // left by a killed restore
	for _, dir := range left {
		_ = os.RemoveAll(dir)
	}
	if u.dir, err = os.MkdirTemp(c.Data, unpackedDir+"*"); err != nil {
		return u, err
	}
	r := tar.NewReader(untilDone{ctx, in})
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) || err == nil && h.Name == keptStore {
			if err != nil {
				return u, fmt.Errorf("%s is not whole: it has no %s", name, keptStore)
			}
			u.store = filepath.Join(u.dir, keptStore)
			out, err := os.OpenFile(u.store, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return u, err
			}
			_, err = io.Copy(out, r) //nolint:gosec // a backup is as large as its store
			if err = errors.Join(err, out.Close()); err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
			return u, err
		}
		switch {
		case err != nil:
			return u, fmt.Errorf("%s: %w", name, err)
		case h.Size > keptFileMax || len(u.files) == keptMax:
			return u, fmt.Errorf("%s is not a backup: %s is too large, or one file too many", name, h.Name)
		}
		f := keptFile{name: h.Name, mode: fs.FileMode(h.Mode).Perm()}
		if f.at, err = placeOf(h.Name, c); err != nil {
			return u, fmt.Errorf("%s is not a backup: %w", name, err)
		}
		if f.data, err = io.ReadAll(r); err != nil {
			return u, fmt.Errorf("%s: %w", name, err)
		}
		u.files = append(u.files, f)
	}
}

const unpackedDir = ".restore-"

// placeOf returns where a file of an archive belongs on this machine.
func placeOf(name string, c config.Server) (string, error) {
	switch name {
	case keptKey:
		if key, _, _ := c.KeyFile(); key != "" {
			return key, nil
		}
		return filepath.Join(c.Data, config.KeyFileName), nil
	case keptToken, keptConfig:
		return filepath.Join(c.Data, name), nil
	}
	namespace, file, ok := strings.Cut(strings.TrimPrefix(name, keptSecrets), "/")
	if !strings.HasPrefix(name, keptSecrets) || !ok || path.Clean(name) != name || namespace == ".." || strings.Contains(file, "/") || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("it has a file %q", name)
	}
	return filepath.Join(c.SecretsDir(), namespace, file), nil
}

// restoreArchive restores an archive: first its files, then its store. A failed restore leaves no
// files, and a killed one can be repeated.
func restoreArchive(ctx context.Context, env Env, c config.Server, name, to string) (r sqlite.Restored, err error) {
	u, err := unpack(ctx, name, c)
	if u.dir != "" {
		defer func() { err = errors.Join(err, os.RemoveAll(u.dir)) }()
	}
	if err != nil {
		return r, fmt.Errorf("restore %s: %w", name, err)
	}
	for _, f := range u.files {
		if there, err := os.ReadFile(f.at); err == nil && !bytes.Equal(there, f.data) {
			return r, fmt.Errorf("restore %s: %s is another file than in the backup: %w", name, f.at, fs.ErrExist)
		}
	}
	var names []string
	defer func() {
		if err != nil {
			for _, at := range slices.Backward(names) {
				_ = os.Remove(at)
			}
		}
	}()
	for _, f := range u.files {
		wrote, err := f.put()
		names = append(names, wrote...)
		if err != nil {
			return r, fmt.Errorf("restore %s: %w", name, err)
		}
	}
	if r, err = sqlite.Restore(ctx, u.store, to, env.Now); err != nil {
		return r, err
	}
	for _, f := range u.files {
		env.tell("restored %s\n", f.at)
		if f.name == keptConfig {
			env.tell("start the server with --config %s, or put the file where it was\n", f.at)
		}
	}
	return r, nil
}

// put writes a file unless it exists, and returns the paths that it created.
func (f *keptFile) put() (names []string, err error) {
	if _, err := os.Lstat(f.at); err == nil {
		return nil, nil // the same
	}
	for dir := filepath.Dir(f.at); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		names = append([]string{dir}, names...)
	}
	if err := os.MkdirAll(filepath.Dir(f.at), 0o700); err != nil {
		return names, err
	}
	part, err := os.CreateTemp(filepath.Dir(f.at), unpackedDir+"*") // 0600
	if err != nil {
		return names, err
	}
	defer func() { err = errors.Join(err, os.Remove(part.Name())) }()
	_, err = part.Write(f.data)
	if err = errors.Join(err, part.Chmod(f.mode), part.Sync(), part.Close()); err != nil {
		return names, err
	}
	if err := os.Link(part.Name(), f.at); err != nil {
		return names, err
	}
	return append(names, f.at), nil
}

// sayMissing names the needs of a restored store that this machine lacks.
func sayMissing(ctx context.Context, env Env, c config.Server) error {
	token := filepath.Join(c.Data, auth.TokenFile)
	if _, err := os.Stat(token); errors.Is(err, fs.ErrNotExist) {
		env.tell("%s is missing: put it back, or create another one with belfry token reset, before you start the server\n", token)
	}
	s, err := openWhole(ctx, env, c, c.Store, "", "the store")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	file, _, borrowed := c.KeyFile()
	keeper := secret.Keeper{
		Store: s, Files: secret.Files(c.SecretsDir()), Getenv: env.Getenv, Now: env.Now,
		Ring: &secret.Ring{File: file, Borrowed: borrowed, Command: c.Secrets.KeyCommand, Now: env.Now},
	}
	unopened, err := keeper.Unopened(ctx)
	if err != nil {
		return err
	}
	if unopened.N > 0 {
		env.tell("%s\n%s\n", unopened.Found(), unopened.Do())
	}
	all, err := keeper.List(ctx, "")
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.File == "" {
			continue
		}
		at := filepath.Join(c.SecretsDir(), one.Namespace, one.File)
		if _, err := os.Stat(at); err != nil {
			env.tell("%s is missing: it has the secret %s\n", at, one.FullName())
		}
	}
	channels, err := s.Documents(ctx, job.KindChannel)
	if err != nil {
		return err
	}
	for i := range channels {
		for _, f := range doctor.SecretsOf(channels[i].Channel, c.SecretsDir()) {
			env.tell("%s: %s; %s\n", f.Check, f.Found, f.Do)
		}
	}
	return nil
}

// otherUser refuses to write files into a data directory whose user could not read them.
func otherUser(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return nil //nolint:nilerr // it is made, for this user
	}
	owner, other := config.OtherOwner(info)
	if !other {
		return nil
	}
	return failed("%s belongs to %s, and this is %s: the server could not read what is restored", dir, config.UserName(owner), config.UserName(os.Geteuid())).
		withHint("run this as %s, for example with sudo -u %s", config.UserName(owner), config.UserName(owner))
}
