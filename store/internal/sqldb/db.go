package sqldb

import (
	"context"
	"sync"
)

// DB is a database with its dialect: what differs between PostgreSQL and MySQL.
// Its methods may be called by any goroutine.
type DB interface {
	// Begin begins a transaction in which each statement sees the commits before its start (READ
	// COMMITTED). With adds, it may be refused with store.ErrNoSpace, to leave room for other
	// transactions.
	Begin(ctx context.Context, adds bool) (Tx, error)
	// Snapshot begins a transaction that reads one consistent state.
	Snapshot(ctx context.Context) (Tx, error)
	// Alone reports whether one process has the database for its own, and serializes its writing
	// transactions.
	Alone() bool
	// Caches reports that job_state.cached_by names the process that caches the runs of a job, and is
	// cleared when anything else than Write changes them.
	Caches() bool
	// Lateral reports that a subquery behind FROM may name the tables before it, which costs less
	// than a statement per row.
	Lateral() bool
	// Failures returns how the index of failures is read: what follows the table of history,
	// and the condition, which means [Failed].
	Failures() (from, condition string)
	// Paused is the condition of the index of paused jobs.
	Paused() string
	// Fault classifies an error of this package's calls.
	Fault(err error) Fault
	// Clock is an expression for the clock of the database, in nanoseconds
	// since 1970, that advances inside a transaction.
	Clock() string
	// Era changes when what was read and written may not be what is stored: in a database of one
	// process after a rollback or a change other than Write, in one that Caches with each connection,
	// since the server behind it may have lost the last commits.
	Era() int64
	// KeepsNotices reports that the database stores a row for each payload of Notify, so that there
	// must be few different ones.
	KeepsNotices() bool
	// Notify notifies all nodes, in a transaction of its own, and Listen calls begun, and do with
	// each later notification, until ctx ends.
	Notify(ctx context.Context, payload string) error
	Listen(ctx context.Context, begun func(), do func(payload string)) error
	// Partition creates partitions of history for the coming days, and drops partitions
	// entirely before a moment, in databases where that is cheaper than deleting rows.
	Partition(ctx context.Context, now, before int64) error
	Close() error
}

// Fault is the meaning of an error of a database for a call.
type Fault uint8

// The meanings of an error.
const (
	// Final: the statement is wrong, or the database cannot do it.
	Final Fault = iota
	// Conflict: other transactions interfered (a deadlock, a duplicate), and nothing was changed. A
	// repetition may succeed at once.
	Conflict
	// Broken: the connection is lost. Before the commit was sent nothing was
	// changed; after it the outcome is unknown.
	Broken
)

// Tx is a transaction on a connection of its own, for one goroutine.
//
// Texts of statements are the same in all dialects. A parameter is a question mark, and "in (?*)"
// stands for a set, whose argument is a slice: it may be empty. SQLite keeps a number for each job in
// history, which stands for its name: "uid/*n*/" is the column of names that history has, "/*n*/"
// stands before a uid that is compared with it, and "/*uid*/" before it where it is compared with a
// uid. Joined tables are named in the order in which they are best read. An argument is int64, string,
// []byte or nil, in a set []int64, []string or [][]byte. The texts are constant, so that they can stay
// prepared.
type Tx interface {
	// Ask runs statements that return rows, one after the other, in one message. [Rows.More] moves
	// from the rows of one statement to the next. All rows are read to the end, or until an error,
	// before the next call.
	Ask(ctx context.Context, questions ...Question) Rows
	// Exec runs a statement. It may wait until the next Ask or Commit, which
	// then returns its error.
	Exec(ctx context.Context, text string, args ...any) error
	// Write writes many rows, as Exec does.
	Write(ctx context.Context, op Op, b *Batch) error
	// Whole says that the next statements read most rows of their tables: the database need not
	// find an index for it.
	Whole()
	// Commit commits. sent reports whether the commit may have happened despite an error.
	Commit(ctx context.Context) (sent bool, err error)
	// Rollback undoes the transaction, and releases the connection. After Commit it does nothing.
	Rollback()
}

// Question is a statement that returns rows.
type Question struct {
	Text string
	Args []any
}

// Rows are the rows of questions. Values are read once each, in the order of the columns.
type Rows interface {
	// Next moves to the next row. After the last one of the last question, and
	// after an error, the rows are closed.
	Next() bool
	// More moves to the rows of the next question, when Next has returned false. It
	// returns false after an error.
	More() bool
	Int() int64
	Text() string
	// View returns the bytes of a text or blob until the next call of Next.
	View() []byte
	// Close ends the rows early. It may be called again.
	Close()
	// Err returns the error, after Next has returned false or Close.
	Err() error
}

// Op is an operation on many rows.
type Op uint8

// The operations on many rows.
const (
	Insert    Op = iota // new rows
	InsertNew           // rows whose key is new
	Upsert              // new rows, replacing those with the same key
	Update              // the columns after the key, of existing rows
	Delete              // by the key; other columns are ignored
)

// Kind is the type of a column.
type Kind uint8

// The types of columns.
const (
	Int  Kind = iota // 64 bits, or fewer in the database
	Text             // valid UTF-8 without zeros
	Blob             // bytes, including ids
)

// Column is a column of a [Table].
type Column struct {
	Name string
	Kind Kind
}

// Table is a table, or some columns of it, that many rows are written to at
// once. There are few, in variables, so that a dialect can keep the statements
// by their address.
type Table struct {
	Name string
	// Columns begin with the primary key.
	Columns []Column
	Key     int // number of key columns

	spare sync.Pool // of *Batch
}
