// Command packaging builds a release of Belfry: static programs, packages for Debian and Red
// Hat, an image for containers, checksums and lists of what is inside. It needs Go and the
// registries of Go, no daemon and no rights.
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
	dir := flag.String("dir", "../dist", "where the release is written; what is there of it is replaced")
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
