package replica_test

import "github.com/belfry-cron/belfry/store/storetest/shelf"

// driver is what one process has of a shelf.
type driver = shelf.Driver

func newShelf() *shelf.Shelf { return shelf.New() }
