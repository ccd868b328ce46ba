package web

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// Service is what pages ask, topic by topic: no more than they need. Each method checks its
// caller first, so that a page cannot show what the API refuses.
type Service struct {
	Jobs          Jobs
	Runs          Runs
	Output        Output
	Lines         Lines
	Documents     Documents
	Bulk          Bulk
	Schedules     Schedules
	Stats         Stats
	Load          Load
	Attention     Attention
	Nodes         Nodes
	Executors     Executors
	Channels      Channels
	Calendars     Shared
	Pools         Shared
	Windows       Shared
	Hooks         Shared
	Secrets       Secrets
	Notifications Notifications
	Audit         Audit
	Access        Access
	Badges        Badges
}

// ServiceOf returns the topics of a service.
func ServiceOf(s *service.Service) Service {
	return Service{
		Jobs: s.Jobs, Runs: s.Runs, Output: s.Output, Lines: s.Lines, Documents: s.Documents, Bulk: s.Bulk, Schedules: s.Schedules, Stats: s.Stats, Load: s.Load,
		Attention: s.Attention, Nodes: s.Nodes, Executors: s.Executors, Channels: s.Channels, Calendars: s.Calendars, Pools: s.Pools, Windows: s.Windows, Hooks: s.Hooks, Secrets: s.Secrets, Notifications: s.Notifications, Audit: s.Audit, Access: s.Access, Badges: s.Badges,
	}
}

