package secret_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// world is a keeper on a store in memory, with a clock that the test moves.
type world struct {
	*testing.T
	*secret.Keeper
	store *ledger
	now   time.Time
	keys  string // the file
}

type ledger struct{ store.Store }

func newWorld(t *testing.T) *world {
	w := &world{T: t, now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), keys: filepath.Join(t.TempDir(), "secret.key")}
	now := func() time.Time { return w.now }
	w.store = &ledger{memory.New(memory.Options{Now: now})}
	w.Keeper = &secret.Keeper{
		Store: w.store, Ring: &secret.Ring{File: w.keys, Make: true, Now: now}, Files: secret.Files(t.TempDir()), Now: now,
		Getenv: func(name string) string {
			return map[string]string{"BELFRY_SECRET_WEB_SHOP__DB": "from the server"}[name]
		},
	}
	return w
}

func (w *world) set(namespace, name, value string) {
	w.Helper()
	if _, _, err := w.Set(w.Context(), secret.Put{Namespace: namespace, Name: name, Value: value, Actor: "wei"}); err != nil {
		w.Fatal(err)
	}
}

// value returns a value, or what is wrong.
func (w *world) value(namespace, name string) string {
	value, err := w.Value(w.Context(), namespace, name)
	if err != nil {
		return err.Error()
	}
	return value
}

func (w *world) is(got, want string) {
	w.Helper()
	if got != want && (!strings.HasPrefix(want, "…") || !strings.Contains(got, want[len("…"):])) {
		w.Errorf("%q, want %q", got, want)
	}
}

func (w *world) write(path, text string) {
	w.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		w.Fatal(err)
	}
}

func TestASecretIsSetReadAndDeleted(t *testing.T) {
	w := newWorld(t)
	w.set("web", "db", "hunter2-hunter2")
	w.set("web", "other", "x")
	w.is(w.value("web", "db"), "hunter2-hunter2")
	w.is(w.value("web", "bd"), "there is no secret bd in the namespace web (did you mean db?)")
	w.is(w.value("default", "db"), "there is no secret db in the namespace default")
	w.set("web", "db", "second")
	w.is(w.value("web", "db"), "second")
	s, err := w.Get(t.Context(), "web", "db")
	if err != nil || s.Version != 2 || s.By != "wei" {
		t.Errorf("%+v, %v", s, err)
	}
	if err := w.Delete(t.Context(), "web", "db", "wei"); err != nil {
		t.Fatal(err)
	}
	w.is(w.value("web", "db"), "there is no secret db in the namespace web")
	list, _, err := w.store.Audit(t.Context(), store.AuditQuery{Limit: 10})
	var actions []string
	for _, a := range list {
		actions = append(actions, a.Action)
		if text, _ := json.Marshal(a); strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "second") {
			t.Errorf("the audit has %s", text)
		}
	}
	if err != nil || strings.Join(actions, " ") != "secret.delete secret.change secret.create secret.create" {
		t.Errorf("%v, %v", actions, err)
	}
}

func TestTheStoreHasNoValueInItsTexts(t *testing.T) {
	w := newWorld(t)
	w.set("web", "db", "hunter2-hunter2")
	w.set("web", "same", "hunter2-hunter2")
	notes, err := w.store.Notes(t.Context(), "", "", 100)
	if err != nil || len(notes) != 2 {
		t.Fatal(notes, err)
	}
	for _, n := range notes {
		if strings.Contains(string(n.Text), "hunter2") || secret.NewMask("hunter2-hunter2").Text(string(n.Text)) != string(n.Text) {
			t.Errorf("%s", n.Text)
		}
	}
	// A value moved to another name does not open.
	if _, err := w.store.PutNote(t.Context(), store.Note{Name: "secret/web/same", Version: notes[1].Version, Text: notes[0].Text}); err != nil {
		t.Fatal(err)
	}
	w.is(w.value("web", "same"), "…does not open it")
}

