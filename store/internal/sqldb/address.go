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
