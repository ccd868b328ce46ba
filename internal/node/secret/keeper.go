package secret

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/sys/spelling"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Prefix begins the names of the notes of secrets.
const Prefix = "secret/"

const (
	// NamespaceMax bounds the secrets of a namespace, which are listed in one answer.
	NamespaceMax = 1000
	// page is how many secrets one read returns: each may have [store.NoteMax] bytes.
	page = 50
	// DescriptionMax is how long the description of a secret may be.
	DescriptionMax = 1024
)

// Secret is a stored secret without its value.
type Secret struct {
	Namespace   string    `json:"-"`
	Name        string    `json:"-"`
	Description string    `json:"description,omitempty"`
	Version     int64     `json:"version"`
	Created     time.Time `json:"created"`
	Changed     time.Time `json:"changed"`
	By          string    `json:"by"`
	Source
	Sealed *Sealed `json:"sealed,omitempty"`

	note int64 // its version
}

// FullName returns "namespace/name".
func (s *Secret) FullName() string { return s.Namespace + "/" + s.Name }

// Source is the place of a value outside the store. At most one field is set.
type Source struct {
	File  string `json:"file,omitempty"`  // a file in the directory of the namespace
	Env   string `json:"env,omitempty"`   // the end of the name of a server's environment variable
	Vault string `json:"vault,omitempty"` // mount/path#field
}

// String describes where the value is.
func (s Source) String() string {
	switch {
	case s.File != "":
		return "file " + s.File
	case s.Env != "":
		return "env " + s.Env
	case s.Vault != "":
		return "vault " + s.Vault
	}
	return "store"
}

// Missing is the error for a secret that does not exist: retrying does not help.
type Missing struct {
	Namespace, Name string
	Near            string // a similar existing name, or ""
}

func (m *Missing) Error() string { return m.Text().String() }

// Text names the missing secret.
func (m *Missing) Text() phrase.Text { return phrase.NoSecret.Of(m.Name, m.Namespace, m.Near) }

// Notes is the part of a store that keeps secrets.
type Notes interface {
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
	PutAudited(ctx context.Context, n store.AuditedNote) error
}

// Keeper sets, lists and reads secrets. Its methods may be called from many goroutines.
type Keeper struct {
	Store  Notes
	Ring   *Ring
	Files  Files
	Getenv func(string) string
	Vault  *Vault // nil for none
	Now    func() time.Time
}

func decode(n *store.Note) (*Secret, error) {
	s := &Secret{note: n.Version}
	s.Namespace, s.Name, _ = strings.Cut(strings.TrimPrefix(n.Name, Prefix), "/")
	if err := json.Unmarshal(n.Text, s); err != nil {
		return nil, fmt.Errorf("secret %s: %w: %w", s.FullName(), store.ErrDamaged, err)
	}
	return s, nil
}

// Get returns a secret. It is a *Missing error if there is none.
func (k *Keeper) Get(ctx context.Context, namespace, name string) (*Secret, error) {
	key := Prefix + namespace + "/" + name
	list, err := k.Store.Notes(ctx, key, "", 1)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || list[0].Name != key {
		return nil, k.missing(ctx, namespace, name)
	}
	return decode(&list[0])
}

// missing names the nearest secret.
func (k *Keeper) missing(ctx context.Context, namespace, name string) error {
	m := &Missing{Namespace: namespace, Name: name}
	if all, err := k.List(ctx, namespace); err == nil {
		names := make([]string, len(all))
		for i, s := range all {
			names[i] = s.Name
		}
		if near := spelling.Near(name, names); len(near) > 0 {
			m.Near = near[0]
		}
	}
	return m
}

// List returns the secrets of a namespace, or of all for "", by full name.
func (k *Keeper) List(ctx context.Context, namespace string) ([]*Secret, error) {
	prefix := Prefix
	if namespace != "" {
		prefix += namespace + "/"
	}
	var all []*Secret
	for after := ""; ; {
		list, err := k.Store.Notes(ctx, prefix, after, page)
		if err != nil {
			return nil, err
		}
		for i := range list {
			s, err := decode(&list[i])
			if err != nil {
				return nil, err
			}
			all, after = append(all, s), list[i].Name
		}
		if len(list) < page {
			return all, nil
		}
	}
}

// envPattern matches the name of a variable after the namespace. It excludes the double
// underscore that separates the two.
var envPattern = regexp.MustCompile(`^[A-Z0-9]+(_[A-Z0-9]+)*$`)

