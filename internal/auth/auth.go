// Package auth knows who may call a server: it makes the first token, keeps what
// is needed to recognise tokens, and looks them up. What a caller may do is not
// decided here.
//
// A token is 256 random bits, so that guessing is out of the question and a plain
// SHA-256 is enough to keep: tokens.json in the data directory has the hashes.
// The file admin-token beside it holds the first token itself, for its user to
// read or to move elsewhere; the server never reads it again.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The files in the data directory.
const (
	// TokenFile holds the token of the administrator.
	TokenFile = "admin-token"
	hashFile  = "tokens.json"
)

// tokenPrefix tells people and secret scanners what a token is for.
const tokenPrefix = "belfry_"

// tokenBytes are 256 bits.
const tokenBytes = 32

// Admin is the name of the first token.
const Admin = "admin"

// Tokens recognises tokens. Its method may be called from many goroutines.
type Tokens struct {
	byHash map[[sha256.Size]byte]string // the name of each
}

// record is a token as tokens.json keeps it.
type record struct {
	Name    string    `json:"name"`
	SHA256  string    `json:"sha256"`
	Created time.Time `json:"created"`
}

// file is tokens.json.
type file struct {
	Tokens []record `json:"tokens"`
}

// Open reads the tokens of a data directory, which must exist. In one that has
// none it makes that of the administrator; made tells so, and the token is then
// in TokenFile.
func Open(dir string, now time.Time) (tokens *Tokens, made bool, err error) {
	path := filepath.Join(dir, hashFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := create(dir, now); err != nil {
			return nil, false, err
		}
		made = true
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the tokens: %w", err)
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, false, fmt.Errorf("read the tokens: %s: %w", path, err)
	}
	tokens = &Tokens{byHash: map[[sha256.Size]byte]string{}}
	for _, r := range f.Tokens {
		var sum [sha256.Size]byte
		hash, err := hex.DecodeString(r.SHA256)
		if err != nil || len(hash) != len(sum) || r.Name == "" {
			return nil, false, fmt.Errorf("read the tokens: %s: the token %q is damaged", path, r.Name)
		}
		copy(sum[:], hash)
		tokens.byHash[sum] = r.Name
	}
	return tokens, made, nil
}

// create makes the token of the administrator. The hash is written last: a crash
// before it leaves a token that is worth nothing and is replaced by the next
// start.
func create(dir string, now time.Time) error {
	secret := make([]byte, tokenBytes)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	sum := sha256.Sum256([]byte(token))
	data, err := json.MarshalIndent(file{[]record{{Admin, hex.EncodeToString(sum[:]), now.UTC().Truncate(time.Second)}}}, "", "  ")
	if err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	if err := write(dir, TokenFile, token+"\n"); err != nil {
		return err
	}
	return write(dir, hashFile, string(data)+"\n")
}

// write writes a file that nobody else can read, whole or not at all.
func write(dir, name, text string) error {
	f, err := os.CreateTemp(dir, name+"-") // its mode is 0600
	if err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make a token: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// Authenticate returns the name of a token, if it is one. The look-up goes by the
// hash, whose time tells nothing about the token.
func (t *Tokens) Authenticate(token string) (name string, ok bool) {
	name, ok = t.byHash[sha256.Sum256([]byte(token))]
	return name, ok
}

// ReadToken reads a token from a file. One that others can read is refused, as
// it is a secret no more.
func ReadToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s can be read by others: its mode is %04o and should be 0600", path, info.Mode().Perm())
	}
	const longest = 1024
	data := make([]byte, longest)
	n, err := f.Read(data)
	if err != nil {
		return "", fmt.Errorf("read the token in %s: %w", path, err)
	}
	return strings.TrimSpace(string(data[:n])), nil
}
