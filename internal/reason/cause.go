package reason

import (
	"hash/fnv"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/job"
)

// CauseMax is the longest cause in characters: a line that lists, mails and phones can show.
const CauseMax = 300

// CauseLook is how many bytes of the end of an output suffice for [LastLine]: a cause of four-byte
// characters, with colors and a line end.
const CauseLook = 2 << 10

// causeLines is how many lines with text are searched for one that names an error: programs may print
// further lines after it.
const causeLines = 5

// namesError finds a line that names an error.
var namesError = regexp.MustCompile(`(?i)error|panic|fatal|exception|failed|denied|refused|\berr\b`)

// NamesError reports whether a line of output names an error.
func NamesError(line []byte) bool { return namesError.Match(line) }

// LastLine returns the last line of an output that has text, as a cause; "" for none. If it names no
// error, but a line shortly before it does, it is that one. cut is set if the output has an earlier
// part.
func LastLine(output []byte, cut bool) string {
	last := ""
	for n := 0; len(output) > 0 && n < causeLines; {
		rest, line := []byte(nil), output
		if end := strings.LastIndexByte(string(output), '\n'); end >= 0 {
			rest, line = output[:end], output[end+1:]
		}
		begins := cut && len(rest) == 0 && len(line) == len(output)
		if begins { // within a character
			for len(line) > 0 && !utf8.RuneStart(line[0]) {
				line = line[1:]
			}
		}
		if text := Cause(string(line)); text != "" {
			n++
			if begins {
				text = Cause("…" + text)
			}
			if namesError.MatchString(text) {
				return text
			}
			if last == "" {
				last = text
			}
		}
		output = rest
	}
	return last
}

