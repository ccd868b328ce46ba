package auth

import (
	"crypto/hmac"
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
	"sync"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// SessionFile is the file in a data directory that holds the sessions of browsers.
const SessionFile = "sessions"

const (
	// SessionIdle ends a session that was not used: a night passes, a weekend does not.
	SessionIdle = 12 * time.Hour
	// SessionMax ends any session, so that a stolen cookie is of no use for long.
	SessionMax = 7 * 24 * time.Hour
	// CodeFor is how long a login code is valid: a browser starts within it.
	CodeFor = time.Minute
	// sessionsMax bounds the sessions of a node; a new one evicts the one not used longest.
	sessionsMax = 1000
	// codesMax bounds the codes that were not redeemed; a new one evicts the oldest.
	codesMax = 100
	// savedEvery is how often the last use of sessions is written: a crash ends a session at
	// most that much early.
	savedEvery = 10 * time.Minute
)

// Sessions are the sessions of browsers on one node. A session stands for a token and has no
// rights of its own: its token is looked up for each request. The file has hashes of sessions
// and of tokens, neither of which opens anything. Its methods may be called from many
// goroutines.
type Sessions struct {
	file string
	now  func() time.Time

	mu    sync.Mutex
	known map[[sha256.Size]byte]session
	codes map[[sha256.Size]byte]session
	saved time.Time
}

type session struct {
	Token      store.TokenHash
	Made, Used time.Time
}

// OpenSessions reads the sessions of a data directory, "" for none on disk. now is the clock
// of the process; nil is that of the machine.
func OpenSessions(dir string, now func() time.Time) (*Sessions, error) {
	if now == nil {
		now = time.Now
	}
	s := &Sessions{now: now, known: map[[sha256.Size]byte]session{}, codes: map[[sha256.Size]byte]session{}, saved: now()}
	if dir == "" {
		return s, nil
	}
	s.file = filepath.Join(dir, SessionFile)
	data, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the sessions: %w", err)
	}
	var list []savedSession
	if err := json.Unmarshal(data, &list); err != nil {
		return s, nil //nolint:nilerr // a file cut by a full disk logs people out and must not stop the server
	}
	for _, one := range list {
		id, err := hex.DecodeString(one.ID)
		token, err2 := hex.DecodeString(one.Token)
		if err == nil && err2 == nil && len(id) == sha256.Size && len(token) == sha256.Size && len(s.known) < sessionsMax {
			s.known[[sha256.Size]byte(id)] = session{store.TokenHash(token), one.Made, one.Used}
		}
	}
	return s, nil
}

type savedSession struct {
	ID    string    `json:"id"`
	Token string    `json:"token"`
	Made  time.Time `json:"made"`
	Used  time.Time `json:"used"`
}

// Begin makes a session for a token and returns its secret.
func (s *Sessions) Begin(token store.TokenHash) (secret string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(s.known, sessionsMax, token, true)
}

// NewCode makes a code that begins a session for a token once, within CodeFor.
func (s *Sessions) NewCode(token store.TokenHash) (code string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(s.codes, codesMax, token, false)
}

func (s *Sessions) add(to map[[sha256.Size]byte]session, most int, token store.TokenHash, save bool) (secret string, err error) {
	random := make([]byte, tokenBytes)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("create a session: %w", err)
	}
	if len(to) >= most {
		evictOldest(to)
	}
	secret = base64.RawURLEncoding.EncodeToString(random)
	now := s.now()
	to[sha256.Sum256([]byte(secret))] = session{token, now, now}
	if save {
		err = s.save()
	}
	return secret, err
}

func evictOldest(from map[[sha256.Size]byte]session) {
	var oldest [sha256.Size]byte
	var used time.Time
	for id, one := range from {
		if used.IsZero() || one.Used.Before(used) {
			oldest, used = id, one.Used
		}
	}
	delete(from, oldest)
}

// Redeem returns the token of a code, once.
func (s *Sessions) Redeem(code string) (token store.TokenHash, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := sha256.Sum256([]byte(code))
	one, ok := s.codes[id]
	delete(s.codes, id)
	age := s.now().Sub(one.Made)
	return one.Token, ok && 0 <= age && age <= CodeFor
}

// Token returns the token that a session stands for, and counts as a use of it.
func (s *Sessions) Token(secret string) (token store.TokenHash, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, now := sha256.Sum256([]byte(secret)), s.now()
	one, ok := s.known[id]
	if !ok {
		return token, false
	}
	if isOver(one, now) {
		delete(s.known, id)
		return token, false
	}
	one.Used = now
	s.known[id] = one
	if age := now.Sub(s.saved); age < 0 || age >= savedEvery {
		_ = s.save() // the next use tries again
	}
	return one.Token, true
}

func isOver(one session, now time.Time) bool {
	return now.Sub(one.Used) >= SessionIdle || now.Sub(one.Made) >= SessionMax
}

// End ends a session.
func (s *Sessions) End(secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, sha256.Sum256([]byte(secret)))
	return s.save()
}

// save writes the sessions. The caller holds the lock: the file has at most sessionsMax lines,
// and a log-in waits for it anyway.
func (s *Sessions) save() error {
	if s.file == "" {
		return nil
	}
	now := s.now()
	list := []savedSession{}
	for id, one := range s.known {
		if !isOver(one, now) {
			list = append(list, savedSession{hex.EncodeToString(id[:]), hex.EncodeToString(one.Token[:]), one.Made, one.Used})
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("write the sessions: %w", err)
	}
	temporary := s.file + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return fmt.Errorf("write the sessions: %w", err)
	}
	if err := os.Rename(temporary, s.file); err != nil {
		return fmt.Errorf("write the sessions: %w", err)
	}
	s.saved = now
	return nil
}

// FormToken returns what forms of a session carry: a page of another site cannot know it.
func FormToken(secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("form"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// IsFormToken tells whether a form belongs to a session.
func IsFormToken(secret, token string) bool {
	return hmac.Equal([]byte(FormToken(secret)), []byte(token))
}
