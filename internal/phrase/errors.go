package phrase

import "errors"

// mistake is a text as an error, with its hint.
type mistake struct{ message, hint Text }

func (m *mistake) Error() string { return WithHint.Of(m.message, m.hint).String() }

// Mistake returns an error with a message and the hint, if there is one.
func Mistake(message Text, hint ...Text) error {
	m := &mistake{message: message}
	if len(hint) > 0 {
		m.hint = hint[0]
	}
	return m
}

// InWords returns the message and the hint of an error. What has no code is [Said].
func InWords(err error) (message, hint Text) {
	if m, ok := errors.AsType[*mistake](err); ok {
		return m.message, m.hint
	}
	var coded interface{ Text() Text }
	if errors.As(err, &coded) {
		return coded.Text(), Text{}
	}
	return Said.Of(Words(err.Error())), Text{}
}

// OfError is [InWords] as one text.
func OfError(err error) Text {
	message, hint := InWords(err)
	if hint.IsZero() {
		return message
	}
	return WithHint.Of(message, hint)
}
