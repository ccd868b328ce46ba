package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// debianPackages are the packages of the default image: a shell, what its commands usually call,
// certificates and time zones, with their libraries.
var debianPackages = []string{
	"base-files", "ca-certificates", "coreutils", "dash", "findutils", "gcc-12-base", "grep", "gzip", "libacl1", "libattr1", "libc6",
	"libgcc-s1", "libgmp10", "libpcre2-8-0", "libselinux1", "sed", "tar", "tzdata",
}

// debianSuite is the Debian release of the packages.
const debianSuite = "bookworm"

// debianList has a line per package: architecture, name, version, SHA-256 of its file.
//
//go:embed debian.list
var debianList string

// deb is a package of Debian of a fixed version.
type deb struct{ arch, name, version, sum string }

func (d deb) String() string { return d.name + "=" + d.version }

// debsOf reads the lines of a list for an architecture.
func debsOf(list, arch string) (debs []deb, err error) {
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if len(f) != 4 {
			return nil, fmt.Errorf("debian.list: %q is not: architecture, name, version, SHA-256", strings.TrimSpace(line))
		}
		if f[0] == arch {
			debs = append(debs, deb{f[0], f[1], f[2], f[3]})
		}
	}
	return debs, nil
}

// pinDebian returns a list of the versions that apt has now, for the architectures.
func pinDebian(ctx context.Context, architectures []string) (string, error) {
	var list strings.Builder
	list.WriteString("# Packages of the default image; go -C packaging run . -pin writes this file.\n")
	for _, arch := range architectures {
		a, err := newApt(ctx, arch)
		if err != nil {
			return "", err
		}
		for _, name := range debianPackages {
			d := deb{arch: arch, name: name}
			file, err := a.download(ctx, name)
			if err == nil {
				d.sum, err = sumOf(file)
			}
			var version []byte
			if err == nil {
				version, err = a.run(ctx, "dpkg-deb", "--field", file, "Version")
			}
			if err != nil {
				a.close()
				return "", err
			}
			d.version = strings.TrimSpace(string(version))
			fmt.Fprintln(&list, arch, name, d.version, d.sum)
		}
		a.close()
	}
	return list.String(), nil
}

// fetchDebian returns the files of packages. They stay in the user's cache, by their checksum.
func fetchDebian(ctx context.Context, debs []deb) (files []string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "belfry-packaging")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	var a *apt
	for _, d := range debs {
		file := filepath.Join(cache, d.sum+".deb")
		files = append(files, file)
		if sum, err := sumOf(file); err == nil && sum == d.sum {
			continue
		}
		if a == nil {
			if a, err = newApt(ctx, d.arch); err != nil {
				return nil, err
			}
			defer a.close()
		}
		got, err := a.download(ctx, d.String())
		if err != nil {
			return nil, fmt.Errorf("%w\nIf Debian has replaced this version, go -C packaging run . -pin takes the new one", err)
		}
		if sum, err := sumOf(got); err != nil || sum != d.sum {
			return nil, errors.Join(fmt.Errorf("%s for %s has the SHA-256 %s, and debian.list has %s", d, d.arch, sum, d.sum), err)
		}
		if err := keep(got, file); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// keep atomically copies a file into the cache.
func keep(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(to), "part-")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) // it is gone once renamed
	_, err = part.Write(data)
	if err := errors.Join(err, part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), to)
}

func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// apt downloads packages of any architecture with the mirrors and keys of this machine, below a
// separate directory: it changes nothing on the machine, and needs no root.
type apt struct {
	dir     string
	options []string
}

