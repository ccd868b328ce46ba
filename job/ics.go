package job

import (
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/phrase"
)

// workingDayMark in the summary of an event marks working days on a weekend: 班, as in
// Chinese holiday calendars.
const workingDayMark = "班"

// icsMax is the most bytes of a calendar file: a century of holidays.
const icsMax = 4 << 20

// InlineCalendars replaces the ics files of calendars by their dates, so that receivers of
// the documents open no files. File names are relative to the file of the document; open
// receives joined paths. In a calendar with weekdays, the days of a file are excluded, or
// included if the summary of the event has the mark 班; in a calendar without weekdays all
// days are included.
//
// The calendars of docs are replaced, not changed. The error is of type [Problems].
func InlineCalendars(docs []Document, open func(name string) (io.ReadCloser, error)) error {
	var problems Problems
	for i, doc := range docs {
		if doc.Calendar == nil || len(doc.Calendar.Days.ICS) == 0 {
			continue
		}
		v := &validator{doc: doc}
		inlined := *doc.Calendar
		inlined.Days = v.inline(inlined.Days, open)
		problems = append(problems, v.problems...)
		docs[i].Calendar = &inlined
	}
	return problems.asError()
}

// inline returns the days with the content of their files.
func (v *validator) inline(days Days, open func(name string) (io.ReadCloser, error)) Days {
	days.Include, days.Exclude = slices.Clone(days.Include), slices.Clone(days.Exclude)
	for i, name := range days.ICS {
		at := root.at("calendar.ics").item(i)
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(v.doc.File), name)
		}
		events, err := readICS(name, open)
		if err != nil {
			v.reportError(at, err)
			continue
		}
		for _, event := range events {
			dates := event.From.String()
			if event.To != event.From {
				dates += ".." + event.To.String()
			}
			target := &days.Include
			if len(days.Weekdays) > 0 && !strings.Contains(event.Summary, workingDayMark) {
				target = &days.Exclude
			}
			if !slices.Contains(*target, dates) {
				*target = append(*target, dates)
			}
		}
	}
	days.ICS = nil
	return days
}

func readICS(name string, open func(name string) (io.ReadCloser, error)) ([]cron.Event, error) {
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	limited := &io.LimitedReader{R: file, N: icsMax + 1}
	events, err := cron.ParseICS(limited)
	switch {
	case limited.N == 0:
		return nil, phrase.Mistake(phrase.FileTooLong.Of(name, icsMax))
	case err != nil:
		message, _ := phrase.InWords(err)
		return nil, phrase.Mistake(phrase.InFile.Of(name, message))
	}
	return events, nil
}
