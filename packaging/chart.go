package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
)

// chart writes the Helm chart with the version of the release, and returns its file name in the
// form that Helm expects.
func (r *release) chart(work string) (name string, err error) {
	dir := filepath.Join(work, "belfry")
	if err := copyFiles(filepath.Join(r.root, "packaging", "kubernetes", "belfry"), dir); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "Chart.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	stamped := bytes.ReplaceAll(text, []byte("ersion: 0.0.0\n"), []byte("ersion: "+r.version+"\n"))
	if err := os.WriteFile(file, stamped, 0o644); err != nil {
		return "", err
	}
	name = "belfry-" + r.version + ".tgz"
	f, err := os.Create(filepath.Join(r.dir, name))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zipped := gzip.NewWriter(f)
	if err := writeTar(zipped, dir, "belfry", r.date); err != nil {
		return "", err
	}
	return name, zipped.Close()
}

// copyFiles copies the files of a directory, and the targets of links: Helm rejects links.
func copyFiles(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			if err := copyFiles(source, target); err != nil {
				return err
			}
			continue
		}
		text, err := os.ReadFile(source)
		if err == nil {
			err = os.WriteFile(target, text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
