package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/belfry-cron/belfry/store"
)

// Check looks through a database for damage, as far as ctx lasts, and tells whether
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
	wrong := ""
	if err = known(c, path); err == nil && ctx.Err() != nil {
		return false, c.close()
	}
	if err == nil {
		err = interruptible(ctx, c, func() error {
			q := c.stmt("pragma integrity_check(1)")
			for q.next() {
				wrong = q.text()
			}
			return q.err()
		})
	}
	switch {
	case interrupted(err):
		return false, c.close()
	case err == nil && wrong != "ok":
		err = fmt.Errorf("%w: %s", store.ErrDamaged, wrong)
	}
	if err = errors.Join(err, c.close()); err != nil {
		return false, fmt.Errorf("check %s: %w", path, err)
	}
	return true, nil
}
