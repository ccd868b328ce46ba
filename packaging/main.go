// Command packaging builds a release of Belfry: static programs, packages for Debian and Red
// Hat, a container image, checksums and bills of materials. It needs Go and the Go module
// proxy, but no daemon and no root.
//
//	go -C packaging run . -version 1.2.3
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
	flag.Parse()
	r := release{version: *version, dir: *dir, platforms: platforms}
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.make(ctx); err != nil {
		log.Fatal(err)
	}
}
