// Command zonegen writes the zone table that package cron embeds.
//
// It reads compiled zones (TZif) from the Go distribution that runs it, or from
// a folder that zic has written:
//
//	zic -b slim -d DIR tzdata.zi
//	go run ./cron/internal/zonegen -dir DIR -version 2025c -o cron/zones.dat
//
// The data are in the public domain.
package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
)

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", "", "folder of compiled zones; default: the table of the Go distribution")
	version := flag.String("version", "", "release of the IANA database; default: that of the Go distribution")
	out := flag.String("o", "zones.dat", "file to write")
	flag.Parse()
	table, err := generate(*dir, *version)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, table, 0o644); err != nil {
		log.Fatal(err)
	}
}

// generate returns the whole table.
func generate(dir, version string) ([]byte, error) {
	if dir != "" {
		if version == "" {
			return nil, errors.New("-dir needs -version: the data do not say it themselves")
		}
		return tableOf(os.DirFS(dir), version)
	}
	//nolint:staticcheck // go run runs it, and knows where the distribution is
	shipped := filepath.Join(runtime.GOROOT(), "lib", "time")
	version, err := shippedVersion(filepath.Join(shipped, "update.bash"))
	if err != nil {
		return nil, err
	}
	archive, err := zip.OpenReader(filepath.Join(shipped, "zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	return tableOf(archive, version)
}

// shippedVersion reads the release from the script that made Go's own table.
func shippedVersion(script string) (string, error) {
	text, err := os.ReadFile(script)
	if err != nil {
		return "", err
	}
	match := regexp.MustCompile(`(?m)^DATA=(\S+)$`).FindSubmatch(text)
	if match == nil {
		return "", fmt.Errorf("%s names no release", script)
	}
	return string(match[1]), nil
}

// tableOf collects the zones of a file system, storing equal data once.
func tableOf(files fs.FS, version string) ([]byte, error) {
	var names []string
	data := map[string][]byte{}
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		// A folder of zones also has lists and sources.
		if bytes.HasPrefix(content, []byte("TZif")) {
			names = append(names, path)
			data[path] = content
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	sort.Strings(names)

	var header, body bytes.Buffer
	fmt.Fprintf(&header, "%s %d\n", version, len(names))
	places := map[string]int{}
	for _, name := range names {
		content := string(data[name])
		place, ok := places[content]
		if !ok {
			place = body.Len()
			places[content] = place
			body.WriteString(content)
		}
		fmt.Fprintf(&header, "%s %d %d\n", name, place, len(content))
	}
	return append(header.Bytes(), body.Bytes()...), nil
}
