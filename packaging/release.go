package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platform is an operating system and an architecture.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// platforms are the platforms of a release.
var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"freebsd", "amd64"}}

// platformOf finds a platform of a release by its name.
func platformOf(name string) (platform, error) {
	i := slices.IndexFunc(platforms, func(p platform) bool { return p.String() == name })
	if i < 0 {
		return platform{}, fmt.Errorf("platform %q is unknown; known are %v", name, platforms)
	}
	return platforms[i], nil
}

// release configures a release.
type release struct {
	version   string
	dir       string
	platforms []platform
	bare      bool   // only the image without packages of Debian
	debs      string // the list of these packages
	key       string // the file of the private key that signs, "" for none

	program string    // in tests: a built program for all platforms
	root    string    // of the repository
	date    time.Time // of all files: the commit's, so that builds are reproducible
}

// versions matches versions that Go, Debian and Red Hat sort in the same order.
var versions = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

// make builds everything.
func (r *release) make(ctx context.Context) error {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("version %q does not have the form 1.2.3 or 1.3.0-rc.1", r.version)
	}
	var err error
	if r.root, err = filepath.Abs(".."); err != nil {
		return err
	}
	if r.date, err = r.dateOf(ctx); err != nil {
		return err
	}
	if r.key != "" {
		if err := r.maySign(ctx); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "belfry-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	common := filepath.Join(work, "common")
	if err := r.documents(ctx, common); err != nil {
		return err
	}
	chart, err := r.chart(work)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	made := []string{chart}
	var images []image
	for _, p := range r.platforms {
		stage := filepath.Join(work, p.os+"-"+p.arch)
		if err := r.build(ctx, p, stage); err != nil {
			return fmt.Errorf("build for %s: %w", p, err)
		}
		if err := os.CopyFS(stage, os.DirFS(common)); err != nil {
			return err
		}
		name := fmt.Sprintf("belfry-%s-%s-%s", r.version, p.os, p.arch)
		if err := r.archive(stage, name); err != nil {
			return err
		}
		if err := r.contents(filepath.Join(stage, "belfry"), name+".cdx.json"); err != nil {
			return err
		}
		made = append(made, name+".tar.gz", name+".cdx.json")
		if p.os != "linux" {
			continue
		}
		packages, err := r.packages(p, stage)
		if err != nil {
			return err
		}
		made = append(made, packages...)
		images = append(images, image{p, filepath.Join(stage, "belfry")})
	}
	if len(images) > 0 {
		names, err := r.images(ctx, images)
		if err != nil {
			return err
		}
		made = append(made, names...)
	}
	provenance, err := r.provenance(ctx, made)
	if err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	if err := r.checksums(append(made, provenance)); err != nil || r.key == "" {
		return err
	}
	return r.sign()
}

// dateOf returns the date of the commit, or SOURCE_DATE_EPOCH if set.
func (r *release) dateOf(ctx context.Context) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := r.command(ctx, nil, "git", "log", "-1", "--format=%ct")
		if err != nil {
			return time.Time{}, fmt.Errorf("the date of the commit: %w; outside of a repository set SOURCE_DATE_EPOCH", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the date of the commit: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// build builds the program for a platform.
func (r *release) build(ctx context.Context, p platform, stage string) error {
	if r.program != "" {
		data, err := os.ReadFile(r.program)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(stage, 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(stage, "belfry"), data, 0o755)
	}
	const stamp = "-s -w -X github.com/belfry-cron/belfry/internal/cli.release="
	_, err := r.command(ctx, []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch},
		"go", "build", "-trimpath", "-ldflags", stamp+r.version, "-o", filepath.Join(stage, "belfry"), "./cmd/belfry")
	return err
}

// command runs a command in the repository and returns its output.
func (r *release) command(ctx context.Context, environment []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = r.root, append(os.Environ(), environment...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, said.Bytes())
	}
	return out, nil
}

// checksums writes SHA256SUMS for the release's files.
func (r *release) checksums(names []string) error {
	var list strings.Builder
	for _, name := range names {
		sum, err := sumOf(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", sum, name)
	}
	return os.WriteFile(filepath.Join(r.dir, checksumsName), []byte(list.String()), 0o644)
}
