package job

import (
	"regexp"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Values in shell commands. A value with arbitrary characters is allowed only where the shell
// certainly reads it as a literal: outside of all quotes, where it is put into single quotes, in
// which only the quote itself is special. To find such positions, this file scans the command
// character by character. After a construct unknown to the scanner it refuses such values, so that
// the worst case is a refusal, not an injection. Elsewhere it accepts only values of characters
// without a special meaning to shells.

var (
	// tamePattern matches values that are safe in quotes.
	tamePattern = regexp.MustCompile(`^[A-Za-z0-9_.,:/+ -]*$`)
	// tameWordPattern matches values that are safe anywhere.
	tameWordPattern = regexp.MustCompile(`^[A-Za-z0-9_.,:/+-]*$`)
)

// QuoteShell returns a text as one literal word for a POSIX shell.
func QuoteShell(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func escapeShell(v any) (string, error) {
	text, err := escapeNothing(v)
	return QuoteShell(text), err
}

// escapeTame returns an escaper for places that allow only some texts.
func escapeTame(pattern *regexp.Regexp, place phrase.Text) escaper {
	return func(v any) (string, error) {
		text := valueText(v)
		if !pattern.MatchString(text) {
			return "", phrase.Mistake(phrase.NotThere.Of(quote(text), place))
		}
		return text, nil
	}
}

// shellPlacement follows the text of a command.
type shellPlacement struct {
	// frames are the constructs around the current place, innermost last. The first is the command
	// itself.
	frames []shellFrame
	// lost explains why the position in the text is unknown from here on.
	lost phrase.Text
	// strict refuses values that would decide what runs.
	strict bool
}

// shellFrame is a construct that encloses a part of a command.
type shellFrame struct {
	kind shellKind
	// escaped is set after a backslash.
	escaped bool
	// last is the previous character, if it changes the meaning of the next one: '$', '(',
	// '<', or 'H' for the two signs of a here-document.
	last byte
	// word is the beginning of the current word, without quotes and their content or
	// values; place is the position in the word.
	word  string
	place wordPlace
	// position is where in a command the word is.
	position commandPosition
	// evaluated is set inside constructs that a shell expands twice, so that even a quoted
	// text in it can run commands: $(( )) and (( )). The others are for similar places in a
	// command: test between [[ and ]], duplicate from >& or <& to the end of the next word,
	// which bash expands twice, and subscripts, the number of open [ in a word.
	evaluated, test, duplicate bool
	subscripts                 int
}

type shellKind byte

const (
	inCommand      shellKind = iota // the command, or ( )
	inSubstitution                  // $( ), <( ), >( )
	inSingleQuotes
	inDoubleQuotes
	inBackquotes
	inParameter // ${ }
	inComment
)

var shellPlaces = map[shellKind]phrase.Text{
	inSingleQuotes: phrase.InSingleQuotes,
	inDoubleQuotes: phrase.InDoubleQuotes,
	inBackquotes:   phrase.InBackquotes,
	inParameter:    phrase.InToken.Of("${ }"),
	inComment:      phrase.InComment,
}

type wordPlace byte

const (
	atWordStart wordPlace = iota
	inWord
	// unsureOfWord is where shells differ or branches do: only a # matters.
	unsureOfWord
)

// keptOfWord is the number of letters needed to recognise the words that matter, paths of
// programs included.
const keptOfWord = 256

func newShellPlacement(strict bool) *shellPlacement {
	return &shellPlacement{frames: []shellFrame{{kind: inCommand}}, strict: strict}
}

func (s *shellPlacement) top() *shellFrame { return &s.frames[len(s.frames)-1] }

func (s *shellPlacement) push(f shellFrame) {
	f.evaluated = f.evaluated || s.top().expandsTwice()
	s.frames = append(s.frames, f)
}

func (f *shellFrame) expandsTwice() bool {
	return f.evaluated || f.test || f.duplicate || f.subscripts > 0
}

func (s *shellPlacement) pop() { s.frames = s.frames[:len(s.frames)-1] }

func (s *shellPlacement) lose(why phrase.Text) {
	if s.lost.IsZero() {
		s.lost = why
	}
}

func (s *shellPlacement) text(text string) {
	for i := 0; i < len(text) && s.lost.IsZero(); i++ {
		c := text[i]
		f := s.top()
		switch f.kind {
		case inCommand, inSubstitution:
			s.command(c)
		case inSingleQuotes:
			if c == '\'' {
				s.pop()
			} else {
				s.quoted(c)
			}
		case inDoubleQuotes:
			s.doubleQuoted(c)
		case inBackquotes:
			switch {
			case f.escaped:
				f.escaped = false
			case c == '\\':
				f.escaped = true
			case c == '`':
				s.pop()
			}
		case inParameter:
			switch {
			case strings.IndexByte("'\"`\\${", c) >= 0:
				s.lose(phrase.AfterQuotesIn.Of("${ }"))
			case c == '}':
				s.pop()
			}
		case inComment:
			if c == '\n' {
				s.pop()
				s.command(c)
			}
		}
	}
}

// doubleQuoted handles a character between double quotes.
func (s *shellPlacement) doubleQuoted(c byte) {
	f := s.top()
	last := f.last
	switch {
	case f.escaped:
		f.escaped = false
		if c != '\n' { // a line break is removed
			f.last = 0
		}
		return
	case c == '\\':
		f.escaped = true
		return
	}
	f.last = 0
	if last == '$' && s.dollar(c) {
		return
	}
	switch c {
	case '"':
		s.pop()
	case '`':
		s.push(shellFrame{kind: inBackquotes})
	case '$':
		f.last = '$'
	default:
		s.quoted(c)
	}
}

// quoted handles a literal character in quotes: it is part of the quoted word.
func (s *shellPlacement) quoted(c byte) { s.frames[len(s.frames)-2].grow(c) }

// dollar takes the character after a dollar sign, and reports whether the two belong
// together. If not, the character is an ordinary one.
func (s *shellPlacement) dollar(c byte) bool {
	switch c {
	case '(':
		s.push(shellFrame{kind: inSubstitution, last: '('})
	case '{':
		s.push(shellFrame{kind: inParameter})
	case '[':
		s.lose(phrase.AfterToken.Of("$["))
	case '\'':
		// In double quotes this is no quote; refusing there does little harm.
		s.lose(phrase.AfterToken.Of("$'"))
	case '$', '#', '?', '!', '@', '*', '-':
		// A one-character parameter.
	default:
		return false
	}
	return true
}

// command handles a character outside of quotes.
func (s *shellPlacement) command(c byte) {
	f := s.top()
	last := f.last
	switch {
	case f.escaped:
		f.escaped = false
		if c != '\n' { // a line break is removed
			f.last = 0
			f.grow(c)
		}
		return
	case c == '\\':
		f.escaped = true
		return
	}
	f.last = 0
	if last == 'H' && c != '<' {
		s.lose(phrase.AfterHereDocument)
		return
	}
	if last == '$' && s.dollar(c) {
		return
	}
	switch c {
	case ' ', '\t', '\n', ';', '&', '|', '<', '>':
		redirects := c == '<' || c == '>'
		if redirects && numberPattern.MatchString(f.word) {
			f.position.file = true // the number is a file descriptor
		}
		s.endWord()
		f.place = atWordStart
		switch {
		case redirects:
			f.position.file = true
		case c != ' ' && c != '\t' && last != '<' && last != '>': // not >& or >|
			f.position = commandPosition{}
		}
		switch {
		case c == '<' && last == '<':
			f.last = 'H'
		case c == '<' && last == 'H': // a word follows <<<
		case c == '<' || c == '>':
			f.last = c
		case c == '&' && (last == '<' || last == '>'):
			f.duplicate = true
		}
	case '\'':
		f.place = inWord
		s.push(shellFrame{kind: inSingleQuotes})
	case '"':
		f.place = inWord
		s.push(shellFrame{kind: inDoubleQuotes})
	case '`':
		f.place = inWord
		s.push(shellFrame{kind: inBackquotes})
	case '$':
		f.place = inWord
		f.last = '$'
	case '(':
		s.openParenthesis(last)
	case ')':
		s.closeParenthesis()
	case '#':
		switch {
		case f.place == unsureOfWord || f.evaluated || last != 0:
			s.lose(phrase.AfterPerhapsComment)
		case f.place == atWordStart:
			s.push(shellFrame{kind: inComment})
		default:
			f.grow(c)
		}
	case '[':
		f.subscripts++
		f.grow(c)
	case ']':
		f.subscripts = max(0, f.subscripts-1)
		f.grow(c)
	default:
		f.grow(c)
	}
}

func (s *shellPlacement) openParenthesis(last byte) {
	s.endWord()
	f := s.top()
	if f.test {
		s.loseInTest()
	}
	kind := inCommand
	switch last {
	case '(':
		f.evaluated = true
	case '<', '>':
		kind = inSubstitution
	}
	s.push(shellFrame{kind: kind, last: '('})
}

// loseInTest is called for parentheses in [[ ]], which in regular expressions
// need not be closed.
func (s *shellPlacement) loseInTest() { s.lose(phrase.AfterParenthesis.Of("[[ ]]")) }

func (s *shellPlacement) closeParenthesis() {
	s.endWord()
	if s.top().test {
		s.loseInTest()
	}
	if len(s.frames) == 1 {
		s.top().place = unsureOfWord // the pattern of a case
		s.top().position = commandPosition{}
		return
	}
	// After $( ) a word continues. After ( ) it may, as in @(a|b): shells differ.
	place := unsureOfWord
	if s.top().kind == inSubstitution {
		place = inWord
	}
	s.pop()
	s.top().place = place
	s.top().last = 0
}

// grow handles a character of a word.
func (f *shellFrame) grow(c byte) {
	f.place = inWord
	if c >= 0x80 {
		f.place = unsureOfWord // some locales treat it as a blank
	}
	if len(f.word) < keptOfWord {
		f.word += string(rune(c))
	}
}

// endWord ends the current word and examines it.
func (s *shellPlacement) endWord() {
	f := s.top()
	switch f.word {
	case "[[":
		f.test = true
	case "]]":
		f.test = false
	case "eval", "let":
		s.lose(phrase.AfterEvaluator.Of(f.word))
	case "case":
		// The patterns of a case may close parentheses that were never opened.
		if slices.ContainsFunc(s.frames, func(f shellFrame) bool { return f.kind == inSubstitution }) {
			s.lose(phrase.AfterCase.Of("$( )"))
		}
	}
	if f.place != atWordStart {
		f.duplicate = false
	}
	if f.place == inWord || f.word != "" { // without a word it follows a parenthesis
		f.position.end(f.word)
	}
	f.word = ""
	f.subscripts = 0
}

func (s *shellPlacement) value(e *expression) (escaper, error) {
	f := s.top()
	switch {
	case f.escaped:
		s.lose(phrase.AfterABackslash)
	case f.last == '$':
		s.lose(phrase.AfterDollar)
	case f.last == 'H':
		s.lose(phrase.AfterHereDocument)
	}
	where := shellPlaces[f.kind]
	inQuotes := f.kind == inSingleQuotes || f.kind == inDoubleQuotes
	switch {
	case !s.lost.IsZero():
		where, inQuotes = s.lost, false
	case f.expandsTwice():
		where = where.Or(phrase.WhereEvaluated.Of("(( )), [[ ]]"))
	}
	f.last = 0
	f.place = inWord
	if where.IsZero() {
		if decides := f.position.refusal(f.word); !decides.IsZero() && e.free && s.strict {
			return nil, phrase.Mistake(phrase.FreeNotThere.Of(e.source, decides), phrase.UnsafeForm)
		}
		return escapeShell, nil
	}
	if e.free {
		variable := ""
		if name, ok := strings.CutPrefix(e.source, ".Param."); ok {
			variable = ParamVariable(name)
		}
		return nil, phrase.Mistake(phrase.FreeNotThere.Of(e.source, where), phrase.OutsideQuotes.Of(variable))
	}
	if inQuotes {
		return escapeTame(tamePattern, where), nil
	}
	return escapeTame(tameWordPattern, where), nil
}

func (s *shellPlacement) branch() placement {
	return &shellPlacement{frames: slices.Clone(s.frames), lost: s.lost, strict: s.strict}
}

func (s *shellPlacement) join(other placement) {
	o := other.(*shellPlacement)
	if !o.lost.IsZero() {
		s.lose(o.lost)
	}
	f, g := s.top(), o.top()
	// The branches may end at different positions of a word and command, but not in different
	// constructs.
	f.position = f.position.join(g.position)
	g.position = f.position
	if f.word != g.word {
		f.word, g.word = "?", "?"
	}
	if f.place != g.place {
		f.place, g.place = unsureOfWord, unsureOfWord
	}
	if !slices.Equal(s.frames, o.frames) {
		s.lose(phrase.AfterBranches)
	}
}
