package cli

import (
	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/job"
)

func newSchema(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of job files",
		Long:  `Print the JSON Schema of job files, with which editors complete and check them.`,
		Example: `belfry schema > belfry.schema.json

# The first line of a job file, for editors with a YAML language server:
# yaml-language-server: $schema=belfry.schema.json`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			return write(env, job.Schema())
		},
	}
}