// filePattern matches a file name without a directory.
var filePattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// Check returns the mistake in a source, and its field.
func (k *Keeper) Check(namespace string, s Source) (field string, err error) {
	switch {
	case s.File != "" && !filePattern.MatchString(s.File):
		return "file", fmt.Errorf("%q is not the name of a file alone", s.File)
	case s.Env != "" && !envPattern.MatchString(s.Env):
		return "env", fmt.Errorf("%q is not the end of the name of a variable: upper-case letters and digits in words with single underscores, for example DB_PASSWORD", s.Env)
	case s.Env != "" && strings.ContainsAny(namespace, "._"):
		return "env", errors.New("a variable is not possible in a namespace with dots or underscores, use file")
	case s.Vault != "":
		return "vault", k.Vault.Check(namespace, s.Vault)
	}
	return "", nil
}

// Put is a secret to set.
type Put struct {
	Namespace, Name, Description string
	Source                       Source
	Value                        string // if Source is empty
	Actor                        string
}

// Set creates or changes a secret, and reports whether it was created.
func (k *Keeper) Set(ctx context.Context, p Put) (s *Secret, created bool, err error) {
	now := k.Now().UTC().Truncate(time.Microsecond)
	s = &Secret{Namespace: p.Namespace, Name: p.Name, Created: now}
	old, err := k.Get(ctx, p.Namespace, p.Name)
	action := "secret.change"
	if missing := (*Missing)(nil); errors.As(err, &missing) {
		created, action = true, "secret.create"
		all, err := k.List(ctx, p.Namespace)
		if err == nil && len(all) >= NamespaceMax {
			err = fmt.Errorf("%d secrets in the namespace %s: %w", len(all), p.Namespace, store.ErrLimit)
		}
		if err != nil {
			return nil, false, err
		}
	} else if err != nil {
		return nil, false, err
	} else {
		s = old
	}
	s.Version, s.Changed, s.By, s.Description, s.Source, s.Sealed = s.Version+1, now, p.Actor, p.Description, p.Source, nil
	key := ""
	if s.Source == (Source{}) {
		if s.Sealed, err = k.Ring.seal(ctx, s.FullName(), []byte(p.Value)); err != nil {
			return nil, false, err
		}
		key = s.Sealed.Key
	}
	return s, created, k.write(ctx, s, p.Actor, action, reason.SecretStored.Of(s.Source.String(), key))
}

func (k *Keeper) write(ctx context.Context, s *Secret, actor, action string, detail job.Reason) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return k.Store.PutAudited(ctx, store.AuditedNote{
		Note:  store.Note{Name: Prefix + s.FullName(), Version: s.note, Text: text},
		Audit: store.AuditRecord{Actor: actor, Action: action, Object: s.FullName(), Version: s.Version, Detail: detail},
	})
}

// Delete removes a secret.
func (k *Keeper) Delete(ctx context.Context, namespace, name, actor string) error {
	s, err := k.Get(ctx, namespace, name)
	if err != nil {
		return err
	}
	return k.Store.PutAudited(ctx, store.AuditedNote{
		Note:  store.Note{Name: Prefix + s.FullName(), Version: s.note},
		Audit: store.AuditRecord{Actor: actor, Action: "secret.delete", Object: s.FullName(), Version: s.Version},
	})
}

// Rotated is the result of a rotation.
type Rotated struct {
	Key            string // the key with which all values are now sealed
	Sealed, Before int    // counts of newly sealed values, and of values sealed with the key before
	Elsewhere      int    // count of secrets with values outside the store
}

// Rotate encrypts all values again that are not encrypted with the first key.
func (k *Keeper) Rotate(ctx context.Context, actor string) (r Rotated, err error) {
	if r.Key, err = k.Ring.current(ctx); err != nil {
		return r, err
	}
	all, err := k.List(ctx, "")
	if err != nil {
		return r, err
	}
	for _, s := range all {
		switch {
		case s.Sealed == nil:
			r.Elsewhere++
			continue
		case s.Sealed.Key == r.Key:
			r.Before++
			continue
		}
		from := s.Sealed.Key
		value, err := k.Ring.open(ctx, s.FullName(), s.Sealed)
		if err == nil {
			s.Sealed, err = k.Ring.seal(ctx, s.FullName(), value)
		}
		if err == nil {
			err = k.write(ctx, s, actor, "secret.rotate", reason.SecretRekeyed.Of(from, s.Sealed.Key))
		}
		if errors.Is(err, store.ErrConflict) {
			err = nil // it was set concurrently, with the first key
		}
		if err != nil {
			return r, fmt.Errorf("secret %s: %w", s.FullName(), err)
		}
		r.Sealed++
	}
	return r, nil
}

