package checkout

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAFetchThatBecomesTooLargeIsEnded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pack"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, isEnded := range map[int64]bool{999: true, 1000: false} {
		ctx, stop := context.WithCancelCause(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			bound(ctx, dir, most, stop)
		}()
		if isEnded {
			<-ctx.Done()
		} else {
			<-time.After(2 * measureEvery) // it measures meanwhile
		}
		stop(nil)
		<-ended
		var large *tooLargeError
		if errors.As(context.Cause(ctx), &large) != isEnded {
			t.Errorf("with a bound of %d bytes the cause is %v", most, context.Cause(ctx))
		}
	}
}
