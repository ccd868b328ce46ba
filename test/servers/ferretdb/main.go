// Command ferretdb is FerretDB with SQLite, for tests: it speaks the protocol of MongoDB.
// FerretDB's own program needs files that its Go module lacks.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	dir := flag.String("dir", "", "an existing directory for the databases")
	listen := flag.String("listen", "127.0.0.1:0", "address to listen at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: *listen},
		Handler:   "sqlite",
		SQLiteURL: "file:" + *dir + "/",
	})
	if err != nil {
		log.Fatal(err)
	}
	// New listens already.
	log.Print("ready for connections")
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
