package columns

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// EncodeJob encodes the user's part of a definition. It also returns the result of
// [DecodeJob] on it; the copy shares with j the values behind its pointers.
func EncodeJob(j *job.Job) (text []byte, read *job.Job, err error) {
	document := *j
	document.Namespace = cmp.Or(document.Namespace, job.DefaultNamespace)
	document.UID, document.Version, document.Status, document.Epoch = job.ID{}, 0, nil, 0
	document.Schedule.At = slices.Clone(document.Schedule.At)
	fixInstants(&document.Schedule)
	text, err = json.Marshal(&document)
	return text, &document, err
}

// DecodeJob is the inverse of [EncodeJob]. Fields that a newer belfry has added
// are passed over.
func DecodeJob(text []byte) (*job.Job, error) {
	j := &job.Job{}
	if err := json.Unmarshal(text, j); err != nil {
		return nil, err
	}
	fixInstants(&j.Schedule)
	return j, nil
}

func fixInstants(s *job.Schedule) {
	s.Start, s.End = fixed(s.Start), fixed(s.End)
	for i := range s.At {
		s.At[i] = fixed(s.At[i])
	}
}

// fixed replaces the location of an instant by its plain offset, as documents have it, even if the
// machine's zone has the same offset.
func fixed(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	_, offset := t.Zone()
	if offset == 0 {
		return t.UTC()
	}
	return t.In(time.FixedZone("", offset))
}

// DecodeSaid decodes only the fields that queries for jobs read: name, title, description and labels. The
// whole definition takes five times as long.
func DecodeSaid(text []byte) (*job.Job, error) {
	var answer struct {
		Name, Title, Description string
		Labels                   map[string]string
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	return &job.Job{Name: answer.Name, Title: answer.Title, Description: answer.Description, Labels: answer.Labels}, nil
}

// EncodeDocument encodes a document that is no job, with the server's additions.
func EncodeDocument(d job.Document) ([]byte, error) { return json.Marshal(d.Content()) }

// DecodeDocument is the inverse of [EncodeDocument]. Fields that a newer belfry has added are
// passed over.
func DecodeDocument(kind job.Kind, text []byte) (job.Document, error) {
	d := job.Document{Kind: kind}
	if err := json.Unmarshal(text, d.Content()); err != nil {
		return d, fmt.Errorf("%w: a %s: %w", store.ErrDamaged, kind, err)
	}
	return d, nil
}

// ReadDocument returns a document as it will be read, in a namespace and without the server's
// additions.
func ReadDocument(d job.Document) (job.Document, error) {
	d = d.Bare()
	text, err := EncodeDocument(d)
	if err == nil {
		d, err = DecodeDocument(d.Kind, text)
		d.PutIn(job.DefaultNamespace)
	}
	return d, err
}
