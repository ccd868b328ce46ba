package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/sassoftware/go-rpmutils"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

const testVersion = "1.2.3-rc.1"

// here is the platform of the test, if releases have packages for it.
var here = platform{"linux", runtime.GOARCH}

// made is a release built once for all tests.
var made struct {
	dir, program string
	debs         string
	names        []string
}

func TestMain(m *testing.M) {
	code, err := func() (int, error) {
		dir, err := os.MkdirTemp("", "belfry-release-test")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		made.dir, made.program = filepath.Join(dir, "dist"), filepath.Join(dir, "belfry")
		root, err := filepath.Abs("..")
		if err != nil {
			return 0, err
		}
		r := release{version: testVersion, root: root}
		if err := r.build(context.Background(), here, dir); err != nil {
			return 0, err
		}
		// Today's packages of Debian: the versions in debian.list may have been replaced.
		if made.debs, err = pinDebian(context.Background(), []string{here.arch}); err != nil {
			return 0, err
		}
		if made.names, err = again(made.dir); err != nil {
			return 0, err
		}
		return m.Run(), nil
	}()
	if err != nil {
		panic(err)
	}
	os.Exit(code)
}

// again creates a release of the built program, and returns the names of its files.
func again(dir string) (names []string, err error) {
	r := release{version: testVersion, dir: dir, platforms: []platform{here}, program: made.program, debs: made.debs}
	if err := r.make(context.Background()); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// file returns the path of the file of the release that ends so.
func file(t *testing.T, suffix string) string {
	t.Helper()
	i := slices.IndexFunc(made.names, func(name string) bool { return strings.HasSuffix(name, suffix) })
	if i < 0 {
		t.Fatalf("no file ends in %s: %v", suffix, made.names)
	}
	return filepath.Join(made.dir, made.names[i])
}

func TestAReleaseIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names, err := again(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(names, made.names) || len(names) != 9 {
		t.Fatalf("got %v, want %v, nine of them", names, made.names)
	}
	for _, name := range names {
		one, err := os.ReadFile(filepath.Join(made.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		two, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, two) {
			t.Errorf("%s has other bytes the second time", name)
		}
	}
}

func TestChecksumsMatchTheFiles(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = made.dir
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Count(out, []byte(": OK\n")) != len(made.names)-1 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestVersionsThatPackagesWouldSortWrongAreRefused(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "v1.2.3", "1.2", "1.2.3+dirty", "1.02.3", "1.2.3-", "latest", "1.2.3; rm"} {
		r := release{version: version, dir: t.TempDir()}
		if err := r.make(t.Context()); err == nil || !strings.Contains(err.Error(), "does not have the form 1.2.3") {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func TestPlatformsAreNamed(t *testing.T) {
	t.Parallel()
	if p, err := platformOf("linux/arm64"); err != nil || p != (platform{"linux", "arm64"}) {
		t.Errorf("got %v, %v", p, err)
	}
	if _, err := platformOf("windows/amd64"); err == nil || !strings.Contains(err.Error(), "freebsd/amd64") {
		t.Errorf("got %v", err)
	}
}

// installed are files that a package must have.
var installed = []string{
	"/etc/belfry/belfry.yaml", "/etc/default/belfry", "/usr/bin/belfry", "/usr/lib/systemd/system/belfry.service",
	"/usr/share/bash-completion/completions/belfry", "/usr/share/doc/belfry/copyright", "/usr/share/fish/vendor_completions.d/belfry.fish",
	"/usr/share/man/man1/belfry.1", "/usr/share/man/man1/belfry-job-run.1", "/usr/share/zsh/vendor-completions/_belfry",
}

func TestThePackageForDebianUnpacksToAProgramThatRuns(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is missing, so that the package is not unpacked:", err)
	}
	dir := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "-R", file(t, ".deb"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range installed {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "/etc/default/belfry")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("what may hold a password has mode %v, %v", info.Mode(), err)
	}
	control, err := os.ReadFile(filepath.Join(dir, "DEBIAN/control"))
	if err != nil {
		t.Fatal(err)
	}
	// A release candidate precedes its release.
	for _, line := range []string{"Package: belfry\n", "Version: 1.2.3~rc.1\n", "Depends: passwd\n"} {
		if !strings.Contains(string(control), line) {
			t.Errorf("the control file has no %q:\n%s", line, control)
		}
	}
	kept, err := os.ReadFile(filepath.Join(dir, "DEBIAN/conffiles"))
	if err != nil || string(kept) != "/etc/belfry/belfry.yaml\n/etc/default/belfry\n" {
		t.Errorf("files that an upgrade keeps: %q, %v", kept, err)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		if out, err := exec.Command("sh", "-n", filepath.Join(dir, "DEBIAN", script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
	if runtime.GOOS != "linux" {
		t.Skip("the program is not for this system")
	}
	out, err := exec.Command(filepath.Join(dir, "usr/bin/belfry"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "belfry "+testVersion+",") {
		t.Errorf("belfry version prints %q, %v", out, err)
	}
	out, err = exec.Command(filepath.Join(dir, "usr/bin/belfry"), "config", "--config", filepath.Join(dir, "etc/belfry/belfry.yaml")).CombinedOutput()
	if err != nil {
		t.Errorf("the configuration is refused: %v\n%s", err, out)
	}
}

func TestThePackageForRedHatHasTheSameFiles(t *testing.T) {
	t.Parallel()
	f, err := os.Open(file(t, ".rpm"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rpm, err := rpmutils.ReadRpm(f)
	if err != nil {
		t.Fatal(err)
	}
	files, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	for _, name := range installed {
		if !slices.Contains(names, name) {
			t.Errorf("%s is missing", name)
		}
	}
	if version, err := rpm.Header.GetString(rpmutils.VERSION); err != nil || version != "1.2.3~rc.1" {
		t.Errorf("version %q, %v", version, err)
	}
}

func TestArchiveIsComplete(t *testing.T) {
	t.Parallel()
	f, err := os.Open(file(t, ".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for tr := tar.NewReader(zipped); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || path.Base(h.Name) == "belfry" && h.Mode != 0o755 {
			t.Errorf("%s belongs to %d and has mode %o", h.Name, h.Uid, h.Mode)
		}
		names = append(names, strings.TrimPrefix(h.Name, "belfry-"+testVersion+"-linux-"+here.arch+"/"))
	}
	for _, name := range []string{"belfry", "LICENSE", "CHANGELOG.md", "belfry.service", "man/belfry.1", "completions/_belfry"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is missing in %v", name, names)
		}
	}
}

func TestTheChartHasTheVersionAndItsFiles(t *testing.T) {
	t.Parallel()
	f, err := os.Open(file(t, ".tgz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if want := "belfry-" + testVersion + ".tgz"; filepath.Base(f.Name()) != want {
		t.Errorf("it is named %s, want %s", f.Name(), want)
	}
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	unpack(t, zipped, dir)
	for name, want := range map[string]string{
		"Chart.yaml": "version: " + testVersion + "\nappVersion: " + testVersion + "\n", "values.yaml": "image:", "values.schema.json": "draft-07",
		"templates/_helpers.tpl": "define", "files/alerts.yaml": "groups:", "files/grafana-dashboard.json": "panels",
	} {
		text, err := os.ReadFile(filepath.Join(dir, "belfry", name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q: %v", name, want, err)
		}
	}
}

func TestTheListOfContentsNamesEachModule(t *testing.T) {
	t.Parallel()
	f, err := os.Open(file(t, ".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(f, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, c := range *bom.Components {
		listed[c.Name] = c.Version
	}
	out, err := exec.Command("go", "-C", "..", "list", "-m", "-f", "{{.Version}}", "modernc.org/sqlite").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(string(out)); listed["modernc.org/sqlite"] != want || listed["std"] != runtime.Version() {
		t.Errorf("sqlite is %q, want %q; Go is %q", listed["modernc.org/sqlite"], want, listed["std"])
	}
	if bom.Metadata.Component.Version != testVersion {
		t.Errorf("it is of version %q", bom.Metadata.Component.Version)
	}
}

// theImage returns the image with a tag for the platform of the test.
func theImage(t *testing.T, suffix string) v1.Image {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(file(t, "-image"+suffix+".tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unpack(t, f, dir)
	named, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	names, err := named.IndexManifest()
	if err != nil || len(names.Manifests) != 1 || names.Manifests[0].Annotations["io.containerd.image.name"] != "docker.io/library/belfry:"+testVersion+suffix {
		t.Fatalf("the image is named %+v, %v", names, err)
	}
	index, err := named.ImageIndex(names.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Platform.Architecture != here.arch {
		t.Fatalf("the index is %+v, %v", manifest, err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// unpack writes what is in a tar file below a directory.
func unpack(t *testing.T, r io.Reader, dir string) {
	t.Helper()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(name, 0o755); err != nil {
				t.Fatal(err)
			}
			if os.Geteuid() == 0 {
				if err := os.Chown(name, h.Uid, h.Gid); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(name, h.FileInfo().Mode()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeSymlink:
			if err := os.Symlink(h.Linkname, name); err != nil {
				t.Fatal(err)
			}
			continue
		case tar.TypeLink:
			if err := os.Link(filepath.Join(dir, h.Linkname), name); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := io.ReadAll(tr)
		if err == nil {
			err = os.WriteFile(name, data, fs.FileMode(h.Mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// imageJob uses the shell, the commands and the zones of the default image.
const imageJob = `set -e; echo "a b" | sed 's/a/c/' | grep -c b; find /etc -name passwd | wc -l; TZ=Asia/Tokyo date +%Z; tar -cf /tmp/a.tar /etc/passwd 2>/dev/null; gzip /tmp/a.tar; expr 2 \* 21`

func TestTheImageRunsCommandsAsItsUser(t *testing.T) {
	t.Parallel()
	serveImage(t, "", func(belfry func(...string) (string, error)) {
		if out, err := belfry("job", "create", "hello", "--every", "1h", "--", "sh", "-c", imageJob); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if out, err := belfry("job", "run", "hello", "--logs"); err != nil || !strings.Contains(out, "1\n1\nJST\n42\n") {
			t.Errorf("the command printed %q, %v", out, err)
		}
	})
}

func TestTheBareImageServesAndSaysThatItHasNoShell(t *testing.T) {
	t.Parallel()
	serveImage(t, bareSuffix, func(belfry func(...string) (string, error)) {
		if out, _ := belfry("doctor"); !strings.Contains(out, "has no sh in the PATH of commands") {
			t.Errorf("doctor says nothing of the shell:\n%s", out)
		}
	})
}

// serveImage starts the server of an image as its user, if this machine lets it, and calls use.
func serveImage(t *testing.T, suffix string, use func(belfry func(...string) (string, error))) {
	img := theImage(t, suffix)
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/belfry"}) || c.Volumes[imageData] != struct{}{} {
		t.Errorf("the configuration is %+v", c)
	}
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("only root on Linux can enter the image, so that its server is not started")
	}
	root, err := os.MkdirTemp("", "belfry-image")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil { // its user looks it up
		t.Fatal(err)
	}
	files := mutate.Extract(img)
	unpack(t, files, root)
	files.Close()
	if err := addKernelFiles(t, root); err != nil {
		t.Skip("this machine lets root mount nothing, so that the server is not started:", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	args := slices.Clone(config.Config.Cmd)
	args[slices.Index(args, "0.0.0.0:8420")] = address
	cmd := exec.CommandContext(ctx, "/usr/bin/belfry", args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = config.Config.Env, "/", enter(root, imageUser)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		stop()
		<-ended
		if t.Failed() {
			t.Logf("the server said:\n%s", said.Bytes())
		}
	}()
	for {
		response, err := http.Get("http://" + address + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the server is not ready: %v", err)
		case err := <-ended:
			ended <- err
			t.Fatalf("the server has ended: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	if info, err := os.Stat(filepath.Join(root, "data", "belfry.db")); err != nil || ownerOf(info) != imageUser {
		t.Errorf("the store belongs to another user: %v", err)
	}
	use(func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "/usr/bin/belfry", args...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = append(config.Config.Env, "BELFRY_SERVER=http://"+address), "/", enter(root, imageUser)
		out, err := cmd.CombinedOutput()
		return string(out), err
	})
}

func TestImageHasCertificateAuthorities(t *testing.T) {
	t.Parallel()
	scanner := bufio.NewScanner(bytes.NewReader(certificates()))
	n := 0
	for scanner.Scan() {
		if scanner.Text() == "-----BEGIN CERTIFICATE-----" {
			n++
		}
	}
	if n < 100 {
		t.Errorf("%d authorities are trusted", n)
	}
}

func TestTheDefaultImageIsMadeOfThePackagesThatItLists(t *testing.T) {
	t.Parallel()
	files := map[string]*tar.Header{}
	var certificates []byte
	extracted := mutate.Extract(theImage(t, ""))
	defer extracted.Close()
	for tr := tar.NewReader(extracted); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "etc/ssl/certs/ca-certificates.crt" {
			if certificates, err = io.ReadAll(tr); err != nil {
				t.Fatal(err)
			}
		}
		files[strings.TrimSuffix(h.Name, "/")] = h
	}
	for _, name := range debianPackages {
		if files["var/lib/dpkg/status.d/"+name] == nil {
			t.Errorf("scanners do not see %s", name)
		}
	}
	for _, name := range []string{"usr/bin/dash", "usr/bin/sh", "usr/bin/ls", "usr/share/zoneinfo/Europe/Berlin", "etc/os-release", "usr/share/doc/dash/copyright"} {
		if files[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	for _, dir := range merged {
		if h := files[dir]; h == nil || h.Typeflag != tar.TypeSymlink || h.Linkname != "usr/"+dir {
			t.Errorf("/%s is no link into /usr: %+v", dir, h)
		}
	}
	for name, h := range files {
		if strings.HasPrefix(name, "usr/share/man/") || h.Mode&0o6000 != 0 && h.Typeflag == tar.TypeReg {
			t.Errorf("%s with the mode %o should not be there", name, h.Mode)
		}
	}
	if n := bytes.Count(certificates, []byte("-----BEGIN CERTIFICATE-----")); n < 100 {
		t.Errorf("%d authorities are trusted", n)
	}
}

func TestEachArchitectureHasAllPackagesOfTheDefaultImage(t *testing.T) {
	t.Parallel()
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		debs, err := debsOf(debianList, p.arch)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range debs {
			names = append(names, d.name)
			if raw, err := hex.DecodeString(d.sum); err != nil || len(raw) != sha256.Size || d.version == "" {
				t.Errorf("%s: %+v", p.arch, d)
			}
		}
		if !slices.Equal(names, debianPackages) {
			t.Errorf("%s has %v, want %v", p.arch, names, debianPackages)
		}
	}
	if _, err := debsOf("amd64 dash\n", "amd64"); err == nil || !strings.Contains(err.Error(), "is not: architecture, name, version, SHA-256") {
		t.Errorf("got %v", err)
	}
}

func TestAPackageWithOtherBytesIsRefused(t *testing.T) {
	t.Parallel()
	debs, err := debsOf(made.debs, here.arch)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(debs, func(d deb) bool { return d.name == "gcc-12-base" })
	other := debs[i]
	other.sum = strings.Repeat("0", 64)
	if _, err := fetchDebian(t.Context(), []deb{other}); err == nil || !strings.Contains(err.Error(), "has the SHA-256 "+debs[i].sum) {
		t.Errorf("got %v", err)
	}
}

func TestImageFollowsTheOCISpecification(t *testing.T) {
	t.Parallel()
	raw, err := theImage(t, "").RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		MediaType string
		Config    struct{ MediaType string }
		Layers    []struct{ MediaType string }
	}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.MediaType != "application/vnd.oci.image.manifest.v1+json" || manifest.Config.MediaType != "application/vnd.oci.image.config.v1+json" ||
		len(manifest.Layers) != 3 || manifest.Layers[0].MediaType != "application/vnd.oci.image.layer.v1.tar+gzip" {
		t.Errorf("got %+v", manifest)
	}
}
