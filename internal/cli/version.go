package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/cron"
)

// release is the version of a release, which its build sets.
var release string

// version is the output of belfry version. Its keys are a contract.
type version struct {
	Version   string `json:"version"`
	Revision  string `json:"revision"` // of the source; "" if unknown
	Go        string `json:"go"`
	Platform  string `json:"platform"`
	ZoneTable string `json:"zone_table"` // release of the embedded IANA data
}

func newVersion(env Env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version of this program, the version of Go that built it, and the release
of its IANA time zone data. The nodes of a cluster should have the same zone data.`,
		Example: `belfry version
belfry version -o json`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			v := versionOf(info)
			return showOne(env, output, v, "", v.text)
		},
	}
	addOutput(cmd, &output, asTable, asJSON, asYAML)
	return cmd
}

// versionOf reads the version from what the Go linker wrote down. A program that
// was built without it, info being nil, has no version.
func versionOf(info *debug.BuildInfo) version {
	v := version{
		Version:   "unknown",
		Go:        runtime.Version(),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
		ZoneTable: cron.ZoneTableVersion(),
	}
	if info == nil {
		return v
	}
	v.Version = cmp.Or(release, info.Main.Version)
	if v.Version == "" || v.Version == "(devel)" {
		v.Version = "development"
	}
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			v.Revision = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			v.Revision += ", changed"
		}
	}
	return v
}

// text writes the version for people.
func (v version) text(w io.Writer) {
	fmt.Fprintf(w, "belfry %s, %s %s, zone table %s\n", v.Version, v.Go, v.Platform, v.ZoneTable)
	if v.Revision != "" {
		fmt.Fprintf(w, "revision %s\n", v.Revision)
	}
}
