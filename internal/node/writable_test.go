package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/store"
)

func TestReadOnlyStoreIsLoggedOnce(t *testing.T) {
	full := fmt.Errorf("claim: %w on the disk of /data/belfry.db", store.ErrNoSpace)
	readOnly := fmt.Errorf("plan: %w", store.ErrReadOnly)
	type write struct {
		err   error
		grows bool
	}
	for _, c := range []struct {
		name   string
		writes []write
		want   []string // prefixes of the expected log lines
	}{
		{"all is well", []write{{nil, true}, {nil, false}}, nil},
		{"full, and results go into the space that was kept", []write{{full, true}, {nil, false}, {full, true}, {nil, false}}, []string{"no space"}},
		{"full, then not", []write{{full, false}, {nil, false}, {nil, true}, {nil, true}}, []string{"no space", "the store is writable again"}},
		{"read-only, then not", []write{{readOnly, true}, {readOnly, false}, {nil, false}}, []string{"the store is read-only", "the store is writable again"}},
		{"full, then read-only", []write{{full, true}, {readOnly, true}, {readOnly, false}}, []string{"no space", "the store is read-only"}},
		{"another error says nothing of it", []write{{full, true}, {errors.New("locked"), true}, {full, true}}, []string{"no space"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &logtest.Log{}
			w := &writable{log: slog.New(slog.NewTextHandler(log, nil)), store: "postgres://db"}
			for _, write := range c.writes {
				w.saw(write.err, write.grows)
			}
			if last := c.writes[len(c.writes)-1].err; (w.wrong() == nil) != (len(c.want) == 0 || strings.Contains(c.want[len(c.want)-1], "again")) {
				t.Errorf("after %v the store is said to be unwritable for %v", last, w.wrong())
			}
			parts := log.Lines("")
			if len(parts) != len(c.want) {
				t.Fatalf("got %d lines, want %d:\n%s", len(parts), len(c.want), parts)
			}
			for i, want := range c.want {
				if !strings.Contains(parts[i], `msg="`+want) || !strings.Contains(parts[i], "store=postgres://db") {
					t.Errorf("line %d is %s, want %s", i, parts[i], want)
				}
			}
		})
	}
}

func TestPartsDoNotRepeatTheMessagesOfTheNode(t *testing.T) {
	text := &logtest.Log{}
	log := slog.New(quiet{slog.NewTextHandler(text, nil)}).With("a", 1).WithGroup("g")
	log.Error("planning has stopped", "error", fmt.Errorf("plan: %w", store.ErrNoSpace))
	log.Error("claims have stopped", "more", 2, "error", fmt.Errorf("claim: %w", store.ErrReadOnly))
	claims := failurelog.New(log, "runs have stopped", "runs have not stopped any more")
	claims.Saw(fmt.Errorf("claim: %w", store.ErrNoSpace))
	claims.Saw(nil)
	log.Error("something else", "error", context.Canceled)
	log.Info("nothing is wrong")
	log.Error("cannot read overdue runs", "error", fmt.Errorf("read: %w", store.ErrDamaged))
	if text.Count("belfry doctor") != 1 || text.Count(`"read: the store is damaged" g.mend="the store is damaged: run belfry doctor`) != 1 {
		t.Errorf("the log has:\n%s", text.String())
	}
	if text.Count("stopped") != 0 || text.Count("something else") != 1 || text.Count("nothing is wrong") != 1 {
		t.Errorf("the log has:\n%s", text.String())
	}
}
