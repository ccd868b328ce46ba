//go:build servers

package openapi

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// packageMax bounds a package, and a file in it: TypeScript is the largest, with 9 MB.
const packageMax = 64 << 20

// modules returns a folder with the packages of the lock file in a folder, from the cache of the user or the registry of npm,
// each with the hash that the lock file has. Debian's npm would install 400 packages of Debian.
func modules(t *testing.T, of string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(of, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	dir := filepath.Join(cache, "belfry-test", "openapi-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(dir); err == nil {
		return filepath.Join(dir, "node_modules")
	}
	var lock struct {
		Packages map[string]struct{ Version, Integrity string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "openapi-fresh-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(fresh)
	for at, p := range lock.Packages {
		if at == "" {
			continue // the package with the lock file
		}
		if err := fetch(filepath.Join(fresh, at), at[strings.LastIndex(at, "node_modules/")+len("node_modules/"):], p.Version, p.Integrity); err != nil {
			t.Fatalf("%s %s: %v", at, p.Version, err)
		}
	}
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	return filepath.Join(dir, "node_modules")
}

// fetch unpacks a package of the registry of npm.
func fetch(dir, name, version, integrity string) error {
	answer, err := http.Get("https://registry.npmjs.org/" + name + "/-/" + path.Base(name) + "-" + version + ".tgz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	packed, err := io.ReadAll(io.LimitReader(answer.Body, packageMax))
	if err != nil || answer.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("the registry answers %s", answer.Status), err)
	}
	if sum := sha512.Sum512(packed); "sha512-"+base64.StdEncoding.EncodeToString(sum[:]) != integrity {
		return errors.New("it has another hash than the lock file")
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// The first folder is the package's, whatever its name.
		_, inside, _ := strings.Cut(header.Name, "/")
		if header.Typeflag != tar.TypeReg || !filepath.IsLocal(inside) {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(files, packageMax))
		if err != nil {
			return err
		}
		file := filepath.Join(dir, filepath.FromSlash(inside))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
}
