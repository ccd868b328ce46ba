package xxltables

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	// statementMax bounds a value of a dump: the longest column of XXL-JOB has 16 MiB.
	statementMax = 64 << 20
	// rowsMax bounds the rows of a table, except the log, of which one is kept.
	rowsMax = 1_000_000
	// RunsMax bounds the past runs to read, all of which are in memory.
	RunsMax = 200_000
)

// ReadDump reads the tables of XXL-JOB from a file that mysqldump, mariadb-dump or a tool like
// them has written. It needs no server. Statements about other tables are skipped. Of the log it
// has the highest number, and the rows since a moment, as the log writes it; "" is for none.
func ReadDump(from io.Reader, since string) (map[string]*Table, error) {
	d := &dump{since: since, in: bufio.NewReaderSize(from, 1<<20), line: 1, tables: map[string]*Table{}}
	for {
		word, err := d.next()
		switch {
		case errors.Is(err, io.EOF):
			return d.finish()
		case err != nil:
			return nil, err
		}
		d.isOther = false
		switch strings.ToLower(word.text) {
		case "create":
			err = d.create()
		case "insert", "replace":
			err = d.insert()
		default:
			err = d.skip(word)
		}
		if errors.Is(err, io.EOF) && !d.isOther {
			err = errIncomplete
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("line %d of the dump: %w", d.line, err)
		}
	}
}

// dump is a dump that is read token by token.
type dump struct {
	in     *bufio.Reader
	line   int
	tables map[string]*Table
	since  string
	// isOther is set in skipped statements: the last may lack its end.
	isOther bool
}

var errIncomplete = errors.New("the dump ends inside of a statement: is it complete?")

// token is a word, a quoted name, a text or a sign of SQL.
type token struct {
	text string
	kind tokenKind
}

type tokenKind int

const (
	wordToken tokenKind = iota // a keyword or number
	nameToken                  // in backquotes
	textToken                  // in quotes
	signToken                  // one character
)

func (t token) is(sign string) bool { return t.kind == signToken && t.text == sign }

func (t token) isWord(word string) bool {
	return t.kind == wordToken && strings.EqualFold(t.text, word)
}

func (d *dump) finish() (map[string]*Table, error) {
	for _, name := range []string{GroupTable, JobTable} {
		if t := d.tables[name]; t == nil {
			return nil, fmt.Errorf("the dump does not have the table %s", name)
		}
	}
	return d.tables, nil
}

// skip reads to the end of a statement.
func (d *dump) skip(t token) (err error) {
	d.isOther = true
	for !t.is(";") && err == nil {
		t, err = d.next()
	}
	return err
}

// name reads the name of a table or column; it skips a database before it.
func (d *dump) name() (string, error) {
	t, err := d.next()
	if err != nil {
		return "", err
	}
	if t.kind != nameToken && t.kind != wordToken {
		return "", fmt.Errorf("%q stands where a name is expected", t.text)
	}
	if _, after, found := strings.Cut(t.text, "."); found && t.kind == wordToken {
		if after == "" { // a quoted name follows
			return d.name()
		}
		return after, nil
	}
	if ahead, err := d.in.Peek(1); err == nil && ahead[0] == '.' {
		_, _ = d.in.Discard(1)
		return d.name()
	}
	return t.text, nil
}

// create reads the columns of a table of XXL-JOB.
func (d *dump) create() error {
	t, err := d.next()
	if err != nil || !t.isWord("table") {
		return errors.Join(err, d.skip(t))
	}
	name, err := d.name()
	if err != nil {
		return err
	}
	for strings.EqualFold(name, "if") || strings.EqualFold(name, "not") || strings.EqualFold(name, "exists") {
		if name, err = d.name(); err != nil {
			return err
		}
	}
	name = strings.ToLower(name)
	if !slices.Contains(Names(), name) {
		return d.skip(token{})
	}
	table := &Table{}
	depth, isFirst := 0, false
	for {
		t, err := d.next()
		switch {
		case err != nil:
			return err
		case t.is(";"):
			d.tables[name] = table
			return nil
		case t.is("("):
			depth++
			isFirst = depth == 1
			continue
		case t.is(")"):
			depth--
		case t.is(","):
			isFirst = depth == 1
			continue
		case isFirst && depth == 1 && (t.kind == nameToken || t.kind == wordToken && !isKeyWord(t.text)):
			table.Columns = append(table.Columns, t.text)
		}
		isFirst = false
	}
}

