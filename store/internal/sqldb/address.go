package sqldb

import (
	"errors"
	"net/url"
)

// Parameters returns the parameters in the address of a database. It keeps unreadable ones, which
// may ask for TLS.
func Parameters(u *url.URL) (url.Values, error) {
	list, err := url.ParseQuery(u.RawQuery)
	if err != nil { // the error may show a part of a password
		return nil, errors.New("its parameters are joined by &, and %, & and ; in them are written as %25, %26 and %3B")
	}
	return list, nil
}

// AddressError is a mistake in the address of a database, found before any connection.
type AddressError struct{ Cause error }

func (e *AddressError) Error() string { return "the address of the store: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *AddressError) Unwrap() error { return e.Cause }
