package storecopy

import (
	"context"

	"github.com/belfry-cron/belfry/store"
)

// stream reads a whole history, latest first.
type stream struct {
	s    Store
	page []store.Record
	q    store.HistoryQuery
	over bool
}

// next returns the next record, nil at the end.
func (s *stream) next(ctx context.Context) (*store.Record, error) {
	for len(s.page) == 0 {
		if s.over {
			return nil, nil
		}
		s.q.Limit = historyPage
		page, next, err := s.s.Attempts(ctx, s.q)
		if err != nil {
			return nil, err
		}
		s.page, s.q.Before, s.over = page, next, next == store.RecordRef{}
	}
	r := &s.page[0]
	s.page = s.page[1:]
	return r, nil
}

// pairs iterates over two histories side by side and calls f with each record of the first
// and its counterpart in the second, or nil.
func pairs(ctx context.Context, from, to Store, f func(r, same *store.Record) error) error {
	a, b := &stream{s: from}, &stream{s: to}
	same, err := b.next(ctx)
	if err != nil {
		return err
	}
	for {
		r, err := a.next(ctx)
		if err != nil || r == nil {
			return err
		}
		for same != nil && same.Ref().Compare(r.Ref()) > 0 {
			if same, err = b.next(ctx); err != nil {
				return err
			}
		}
		if same != nil && same.Ref() == r.Ref() {
			err = f(r, same)
		} else {
			err = f(r, nil)
		}
		if err != nil {
			return err
		}
	}
}

// copyHistory appends what the target does not have: the output of each batch first, so that a
// killed copy leaves no record without its output.
func (c *copying) copyHistory(ctx context.Context) error {
	var batch []store.Record
	done := 0
	flush := func() error {
		if err := c.copyOutput(ctx, batch); err != nil {
			return err
		}
		if err := c.to.Append(ctx, batch); err != nil {
			return err
		}
		c.result.Written += len(batch)
		batch = batch[:0]
		return nil
	}
	err := pairs(ctx, c.from, c.to, func(r, same *store.Record) error {
		c.addKey(&r.Run)
		if done++; done%historyPage == 0 {
			c.o.Progress("history", done)
		}
		if same != nil {
			return nil
		}
		if batch = append(batch, *r); len(batch) < historyPage {
			return nil
		}
		return flush()
	})
	if err == nil && len(batch) > 0 {
		err = flush()
	}
	if err != nil {
		return err
	}
	c.o.Progress("history", done)
	return eachRun(ctx, c.from, func(list []store.Run) error { // attempts that run, or ran before a retry
		for i := range list {
			for number := 1; number <= list[i].Attempt; number++ {
				if err := c.copyOutputOf(ctx, store.RecordRef{Run: list[i].ID, Attempt: number}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (c *copying) copyOutput(ctx context.Context, records []store.Record) error {
	for i := range records {
		if r := &records[i]; r.OutputBytes > 0 {
			if err := c.copyOutputOf(ctx, r.Ref()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *copying) copyOutputOf(ctx context.Context, ref store.RecordRef) error {
	var batch []store.OutputChunk
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := c.to.AppendOutput(ctx, batch)
		batch, size = nil, 0
		return err
	}
	err := eachChunk(ctx, c.from, ref, func(chunk store.OutputChunk) error {
		if size > 0 && size+len(chunk.Data) > outputBatch {
			if err := flush(); err != nil {
				return err
			}
		}
		chunk.DropFrom, chunk.DropTo = 0, 0
		batch, size = append(batch, chunk), size+len(chunk.Data)
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// eachChunk calls f with the chunks of an attempt in their order.
func eachChunk(ctx context.Context, s Store, ref store.RecordRef, f func(store.OutputChunk) error) error {
	from := 0
	for {
		list, err := s.Output(ctx, ref.Run, ref.Attempt, from, chunksPage)
		if err != nil {
			return err
		}
		for i := range list {
			if err := f(list[i]); err != nil {
				return err
			}
		}
		if len(list) < chunksPage {
			return nil
		}
		from = list[len(list)-1].Seq + 1
	}
}
