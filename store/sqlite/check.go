package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Check searches a database for damage until ctx ends, and reports whether it finished. A server
// may have the file open. Damage is an error that wraps store.ErrDamaged.
func Check(ctx context.Context, path string) (complete bool, err error) {
	if _, err := os.Stat(path); err != nil {
		return false, fmt.Errorf("check %s: %w", path, err)
	}
	c, err := openConn(path, false)
	if err != nil {
		return false, fmt.Errorf("check %s: %w", path, err)
	}
	if err = known(c, path); err == nil && ctx.Err() != nil {
		return false, c.close()
	}
	if err == nil {
		err = damage(ctx, c, "pragma integrity_check(1)")
	}
	if interrupted(err) {
		return false, c.close()
	}
	if err = errors.Join(err, c.close()); err != nil {
		return false, fmt.Errorf("check %s: %w", path, err)
	}
	return true, nil
}
