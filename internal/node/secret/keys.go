// Package secret keeps values that jobs and channels refer to by name. A value is encrypted with a
// key of the servers and kept as a note of the store, or read from a file, a variable or Vault at
// each use. The package also masks values in the output of attempts. It does not decide who may set
// or use a secret.
package secret

import (
	"bufio"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

const (
	keyBytes  = 32 // of AES-256
	saltBytes = 16
	// keysMax bounds the keys of a server: one to seal, and older ones until the next rotation.
	keysMax = 50
	// keyTextMax is how long the text with the keys is.
	keyTextMax = 64 << 10
	// keyLife is how long keys are cached, so that a new key needs no restart; a value with an
	// unknown key rereads them at once, but at most once per keyPause.
	keyLife  = time.Minute
	keyPause = 5 * time.Second
	// commandMax is how long the command for keys may run.
	commandMax = 20 * time.Second
)

var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Sealed is an encrypted value: AES-256-GCM with a separate key, which HKDF-SHA256 derives from a
// key of the servers, the salt and the full name of the secret. A value cannot be moved to another
// name.
type Sealed struct {
	Key   string `json:"key"`  // id of the servers' key
	Salt  []byte `json:"salt"` // random
	Value []byte `json:"value"`
}

type key struct {
	id     string
	secret []byte
}

// cipherOf returns the cipher for the value of a secret.
func (k *key) cipherOf(name string, salt []byte) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, k.secret, salt, "belfry secret "+name, keyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// parseKeys reads keys, one per line: an id, a blank and 32 bytes in base64. Empty lines and
// lines that begin with # are ignored. The first key encrypts.
func parseKeys(text []byte) ([]key, error) {
	var keys []key
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		const form = "a line is an id, a blank and 32 bytes in base64, as belfry secret key makes it"
		if len(words) != 2 || !keyID.MatchString(words[0]) {
			return nil, fmt.Errorf("line %d: %s", n, form)
		}
		secret, err := base64.StdEncoding.DecodeString(words[1])
		if err != nil || len(secret) != keyBytes {
			return nil, fmt.Errorf("line %d: key %s is not 32 bytes in base64; %s", n, words[0], form)
		}
		for _, other := range keys {
			if other.id == words[0] {
				return nil, fmt.Errorf("line %d: key %s is there twice", n, words[0])
			}
		}
		keys = append(keys, key{words[0], secret})
	}
	switch {
	case lines.Err() != nil:
		return nil, lines.Err()
	case len(keys) == 0:
		return nil, errors.New("there is no key: belfry secret key makes one")
	case len(keys) > keysMax:
		return nil, fmt.Errorf("there are %d keys, at most %d are allowed", len(keys), keysMax)
	}
	return keys, nil
}

// NewKey returns a line with a new key. Its id has the time and a random part.
func NewKey(now time.Time) string {
	secret, id := make([]byte, keyBytes), make([]byte, 2)
	_, _ = rand.Read(secret) // crypto/rand does not fail
	_, _ = rand.Read(id)
	return now.UTC().Format("2006-01-02T150405") + fmt.Sprintf("-%x ", id) + base64.StdEncoding.EncodeToString(secret) + "\n"
}

// Ring has the keys of a server, from the places in its fields; without a place the server has no
// keys. Its methods may be called from many goroutines.
type Ring struct {
	// File holds the keys. Make creates it with a new key if it does not exist.
	File string
	Make bool
	// Borrowed is set when File may belong to an earlier store of this server: it opens values but
	// seals none, because other servers may lack it.
	Borrowed bool
	// Sealed returns a sealed value of the store, nil if there is none. If there is one, no new key is
	// made, because its key is missing. May be nil.
	Sealed func(ctx context.Context) (*Secret, error)
	// Command prints the keys, in place of a file.
	Command []string
	Now     func() time.Time

	mu     sync.Mutex
	keys   []key
	loaded time.Time
}

// without reports whether the server has no keys.
func (r *Ring) without() bool { return r.File == "" && len(r.Command) == 0 }

// place describes where a server gets another key.
func (r *Ring) place() string {
	switch {
	case len(r.Command) > 0:
		return "secrets.key_command must print its line too"
	case r.File == "" || r.Borrowed:
		return "set secrets.key_file to the file of the other servers, or of the store that this one was copied from"
	}
	const suffix = "; a backup that was made with --with-keys has the file"
	if _, err := os.Stat(r.File); errors.Is(err, fs.ErrNotExist) {
		return "put the file " + r.File + " back" + suffix
	}
	return "add its line to " + r.File + ", below the first" + suffix
}

