package postgres

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// arrays encodes array arguments. The codec behind it chooses an encoding for each element by
// reflection and allocates: for a batch that costs more than all its decisions.
type arrays struct{ pgtype.Codec }

// useArrays has a connection encode so.
func useArrays(_ context.Context, conn *pgx.Conn) error {
	types := conn.TypeMap()
	for _, oid := range []uint32{pgtype.Int8ArrayOID, pgtype.TextArrayOID, pgtype.ByteaArrayOID} {
		if t, ok := types.TypeForOID(oid); ok {
			types.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: arrays{t.Codec}})
		}
	}
	return nil
}

// PlanEncode implements pgtype.Codec.
func (a arrays) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case []int64:
			if oid == pgtype.Int8ArrayOID {
				return encoding(encodeInts)
			}
		case []string:
			if oid == pgtype.TextArrayOID {
				return encoding(encodeTexts)
			}
		case [][]byte:
			if oid == pgtype.ByteaArrayOID {
				return encoding(encodeBlobs)
			}
		}
	}
	return a.Codec.PlanEncode(m, oid, format, value)
}

// encoding appends an array to what is sent.
type encoding func(array any, buf []byte) []byte

// Encode implements pgtype.EncodePlan.
func (e encoding) Encode(value any, buf []byte) ([]byte, error) { return e(value, buf), nil }

func encodeInts(array any, buf []byte) []byte {
	list := array.([]int64)
	const size = 8
	buf = appendHead(buf, pgtype.Int8OID, len(list), size*len(list))
	for _, v := range list {
		buf = binary.BigEndian.AppendUint32(buf, size)
		buf = binary.BigEndian.AppendUint64(buf, uint64(v))
	}
	return buf
}

func encodeTexts(array any, buf []byte) []byte {
	return encodeBytes(array.([]string), pgtype.TextOID, buf)
}

func encodeBlobs(array any, buf []byte) []byte {
	return encodeBytes(array.([][]byte), pgtype.ByteaOID, buf)
}

func encodeBytes[T string | []byte](list []T, element uint32, buf []byte) []byte {
	size := 0
	for _, v := range list {
		size += len(v)
	}
	buf = appendHead(buf, element, len(list), size)
	for _, v := range list {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(v)))
		buf = append(buf, v...)
	}
	return buf
}

// appendHead begins an array of n elements with room for their lengths and values: it
// has one dimension, of which no element is null, and which begins with number 1.
func appendHead(buf []byte, element uint32, n, size int) []byte {
	buf = slices.Grow(buf, 20+4*n+size)
	for _, v := range []uint32{1, 0, element, uint32(n), 1} {
		buf = binary.BigEndian.AppendUint32(buf, v)
	}
	return buf
}
