package sqldb

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// handoversCounter is the row of counters with the last number that was reserved.
const handoversCounter = "handovers"

var (
	handovers = &Table{Name: "handovers", Key: 1, Columns: []Column{
		{"number", Int}, {"job", Blob}, {"run", Blob}, {"attempt", Int}, {"token", Blob}, {"kind", Text}, {"receiver", Text}, {"about", Text},
		{"timeout", Int}, {"sent_at", Int}, {"seen_at", Int}, {"ask_at", Int}, {"ended_at", Int},
	}}
	oldHandovers = &Table{Name: "handovers", Key: 1, Columns: handovers.Columns[:1]}
)

const selectHandovers = "select number, job, run, attempt, token, kind, receiver, about, timeout, sent_at, seen_at, ask_at, ended_at from handovers "

func (t *tx) handovers(rest string, args ...any) (list []store.Handover, err error) {
	q := t.query(selectHandovers+rest, args...)
	for q.Next() {
		h := store.Handover{Number: q.Int()}
		h.Attempt = store.Attempt{Job: q.id(), Run: q.id(), Number: int(q.Int()), Token: q.id()}
		h.Kind, h.To, h.About = q.Text(), q.Text(), q.Text()
		h.Timeout = time.Duration(q.Int())
		h.Sent, h.Seen, h.Ask, h.Ended = q.time(), q.time(), q.time(), q.time()
		list = append(list, h)
	}
	return list, q.Err()
}

// Handovers implements ledger.Backend.
func (s *backend) Handovers(ctx context.Context, q store.HandoverQuery) (list []store.Handover, err error) {
	err = s.read(ctx, func(t *tx) (err error) {
		switch {
		case q.Numbers != nil:
			list, err = t.handovers("where number in (?*) order by number limit ?", q.Numbers, int64(q.Limit))
		case q.Kind != "":
			list, err = t.handovers("where kind = ? and ask_at <> 0 and ask_at <= ? order by ask_at, number limit ?", q.Kind, columns.Nanos(q.AskBy), int64(q.Limit))
		default:
			list, err = t.handovers("where run = ? order by number limit ?", idOf(q.Run), int64(q.Limit))
		}
		return err
	})
	return list, err
}

func (st *step) loadHandovers(n *engine.Need, b *engine.Batch) error {
	if len(n.Handovers) > 0 {
		list, err := st.handovers("where number in (?*)", n.Handovers)
		if err != nil {
			return err
		}
		addHandovers(b, list)
	}
	if len(n.HandedOver) > 0 {
		runs := make([][]byte, len(n.HandedOver))
		for i := range n.HandedOver {
			runs[i] = idBytes(&n.HandedOver[i].Run)
		}
		list, err := st.handovers("where run in (?*) and ended_at = 0", runs)
		if err != nil {
			return err
		}
		addHandovers(b, list)
	}
	if n.Number {
		last, err := st.number("select value from counters where name = ? for update", handoversCounter)
		if err != nil {
			return err
		}
		b.UseNumber(last)
	}
	return nil
}

func addHandovers(b *engine.Batch, list []store.Handover) {
	for i := range list {
		b.AddHandover(&list[i])
	}
}

func (st *step) writeHandovers(c *engine.Changes) error {
	rows := st.rows(handovers, len(c.Handovers))
	for _, h := range c.Handovers {
		rows.int(h.Number).id(&h.Attempt.Job).id(&h.Attempt.Run).int(int64(h.Attempt.Number)).id(&h.Attempt.Token)
		rows.text(h.Kind).text(h.To).text(h.About).int(int64(h.Timeout)).time(h.Sent).time(h.Seen).time(h.Ask).time(h.Ended)
	}
	if err := st.writeRows(Upsert, rows); err != nil {
		return err
	}
	var runs [][]byte
	for i := range c.AskNow {
		runs = append(runs, idBytes(&c.AskNow[i].Run))
	}
	if len(runs) > 0 { // all have the moment of the step
		if err := st.exec("update handovers set ask_at = ? where run in (?*) and ended_at = 0", columns.Nanos(c.AskNow[0].At), runs); err != nil {
			return err
		}
	}
	if c.Number > 0 {
		return st.exec("update counters set value = ? where name = ?", c.Number, handoversCounter)
	}
	return nil
}

// removeHandovers removes handovers that have ended long ago.
func (t *tx) removeHandovers(now time.Time) (more bool, err error) {
	b := t.rows(oldHandovers, tidyMax)
	q := t.query("select number from handovers where ended_at <> 0 and ended_at < ? limit ?", columns.Nanos(now.Add(-store.HandoverLife)), int64(tidyMax))
	for q.Next() {
		b.int(q.Int())
	}
	if err := q.Err(); err != nil {
		return false, err
	}
	return b.Len() == tidyMax, t.writeRows(Delete, b)
}
