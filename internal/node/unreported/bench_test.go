package unreported_test

import (
	"path/filepath"
	"testing"

	"github.com/belfry-cron/belfry/internal/node/unreported"
	"github.com/belfry-cron/belfry/store"
)

// BenchmarkKeep is what the spool costs an attempt that ends alone.
func BenchmarkKeep(b *testing.B) {
	s, err := unreported.Open(b.Context(), unreported.Config{Dir: filepath.Join(b.TempDir(), "spool")})
	if err != nil {
		b.Fatal(err)
	}
	r := &store.Result{Attempt: store.Attempt{Number: 1}}
	for b.Loop() {
		r.Token[0]++
		s.Keep(r)
		s.Forget(r.Token)
	}
}
