package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// clock stands still until it is set.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newClock() *clock { return &clock{time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)} }

func first(t *testing.T, s auth.Store, dir string) (isNew bool) {
	t.Helper()
	isNew, err := auth.First(t.Context(), s, dir)
	if err != nil {
		t.Fatal(err)
	}
	return isNew
}

func secretIn(t *testing.T, dir string) string {
	t.Helper()
	secret, err := auth.ReadToken(filepath.Join(dir, auth.TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestFirstStartMakesATokenOnce(t *testing.T) {
	s, dir := memory.New(memory.Options{}), t.TempDir()
	if !first(t, s, dir) {
		t.Error("no token was made")
	}
	secret := secretIn(t, dir)
	if len(secret) < 43 {
		t.Errorf("the token %q has less than 256 bits", secret)
	}
	token, err := auth.New(s, nil).Authenticate(t.Context(), secret)
	if err != nil || token.Name != auth.Admin || token.Role != store.RoleAdmin {
		t.Errorf("the token is %+v, %v", token, err)
	}
	if first(t, s, dir) {
		t.Error("a second token was made")
	}
	if secretIn(t, dir) != secret {
		t.Error("the file holds another token after a restart")
	}
	if info, err := os.Stat(filepath.Join(dir, auth.TokenFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

func TestOnlyTheNodeThatMakesTheTokenHasAFile(t *testing.T) {
	s := memory.New(memory.Options{})
	one, other := t.TempDir(), t.TempDir()
	first(t, s, one)
	if first(t, s, other) {
		t.Error("a second node has made a token")
	}
	// And when both find the store empty.
	late := t.TempDir()
	if first(t, lateStore{s}, late) {
		t.Error("a node that came later has made a token")
	}
	for _, dir := range []string{other, late} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("it has left %v, %v", entries, err)
		}
	}
}

// lateStore has no tokens when they are read, and has one by the time that another is added.
type lateStore struct{ auth.Store }

func (lateStore) Tokens(context.Context) ([]store.Token, error) { return nil, nil }

func TestStartContinuesAfterACrash(t *testing.T) {
	// The file exists, and the store does not know the token yet.
	dir := t.TempDir()
	first(t, memory.New(memory.Options{}), dir)
	secret := secretIn(t, dir)
	s := memory.New(memory.Options{})
	if !first(t, s, dir) {
		t.Error("the token was not made")
	}
	if _, err := auth.New(s, nil).Authenticate(t.Context(), secretIn(t, dir)); err != nil || secretIn(t, dir) != secret {
		t.Errorf("the token in the file is another one, or not valid: %v", err)
	}
}

func TestAFileThatHoldsNoTokenIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "does not contain a token", "1234\n": "does not contain a token",
		"a phrase that a person has thought of, and long enough\n": "does not contain a token",
		"belfry_" + strings.Repeat("x", 42):                        "does not contain a token",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, auth.TokenFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := auth.First(t.Context(), memory.New(memory.Options{}), dir)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives the error %v", text, err)
		}
	}
}

func TestResetRevokesTheLostToken(t *testing.T) {
	s, dir := memory.New(memory.Options{}), t.TempDir()
	first(t, s, dir)
	lost := secretIn(t, dir)
	if path, err := auth.Reset(t.Context(), s, dir); err != nil || path != filepath.Join(dir, auth.TokenFile) {
		t.Fatal(path, err)
	}
	tokens := auth.New(s, nil)
	if _, err := tokens.Authenticate(t.Context(), lost); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("the lost token gives %v", err)
	}
	if _, err := tokens.Authenticate(t.Context(), secretIn(t, dir)); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheTokenItselfIsValid(t *testing.T) {
	s, dir := memory.New(memory.Options{}), t.TempDir()
	first(t, s, dir)
	tokens, secret := auth.New(s, nil), secretIn(t, dir)
	for _, other := range []string{"", "admin", secret + " ", secret[:len(secret)-1], strings.ToUpper(secret)} {
		if token, err := tokens.Authenticate(t.Context(), other); !errors.Is(err, auth.ErrUnknown) {
			t.Errorf("%q is taken for the token of %s: %v", other, token.Name, err)
		}
	}
}

func TestATokenThatOthersCanReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("secret\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	_, err := auth.ReadToken(path)
	if err == nil || !strings.Contains(err.Error(), "0640") || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error is %v", err)
	}
}

