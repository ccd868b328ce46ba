package job

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// ID is the permanent identity of a job or a run. It has 128 bits that sort by creation
// time: 48 bits of milliseconds since 1970, then 80 random bits. Its text is a ULID, 26
// characters of Crockford's base 32. The zero ID identifies nothing.
type ID [16]byte

const (
	idLength  = 26
	crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)

// NewID returns an ID with the creation time now. It reads ten bytes from random, which
// must not fail or repeat itself: crypto/rand.Reader outside of tests.
func NewID(now time.Time, random io.Reader) (ID, error) {
	var id ID
	binary.BigEndian.PutUint64(id[:8], uint64(now.UnixMilli())<<16)
	if _, err := io.ReadFull(random, id[6:]); err != nil {
		return ID{}, fmt.Errorf("make an id: %w", err)
	}
	return id, nil
}

// ParseID reads the 26 characters of String, in either case. As in ULID, I and L mean 1,
// and O means 0.
func ParseID(text string) (ID, error) {
	var id ID
	if len(text) != idLength {
		return ID{}, phrase.Mistake(phrase.NotID.Of(quote(text)), phrase.IDForm.Of(idLength))
	}
	// 26 characters have 130 bits: the upper two must be zero.
	var high, low uint64
	for i := range idLength {
		v := crockfordValue(text[i])
		if v > 31 || i == 0 && v > 7 {
			return ID{}, phrase.Mistake(phrase.NotID.Of(quote(text)))
		}
		high = high<<5 | low>>59
		low = low<<5 | uint64(v)
	}
	binary.BigEndian.PutUint64(id[:8], high)
	binary.BigEndian.PutUint64(id[8:], low)
	return id, nil
}

func crockfordValue(c byte) byte {
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	switch c {
	case 'I', 'L':
		c = '1'
	case 'O':
		c = '0'
	}
	for v := range byte(len(crockford)) {
		if crockford[v] == c {
			return v
		}
	}
	return 255
}

// String returns the 26 characters of the id.
func (id ID) String() string {
	high, low := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	var text [idLength]byte
	for i := idLength - 1; i >= 0; i-- {
		text[i] = crockford[low&31]
		low = low>>5 | high<<59
		high >>= 5
	}
	return string(text[:])
}

// IsZero reports whether the id is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// Time returns the creation time of the id, in milliseconds.
func (id ID) Time() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16)).UTC()
}

// MarshalText returns String.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is [ParseID].
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

// Partitions is the number of partitions of the jobs.
const Partitions = 256

// Partition returns the partition of a job. It depends only on the uid and never changes.
func Partition(uid ID) uint8 { return sha256.Sum256(uid[:])[0] }
