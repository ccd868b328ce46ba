package service

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// The sizes of a page.
const (
	PageDefault = 100
	// PageMax keeps a page within a second of the store and a few megabytes.
	PageMax = 500
)

// pageSize returns the size for a requested page.
func pageSize(asked int) int {
	if asked <= 0 {
		return PageDefault
	}
	return min(asked, PageMax)
}

// writeToken makes a token of a place in a list. It names the place, not a number of items
// to skip, so that each page costs the same.
func writeToken(place any) string {
	data, err := json.Marshal(place)
	if err != nil {
		return "" // the places of this package can be written
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// readToken reads a token into place, and leaves it alone for the first page.
func readToken(token string, place any) error {
	if token == "" {
		return nil
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		// The token of another list has other fields.
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(place)
	}
	if err != nil {
		return WrongParameter("page_token", phrase.NotPageToken)
	}
	return nil
}
