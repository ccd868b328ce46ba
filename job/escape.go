package job

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// anywhere is a placement that escapes values the same way everywhere.
type anywhere struct{ escape escaper }

func (anywhere) text(string)                          {}
func (a anywhere) value(*expression) (escaper, error) { return a.escape, nil }
func (a anywhere) branch() placement                  { return a }
func (anywhere) join(placement)                       {}

// errNUL is the error for NUL bytes in values for programs, whose arguments and variables
// end at the first NUL byte.
var errNUL = phrase.Mistake(phrase.ValueNUL)

func escapeNothing(v any) (string, error) {
	text := valueText(v)
	if strings.Contains(text, "\x00") {
		return "", errNUL
	}
	return text, nil
}

// escapeXML escapes the special characters of a text or an attribute of XML.
func escapeXML(v any) (string, error) {
	text := valueText(v)
	if strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == utf8.RuneError || r == 0xFFFE || r == 0xFFFF
	}) {
		return "", phrase.Mistake(phrase.NotInXML.Of(quote(text)))
	}
	return xmlText.Replace(text), nil
}

var xmlText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;", "\t", "&#9;", "\n", "&#10;", "\r", "&#13;")

func escapeForm(v any) (string, error) { return url.QueryEscape(valueText(v)), nil }

func escapeHeader(v any) (string, error) {
	text := valueText(v)
	if strings.ContainsFunc(text, isControl) {
		return "", phrase.Mistake(phrase.NotInHeader.Of(quote(text)), phrase.OneLine)
	}
	return text, nil
}

// urlPlacement follows an address.
type urlPlacement struct {
	part    urlPart
	slashes int // slashes so far in the host
}

type urlPart uint8

const (
	urlHost urlPart = iota // and the scheme before it
	urlPath
	urlQuery
	urlFragment
	urlUnclear // the branches of an if end differently
)

func (u *urlPlacement) text(text string) {
	for _, c := range []byte(text) {
		switch {
		case c == '#':
			u.part = urlFragment
		case c == '?' && u.part <= urlPath:
			u.part = urlQuery
		case c == '/' && u.part == urlHost:
			// The third slash of https://host/ ends the host.
			if u.slashes++; u.slashes == 3 {
				u.part = urlPath
			}
		}
	}
}

func (u *urlPlacement) value(*expression) (escaper, error) {
	switch u.part {
	case urlHost:
		return nil, phrase.Mistake(phrase.HostTemplate, phrase.WriteHost)
	case urlFragment:
		return nil, phrase.Mistake(phrase.AfterHash, phrase.LeaveOut)
	case urlUnclear:
		return nil, phrase.Mistake(phrase.URLBranches)
	case urlQuery:
		return escapeForm, nil
	}
	return func(v any) (string, error) { return url.PathEscape(valueText(v)), nil }, nil
}

func (u *urlPlacement) branch() placement { other := *u; return &other }

func (u *urlPlacement) join(other placement) {
	if *u != *other.(*urlPlacement) {
		u.part = urlUnclear
	}
}

// checkPath refuses addresses in which values create dot segments, which would lead the
// server to another path.
func checkPath(address string) error {
	path, _, _ := strings.Cut(address, "?")
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return phrase.Mistake(phrase.PathSegment.Of(quote(segment)))
		}
	}
	return nil
}

// jsonPlacement follows a JSON text.
type jsonPlacement struct {
	inString, escaped bool
	unclear           bool // the branches of an if end differently
}

func (j *jsonPlacement) text(text string) {
	for _, c := range []byte(text) {
		switch {
		case j.escaped:
			j.escaped = false
		case c == '\\':
			j.escaped = j.inString
		case c == '"':
			j.inString = !j.inString
		}
	}
}

func (j *jsonPlacement) value(*expression) (escaper, error) {
	switch {
	case j.unclear:
		return nil, phrase.Mistake(phrase.JSONBranches)
	case j.escaped:
		return nil, phrase.Mistake(phrase.AfterBackslash)
	case j.inString:
		return func(v any) (string, error) {
			text := appendJSONText(nil, valueText(v))
			return string(text[1 : len(text)-1]), nil
		}, nil
	}
	return func(v any) (string, error) {
		switch v.(type) {
		case int, bool:
			return valueText(v), nil
		}
		return string(appendJSONText(nil, valueText(v))), nil
	}, nil
}

func (j *jsonPlacement) branch() placement { other := *j; return &other }

func (j *jsonPlacement) join(other placement) {
	o := other.(*jsonPlacement)
	j.unclear = j.unclear || *j != *o
}
