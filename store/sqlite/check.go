package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Check looks through a database for damage, as far as ctx lasts, and reports whether
// it has come to the end. A server may have the file open. It returns an error that
// wraps store.ErrDamaged for what is damaged.
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
