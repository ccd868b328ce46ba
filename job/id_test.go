package job_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// The forms of ids and the partitions of jobs never change: they are in
// stores and in what users wrote down.
func TestIDsKeepTheirForm(t *testing.T) {
	random := bytes.NewReader([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	id, err := job.NewID(time.UnixMilli(1_700_000_000_123), random)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id        job.ID
		text      string
		partition uint8
	}{
		{job.ID{}, "00000000000000000000000000", 0x37},
		{id, "01HF7YAT3V041061050R3GG28A", 0xa0},
		{job.ID(bytes.Repeat([]byte{0xff}, 16)), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", 0x5a},
	} {
		if got := c.id.String(); got != c.text {
			t.Errorf("%x is %s, want %s", c.id[:], got, c.text)
		}
		for _, text := range []string{c.text, strings.ToLower(c.text)} {
			if got, err := job.ParseID(text); err != nil || got != c.id {
				t.Errorf("%s is %x, %v, want %x", text, got[:], err, c.id[:])
			}
		}
		if got := job.Partition(c.id); got != c.partition {
			t.Errorf("%s is in partition %#x, want %#x", c.text, got, c.partition)
		}
	}
	if got := id.Time(); !got.Equal(time.UnixMilli(1_700_000_000_123)) {
		t.Errorf("made at %v", got)
	}
}

func TestIDsSortByTime(t *testing.T) {
	last := ""
	for ms := range 1000 {
		id, err := job.NewID(time.UnixMilli(int64(ms)*1_000_003), bytes.NewReader(bytes.Repeat([]byte{byte(255 - ms)}, 10)))
		if err != nil {
			t.Fatal(err)
		}
		if id.String() <= last {
			t.Fatalf("%s is not after %s", id, last)
		}
		last = id.String()
	}
}

func TestIDsAreRefused(t *testing.T) {
	for _, text := range []string{"", "01HF7YAT3V041061050R3GG28", "01HF7YAT3V041061050R3GG28AA", "80000000000000000000000000", "01HF7YAT3V041061050R3GG28U", "01HF7YAT3V041061050R3GG2é"} {
		if id, err := job.ParseID(text); err == nil {
			t.Errorf("%q is %s", text, id)
		}
	}
	if id, err := job.ParseID("O1HF7YAT3VO41O61O5OR3GG28A"); err != nil || id.String() != "01HF7YAT3V041061050R3GG28A" {
		t.Errorf("O is not taken for 0: %s, %v", id, err)
	}
	if _, err := job.NewID(time.Now(), strings.NewReader("short")); err == nil {
		t.Error("an id was made without enough randomness")
	}
}

func TestIDsAreTexts(t *testing.T) {
	id, err := job.ParseID("01HF7YAT3V041061050R3GG28A")
	if err != nil {
		t.Fatal(err)
	}
	text, err := id.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var again job.ID
	if err := again.UnmarshalText(text); err != nil || again != id || again.IsZero() {
		t.Errorf("%s became %s, %v", id, again, err)
	}
}
