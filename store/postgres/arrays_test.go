package postgres

import (
	"bytes"
	"math"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// arrays encodes like the codec of pgx.
func TestArraysAreEncodedAsTheyWere(t *testing.T) {
	types := pgtype.NewMap()
	for _, c := range []struct {
		oid  uint32
		list any
	}{
		{pgtype.Int8ArrayOID, []int64{}},
		{pgtype.Int8ArrayOID, []int64{0, -1, 7, math.MaxInt64, math.MinInt64}},
		{pgtype.TextArrayOID, []string{}},
		{pgtype.TextArrayOID, []string{"", "a", "größer", "{,\"}\\"}},
		{pgtype.ByteaArrayOID, [][]byte{}},
		{pgtype.ByteaArrayOID, [][]byte{{}, {0}, bytes.Repeat([]byte{0xff, 0}, 300)}},
	} {
		before := []byte("before")
		want, err := types.Encode(c.oid, pgtype.BinaryFormatCode, c.list, bytes.Clone(before))
		if err != nil {
			t.Fatal(err)
		}
		plan := arrays{}.PlanEncode(types, c.oid, pgtype.BinaryFormatCode, c.list)
		if got, err := plan.Encode(c.list, bytes.Clone(before)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v is encoded as %x (%v), not %x", c.list, got, err, want)
		}
	}
}

// Arrays of other types are left to the codec of pgx.
func TestOtherArraysAreLeftToTheirCodec(t *testing.T) {
	types := pgtype.NewMap()
	plain, _ := types.TypeForOID(pgtype.Int4ArrayOID)
	list := []int64{1, 2}
	want, err := types.Encode(pgtype.Int4ArrayOID, pgtype.BinaryFormatCode, list, nil)
	if err != nil {
		t.Fatal(err)
	}
	types.RegisterType(&pgtype.Type{Name: plain.Name, OID: plain.OID, Codec: arrays{plain.Codec}})
	if got, err := types.Encode(pgtype.Int4ArrayOID, pgtype.BinaryFormatCode, list, nil); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x (%v), not %x", got, err, want)
	}
}
