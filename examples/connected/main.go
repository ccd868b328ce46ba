// Command connected has functions that jobs call, and reaches no database: it asks a server for
// work over HTTP, from wherever it runs.
//
//	belfry token create edge --role worker >edge-token
//	belfry apply -f examples/connected/jobs.yaml
//	BELFRY_SERVER=https://belfry.example.com:8420 BELFRY_TOKEN=$(cat edge-token) go run ./examples/connected
//
// Start it on as many machines as the work needs: each takes its share.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/belfry-cron/belfry"
)

// Reading is the input: jobs give its fields as parameters.
type Reading struct {
	Sensor string `json:"sensor"`
}

// Measured is the result.
type Measured struct {
	Sensor  string  `json:"sensor"`
	Celsius float64 `json:"celsius"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	servers := strings.Fields(os.Getenv("BELFRY_SERVER")) // several are separated by spaces
	if len(servers) == 0 {
		log.Fatal("BELFRY_SERVER is missing: the address of a server, such as https://belfry.example.com:8420")
	}
	s := belfry.Connect(servers[0], os.Getenv("BELFRY_TOKEN"), belfry.WithServers(servers[1:]...), belfry.WithCapacity(8))
	belfry.Handle(s, "measure", measure)
	if err := s.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func measure(_ context.Context, run *belfry.Run, in Reading) (Measured, error) {
	if in.Sensor == "" {
		return Measured{}, belfry.Permanent(fmt.Errorf("parameter sensor is missing"))
	}
	run.Log.Info("measuring", "sensor", in.Sensor)
	return Measured{in.Sensor, 21.5}, nil
}