func TestKeysRotate(t *testing.T) {
	w := newWorld(t)
	w.set("a", "one", "first value")
	w.set("b", "two", "second value")
	first, err := os.ReadFile(w.keys)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Set(t.Context(), secret.Put{Namespace: "b", Name: "three", Source: secret.Source{File: "three"}, Actor: "wei"}); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Hour)
	w.write(w.keys, "# the new key first\n"+secret.NewKey(w.now)+string(first))
	w.is(w.value("a", "one"), "first value")
	w.set("b", "four", "fourth value")
	done, err := w.Rotate(t.Context(), "wei")
	if err != nil || done.Sealed != 2 || done.Before != 1 || done.Elsewhere != 1 || !strings.HasPrefix(done.Key, "2026-11-24T130000-") {
		t.Errorf("%+v, %v", done, err)
	}
	again, err := w.Rotate(t.Context(), "wei")
	if err != nil || again.Sealed != 0 || again.Before != 3 {
		t.Errorf("%+v, %v", again, err)
	}
	// The old key is not needed any more; the new one is.
	text, _ := os.ReadFile(w.keys)
	w.write(w.keys, strings.TrimSuffix(string(text), string(first)))
	w.now = w.now.Add(time.Hour)
	w.is(w.value("a", "one"), "first value")
	w.write(w.keys, string(first))
	w.now = w.now.Add(time.Hour)
	w.is(w.value("b", "two"), "…it is sealed with the key "+done.Key+", and this server has 2026-11-24T120000-")
}

func TestKeysComeFromACommand(t *testing.T) {
	w := newWorld(t)
	w.Ring = &secret.Ring{Command: []string{"/bin/echo", strings.TrimSpace(secret.NewKey(w.now))}, Now: func() time.Time { return w.now }}
	w.set("a", "one", "first value")
	w.is(w.value("a", "one"), "first value")
	w.now = w.now.Add(time.Hour)
	w.Ring.Command = []string{"/bin/sh", "-c", "echo no network >&2; exit 3"}
	w.is(w.value("a", "one"), "…secrets.key_command: /bin/sh: exit status 3: no network")
}

func TestBadKeysAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "…there is no key",
		"a b c\n":                               "…line 1: a line is an id",
		"# x\nk1 abc\n":                         "…line 2: key k1 is not 32 bytes",
		"k! " + strings.Repeat("A", 43) + "=\n": "…line 1: a line is an id",
		strings.Repeat("k1 "+strings.Repeat("A", 43)+"=\n", 2): "…line 2: key k1 is there twice",
	} {
		w := newWorld(t)
		w.write(w.keys, text)
		_, _, err := w.Set(t.Context(), secret.Put{Namespace: "a", Name: "b", Value: "c"})
		if err == nil {
			t.Errorf("%q was taken", text)
			continue
		}
		w.is(err.Error(), want)
	}
	w := newWorld(t)
	w.write(w.keys, secret.NewKey(w.now))
	if err := os.Chmod(w.keys, 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, err := w.Set(t.Context(), secret.Put{Namespace: "a", Name: "b", Value: "c"})
	w.is(err.Error(), "…other users can read it (mode 0644): chmod 600 "+w.keys)
}

func TestValuesAreReadWhereTheyAre(t *testing.T) {
	w := newWorld(t)
	refer := func(namespace, name string, from secret.Source) {
		t.Helper()
		if _, err := w.Check(namespace, from); err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.Set(t.Context(), secret.Put{Namespace: namespace, Name: name, Source: from, Actor: "wei"}); err != nil {
			t.Fatal(err)
		}
	}
	w.write(filepath.Join(string(w.Files), "web-shop", "db"), "in a file\n")
	w.write(filepath.Join(string(w.Files), "web-shop", "pem"), "a\nb\n")
	refer("web-shop", "file", secret.Source{File: "db"})
	refer("web-shop", "pem", secret.Source{File: "pem"})
	refer("web-shop", "none", secret.Source{File: "none"})
	refer("web-shop", "env", secret.Source{Env: "DB"})
	refer("web-shop", "unset", secret.Source{Env: "XY"})
	w.is(w.value("web-shop", "file"), "in a file")
	w.is(w.value("web-shop", "pem"), "a\nb\n")
	w.is(w.value("web-shop", "none"), "…secret web-shop/none: file none of the namespace: no such file")
	w.is(w.value("web-shop", "env"), "from the server")
	w.is(w.value("web-shop", "unset"), "…the variable BELFRY_SECRET_WEB_SHOP__XY of the server is not set")
	for _, bad := range []secret.Source{{File: "../db"}, {File: "/etc/passwd"}, {Env: "a"}, {Env: "A__B"}, {Vault: "secret/x#y"}} {
		if field, err := w.Check("web-shop", bad); err == nil || field == "" {
			t.Errorf("%v was taken", bad)
		}
	}
}

// vault is a fake of the KV API.
type vault struct {
	*httptest.Server
	asked  int
	status int
}