// The topics. Package service documents their methods.
type (
	// Jobs lists, shows and changes jobs.
	Jobs interface {
		Listed(ctx context.Context, who service.Caller, q client.JobQuery, filled bool) (service.JobPage, error)
		Recent(ctx context.Context, who service.Caller, names []string, n int) (map[string][]client.RecentRun, error)
		Labels(ctx context.Context, who service.Caller, names []string) (map[string]map[string]string, error)
		Namespaces(ctx context.Context, who service.Caller) ([]string, error)
		Get(ctx context.Context, who service.Caller, name service.Name, filled bool) (client.Document, int64, error)
		GetAt(ctx context.Context, who service.Caller, name service.Name, filled bool, at time.Time) (client.Document, int64, error)
		Create(ctx context.Context, who service.Caller, draft service.Draft) (service.Changed, error)
		Put(ctx context.Context, who service.Caller, name service.Name, draft service.Draft, expect service.Expect) (service.Changed, error)
		Delete(ctx context.Context, who service.Caller, name service.Name, why string, expect service.Expect) (service.Changed, error)
		Restore(ctx context.Context, who service.Caller, name service.Name) (service.Changed, error)
		Pause(ctx context.Context, who service.Caller, name service.Name, request client.PauseRequest, expect service.Expect) (service.Changed, error)
		Resume(ctx context.Context, who service.Caller, name service.Name, request client.ResumeRequest, expect service.Expect) (service.Changed, error)
		Next(ctx context.Context, who service.Caller, name service.Name, from time.Time, count int) (client.Occurrences, error)
		FollowersOf(ctx context.Context, who service.Caller, name service.Name, size int, token string) (client.Page[client.Follower], error)
		Revisions(ctx context.Context, who service.Caller, name service.Name, size int, token string) (client.Page[client.Revision], error)
		Revision(ctx context.Context, who service.Caller, name service.Name, version, since int64) (client.Revision, error)
		Changes(ctx context.Context, who service.Caller, name service.Name, uid job.ID, version, since int64) ([]client.FieldChange, error)
		Rollback(ctx context.Context, who service.Caller, name service.Name, version int64, expect service.Expect) (service.Changed, error)
	}
	// Runs lists, starts and ends runs.
	Runs interface {
		List(ctx context.Context, who service.Caller, q client.RunQuery) (client.Page[client.Run], error)
		Get(ctx context.Context, who service.Caller, id job.ID) (client.Run, error)
		Explained(ctx context.Context, who service.Caller, id job.ID) (service.ExplainedRun, error)
		KeptFor() time.Duration
		PoolUse(ctx context.Context, who service.Caller, pool service.Name) (service.PoolUse, error)
		Start(ctx context.Context, who service.Caller, name service.Name, request client.RunRequest, key string) (service.Made, error)
		Retry(ctx context.Context, who service.Caller, id job.ID, request client.RetryRequest, key string) (service.Made, error)
		RetryAll(ctx context.Context, who service.Caller, runs []job.ID, key string) (client.Retries, error)
		Cancel(ctx context.Context, who service.Caller, id job.ID, reason string) (client.Run, error)
		Backfill(ctx context.Context, who service.Caller, name service.Name, request client.BackfillRequest, key string) (client.Backfill, error)
		CancelBackfill(ctx context.Context, who service.Caller, name service.Name, reason string) (client.BackfillCancelled, error)
		Approve(ctx context.Context, who service.Caller, flow job.ID, step string, reject bool, note string) (client.Run, error)
		Signal(ctx context.Context, who service.Caller, flow job.ID, signal string, data []byte) (client.Run, error)
	}
	// Output reads what runs write.
	Output interface {
		Tail(ctx context.Context, who service.Caller, run *client.Run, q client.OutputQuery) ([]byte, error)
	}
	// Lines compares what runs write.
	Lines interface {
		ReadOf(ctx context.Context, who service.Caller, run *client.Run, q client.LinesQuery) (client.OutputLines, error)
		Compare(ctx context.Context, who service.Caller, id job.ID, q client.CompareQuery) (client.ComparedOutputs, error)
	}
	// Documents checks and applies files.
	Documents interface {
		Check(ctx context.Context, who service.Caller, request client.Check) (client.Checked, error)
		Apply(ctx context.Context, who service.Caller, request client.Apply) (client.Applied, error)
	}
	// Bulk changes many jobs.
	Bulk interface {
		Do(ctx context.Context, who service.Caller, bulk client.Bulk) (client.BulkResult, error)
		Each(ctx context.Context, who service.Caller, names []service.Name, bulk client.Bulk, key string) (client.BulkResult, error)
	}
	// Schedules explains expressions.
	Schedules interface {
		Preview(ctx context.Context, who service.Caller, q client.PreviewQuery) (client.Preview, error)
	}
	// Stats counts what has run.
	Stats interface {
		Over(ctx context.Context, who service.Caller, q client.StatsQuery) (client.Stats, error)
		Lanes(ctx context.Context, who service.Caller, q client.LanesQuery) (client.Lanes, error)
		OfJob(ctx context.Context, who service.Caller, name service.Name, timezone string) (client.JobStatistics, error)
		Of(ctx context.Context, who service.Caller, uid job.ID, timezone string) (client.JobStatistics, error)
	}
	// Load counts what will run.
	Load interface {
		Ahead(ctx context.Context, who service.Caller, q client.LoadQuery) (client.Load, error)
		Due(ctx context.Context, who service.Caller, namespace string, from, to time.Time, size int) ([]client.DueJob, error)
		Spread(ctx context.Context, who service.Caller, namespace string, from, to time.Time, spread time.Duration, size int) ([]client.DueJob, error)
		Planned(ctx context.Context, who service.Caller, namespace string, from, to time.Time, size, times int) ([]service.PlannedJob, error)
		Openings(ctx context.Context, who service.Caller, namespace string, from, to time.Time) ([]client.Opening, error)
		OpeningsOf(ctx context.Context, who service.Caller, namespace string, labels map[string]string, from, to time.Time) ([]client.Opening, error)
	}
	// Attention says what needs a person.
	Attention interface {
		List(ctx context.Context, who service.Caller, namespace string) ([]client.Attention, error)
		Snooze(ctx context.Context, who service.Caller, r client.AttentionRequest) ([]client.Attention, error)
		Wake(ctx context.Context, who service.Caller, r client.AttentionRequest) ([]client.Attention, error)
		Take(ctx context.Context, who service.Caller, r client.AttentionRequest) ([]client.Attention, error)
		Release(ctx context.Context, who service.Caller, r client.AttentionRequest) ([]client.Attention, error)
		Note(ctx context.Context, who service.Caller, r client.AttentionRequest) ([]client.Attention, error)
	}
	// Nodes lists and drains nodes.
	Nodes interface {
		List(ctx context.Context, who service.Caller) ([]client.Node, error)
		All(ctx context.Context, who service.Caller) ([]client.Node, error)
		About(ctx context.Context, who service.Caller) (client.Server, error)
		Drain(ctx context.Context, who service.Caller, id, reason string) (client.Node, error)
		Undrain(ctx context.Context, who service.Caller, id string) (client.Node, error)
	}
	// Executors lists executors of XXL-JOB.
	Executors interface {
		List(ctx context.Context, who service.Caller) (client.ExecutorPage, error)
		Addresses(ctx context.Context, who service.Caller, group string) (list []string, err error)
	}
	// Channels shows and deletes channels; they are made as documents.
	Channels interface {
		Get(ctx context.Context, who service.Caller, name service.Name) (job.Document, error)
		Delete(ctx context.Context, who service.Caller, name service.Name, expect service.Expect) error
	}
	// Shared has documents that jobs name.
	Shared interface {
		List(ctx context.Context, who service.Caller, namespace string) ([]job.Document, error)
		Get(ctx context.Context, who service.Caller, name service.Name) (job.Document, error)
		Put(ctx context.Context, who service.Caller, name service.Name, draft service.Draft, expect service.Expect) (put job.Document, created bool, err error)
	}
	// Secrets lists secrets without their values, and sets them.
	Secrets interface {
		List(ctx context.Context, who service.Caller, namespace string) ([]client.SecretInfo, error)
		Set(ctx context.Context, who service.Caller, name service.Name, request client.SecretRequest) (set client.SecretInfo, created bool, err error)
		Delete(ctx context.Context, who service.Caller, name service.Name) error
	}
	// Notifications says how channels deliver.
	Notifications interface {
		Missing(ctx context.Context, who service.Caller) (bool, error)
		List(ctx context.Context, who service.Caller, namespace string) ([]client.Notification, error)
		Deliveries(ctx context.Context, who service.Caller, namespace string) ([]client.Delivery, error)
		Ack(ctx context.Context, who service.Caller, id string) (client.Notification, error)
		Test(ctx context.Context, who service.Caller, name service.Name) (client.ChannelTest, error)
	}
	// Audit lists changes.
	Audit interface {
		List(ctx context.Context, who service.Caller, query client.AuditQuery) (client.Page[client.AuditRecord], error)
	}
	// Access lists, makes and revokes tokens, and lists and ends sessions.
	Access interface {
		List(ctx context.Context, who service.Caller) ([]client.Token, error)
		Create(ctx context.Context, who service.Caller, request client.TokenRequest) (client.NewToken, error)
		Revoke(ctx context.Context, who service.Caller, name string) error
		Sessions(ctx context.Context, who service.Caller) ([]auth.Session, error)
		EndSession(ctx context.Context, who service.Caller, id string) error
	}
	// Badges lists, makes and revokes badges.
	Badges interface {
		List(ctx context.Context, who service.Caller) ([]client.Badge, error)
		Create(ctx context.Context, who service.Caller, of client.BadgeOf) (client.Badge, error)
		Revoke(ctx context.Context, who service.Caller, of client.BadgeOf) (client.Badge, error)
	}
)