// newApt reads the index of an architecture.
func newApt(ctx context.Context, arch string) (*apt, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, errors.New("the default image has packages of Debian, which apt-get fetches, and this machine has none: -bare makes only the image without them")
	}
	dir, err := os.MkdirTemp("", "belfry-apt")
	if err != nil {
		return nil, err
	}
	a := &apt{dir: dir}
	out, err := a.run(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN) $(SIGNED_BY)", "Created-By: Packages")
	var sources strings.Builder
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "Debian" || f[2] != "main" || f[1] != debianSuite && f[1] != debianSuite+"-security" {
			continue
		}
		key := ""
		if len(f) == 5 && path.IsAbs(f[4]) {
			key = "[signed-by=" + f[4] + "] "
		}
		if line := "deb " + key + f[0] + " " + f[1] + " main\n"; !strings.Contains(sources.String(), line) {
			sources.WriteString(line)
		}
	}
	if err == nil && sources.Len() == 0 {
		err = fmt.Errorf("the default image has packages of Debian %s, which is not among the sources of apt on this machine: -bare makes only the image without them", debianSuite)
	}
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "got"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "status"), nil, 0o644), os.WriteFile(filepath.Join(dir, "sources.list"), []byte(sources.String()), 0o644))
	for _, option := range []string{
		"Dir::State::lists=" + dir + "/lists", "Dir::State::status=" + dir + "/status", "Dir::Cache=" + dir + "/cache",
		"Dir::Etc::sourcelist=" + dir + "/sources.list", "Dir::Etc::sourceparts=/dev/null",
		"APT::Architecture=" + arch, "APT::Architectures=" + arch, "Debug::NoLocking=1", "Acquire::Languages=none", "APT::Sandbox::User=root",
	} {
		a.options = append(a.options, "-o", option)
	}
	if err == nil {
		_, err = a.run(ctx, "apt-get", append(a.options, "-q", "update")...)
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// download fetches a package, by its name or as name=version, and returns its file.
func (a *apt) download(ctx context.Context, what string) (string, error) {
	if _, err := a.run(ctx, "apt-get", append(a.options, "-q", "download", what)...); err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(what, "=")
	found, err := filepath.Glob(filepath.Join(a.dir, "got", name+"_*.deb"))
	if err != nil || len(found) != 1 {
		return "", errors.Join(fmt.Errorf("apt-get download %s wrote %d files", what, len(found)), err)
	}
	return found[0], nil
}

func (a *apt) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = filepath.Join(a.dir, "got"), append(os.Environ(), "LC_ALL=C")
	if _, err := os.Stat(cmd.Dir); err != nil {
		cmd.Dir = a.dir
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, args[len(args)-1], err, said.Bytes())
	}
	return out, nil
}

func (a *apt) close() { os.RemoveAll(a.dir) }

// merged are the directories that are links into /usr in current Debian releases.
var merged = []string{"bin", "lib", "lib64", "sbin"}

// neverInImage are the documents of packages, except copyrights.
var neverInImage = []string{
	"usr/share/man/", "usr/share/info/", "usr/share/locale/", "usr/share/lintian/", "usr/share/bash-completion/", "usr/share/menu/",
	"usr/share/bug/", "usr/share/ca-certificates/", "usr/lib/systemd/",
}

// debianLayer writes the files of packages as dpkg would unpack them, and what their scripts make:
// the list of certificates, and the list of packages that scanners read.
func debianLayer(ctx context.Context, tw *tar.Writer, debs []deb, files []string, date time.Time) error {
	for _, dir := range merged {
		if err := tw.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeSymlink, Linkname: "usr/" + dir, Mode: 0o777, ModTime: date}); err != nil {
			return err
		}
	}
	directories := map[string]bool{}
	var certificates bytes.Buffer
	for i, file := range files {
		cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			return err
		}
		err = addPackage(tw, out, directories, &certificates, date)
		if err != nil {
			cmd.Cancel()
		}
		if err := errors.Join(err, cmd.Wait()); err != nil {
			return fmt.Errorf("%s: %w\n%s", debs[i], err, said.Bytes())
		}
		control, err := exec.CommandContext(ctx, "dpkg-deb", "--field", file).Output()
		if err != nil {
			return fmt.Errorf("%s: %w", debs[i], err)
		}
		if err := addFile(tw, "var/lib/dpkg/status.d/"+debs[i].name, control, 0o644, date); err != nil {
			return err
		}
	}
	return addFile(tw, "etc/ssl/certs/ca-certificates.crt", certificates.Bytes(), 0o644, date)
}

// addPackage copies the files of a package. A directory of several packages is in the layer once.
func addPackage(tw *tar.Writer, from io.Reader, directories map[string]bool, certificates *bytes.Buffer, date time.Time) error {
	for tr := tar.NewReader(from); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := intoUsr(h.Name)
		if strings.HasPrefix(name, "usr/share/ca-certificates/") && h.Typeflag == tar.TypeReg {
			if _, err := io.Copy(certificates, tr); err != nil { //nolint:gosec // its digest was compared
				return err
			}
		}
		left := slices.ContainsFunc(neverInImage, func(dir string) bool { return strings.HasPrefix(name+"/", dir) }) ||
			strings.HasPrefix(name, "usr/share/doc/") && h.Typeflag != tar.TypeDir && path.Base(name) != "copyright"
		if name == "." || left || slices.Contains(merged, name) || h.Typeflag == tar.TypeDir && directories[name] {
			continue
		}
		to := &tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, Size: h.Size, ModTime: date}
		switch h.Typeflag {
		case tar.TypeDir:
			directories[name] = true
			to.Name += "/"
		case tar.TypeLink:
			to.Linkname = intoUsr(h.Linkname)
		}
		if err := tw.WriteHeader(to); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil { //nolint:gosec // its digest was compared
			return err
		}
	}
}

// intoUsr returns the path of a file where /bin and the like are links.
func intoUsr(name string) string {
	name = path.Clean(strings.TrimPrefix(name, "./"))
	first, _, below := strings.Cut(name, "/")
	if below && slices.Contains(merged, first) {
		return "usr/" + name
	}
	return name
}
