package httpapi

import (
	"fmt"
	"strconv"

	"github.com/belfry-cron/belfry/internal/server/service"
)

// Route is a route, and what it requires of its caller.
type Route struct {
	Pattern          string
	Declared, Public bool
	Right            service.Right
}

// Routes returns all routes.
func Routes(c Config) (list []Route, err error) {
	a, err := newAPI(c)
	if err != nil {
		return nil, err
	}
	for _, pattern := range a.mux.patterns {
		n, declared := a.mux.needs[pattern]
		list = append(list, Route{pattern, declared, n.public, n.right})
	}
	return list, nil
}

// Descriptions returns the description of the API, and its form in OpenAPI 3.0.
func Descriptions(c Config) (document, document30 []byte, err error) {
	a, err := newAPI(c)
	if err != nil {
		return nil, nil, err
	}
	if document, err = a.document(); err != nil {
		return nil, nil, err
	}
	document30, err = a.document30()
	return document, document30, err
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
