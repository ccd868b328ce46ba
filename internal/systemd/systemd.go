// Package systemd writes the unit that runs a server under systemd, for packages and for
// belfry service install. It runs nothing.
package systemd

import (
	_ "embed"
	"fmt"
	"path"
	"strings"
	"text/template"
)

// The defaults of the unit.
const (
	DefaultData = stateRoot + "belfry"
	DefaultUser = "belfry"
	stateRoot   = "/var/lib/"
)

//go:embed belfry.service
var source string

var unit = template.Must(template.New("belfry.service").Parse(source))

// Options are what differs between units.
type Options struct {
	Program string // the absolute path of belfry
	Data    string // the data directory; "" is DefaultData
	RunAs   string // whose rights commands have; "" is DefaultUser
}

// Unit returns the text of the unit.
func Unit(o Options) (string, error) {
	if o.Data == "" {
		o.Data = DefaultData
	}
	if o.RunAs == "" {
		o.RunAs = DefaultUser
	}
	for _, p := range []struct{ what, value string }{{"the program", o.Program}, {"the data directory", o.Data}} {
		if !path.IsAbs(p.value) {
			return "", fmt.Errorf("%s %q is not an absolute path", p.what, p.value)
		}
	}
	for _, s := range []struct{ what, value string }{{"the program", o.Program}, {"the data directory", o.Data}, {"the user", o.RunAs}} {
		if s.value == "" || strings.ContainsFunc(s.value, special) {
			return "", fmt.Errorf("%s %q has a blank, a quote or another character with a meaning in units", s.what, s.value)
		}
	}
	// systemd makes the directory, with its mode and owner, where it knows how.
	state, under := strings.CutPrefix(path.Clean(o.Data), stateRoot)
	if !under {
		state = ""
	}
	var b strings.Builder
	err := unit.Execute(&b, struct {
		Options
		State string
	}{o, state})
	return b.String(), err
}

// special tells whether a character has a meaning in units, or ends a word.
func special(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune(`%"'\$;`, r)
}