// get returns the keys, read again when they are older than a time.
func (r *Ring) get(ctx context.Context, life time.Duration) ([]key, error) {
	if r.without() {
		return nil, errNoKey
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	if r.keys != nil && now.Sub(r.loaded) < life {
		return r.keys, nil
	}
	text, err := r.read(ctx)
	if err == nil {
		var keys []key
		if keys, err = parseKeys(text); err == nil {
			r.keys, r.loaded = keys, now
			return keys, nil
		}
	}
	if r.Borrowed && errors.Is(err, os.ErrNotExist) {
		return nil, errNoKey
	}
	where := "secrets.key_file " + r.File
	if len(r.Command) > 0 {
		where = "secrets.key_command"
	}
	return nil, &KeyError{fmt.Errorf("%s: %w", where, err)}
}

var errNoKey = &KeyError{phrase.Mistake(phrase.NoSecretKey)}

// KeyError is why a server cannot read its keys.
type KeyError struct{ error }

// Unwrap returns the cause.
func (e *KeyError) Unwrap() error { return e.error }

func (r *Ring) read(ctx context.Context) ([]byte, error) {
	if len(r.Command) > 0 {
		ctx, cancel := context.WithTimeout(ctx, commandMax)
		defer cancel()
		cmd := exec.CommandContext(ctx, r.Command[0], r.Command[1:]...)
		cmd.WaitDelay = time.Second
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		if err != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
			return nil, fmt.Errorf("%s: %w: %.200s", r.Command[0], err, first)
		}
		return text, nil
	}
	text, err := readPrivate(r.File)
	if errors.Is(err, os.ErrNotExist) && r.Make {
		if err := r.missing(ctx); err != nil {
			return nil, err
		}
		if err := makePrivate(r.File, NewKey(r.Now())); err != nil {
			return nil, err
		}
		return readPrivate(r.File)
	}
	return text, err
}

// missing names values that a new key would not open.
func (r *Ring) missing(ctx context.Context) error {
	if r.Sealed == nil {
		return nil
	}
	s, err := r.Sealed(ctx)
	if err == nil && s != nil {
		err = fmt.Errorf("the file is missing, and the secret %s is sealed with its key %s: put the file back. "+
			"If it is lost, make a new one with belfry secret key >%s, and set the secrets again", s.FullName(), s.Sealed.Key, r.File)
	}
	return err
}

// makePrivate creates a file that only its user can read, unless it exists.
func makePrivate(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil // by another process
	}
	if err != nil {
		return plain(err)
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// readPrivate reads a file that must be hidden from other users.
func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, plain(err)
	}
	if !private(info, os.Geteuid()) {
		return nil, fmt.Errorf("other users can read it (mode %04o): chmod 600 %s", info.Mode().Perm(), path)
	}
	return readBounded(f, keyTextMax)
}

// private reports whether a file is hidden from other users. A file of root may be readable by its
// group, as Kubernetes mounts Secrets for a user and PostgreSQL permits.
func private(info fs.FileInfo, user int) bool {
	open := info.Mode().Perm() & 0o077
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 && user != 0 {
		open &^= 0o040
	}
	return open == 0
}

// seal encrypts a value with the first key.
func (r *Ring) seal(ctx context.Context, name string, value []byte) (*Sealed, error) {
	if err := r.borrowed(); err != nil {
		return nil, err
	}
	keys, err := r.get(ctx, keyLife)
	if err != nil {
		return nil, err
	}
	s := &Sealed{Key: keys[0].id, Salt: make([]byte, saltBytes)}
	_, _ = rand.Read(s.Salt) // crypto/rand does not fail
	gcm, err := keys[0].cipherOf(name, s.Salt)
	if err != nil {
		return nil, err
	}
	s.Value = gcm.Seal(nil, nil, value, nil) //nolint:gosec // the salt makes the key, which seals this value alone
	return s, nil
}

// borrowed explains why nothing is sealed with a file that other servers may lack.
func (r *Ring) borrowed() error {
	if !r.Borrowed {
		return nil
	}
	if _, err := os.Stat(r.File); err != nil {
		return errNoKey
	}
	return &KeyError{fmt.Errorf("all servers of this store need the same key: copy %s to each of them, and set secrets.key_file", r.File)}
}

// open decrypts a value.
func (r *Ring) open(ctx context.Context, name string, s *Sealed) ([]byte, error) {
	var ids []string
	for _, life := range []time.Duration{keyLife, keyPause} {
		keys, err := r.get(ctx, life)
		if err != nil {
			return nil, err
		}
		ids = nil
		for i := range keys {
			if keys[i].id != s.Key {
				ids = append(ids, keys[i].id)
				continue
			}
			gcm, err := keys[i].cipherOf(name, s.Salt)
			if err != nil {
				return nil, err
			}
			value, err := gcm.Open(nil, nil, s.Value, nil)
			if err != nil {
				return nil, fmt.Errorf("key %s does not open it: it is damaged, or this is another key of that name", s.Key)
			}
			return value, nil
		}
	}
	return nil, fmt.Errorf("it is sealed with the key %s, and this server has %s", s.Key, strings.Join(ids, ", "))
}

// current returns the id of the key that seals, read afresh.
func (r *Ring) current(ctx context.Context) (string, error) {
	if err := r.borrowed(); err != nil {
		return "", err
	}
	keys, err := r.get(ctx, 0)
	if err != nil {
		return "", err
	}
	return keys[0].id, nil
}
