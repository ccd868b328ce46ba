package secret

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"
)

const (
	// MaskMin is the length in bytes from which a value or its line is masked: shorter ones occur
	// in any output by chance.
	MaskMin = 6
	// encodedMin is the same for what base64 makes of a value, without the characters at its
	// ends that depend on its neighbours.
	encodedMin = 8
	// Masked replaces a secret.
	Masked = "***"
)

// Mask replaces secrets in texts: each value and each of its lines verbatim, escaped as in JSON,
// forms and addresses, in upper and lower case, in hexadecimal digits, and in base64 at any offset.
// It is immutable and may be used from many goroutines. Nil masks nothing.
type Mask struct {
	// by has the texts to replace by their first four bytes, longest first, and first marks their
	// first two bytes, to skip other text quickly.
	by    map[[4]byte][]string
	first [1 << 16 / 64]uint64
	short []string // all texts, for the ends of an input
	most  int      // the longest
}

// NewMask returns a mask for values, nil for none that can be masked.
func NewMask(values ...string) *Mask {
	m := &Mask{by: map[[4]byte][]string{}}
	for _, value := range values {
		m.addValue(value)
	}
	if len(m.short) == 0 {
		return nil
	}
	for _, list := range m.by {
		slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	}
	return m
}

func (m *Mask) addValue(value string) {
	several := strings.Contains(strings.TrimRight(value, "\r\n"), "\n")
	for line := range strings.Lines(value) {
		// Indentation and lines of brackets are no secrets: any document has them.
		if line = strings.TrimRight(line, "\r\n"); several {
			if line = strings.TrimSpace(line); !isTelling(line) {
				continue
			}
		}
		m.add(line, MaskMin)
		for _, escaped := range asJSON(line) {
			m.add(escaped, MaskMin)
		}
		m.add(url.QueryEscape(line), MaskMin)
		m.add(url.PathEscape(line), MaskMin)
		m.add(strings.ToUpper(line), MaskMin)
		m.add(strings.ToLower(line), MaskMin)
		m.addEncoded(line)
	}
	if strings.Contains(value, "\n") {
		m.addEncoded(value)
	}
}

// isTelling reports whether a line has enough letters and digits for a secret.
func isTelling(line string) bool {
	n := 0
	for _, r := range line {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			n++
		}
	}
	return n >= MaskMin
}

// asJSON returns a text as escaped in JSON: by encoding/json, and by most other encoders, which
// keep <, > and &.
func asJSON(text string) (list []string) {
	for _, html := range []bool{true, false} {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		if err := e.Encode(text); err == nil {
			quoted := strings.TrimSuffix(b.String(), "\n")
			list = append(list, quoted[1:len(quoted)-1])
		}
	}
	return list
}

// addEncoded adds a value in hexadecimal digits, and in base64 at each of its three possible offsets.
func (m *Mask) addEncoded(value string) {
	if len(value) < MaskMin {
		return
	}
	digits := hex.EncodeToString([]byte(value))
	m.add(digits, encodedMin)
	m.add(strings.ToUpper(digits), encodedMin)
	for before := range 3 {
		text := make([]byte, before, before+len(value))
		text = append(text, value...)
		from, to := (before*8+5)/6, len(text)*8/6 // the characters that depend only on the value
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			m.add(alphabet.EncodeToString(text)[from:to], encodedMin)
		}
	}
}

func (m *Mask) add(text string, least int) {
	if len(text) < least {
		return
	}
	start := [4]byte([]byte(text[:4]))
	if slices.Contains(m.by[start], text) {
		return
	}
	m.by[start] = append(m.by[start], text)
	m.short = append(m.short, text)
	m.most = max(m.most, len(text))
	pair := int(text[0])<<8 | int(text[1])
	m.first[pair/64] |= 1 << (pair % 64)
}

// at returns the length of the secret at the beginning of a text, 0 for none, and whether further
// text may make it one, or a longer one.
func (m *Mask) at(text []byte, final bool) (n int, open bool) {
	if len(text) < 4 {
		if final {
			return 0, false
		}
		return 0, slices.ContainsFunc(m.short, func(s string) bool { return strings.HasPrefix(s, string(text)) })
	}
	if pair := int(text[0])<<8 | int(text[1]); m.first[pair/64]&(1<<(pair%64)) == 0 {
		return 0, false
	}
	for _, s := range m.by[[4]byte(text[:4])] {
		switch {
		case len(s) <= len(text):
			if string(text[:len(s)]) == s {
				return len(s), false
			}
		case !final && strings.HasPrefix(s, string(text)):
			return 0, true
		}
	}
	return 0, false
}

// mask appends a masked text, and returns how much of it was processed: the rest may be the
// beginning of a secret.
func (m *Mask) mask(to, text []byte, final bool) ([]byte, int) {
	i := 0
	for i < len(text) {
		n, open := m.at(text[i:], final)
		switch {
		case open:
			return to, i
		case n > 0:
			to = append(to, Masked...)
			i += n
		default:
			to = append(to, text[i])
			i++
		}
	}
	return to, i
}

// cutMark ends texts that were cut: errors of handlers, answers and causes.
const cutMark = "…"

// Text returns a text with its secrets masked, even one that was cut within a secret.
func (m *Mask) Text(text string) string {
	if m == nil || text == "" {
		return text
	}
	whole, isCut := strings.CutSuffix(text, cutMark)
	masked, n := m.mask(nil, []byte(whole), !isCut)
	if n < len(whole) {
		masked = append(masked, Masked...)
	}
	if isCut {
		masked = append(masked, cutMark...)
	}
	return string(masked)
}

// Writer masks its input, even secrets split over several writes. It delays a possible beginning of
// a secret until the next write, or Close.
type Writer struct {
	mask *Mask
	to   io.Writer

	mu      sync.Mutex
	pending []byte
}

// Writer returns a writer that masks its input.
func (m *Mask) Writer(to io.Writer) *Writer { return &Writer{mask: m, to: to} }

// Write implements [io.Writer].
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := p
	if len(w.pending) > 0 {
		w.pending = append(w.pending, p...)
		text = w.pending
	}
	masked, looked := w.mask.mask(make([]byte, 0, len(text)), text, false)
	w.pending = append(w.pending[:0], text[looked:]...)
	if len(masked) > 0 {
		if _, err := w.to.Write(masked); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Close writes the rest. It does not close the underlying writer.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		return nil
	}
	masked, _ := w.mask.mask(nil, w.pending, true)
	w.pending = nil
	_, err := w.to.Write(masked)
	return err
}
