package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packages writes the packages for Debian and Red Hat, and returns their names.
func (r *release) packages(p platform, stage string) (names []string, err error) {
	values := map[string]string{"ARCH": p.arch, "VERSION": r.version, "STAGE": stage, "DATE": r.date.Format(time.RFC3339)}
	text, err := os.ReadFile("nfpm.yaml")
	if err != nil {
		return nil, err
	}
	config, err := nfpm.Parse(strings.NewReader(os.Expand(string(text), func(name string) string { return values[name] })))
	if err != nil {
		return nil, err
	}
	for _, format := range []string{"deb", "rpm"} {
		info, err := config.Get(format)
		if err != nil {
			return nil, err
		}
		info = nfpm.WithDefaults(info)
		packager, err := nfpm.Get(format)
		if err != nil {
			return nil, err
		}
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return nil, fmt.Errorf("%s: %w", format, err)
		}
		name := packager.ConventionalFileName(info)
		f, err := os.Create(filepath.Join(r.dir, name))
		if err != nil {
			return nil, err
		}
		if err := errors.Join(packager.Package(info, f), f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		names = append(names, name)
	}
	return names, nil
}
