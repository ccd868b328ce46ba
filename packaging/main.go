// Command packaging builds a release of Belfry: static programs, packages for Debian and Red
// Hat, container images, checksums and bills of materials. It needs Go, the Go module proxy and,
// for the default image, apt, but no daemon and no root.
//
//	go -C packaging run . -version 1.2.3
//	go -C packaging run . -pin            # take the newest packages of Debian into the default image
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"
)

func main() {
	log.SetFlags(0)
	version := flag.String("version", "", "the version, as in 1.2.3 or 1.3.0-rc.1")
	dir := flag.String("dir", "../dist", "the directory for the files; existing files are replaced")
	only := flag.String("platforms", "", "the platforms, as in linux/amd64,darwin/arm64; default: all")
	bare := flag.Bool("bare", false, "make only the image without a shell, which needs no packages of Debian")
	key := flag.String("key", "", "a file with a private key of minisign, which signs the checksums; its password is in "+passwordVariable)
	pin := flag.Bool("pin", false, "write debian.list with the versions that apt has now, and make nothing else")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *pin {
		list, err := pinDebian(ctx, []string{"amd64", "arm64"})
		if err == nil {
			err = os.WriteFile("debian.list", []byte(list), 0o644)
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	r := release{version: *version, dir: *dir, platforms: platforms, bare: *bare, debs: debianList, key: *key}
	if *only != "" {
		r.platforms = nil
		for _, name := range strings.Split(*only, ",") {
			p, err := platformOf(name)
			if err != nil {
				log.Fatal(err)
			}
			r.platforms = append(r.platforms, p)
		}
	}
	if err := r.make(ctx); err != nil {
		log.Fatal(err)
	}
}
