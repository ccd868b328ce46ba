package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// channel is the channel for notices between nodes. It is the same in each schema of a
// database: listeners filter by the payload, which begins with the schema.
const channel = "belfry"

// A node behind a pooler cannot listen. It polls the table of notices, and announces that
// periodically to all nodes, which write notices into the table meanwhile.
const (
	// pollAgain is how often a node announces that it polls, pollLife how long that holds: some
	// announcements may be lost.
	pollAgain = 5 * time.Second
	pollLife  = 15 * time.Second
	// pollPayload is the text of the announcement, behind a sender that is no node.
	pollPayload = "- poll"
	// noticeLife is how long the last notice of a silent node is kept.
	noticeLife = time.Hour
	// A node polls soon after a notice, then with pauses that double up to the longest, which bounds
	// how late it learns of a cancelled run.
	lookFirst = 20 * time.Millisecond
	lookMax   = 320 * time.Millisecond
)

// KeepsNotices implements [sqldb.DB]: while a node polls.
func (d *database) KeepsNotices() bool {
	return d.pooled || time.Now().UnixNano() < d.polledUntil.Load()
}

// Notify implements [sqldb.DB].
func (d *database) Notify(ctx context.Context, payload string) error {
	if !d.KeepsNotices() {
		_, err := d.pool.Exec(ctx, "select pg_notify($1, current_schema || ' ' || $2)", channel, payload)
		return brief(err)
	}
	t, err := d.Begin(ctx, true)
	if err != nil {
		return err
	}
	defer t.Rollback()
	if err := t.Exec(ctx, "insert into notices (payload) values (?) on conflict (payload) do update set told = notices.told + 1, at_time = now()", payload); err != nil {
		return err
	}
	if err := t.Exec(ctx, "select pg_notify(?, current_schema || ' ' || ?)", channel, payload); err != nil {
		return err
	}
	_, err = t.Commit(ctx)
	return err
}

// Listen implements [sqldb.DB], on a separate connection unless it polls.
func (d *database) Listen(ctx context.Context, begun func(), do func(payload string)) error {
	if d.pooled {
		return d.poll(ctx, begun, do)
	}
	config := d.pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return brief(err)
	}
	defer func() { //nolint:contextcheck // ctx has ended by then
		end, cancel := context.WithTimeout(context.Background(), rollbackMax)
		defer cancel()
		_ = conn.Close(end) // nothing is lost with it
	}()
	var schema string
	if err := conn.QueryRow(ctx, "select current_schema").Scan(&schema); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
		return err
	}
	begun()
	for {
		heard, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		payload := heard.Payload
		if len(payload) <= len(schema) || payload[:len(schema)+1] != schema+" " {
			continue
		}
		if payload = payload[len(schema)+1:]; payload == pollPayload {
			d.polledUntil.Store(time.Now().Add(pollLife).UnixNano())
			continue
		}
		do(payload)
	}
}

// poll is Listen by the table of notices.
func (d *database) poll(ctx context.Context, begun func(), do func(payload string)) error {
	if err := d.within(ctx, func(a asker) error {
		_, err := a.Exec(ctx, fmt.Sprintf("delete from notices where at_time < now() - interval '%d seconds'", int(noticeLife.Seconds())))
		return err
	}); err != nil {
		return brief(err)
	}
	known, began, err := d.notices(ctx)
	if err != nil {
		return err
	}
	begun()
	timer := time.NewTimer(lookFirst)
	defer timer.Stop()
	var announced time.Time
	for pause := lookFirst; ; pause = min(2*pause, lookMax) {
		if time.Since(announced) > pollAgain {
			if err := d.announce(ctx); err != nil {
				return err
			}
			announced = time.Now()
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now, start, err := d.notices(ctx)
		if err != nil {
			return err
		}
		if start != began || isBehind(now, known) {
			return errOther
		}
		for payload, number := range now {
			if number != known[payload] {
				do(payload)
				pause = lookFirst / 2
			}
		}
		known = now
		timer.Reset(pause)
	}
}

// announce says that this node polls.
func (d *database) announce(ctx context.Context) error {
	return brief(d.within(ctx, func(a asker) error {
		_, err := a.Exec(ctx, "select pg_notify($1, current_schema || ' ' || $2)", channel, pollPayload)
		return err
	}))
}

// errOther ends the polling of a server that is no longer the same: the next one may lack commits.
var errOther = errors.New("the pooler has connected to another server")

// isBehind reports whether notices are missing that were known: a crash of the server empties the table.
func isBehind(now, known map[string]int64) bool {
	for payload, number := range known {
		if now[payload] < number {
			return true
		}
	}
	return false
}

// notices returns how often each payload was sent, and when the server was started.
func (d *database) notices(ctx context.Context) (numbers map[string]int64, started string, err error) {
	ctx, cancel := context.WithTimeout(ctx, openMax)
	defer cancel()
	t, err := d.Snapshot(ctx)
	if err != nil {
		return nil, "", err
	}
	defer t.Rollback()
	numbers = map[string]int64{}
	rows := t.Ask(ctx, sqldb.Question{Text: "select pg_postmaster_start_time()::text"}, sqldb.Question{Text: "select payload, told from notices"})
	for rows.Next() {
		started = rows.Text()
	}
	rows.More()
	for rows.Next() {
		payload := rows.Text()
		numbers[payload] = rows.Int()
	}
	if err := rows.Err(); err != nil {
		return nil, "", err
	}
	_, err = t.Commit(ctx)
	return numbers, started, err
}
