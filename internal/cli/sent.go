package cli

import (
	"errors"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// serverDocument is a document from a server, decoded and as received. In JSON it is as received,
// since a later version may have more fields.
type serverDocument struct {
	job.Document
	came client.Document
}

// MarshalJSON implements json.Marshaler.
func (s serverDocument) MarshalJSON() ([]byte, error) { return s.came.RawMessage, nil }

// read reads a document of some kind that the server has sent.
func (r *remote) read(d client.Document, kind job.Kind) (serverDocument, error) {
	list, err := job.Decode("", d.RawMessage)
	if err == nil && (len(list) != 1 || list[0].Kind != kind) {
		err = errors.New("it is of another kind")
	}
	if err != nil {
		return serverDocument{}, failed("read a %s of %s: %v", kind, r.URL(), err).withHint("is the server newer than this program?")
	}
	return serverDocument{list[0], d}, nil
}
