package cli

import (
	"os"
	"strings"
)

// machineZone returns the name of the zone that this machine has, or "".
func machineZone(getenv func(string) string) string {
	if name := strings.TrimPrefix(getenv("TZ"), ":"); name != "" {
		return name
	}
	target, err := os.Readlink("/etc/localtime")
	if err != nil {
		return ""
	}
	if _, name, found := strings.Cut(target, "zoneinfo/"); found {
		switch name {
		case "Etc/UTC", "Universal", "Zulu", "UCT", "Etc/UCT", "Etc/Universal", "Etc/Zulu":
			return "UTC"
		}
		return name
	}
	return ""
}
