package job_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

func TestDurationsAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "90s": 90 * time.Second, "10m": 10 * time.Minute, "1d12h": 36 * time.Hour, "1w": 7 * 24 * time.Hour,
		"250ms": 250 * time.Millisecond, "1h1ns": time.Hour + 1, "forever": time.Duration(job.Forever),
	} {
		got, err := job.ParseDuration(text)
		if err != nil || time.Duration(got) != want {
			t.Errorf("%s: got %v, %v, want %v", text, time.Duration(got), err, want)
		}
		again, err := job.ParseDuration(got.String())
		if err != nil || again != got {
			t.Errorf("%s became %s and %v, %v", text, got, again, err)
		}
	}
	for d, want := range map[job.Duration]string{
		0: "0s", job.Duration(90 * time.Second): "1m30s", job.Duration(14 * 24 * time.Hour): "14d", job.Duration(1_001_001): "1ms1us1ns",
		-job.Duration(time.Second): "-1s", job.Forever: "forever",
	} {
		if got := d.String(); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}

func TestDurationsInWordsAreExact(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0 s", "forever": "forever", "5m": "5 min", "90m": "1 h 30 min", "14d": "14 d", "1d1s": "1 d 1 s", "12s345ms": "12.345 s",
		"1m500ms": "1 min 500 ms", "250ms": "250 ms", "1ms500us": "1.5 ms", "20us": "20 µs", "7ns": "7 ns",
	} {
		d, err := job.ParseDuration(text)
		if got := d.InWords(); err != nil || got != want {
			t.Errorf("%s is %q in words, %v, want %q", text, got, err, want)
		}
	}
	if got := job.Duration(-90 * time.Second).InWords(); got != "-1 min 30 s" {
		t.Errorf("a negative duration is %q in words", got)
	}
}

func TestDurationsAreRefusedWithAReason(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "a duration is missing",
		"90":                    `"90" has a number without a unit`,
		"1.5h":                  `"1.5h" has a fraction (whole numbers with units, for example 1h30m)`,
		"-1s":                   "is not a duration",
		"s":                     "is not a duration",
		"5 m":                   "has a number without a unit",
		"5min":                  `unknown, repeated or misplaced unit "min"`,
		"1s1m":                  `unknown, repeated or misplaced unit "m"`,
		"1m1m":                  `unknown, repeated or misplaced unit "m"`,
		"300000d":               "is too long",
		"106751d1":              "number without a unit",
		"99999999999999999999s": "is too long",
		"1H":                    "number without a unit",
	} {
		if got, err := job.ParseDuration(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestSizesAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]struct {
		bytes job.Size
		text  string
	}{
		"0": {0, "0"}, "1048576": {1 << 20, "1MiB"}, "64MiB": {64 << 20, "64MiB"}, "1GiB": {1 << 30, "1GiB"}, "500MB": {5e8, "500MB"},
		"1kB": {1000, "1kB"}, "1KB": {1000, "1kB"}, "7B": {7, "7"}, "2TiB": {2 << 40, "2TiB"},
	} {
		got, err := job.ParseSize(text)
		if err != nil || got != want.bytes || got.String() != want.text {
			t.Errorf("%s: got %d as %s, %v, want %d as %s", text, got, got, err, want.bytes, want.text)
		}
	}
	for text, want := range map[string]string{
		"": "is not a size", "MiB": "is not a size", "-1": "is not a size", "1.5GiB": `unknown unit ".5GiB"`, "64mib": `did you mean "MiB"?`,
		"9999999999999999999": "too large", "9999999TiB": "too large",
	} {
		if got, err := job.ParseSize(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestUsageIsStoredExactly(t *testing.T) {
	for want, u := range map[string]job.Usage{
		"":                    {},
		"2310007,123456789,,": {CPUSeconds: 2.310007, MemoryBytes: 123456789},
		"0,<64000000,0,4096":  {MemoryBytes: 64e6, MemoryAtMost: true, ReadBytes: new(int64(0)), WrittenBytes: new(int64(4096))},
		"1000000000000000,1000000000000000,1000000000000000,": {CPUSeconds: 1e9, MemoryBytes: 1e15, ReadBytes: new(int64(1e15))},
	} {
		if text := u.Stored(); text != want {
			t.Errorf("%+v is stored as %q, want %q", u, text, want)
		}
		if got := job.StoredUsage(want); !reflect.DeepEqual(got, u) {
			t.Errorf("%q is read as %+v, want %+v", want, got, u)
		}
	}
	for _, text := range []string{"1", "1,2,3", "x,1,,", "1,2,3,x", "1,,2,3"} {
		if got := job.StoredUsage(text); got != (job.Usage{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func TestUmasksAreOctal(t *testing.T) {
	for text, want := range map[string]job.Umask{"022": 0o22, "0027": 0o27, "22": 0o22, "0o77": 0o77, "0": 0} {
		var got job.Umask
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "08", "1777", "rwx", "-1"} {
		var got job.Umask
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %s", text, got)
		}
	}
}
