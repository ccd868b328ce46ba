package httpapi

import "github.com/belfry-cron/belfry/store"

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

// Wants returns what a route wants.
func Wants(pattern string) (public bool, role store.Role, about string) {
	n := access[pattern]
	return n.public, n.role, map[reach]string{
		ofServer: "server", ofNobody: "nobody", inPath: "path", inQuery: "query", inObject: "object",
	}[n.reach]
}

// SharedMax is how much output followers keep.
const SharedMax = sharedMax

// Shared returns how much they keep.
func (f *Followers) Shared() int64 { return f.shared.Load() }

// Share keeps some more.
func (f *Followers) Share(bytes int64) { f.shared.Add(bytes) }
