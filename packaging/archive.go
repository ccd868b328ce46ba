package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// archive writes a directory as NAME.tar.gz, below NAME.
func (r *release) archive(dir, name string) (err error) {
	f, err := os.Create(filepath.Join(r.dir, name+".tar.gz"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zipped := gzip.NewWriter(f)
	if err := writeTar(zipped, dir, name, r.date); err != nil {
		return err
	}
	return zipped.Close()
}

// writeTar writes the files below a directory, ordered by name, with the same date.
func writeTar(w io.Writer, dir, prefix string, date time.Time) error {
	tw := tar.NewWriter(w)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return addFile(tw, path.Join(prefix, name), data, info.Mode().Perm(), date)
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

// addFile adds a file that belongs to root.
func addFile(tw *tar.Writer, name string, data []byte, mode fs.FileMode, date time.Time) error {
	if err := tw.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: int64(mode), Size: int64(len(data)), ModTime: date}); err != nil {
		return err
	}
	_, err := tw.Write(data)
	return err
}