// Value returns the value of a secret.
func (k *Keeper) Value(ctx context.Context, namespace, name string) (string, error) {
	s, err := k.Get(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	value, err := k.read(ctx, s)
	if err == nil && value == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("secret %s: %w", s.FullName(), err)
	}
	return value, nil
}

func (k *Keeper) read(ctx context.Context, s *Secret) (string, error) {
	switch {
	case s.File != "":
		value, err := k.Files.Read(s.Namespace, s.File)
		if err != nil {
			err = fmt.Errorf("file %s of the namespace: %w", s.File, err)
		}
		return Trim(value), err
	case s.Env != "":
		return k.Variable(s.Namespace, s.Env)
	case s.Vault != "":
		return k.Vault.Read(ctx, s.Namespace, s.Vault)
	case s.Sealed == nil:
		return "", fmt.Errorf("there is no value: %w", store.ErrDamaged)
	}
	value, err := k.Ring.open(ctx, s.FullName(), s.Sealed)
	return string(value), err
}

// Variable returns the value of a variable of this server with a secret of a namespace.
func (k *Keeper) Variable(namespace, name string) (string, error) {
	name = variable(namespace, name)
	if value := k.Getenv(name); value != "" {
		return value, nil
	}
	return "", fmt.Errorf("the variable %s of the server is not set", name)
}

// Values returns the values of secrets of a namespace, all or none. An error other than *Missing
// may be temporary.
func (k *Keeper) Values(ctx context.Context, namespace string, names []string) (map[string]string, error) {
	values := make(map[string]string, len(names))
	for _, name := range names {
		value, err := k.Value(ctx, namespace, name)
		if err != nil {
			return nil, err
		}
		values[name] = value
	}
	return values, nil
}

// AnySealed returns a secret whose value is in the store, nil for none.
func (k *Keeper) AnySealed(ctx context.Context) (*Secret, error) {
	all, err := k.List(ctx, "")
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(s *Secret) bool { return s.Sealed != nil }); i >= 0 {
		return all[i], nil
	}
	return nil, nil
}

// Unopened describes the values of a store that a server cannot open with its keys.
type Unopened struct {
	N     int    // number of such values
	First string // full name of the first one
	Why   string // why it does not open
	// Borrowed is set if values opened with the key of an earlier store: see [Ring].
	Borrowed string
	do       phrase.Text
}

// Found describes the problem, if there is one.
func (u *Unopened) Found() phrase.Text {
	switch {
	case u.N == 1:
		return phrase.SecretUnopened.Of(u.First, phrase.Words(u.Why))
	case u.N > 1:
		return phrase.SecretsUnopened.Of(u.N, u.First, phrase.Words(u.Why))
	case u.Borrowed != "":
		return phrase.KeyBorrowed.Of(u.Borrowed)
	}
	return phrase.Text{}
}

// Do describes the remedy.
func (u *Unopened) Do() phrase.Text { return u.do }

// Unopened tries to open all values of the store.
func (k *Keeper) Unopened(ctx context.Context) (*Unopened, error) {
	all, err := k.List(ctx, "")
	if err != nil {
		return nil, err
	}
	u := &Unopened{}
	for _, s := range all {
		if s.Sealed == nil {
			continue
		}
		_, err := k.Ring.open(ctx, s.FullName(), s.Sealed)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil:
			if k.Ring.Borrowed {
				u.Borrowed, u.do = k.Ring.File, phrase.CopyKey
			}
			continue
		case u.N == 0:
			u.First, u.Why = s.FullName(), err.Error()
		}
		u.N++
	}
	if u.N > 0 {
		u.do = phrase.GiveKey.Of(k.Ring.place())
	}
	return u, nil
}

// Unknown returns the unknown names among the secrets of a job.
func (k *Keeper) Unknown(ctx context.Context, namespace string, names []string) (unknown []*Missing, err error) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		_, err := k.Get(ctx, namespace, name)
		if missing := (*Missing)(nil); errors.As(err, &missing) {
			unknown = append(unknown, missing)
		} else if err != nil {
			return nil, err
		}
	}
	return unknown, nil
}

// Trim removes the line break at the end of a one-line value, as editors and echo write it.
// A value of several lines, such as a key in PEM, stays unchanged.
func Trim(value string) string {
	line := strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	if strings.ContainsAny(line, "\r\n") {
		return value
	}
	return line
}

// MaskOf returns a mask for values.
func MaskOf(values map[string]string) *Mask { return NewMask(slices.Sorted(maps.Values(values))...) }
