package client_test

import (
	"context"
	"fmt"
	"os"

	"github.com/belfry-cron/belfry/client"
)

// Run a job and show its output until it has ended.
func Example() {
	c, err := client.New(client.Config{URL: "http://127.0.0.1:8420", Token: os.Getenv("BELFRY_TOKEN")})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	run, err := c.RunJob(ctx, "default", "nightly", client.RunRequest{Params: map[string]string{"day": "monday"}}, "")
	if client.IsType(err, client.TypeNotFound) {
		fmt.Println("there is no such job")
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	ended, err := c.Follow(ctx, run.ID, client.OutputQuery{}, func(part client.OutputPart) error {
		fmt.Print(part.Text)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ended.Outcome, ended.Reason)
}
