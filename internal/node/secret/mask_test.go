package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestSecretsAreMasked(t *testing.T) {
	const pem = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQ\n-----END KEY-----\n"
	const document = "{\n  \"user\": {\n    \"password\": \"hunter2\"\n      },\n}\n"
	m := NewMask("s3cr3t-value", "with \"quotes\" & more", "\"quoted-itself\"", "abc", pem, document, "s3cr3t-value-2")
	for _, c := range []struct{ text, want string }{
		{"nothing here", "nothing here"},
		{"the s3cr3t-value.", "the ***."},
		{"s3cr3t-values3cr3t-value", "******"},
		{"s3cr3t-value-2 is longer", "*** is longer"},
		{"s3cr3t-valu", "s3cr3t-valu"},
		{"abc is too short to be masked", "abc is too short to be masked"},
		{`{"x": "with \"quotes\" \u0026 more"}`, `{"x": "***"}`},
		{`{"x": "with \"quotes\" & more"}`, `{"x": "***"}`},
		{`{"x":"\"quoted-itself\""}`, `{"x":"***"}`},
		{"      },\n", "      },\n"},
		{`x: {"password": "hunter2"}`, `x: {***}`},
		{"?q=with+%22quotes%22+%26+more", "?q=***"},
		{"a line: MIIEvQIBADANBg\r\n", "a line: ***\r\n"},
		{"the S3CR3T-VALUE.", "the ***."},
		{"in digits: " + hex.EncodeToString([]byte("a s3cr3t-value b")), "in digits: 6120***2062"},
		{"in digits: " + strings.ToUpper(hex.EncodeToString([]byte("s3cr3t-value"))), "in digits: ***"},
		{base64.StdEncoding.EncodeToString([]byte("user:s3cr3t-value")), ""},
		{base64.StdEncoding.EncodeToString([]byte("u:s3cr3t-value")), ""},
		{base64.StdEncoding.EncodeToString([]byte("s3cr3t-value")), ""},
		{base64.URLEncoding.EncodeToString([]byte(pem)), ""},
	} {
		got := m.Text(c.text)
		if c.want == "" {
			if !strings.Contains(got, Masked) || len(got) > 16 {
				t.Errorf("%q: %q", c.text, got)
			}
		} else if got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
	if NewMask("abc", "") != nil || (*Mask)(nil).Text("x") != "x" {
		t.Error("a mask of nothing masks something")
	}
}

// TestSecretsAreMaskedInPieces writes the same text in random pieces.
func TestASecretThatATextIsCutWithinIsMasked(t *testing.T) {
	m := NewMask("correct horse battery")
	for text, want := range map[string]string{
		"no: correct horse…":                 "no: ***…",
		"no: corr…":                          "no: ***…",
		"no: correct horse battery, and so…": "no: ***, and so…",
		"no: correct horse":                  "no: correct horse", // unchanged
		"no answer…":                         "no answer…",
	} {
		if got := m.Text(text); got != want {
			t.Errorf("%q is masked as %q, want %q", text, got, want)
		}
	}
}

func TestSecretsAreMaskedInPieces(t *testing.T) {
	m := NewMask("s3cr3t-value", "s3cr3t-value-2", "ss3cr3t", "a\nlonger line\nof text")
	text := "one s3cr3t-value two s3cr3t-valu ss3cr3t-value-2 three longer line\nof text s3cr3t-value-2 end s3cr3t-val"
	want := m.Text(text)
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		var out bytes.Buffer
		w := m.Writer(&out)
		for rest := []byte(text); len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(7))
			if written, err := w.Write(rest[:n]); written != n || err != nil {
				t.Fatal(written, err)
			}
			rest = rest[n:]
		}
		w.Close()
		if out.String() != want {
			t.Fatalf("seed %d: %q, want %q", seed, out.String(), want)
		}
	}
}

func TestOutputIsHeldBackOnlyWhereASecretMayBegin(t *testing.T) {
	m := NewMask("s3cr3t-value")
	var out bytes.Buffer
	w := m.Writer(&out)
	for _, piece := range []string{"password: ", "s3", "cr", "et\n"} {
		_, _ = w.Write([]byte(piece))
	}
	if out.String() != "password: s3cret\n" {
		t.Errorf("before Close: %q", out.String())
	}
}