// counting counts how often the tokens are read.
type counting struct {
	auth.Store
	reads int
	wrong error
}

func (c *counting) Tokens(ctx context.Context) ([]store.Token, error) {
	c.reads++
	if c.wrong != nil {
		return nil, c.wrong
	}
	return c.Store.Tokens(ctx)
}

func TestTokensExpireByTheClockOfTheStore(t *testing.T) {
	server, here := newClock(), newClock()
	here.now = here.now.Add(-time.Hour) // wrong
	s := memory.New(memory.Options{Now: server.Now})
	if _, err := s.PutToken(t.Context(), store.PutToken{Name: "ci", Hash: auth.HashOf("secret"), Role: store.RoleViewer, Lasts: time.Minute, Actor: "admin"}); err != nil {
		t.Fatal(err)
	}
	tokens := auth.New(s, here.Now)
	if _, err := tokens.Authenticate(t.Context(), "secret"); err != nil {
		t.Errorf("a token that is valid: %v", err)
	}
	server.now = server.now.Add(time.Minute - time.Millisecond)
	here.now = here.now.Add(time.Minute - time.Millisecond)
	if _, err := tokens.Authenticate(t.Context(), "secret"); err != nil {
		t.Errorf("a token that is valid for a millisecond: %v", err)
	}
	here.now = here.now.Add(time.Millisecond) // the cache suffices for that
	if token, err := tokens.Authenticate(t.Context(), "secret"); !errors.Is(err, auth.ErrExpired) || token.Name != "ci" {
		t.Errorf("a token that has expired gives %v, %v", token, err)
	}
}

func TestARevokedTokenIsRefusedAtOnceHereAndWithinASecondElsewhere(t *testing.T) {
	c := newClock()
	s := &counting{Store: memory.New(memory.Options{Now: c.Now})}
	revoke := func(name string) {
		t.Helper()
		if err := s.Store.(*memory.Store).DeleteToken(t.Context(), name, "admin"); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"admin", "one", "two"} {
		if _, err := s.PutToken(t.Context(), store.PutToken{Name: name, Hash: auth.HashOf(name), Role: store.RoleAdmin, Actor: "belfry"}); err != nil {
			t.Fatal(err)
		}
	}
	here, elsewhere := auth.New(s, c.Now), auth.New(s, c.Now)
	for _, tokens := range []*auth.Tokens{here, elsewhere} {
		for range 100 {
			if _, err := tokens.Authenticate(t.Context(), "one"); err != nil {
				t.Fatal(err)
			}
			_, _ = tokens.Authenticate(t.Context(), "guess")
		}
	}
	if s.reads != 2 {
		t.Errorf("the store was read %d times for 400 requests of a moment", s.reads)
	}
	revoke("one")
	here.Forget()
	if _, err := here.Authenticate(t.Context(), "one"); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("where it was revoked: %v", err)
	}
	c.now = c.now.Add(time.Second)
	if _, err := elsewhere.Authenticate(t.Context(), "one"); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("elsewhere, a second later: %v", err)
	}
	// A clock set back does not extend the life of the cache.
	revoke("two")
	c.now = c.now.Add(-time.Hour)
	if _, err := elsewhere.Authenticate(t.Context(), "two"); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("after the clock was set back: %v", err)
	}
}

func TestSilentStoreAdmitsNoToken(t *testing.T) {
	c, broken := newClock(), errors.New("broken")
	s := &counting{Store: memory.New(memory.Options{})}
	if _, err := s.PutToken(t.Context(), store.PutToken{Name: "admin", Hash: auth.HashOf("secret"), Role: store.RoleAdmin, Actor: "belfry"}); err != nil {
		t.Fatal(err)
	}
	tokens := auth.New(s, c.Now)
	if _, err := tokens.Authenticate(t.Context(), "secret"); err != nil {
		t.Fatal(err)
	}
	s.wrong = broken
	c.now = c.now.Add(time.Second)
	if _, err := tokens.Authenticate(t.Context(), "secret"); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	s.wrong = nil
	if _, err := tokens.Authenticate(t.Context(), "secret"); err != nil {
		t.Errorf("when it answers again: %v", err)
	}
}

