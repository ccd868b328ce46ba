package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
)

// PageInput is what every list is asked with.
type PageInput struct {
	PageSize  int    `query:"page_size" minimum:"1" maximum:"500" default:"100" doc:"How many items a page has."`
	PageToken string `query:"page_token" maxLength:"1024" doc:"The next_page_token of the page before."`
}

// writeToken makes a token of a place in a list. It names the place, not a
// number of items to skip, so that a page costs the same wherever it is.
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
		// That of another list has other fields.
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(place)
	}
	if err != nil {
		return wrongParameter("page_token", "is not the next_page_token of a list like this", "")
	}
	return nil
}
