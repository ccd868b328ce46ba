package servers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// standbyName is the primary's name of a standby.
const standbyName = "standby"

// SynchronousStandby are settings for [StartPostgres] that make commits wait for a standby.
var SynchronousStandby = []string{"synchronous_standby_names = '" + standbyName + "'", "synchronous_commit = on"}

// Standby starts a standby of p, and waits until p's commits wait for it.
func (p *Postgres) Standby() (s *Postgres, err error) {
	if s, err = preparePostgres(); err != nil {
		return nil, err
	}
	server := s // s is nil after an error
	defer func() {
		if err != nil {
			err = errors.Join(err, server.Close())
		}
	}()
	from := fmt.Sprintf("host=127.0.0.1 port=%d user=belfry application_name=%s", p.Port, standbyName)
	copying := s.program("pg_basebackup", "-d", from, "-D", s.data(), "-R", "--checkpoint=fast", "--no-sync")
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
	return s, p.awaitStandby()
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
	promote := p.program("pg_ctl", "promote", "-D", p.data())
	if out, err := promote.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_ctl promote: %w\n%s", err, out)
	}
	return nil
}
