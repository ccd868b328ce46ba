package sqldb

import (
	"errors"
	"net/url"
)

// Parameters returns those of the address of a database. None is left out that cannot be
// read: it may be the one that asks for TLS.
func Parameters(u *url.URL) (url.Values, error) {
	list, err := url.ParseQuery(u.RawQuery)
	if err != nil { // which may show a part of a password
		return nil, errors.New("its parameters are joined by &, and %, & and ; in them are written as %25, %26 and %3B")
	}
	return list, nil
}

// AddressError is what is wrong with the address of a database, found before anything is
// asked of it.
type AddressError struct{ Cause error }

func (e *AddressError) Error() string { return "the address of the store: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *AddressError) Unwrap() error { return e.Cause }
