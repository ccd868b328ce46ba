package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user of the server in a container. It exists only there.
const (
	imageUser = 65532
	imageData = "/data"
)

// image is a program for a platform, to be put into an image.
type image struct {
	platform
	program string
}

// bareSuffix marks the tag of the image without a shell.
const bareSuffix = "-bare"

// images writes the default image and the bare one, and returns the names of their files.
func (r *release) images(ctx context.Context, list []image) (names []string, err error) {
	for _, bare := range []bool{false, true} {
		if !bare && r.bare {
			continue
		}
		tag, name := r.version, "belfry-"+r.version+"-image.tar"
		if bare {
			tag, name = r.version+bareSuffix, "belfry-"+r.version+"-image"+bareSuffix+".tar"
		}
		if err := r.image(ctx, list, bare, tag, name); err != nil {
			return nil, fmt.Errorf("image %s: %w", tag, err)
		}
		names = append(names, name)
	}
	return names, nil
}

// image writes an image for all platforms: an OCI layout in a tar file, for docker load, podman
// load and skopeo.
func (r *release) image(ctx context.Context, list []image, bare bool, tag, name string) (err error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range list {
		img, err := r.imageOf(ctx, i, bare)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: i.os, Architecture: i.arch}}})
	}
	// Docker reads the name from the first annotation, other tools from the second.
	named := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
		Annotations: map[string]string{
			"io.containerd.image.name": "docker.io/library/belfry:" + tag, "org.opencontainers.image.ref.name": tag,
		},
	}})
	dir, err := os.MkdirTemp("", "belfry-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := layout.Write(dir, named); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.dir, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return writeTar(f, dir, "", r.date)
}

func (r *release) imageOf(ctx context.Context, i image, bare bool) (v1.Image, error) {
	system, environment, err := r.system(ctx, i.arch, bare)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(i.program)
	if err != nil {
		return nil, err
	}
	own, err := layer(func(tw *tar.Writer) error { return addFile(tw, "usr/bin/belfry", program, 0o755, r.date) })
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: i.os, Architecture: i.arch, Created: v1.Time{Time: r.date},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       "65532:65532",
			Env:        append(environment, "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "HOME="+imageData, "BELFRY_DATA="+imageData),
			Entrypoint: []string{"/usr/bin/belfry"},
			// Only this address is reachable from outside the container. A proxy in front of it, or
			// tls in a configuration file, protects tokens in transit.
			Cmd:          []string{"serve", "--listen", "0.0.0.0:8420", "--plain-http"},
			Volumes:      map[string]struct{}{imageData: {}},
			ExposedPorts: map[string]struct{}{"8420/tcp": {}},
			StopSignal:   "SIGTERM",
			Labels: map[string]string{
				"org.opencontainers.image.title": "belfry", "org.opencontainers.image.version": r.version,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	if err != nil {
		return nil, err
	}
	var layers []mutate.Addendum
	for _, l := range append(system, own) {
		layers = append(layers, mutate.Addendum{Layer: l, MediaType: types.OCILayer})
	}
	return mutate.Append(img, layers...)
}

// system returns the layers with a program's expected system files, and the environment for them.
func (r *release) system(ctx context.Context, arch string, bare bool) ([]v1.Layer, []string, error) {
	users, err := layer(r.users)
	if err != nil {
		return nil, nil, err
	}
	if bare {
		files, err := r.bareLayer(ctx)
		return []v1.Layer{files, users}, []string{"PATH=/usr/bin", "ZONEINFO=/usr/share/zoneinfo.zip"}, err
	}
	debs, err := debsOf(r.debs, arch)
	if err != nil {
		return nil, nil, err
	}
	if len(debs) == 0 {
		return nil, nil, fmt.Errorf("debian.list has no packages for %s", arch)
	}
	files, err := fetchDebian(ctx, debs)
	if err != nil {
		return nil, nil, err
	}
	debian, err := layer(func(tw *tar.Writer) error { return debianLayer(ctx, tw, debs, files, r.date) })
	return []v1.Layer{debian, users}, []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, err
}

// users adds the user of the server, and the directories that it writes.
func (r *release) users(tw *tar.Writer) error {
	for _, dir := range []struct {
		name  string
		mode  fs.FileMode
		owner int
	}{{"tmp/", 0o1777, 0}, {"data/", 0o700, imageUser}} {
		if err := tw.WriteHeader(&tar.Header{Name: dir.name, Typeflag: tar.TypeDir, Mode: int64(dir.mode), Uid: dir.owner, Gid: dir.owner, ModTime: r.date}); err != nil {
			return err
		}
	}
	return errors.Join(
		addFile(tw, "etc/passwd", []byte("root:x:0:0:root:/:/sbin/nologin\nbelfry:x:65532:65532:belfry:/data:/sbin/nologin\n"), 0o644, r.date),
		addFile(tw, "etc/group", []byte("root:x:0:\nbelfry:x:65532:\n"), 0o644, r.date))
}

// bareLayer has certificates and time zones for the image without packages.
func (r *release) bareLayer(ctx context.Context) (v1.Layer, error) {
	root, err := r.command(ctx, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	zones, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	return layer(func(tw *tar.Writer) error {
		return errors.Join(
			addFile(tw, "etc/ssl/certs/ca-certificates.crt", certificates(), 0o644, r.date),
			addFile(tw, "usr/share/zoneinfo.zip", zones, 0o644, r.date))
	})
}

// certificates returns the authorities that Mozilla trusts without constraints, from the
// bundle of the Go team.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// Writes to a buffer succeed.
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return b.Bytes()
}

// layer makes a layer from what write writes.
func layer(write func(*tar.Writer) error) (v1.Layer, error) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	if err := errors.Join(write(tw), tw.Close()); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}
