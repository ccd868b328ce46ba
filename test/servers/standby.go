package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// standbyName is what the primary knows a standby by.
const standbyName = "standby"

// SynchronousStandby makes a primary answer a commit when a standby has it too. They are
// settings for StartPostgres, and commits wait until there is one.
var SynchronousStandby = []string{"synchronous_standby_names = '" + standbyName + "'", "synchronous_commit = on"}

// Standby starts a server that follows p, and waits until p's commits wait for it.
func (p *Postgres) Standby() (s *Postgres, err error) {
	s = &Postgres{bin: p.bin, as: p.as}
	if s.Dir, err = os.MkdirTemp("", "belfry-postgres-"); err != nil {
		return nil, err
	}
	dir := s.Dir // s is nil after an error
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if s.as != nil {
		if err := os.Chown(s.Dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return nil, err
		}
	}
	from := fmt.Sprintf("host=127.0.0.1 port=%d user=belfry application_name=%s", p.Port, standbyName)
	copying := s.command("pg_basebackup", "-d", from, "-D", s.data(), "-R", "--checkpoint=fast", "--no-sync")
	if out, err := copying.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pg_basebackup: %w\n%s", err, out)
	}
	// The last setting of a name counts.
	if err := appendTo(filepath.Join(s.data(), "postgresql.conf"), "synchronous_standby_names = ''\n"); err != nil {
		return nil, err
	}
	if err := startAnywhere(&s.Port, s.Start); err != nil {
		return nil, err
	}
	if err := p.awaitStandby(); err != nil {
		return nil, errors.Join(err, s.end(killed))
	}
	return s, nil
}

// awaitStandby waits until commits wait for a standby.
func (p *Postgres) awaitStandby() error {
	ctx, cancel := context.WithTimeout(context.Background(), startMax)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for {
		var there bool
		err := conn.QueryRow(ctx, "select exists (select from pg_stat_replication where application_name = $1 and sync_state = 'sync')", standbyName).Scan(&there)
		if err != nil || there {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("the standby does not follow")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Promote makes a standby a primary.
func (p *Postgres) Promote() error {
	promote := p.command("pg_ctl", "promote", "-D", p.data())
	if out, err := promote.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_ctl promote: %w\n%s", err, out)
	}
	return nil
}