func TestKnownTokensAreCachedForADay(t *testing.T) {
	c := newClock()
	s := &counting{Store: memory.New(memory.Options{Now: c.Now})}
	for name, lasts := range map[string]time.Duration{"long": 0, "short": time.Hour} {
		if _, err := s.PutToken(t.Context(), store.PutToken{Name: name, Hash: auth.HashOf(name), Role: store.RoleViewer, Lasts: lasts, Actor: "admin"}); err != nil {
			t.Fatal(err)
		}
	}
	tokens := auth.New(s, c.Now)
	knows := func(when string, want bool, names ...string) {
		t.Helper()
		for _, name := range names {
			if token, ok := tokens.LastKnown(name); ok != want || ok && token.Name != name {
				t.Errorf("%s: the token %s is %+v, %v", when, name, token, ok)
			}
		}
	}
	read := func() {
		t.Helper()
		if _, err := tokens.Authenticate(t.Context(), "long"); err != nil {
			t.Fatal(err)
		}
	}
	knows("before the store was read", false, "long")
	read()
	s.wrong = errors.New("broken")
	knows("soon after", true, "long", "short")
	knows("soon after", false, "guess")
	c.now = c.now.Add(-time.Minute)
	knows("after the clock was set back", false, "long")
	c.now = c.now.Add(time.Minute + time.Hour)
	knows("an hour later", true, "long")
	knows("when it has expired", false, "short")
	c.now = c.now.Add(23 * time.Hour)
	knows("a day later", false, "long")
	s.wrong = nil
	read()
	knows("when it was read again", true, "long")
	tokens.Forget()
	knows("after a change by way of this node", false, "long")
}

func TestFailuresOfAnAddressAreBounded(t *testing.T) {
	c := newClock()
	var f auth.Failures
	guess := func(address string) time.Duration {
		wait, _ := f.Add(netip.MustParseAddr(address), c.now)
		return wait
	}
	for n := range 20 {
		if wait := guess("192.0.2.1"); wait != 0 {
			t.Fatalf("failure %d has to wait %s", n+1, wait)
		}
	}
	if wait, reached := f.Add(netip.MustParseAddr("192.0.2.1"), c.now); wait != time.Minute || !reached {
		t.Errorf("one more has to wait %s, the first such one: %v", wait, reached)
	}
	if wait, reached := f.Add(netip.MustParseAddr("::ffff:192.0.2.1"), c.now); wait != time.Minute || reached {
		t.Errorf("written otherwise it has to wait %s, the first such one: %v", wait, reached)
	}
	if wait := guess("192.0.2.2"); wait != 0 {
		t.Errorf("another address has to wait %s", wait)
	}
	for n := range 21 {
		guess(fmt.Sprintf("2001:db8::%d", n))
	}
	if wait := guess("2001:db8::ffff"); wait == 0 {
		t.Error("a network of IPv6 has as many attempts as it has addresses")
	}
	c.now = c.now.Add(time.Minute)
	if wait := guess("192.0.2.1"); wait != 0 {
		t.Errorf("a minute later it has to wait %s", wait)
	}
}

func TestManyAddressesShareOneCount(t *testing.T) {
	c := newClock()
	var f auth.Failures
	limited := 0
	for n := range 10_000 {
		if wait, _ := f.Add(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), c.now); wait > 0 {
			limited++
		}
	}
	if want := 10_000 - 4096 - 20; limited != want {
		t.Errorf("%d of 10000 addresses were limited, want %d", limited, want)
	}
	c.now = c.now.Add(time.Minute)
	if wait, _ := f.Add(netip.MustParseAddr("192.0.2.1"), c.now); wait != 0 {
		t.Errorf("a minute later a new address has to wait %s", wait)
	}
}

// A file created by another user has a token that this user knows.
func TestATokenFileOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	s := memory.New(memory.Options{})
	dir := t.TempDir()
	path := filepath.Join(dir, auth.TokenFile)
	secret, err := auth.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.First(t.Context(), s, dir); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("a server takes the token that another user has written: %v", err)
	}
	if list, err := s.Tokens(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
	if got, err := auth.ReadToken(path); err != nil || got != secret {
		t.Errorf("root cannot use the token of another user's server: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.ReadToken(path); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a pipe: %v", err)
	}
}