// isKeyWord reports whether a definition in a table is about a key and not about a column.
func isKeyWord(word string) bool {
	return slices.Contains([]string{"primary", "unique", "key", "index", "constraint", "fulltext", "spatial", "foreign", "check"}, strings.ToLower(word))
}

// insert reads rows of a table of XXL-JOB.
func (d *dump) insert() error {
	var name string
	for {
		t, err := d.next()
		if err != nil {
			return err
		}
		if t.isWord("into") {
			if name, err = d.name(); err != nil {
				return err
			}
			break
		}
		if t.is(";") {
			return nil
		}
	}
	name = strings.ToLower(name)
	if !slices.Contains(Names(), name) {
		return d.skip(token{})
	}
	table := d.tables[name]
	var columns []string
	for {
		t, err := d.next()
		switch {
		case err != nil:
			return err
		case t.is(";"):
			return nil
		case t.is("("):
			if columns, err = d.columns(); err != nil {
				return err
			}
		case t.isWord("values") || t.isWord("value"):
			if table == nil {
				table = &Table{Columns: columns}
				d.tables[name] = table
			}
			if columns == nil {
				columns = table.Columns
			}
			return d.rows(name, table, columns)
		}
	}
}

func (d *dump) columns() (list []string, err error) {
	for {
		t, err := d.next()
		switch {
		case err != nil:
			return nil, err
		case t.is(")"):
			return list, nil
		case !t.is(","):
			list = append(list, t.text)
		}
	}
}

// rows reads what follows VALUES.
func (d *dump) rows(name string, table *Table, columns []string) error {
	places := make([]int, len(columns))
	for i, column := range columns {
		places[i] = slices.IndexFunc(table.Columns, func(c string) bool { return strings.EqualFold(c, column) })
		if places[i] < 0 {
			return fmt.Errorf("the table %s has no column %s", name, column)
		}
	}
	for {
		t, err := d.next()
		switch {
		case err != nil:
			return err
		case t.is(";"):
			return nil
		case t.is(","):
		case !t.is("("):
			return d.skip(t) // ON DUPLICATE KEY and the like
		default:
			row, err := d.row()
			if err != nil {
				return err
			}
			if len(row) != len(columns) {
				return fmt.Errorf("a row of %s has %d values for %d columns", name, len(row), len(columns))
			}
			if err := table.add(name, d.since, places, row); err != nil {
				return err
			}
		}
	}
}

// add adds a row. For the log it keeps only rows since a moment, and the highest number.
func (t *Table) add(name, since string, places []int, row []Value) error {
	whole := make([]Value, len(t.Columns))
	for i := range whole {
		whole[i].Null = true
	}
	for i, at := range places {
		whole[at] = row[i]
	}
	if name == LogTable {
		column := func(name string) int {
			return slices.IndexFunc(t.Columns, func(c string) bool { return strings.EqualFold(c, name) })
		}
		if id := column("id"); id >= 0 && isHigher(whole[id].Text, t.Highest) {
			t.Highest = whole[id].Text
		}
		begun := column("trigger_time")
		if since == "" || begun < 0 || whole[begun].Text < since {
			return nil
		}
		if len(t.Rows) >= RunsMax {
			return fmt.Errorf("the table %s has more than %d rows since %s: take fewer days", name, RunsMax, since)
		}
		t.Rows = append(t.Rows, whole)
		return nil
	}
	if len(t.Rows) >= rowsMax {
		return fmt.Errorf("the table %s has more than %d rows", name, rowsMax)
	}
	t.Rows = append(t.Rows, whole)
	return nil
}

