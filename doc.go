// Package belfry runs functions of a Go program on a schedule, on one machine or many.
// Each occurrence runs once, on time, or is recorded as missed.
//
// A program registers handlers, declares the jobs that call them, and calls [Run]:
//
//	s := belfry.New(postgres.URL(os.Getenv("DATABASE_URL")))
//
//	cleanup := belfry.Handle(s, "cleanup", func(ctx context.Context, run *belfry.Run, in Cleanup) (Report, error) {
//		run.Log.Info("deleting old rows", "days", in.Days)
//		return deleteRows(ctx, in.Days)
//	})
//	s.Job("nightly", belfry.Cron("30 2 * * *"), belfry.Timezone("Asia/Shanghai"), cleanup.Do(Cleanup{Days: 30}))
//	s.Job("heartbeat", belfry.Every(time.Second), belfry.Func(heartbeat))
//
//	err := s.Run(ctx) // until ctx ends and the handlers have returned
//
// Any number of instances of the program may do the same with the same store. They share
// the work; when one dies, the others take over. A server can use the same store: belfry
// serve shows and controls the jobs by command line, API and web pages, and runs commands
// and HTTP requests as further jobs.
//
// # Stores
//
// A program links only the store that it imports: packages store/sqlite, store/postgres,
// store/mysql, store/etcd, store/redis and store/memory each have a function that opens it.
// SQLite and memory serve one process, the others any number of processes.
//
// Connect replaces [New] in a program without access to the database: the program receives
// its runs from servers over HTTP.
//
// # Handlers
//
// A handler takes a value and returns one. The fields of the value are the parameters of
// the job, so that a manual run can override them: belfry job run nightly --param days=7.
// The result is written to the standard output of the run as JSON, and log lines of Run.Log
// to its standard error; both are kept with the history.
//
// The context of a handler ends when its run is cancelled, exceeds [Timeout], or when its
// node may no longer run it; context.Cause tells which. A handler that returns an error
// has failed, and is retried by the policy of [Retry] unless the error is [Permanent]. A
// handler that panics has failed; its output contains the stack.
//
// # Flows
//
// A flow is one run with several dependent steps. Step, [ForEach] and the methods of a [Flow]
// add its steps; a step reads the typed results of earlier steps:
//
//	load := belfry.NewFlow[Region](s, "load")
//	files := belfry.Step(load, "list", func(ctx context.Context, run *belfry.Run, in Region) ([]File, error) {
//		return list(ctx, in.Region)
//	})
//	rows := belfry.ForEach(load, "copy", files, func(ctx context.Context, run *belfry.Run, in Region, file File) (int, error) {
//		return copy(ctx, file)
//	}, belfry.MaxParallel(4), belfry.Retry(2, time.Minute))
//	belfry.Step(load, "publish", func(ctx context.Context, run *belfry.Run, in Region) (belfry.None, error) {
//		counts, err := rows.Result(run) // []int
//		...
//	}, belfry.Needs(rows))
//	s.Job("load-eu", belfry.Cron("0 2 * * *"), load.Do(Region{"eu"}))
//
// Each step has a run of its own, on any instance, and the state of the flow is in the
// store, so it survives the loss of any instance. Steps may also be commands, requests and
// other jobs, or wait for a time, an approval or a signal.
//
// # Jobs belong to the code
//
// The jobs that a program declares with Job belong to it: Run creates and changes them, and
// deletes those that an earlier version of the program declared and this one does not.
// During a rolling deployment the latest version wins, even when an instance of an earlier
// version restarts; after a rollback the earlier version wins, see [WithOwner]. A manual
// pause stays: declarations neither pause nor resume a job.
//
// Add creates a job that does not belong to the code, such as one for a customer.
package belfry