// FirstLine returns the first line of a text that has a letter or a digit, "" for none. It is no
// [Cause] yet: secrets must be masked before it is cut.
func FirstLine(text string) string {
	for line := range strings.Lines(text) {
		if strings.ContainsFunc(line, isTelling) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func isTelling(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// Cause returns a line of output as the cause of a failure: without control sequences and
// characters, without overwritten text, at most [CauseMax] characters.
func Cause(line string) string {
	for more := true; more; {
		var part string
		i := strings.LastIndexByte(line, '\r')
		if more = i >= 0; more {
			line, part = line[:i], line[i+1:]
		} else {
			part = line
		}
		if text := cleaned(part, false); text != "" {
			return text
		}
	}
	return ""
}

// Plain is [Cause] with the spaces of the line, which may be columns or an indent.
func Plain(line string) string {
	line = strings.TrimRightFunc(line, unicode.IsSpace)
	return cleaned(line[strings.LastIndexByte(line, '\r')+1:], true)
}

func cleaned(line string, spaces bool) string {
	var list []rune
	space := false
	for len(line) > 0 && len(list) <= CauseMax {
		r, size := utf8.DecodeRuneInString(line)
		if r == '\x1b' || r == '\u009b' {
			line = line[sequence(line):]
			continue
		}
		line = line[size:]
		switch {
		case spaces && unicode.IsSpace(r):
			r = ' '
		case unicode.IsSpace(r):
			space = len(list) > 0
			continue
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r): // format characters turn the direction of text
			continue
		}
		if space {
			list, space = append(list, ' '), false
		}
		list = append(list, r)
	}
	if len(list) > CauseMax {
		return strings.TrimRight(string(list[:CauseMax-1]), " ") + "…"
	}
	return string(list)
}

// sequence returns the length of the control sequence with which a text begins.
func sequence(text string) int {
	from := 1
	if text[0] != '\x1b' {
		from = utf8.RuneLen('\u009b')
	} else if len(text) > 1 {
		from = 2
		switch text[1] {
		case '[':
		case ']', 'P', 'X', '^', '_': // a text, up to a bell or ESC \
			for i := from; i < len(text); i++ {
				if text[i] == '\a' || text[i] == '\\' && text[i-1] == '\x1b' {
					return i + 1
				}
			}
			return len(text)
		default:
			if text[1] >= utf8.RuneSelf {
				return 1
			}
			return 2
		}
	}
	for i := from; i < len(text); i++ {
		if c := text[i]; c >= 0x40 && c <= 0x7e {
			return i + 1
		} else if c < 0x20 || c > 0x7e {
			return i
		}
	}
	return len(text)
}

// FingerprintOf returns the fingerprint of a failure: of its cause, or of its reason if it has
// none. Failures whose texts differ only in parts that [Alike] replaces have the same one.
func FingerprintOf(cause string, why job.Reason) job.Fingerprint {
	h := fnv.New64a()
	text := cause
	if text == "" {
		text = why.String()
	}
	if text == "" {
		return 0
	}
	_, _ = h.Write([]byte(Alike(text))) // a hash never fails
	return job.Fingerprint(h.Sum64())
}

// saysError matches a leading word for an error, which only some programs print.
var saysError = regexp.MustCompile(`^(?i:error|fatal|err): +`)

// Alike returns a cause without a leading "error:" and with placeholders for parts that differ between
// failures of one kind: numbers, times, durations, ids, hexadecimal digits, addresses, paths and quoted
// text.
func Alike(cause string) string {
	var b strings.Builder
	cause = saysError.ReplaceAllString(cause, "")
	before := ' '
	for len(cause) > 0 {
		r, size := utf8.DecodeRuneInString(cause)
		switch {
		case (r == '"' || r == '\'' || r == '`') && !isTelling(before):
			if end := strings.IndexRune(cause[size:], r); end >= 0 {
				b.WriteString("“…”")
				cause, before = cause[size+end+size:], r
				continue
			}
		case isWord(r):
			word := cause[:wordEnd(cause)]
			cause = cause[len(word):]
			stem := strings.TrimRight(word, ".:") // of the sentence
			b.WriteString(alikeWord(stem) + word[len(stem):])
			before = 'a'
			continue
		}
		b.WriteRune(r)
		cause, before = cause[size:], r
	}
	return b.String()
}

// isWord reports whether a character may be part of a number, a host, a path or an address.
func isWord(r rune) bool { return isTelling(r) || strings.ContainsRune("/\\._-+:@%~", r) }

func wordEnd(text string) int {
	end := 0
	for end < len(text) {
		r, size := utf8.DecodeRuneInString(text[end:])
		if r == ',' && end > 0 && isDigit(text[end-1]) && end+1 < len(text) && isDigit(text[end+1]) { // 10,000
			end++
			continue
		}
		if !isWord(r) {
			break
		}
		end += size
	}
	return end
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

const (
	// idMin is the least length of an id of letters with at least idDigits digits, and hexMin of an
	// id of hexadecimal digits.
	idMin, idDigits = 16, 2
	hexMin          = 6
)

// alikeWord replaces what differs in a word.
func alikeWord(word string) string {
	if strings.Contains(word, "://") || strings.HasPrefix(word, "/") && len(word) > 1 || strings.HasPrefix(word, "./") || strings.HasPrefix(word, "~/") ||
		strings.Count(word, "/") > 1 || strings.Contains(word, `:\`) {
		return "…"
	}
	digits, onlyHex, onlyID, number := 0, true, true, true
	for i := range len(word) {
		c := word[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if isDigit(c) {
			digits++
			continue
		}
		onlyHex = onlyHex && ('a' <= c|0x20 && c|0x20 <= 'f' || c == '-' || c == ':')
		onlyID = onlyID && (letter || c == '-' || c == '_')
		number = number && strings.IndexByte(".,:+-_/%hmsnuTZµ\xc2\xb5", c) >= 0
	}
	switch {
	case digits == 0:
		if strings.Count(word, ".") > 1 && !strings.Contains(word, "..") { // a host
			return "…"
		}
		return word
	case number, onlyHex && len(word) >= hexMin, onlyID && len(word) >= idMin && digits >= idDigits:
		return "#"
	case strings.HasPrefix(word, "0x"):
		return "#"
	case strings.Count(word, ".") > 1: // a host with digits
		return "…"
	}
	var b strings.Builder
	for i := range len(word) {
		if !isDigit(word[i]) {
			b.WriteByte(word[i])
		} else if i == 0 || !isDigit(word[i-1]) {
			b.WriteByte('#')
		}
	}
	return b.String()
}

// News returns what a cause adds to a reason in English, "" for nothing.
func News(why, cause string) string {
	head, rest, more := strings.Cut(cause, ": ")
	switch {
	case strings.Contains(why, cause):
		return ""
	case more && why != "" && strings.Contains(why, head):
		return rest
	}
	return cause
}

// Beside returns a reason in English followed by what its cause adds.
func Beside(why, cause string) string {
	news := News(why, cause)
	if why == "" || news == "" {
		return why + news
	}
	return why + ": " + news
}
