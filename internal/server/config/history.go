package config

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// MongoDB is a kind of store for history only. Its URL begins with mongodb:// or mongodb+srv://.
const (
	MongoDB    = "mongodb"
	mongoDBSRV = "mongodb+srv"
)

// History is the URL of the history store of a control store without history.
type History string

// UnmarshalText checks the URL of a history store. A message never shows it, since it may hold
// a password.
func (h *History) UnmarshalText(text []byte) error {
	scheme, _, _ := strings.Cut(string(text), ":")
	switch scheme = strings.ToLower(scheme); scheme {
	case MongoDB, mongoDBSRV:
		u, err := parseStore(string(text))
		if err != nil || u.Host == "" || u.Fragment != "" || !strings.HasPrefix(string(text[len(scheme):]), "://") {
			return errors.New("the URL of a history store in MongoDB has hosts, a database and parameters, such as mongodb://user:password@db1.example.com,db2.example.com/belfry?replicaSet=rs0: in the password %, /, ?, # and @ are written %25, %2F, %3F, %23 and %40")
		}
		if _, err := url.ParseQuery(u.RawQuery); err != nil { // the cause may show a part of a password
			return errors.New("the parameters of the URL of a history store are joined by &, and %, & and ; in them are written as %25, %26 and %3B")
		}
		*h = History(scheme + string(text[len(scheme):]))
		return nil
	case SQLite, Postgres, "postgresql", MySQL:
		var s Store
		if err := s.UnmarshalText(text); err != nil {
			return err
		}
		*h = History(s)
		return nil
	}
	return errors.New("is not the URL of a history store; allowed are sqlite, postgres, mysql, which is for MariaDB as well, mongodb and mongodb+srv, such as postgres://belfry@db.example.com/history")
}

// Kind returns the kind of a history store whose URL was checked.
func (h History) Kind() string {
	if kind := Store(h).Kind(); kind != mongoDBSRV {
		return kind
	}
	return MongoDB
}

// File returns the file of a history in SQLite, "" for another one.
func (h History) File() string { return Store(h).File() }

// Password reports whether the URL has a password.
func (h History) Password() bool { return h != "" && Store(h).Password() }

// Shown returns the URL without its password.
func (h History) Shown() string { return Store(h).Shown() }

// beside returns a history whose file is named relative to a directory.
func (h History) beside(dir string) History {
	if file := h.File(); file != "" && !filepath.IsAbs(file) {
		return History(StoreIn(filepath.Join(dir, file)))
	}
	return h
}

// checkHistory checks that the two stores fit together.
func (s Server) checkHistory() error {
	if s.History == "" || s.Store.KeepsNoHistory() {
		return nil
	}
	return fmt.Errorf("history: a store of the kind %s keeps its own history; history goes with a store in etcd or Redis", s.Store.Kind())
}

// KeepsNoHistory reports whether the history of the store may be in another one.
func (s Store) KeepsNoHistory() bool { return s.Kind() == Etcd || s.Kind() == Redis }
