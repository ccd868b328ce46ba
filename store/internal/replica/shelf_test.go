package replica_test

import "github.com/belfry-cron/belfry/store/storetest/shelf"

// driver is one process's driver of a shelf.
type driver = shelf.Driver

func newShelf() *shelf.Shelf { return shelf.New() }
