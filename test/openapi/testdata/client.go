// Program client uses the client that oapi-codegen generates: client URL TOKEN NAMESPACE.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/belfry-cron/belfry/test/openapi/belfry"
)

func main() {
	if err := walk(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func walk(ctx context.Context, url, token, namespace string) error {
	authorized := belfry.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	})
	c, err := belfry.NewClientWithResponses(url, authorized)
	if err != nil {
		return err
	}
	command, timeout, attempts := "echo hello", "90s", 2
	j := belfry.Job{
		Namespace: &namespace, Name: "report", Schedule: &belfry.Job_Schedule{}, Run: belfry.Job_Run{},
		Policy: &belfry.Policy{Timeout: &timeout, Retry: &belfry.Retry{Attempts: &attempts, On: &belfry.Retry_On{}}},
	}
	if err := j.Run.FromJobRun0(command); err != nil {
		return err
	}
	if err := j.Schedule.FromJobSchedule0("0 3 1 1 *"); err != nil {
		return err
	}
	if err := j.Policy.Retry.On.FromRetryOn1([]belfry.RetryOn{belfry.RetryOnFailed, belfry.RetryOnLost}); err != nil {
		return err
	}

	created, err := c.PutJobWithResponse(ctx, namespace, "report", &belfry.PutJobParams{IfNoneMatch: new("*")}, j)
	if err != nil || created.JSON201 == nil || created.JSON201.Job.Uid == nil {
		return fmt.Errorf("create the job: %w, %s", err, created.Body)
	}
	again, err := c.PutJobWithResponse(ctx, namespace, "report", &belfry.PutJobParams{IfNoneMatch: new("*")}, j)
	if err != nil || again.ApplicationproblemJSON412 == nil || again.ApplicationproblemJSON412.Detail == nil {
		return fmt.Errorf("create it again: %w, %s", err, again.Body)
	}
	got, err := c.GetJobWithResponse(ctx, namespace, "report", nil)
	if err != nil || got.JSON200 == nil || *got.JSON200.Policy.Timeout != "1m30s" {
		return fmt.Errorf("get the job: %w, %s", err, got.Body)
	}
	if on, err := got.JSON200.Policy.Retry.On.AsRetryOn1(); err != nil || len(on) != 2 {
		return fmt.Errorf("when the job is retried: %w, %s", err, got.Body)
	}
	listed, err := c.ListJobsWithResponse(ctx, &belfry.ListJobsParams{Namespace: &namespace})
	if err != nil || listed.JSON200 == nil || len(listed.JSON200.Items) != 1 || listed.JSON200.Items[0].Name != "report" {
		return fmt.Errorf("list the jobs: %w, %s", err, listed.Body)
	}
	run, err := c.RunJobWithResponse(ctx, namespace, "report", nil, belfry.RunRequest{})
	if err != nil || run.JSON201 == nil {
		return fmt.Errorf("run the job: %w, %s", err, run.Body)
	}
	found, err := c.GetRunWithResponse(ctx, run.JSON201.Id)
	if err != nil || found.JSON200 == nil || found.JSON200.Job != namespace+"/report" {
		return fmt.Errorf("get the run: %w, %s", err, found.Body)
	}
	none, err := c.GetJobWithResponse(ctx, namespace, "none", nil)
	if err != nil || none.ApplicationproblemJSON404 == nil || none.ApplicationproblemJSON404.Hint == nil {
		return fmt.Errorf("get a job that does not exist: %w, %s", err, none.Body)
	}
	return nil
}