func newVault(t *testing.T) *vault {
	v := &vault{status: http.StatusOK}
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.asked++
		switch {
		case r.Header.Get("X-Vault-Token") != "root" || r.Header.Get("X-Vault-Namespace") != "team":
			w.WriteHeader(http.StatusForbidden)
		case v.status != http.StatusOK:
			w.WriteHeader(v.status)
		case r.URL.Path == "/v1/kv/data/belfry/web/db":
			_, _ = w.Write([]byte(`{"data": {"data": {"password": "from vault", "port": 5432}, "metadata": {"version": 3}}}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(v.Close)
	return v
}

func TestValuesAreReadFromVault(t *testing.T) {
	w, v := newWorld(t), newVault(t)
	token := filepath.Join(t.TempDir(), "token")
	w.write(token, "root\n")
	w.Vault = &secret.Vault{
		Address: v.URL, TokenFile: token, Namespace: "team", Paths: []string{"kv/belfry/{namespace}/*"},
		Cache: time.Minute, Timeout: time.Minute, Now: func() time.Time { return w.now },
	}
	refer := func(name, ref string) {
		t.Helper()
		if _, _, err := w.Set(t.Context(), secret.Put{Namespace: "web", Name: name, Source: secret.Source{Vault: ref}, Actor: "wei"}); err != nil {
			t.Fatal(err)
		}
	}
	refer("db", "kv/belfry/web/db#password")
	refer("port", "kv/belfry/web/db#port")
	refer("none", "kv/belfry/web/none#x")
	refer("foreign", "kv/belfry/ops/db#password")
	w.is(w.value("web", "db"), "from vault")
	w.is(w.value("web", "port"), "…there is no text in the field port")
	w.is(w.value("web", "none"), "…there is nothing (404)")
	w.is(w.value("web", "foreign"), "…secrets.vault.paths of the server does not allow kv/belfry/ops/db in the namespace web")
	for _, ref := range []string{"db", "kv/db", "kv/../sys#x", "kv//db#x", "/kv/db#x", "kv/db?x=1#y", "kv/%2e%2e/db#x", "kv/db/#x", "../kv/db#x", "../../kv#x", "./kv#x"} {
		if _, err := w.Check("web", secret.Source{Vault: ref}); err == nil {
			t.Errorf("%q was taken", ref)
		}
	}
	asked := v.asked
	w.is(w.value("web", "db"), "from vault")
	v.status = http.StatusServiceUnavailable
	w.is(w.value("web", "db"), "from vault")
	if v.asked != asked {
		t.Errorf("a cached value was asked for %d times", v.asked-asked)
	}
	w.now = w.now.Add(time.Minute)
	w.is(w.value("web", "db"), "…vault kv/belfry/web/db#password: it answers 503")
	if _, err := w.Values(context.Background(), "web", []string{"db"}); err == nil || errors.As(err, new(*secret.Missing)) {
		t.Errorf("%v is no failure that may go away", err)
	}
}

// What stands at the address of Vault, or between it and the server, gets no token but by a request for a
// value, and no answer of it is read without a bound.
func TestHostileVaultLearnsAndBreaksNothing(t *testing.T) {
	w := newWorld(t)
	token := filepath.Join(t.TempDir(), "token")
	w.write(token, "the-token-of-vault\n")
	var stolen atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	answers := map[string]http.HandlerFunc{
		"redirect": func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, thief.URL+r.URL.Path, http.StatusTemporaryRedirect)
		},
		"endless": func(rw http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := rw.Write(bytes.Repeat([]byte(" "), 1<<16)); err != nil {
					return
				}
			}
		},
		"silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"echo": func(rw http.ResponseWriter, r *http.Request) {
			http.Error(rw, r.Header.Get("X-Vault-Token"), http.StatusForbidden)
		},
		"large": func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(rw, `{"data":{"data":{"x":%q}}}`, strings.Repeat("x", job.SecretMax+1))
		},
		"deep": func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(bytes.Repeat([]byte("["), 1<<19)) },
		"other": func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write([]byte(`{"data":{"data":{"x":{"y":"z"}}}}`))
		},
	}
	hostile := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { answers[path.Base(r.URL.Path)](rw, r) })
	plain, sealed := httptest.NewServer(hostile), httptest.NewTLSServer(hostile)
	defer plain.Close()
	defer sealed.Close()
	// The client closes what is silent, which ends the request at the server.
	w.Vault = &secret.Vault{Address: plain.URL, TokenFile: token, Paths: []string{"kv/*"}, Cache: time.Minute, Timeout: time.Second, Now: func() time.Time { return w.now }}
	for name := range answers {
		if _, _, err := w.Set(t.Context(), secret.Put{Namespace: "web", Name: name, Source: secret.Source{Vault: "kv/" + name + "#x"}, Actor: "wei"}); err != nil {
			t.Fatal(err)
		}
		if text := w.value("web", name); !strings.HasPrefix(text, "secret web/"+name+": vault kv/"+name+"#x: ") || len(text) > 300 || strings.Contains(text, "the-token-of-vault") {
			t.Errorf("%s: %.300q", name, text)
		}
	}
	w.Vault = &secret.Vault{Address: sealed.URL, TokenFile: token, Paths: []string{"kv/*"}, Timeout: time.Minute, Now: func() time.Time { return w.now }}
	if text := w.value("web", "echo"); !strings.Contains(text, "certificate") {
		t.Errorf("a server with a certificate of nobody is asked: %q", text)
	}
	if n := stolen.Load(); n > 0 {
		t.Errorf("a redirect has led %d requests, with the token, somewhere else", n)
	}
}

// A lost key is named, and no new one replaces it.
func TestNoKeyIsMadeWhereValuesAreSealedWithAnother(t *testing.T) {
	w := newWorld(t)
	w.Ring.Sealed = w.AnySealed
	w.set("web", "db", "hunter2")
	w.set("web", "api", "hunter3")
	if u, err := w.Unopened(t.Context()); err != nil || !u.Found().IsZero() {
		t.Fatalf("with the key: %+v, %v", u, err)
	}
	sealed, err := w.AnySealed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(w.keys)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.keys); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(2 * time.Minute)
	want := "secrets.key_file " + w.keys + ": the file is missing, and the secret web/api is sealed with its key " + sealed.Sealed.Key + ": put the file back. " +
		"If it is lost, make a new one with belfry secret key >" + w.keys + ", and set the secrets again"
	u, err := w.Unopened(t.Context())
	if err != nil || u.N != 2 || u.Found().String() != "2 secrets cannot be opened, among them web/api: "+want {
		t.Errorf("without the key: %+v, %v", u, err)
	}
	w.is(w.value("web", "db"), "secret web/db: "+want)
	if _, _, err := w.Set(t.Context(), secret.Put{Namespace: "web", Name: "new", Value: "x", Actor: "wei"}); err == nil || err.Error() != want {
		t.Errorf("another is set: %v", err)
	}
	if _, err := os.Stat(w.keys); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a key was made: %v", err)
	}
	// Another key is reported with both ids, and both together open all values.
	other := secret.NewKey(w.now)
	if err := os.WriteFile(w.keys, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(other, " ")
	if u, err := w.Unopened(t.Context()); err != nil || !strings.HasSuffix(u.Found().String(), "it is sealed with the key "+sealed.Sealed.Key+", and this server has "+id) || !strings.Contains(u.Do().String(), w.keys) {
		t.Errorf("with another key: %+v, %v", u, err)
	}
	if err := os.WriteFile(w.keys, append([]byte(other), key...), 0o600); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(10 * time.Second)
	if u, err := w.Unopened(t.Context()); err != nil || !u.Found().IsZero() {
		t.Errorf("with both keys: %+v, %v", u, err)
	}
	w.is(w.value("web", "db"), "hunter2")
}

// The key of a store that was copied opens its values on a shared store, and seals none.
func TestBorrowedKeyOpensAndSealsNothing(t *testing.T) {
	w := newWorld(t)
	w.set("web", "db", "hunter2")
	shared := *w.Keeper
	shared.Ring = &secret.Ring{File: w.keys, Borrowed: true, Now: w.Now}
	if value, err := shared.Value(t.Context(), "web", "db"); err != nil || value != "hunter2" {
		t.Errorf("the value is %q, %v", value, err)
	}
	_, _, err := shared.Set(t.Context(), secret.Put{Namespace: "web", Name: "new", Value: "x", Actor: "wei"})
	if want := "all servers of this store need the same key: copy " + w.keys + " to each of them, and set secrets.key_file"; err == nil || err.Error() != want {
		t.Errorf("another is set: %v, want %s", err, want)
	}
	if u, err := shared.Unopened(t.Context()); err != nil || u.N != 0 || !strings.Contains(u.Found().String(), w.keys) || !strings.Contains(u.Do().String(), "secrets.key_file") {
		t.Errorf("it says %+v, %v", u, err)
	}
	shared.Ring = &secret.Ring{File: filepath.Join(t.TempDir(), "secret.key"), Borrowed: true, Now: w.Now}
	if _, err := shared.Value(t.Context(), "web", "db"); err == nil || !strings.Contains(err.Error(), "this server has no key for secrets: set secrets.key_file") {
		t.Errorf("without any key: %v", err)
	}
	if _, err := os.Stat(shared.Ring.File); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key was made: %v", err)
	}
}