// isHigher compares numbers without a sign.
func isHigher(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// row reads the values up to the closing parenthesis.
func (d *dump) row() (row []Value, err error) {
	var v Value
	hasValue, depth := false, 0
	for {
		t, err := d.next()
		switch {
		case err != nil:
			return nil, err
		case t.is(")") && depth == 0:
			return append(row, v), nil
		case t.is(",") && depth == 0:
			row, v, hasValue = append(row, v), Value{}, false
		case t.is("("):
			depth++ // now()
		case t.is(")"):
			depth--
		case t.kind == textToken:
			v, hasValue = Value{Text: t.text}, true
		case t.isWord("null"):
			v, hasValue = Value{Null: true}, true
		case t.is("-"):
			v, hasValue = Value{Text: "-"}, true
		case t.kind == wordToken && strings.HasPrefix(t.text, "_"): // _binary 'x'
		case t.kind == wordToken && strings.HasPrefix(strings.ToLower(t.text), "0x"):
			raw, err := hex.DecodeString(t.text[2:])
			if err != nil {
				return nil, fmt.Errorf("%s is not a hexadecimal value", t.text)
			}
			v, hasValue = Value{Text: string(raw)}, true
		case t.kind == wordToken && hasValue:
			v.Text += t.text
		case t.kind == wordToken && (t.text[0] < '0' || t.text[0] > '9'):
			v, hasValue = Value{Null: true}, true // a function, such as now()
		case t.kind == wordToken:
			v, hasValue = Value{Text: t.text}, true
		}
	}
}

// next reads a token. It skips comments, except ones that MySQL executes.
func (d *dump) next() (token, error) {
	for {
		c, err := d.read()
		if err != nil {
			return token{}, err
		}
		switch {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		case c == '#':
			if err := d.toLineEnd(); err != nil {
				return token{}, err
			}
		case c == '-' && d.peek() == '-':
			if err := d.toLineEnd(); err != nil {
				return token{}, err
			}
		case c == '/' && d.peek() == '*':
			if err := d.comment(); err != nil {
				return token{}, err
			}
		case c == '`':
			text, err := d.quoted('`')
			return token{text, nameToken}, err
		case c == '\'' || c == '"':
			text, err := d.quoted(c)
			return token{text, textToken}, err
		case isWordByte(c):
			text := []byte{c}
			for isWordByte(d.peek()) {
				c, _ := d.read()
				text = append(text, c)
			}
			return token{string(text), wordToken}, nil
		default:
			return token{string(c), signToken}, nil
		}
	}
}

func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '.' || c == '$' || c >= 0x80
}

func (d *dump) read() (byte, error) {
	c, err := d.in.ReadByte()
	if c == '\n' && err == nil {
		d.line++
	}
	return c, err
}

// peek returns the next byte, 0 at the end.
func (d *dump) peek() byte {
	ahead, err := d.in.Peek(1)
	if err != nil {
		return 0
	}
	return ahead[0]
}

func (d *dump) toLineEnd() error {
	for {
		if c, err := d.read(); err != nil || c == '\n' {
			return err
		}
	}
}

func (d *dump) comment() error {
	var before byte
	for {
		c, err := d.read()
		if err != nil || before == '*' && c == '/' {
			return err
		}
		before = c
	}
}

// quoted reads to the closing quote, which is doubled or has a backslash in front inside of
// the text.
func (d *dump) quoted(quote byte) (string, error) {
	var b strings.Builder
	for {
		c, err := d.read()
		switch {
		case errors.Is(err, io.EOF):
			return "", errIncomplete
		case err != nil:
			return "", err
		case b.Len() > statementMax:
			return "", fmt.Errorf("a text has more than %d MiB", statementMax>>20)
		case c == quote && d.peek() == quote:
			_, _ = d.read()
			b.WriteByte(quote)
		case c == quote:
			return b.String(), nil
		case c == '\\' && quote != '`':
			c, err := d.read()
			if err != nil {
				return "", errIncomplete
			}
			b.WriteString(unescaped(c))
		default:
			b.WriteByte(c)
		}
	}
}

// unescaped returns the meaning of a character after a backslash.
func unescaped(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'r':
		return "\r"
	case '0':
		return "\x00"
	case 'b':
		return "\b"
	case 'Z':
		return "\x1a"
	case '%', '_':
		return "\\" + string(c)
	}
	return string(c)
}
