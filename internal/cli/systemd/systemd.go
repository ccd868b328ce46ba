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

// Options are the settings of a unit.
type Options struct {
	Program string // absolute path of belfry
	Data    string // data directory; "" is DefaultData
	RunAs   string // user of the commands; "" is DefaultUser
	Config  string // configuration file; "" is none
}

// Unit returns the text of the unit.
func Unit(o Options) (string, error) {
	if o.Data == "" {
		o.Data = DefaultData
	}
	if o.RunAs == "" {
		o.RunAs = DefaultUser
	}
	words := []word{{"the program", o.Program, true}, {"the data directory", o.Data, true}, {"the user", o.RunAs, false}}
	if o.Config != "" {
		words = append(words, word{"the configuration file", o.Config, true})
	}
	for _, w := range words {
		switch {
		case w.path && !path.IsAbs(w.value):
			return "", fmt.Errorf("%s %q is not an absolute path", w.what, w.value)
		case strings.ContainsFunc(w.value, special):
			return "", fmt.Errorf("%s %q has a blank, a quote or another character with a meaning in units", w.what, w.value)
		}
	}
	// systemd creates a directory below stateRoot, with its mode and owner.
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

// word is one in the command line of the unit.
type word struct {
	what, value string
	path        bool
}

// special reports whether a character has a meaning in units, or ends a word.
func special(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune(`%"'\$;`, r)
}
