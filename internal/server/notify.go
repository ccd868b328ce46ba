package server

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/notify"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// makeNotifier makes the notifier. Nodes with the role api take turns to deliver.
func (s *Server) makeNotifier(answers *service.Service) {
	var behind func() bool
	if s.apart != nil {
		behind = s.apart.Behind
	}
	s.notifier = notify.New(notify.Config{
		Store: s.measured, Node: s.Settings.Name, Send: s.sender.Send, Behind: behind, Now: s.Now, Log: s.Log,
		Output: func(ctx context.Context, run job.ID, attempt, lines int) ([]string, error) {
			return answers.Output.Last(ctx, s.itself(), run, attempt, lines)
		},
		Look: func(ctx context.Context) (notification.Lasting, error) {
			l, err := answers.Attention.Lasting(ctx, s.itself())
			if err == nil && s.apart != nil {
				s.historyAway(&l)
			}
			return l, err
		},
	})
	s.waking.Store(s.notifier)
}

// makeSender makes the sender to the services of channels, which reaches the same addresses as
// requests of jobs.
func (s *Server) makeSender() {
	s.sender = notify.NewSender(notify.SenderConfig{
		Secrets: s.secrets, Control: s.requests.Control, Version: s.Version, Now: s.Now,
	})
	s.closers = append(s.closers, func() error { s.sender.Close(); return nil })
}

// historyAway adds the problem that the history store is away.
func (s *Server) historyAway(l *notification.Lasting) {
	l.Whole = append(l.Whole, job.NoticeHistory)
	if status := s.apart.Status(); status.Away != nil {
		e := notification.Event{Kind: job.NoticeHistory, Time: s.Now(), Text: reason.RecordsWait.Of(status.Held.Entries, reason.Words(status.Away.Error()))}
		if !status.Held.Oldest.IsZero() {
			e.Time = status.Held.Oldest
		}
		l.Events = append(l.Events, e)
	}
}

// overdue is an upkeep that stores its alerts for notifications.
type overdue struct {
	node.Upkeep
	server *Server
}

// keepWithin bounds the keeping of alerts, which are logged in any case.
const keepWithin = 5 * time.Second

// Alerts implements [node.Upkeep].
func (o overdue) Alerts(ctx context.Context, limit int) ([]store.Alert, error) {
	list, err := o.Upkeep.Alerts(ctx, limit)
	if err == nil && len(list) > 0 {
		ctx, cancel := context.WithTimeout(ctx, keepWithin)
		defer cancel()
		if err := notify.Overdue(ctx, o.server.measured, o.server.Now(), list); err != nil {
			o.server.Log.Warn("cannot keep alerts for notifications", "error", err)
		}
	}
	return list, err
}

// wakeNotifier makes the notifier poll soon for failures.
func (s *Server) wakeNotifier(e store.Ends) {
	n := s.waking.Load()
	if n == nil {
		return
	}
	for _, r := range e.Records {
		if r.Final && r.Attempt.Outcome.Alarms() {
			n.Wake()
			return
		}
	}
}

// itself is the server as the caller of its own reads.
func (s *Server) itself() service.Caller {
	return service.Caller{Name: s.Settings.Name, Role: store.RoleViewer}
}
