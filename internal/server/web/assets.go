package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assetFiles embed.FS

// assets are the files of the pages. Their addresses have a hash of all of them, so that a
// browser keeps them until the program is another one.
type assets struct {
	prefix string
	files  map[string]asset
}

type asset struct {
	kind         string
	plain, small []byte
}

var assetKinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// readAssets reads the files that are in the program.
func readAssets() (assets, error) {
	a := assets{files: map[string]asset{}}
	hash := sha256.New()
	err := fs.WalkDir(assetFiles, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := assetFiles.ReadFile(name)
		if err != nil {
			return err
		}
		kind, ok := assetKinds[path.Ext(name)]
		if !ok {
			return fmt.Errorf("make the web UI: the kind of %s is not known", name)
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(data), data)
		a.files[path.Base(name)] = asset{kind, data, squeeze(data)}
		return nil
	})
	a.prefix = "/ui/assets/" + hex.EncodeToString(hash.Sum(nil)[:6]) + "/"
	return a, err
}

// ServeHTTP answers with a file.
func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file, ok := a.files[path.Base(r.URL.Path)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header.Set("Content-Type", file.kind)
	header.Set("Vary", "Accept-Encoding")
	header.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(r.URL.Path, a.prefix) {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if takesGzip(r) {
		header.Set("Content-Encoding", "gzip")
		_, _ = w.Write(file.small)
		return
	}
	_, _ = w.Write(file.plain)
}

func takesGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// squeeze compresses. Writing to memory does not fail.
func squeeze(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(data)
	_ = z.Close()
	return b.Bytes()
}
