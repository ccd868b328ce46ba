package job

import (
	"bytes"
	"encoding/json"
	"strings"
)

// ReasonText is the code of a reason that is only a text: from a command, a service or a person, or
// stored by a version without codes.
const ReasonText = "text"

// ReasonMark divides the English text of a stored reason from its code and arguments. It is a
// control character, so no text contains it.
const ReasonMark = "\x1f"

// Reason explains the state or the outcome of a run or an attempt: a code with arguments, which
// package reason creates and translates. The zero value is no reason. Two reasons with the same
// code and arguments are equal by ==.
type Reason struct {
	stored string // the English text, and after ReasonMark the code and arguments in JSON
}

// reasonParts is the second part of a stored reason, and the form of a reason within another.
type reasonParts struct {
	Code string         `json:"code"`
	Args map[string]any `json:"args,omitempty"`
}

// Text returns a reason with the code [ReasonText]; none for an empty text.
func Text(text string) Reason { return Reason{strings.ReplaceAll(text, ReasonMark, "")} }

// ReasonOf returns a reason by its parts. The arguments are decoded JSON; a reason among them is a
// map with code and args.
func ReasonOf(english, code string, args map[string]any) Reason {
	r := Text(english)
	if code == "" || code == ReasonText {
		return r
	}
	// A decoded value always encodes.
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	_ = to.Encode(reasonParts{code, args})
	r.stored += ReasonMark + strings.TrimSuffix(text.String(), "\n")
	return r
}

// StoredReason returns the reason that Stored has written.
func StoredReason(stored string) Reason { return Reason{stored} }

// ReasonArgs are the arguments of a reason for programs.
type ReasonArgs map[string]any

// For returns the code and arguments of a reason for programs; a text has no arguments.
func (r Reason) For() (code string, args *ReasonArgs) {
	code, values := r.parts()
	if code != ReasonText && len(values) > 0 {
		args = (*ReasonArgs)(&values)
	}
	return code, args
}

// Texts returns the arguments as texts, nil for none. Reasons among them are omitted.
func (a *ReasonArgs) Texts() map[string]string {
	if a == nil {
		return nil
	}
	texts := make(map[string]string, len(*a))
	for name, value := range *a {
		switch v := value.(type) {
		case string:
			texts[name] = v
		case json.Number:
			texts[name] = v.String()
		}
	}
	return texts
}

// Reason returns the reason of For, by its English text.
func (a *ReasonArgs) Reason(english, code string) Reason {
	if a == nil {
		return ReasonOf(english, code, nil)
	}
	return ReasonOf(english, code, *a)
}

// Stored returns the form in which stores keep a reason: the English text, for searches, then the
// code and arguments. A text has no more.
func (r Reason) Stored() string { return r.stored }

// IsZero reports whether there is no reason.
func (r Reason) IsZero() bool { return r.stored == "" }

// String returns the reason in English, with instants in UTC.
func (r Reason) String() string {
	text, _, _ := strings.Cut(r.stored, ReasonMark)
	return text
}

// Code returns the code of a reason, "" for none.
func (r Reason) Code() string {
	code, _ := r.parts()
	return code
}

// Has reports whether a reason, or a reason among its arguments, has a code.
func (r Reason) Has(code string) bool {
	english, written, isCoded := strings.Cut(r.stored, ReasonMark)
	if !isCoded {
		return code == ReasonText && english != ""
	}
	return strings.Contains(written, CodePart(code))
}

// CodePart returns a text that a stored reason contains, after its English text, if [Reason.Has] is
// true: stores search for it. Texts in arguments cannot contain it, because JSON escapes their
// quotes.
func CodePart(code string) string { return `"code":"` + code + `"` }

// Args returns the arguments of a reason as JSON has them, numbers as [json.Number].
func (r Reason) Args() map[string]any {
	_, args := r.parts()
	return args
}

func (r Reason) parts() (code string, args map[string]any) {
	if r.stored == "" {
		return "", nil
	}
	text, written, isCoded := strings.Cut(r.stored, ReasonMark)
	var c reasonParts
	from := json.NewDecoder(strings.NewReader(written))
	from.UseNumber()
	if !isCoded || from.Decode(&c) != nil || c.Code == "" {
		return ReasonText, map[string]any{"text": text}
	}
	return c.Code, c.Args
}

// Map returns the reason with all its texts changed, such as masked or shortened.
func (r Reason) Map(change func(string) string) Reason {
	code, args := r.parts()
	if code == "" {
		return r
	}
	changed, _ := mapped(args, change).(map[string]any)
	return ReasonOf(change(r.String()), code, changed)
}

func mapped(value any, change func(string) string) any {
	switch v := value.(type) {
	case string:
		return change(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = mapped(v[i], change)
		}
		return list
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, inner := range v {
			if name == "code" {
				all[name] = inner
			} else {
				all[name] = mapped(inner, change)
			}
		}
		return all
	}
	return value
}

// MarshalText implements encoding.TextMarshaler with the stored form.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.stored), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Reason) UnmarshalText(text []byte) error {
	r.stored = string(text)
	return nil
}
