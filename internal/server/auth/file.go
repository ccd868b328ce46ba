package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/belfry-cron/belfry/store"
)

// TokenFile is the file in a data directory with the administrator's token.
const TokenFile = "token"

// Admin is the name of the first token.
const Admin = "admin"

// system is the creator of tokens that no other token has created.
const system = "belfry"

// First ensures that a store has a token, and reports whether it is the token in [TokenFile] of the
// data directory. If several nodes start at once, only the one that adds the token keeps a file.
// The file precedes the token in the store: after a crash in between the next start uses the token
// in the file.
func First(ctx context.Context, s Store, dir string) (isNew bool, err error) {
	tokens, err := s.Tokens(ctx)
	if err != nil || len(tokens) > 0 {
		return false, err
	}
	path := filepath.Join(dir, TokenFile)
	secret, err := readOwn(path)
	wrote := errors.Is(err, fs.ErrNotExist)
	if wrote {
		secret, err = writeNew(dir)
	}
	if err != nil {
		return false, err
	}
	if !isSecret(secret) {
		return false, fmt.Errorf("%s does not contain a token: move it away to have one created", path)
	}
	_, err = s.PutToken(ctx, store.PutToken{Name: Admin, Hash: HashOf(secret), Role: store.RoleAdmin, First: true, Actor: system})
	if errors.Is(err, store.ErrExists) {
		if wrote {
			return false, os.Remove(path)
		}
		return false, nil
	}
	return err == nil, err
}

// Reset makes a new token for the administrator of a store and writes it into the data
// directory, whose file it returns. It revokes the earlier token of that name.
func Reset(ctx context.Context, s Store, dir string) (path string, err error) {
	secret, err := NewSecret()
	if err != nil {
		return "", err
	}
	// The store comes first: if it refuses, the file still has a valid token.
	_, err = s.PutToken(ctx, store.PutToken{Name: Admin, Hash: HashOf(secret), Role: store.RoleAdmin, Replace: true, Actor: system})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, TokenFile), write(dir, TokenFile, secret)
}

func writeNew(dir string) (string, error) {
	secret, err := NewSecret()
	if err != nil {
		return "", err
	}
	return secret, write(dir, TokenFile, secret)
}

// write atomically writes the file, readable only by its owner.
func write(dir, name, secret string) error {
	f, err := os.CreateTemp(dir, name+"-") // created with the mode 0600
	if err != nil {
		return fmt.Errorf("write a token: %w", err)
	}
	_, err = f.WriteString(secret + "\n")
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write a token: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// ReadToken reads a token from a file. It refuses a file that others can read or have created,
// since that is not secret. Only root may use the files of others, and others root's.
func ReadToken(path string) (string, error) {
	user := os.Geteuid()
	return read(path, func(owner int) bool { return user == 0 || owner == 0 || owner == user })
}

// readOwn is [ReadToken] for a server, to which another user's token would let that user in.
func readOwn(path string) (string, error) {
	return read(path, func(owner int) bool { return owner == os.Geteuid() })
}

func read(path string, trusts func(owner int) bool) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	open := info.Mode().Perm() & 0o077
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if !trusts(int(stat.Uid)) {
			return "", fmt.Errorf("%s belongs to user %d and this is user %d: its owner knows the token (chown, or move it away)", path, stat.Uid, os.Geteuid())
		}
		if stat.Uid == 0 && os.Geteuid() != 0 {
			open &^= 0o040 // as Kubernetes mounts Secrets, for the group of a user
		}
	}
	if open != 0 {
		return "", fmt.Errorf("%s is readable by other users: its mode is %04o and should be 0600 (chmod 600)", path, info.Mode().Perm())
	}
	const longest = 1024 // a token has 50 characters
	data, err := io.ReadAll(io.LimitReader(f, longest))
	if err != nil {
		return "", fmt.Errorf("read the token in %s: %w", path, err)
	}
	return strings.TrimSpace(string(data)), nil
}
