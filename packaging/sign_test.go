//go:build servers

package main

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
)

// keys makes a pair of keys, and returns their files.
func keys(t *testing.T, password string) (private, public string) {
	t.Helper()
	pub, key, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := key.MarshalText()
	if password != "" { // it takes seconds, and a gigabyte
		secret, err = minisign.EncryptKey(password, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := pub.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	private, public = filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "key.pub")
	for file, data := range map[string][]byte{private: secret, public: text} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return private, public
}

// The program of minisign accepts the signature of a release, and no other sums.
func TestMinisignChecksTheSignatureOfARelease(t *testing.T) {
	for name, password := range map[string]string{"with a password": "a throw-away password", "without a password": ""} {
		t.Run(name, func(t *testing.T) {
			private, public := keys(t, password)
			if t.Setenv(passwordVariable, ""); password != "" {
				if _, err := signer(private); err == nil || !strings.Contains(err.Error(), passwordVariable) {
					t.Errorf("without its password the key gives %v", err)
				}
			}
			t.Setenv(passwordVariable, password)
			r := release{version: testVersion, dir: t.TempDir(), key: private, date: time.Unix(1_800_000_000, 0)}
			sums := filepath.Join(r.dir, checksumsName)
			if err := os.WriteFile(sums, []byte("0000  belfry\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := r.sign(); err != nil {
				t.Fatal(err)
			}
			verify := func() (string, error) {
				out, err := exec.Command("minisign", "-V", "-p", public, "-m", sums).CombinedOutput()
				return string(out), err
			}
			if out, err := verify(); err != nil || !strings.Contains(out, "belfry "+testVersion) {
				t.Errorf("the signature is refused: %v\n%s", err, out)
			}
			if err := os.WriteFile(sums, []byte("1111  belfry\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := verify(); err == nil {
				t.Errorf("other sums are accepted: %s", out)
			}
		})
	}
}

// Files that differ from the commit are named in the provenance, and not signed.
func TestOnlyACommitIsSigned(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "go.sum"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "one")
	r := release{root: root}
	if err := r.maySign(t.Context()); err != nil {
		t.Errorf("a commit is refused: %v", err)
	}
	write("two\n")
	if err := r.maySign(t.Context()); err == nil || !strings.Contains(err.Error(), "files differ from the commit") {
		t.Errorf("got %v", err)
	}
}

// The provenance names each file with its sum, and the commit.
func TestTheProvenanceNamesFilesAndCommit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(file(t, ".intoto.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s statement
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Subject) != len(made.names)-2 { // without itself and the checksums
		t.Errorf("it names %d files of %v", len(s.Subject), made.names)
	}
	for _, is := range s.Subject {
		if sum, err := sumOf(filepath.Join(made.dir, is.Name)); err != nil || sum != is.Digest["sha256"] {
			t.Errorf("%s has the sum %s and not %s, %v", is.Name, sum, is.Digest["sha256"], err)
		}
	}
	commit := regexp.MustCompile(`"gitCommit": "[0-9a-f]{40}"`)
	if !commit.Match(text) {
		t.Errorf("it names no commit:\n%s", text)
	}
}
