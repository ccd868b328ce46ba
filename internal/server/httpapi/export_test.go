package httpapi

import (
	"fmt"
	"strconv"

	"github.com/belfry-cron/belfry/internal/server/service"
)

// Patterns returns the patterns of all routes.
func Patterns(c Config) ([]string, error) {
	a, err := newAPI(c)
	if err != nil {
		return nil, err
	}
	return a.mux.patterns, nil
}

// Description returns the description of the API.
func Description(c Config) ([]byte, error) {
	a, err := newAPI(c)
	if err != nil {
		return nil, err
	}
	return a.document()
}

// Listed returns the patterns that say what they want of their caller.
func Listed() (list []string) {
	for pattern := range access {
		list = append(list, pattern)
	}
	return list
}

// Wants returns the right that a route requires.
func Wants(pattern string) (public bool, right service.Right) {
	n := access[pattern]
	return n.public, n.right
}

// Limits returns the limits of bodies by what docs/api.md calls the bodies.
func Limits() map[string]limit {
	return map[string]limit{
		"`jobs:apply`": filesBody, "a job, calendar or pool": documentBody, "the parameters of a run": paramsBody, "all others": smallBody,
	}
}

// InWords returns the cells of a limit in the table of docs/api.md.
func (l limit) InWords() string {
	bytes := fmt.Sprintf("%d KiB", l.bytes>>10)
	if l.bytes >= 1<<20 {
		bytes = fmt.Sprintf("%d MiB", l.bytes>>20)
	}
	values := strconv.Itoa(l.values)
	for at := len(values) - 3; at > 0; at -= 3 {
		values = values[:at] + "," + values[at:]
	}
	return bytes + " | " + values
}
